//! Frames: what the log and the checkpoints are made of.
//!
//! ```text
//! 0   u32  CRC-32C of bytes 4.. up to the payload's end
//! 4   u32  length of the payload
//! 8   u64  sequence number, one more than the frame before
//! 16  u64  every frame up to this one was synced when this one was made
//! 24  u32  the segment's tag
//! 28  u8   kind
//! 29  u8   part: bit 0 the first of a chain, bit 1 the last (a frame alone has both)
//! 30  u16  0
//! 32  payload, then zeros up to a multiple of 8
//! ```
//!
//! The tag keeps frames of a slot's earlier life from being taken for new ones.

/// Length of a frame's header.
pub(crate) const FRAME_HEADER_LEN: usize = 32;
/// First frame of a chain.
pub(crate) const FIRST: u8 = 1;
/// Last frame of a chain.
pub(crate) const LAST: u8 = 2;

/// What a frame holds.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A transaction: a revision and its changes.
    Transaction = 1,
    /// A lease granted or changed.
    Lease = 2,
    /// The compacted revision.
    Compact = 3,
    /// A note.
    Note = 4,
    /// Versions copied forward, or imported.
    Copy = 5,
    /// Checkpoint: keys with their versions.
    Keys = 16,
    /// Checkpoint: leases.
    Leases = 17,
    /// Checkpoint: notes.
    Notes = 18,
    /// Checkpoint: where each uncompacted revision stands.
    Revisions = 19,
    /// Checkpoint: the log's segments.
    Segments = 20,
    /// Checkpoint: its end.
    End = 21,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Transaction,
            2 => Kind::Lease,
            3 => Kind::Compact,
            4 => Kind::Note,
            5 => Kind::Copy,
            16 => Kind::Keys,
            17 => Kind::Leases,
            18 => Kind::Notes,
            19 => Kind::Revisions,
            20 => Kind::Segments,
            21 => Kind::End,
            _ => return None,
        })
    }
}

/// A frame's header, its checksum not yet compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FrameHeader {
    pub(crate) checksum: u32,
    pub(crate) len: u32,
    pub(crate) seq: u64,
    pub(crate) durable: u64,
    pub(crate) tag: u32,
    pub(crate) kind: Kind,
    pub(crate) part: u8,
}

/// The bytes a frame takes with its header and padding.
pub(crate) fn frame_len(payload: usize) -> usize {
    (FRAME_HEADER_LEN + payload).next_multiple_of(8)
}

/// Fills in the header of a frame whose payload stands behind the room left for it, and pads it.
pub(crate) fn seal(frame: &mut Vec<u8>, start: usize, kind: Kind, part: u8, seq: u64, durable: u64, tag: u32) {
    let end = frame.len();
    let len = (end - start - FRAME_HEADER_LEN) as u32;
    let header = &mut frame[start..start + FRAME_HEADER_LEN];
    header[4..8].copy_from_slice(&len.to_le_bytes());
    header[8..16].copy_from_slice(&seq.to_le_bytes());
    header[16..24].copy_from_slice(&durable.to_le_bytes());
    header[24..28].copy_from_slice(&tag.to_le_bytes());
    header[28] = kind as u8;
    header[29] = part;
    header[30..32].fill(0);
    let checksum = crc32c::crc32c(&frame[start + 4..end]);
    frame[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    let padded = start + frame_len(end - start - FRAME_HEADER_LEN);
    frame.resize(padded, 0);
}

impl FrameHeader {
    /// Reads the fields; None for what cannot be one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<FrameHeader> {
        let bytes: &[u8; FRAME_HEADER_LEN] = bytes.get(..FRAME_HEADER_LEN)?.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (part, zero) = (bytes[29], u16::from_le_bytes([bytes[30], bytes[31]]));
        if part > (FIRST | LAST) || zero != 0 {
            return None;
        }
        Some(FrameHeader {
            checksum: word(0),
            len: word(4),
            seq: long(8),
            durable: long(16),
            tag: word(24),
            kind: Kind::from_byte(bytes[28])?,
            part,
        })
    }
}

/// Reads the frame that begins at `at` of `bytes`: its header and its payload, the checksum compared. None if there is
/// no whole frame.
pub(crate) fn parse(bytes: &[u8], at: usize) -> Option<(FrameHeader, &[u8])> {
    let header = FrameHeader::decode(bytes.get(at..)?)?;
    let payload_at = at + FRAME_HEADER_LEN;
    let end = payload_at.checked_add(header.len as usize)?;
    let payload = bytes.get(payload_at..end)?;
    (crc32c::crc32c(&bytes[at + 4..end]) == header.checksum).then_some((header, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_returns_and_every_flipped_bit_is_seen() {
        let mut bytes = vec![9; 8];
        let start = bytes.len();
        bytes.resize(start + FRAME_HEADER_LEN, 0);
        bytes.extend_from_slice(b"payload of no round length");
        let end = bytes.len();
        seal(&mut bytes, start, Kind::Note, FIRST | LAST, 5, 4, 0xdead_beef);
        assert_eq!(bytes.len() % 8, 0);
        let (header, payload) = parse(&bytes, start).unwrap();
        assert_eq!(payload, b"payload of no round length");
        assert_eq!((header.seq, header.durable, header.tag), (5, 4, 0xdead_beef));
        assert_eq!((header.kind, header.part), (Kind::Note, FIRST | LAST));
        for at in start..end {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(parse(&flipped, start).is_none(), "byte {at} bit {bit} went unnoticed");
            }
        }
        for cut in start..end {
            assert!(parse(&bytes[..cut], start).is_none());
        }
        assert!(parse(&[0; 64], 0).is_none(), "zeros are no frame");
    }
}
