//! Full verification of a closed file: what recovery trusts is read as well.
//!
//! Recovery reads the checkpoint and the log behind it. This reads every frame of every segment of the log and compares
//! it with the index: each version that the index names must be where it says, and each revision of the history must
//! begin where the list of revisions says.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use crate::codec::{Malformed, Reader};
use crate::frame::{FIRST, FRAME_HEADER_LEN, FrameHeader, Kind, frame_len, parse};
use crate::index::Ver;
use crate::layout::{Address, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::read::{check_value, read_value};
use crate::record::{Put, Record, read_copy, read_lease, read_prefix, read_record};
use crate::recovery::{Recovered, read_headers, read_segment, recover};
use crate::{Disk, Error, FileDisk, Identity};

/// Problems told one by one; what is beyond is counted.
const TOLD_MAX: usize = 100;

/// Something at a place in the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// Byte offset in the file.
    pub offset: u64,
    /// What was found and expected.
    pub what: String,
}

/// What a file holds and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Damage, in the order of the file; 100 at most.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub more_problems: u64,
    /// What is no damage and the next start of a server puts right: an older header copy, a torn tail.
    pub notices: Vec<Problem>,
    /// Who the store says it is.
    pub identity: Identity,
    /// The head revision.
    pub revision: i64,
    /// The compacted revision.
    pub compacted: i64,
    /// The head of the import that made the file.
    pub imported: Option<i64>,
    /// Live keys.
    pub keys: u64,
    /// Versions that the index names, deletes included.
    pub versions: u64,
    /// Leases.
    pub leases: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Frames read in them.
    pub frames: u64,
    /// Bytes of all values that the index names.
    pub value_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Checks a closed file; refuses one that a server holds.
///
/// # Errors
/// What leaves nothing to check: no file, no header, a newer format, or damage that recovery refuses, with its offset.
pub fn check(path: &Path) -> Result<Checked, Error> {
    check_on(Arc::new(FileDisk::open_frozen(path)?))
}

/// Checks any medium.
///
/// # Errors
/// As [`check`].
pub fn check_on(disk: Arc<dyn Disk>) -> Result<Checked, Error> {
    let state = recover(&disk, 0)?;
    let file_bytes = disk.len().map_err(Error::io("reading the store file's length"))?;
    let mut walk = Walk::new(&state, file_bytes);
    for (sequence, segment) in state.space.log() {
        walk.segment(
            &*disk,
            *sequence,
            segment.slot,
            segment.used as usize,
            segment.first_seq,
        )?;
    }
    walk.rest(&*disk);
    let mut notices = Vec::new();
    let headers = read_headers(&*disk)?;
    for offset in headers.stale {
        let what = "a header copy that is older or not whole; the other one is".to_owned();
        notices.push(Problem { offset, what });
    }
    for (offset, len) in &state.clean {
        let what = format!("{len} bytes behind the end of the log that no sync vouches for");
        notices.push(Problem { offset: *offset, what });
    }
    walk.problems.sort_by_key(|problem| problem.offset);
    let more_problems = walk.problems.len().saturating_sub(TOLD_MAX) as u64;
    walk.problems.truncate(TOLD_MAX);
    let entries = || state.index.entries();
    Ok(Checked {
        problems: walk.problems,
        more_problems,
        notices,
        identity: state.header.identity,
        revision: state.head,
        compacted: state.compacted,
        imported: (state.header.imported > 0).then_some(state.header.imported),
        keys: entries().filter(|entry| !entry.latest().is_tombstone()).count() as u64,
        versions: entries().map(|entry| entry.versions().count() as u64).sum(),
        leases: state.leases.len() as u64,
        segments: state.space.log().len() as u64,
        frames: walk.frames,
        value_bytes: entries()
            .flat_map(|entry| entry.versions().map(|ver| u64::from(ver.len)))
            .sum(),
        file_bytes,
    })
}

/// What is still expected while the log is read.
struct Walk<'a> {
    state: &'a Recovered,
    /// The versions of the index by their addresses.
    wanted: HashMap<Address, (&'a [u8], &'a Ver)>,
    /// The revisions of the history whose transaction has not been met.
    revisions: BTreeSet<i64>,
    /// Where the chain being read begins.
    chain: Address,
    problems: Vec<Problem>,
    frames: u64,
}

