//! What differs between two versions of one file: a row of stretches, each near a place of the old one.
//!
//! After Colin Percival's bsdiff: a program that was built again has most of its bytes, shifted, with other addresses in
//! between. A stretch of it is taken from the old file byte by byte, with the difference of each; nearly all are zero.
//! Matches are found through a table of hashes rather than a suffix array.

/// One step: `add` bytes near the old file's bytes at `old`, then `extra` bytes that are new.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Op {
    pub old: usize,
    pub add: usize,
    pub extra: usize,
}

/// The bytes that a hash is of.
const KEY: usize = 8;
/// How many places with the same hash are looked at.
const TRIES: usize = 24;
/// A match must be that much longer than what the present alignment gives.
const BETTER: usize = 8;
/// Longer old files are hashed at every fourth byte only, so that the table stays smaller than the file.
const DENSE_MAX: usize = 32 << 20;
const NONE: u32 = u32::MAX;

/// Where the keys of the old file are.
struct Index<'a> {
    old: &'a [u8],
    stride: usize,
    bits: u32,
    heads: Vec<u32>,
    /// Of each hashed place, the one before it with the same hash.
    before: Vec<u32>,
}

impl Index<'_> {
    fn new(old: &[u8]) -> Index<'_> {
        let stride = if old.len() > DENSE_MAX { 4 } else { 1 };
        let places = old.len().saturating_sub(KEY - 1).div_ceil(stride);
        let bits = (places.max(1).ilog2() + 1).clamp(8, 24);
        let mut index = Index {
            old,
            stride,
            bits,
            heads: vec![NONE; 1 << bits],
            before: vec![NONE; places],
        };
        for place in 0..places {
            let slot = index.slot(&old[place * stride..]);
            index.before[place] = std::mem::replace(&mut index.heads[slot], place as u32);
        }
        index
    }

    fn slot(&self, bytes: &[u8]) -> usize {
        let key = u64::from_le_bytes(bytes[..KEY].try_into().expect("a key's bytes"));
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits)) as usize
    }

    /// The longest match found for the beginning of `new`: its place and length.
    fn longest(&self, new: &[u8]) -> (usize, usize) {
        if new.len() < KEY {
            return (0, 0);
        }
        let mut best = (0, 0);
        let mut place = self.heads[self.slot(new)];
        for _ in 0..TRIES {
            if place == NONE {
                break;
            }
            let at = place as usize * self.stride;
            let length = same(&self.old[at..], new);
            if length > best.1 {
                best = (at, length);
            }
            place = self.before[place as usize];
        }
        best
    }
}

/// How many bytes two slices begin alike with.
fn same(a: &[u8], b: &[u8]) -> usize {
    let most = a.len().min(b.len());
    let mut done = 0;
    while done + 8 <= most && a[done..done + 8] == b[done..done + 8] {
        done += 8;
    }
    while done < most && a[done] == b[done] {
        done += 1;
    }
    done
}

/// The steps that make `new` of `old`. Both are shorter than 4 GiB.
pub(crate) fn diff(old: &[u8], new: &[u8]) -> Vec<Op> {
    let index = Index::new(old);
    let mut ops = Vec::new();
    // Up to where steps were made, and the alignment of the last one.
    let (mut done, mut done_old) = (0, 0);
    let (mut scan, mut at, mut length) = (0, 0, 0);
    while scan < new.len() {
        // How many of the bytes ahead the present alignment has right.
        let mut aligned = 0;
        scan += length;
        let mut counted = scan;
        let right = |place: usize| {
            let old_at = (place + done_old).checked_sub(done);
            old_at
                .and_then(|at| old.get(at))
                .is_some_and(|byte| *byte == new[place])
        };
        while scan < new.len() {
            (at, length) = index.longest(&new[scan..]);
            while counted < scan + length {
                aligned += usize::from(right(counted));
                counted += 1;
            }
            if (length == aligned && length > 0) || length > aligned + BETTER {
                break;
            }
            if counted > scan {
                aligned -= usize::from(right(scan));
            } else {
                counted = scan + 1;
            }
            scan += 1;
        }
        if length == aligned && scan < new.len() {
            // The alignment is right already: this stretch is part of it.
            continue;
        }
        let op = step(old, new, (done, done_old), (scan, at));
        if op.add + op.extra > 0 {
            ops.push(op);
        }
        // What the new match reaches back is a part of the next step.
        done += op.add + op.extra;
        done_old = at + done - scan.min(at + done);
    }
    ops
}

