//! gzip members: an ordinary gzip to everyone else, one encoding to us.
//!
//! ```text
//! 1f 8b 08 04  00000000  00 ff  0c 00  'Q' 'K' 08 00  u32 deflated  u32 inflated  | deflate data | u32 crc  u32 length
//! ```
//! Numbers are little-endian. The last member of a file is the trailer, see [`Trailer`].

use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};

use crate::Digest;

/// The most bytes that one member holds, inflated.
pub(crate) const CUT: u64 = 4 << 20;
/// The length of a member's header.
pub(crate) const HEADER: usize = 24;
/// The length of what follows the deflate data.
pub(crate) const FOOTER: usize = 8;
/// The most members before the trailer: the table must fit into one extra field.
pub(crate) const MEMBERS_MAX: usize = 16_000;
/// Deflate at the level that gzip itself uses.
const LEVEL: u32 = 6;
/// The most bytes of a stored block.
const STORED_MAX: usize = 65_535;

/// The fixed start of every member: deflate, one extra field, no time, no level, no system.
pub(crate) const FIXED: [u8; 10] = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255];
/// An empty deflate stream with its CRC and length.
pub(crate) const EMPTY: [u8; 10] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What a member's header declares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub deflated: u32,
    pub inflated: u32,
}

impl Header {
    /// The header's one encoding.
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..10].copy_from_slice(&FIXED);
        bytes[10..16].copy_from_slice(&[12, 0, b'Q', b'K', 8, 0]);
        bytes[16..20].copy_from_slice(&self.deflated.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.inflated.to_le_bytes());
        bytes
    }

    /// Reads a header and refuses every other encoding and every length that no writer makes.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, String> {
        if bytes[..2] != FIXED[..2] {
            return Err("here must begin a gzip member, and none does".into());
        }
        let header = Header {
            deflated: u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")),
            inflated: u32::from_le_bytes(bytes[20..24].try_into().expect("four bytes")),
        };
        if header.encode() != *bytes {
            return Err("the header of this gzip member is not the canonical one".into());
        }
        if header.inflated == 0 || u64::from(header.inflated) > CUT {
            return Err(format!(
                "this member declares {} bytes; 1 to {CUT} are possible",
                header.inflated
            ));
        }
        let most = stored_length(header.inflated as usize);
        if header.deflated as usize > most {
            let (found, inflated) = (header.deflated, header.inflated);
            return Err(format!(
                "this member declares {found} deflated bytes; {inflated} bytes need at most {most}"
            ));
        }
        Ok(header)
    }

    /// The length of the whole member.
    pub fn member(self) -> u64 {
        (HEADER + FOOTER) as u64 + u64::from(self.deflated)
    }
}

/// The length of `length` bytes in stored blocks.
fn stored_length(length: usize) -> usize {
    length + 5 * length.div_ceil(STORED_MAX)
}

