//! The steps of one file as bytes, and back: three deflate streams, of the steps, of the differences and of what is new.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::diff::{Op, diff};

/// How much is worked on at a time.
const PART: usize = 1 << 16;

/// The three streams.
pub(crate) struct Patch {
    pub control: Vec<u8>,
    pub difference: Vec<u8>,
    pub extra: Vec<u8>,
}

impl Patch {
    pub fn length(&self) -> usize {
        self.control.len() + self.difference.len() + self.extra.len()
    }
}

fn put(out: &mut impl Write, mut number: u64) -> io::Result<()> {
    while number >= 0x80 {
        out.write_all(&[number as u8 | 0x80])?;
        number >>= 7;
    }
    out.write_all(&[number as u8])
}

fn get(from: &mut impl Read) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        number |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            return Ok(number);
        }
    }
    Err(wrong("a number is too long"))
}

fn wrong(found: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, found.to_owned())
}

/// Small numbers for small jumps in either direction.
fn zigzag(jump: i64) -> u64 {
    ((jump << 1) ^ (jump >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

pub(crate) fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut out = DeflateEncoder::new(Vec::new(), Compression::best());
    out.write_all(bytes)
        .and_then(|()| out.finish())
        .expect("writing to memory does not fail")
}

/// What makes `new` of `old`.
pub(crate) fn make(old: &[u8], new: &[u8]) -> Patch {
    let (mut control, mut difference, mut extra) = (Vec::new(), Vec::with_capacity(new.len()), Vec::new());
    let (mut at, mut at_old) = (0, 0);
    for Op {
        old: start,
        add,
        extra: more,
    } in diff(old, new)
    {
        for number in [zigzag(start as i64 - at_old as i64), add as u64, more as u64] {
            put(&mut control, number).expect("writing to memory does not fail");
        }
        let pairs = new[at..at + add].iter().zip(&old[start..start + add]);
        difference.extend(pairs.map(|(new, old)| new.wrapping_sub(*old)));
        at += add;
        extra.extend_from_slice(&new[at..at + more]);
        at += more;
        at_old = start + add;
    }
    Patch {
        control: deflated(&control),
        difference: deflated(&difference),
        extra: deflated(&extra),
    }
}

/// Makes the new file, of `size` bytes, from the old one. Nothing is written beyond `size`, and no more than a part is in
/// memory.
pub(crate) fn apply(
    old: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    control: impl Read,
    difference: impl Read,
    extra: impl Read,
    size: u64,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut control = DeflateDecoder::new(control);
    let mut difference = DeflateDecoder::new(difference);
    let mut extra = DeflateDecoder::new(extra);
    let (mut done, mut at_old) = (0_u64, 0_u64);
    let (mut base, mut part) = (vec![0; PART], vec![0; PART]);
    while done < size {
        let jump = unzigzag(get(&mut control)?);
        let (add, more) = (get(&mut control)?, get(&mut control)?);
        let left = size - done;
        if add > left || more > left - add || add + more == 0 {
            return Err(wrong("its steps make more than the file"));
        }
        at_old = at_old
            .checked_add_signed(jump)
            .ok_or_else(|| wrong("it jumps out of the old file"))?;
        let mut rest = add;
        while rest > 0 {
            let length = rest.min(PART as u64) as usize;
            difference.read_exact(&mut part[..length])?;
            old(at_old, &mut base[..length])?;
            for (byte, old) in part[..length].iter_mut().zip(&base) {
                *byte = byte.wrapping_add(*old);
            }
            take(&part[..length])?;
            (rest, at_old) = (rest - length as u64, at_old + length as u64);
        }
        let mut rest = more;
        while rest > 0 {
            let length = rest.min(PART as u64) as usize;
            extra.read_exact(&mut part[..length])?;
            take(&part[..length])?;
            rest -= length as u64;
        }
        done += add + more;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_gives_the_new_file_and_is_small() {
        let old: Vec<u8> = (0..200_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        let mut new = b"something in front".to_vec();
        new.extend_from_slice(&old);
        new.drain(50_000..50_100);
        for place in (100_000..700_000).step_by(100) {
            new[place] = new[place].wrapping_add(16);
        }
        let patch = make(&old, &new);
        assert!(patch.length() < new.len() / 20, "{} bytes", patch.length());
        let read = |at: u64, out: &mut [u8]| {
            out.copy_from_slice(&old[at as usize..at as usize + out.len()]);
            Ok(())
        };
        let mut made = Vec::new();
        let mut take = |bytes: &[u8]| {
            made.extend_from_slice(bytes);
            Ok(())
        };
        let (control, difference, extra) = (&patch.control[..], &patch.difference[..], &patch.extra[..]);
        apply(&read, control, difference, extra, new.len() as u64, &mut take).unwrap();
        assert!(made == new);
        // No size but the right one, and no bytes beyond it.
        let mut count = 0;
        let mut take = |bytes: &[u8]| {
            count += bytes.len();
            Ok(())
        };
        assert!(apply(&read, control, difference, extra, 1000, &mut take).is_err());
        assert!(count <= 1000);
    }
}
