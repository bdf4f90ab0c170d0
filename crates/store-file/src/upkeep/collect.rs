//! Copying forward: the live versions of a segment that is mostly dead are written again at the log's end, so that the
//! next checkpoint can free it.

use crate::codec::{Malformed, Reader};
use crate::frame::{FRAME_HEADER_LEN, Kind, frame_len, parse};
use crate::layout::{Address, SEGMENT_HEADER_LEN, end_of_log};
use crate::record::{Put, Record, put_copy, read_copy, read_prefix, read_record};
use crate::recovery::{read_padded, unparsable};
use crate::space::weight;
use crate::{Error, Revision, Store};

use super::Step;

/// Bytes of the segment read at once.
const WINDOW: usize = 256 << 10;
/// Copying begins when this part of what could be collected is dead (1 in 4).
const DEAD_PART: u64 = 4;

/// A segment that is being emptied.
pub(super) struct Collecting {
    sequence: u64,
    at: usize,
}

/// Records gathered for one frame of copies.
#[derive(Default)]
struct Batch {
    payload: Vec<u8>,
    moved: Vec<Moved>,
}

struct Moved {
    key: Box<[u8]>,
    revision: Revision,
    len: u32,
    /// Where the value's checksum begins in the payload.
    stored_at: usize,
}

impl Store {
    /// Copies the live versions of a piece of a segment forward.
    pub(super) fn collect_step(&mut self) -> Result<Step, Error> {
        if self.upkeep.collecting.is_none() {
            self.upkeep.collecting = self.choose();
            self.read_ahead();
        }
        let Some(collecting) = &self.upkeep.collecting else {
            return Ok(Step::Idle);
        };
        let (sequence, at) = (collecting.sequence, collecting.at);
        if self.background_full() {
            return Ok(Step::Waits);
        }
        let Some(segment) = self.space.log().get(&sequence).copied() else {
            self.upkeep.collecting = None;
            return Ok(Step::Worked);
        };
        if at >= segment.used as usize || segment.live == 0 {
            if segment.live > 0 {
                debug_assert!(false, "segment {sequence} has live versions that are not in it");
                self.upkeep.skip = Some(sequence);
            }
            self.upkeep.collecting = None;
            return Ok(Step::Worked);
        }
        match self.copy_piece(sequence, at, segment.used as usize) {
            Ok(next) => {
                self.upkeep.collecting = Some(Collecting { sequence, at: next });
                self.read_ahead();
                Ok(Step::Worked)
            }
            // Tried again when something was freed.
            Err(Error::NoSpace { .. }) => Ok(Step::Idle),
            Err(error) => Err(error),
        }
    }

    /// Has the kernel read the next piece while commits go on, so that the owner does not wait for the medium.
    fn read_ahead(&self) {
        if let Some(Collecting { sequence, at }) = self.upkeep.collecting
            && let Some(offset) = self.space.offset(sequence * self.space.segment_bytes() + at as u64)
        {
            self.disk.read_ahead(offset, WINDOW as u64);
        }
    }

    /// The segment with the least live in it, if enough is dead to be worth it. Only what no read of the history needs
    /// is collected, and only while the index is wholly compacted: the account is exact then.
    fn choose(&self) -> Option<Collecting> {
        if self.upkeep.compact_from.is_some() {
            return None;
        }
        let (active, _) = end_of_log(self.tail, self.space.segment_bytes());
        let (durable, floor) = (self.durable().seq, self.floor().max(1));
        let (mut used, mut live) = (0, 0);
        let mut best: Option<(u64, u64)> = None;
        let after = self.space.log().values().skip(1);
        for ((sequence, segment), after) in self.space.log().range(..active).zip(after) {
            // What is not written yet cannot be read back.
            let collectable =
                after.first_seq <= durable + 1 && segment.max_revision < floor && Some(*sequence) != self.upkeep.skip;
            if !collectable || segment.live == 0 {
                continue;
            }
            used += u64::from(segment.used);
            live += segment.live;
            let part = segment.live * 1000 / u64::from(segment.used);
            if best.is_none_or(|(least, _)| part < least) {
                best = Some((part, *sequence));
            }
        }
        let dead = used.saturating_sub(live);
        let (part, sequence) = best?;
        let worth = dead > used / DEAD_PART && dead > self.space.segment_bytes() && part < 900;
        worth.then_some(Collecting {
            sequence,
            at: SEGMENT_HEADER_LEN,
        })
    }

