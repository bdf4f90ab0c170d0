//! Who uses which slot of the file, and how much of the log is still needed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::layout::{Address, SEGMENT_HEADER_LEN, SLOTS_AT};
use crate::{Disk, Error};

/// Slots kept for deletes, compactions and copies, beside those for a checkpoint.
const SPARE_SLOTS: u64 = 1;
/// What a record weighs beside its key and value, for the account of what is live.
const RECORD_WEIGHT: u64 = 24;

/// What a version weighs in its segment.
pub(crate) fn weight(key: usize, value: u32) -> u64 {
    key as u64 + u64::from(value) + RECORD_WEIGHT
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Slot {
    /// Nothing; `reserved`: its space is taken on the medium.
    Free { reserved: bool },
    /// A segment of the log.
    Log,
    /// A segment of a checkpoint.
    Checkpoint,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    pub(crate) slot: u32,
    pub(crate) first_seq: u64,
    /// Bytes written, its header included.
    pub(crate) used: u32,
    /// Weight of the live and uncompacted versions in it.
    pub(crate) live: u64,
    /// The last revision whose transaction stands in it, 0 for none.
    pub(crate) max_revision: i64,
    /// When the last live version in it went; None if that was before the start.
    pub(crate) emptied: Option<Instant>,
}

/// Space to be given back to the medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Release {
    Cut { len: u64 },
    Punch { at: u64, len: u64 },
}

/// The slots of the file and the segments of the log.
pub(crate) struct Space {
    disk: Arc<dyn Disk>,
    segment_bytes: u32,
    slots: Vec<Slot>,
    /// Slots whose blocks the medium has written before, so far as is known.
    written: Vec<bool>,
    /// Number of free slots whose space is reserved.
    reserved: u64,
    log: BTreeMap<u64, Segment>,
    /// Slots the checkpoint in force takes.
    checkpoint: Vec<u32>,
    /// Slots a checkpoint in the making takes.
    making: Vec<u32>,
    /// Sum of `used` over the log.
    used: u64,
    /// Sum of `live` over the log.
    live: u64,
    quota: u64,
    /// There was no room for something since the last checkpoint.
    pressed: bool,
}

impl Space {
    pub(crate) fn new(disk: Arc<dyn Disk>, segment_bytes: u32, quota: u64) -> Space {
        Space {
            disk,
            segment_bytes,
            slots: Vec::new(),
            written: Vec::new(),
            reserved: 0,
            log: BTreeMap::new(),
            checkpoint: Vec::new(),
            making: Vec::new(),
            used: 0,
            live: 0,
            quota,
            pressed: false,
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_bytes)
    }

    /// The most bytes of frames a segment takes.
    pub(crate) fn capacity(&self) -> usize {
        self.segment_bytes as usize - SEGMENT_HEADER_LEN
    }

    /// Sets the number of slots the file has now; nothing is known to be reserved.
    pub(crate) fn set_slots(&mut self, slots: usize) {
        self.slots.resize(slots, Slot::Free { reserved: false });
    }

    pub(crate) fn slot_at(&self, slot: u32) -> u64 {
        SLOTS_AT + u64::from(slot) * self.segment_bytes()
    }

    pub(crate) fn log(&self) -> &BTreeMap<u64, Segment> {
        &self.log
    }

    pub(crate) fn add_segment(&mut self, sequence: u64, segment: Segment) {
        self.set(segment.slot, Slot::Log);
        self.used += u64::from(segment.used);
        self.live += segment.live;
        self.log.insert(sequence, segment);
    }

    /// Changes a segment of the log.
    pub(crate) fn update(&mut self, sequence: u64, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.log.get_mut(&sequence) {
            let (used, live) = (segment.used, segment.live);
            change(segment);
            self.used = self.used - u64::from(used) + u64::from(segment.used);
            self.live = self.live - live + segment.live;
        }
    }

