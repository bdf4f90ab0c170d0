//! Checkpoints: the index and everything else a start needs, in segments of their own.
//!
//! A checkpoint is a stream of frames of the kinds `Keys`, `Leases`, `Notes`, `Revisions`, `Segments` and `End`, numbered
//! from 1. It is written in slices while commits go on, so the slices are of different
//! moments: replaying the log from where the first slice was made brings every key to the same state, because each
//! record holds its whole version and is skipped where the key has it already.

use bytes::Bytes;

use crate::Error;
use crate::codec::{Malformed, Reader, put_bytes, put_signed, put_varint};
use crate::frame::{FIRST, FRAME_HEADER_LEN, FrameHeader, Kind, LAST, frame_len, parse, seal};
use crate::index::Ver;
use crate::layout::{Address, SEGMENT_HEADER_LEN, SegmentHeader, SegmentKind, fresh_tag};
use crate::space::Segment;

/// Versions of one key that go into one entry; a key with more has several entries.
const VERSIONS_PER_ENTRY: usize = 64;

/// The end of a checkpoint: what is not in a list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) head: i64,
    pub(crate) compacted: i64,
    /// Where the log is to be replayed from.
    pub(crate) replay_at: Address,
    /// The sequence number of the frame there.
    pub(crate) replay_seq: u64,
    /// Number of entries in the `Keys` frames.
    pub(crate) entries: u64,
}

impl End {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_signed(&mut out, self.head);
        put_signed(&mut out, self.compacted);
        put_varint(&mut out, self.replay_at);
        put_varint(&mut out, self.replay_seq);
        put_varint(&mut out, self.entries);
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<End, Malformed> {
        let mut reader = Reader::new(payload);
        Ok(End {
            head: reader.signed()?,
            compacted: reader.signed()?,
            replay_at: reader.varint()?,
            replay_seq: reader.varint()?,
            entries: reader.varint()?,
        })
    }
}

/// Builds the payloads of `Keys` frames: each key without what it shares with the one before in the frame.
#[derive(Debug, Default)]
pub(crate) struct KeysPayload {
    out: Vec<u8>,
    last: Vec<u8>,
    entries: u64,
}

impl KeysPayload {
    /// Adds a key with its versions, oldest first; a payload that has reached `target` bytes goes to `full`.
    pub(crate) fn add(&mut self, key: &[u8], versions: &[Ver], target: usize, full: &mut Vec<Vec<u8>>) {
        for part in versions.chunks(VERSIONS_PER_ENTRY) {
            let shared = key.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
            put_varint(&mut self.out, shared as u64);
            put_bytes(&mut self.out, &key[shared..]);
            put_varint(&mut self.out, part.len() as u64);
            for ver in part {
                put_version(&mut self.out, ver);
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            self.entries += 1;
            if self.out.len() >= target {
                full.push(self.take());
            }
        }
    }

    /// Takes what is there; empty if nothing was added since.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.last.clear();
        std::mem::take(&mut self.out)
    }

    /// Number of entries added so far.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }
}

fn put_version(out: &mut Vec<u8>, ver: &Ver) {
    put_signed(out, ver.main);
    put_varint(out, u64::from(ver.sub));
    put_signed(out, ver.version);
    if !ver.is_tombstone() {
        put_signed(out, ver.main.wrapping_sub(ver.create));
        put_signed(out, ver.lease);
        put_varint(out, ver.address);
        put_varint(out, u64::from(ver.len));
    }
}

/// Reads a `Keys` payload entry by entry.
pub(crate) fn read_keys<E: From<Malformed>>(
    payload: &[u8],
    mut visit: impl FnMut(&[u8], &[Ver]) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader::new(payload);
    let (mut key, mut versions) = (Vec::new(), Vec::new());
    while !reader.is_empty() {
        let shared = reader.length()?;
        if shared > key.len() {
            return Err(Malformed.into());
        }
        key.truncate(shared);
        key.extend_from_slice(reader.bytes()?);
        let count = reader.length()?;
        versions.clear();
        for _ in 0..count {
            versions.push(read_version(&mut reader)?);
        }
        visit(&key, &versions)?;
    }
    Ok(())
}