/// From where steps were made to a match at `scan`: how far the old alignment goes on forwards, and the new one reaches
/// back.
fn step(old: &[u8], new: &[u8], (done, done_old): (usize, usize), (scan, at): (usize, usize)) -> Op {
    let gap = scan - done;
    // Forwards: as long as more than half of the bytes are right.
    let (mut score, mut best, mut forward) = (0_i64, 0_i64, 0);
    for n in 0..gap.min(old.len() - done_old.min(old.len())) {
        score += if old[done_old + n] == new[done + n] { 1 } else { -1 };
        if score > best {
            (best, forward) = (score, n + 1);
        }
    }
    // Backwards from the match.
    let (mut score, mut best, mut back) = (0_i64, 0_i64, 0);
    if scan < new.len() {
        for n in 1..=gap.min(at) {
            score += if old[at - n] == new[scan - n] { 1 } else { -1 };
            if score > best {
                (best, back) = (score, n);
            }
        }
    }
    // Where both claim the same bytes, each gets those that it has more right.
    if forward + back > gap {
        let overlap = forward + back - gap;
        let (mut score, mut best, mut split) = (0_i64, 0_i64, 0);
        for n in 0..overlap {
            let place = gap - back + n;
            score += i64::from(old[done_old + place] == new[done + place]);
            score -= i64::from(old[at - back + n] == new[scan - back + n]);
            if score > best {
                (best, split) = (score, n + 1);
            }
        }
        forward = forward - overlap + split;
        back -= split;
    }
    Op {
        old: done_old,
        add: forward,
        extra: gap - forward - back,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(old: &[u8], new: &[u8], ops: &[Op]) -> Vec<u8> {
        let mut out = Vec::new();
        for op in ops {
            let at = out.len();
            for n in 0..op.add {
                let difference = new[at + n].wrapping_sub(old[op.old + n]);
                out.push(old[op.old + n].wrapping_add(difference));
            }
            out.extend_from_slice(&new[out.len()..out.len() + op.extra]);
        }
        out
    }

    fn noise(length: usize, mut state: u64) -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn every_pair_comes_back() {
        let old = noise(50_000, 1);
        let mut shifted = noise(100, 2);
        shifted.extend_from_slice(&old[..20_000]);
        shifted.extend_from_slice(&noise(50, 3));
        shifted.extend_from_slice(&old[30_000..]);
        shifted.extend_from_slice(&old[..5000]);
        let mut touched = old.clone();
        for place in (7..touched.len()).step_by(97) {
            touched[place] = touched[place].wrapping_add(4);
        }
        for (old, new) in [
            (&old[..], &shifted[..]),
            (&old, &touched),
            (&old, &old),
            (&old, &[]),
            (&[], &old),
            (&old[..5], &old[..3]),
            (&old, &noise(3000, 9)),
            (&vec![0; 10_000], &vec![0; 9000]),
            (&vec![0; 9000], &vec![0; 10_000]),
        ] {
            let ops = diff(old, new);
            assert!(apply(old, new, &ops) == new, "{} to {} bytes", old.len(), new.len());
        }
    }

    #[test]
    fn shifted_stretches_are_taken_from_the_old_file() {
        let old = noise(50_000, 1);
        let mut new = noise(100, 2);
        new.extend_from_slice(&old[..20_000]);
        new.extend_from_slice(&noise(50, 3));
        new.extend_from_slice(&old[30_000..]);
        let extra: usize = diff(&old, &new).iter().map(|op| op.extra).sum();
        assert!(extra <= 200, "{extra} bytes are new");
    }
}