    /// Accounts for a version at `address` that came or went.
    pub(crate) fn weigh(&mut self, address: Address, weight: u64, came: bool) {
        self.update(address / self.segment_bytes(), |segment| {
            debug_assert!(came || segment.live >= weight, "more was dropped than ever came");
            if came {
                segment.live += weight;
                return;
            }
            segment.live = segment.live.saturating_sub(weight);
            if segment.live == 0 {
                segment.emptied = Some(Instant::now());
            }
        });
    }

    /// Where an address stands in the file; None if its segment is gone.
    pub(crate) fn offset(&self, address: Address) -> Option<u64> {
        let segment = self.log.get(&(address / self.segment_bytes()))?;
        Some(self.slot_at(segment.slot) + address % self.segment_bytes())
    }

    /// Changes what a slot is used for.
    fn set(&mut self, slot: u32, becomes: Slot) {
        let reserved = Slot::Free { reserved: true };
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            self.reserved -= u64::from(*slot == reserved);
            self.reserved += u64::from(becomes == reserved);
            *slot = becomes;
        }
    }

    /// Slots that must stay free after an ordinary transaction: for deletes and copies, and for the next checkpoint.
    fn spare(&self) -> u64 {
        SPARE_SLOTS + (self.checkpoint.len() as u64 * 5 / 4).max(1)
    }

    /// Makes sure that `slots` more segments can be begun and `bytes` be written. Changes nothing but reservations.
    pub(crate) fn reserve(&mut self, slots: u64, bytes: u64, spare: bool) -> Result<(), Error> {
        let reserved = self.try_reserve(slots, bytes, spare);
        self.pressed |= matches!(reserved, Err(Error::NoSpace { .. }));
        reserved
    }

    fn try_reserve(&mut self, slots: u64, bytes: u64, spare: bool) -> Result<(), Error> {
        let no_space = Error::NoSpace { needed: bytes };
        if self.quota > 0 {
            let extra = if spare { SPARE_SLOTS * self.segment_bytes() } else { 0 };
            if self.in_file() + bytes > self.quota + extra {
                return Err(no_space);
            }
        }
        let wanted = slots + if spare { 0 } else { self.spare() };
        self.reserve_slots(wanted, no_space)
    }

    /// Reserves the spare, as far as there is room: a store on a full medium opens too.
    pub(crate) fn reserve_spare(&mut self) -> Result<(), Error> {
        match self.reserve(0, 0, false) {
            Err(Error::NoSpace { .. }) => Ok(()),
            reserved => reserved,
        }
    }

    /// Reserves the space of a segment of the log once more: after a crash the medium may have forgotten it. False if
    /// there is no room.
    pub(crate) fn reserve_again(&mut self, sequence: u64) -> Result<bool, Error> {
        let Some(segment) = self.log.get(&sequence) else {
            return Ok(false);
        };
        match self.disk.allocate(self.slot_at(segment.slot), self.segment_bytes()) {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => Ok(false),
            Err(source) => Err(Error::Io {
                what: "reserving space",
                source,
            }),
        }
    }

    fn reserve_slots(&mut self, wanted: u64, no_space: Error) -> Result<(), Error> {
        let mut next = 0;
        while self.reserved < wanted {
            let slot = self.slots[next..]
                .iter()
                .position(|slot| *slot == Slot::Free { reserved: false })
                .map_or(self.slots.len(), |at| next + at);
            match self.disk.allocate(self.slot_at(slot as u32), self.segment_bytes()) {
                Ok(()) => {}
                Err(error) if is_full(&error) => return Err(no_space),
                Err(source) => {
                    return Err(Error::Io {
                        what: "reserving space",
                        source,
                    });
                }
            }
            if slot == self.slots.len() {
                self.slots.push(Slot::Free { reserved: false });
            }
            self.set(slot as u32, Slot::Free { reserved: true });
            next = slot + 1;
        }
        Ok(())
    }

    /// Takes the lowest reserved slot; None if [`Space::reserve`] did not make sure that there is one.
    fn take(&mut self, becomes: Slot) -> Option<u32> {
        let slot = self
            .slots
            .iter()
            .position(|slot| *slot == Slot::Free { reserved: true })?;
        self.set(slot as u32, becomes);
        Some(slot as u32)
    }

    /// Begins the log's next segment in a reserved slot.
    pub(crate) fn begin_segment(&mut self, sequence: u64, first_seq: u64) -> Option<u32> {
        let slot = self.take(Slot::Log)?;
        self.add_segment(
            sequence,
            Segment {
                slot,
                first_seq,
                used: SEGMENT_HEADER_LEN as u32,
                live: 0,
                max_revision: 0,
                emptied: None,
            },
        );
        Some(slot)
    }

    /// Takes a slot for a checkpoint in the making, spare ones too.
    pub(crate) fn begin_checkpoint_segment(&mut self) -> Result<u32, Error> {
        self.reserve_slots(
            1,
            Error::NoSpace {
                needed: self.segment_bytes(),
            },
        )?;
        let slot = self.take(Slot::Checkpoint).ok_or(Error::NoSpace {
            needed: self.segment_bytes(),
        })?;
        self.making.push(slot);
        Ok(slot)
    }

    /// Names the slots of the checkpoint in force, as found at the start.
    pub(crate) fn set_checkpoint(&mut self, slots: Vec<u32>) {
        for slot in &slots {
            self.set(*slot, Slot::Checkpoint);
        }
        self.checkpoint = slots;
    }

    /// Gives up the checkpoint in the making.
    pub(crate) fn abandon_checkpoint(&mut self) {
        for slot in std::mem::take(&mut self.making) {
            self.set(slot, Slot::Free { reserved: true });
        }
    }

    /// Segments before `active` that a checkpoint made now would not need: nothing lives in them and no read of the
    /// history from `compacted` on needs them. Versions given out before may still be read for a while (`grace`) after
    /// the last one was moved away, unless space is short.
    pub(crate) fn freeable(&self, active: u64, compacted: i64, grace: Duration) -> Vec<u64> {
        let left = |emptied: Instant| self.pressed || emptied.elapsed() >= grace;
        let unneeded = self.log.range(..active).filter(|(_, segment)| {
            segment.live == 0 && segment.max_revision < compacted.max(1) && segment.emptied.is_none_or(left)
        });
        unneeded.map(|(sequence, _)| *sequence).collect()
    }

    /// Puts the checkpoint in the making in force and frees the old one's slots.
    pub(crate) fn install_checkpoint(&mut self) {
        self.pressed = false;
        let made = std::mem::take(&mut self.making);
        for slot in std::mem::replace(&mut self.checkpoint, made) {
            self.set(slot, Slot::Free { reserved: true });
        }
    }

    /// Where a segment of the log ends in the file if its slot's space was only reserved before it, else 0.
    pub(crate) fn fresh_until(&self, sequence: u64) -> u64 {
        match self.log.get(&sequence) {
            Some(segment) if !self.is_written(segment.slot) => self.slot_at(segment.slot + 1),
            _ => 0,
        }
    }

    fn is_written(&self, slot: u32) -> bool {
        self.written.get(slot as usize).is_some_and(|written| *written)
    }

    fn set_written(&mut self, slot: u32, written: bool) {
        let slot = slot as usize;
        if self.written.len() <= slot {
            self.written.resize(slot + 1, false);
        }
        self.written[slot] = written;
    }

    /// Frees a segment of the log.
    pub(crate) fn free_segment(&mut self, sequence: u64) {
        if let Some(segment) = self.log.remove(&sequence) {
            // What it left unwritten at its end is less than what is worth knowing.
            let filled = u64::from(segment.used) >= self.segment_bytes() / 8 * 7;
            self.set_written(segment.slot, filled || self.is_written(segment.slot));
            self.used -= u64::from(segment.used);
            self.live -= segment.live;
            self.set(segment.slot, Slot::Free { reserved: true });
        }
    }

    /// What to give back next, if clearly more free slots are reserved than the spare: those at the file's end are cut
    /// off, then the highest others are punched.
    pub(crate) fn release(&mut self) -> Option<Release> {
        // Some more of a large store: what is given back is soon asked for again.
        let keep = self.spare() + 1 + self.log.len() as u64 / 16;
        let before = self.slots.len();
        while let Some(Slot::Free { reserved }) = self.slots.last()
            && (!reserved || self.reserved > keep)
        {
            self.reserved -= u64::from(*reserved);
            self.slots.pop();
        }
        if self.slots.len() < before {
            self.written.truncate(self.slots.len());
            let len = self.slot_at(self.slots.len() as u32);
            return Some(Release::Cut { len });
        }
        if self.reserved <= keep {
            return None;
        }
        let free = |slot: &Slot| *slot == Slot::Free { reserved: true };
        let slot = self.slots.iter().rposition(free)? as u32;
        self.set(slot, Slot::Free { reserved: false });
        self.set_written(slot, false);
        Some(Release::Punch {
            at: self.slot_at(slot),
            len: self.segment_bytes(),
        })
    }

    /// Bytes of log and checkpoints in the file, dead ones included: what the quota limits.
    pub(crate) fn in_file(&self) -> u64 {
        self.used + (self.checkpoint.len() + self.making.len()) as u64 * self.segment_bytes()
    }

    /// Space taken on the medium.
    pub(crate) fn allocated(&self) -> u64 {
        let taken = |slot: &&Slot| **slot != Slot::Free { reserved: false };
        SLOTS_AT + self.slots.iter().filter(taken).count() as u64 * self.segment_bytes()
    }

    /// Weight of what is live and uncompacted.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Bytes of the log.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn quota(&self) -> u64 {
        self.quota
    }
}