fn read_version(reader: &mut Reader<'_>) -> Result<Ver, Malformed> {
    let (main, sub, version) = (reader.signed()?, reader.length32()?, reader.signed()?);
    if version == 0 {
        return Ok(Ver::tombstone(crate::Revision { main, sub }));
    }
    Ok(Ver {
        create: main.wrapping_sub(reader.signed()?),
        main,
        version,
        lease: reader.signed()?,
        address: reader.varint()?,
        sub,
        len: reader.length32()?,
    })
}

/// A `Revisions` payload: the first revision, and the address of each from there on.
pub(crate) fn revisions_payload(first: i64, addresses: impl Iterator<Item = Address>) -> Vec<u8> {
    let mut out = Vec::new();
    put_signed(&mut out, first);
    let mut last = 0;
    for address in addresses {
        put_varint(&mut out, address - last);
        last = address;
    }
    out
}

pub(crate) fn read_revisions(payload: &[u8]) -> Result<(i64, Vec<Address>), Malformed> {
    let mut reader = Reader::new(payload);
    let first = reader.signed()?;
    let (mut addresses, mut last) = (Vec::new(), 0u64);
    while !reader.is_empty() {
        last = last.checked_add(reader.varint()?).ok_or(Malformed)?;
        addresses.push(last);
    }
    Ok((first, addresses))
}

/// A `Segments` payload: the log's segments with their slots.
pub(crate) fn segments_payload<'a>(segments: impl Iterator<Item = (&'a u64, &'a Segment)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (sequence, segment) in segments {
        put_varint(&mut out, *sequence);
        put_varint(&mut out, u64::from(segment.slot));
        put_varint(&mut out, segment.first_seq);
        put_varint(&mut out, u64::from(segment.used));
        put_signed(&mut out, segment.max_revision);
    }
    out
}

pub(crate) fn read_segments(payload: &[u8]) -> Result<Vec<(u64, Segment)>, Malformed> {
    let mut reader = Reader::new(payload);
    let mut segments = Vec::new();
    while !reader.is_empty() {
        let sequence = reader.varint()?;
        segments.push((
            sequence,
            Segment {
                slot: reader.length32()?,
                first_seq: reader.varint()?,
                used: reader.length32()?,
                live: 0,
                max_revision: reader.signed()?,
                emptied: None,
            },
        ));
    }
    Ok(segments)
}

/// Lays a checkpoint's frames out in segments, one behind the other.
#[derive(Debug)]
pub(crate) struct Stream {
    id: u64,
    tag: u32,
    segment_bytes: usize,
    segments: u32,
    /// Offset of the current segment in the file.
    base: u64,
    /// Offset of the next frame in it.
    at: usize,
    seq: u64,
}

