//! Which watchers a key concerns, without asking each of them.
//!
//! Watchers of one key and of one prefix are found by hash; the cost of an event is one look-up for each length that
//! some watched prefix has, however many watchers there are. Only ranges of any other shape are asked one by one.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use quantykube_store_file::{KeyRange, RangeEnd};

/// Where a range is kept.
enum Place {
    Key(Bytes),
    Prefix(Bytes),
    Other,
}

/// Ranges, each with the number of its watcher.
#[derive(Default)]
pub struct Index {
    keys: HashMap<Bytes, Vec<usize>>,
    prefixes: HashMap<Bytes, Vec<usize>>,
    /// How many different prefixes there are of each length.
    lengths: BTreeMap<usize, usize>,
    others: Vec<(KeyRange, usize)>,
}

impl Index {
    /// Adds a watcher's range.
    pub fn add(&mut self, range: &KeyRange, watcher: usize) {
        match place(range) {
            Place::Key(key) => self.keys.entry(key).or_default().push(watcher),
            Place::Prefix(prefix) => {
                let length = prefix.len();
                let watchers = self.prefixes.entry(prefix).or_default();
                if watchers.is_empty() {
                    *self.lengths.entry(length).or_default() += 1;
                }
                watchers.push(watcher);
            }
            Place::Other => self.others.push((range.clone(), watcher)),
        }
    }

    /// Removes a watcher's range.
    pub fn remove(&mut self, range: &KeyRange, watcher: usize) {
        match place(range) {
            Place::Key(key) => {
                forget(&mut self.keys, &key, watcher);
            }
            Place::Prefix(prefix) => {
                if forget(&mut self.prefixes, &prefix, watcher) {
                    let count = self
                        .lengths
                        .get_mut(&prefix.len())
                        .expect("a prefix is counted while it is there");
                    *count -= 1;
                    if *count == 0 {
                        self.lengths.remove(&prefix.len());
                    }
                }
            }
            Place::Other => self.others.retain(|(_, other)| *other != watcher),
        }
    }

    /// Adds the watchers of a key to `found`.
    pub fn find(&self, key: &[u8], found: &mut Vec<usize>) {
        if let Some(watchers) = self.keys.get(key) {
            found.extend_from_slice(watchers);
        }
        for length in self.lengths.keys().take_while(|length| **length <= key.len()) {
            if let Some(watchers) = self.prefixes.get(&key[..*length]) {
                found.extend_from_slice(watchers);
            }
        }
        for (range, watcher) in &self.others {
            if range.contains(key) {
                found.push(*watcher);
            }
        }
    }
}

/// Removes a watcher; true if it was the last one.
fn forget(map: &mut HashMap<Bytes, Vec<usize>>, key: &Bytes, watcher: usize) -> bool {
    let Some(watchers) = map.get_mut(key) else { return false };
    if let Some(at) = watchers.iter().position(|other| *other == watcher) {
        watchers.swap_remove(at);
    }
    let empty = watchers.is_empty();
    if empty {
        map.remove(key);
    }
    empty
}

fn place(range: &KeyRange) -> Place {
    match &range.end {
        RangeEnd::Single => Place::Key(range.start.clone()),
        RangeEnd::Before(end) if prefix_end(&range.start).as_deref() == Some(end) => Place::Prefix(range.start.clone()),
        // "All keys" is the prefix of no bytes.
        RangeEnd::Unbounded if range.start[..] == [0] => Place::Prefix(Bytes::new()),
        _ => Place::Other,
    }
}

/// The first key after all keys that begin with `prefix`.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    // A prefix that ends with 0xff bytes has a shorter end; it is then no plain prefix for this index.
    (last + 1 == prefix.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: RangeEnd) -> KeyRange {
        KeyRange {
            start: Bytes::from_static(start.as_bytes()),
            end,
        }
    }

    fn before(end: &'static str) -> RangeEnd {
        RangeEnd::Before(Bytes::from_static(end.as_bytes()))
    }

    #[test]
    fn every_shape_of_range_is_found_exactly_where_it_holds_the_key() {
        let ranges = [
            range("a", RangeEnd::Single),
            range("ab", before("ac")),
            range("a", before("b")),
            range("a", before("c")),
            range("ab", RangeEnd::Unbounded),
            range("\0", RangeEnd::Unbounded),
            range("abc", RangeEnd::Single),
            range("ab", before("ac")),
        ];
        let mut index = Index::default();
        for (watcher, range) in ranges.iter().enumerate() {
            index.add(range, watcher);
        }
        let check = |index: &Index, left: &[usize]| {
            for key in ["", "\0", "a", "aa", "ab", "abc", "abd", "ac", "b", "bb", "c", "zz"] {
                if key.is_empty() {
                    continue;
                }
                let mut found = Vec::new();
                index.find(key.as_bytes(), &mut found);
                found.sort_unstable();
                let holds = |watcher: &usize| ranges[*watcher].contains(key.as_bytes());
                let expected: Vec<usize> = left.iter().copied().filter(holds).collect();
                assert_eq!(found, expected, "key {key:?}");
            }
        };
        let mut left: Vec<usize> = (0..ranges.len()).collect();
        check(&index, &left);
        for gone in [1, 4, 0, 5, 7] {
            index.remove(&ranges[gone], gone);
            left.retain(|watcher| *watcher != gone);
            check(&index, &left);
        }
        for gone in left {
            index.remove(&ranges[gone], gone);
        }
        assert!(index.keys.is_empty() && index.prefixes.is_empty() && index.lengths.is_empty());
    }
}
