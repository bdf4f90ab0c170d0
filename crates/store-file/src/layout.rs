//! The fixed parts of the file: the two header copies, the mark page, and the header of each segment.
//!
//! ```text
//! 0        header copy A (one page)
//! 4096     header copy B (one page)
//! 8192     mark page
//! 65536    slot 0: segment_bytes bytes
//! ...      slot 1, 2, ...
//! ```

use std::hash::{BuildHasher, RandomState};

use crate::{Error, Identity};

/// The newest format this program reads and the one it writes.
pub(crate) const FORMAT: u32 = 1;
/// Where the header copies begin.
pub(crate) const HEADER_AT: [u64; 2] = [0, 4096];
/// Where the mark page begins.
pub(crate) const MARK_AT: u64 = 8192;
/// Where slot 0 begins.
pub(crate) const SLOTS_AT: u64 = 65536;
/// The largest segment that is believed: recovery has one of them in memory.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 64 << 20;
/// Numbers of frames, segments and revisions are below it, so that counting on from them never overflows.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Length of the used part of a header copy, its checksum included.
pub(crate) const HEADER_LEN: usize = 128;
/// Length of the used part of the mark page.
pub(crate) const MARK_LEN: usize = 32;
/// Length of a segment's header.
pub(crate) const SEGMENT_HEADER_LEN: usize = 64;
/// Length of a page, in which each header copy stands alone.
pub(crate) const PAGE: usize = 4096;

const HEADER_MAGIC: &[u8; 16] = b"QuantyKube store";
const SEGMENT_MAGIC: &[u8; 8] = b"QKsegmnt";
const MARK_MAGIC: &[u8; 8] = b"QKdurabl";

/// A place in the log: the sequence number of its segment times the segment's size, plus the offset in the segment.
/// It only grows, and is never used twice.
pub(crate) type Address = u64;

/// The segment in which the frame before `tail` ends, and the offset in it: its size where it is full.
pub(crate) fn end_of_log(tail: Address, segment_bytes: u64) -> (u64, usize) {
    match tail % segment_bytes {
        0 => (tail / segment_bytes - 1, segment_bytes as usize),
        at => (tail / segment_bytes, at as usize),
    }
}

/// The file's header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) identity: Identity,
    /// The head at the end of the import that made the file; 0 for none.
    pub(crate) imported: i64,
    /// The checkpoint to start from; 0 for none (the log then starts at the first frame of segment 1).
    pub(crate) checkpoint: u64,
    /// Number of segments the checkpoint takes.
    pub(crate) checkpoint_segments: u32,
    /// Everything up to this frame was synced before this header was written.
    pub(crate) durable_seq: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

impl Header {
    /// A whole page, so that a copy never shares a sector with anything else.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE);
        page.extend_from_slice(HEADER_MAGIC);
        page.extend_from_slice(&FORMAT.to_le_bytes());
        page.extend_from_slice(&self.segment_bytes.to_le_bytes());
        page.extend_from_slice(&self.generation.to_le_bytes());
        page.extend_from_slice(&self.identity.cluster_id.to_le_bytes());
        page.extend_from_slice(&self.identity.member_id.to_le_bytes());
        page.extend_from_slice(&self.identity.raft_term.to_le_bytes());
        page.extend_from_slice(&self.imported.to_le_bytes());
        page.extend_from_slice(&self.checkpoint.to_le_bytes());
        page.extend_from_slice(&self.checkpoint_segments.to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&self.durable_seq.to_le_bytes());
        page.resize(HEADER_LEN - 4, 0);
        let checksum = crc32c::crc32c(&page);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(PAGE, 0);
        page
    }

    /// Reads one copy. `Ok(None)`: not a whole header (torn, or never written). Magic, format and checksum stand where
    /// they are in every format to come, so that a newer one can be told from damage.
    pub(crate) fn decode(page: &[u8]) -> Result<Option<Header>, Error> {
        if page.len() < HEADER_LEN || &page[..16] != HEADER_MAGIC {
            return Ok(None);
        }
        let format = u32_at(page, 16);
        let intact = crc32c::crc32c(&page[..HEADER_LEN - 4]) == u32_at(page, HEADER_LEN - 4);
        if intact && format > FORMAT {
            return Err(Error::Newer {
                found: format,
                supported: FORMAT,
            });
        }
        let segment_bytes = u32_at(page, 20);
        let possible = (4096..=SEGMENT_BYTES_MAX).contains(&segment_bytes) && segment_bytes.is_multiple_of(4096);
        if !intact || format == 0 || !possible {
            return Ok(None);
        }
        Ok(Some(Header {
            generation: u64_at(page, 24),
            segment_bytes,
            identity: Identity {
                cluster_id: u64_at(page, 32),
                member_id: u64_at(page, 40),
                raft_term: u64_at(page, 48),
            },
            imported: u64_at(page, 56) as i64,
            checkpoint: u64_at(page, 64),
            checkpoint_segments: u32_at(page, 72),
            durable_seq: u64_at(page, 80),
        }))
    }
}

/// The mark: written without a sync when the writer has been idle, so that damage to the last frames can be told from
/// a torn tail. Only evidence: a mark that is torn or missing says nothing.
pub(crate) fn encode_mark(durable_seq: u64) -> Vec<u8> {
    let mut page = Vec::with_capacity(MARK_LEN);
    page.extend_from_slice(MARK_MAGIC);
    page.extend_from_slice(&durable_seq.to_le_bytes());
    page.resize(MARK_LEN - 4, 0);
    let checksum = crc32c::crc32c(&page);
    page.extend_from_slice(&checksum.to_le_bytes());
    page
}

