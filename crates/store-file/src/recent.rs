//! The log's newest frames in memory: everything that is not written yet, and what was written lately.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::layout::Address;

#[derive(Debug)]
struct Piece {
    address: Address,
    seq: u64,
    bytes: Bytes,
}

/// Pieces of the log in order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Recent {
    /// Adds the newest piece, the frame `seq` and what stands before it in its segment.
    pub(crate) fn push(&mut self, address: Address, seq: u64, bytes: Bytes) {
        debug_assert!(self.pieces.back().is_none_or(|last| last.address < address));
        self.bytes += bytes.len();
        self.pieces.push_back(Piece { address, seq, bytes });
    }

    /// Drops the oldest pieces beyond `limit` bytes, never one that is not yet durable.
    pub(crate) fn trim(&mut self, limit: usize, durable_seq: u64) {
        while self.bytes > limit
            && let Some(first) = self.pieces.front()
            && first.seq <= durable_seq
        {
            self.bytes -= first.bytes.len();
            self.pieces.pop_front();
        }
    }

    /// The bytes from `address` to the end of the piece that holds it.
    pub(crate) fn from(&self, address: Address) -> Option<Bytes> {
        let after = self.pieces.partition_point(|piece| piece.address <= address);
        let piece = &self.pieces[after.checked_sub(1)?];
        let at = usize::try_from(address - piece.address).ok()?;
        (at < piece.bytes.len()).then(|| piece.bytes.slice(at..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_durable_stays_whatever_the_limit() {
        let mut recent = Recent::default();
        for n in 0..10u64 {
            recent.push(n * 10, n, Bytes::from(vec![n as u8; 10]));
        }
        assert_eq!(&recent.from(35).unwrap()[..], &[3; 5]);
        recent.trim(0, 4);
        assert!(recent.from(49).is_none());
        assert_eq!(&recent.from(50).unwrap()[..], &[5; 10]);
        assert!(recent.from(100).is_none());
        recent.trim(30, 9);
        assert!(recent.from(69).is_none());
        assert_eq!(recent.from(99).unwrap().len(), 1);
    }
}
