//! A sorted run of keys in one piece of memory, so that a search touches few cache lines.

/// Sorted keys, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Where each key ends in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

/// Entries and bytes by which a full run grows: exact, for most of the index's memory is here.
const STEP: usize = 8;
const BYTES_STEP: usize = 384;

impl Keys {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at] as usize]
    }

    /// Where the key is, or would be.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The last run of keys that begins at or before `key`: the index of the last key not above it, or 0.
    pub(super) fn covering(&self, key: &[u8]) -> usize {
        self.search(key).unwrap_or_else(|after| after.saturating_sub(1))
    }

    pub(super) fn insert(&mut self, at: usize, key: &[u8]) {
        let (start, end) = (self.start(at), self.bytes.len());
        if self.bytes.capacity() < end + key.len() {
            self.bytes.reserve_exact(key.len().max(BYTES_STEP));
        }
        if self.ends.len() == self.ends.capacity() {
            self.ends.reserve_exact(STEP);
        }
        self.bytes.resize(end + key.len(), 0);
        self.bytes.copy_within(start..end, start + key.len());
        self.bytes[start..start + key.len()].copy_from_slice(key);
        self.ends.insert(at, start as u32);
        for end in &mut self.ends[at..] {
            *end += key.len() as u32;
        }
    }

    /// Cuts the keys from `at` on off.
    pub(super) fn split_off(&mut self, at: usize) -> Keys {
        let start = self.start(at);
        let bytes = self.bytes.split_off(start);
        let mut ends = self.ends.split_off(at);
        ends.iter_mut().for_each(|end| *end -= start as u32);
        Keys { ends, bytes }
    }

    /// Keeps the keys for which `keep` says so.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let (mut start, mut end, mut kept) = (0, 0, 0);
        for at in 0..self.len() {
            let next = self.ends[at] as usize;
            if keep(at) {
                self.bytes.copy_within(start..next, end);
                end += next - start;
                self.ends[kept] = end as u32;
                kept += 1;
            }
            start = next;
        }
        self.bytes.truncate(end);
        self.ends.truncate(kept);
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_inserted_split_and_dropped() {
        let mut keys = Keys::default();
        for key in ["m", "a", "", "zz", "abc"] {
            let at = keys.search(key.as_bytes()).unwrap_err();
            keys.insert(at, key.as_bytes());
        }
        let all = |keys: &Keys| -> Vec<String> {
            (0..keys.len())
                .map(|at| String::from_utf8(keys.get(at).to_vec()).unwrap())
                .collect()
        };
        assert_eq!(all(&keys), ["", "a", "abc", "m", "zz"]);
        assert_eq!(keys.search(b"abc"), Ok(2));
        assert_eq!(keys.search(b"b"), Err(3));
        assert_eq!((keys.covering(b"b"), keys.covering(b"zzz")), (2, 4));
        keys.retain(|at| at != 0 && at != 3);
        assert_eq!(all(&keys), ["a", "abc", "zz"]);
        assert_eq!(keys.covering(b""), 0);
        let right = keys.split_off(1);
        assert_eq!(
            (all(&keys), all(&right)),
            (vec!["a".into()], vec!["abc".into(), "zz".into()])
        );
    }
}
