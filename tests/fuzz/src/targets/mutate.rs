//! Changes to bytes that know nothing of what they change, and numbers that break arithmetic.

use rand::RngExt;
use rand::rngs::SmallRng;

/// A number at some border.
pub(super) fn number(rng: &mut SmallRng, before: u64) -> u64 {
    match rng.random_range(0..8) {
        0 => rng.random_range(0..4),
        1 => u64::MAX - rng.random_range(0..3),
        2 => (i64::MAX as u64).wrapping_add(rng.random_range(0..3)),
        3 => u64::from(u32::MAX).wrapping_add(rng.random_range(0..3)),
        4 => 1 << rng.random_range(0..64),
        5 => rng.random(),
        _ => before.wrapping_add(rng.random_range(0..9)).wrapping_sub(4),
    }
}

/// Writes a number at a border into a little-endian field of 1, 2, 4 or 8 bytes.
pub(super) fn field(rng: &mut SmallRng, bytes: &mut [u8], at: usize, len: usize) {
    let Some(field) = bytes.get_mut(at..at + len) else {
        return;
    };
    let mut before = [0; 8];
    before[..len].copy_from_slice(field);
    let after = number(rng, u64::from_le_bytes(before)).to_le_bytes();
    field.copy_from_slice(&after[..len]);
}

/// Damage at one place: bits, bytes, zeros, or what stands elsewhere. At most 512 bytes, within `range`.
pub(super) fn spot(rng: &mut SmallRng, bytes: &mut [u8], range: std::ops::Range<usize>) {
    if range.is_empty() {
        return;
    }
    let at = rng.random_range(range.clone());
    let len = rng.random_range(1..=512).min(range.end - at);
    match rng.random_range(0..5) {
        0 | 1 => bytes[at] ^= 1 << rng.random_range(0..8),
        2 => bytes[at] = rng.random(),
        3 => bytes[at..at + len].fill(if rng.random() { 0 } else { 0xff }),
        _ => {
            let from = rng.random_range(0..=bytes.len() - len);
            bytes.copy_within(from..from + len, at);
        }
    }
}

/// A few changes to a message or payload, its length with them.
pub(super) fn text(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.random()),
            2 if bytes.len() < 1 << 16 => bytes.extend_from_within(at..),
            // A varint at a border in the place of a byte.
            3 if at < bytes.len() => {
                let mut value = number(rng, u64::from(bytes[at]));
                let mut varint = Vec::new();
                while value >= 0x80 {
                    varint.push(value as u8 | 0x80);
                    value >>= 7;
                }
                varint.push(value as u8);
                bytes.splice(at..at + 1, varint);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.random_range(0..8);
                }
            }
        }
    }
}