impl Stream {
    pub(crate) fn new(id: u64, segment_bytes: usize) -> Stream {
        Stream {
            id,
            tag: fresh_tag(),
            segment_bytes,
            segments: 0,
            base: 0,
            at: segment_bytes,
            seq: 0,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    /// The payload size at which a frame is full enough.
    pub(crate) fn frame_target(&self) -> usize {
        (self.segment_bytes / 8).min(64 << 10)
    }

    /// Frames a payload; `next` gives the file offset of a free slot when the current segment is full. Gives where the
    /// bytes are to be written.
    pub(crate) fn frame(
        &mut self,
        kind: Kind,
        payload: &[u8],
        next: &mut dyn FnMut() -> Result<u64, Error>,
    ) -> Result<(u64, Bytes), Error> {
        let len = frame_len(payload.len());
        let mut out = Vec::with_capacity(len + SEGMENT_HEADER_LEN);
        if self.at + len > self.segment_bytes {
            self.base = next()?;
            self.at = 0;
            let header = SegmentHeader {
                kind: SegmentKind::Checkpoint {
                    id: self.id,
                    ordinal: u64::from(self.segments),
                },
                tag: self.tag,
            };
            self.segments += 1;
            out.extend_from_slice(&header.encode());
        }
        let start = out.len();
        out.resize(start + FRAME_HEADER_LEN, 0);
        out.extend_from_slice(payload);
        self.seq += 1;
        seal(&mut out, start, kind, FIRST | LAST, self.seq, 0, self.tag);
        let at = self.base + self.at as u64;
        self.at += out.len();
        Ok((at, Bytes::from(out)))
    }
}

/// Reads the frames of one checkpoint segment; `seq` is the last frame before it. Stops behind the end of the checkpoint,
/// or at the first frame that is not whole: its offset in the segment.
pub(crate) fn read_frames(
    segment: &[u8],
    seq: &mut u64,
    mut visit: impl FnMut(&FrameHeader, &[u8]) -> Result<(), Error>,
) -> Result<usize, Error> {
    let tag = SegmentHeader::decode(segment).map(|header| header.tag);
    let mut at = SEGMENT_HEADER_LEN;
    while let Some((header, payload)) = parse(segment, at) {
        if header.seq != *seq + 1 || Some(header.tag) != tag {
            break;
        }
        *seq += 1;
        visit(&header, payload)?;
        at += frame_len(payload.len());
        if header.kind == Kind::End {
            break;
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(main: i64, version: i64) -> Ver {
        Ver {
            create: main - 1,
            main,
            version,
            lease: -9,
            address: 12345,
            sub: 3,
            len: 77,
        }
    }

    #[test]
    fn keys_return_with_all_their_versions() {
        let tombstone = Ver::tombstone(crate::Revision { main: 9, sub: 1 });
        let many: Vec<Ver> = (1..=1200).map(|n| put(n, n)).collect();
        let entries: Vec<(&[u8], Vec<Ver>)> = vec![
            (b"/registry/a", vec![put(4, 1)]),
            (b"/registry/a/b", vec![put(5, 2), tombstone]),
            (b"/registry/b", many),
            (b"", vec![put(1, 1)]),
        ];
        let (mut keys, mut payloads) = (KeysPayload::default(), Vec::new());
        for (key, versions) in &entries {
            keys.add(key, versions, 2000, &mut payloads);
        }
        payloads.push(keys.take());
        assert!(payloads.len() > 5);
        assert_eq!(keys.entries(), 22, "the key with many versions has 19 entries");
        let mut got: Vec<(Vec<u8>, Vec<Ver>)> = Vec::new();
        for bytes in payloads {
            read_keys::<Malformed>(&bytes, |key, versions| {
                match got.last_mut() {
                    Some((last, all)) if last == key => all.extend_from_slice(versions),
                    _ => got.push((key.to_vec(), versions.to_vec())),
                }
                Ok(())
            })
            .unwrap();
        }
        let expected: Vec<(Vec<u8>, Vec<Ver>)> = entries.into_iter().map(|(k, v)| (k.to_vec(), v)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn the_lists_return() {
        let end = End {
            head: 5,
            compacted: 4,
            replay_at: 3,
            replay_seq: 2,
            entries: 1,
        };
        assert_eq!(End::decode(&end.encode()).unwrap(), end);
        let (first, addresses) = read_revisions(&revisions_payload(7, [10, 20, 25].into_iter())).unwrap();
        assert_eq!((first, addresses), (7, vec![10, 20, 25]));
        let segment = Segment {
            slot: 3,
            first_seq: 9,
            used: 100,
            live: 0,
            max_revision: 12,
            emptied: None,
        };
        let payload = segments_payload([(&8, &segment)].into_iter());
        assert_eq!(read_segments(&payload).unwrap(), [(8, segment)]);
    }

    #[test]
    fn a_stream_crosses_segments_and_reads_back() {
        let mut stream = Stream::new(6, 4096);
        let mut file = vec![0; 4096 * 4];
        let mut slots = [0u64, 8192, 4096].into_iter();
        for n in 0..20u8 {
            let (at, bytes) = stream
                .frame(Kind::Keys, &[n; 500], &mut || Ok(slots.next().unwrap()))
                .unwrap();
            file[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        assert_eq!(stream.segments(), 3);
        let (mut seq, mut seen) = (0, Vec::new());
        for base in [0, 8192, 4096] {
            read_frames(&file[base..base + 4096], &mut seq, |_, payload| {
                seen.push(payload[0]);
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(seen, (0..20).collect::<Vec<u8>>());
    }
}
