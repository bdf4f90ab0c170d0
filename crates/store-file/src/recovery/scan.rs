//! The headers of the file and of its slots.

use std::collections::BTreeMap;

use crate::frame::{FrameHeader, Kind};
use crate::layout::{
    HEADER_AT, HEADER_LEN, Header, MARK_AT, MARK_LEN, PAGE, SEGMENT_HEADER_LEN, SLOTS_AT, SegmentHeader, SegmentKind,
    decode_mark, is_marked,
};
use crate::{Disk, Error};

/// The header in force, and what the mark says was synced.
pub(crate) struct Headers {
    pub(crate) newest: Header,
    /// Where a copy stands that is not the newest.
    pub(crate) stale: Vec<u64>,
    pub(crate) mark: u64,
}

/// Reads what is there of a range; what lies beyond the end reads as zeros.
pub(crate) fn read_padded(disk: &dyn Disk, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    let file = disk.len().map_err(Error::io("reading the store file's length"))?;
    let there = file.saturating_sub(at).min(len as u64) as usize;
    let mut bytes = vec![0; len];
    if there > 0 {
        disk.read_at(at, &mut bytes[..there])
            .map_err(Error::io("reading the store file"))?;
    }
    Ok(bytes)
}

/// Reads a whole segment.
pub(crate) fn read_segment(disk: &dyn Disk, at: u64, segment_bytes: u32) -> Result<Vec<u8>, Error> {
    read_padded(disk, at, segment_bytes as usize)
}

pub(crate) fn read_headers(disk: &dyn Disk) -> Result<Headers, Error> {
    let mut copies = Vec::new();
    for at in HEADER_AT {
        copies.push((at, Header::decode(&read_padded(disk, at, HEADER_LEN)?)?));
    }
    let whole = copies.iter().filter_map(|(_, copy)| copy.as_ref());
    let Some(newest) = whole.max_by_key(|copy| copy.generation).cloned() else {
        return Err(neither_is_whole(disk)?);
    };
    let mark = decode_mark(&read_padded(disk, MARK_AT, MARK_LEN)?);
    let is_stale = |(_, copy): &&(u64, Option<Header>)| copy.as_ref() != Some(&newest);
    let stale = copies.iter().filter(is_stale).map(|(at, _)| *at).collect();
    Ok(Headers { newest, stale, mark })
}

/// What is wrong where neither header can be read: damage where anything is marked as ours, else another kind of file.
fn neither_is_whole(disk: &dyn Disk) -> Result<Error, Error> {
    let mut ours = false;
    for at in HEADER_AT.into_iter().chain([MARK_AT, SLOTS_AT]) {
        ours |= is_marked(&read_padded(disk, at, HEADER_LEN)?);
    }
    Ok(match ours {
        true => Error::damaged(0, "neither header copy is whole"),
        false => Error::Foreign {
            bytes: disk.len().map_err(Error::io("reading the store file's length"))?,
        },
    })
}

/// A segment of the log as its slot's header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundLog {
    pub(crate) slot: u32,
    pub(crate) first_seq: u64,
    pub(crate) tag: u32,
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
    /// Slots without a whole header, but with something at their start.
    pub(crate) headless: Vec<u32>,
    /// The first of them that seems to hold a checkpoint.
    headless_checkpoint: Option<u64>,
}

pub(crate) fn scan_slots(disk: &dyn Disk, segment_bytes: u32) -> Result<Slots, Error> {
    let len = disk.len().map_err(Error::io("reading the store file's length"))?;
    let mut slots = Slots {
        count: len.saturating_sub(SLOTS_AT).div_ceil(u64::from(segment_bytes)) as u32,
        ..Slots::default()
    };
    for slot in 0..slots.count {
        let at = SLOTS_AT + u64::from(slot) * u64::from(segment_bytes);
        let page = read_padded(disk, at, PAGE)?;
        match SegmentHeader::decode(&page).filter(|header| header.is_possible(segment_bytes)) {
            Some(header) => slots.add(slot, header),
            None if page.iter().all(|byte| *byte == 0) => {}
            None => {
                let first = FrameHeader::decode(&page[SEGMENT_HEADER_LEN..]);
                if first.is_some_and(|first| first.kind >= Kind::Keys) && slots.headless_checkpoint.is_none() {
                    slots.headless_checkpoint = Some(at);
                }
                slots.headless.push(slot);
            }
        }
    }
    Ok(slots)
}

impl Slots {
    fn add(&mut self, slot: u32, header: SegmentHeader) {
        match header.kind {
            SegmentKind::Log { sequence, first_seq } => {
                let found = FoundLog {
                    slot,
                    first_seq,
                    tag: header.tag,
                };
                self.log.insert(sequence, found);
            }
            SegmentKind::Checkpoint { id, ordinal } => {
                self.checkpoints.insert((id, ordinal), slot);
                self.last_checkpoint = self.last_checkpoint.max(id);
            }
        }
    }

    /// The slots of a checkpoint, in order, all of them.
    pub(crate) fn checkpoint(&self, id: u64, segments: u32) -> Result<Vec<u32>, Error> {
        let found = (0..u64::from(segments)).map(|ordinal| {
            let slot = self.checkpoints.get(&(id, ordinal)).copied();
            slot.ok_or_else(|| {
                Error::damaged(
                    self.headless_checkpoint.unwrap_or(0),
                    format!("segment {ordinal} of {segments} of checkpoint {id} has no whole header in any slot"),
                )
            })
        });
        found.collect()
    }
}