/// Whether something begins as a header, a mark or a segment of a store file does, whole or not.
pub(crate) fn is_marked(page: &[u8]) -> bool {
    page.starts_with(HEADER_MAGIC) || page.starts_with(SEGMENT_MAGIC) || page.starts_with(MARK_MAGIC)
}

/// The frame up to which the mark says everything was synced; 0 if there is no whole mark.
pub(crate) fn decode_mark(page: &[u8]) -> u64 {
    let whole = page.len() >= MARK_LEN
        && &page[..8] == MARK_MAGIC
        && crc32c::crc32c(&page[..MARK_LEN - 4]) == u32_at(page, MARK_LEN - 4);
    if whole { u64_at(page, 8) } else { 0 }
}

/// The header of a slot in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SegmentHeader {
    pub(crate) kind: SegmentKind,
    /// In every frame of the segment. Drawn at random, so that what a slot held before is never taken for its own.
    pub(crate) tag: u32,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SegmentKind {
    /// A piece of the log.
    Log {
        /// Its place in the log, from 1.
        sequence: u64,
        /// The sequence number of its first frame.
        first_seq: u64,
    },
    /// A piece of a checkpoint.
    Checkpoint {
        /// The checkpoint.
        id: u64,
        /// Its place in the checkpoint, from 0.
        ordinal: u64,
    },
}

/// A new tag.
pub(crate) fn fresh_tag() -> u32 {
    RandomState::new().hash_one(0) as u32
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_LEN] {
        let (kind, a, b) = match self.kind {
            SegmentKind::Log { sequence, first_seq } => (1u32, sequence, first_seq),
            SegmentKind::Checkpoint { id, ordinal } => (2, id, ordinal),
        };
        let mut header = [0; SEGMENT_HEADER_LEN];
        header[..8].copy_from_slice(SEGMENT_MAGIC);
        header[8..12].copy_from_slice(&kind.to_le_bytes());
        header[12..16].copy_from_slice(&self.tag.to_le_bytes());
        header[16..24].copy_from_slice(&a.to_le_bytes());
        header[24..32].copy_from_slice(&b.to_le_bytes());
        let checksum = crc32c::crc32c(&header[..SEGMENT_HEADER_LEN - 4]);
        header[SEGMENT_HEADER_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Whether addresses in the segment, and numbers counted on from it, are numbers.
    pub(crate) fn is_possible(&self, segment_bytes: u32) -> bool {
        match self.kind {
            SegmentKind::Log { sequence, first_seq } => {
                (1..NUMBER_MAX / u64::from(segment_bytes)).contains(&sequence) && first_seq < NUMBER_MAX
            }
            SegmentKind::Checkpoint { id, .. } => id < NUMBER_MAX,
        }
    }

    pub(crate) fn decode(header: &[u8]) -> Option<SegmentHeader> {
        let whole = header.len() >= SEGMENT_HEADER_LEN
            && &header[..8] == SEGMENT_MAGIC
            && crc32c::crc32c(&header[..SEGMENT_HEADER_LEN - 4]) == u32_at(header, SEGMENT_HEADER_LEN - 4);
        if !whole {
            return None;
        }
        let (a, b) = (u64_at(header, 16), u64_at(header, 24));
        let kind = match u32_at(header, 8) {
            1 => SegmentKind::Log {
                sequence: a,
                first_seq: b,
            },
            2 => SegmentKind::Checkpoint { id: a, ordinal: b },
            _ => return None,
        };
        Some(SegmentHeader {
            kind,
            tag: u32_at(header, 12),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            generation: 7,
            segment_bytes: 1 << 23,
            identity: Identity {
                cluster_id: 1,
                member_id: u64::MAX,
                raft_term: 3,
            },
            imported: 42,
            checkpoint: 9,
            checkpoint_segments: 2,
            durable_seq: 1000,
        }
    }

    #[test]
    fn a_header_returns_and_every_flipped_bit_is_seen() {
        let page = header().encode();
        assert_eq!(page.len(), PAGE);
        assert_eq!(Header::decode(&page).unwrap(), Some(header()));
        for at in 0..HEADER_LEN {
            for bit in 0..8 {
                let mut flipped = page.clone();
                flipped[at] ^= 1 << bit;
                assert!(
                    !matches!(Header::decode(&flipped), Ok(Some(_))),
                    "byte {at} bit {bit} went unnoticed"
                );
            }
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut page = header().encode();
        page[16] = 2;
        let checksum = crc32c::crc32c(&page[..HEADER_LEN - 4]);
        page[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(
            Header::decode(&page),
            Err(Error::Newer { found: 2, supported: 1 })
        ));
    }

    #[test]
    fn segment_headers_and_marks_return() {
        for kind in [
            SegmentKind::Log {
                sequence: 5,
                first_seq: 77,
            },
            SegmentKind::Checkpoint { id: 3, ordinal: 0 },
        ] {
            let segment = SegmentHeader { kind, tag: fresh_tag() };
            let mut bytes = segment.encode();
            assert_eq!(SegmentHeader::decode(&bytes), Some(segment));
            bytes[17] ^= 1;
            assert_eq!(SegmentHeader::decode(&bytes), None);
        }
        let mut mark = encode_mark(99);
        assert_eq!(decode_mark(&mark), 99);
        mark[9] ^= 1;
        assert_eq!(decode_mark(&mark), 0);
    }
}