/// Whether an allocation failed for want of space (the medium's, the user's, or a limit on files).
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    fn space(disk: &SimDisk, quota: u64) -> Space {
        Space::new(Arc::new(disk.clone()), 8192, quota)
    }

    #[test]
    fn an_ordinary_transaction_leaves_the_spare() {
        let disk = SimDisk::new();
        let mut space = space(&disk, 0);
        disk.set_capacity(Some((SLOTS_AT + 4 * 8192) as usize));
        space.reserve(1, 100, false).unwrap();
        assert_eq!(space.begin_segment(1, 1), Some(0));
        space.reserve(1, 100, false).unwrap();
        assert_eq!(space.begin_segment(2, 5), Some(1));
        assert!(matches!(
            space.reserve(1, 100, false),
            Err(Error::NoSpace { needed: 100 })
        ));
        space.reserve(1, 100, true).unwrap();
        space.free_segment(1);
        space.reserve(1, 100, false).unwrap();
        assert_eq!(space.begin_segment(3, 9), Some(0), "the lowest first");
    }

    #[test]
    fn the_quota_counts_what_is_written() {
        let disk = SimDisk::new();
        let mut space = space(&disk, 10_000);
        space.reserve(1, 100, false).unwrap();
        space.begin_segment(1, 1).unwrap();
        space.update(1, |segment| segment.used = 8000);
        space.reserve(0, 2000, false).unwrap();
        assert_eq!(space.slots.len(), 3, "the spare is there");
        assert!(matches!(space.reserve(0, 2001, false), Err(Error::NoSpace { .. })));
        space.reserve(0, 2001, true).unwrap();
    }

    #[test]
    fn free_slots_are_cut_at_the_end_and_punched_in_the_middle() {
        let disk = SimDisk::new();
        let mut space = space(&disk, 0);
        space.reserve(10, 0, true).unwrap();
        for sequence in 1..=10 {
            space.begin_segment(sequence, 1).unwrap();
        }
        for sequence in [1, 2, 3, 4, 5, 6, 8, 9, 10] {
            space.free_segment(sequence);
        }
        let at = |slot: u64| SLOTS_AT + slot * 8192;
        let punch = |slot| Release::Punch {
            at: at(slot),
            len: 8192,
        };
        let released: Vec<Release> = std::iter::from_fn(|| space.release()).collect();
        assert_eq!(released, [Release::Cut { len: at(7) }, punch(5), punch(4), punch(3)]);
        assert_eq!(space.allocated(), SLOTS_AT + 4 * 8192);
        space.reserve(4, 0, true).unwrap();
        assert_eq!(
            space.allocated(),
            SLOTS_AT + 5 * 8192,
            "a punched slot is reserved again"
        );
    }
}
