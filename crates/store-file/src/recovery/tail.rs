//! The log behind the checkpoint: replayed up to its tail, and the tail judged.

use super::Recovered;
use super::replay::apply;
use super::scan::{FoundLog, Slots, read_segment};
use crate::frame::{FIRST, FRAME_HEADER_LEN, FrameHeader, LAST, frame_len, parse};
use crate::layout::{Address, SEGMENT_HEADER_LEN, end_of_log};
use crate::space::Segment;
use crate::{Disk, Error};

/// A part of a transaction that is not whole yet.
pub(super) struct Part {
    /// Where its payload begins.
    pub(super) address: Address,
    pub(super) payload: Vec<u8>,
}

/// The frames of a chain seen so far.
#[derive(Default)]
struct Chain {
    parts: Vec<Part>,
    /// Where its first frame begins, and that frame's number.
    start: (Address, u64),
}

/// Replays from the state's tail. `evidence`: every frame up to this one is known to have been synced.
pub(super) fn replay_log(disk: &dyn Disk, state: &mut Recovered, slots: &Slots, evidence: u64) -> Result<(), Error> {
    let size = u64::from(state.header.segment_bytes);
    let (mut sequence, mut at) = end_of_log(state.tail, size);
    let mut chain = Chain::default();
    state.tag = slots.log.get(&sequence).map_or(0, |found| found.tag);
    let mut bytes;
    loop {
        let Some(segment) = state.space.log().get(&sequence).copied() else {
            return Err(Error::damaged(
                0,
                format!("segment {sequence}, where the log goes on, is in no slot"),
            ));
        };
        let base = state.space.slot_at(segment.slot);
        bytes = read_segment(disk, base, state.header.segment_bytes)?;
        while let Some((header, payload)) = next_frame(&bytes, at, state.tag, state.seq) {
            let address = sequence * size + at as u64;
            take(state, &mut chain, &header, payload, address, base + at as u64)?;
            at += frame_len(payload.len());
            state.seq = header.seq;
        }
        state
            .space
            .update(sequence, |segment| segment.used = segment.used.max(at as u32));
        match slots.log.get(&(sequence + 1)) {
            Some(next) if next.first_seq == state.seq + 1 => {
                sequence += 1;
                at = SEGMENT_HEADER_LEN;
                state.tag = next.tag;
                state.space.add_segment(sequence, begun(next));
            }
            _ => break,
        }
    }
    let base = state
        .space
        .log()
        .get(&sequence)
        .map_or(0, |found| state.space.slot_at(found.slot));
    judge(disk, state, slots, evidence, sequence, at, &bytes, base)?;
    if chain.parts.is_empty() {
        state.tail = sequence * size + at as u64;
    } else {
        // A transaction whose last part is not there never was.
        (state.tail, state.seq) = (chain.start.0, chain.start.1 - 1);
    }
    cut(disk, state, slots, sequence)
}

fn begun(found: &FoundLog) -> Segment {
    Segment {
        slot: found.slot,
        first_seq: found.first_seq,
        used: SEGMENT_HEADER_LEN as u32,
        live: 0,
        max_revision: 0,
        emptied: None,
    }
}

fn next_frame(bytes: &[u8], at: usize, tag: u32, seq: u64) -> Option<(FrameHeader, &[u8])> {
    parse(bytes, at).filter(|(header, _)| header.seq == seq + 1 && header.tag == tag)
}

/// Applies a frame, or keeps it until its chain is whole.
fn take(
    state: &mut Recovered,
    chain: &mut Chain,
    header: &FrameHeader,
    payload: &[u8],
    address: Address,
    offset: u64,
) -> Result<(), Error> {
    let begins = header.part & FIRST != 0;
    if begins != chain.parts.is_empty() {
        return Err(Error::damaged(
            offset,
            format!("frame {} is out of place in its chain of frames", header.seq),
        ));
    }
    if begins {
        chain.start = (address, header.seq);
    }
    chain.parts.push(Part {
        address: address + FRAME_HEADER_LEN as u64,
        payload: payload.to_vec(),
    });
    if header.part & LAST != 0 {
        apply(state, header.kind, &chain.parts, chain.start.0, offset)?;
        chain.parts.clear();
    }
    Ok(())
}

