//! The headers of the file and of its slots.

use std::collections::BTreeMap;

use crate::layout::{
    HEADER_AT, HEADER_LEN, Header, MARK_AT, MARK_LEN, SEGMENT_HEADER_LEN, SLOTS_AT, SegmentHeader, decode_mark,
};
use crate::space::Space;
use crate::{Disk, Error};

/// The header in force, and what the mark says was synced.
pub(crate) struct Headers {
    pub(crate) newest: Header,
    pub(crate) mark: u64,
}

/// Reads what is there of a range; what lies beyond the end reads as zeros.
pub(crate) fn read_padded(disk: &dyn Disk, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    let file = disk.len().map_err(Error::io("reading the store file's length"))?;
    let there = file.saturating_sub(at).min(len as u64) as usize;
    let mut bytes = vec![0; len];
    disk.read_at(at, &mut bytes[..there])
        .map_err(Error::io("reading the store file"))?;
    Ok(bytes)
}

/// Reads a whole segment.
pub(crate) fn read_segment(disk: &dyn Disk, at: u64, segment_bytes: u32) -> Result<Vec<u8>, Error> {
    read_padded(disk, at, segment_bytes as usize)
}

pub(crate) fn read_headers(disk: &dyn Disk) -> Result<Headers, Error> {
    let mut newest: Option<Header> = None;
    for at in HEADER_AT {
        let copy = Header::decode(&read_padded(disk, at, HEADER_LEN)?)?;
        if let Some(copy) = copy
            && newest.as_ref().is_none_or(|newest| newest.generation < copy.generation)
        {
            newest = Some(copy);
        }
    }
    let Some(newest) = newest else {
        return Err(Error::damaged(
            0,
            "neither header copy is whole: not a store file, or damaged in both places",
        ));
    };
    let mark = decode_mark(&read_padded(disk, MARK_AT, MARK_LEN)?);
    Ok(Headers { newest, mark })
}

/// A segment of the log as its slot's header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundLog {
    pub(crate) slot: u32,
    pub(crate) first_seq: u64,
}

/// What the headers of all slots say.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) count: u32,
    /// Segments of the log by sequence number, those of earlier lives among them.
    pub(crate) log: BTreeMap<u64, FoundLog>,
    /// Segments of checkpoints, by id and ordinal.
    checkpoints: BTreeMap<(u64, u64), u32>,
    pub(crate) last_checkpoint: u64,
    /// Slots without a whole header.
    pub(crate) blank: Vec<u32>,
}

pub(crate) fn scan_slots(disk: &dyn Disk, segment_bytes: u32) -> Result<Slots, Error> {
    let len = disk.len().map_err(Error::io("reading the store file's length"))?;
    let mut slots = Slots {
        count: len.saturating_sub(SLOTS_AT).div_ceil(u64::from(segment_bytes)) as u32,
        ..Slots::default()
    };
    for slot in 0..slots.count {
        let at = SLOTS_AT + u64::from(slot) * u64::from(segment_bytes);
        match SegmentHeader::decode(&read_padded(disk, at, SEGMENT_HEADER_LEN)?) {
            Some(SegmentHeader::Log { sequence, first_seq }) => {
                slots.log.insert(sequence, FoundLog { slot, first_seq });
            }
            Some(SegmentHeader::Checkpoint { id, ordinal }) => {
                slots.checkpoints.insert((id, ordinal), slot);
                slots.last_checkpoint = slots.last_checkpoint.max(id);
            }
            None => slots.blank.push(slot),
        }
    }
    Ok(slots)
}

impl Slots {
    /// The slots of a checkpoint, in order, all of them.
    pub(crate) fn checkpoint(&self, id: u64, segments: u32, space: &Space) -> Result<Vec<u32>, Error> {
        let mut found = Vec::new();
        for ordinal in 0..u64::from(segments) {
            let Some(slot) = self.checkpoints.get(&(id, ordinal)) else {
                let near = found.last().map_or(0, |slot| space.slot_at(*slot));
                return Err(Error::damaged(
                    near,
                    format!("segment {ordinal} of {segments} of checkpoint {id} is in no slot"),
                ));
            };
            found.push(*slot);
        }
        Ok(found)
    }
}