impl<'a> Walk<'a> {
    fn new(state: &'a Recovered, file_bytes: u64) -> Walk<'a> {
        let mut wanted = HashMap::new();
        for entry in state.index.entries() {
            for ver in entry.versions().filter(|ver| !ver.is_tombstone()) {
                wanted.insert(ver.address, (entry.key(), ver));
            }
        }
        // The compacted revision itself may be that of an import, which has no transaction.
        let first = state.compacted.max(state.header.imported).max(1) + 1;
        let mut walk = Walk {
            state,
            wanted,
            revisions: BTreeSet::new(),
            chain: 0,
            problems: Vec::new(),
            frames: 0,
        };
        // Each revision has a frame: with more of them than the file has room for, none is looked for.
        let most = (file_bytes / FRAME_HEADER_LEN as u64) as i64;
        if state.head - first < most {
            walk.revisions = (first..=state.head).collect();
        } else {
            let what = format!(
                "the history from revision {first} to {} cannot be in {file_bytes} bytes",
                state.head
            );
            walk.problem(0, what);
        }
        walk
    }

    fn problem(&mut self, offset: u64, what: impl Into<String>) {
        self.problems.push(Problem {
            offset,
            what: what.into(),
        });
    }

    fn segment(&mut self, disk: &dyn Disk, sequence: u64, slot: u32, used: usize, first_seq: u64) -> Result<(), Error> {
        let size = self.state.space.segment_bytes();
        let base = self.state.space.slot_at(slot);
        let bytes = read_segment(disk, base, size as u32)?;
        let Some(header) = SegmentHeader::decode(&bytes[..SEGMENT_HEADER_LEN]) else {
            self.problem(
                base,
                format!("the header of segment {sequence} of the log is not whole"),
            );
            return Ok(());
        };
        let (mut at, mut seq) = (SEGMENT_HEADER_LEN, first_seq);
        while at < used {
            let frame = parse(&bytes[..used], at).filter(|(frame, _)| frame.seq == seq && frame.tag == header.tag);
            let Some((frame, payload)) = frame else {
                let next = next_frame(&bytes[..used], at, seq, header.tag);
                let offset = base + at as u64;
                match next {
                    None => {
                        self.problem(
                            offset,
                            format!("frame {seq} and all behind it in segment {sequence} are not whole"),
                        );
                        return Ok(());
                    }
                    Some((next_at, next_seq)) => {
                        let what = match next_seq - seq {
                            1 => format!("frame {seq} in segment {sequence} is not whole"),
                            _ => format!("frames {seq} to {} in segment {sequence} are not whole", next_seq - 1),
                        };
                        self.problem(offset, what);
                        (at, seq) = (next_at, next_seq);
                        continue;
                    }
                }
            };
            let address = sequence * size + at as u64;
            let payload_at = address + FRAME_HEADER_LEN as u64;
            if let Err(Malformed) = self.frame(&frame, payload, address, payload_at, base + at as u64) {
                self.problem(
                    base + at as u64,
                    format!("frame {seq} has a right checksum and does not parse: expected format 1"),
                );
            }
            self.frames += 1;
            seq += 1;
            at += frame_len(payload.len());
        }
        Ok(())
    }

    fn frame(
        &mut self,
        frame: &FrameHeader,
        payload: &[u8],
        address: Address,
        payload_at: Address,
        offset: u64,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(payload);
        match frame.kind {
            Kind::Transaction => {
                let revision = read_prefix(&mut reader)?;
                let mut changes = 0;
                while !reader.is_empty() {
                    match read_record(&mut reader)? {
                        Record::Put(put) => self.put(&put, payload_at, offset),
                        Record::Delete { .. } => {}
                        Record::EndLease { .. } => continue,
                    }
                    changes += 1;
                }
                if frame.part & FIRST != 0 {
                    self.chain = address;
                }
                // Leases that end may fill a chain's first frame: its revision counts from the first change on.
                if changes > 0 && self.revisions.remove(&revision.main) {
                    let listed = self.state.revisions.get(revision.main);
                    if listed != Some(self.chain) {
                        let what = format!(
                            "revision {} begins here, the list of revisions says otherwise",
                            revision.main
                        );
                        self.problem(offset, what);
                    }
                }
            }
            Kind::Copy => {
                while !reader.is_empty() {
                    let (_, put) = read_copy(&mut reader)?;
                    self.put(&put, payload_at, offset);
                }
            }
            Kind::Lease => drop(read_lease(&mut reader)?),
            Kind::Compact => drop(reader.signed()?),
            Kind::Note => {
                reader.bytes()?;
                reader.bytes()?;
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    /// A put of the log: if the index names it, it must be the one that the index means.
    fn put(&mut self, put: &Put<'_>, payload_at: Address, offset: u64) {
        let address = payload_at + put.stored_at as u64;
        let Some((key, ver)) = self.wanted.get(&address).copied() else {
            return;
        };
        let same = key == put.key
            && (ver.create, ver.version, ver.lease, ver.len as usize)
                == (put.create, put.version, put.lease, put.value.len());
        let mut stored = put.checksum.to_le_bytes().to_vec();
        stored.extend_from_slice(put.value);
        if !same {
            let what = format!("the record of key {:?} is not the one the index names", text(key));
            self.problem(offset, what);
        } else if check_value(&stored, offset).is_err() {
            self.problem(offset, format!("the value of key {:?} has a wrong checksum", text(key)));
        }
        self.wanted.remove(&address);
    }

    /// What the log did not show: values in frames that are not whole are read on their own.
    fn rest(&mut self, disk: &dyn Disk) {
        let mut rest: Vec<(Address, (&[u8], &Ver))> = self.wanted.drain().collect();
        rest.sort_by_key(|(address, _)| *address);
        for (address, (key, ver)) in rest {
            let name = format!("revision {} of key {:?}", ver.main, text(key));
            match self.state.space.offset(address) {
                None => self.problem(0, format!("{name} is in a segment that is not part of the log")),
                Some(offset) => match read_value(disk, offset, ver.len as usize) {
                    Ok(_) => {}
                    Err(error) => self.problem(offset, format!("{name} cannot be read: {error}")),
                },
            }
        }
        let lost: Vec<i64> = std::mem::take(&mut self.revisions).into_iter().collect();
        for revision in lost {
            let listed = self.state.revisions.get(revision);
            let offset = listed.and_then(|address| self.state.space.offset(address));
            self.problem(
                offset.unwrap_or(0),
                format!("the transaction of revision {revision} is not here"),
            );
        }
    }
}

/// The next whole frame of the segment behind a broken one: where it begins and its number.
fn next_frame(bytes: &[u8], at: usize, seq: u64, tag: u32) -> Option<(usize, u64)> {
    (at + 8..bytes.len()).step_by(8).find_map(|at| {
        let header = FrameHeader::decode(&bytes[at..])?;
        (header.tag == tag && header.seq > seq).then_some(())?;
        parse(bytes, at).map(|(header, _)| (at, header.seq))
    })
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