/// Refuses what cannot be a torn tail: something says that the frame that is missing at `at` was synced.
#[allow(clippy::too_many_arguments)]
fn judge(
    disk: &dyn Disk,
    state: &Recovered,
    slots: &Slots,
    evidence: u64,
    sequence: u64,
    at: usize,
    bytes: &[u8],
    base: u64,
) -> Result<(), Error> {
    let missing = state.seq + 1;
    let mut witness = (evidence >= missing).then_some("the header or the mark");
    if witness.is_none() && durable_behind(bytes, at, Some(state.tag), missing) {
        witness = Some("a frame behind it");
    }
    let later = slots
        .log
        .range(sequence + 1..)
        .map(|(_, found)| (found.slot, Some(found.tag)));
    // A slot whose header is not whole may be the log's next segment.
    let headless = slots.headless.iter().map(|slot| (*slot, None));
    for (slot, tag) in later.chain(headless) {
        if witness.is_some() {
            break;
        }
        let segment = read_segment(disk, state.space.slot_at(slot), state.header.segment_bytes)?;
        if durable_behind(&segment, SEGMENT_HEADER_LEN, tag, missing) {
            witness = Some("a frame of a later segment");
        }
    }
    let Some(witness) = witness else {
        return Ok(());
    };
    for slot in &slots.headless {
        let slot_at = state.space.slot_at(*slot);
        let segment = read_segment(disk, slot_at, state.header.segment_bytes)?;
        if parse(&segment, SEGMENT_HEADER_LEN).is_some_and(|(first, _)| first.seq == missing) {
            return Err(Error::damaged(
                slot_at,
                format!(
                    "the header of the segment that begins with frame {missing} is not whole here, and {witness} says that it was synced"
                ),
            ));
        }
    }
    Err(Error::damaged(
        base + at as u64,
        format!("frame {missing} is not whole here, and {witness} says that it was synced"),
    ))
}

/// Whether a whole frame of the segment from `at` on says that the missing one was synced. Frames begin at multiples of
/// 8; where one is not whole the next may begin anywhere. A frame of an unknown tag is believed too: what was cut off
/// before never claims more than was synced then, which is less than what is missing now.
fn durable_behind(bytes: &[u8], at: usize, tag: Option<u32>, missing: u64) -> bool {
    let places = (at.next_multiple_of(8)..bytes.len()).step_by(8);
    places
        .filter(|at| {
            FrameHeader::decode(&bytes[*at..])
                .is_some_and(|header| header.durable >= missing && tag.is_none_or(|tag| tag == header.tag))
        })
        .any(|at| parse(bytes, at).is_some())
}

/// Lists what has to be zeroed, so that nothing behind the tail is ever taken for a frame: the rest of its segment, and
/// the headers of later ones.
fn cut(disk: &dyn Disk, state: &mut Recovered, slots: &Slots, last: u64) -> Result<(), Error> {
    let size = u64::from(state.header.segment_bytes);
    let (sequence, at) = end_of_log(state.tail, size);
    for later in sequence + 1..=last {
        state.space.free_segment(later);
    }
    state.tag = slots.log.get(&sequence).map_or(0, |found| found.tag);
    for (_, found) in slots.log.range(sequence + 1..) {
        state
            .clean
            .push((state.space.slot_at(found.slot), SEGMENT_HEADER_LEN as u64));
    }
    let Some(segment) = state.space.log().get(&sequence).copied() else {
        return Ok(());
    };
    state.space.update(sequence, |segment| segment.used = at as u32);
    let base = state.space.slot_at(segment.slot);
    let rest = read_segment(disk, base, state.header.segment_bytes)?;
    if let Some(end) = rest[at..].iter().rposition(|byte| *byte != 0) {
        state.clean.push((base + at as u64, end as u64 + 1));
    }
    Ok(())
}