fn store(bytes: &[u8], out: &mut Vec<u8>) {
    let blocks = bytes.len().div_ceil(STORED_MAX);
    for (index, block) in bytes.chunks(STORED_MAX).enumerate() {
        let length = u16::try_from(block.len()).expect("a block is at most 65,535 bytes");
        out.push(u8::from(index + 1 == blocks));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
}

/// Makes whole members. Reused from member to member, for its tables are large.
pub(crate) struct Encoder(Compress);

impl Encoder {
    pub fn new() -> Encoder {
        Encoder(Compress::new(Compression::new(LEVEL), false))
    }

    #[cfg(test)]
    pub fn member(&mut self, bytes: &[u8], stored: bool) -> Vec<u8> {
        self.member_into(bytes, stored, Vec::new())
    }

    /// One member of `bytes`, which are 1 to [`CUT`], in the memory of `out`. `stored` leaves them as they are; so does
    /// the encoder where deflating would not make them shorter.
    pub fn member_into(&mut self, bytes: &[u8], stored: bool, mut out: Vec<u8>) -> Vec<u8> {
        assert!(!bytes.is_empty() && bytes.len() as u64 <= CUT, "the caller cuts");
        let most = stored_length(bytes.len());
        out.clear();
        out.reserve(HEADER + most + FOOTER);
        out.resize(HEADER, 0);
        if stored || !self.deflate(bytes, &mut out, HEADER + most) {
            out.truncate(HEADER);
            store(bytes, &mut out);
        }
        let header = Header {
            deflated: (out.len() - HEADER) as u32,
            inflated: bytes.len() as u32,
        };
        out[..HEADER].copy_from_slice(&header.encode());
        out.extend_from_slice(&checksum(bytes).to_le_bytes());
        out.extend_from_slice(&header.inflated.to_le_bytes());
        out
    }

    /// False where the result is not shorter than stored blocks.
    fn deflate(&mut self, bytes: &[u8], out: &mut Vec<u8>, most: usize) -> bool {
        self.0.reset();
        // The vector has room for the stored bytes at least: where that is not enough, storing is shorter.
        match self.0.compress_vec(bytes, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => out.len() < most,
            _ => false,
        }
    }
}

/// Opens members. Reused from member to member.
pub(crate) struct Decoder(Decompress);

impl Decoder {
    pub fn new() -> Decoder {
        Decoder(Decompress::new(false))
    }

    /// The bytes of a whole member, in the memory of `out`. Nothing beyond the declared length is ever written.
    pub fn member(&mut self, header: Header, member: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>, String> {
        let (body, footer) = member[HEADER..].split_at(header.deflated as usize);
        self.0.reset(false);
        // What is left in the buffer is written over, or the member is refused.
        out.resize(header.inflated as usize, 0);
        let status = self.0.decompress(body, &mut out, FlushDecompress::Finish);
        let (read, written) = (self.0.total_in(), self.0.total_out());
        match status {
            Ok(Status::StreamEnd) if read == body.len() as u64 && written == u64::from(header.inflated) => {}
            Ok(Status::StreamEnd) => {
                let (deflated, inflated) = (header.deflated, header.inflated);
                return Err(format!(
                    "this member declares {deflated} deflated and {inflated} inflated bytes, and has {read} and {written}"
                ));
            }
            Ok(_) => {
                return Err(format!(
                    "this member inflates to more than the {} bytes declared",
                    header.inflated
                ));
            }
            Err(_) => return Err("the deflate data of this member is damaged".into()),
        }
        let mut expected = [0; FOOTER];
        expected[..4].copy_from_slice(&checksum(&out).to_le_bytes());
        expected[4..].copy_from_slice(&header.inflated.to_le_bytes());
        if footer != expected {
            return Err("the CRC or the length at the end of this member does not fit its bytes".into());
        }
        Ok(out)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// The last member: empty, with the lengths of all others and the digest of all bytes before it.
///
/// ```text
/// 1f 8b 08 04  00000000  00 ff  u16 extra  'Q' 'T' u16 data  n x u32 length of member  32 bytes sha256  u32 length of this
/// 03 00  00000000  00000000
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Trailer {
    /// The length of every member before it, header and footer included.
    pub members: Vec<u32>,
    /// The digest of all members before it.
    pub sha256: Digest,
}

/// What the file's last bytes must be for a trailer to be there: its own length, then an empty deflate stream.
pub(crate) const TRAILER_TAIL: usize = 4 + EMPTY.len();

impl Trailer {
    /// The trailer's one encoding.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.members.len() <= MEMBERS_MAX, "the writer counts");
        let data = 4 * self.members.len() + 32 + 4;
        let length = FIXED.len() + 2 + 4 + data + EMPTY.len();
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&FIXED);
        bytes.extend_from_slice(&((data + 4) as u16).to_le_bytes());
        bytes.extend_from_slice(b"QT");
        bytes.extend_from_slice(&(data as u16).to_le_bytes());
        for member in &self.members {
            bytes.extend_from_slice(&member.to_le_bytes());
        }
        bytes.extend_from_slice(&self.sha256.0);
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend_from_slice(&EMPTY);
        bytes
    }

    /// The trailer's length as the file's last [`TRAILER_TAIL`] bytes state it; `None` where there is no trailer.
    pub fn stated_length(tail: &[u8; TRAILER_TAIL]) -> Option<u64> {
        let length = u32::from_le_bytes(tail[..4].try_into().expect("four bytes"));
        let overhead = FIXED.len() + 2 + 4 + 32 + 4 + EMPTY.len();
        let table = (length as usize).checked_sub(overhead)?;
        let fits = tail[4..] == EMPTY && table.is_multiple_of(4) && table / 4 <= MEMBERS_MAX;
        fits.then_some(u64::from(length))
    }

    /// Reads a trailer and refuses every other encoding.
    pub fn decode(bytes: &[u8]) -> Result<Trailer, String> {
        let head = FIXED.len() + 2 + 4;
        let end = bytes.len().checked_sub(TRAILER_TAIL + 32).filter(|end| *end >= head);
        let Some(end) = end else {
            return Err("the last member is too short".into());
        };
        let words = bytes[head..end].chunks_exact(4);
        let trailer = Trailer {
            members: words
                .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
                .collect(),
            sha256: Digest(bytes[end..end + 32].try_into().expect("thirty-two bytes")),
        };
        if trailer.members.len() > MEMBERS_MAX || trailer.encode() != bytes {
            return Err("the last member is not the canonical one".into());
        }
        Ok(trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(member: &[u8]) -> Result<Vec<u8>, String> {
        let header = Header::decode(member[..HEADER].try_into().unwrap())?;
        assert_eq!(header.member(), member.len() as u64);
        Decoder::new().member(header, member, Vec::new())
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn members_come_back_and_others_read_them() {
        let text = b"a plain text, a plain text".repeat(1000);
        for (bytes, stored) in [
            (&text, false),
            (&text, true),
            (&noise(200_000), false),
            (&vec![7], false),
        ] {
            let member = Encoder::new().member(bytes, stored);
            assert_eq!(&open(&member).unwrap(), bytes);
            let mut plain = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&member[..]), &mut plain).unwrap();
            assert_eq!(&plain, bytes);
        }
    }

    #[test]
    fn noise_is_stored() {
        let bytes = noise(200_000);
        let member = Encoder::new().member(&bytes, false);
        assert_eq!(member, Encoder::new().member(&bytes, true));
    }

    #[test]
    fn a_used_encoder_writes_what_a_new_one_writes() {
        let text = b"one two three four five six".repeat(5000);
        let mut used = Encoder::new();
        used.member(&noise(300_000), false);
        used.member(&noise(1000), true);
        assert_eq!(used.member(&text, false), Encoder::new().member(&text, false));
        // Nor does it matter what memory it writes to.
        for bytes in [&text, &noise(100_000)] {
            let roomy = used.member_into(bytes, false, vec![9; CUT as usize * 2]);
            assert_eq!(roomy, Encoder::new().member(bytes, false));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_member_is_refused_or_is_deflate_padding() {
        let text = b"some text some text some other text";
        let member = Encoder::new().member(text, false);
        let mut unnoticed = Vec::new();
        for bit in 0..member.len() * 8 {
            let mut bad = member.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut header = [0; HEADER];
            header.copy_from_slice(&bad[..HEADER]);
            let Ok(header) = Header::decode(&header) else { continue };
            if header.member() != bad.len() as u64 {
                continue;
            }
            if Decoder::new().member(header, &bad, Vec::new()).is_ok() {
                unnoticed.push(bit);
            }
        }
        // Only the unused bits after the end of the stream escape the member; the file's digest covers them.
        assert!(unnoticed.len() < 8, "{unnoticed:?}");
        assert!(
            unnoticed.iter().all(|bit| bit / 8 == member.len() - FOOTER - 1),
            "{unnoticed:?}"
        );
    }

    #[test]
    fn a_bomb_stops_at_its_declared_length() {
        let zeros = vec![0; CUT as usize];
        let honest = Encoder::new().member(&zeros, false);
        let mut bomb = honest.clone();
        let declared = Header {
            inflated: 100_000,
            deflated: (honest.len() - HEADER - FOOTER) as u32,
        };
        bomb[..HEADER].copy_from_slice(&declared.encode());
        assert!(open(&bomb).unwrap_err().contains("more than the 100000 bytes declared"));
        let endless = Header {
            inflated: u32::MAX,
            deflated: declared.deflated,
        };
        assert!(
            Header::decode(&endless.encode())
                .unwrap_err()
                .contains("declares 4294967295 bytes")
        );
    }

    #[test]
    fn the_trailer_comes_back_and_no_bit_of_it_is_free() {
        let trailer = Trailer {
            members: vec![100, 4_000_000, 3],
            sha256: Digest::of(b"all"),
        };
        let bytes = trailer.encode();
        let tail = bytes[bytes.len() - TRAILER_TAIL..].try_into().unwrap();
        assert_eq!(Trailer::stated_length(&tail), Some(bytes.len() as u64));
        assert_eq!(Trailer::decode(&bytes).unwrap(), trailer);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Trailer::decode(&bad).ok().as_ref(), Some(&trailer), "bit {bit}");
        }
        let most = Trailer {
            members: vec![1; MEMBERS_MAX],
            sha256: Digest::of(b""),
        };
        assert_eq!(Trailer::decode(&most.encode()).unwrap(), most);
    }
}