    /// Copies what is live in the frames from `at` on, about a window of them; gives where to go on.
    fn copy_piece(&mut self, sequence: u64, at: usize, used: usize) -> Result<usize, Error> {
        let base = sequence * self.space.segment_bytes();
        let mut window = WINDOW.min(used - at);
        let offset = self.space.offset(base + at as u64).ok_or(Error::Gone)?;
        let mut bytes = read_padded(&*self.disk, offset, window)?;
        if parse(&bytes, 0).is_none() && window < used - at {
            window = used - at;
            bytes = read_padded(&*self.disk, offset, window)?;
        }
        let target = (self.space.segment_bytes() as usize / 8).min(64 << 10);
        let mut done = 0;
        let mut batch = Batch::default();
        while let Some((header, payload)) = parse(&bytes, done) {
            let payload_at = base + (at + done + FRAME_HEADER_LEN) as u64;
            self.gather(header.kind, payload, payload_at, target, &mut batch)
                .map_err(|failed| failed.unwrap_or_else(|| unparsable(offset + done as u64, "a frame")))?;
            done += frame_len(payload.len());
        }
        self.write_batch(&mut batch)?;
        if done == 0 {
            return Err(Error::damaged(offset, "a frame of the log is not whole"));
        }
        Ok(at + done)
    }

    /// Adds a frame's live records to the batch, writing it out whenever it is full. The error is None for a payload
    /// that does not parse.
    fn gather(
        &mut self,
        kind: Kind,
        payload: &[u8],
        payload_at: Address,
        target: usize,
        batch: &mut Batch,
    ) -> Result<(), Option<Error>> {
        let malformed = |Malformed| None;
        let mut reader = Reader::new(payload);
        match kind {
            Kind::Transaction => {
                let mut revision = read_prefix(&mut reader).map_err(malformed)?;
                while !reader.is_empty() {
                    match read_record(&mut reader).map_err(malformed)? {
                        Record::Put(put) => self.gather_put(&put, revision, payload_at, target, batch)?,
                        Record::Delete { .. } => {}
                        Record::EndLease { .. } => continue,
                    }
                    revision.sub += 1;
                }
            }
            Kind::Copy => {
                while !reader.is_empty() {
                    let (revision, put) = read_copy(&mut reader).map_err(malformed)?;
                    self.gather_put(&put, revision, payload_at, target, batch)?;
                }
            }
            // Leases, notes and compactions of a collected segment are all in the checkpoint before it is freed.
            _ => {}
        }
        Ok(())
    }

    fn gather_put(
        &mut self,
        put: &Put<'_>,
        revision: Revision,
        payload_at: Address,
        target: usize,
        batch: &mut Batch,
    ) -> Result<(), Option<Error>> {
        let address = payload_at + put.stored_at as u64;
        let found = self.index.get(put.key).and_then(|entry| {
            let same = |ver: &&crate::index::Ver| ver.revision() == revision && ver.address == address;
            entry.versions().find(same).copied()
        });
        let Some(ver) = found else {
            return Ok(());
        };
        if !batch.payload.is_empty() && batch.payload.len() + put.key.len() + put.value.len() > target {
            self.write_batch(batch)?;
        }
        let stored_at = put_copy(&mut batch.payload, put.key, put.value, &ver);
        batch.moved.push(Moved {
            key: put.key.into(),
            revision,
            len: ver.len,
            stored_at,
        });
        Ok(())
    }

    fn write_batch(&mut self, batch: &mut Batch) -> Result<(), Error> {
        if batch.moved.is_empty() {
            return Ok(());
        }
        self.reserve(1, batch.payload.len(), true)?;
        let Batch { payload, moved } = std::mem::take(batch);
        self.log(Kind::Copy, &payload);
        let frame = self.tail - frame_len(payload.len()) as u64 + FRAME_HEADER_LEN as u64;
        self.upkeep.copied += moved.len() as u64;
        for moved in moved {
            let to = frame + moved.stored_at as u64;
            let weight = weight(moved.key.len(), moved.len);
            if let Some(from) = self.index.relocate(&moved.key, moved.revision, to) {
                self.space.weigh(from, weight, false);
                self.space.weigh(to, weight, true);
            }
        }
        self.note_background(self.writer.ticket(), payload.len());
        Ok(())
    }
}
