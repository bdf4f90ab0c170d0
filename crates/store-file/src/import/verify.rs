//! The finished file, read back: index and records side by side, each compared with the other.

use std::sync::Arc;

use super::Summary;
use crate::checkpoint::{End, read_frames, read_keys, read_segments};
use crate::codec::{Malformed, Reader};
use crate::frame::{FRAME_HEADER_LEN, Kind, frame_len, parse};
use crate::index::Ver;
use crate::layout::SEGMENT_HEADER_LEN;
use crate::read::check_value;
use crate::record::read_copy;
use crate::recovery::{Slots, read_headers, read_segment, scan_slots, unparsable};
use crate::space::Space;
use crate::{Digest, Disk, Error};

/// Reads the whole file from the medium: every frame of the index, every frame of records, every value. Two segments
/// are in memory at a time.
pub(super) fn summary(disk: &Arc<dyn Disk>) -> Result<Summary, Error> {
    let header = read_headers(&**disk)?.newest;
    let slots = scan_slots(&**disk, header.segment_bytes)?;
    let space = Space::new(Arc::clone(disk), header.segment_bytes, 0);
    let index = slots.checkpoint(header.checkpoint, header.checkpoint_segments)?;
    let mut records = Records {
        disk: &**disk,
        slots: &slots,
        space: &space,
        segment_bytes: header.segment_bytes,
        sequence: 0,
        tag: 0,
        base: 0,
        bytes: Vec::new(),
        at: 0,
        payload: (0, 0),
        next: 0,
        seq: 0,
    };
    let (mut keys, mut bytes, mut digest) = (0, 0, Digest::default());
    let (mut seq, mut end, mut segments) = (0, None, 0);
    for slot in index {
        let base = space.slot_at(slot);
        let segment = read_segment(&**disk, base, header.segment_bytes)?;
        read_frames(&segment, &mut seq, |frame, payload| {
            match frame.kind {
                Kind::Keys => read_keys::<Bad>(payload, |key, versions| {
                    let [ver] = versions else {
                        return Err(Bad(None));
                    };
                    let value = records.next(key, ver).map_err(|error| Bad(Some(error)))?;
                    keys += 1;
                    bytes += (key.len() + value.len()) as u64;
                    digest.add_parts(key, value, [ver.create, ver.main, ver.version, ver.lease]);
                    Ok(())
                })
                .map_err(|Bad(error)| error.unwrap_or_else(|| unparsable(base, "a checkpoint frame")))?,
                Kind::Segments => {
                    let listed = read_segments(payload).map_err(|Malformed| unparsable(base, "a list of segments"))?;
                    segments += listed.len() as u64;
                }
                Kind::End => {
                    end = Some(End::decode(payload).map_err(|Malformed| unparsable(base, "the checkpoint's end"))?);
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    let whole = end.filter(|end| end.entries == keys && end.replay_seq == records.seq + 1);
    let Some(end) = whole.filter(|_| segments == records.sequence.max(1)) else {
        return Err(Error::damaged(
            0,
            format!(
                "the import read back ends after {keys} keys and frame {}, its end is {end:?}",
                records.seq
            ),
        ));
    };
    Ok(Summary {
        keys,
        bytes,
        head: end.head,
        digest: digest.finish(),
    })
}

/// Something is wrong: an error, or (None) a payload that does not parse.
struct Bad(Option<Error>);

impl From<Malformed> for Bad {
    fn from(Malformed: Malformed) -> Bad {
        Bad(None)
    }
}

/// The records of the data segments, one after the other.
struct Records<'a> {
    disk: &'a dyn Disk,
    slots: &'a Slots,
    space: &'a Space,
    segment_bytes: u32,
    sequence: u64,
    tag: u32,
    /// Offset of the segment in `bytes`.
    base: u64,
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
    /// The frame being read: where its payload begins and ends.
    payload: (usize, usize),
    /// Where the next record begins in the payload.
    next: usize,
    seq: u64,
}

impl Records<'_> {
    /// The next record's value; the record must be the one the index names.
    fn next(&mut self, key: &[u8], ver: &Ver) -> Result<&[u8], Error> {
        while self.payload.0 + self.next >= self.payload.1 {
            self.next_frame()?;
        }
        let (from, to) = self.payload;
        let mut reader = Reader::new(&self.bytes[from + self.next..to]);
        let offset = self.base + (from + self.next) as u64;
        let (revision, put) = read_copy(&mut reader).map_err(|Malformed| unparsable(offset, "a frame of records"))?;
        let stored = from + self.next + put.stored_at;
        let address = self.sequence * u64::from(self.segment_bytes) + stored as u64;
        let found = Ver {
            create: put.create,
            main: revision.main,
            version: put.version,
            lease: put.lease,
            address,
            sub: revision.sub,
            len: put.value.len() as u32,
        };
        if put.key != key || found != *ver {
            return Err(Error::damaged(
                offset,
                format!(
                    "the record of key {:?} is not the one the index names",
                    String::from_utf8_lossy(key)
                ),
            ));
        }
        self.next += reader.at();
        let value_to = stored + 4 + found.len as usize;
        check_value(&self.bytes[stored..value_to], self.base + stored as u64)?;
        Ok(&self.bytes[stored + 4..value_to])
    }

    fn next_frame(&mut self) -> Result<(), Error> {
        loop {
            let found = parse(&self.bytes, self.at)
                .filter(|(header, _)| header.seq == self.seq + 1 && header.tag == self.tag)
                .map(|(header, payload)| (header.kind, payload.len()));
            if let Some((Kind::Copy, len)) = found {
                let from = self.at + FRAME_HEADER_LEN;
                self.payload = (from, from + len);
                self.next = 0;
                self.at += frame_len(len);
                self.seq += 1;
                return Ok(());
            }
            let next = self.slots.log.get(&(self.sequence + 1));
            let Some(next) = next.filter(|next| next.first_seq == self.seq + 1) else {
                return Err(Error::damaged(
                    self.base + self.at as u64,
                    format!("frame {} of the records is not whole", self.seq + 1),
                ));
            };
            self.sequence += 1;
            self.base = self.space.slot_at(next.slot);
            self.bytes = read_segment(self.disk, self.base, self.segment_bytes)?;
            self.tag = next.tag;
            self.at = SEGMENT_HEADER_LEN;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::import::Import;
    use crate::{Identity, Lease, Record, Seeded, SimDisk, Tuning};

    /// A small import over many segments, and what it holds.
    fn import() -> (Vec<u8>, Summary) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.qks");
        let identity = Identity {
            cluster_id: 1,
            member_id: 2,
            raft_term: 3,
        };
        let mut import = Import::create_with(&path, identity, 1000, &Tuning::small()).unwrap();
        for n in 0..300i64 {
            let record = Record {
                key: Bytes::from(format!("/registry/{n:04}")),
                value: Bytes::from(vec![n as u8; (n % 97) as usize]),
                create: 2,
                modified: 2 + n / 3,
                version: 1,
                lease: n % 4,
            };
            import.push(&record).unwrap();
        }
        import
            .lease(Lease {
                id: 1,
                granted_ttl: 5,
                deadline_ms: 6,
            })
            .unwrap();
        let finished = import.finish().unwrap();
        let summary = finished.summary().clone();
        finished.publish().unwrap();
        (std::fs::read(&path).unwrap(), summary)
    }

    #[test]
    fn a_flipped_bit_in_a_finished_import_is_found_by_reading_it_back() {
        let (bytes, expected) = import();
        let mut random = Seeded::new(1);
        let (mut refused, mut harmless) = (0, 0);
        for at in (0..bytes.len()).filter(|at| bytes[*at] != 0).step_by(4) {
            let disk = SimDisk::with_bytes(bytes.clone());
            disk.flip(at as u64, random.below(8) as u8);
            let disk: Arc<dyn Disk> = Arc::new(disk);
            match summary(&disk) {
                Ok(found) => {
                    assert_eq!(found, expected, "byte {at}");
                    harmless += 1;
                }
                Err(Error::Damaged { .. }) => refused += 1,
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
        println!("{refused} flips refused, {harmless} harmless");
        // One copy of the header may be damaged: the other one counts.
        assert!(harmless < 50 && refused > 2500, "{harmless} {refused}");
    }

    #[test]
    fn a_part_of_an_import_that_never_reached_the_medium_is_found() {
        let (bytes, _) = import();
        for page in (0..bytes.len())
            .step_by(4096)
            .filter(|page| bytes[*page..page + 1] != [0])
        {
            if page < 8192 {
                continue;
            }
            let mut lost = bytes.clone();
            lost[page..page + 4096].fill(0);
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::with_bytes(lost));
            assert!(summary(&disk).is_err(), "the page at {page} is missing");
        }
    }
}
