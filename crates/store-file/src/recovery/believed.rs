//! Numbers that are believed. A checksum says that bytes are those that were written, not that what was written makes
//! sense: a number beyond these bounds would overflow, or have memory taken that the file has no bytes for.

use super::Recovered;
use crate::Error;
use crate::checkpoint::End;
use crate::layout::{NUMBER_MAX, SEGMENT_HEADER_LEN, end_of_log};
use crate::space::Segment;

/// A revision or a count.
pub(super) fn number(number: i64) -> bool {
    u64::try_from(number).is_ok_and(|number| number < NUMBER_MAX)
}

/// The end of a checkpoint: the log goes on at the beginning of a frame, or behind a full segment.
pub(super) fn end(end: &End, segment_bytes: u32) -> bool {
    let size = u64::from(segment_bytes);
    let place = (size + SEGMENT_HEADER_LEN as u64..NUMBER_MAX).contains(&end.replay_at)
        && end_of_log(end.replay_at, size).1 >= SEGMENT_HEADER_LEN
        && end.replay_at.is_multiple_of(8);
    let numbers = (1..NUMBER_MAX).contains(&end.replay_seq) && number(end.head) && number(end.compacted);
    place && numbers && end.compacted <= end.head
}

/// A segment of the log, in a checkpoint's list.
pub(super) fn segment(segment: &Segment, segment_bytes: u32) -> bool {
    (SEGMENT_HEADER_LEN as u32..=segment_bytes).contains(&segment.used) && segment.first_seq < NUMBER_MAX
}

/// What was recovered: the import is not ahead of the head, and each value ends in the segment in which it begins.
pub(super) fn state(state: &Recovered) -> Result<(), Error> {
    let imported = state.header.imported;
    if imported > state.head {
        let what = format!(
            "the header has an import up to revision {imported}, the log ends at {}",
            state.head
        );
        return Err(Error::damaged(0, what));
    }
    let size = state.space.segment_bytes();
    for entry in state.index.entries() {
        for ver in entry.versions().filter(|ver| !ver.is_tombstone()) {
            // The checksum stands before the value.
            if ver.address % size + 4 + u64::from(ver.len) > size {
                let what = format!(
                    "the index has {} bytes of value at {}, which no segment of {size} bytes can hold",
                    ver.len, ver.address
                );
                return Err(Error::damaged(state.space.offset(ver.address).unwrap_or(0), what));
            }
        }
    }
    Ok(())
}
