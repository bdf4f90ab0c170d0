//! The index: ordered keys, each with its versions, in memory.
//!
//! Keys stand in leaves of at most 64 entries, the leaves in one ordered list with the number of live keys of each
//! beside it: a key is found by two binary searches, a range at the head is counted by adding up whole leaves. An entry
//! takes 72 bytes and its key; older versions that are not compacted yet take 48 bytes each.

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};

use crate::layout::Address;
use crate::{KeyRange, RangeEnd, Revision, ValueRef, Version};

const LEAF_ENTRIES: usize = 64;
const LEAF_STEP: usize = 8;
/// Keys given to a visitor are cut from blocks of this size.
const KEY_BLOCK: usize = 4096;

/// One version of a key; a tombstone has version 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ver {
    pub(crate) create: i64,
    pub(crate) main: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) address: Address,
    pub(crate) sub: u32,
    pub(crate) len: u32,
}

impl Ver {
    pub(crate) fn tombstone(revision: Revision) -> Ver {
        Ver {
            create: 0,
            main: revision.main,
            version: 0,
            lease: 0,
            address: 0,
            sub: revision.sub,
            len: 0,
        }
    }

    pub(crate) fn is_tombstone(&self) -> bool {
        self.version == 0
    }

    pub(crate) fn revision(&self) -> Revision {
        Revision {
            main: self.main,
            sub: self.sub,
        }
    }

    pub(crate) fn public(&self) -> Version {
        Version {
            create: self.create,
            modified: self.revision(),
            version: self.version,
            lease: self.lease,
            value: ValueRef {
                offset: self.address,
                len: self.len,
            },
        }
    }
}

/// Versions before the latest, oldest first. Boxed: most keys have none.
#[derive(Debug)]
struct Older(Vec<Ver>);

/// A key and its versions; never empty.
#[derive(Debug)]
pub(crate) struct Entry {
    key: Box<[u8]>,
    latest: Ver,
    older: Option<Box<Older>>,
}

impl Entry {
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn latest(&self) -> &Ver {
        &self.latest
    }

    /// All versions, oldest first.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Ver> {
        self.older
            .iter()
            .flat_map(|older| older.0.iter())
            .chain(std::iter::once(&self.latest))
    }

    /// The version a read at `at` sees, if the key is there then.
    pub(crate) fn at(&self, at: i64) -> Option<&Ver> {
        let seen = if self.latest.main <= at {
            &self.latest
        } else {
            let older = &self.older.as_ref()?.0;
            let after = older.partition_point(|ver| ver.main <= at);
            &older[after.checked_sub(1)?]
        };
        (!seen.is_tombstone()).then_some(seen)
    }

    fn version_mut(&mut self, revision: Revision) -> Option<&mut Ver> {
        if self.latest.revision() == revision {
            return Some(&mut self.latest);
        }
        let older = &mut self.older.as_mut()?.0;
        let found = older.binary_search_by_key(&revision, Ver::revision).ok()?;
        Some(&mut older[found])
    }

    fn append(&mut self, ver: Ver) {
        let before = std::mem::replace(&mut self.latest, ver);
        match &mut self.older {
            Some(older) => older.0.push(before),
            None => self.older = Some(Box::new(Older(vec![before]))),
        }
    }

    fn is_live(&self) -> bool {
        !self.latest.is_tombstone()
    }

    /// Drops what a compaction at `revision` does not keep; true if nothing is left. The last version at or before it
    /// is kept if it is a put, or a tombstone of that very revision (a watch from there still sees the delete).
    fn compact(&mut self, revision: i64, dropped: &mut dyn FnMut(&[u8], &Ver)) -> bool {
        let kept = |ver: &Ver| !ver.is_tombstone() || ver.main == revision;
        if self.latest.main <= revision {
            if let Some(older) = self.older.take() {
                older.0.iter().for_each(|ver| dropped(&self.key, ver));
            }
            if !kept(&self.latest) {
                dropped(&self.key, &self.latest);
                return true;
            }
            return false;
        }
        let Some(older) = &mut self.older else {
            return false;
        };
        let mut first = older.0.partition_point(|ver| ver.main <= revision);
        if first > 0 && kept(&older.0[first - 1]) {
            first -= 1;
        }
        older.0.drain(..first).for_each(|ver| dropped(&self.key, &ver));
        if older.0.is_empty() {
            self.older = None;
        } else if first > 0 {
            older.0.shrink_to_fit();
        }
        false
    }
}

/// Ordered keys with their versions.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// No leaf is empty.
    leaves: Vec<Vec<Entry>>,
    /// The live keys of each leaf.
    live: Vec<u32>,
}

/// A place between entries.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    leaf: usize,
    entry: usize,
}

impl Index {
    /// Number of entries, tombstones included.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.leaves.iter().map(Vec::len).sum()
    }

    /// The leaf that holds `key` or would.
    fn leaf_of(&self, key: &[u8]) -> usize {
        self.leaves
            .partition_point(|leaf| *leaf[0].key <= *key)
            .saturating_sub(1)
    }

    /// The first entry at or after `key`.
    fn seek(&self, key: &[u8]) -> Place {
        let leaf = self.leaf_of(key);
        let Some(entries) = self.leaves.get(leaf) else {
            return Place { leaf: 0, entry: 0 };
        };
        let entry = entries.partition_point(|entry| *entry.key < *key);
        if entry == entries.len() {
            return Place {
                leaf: leaf + 1,
                entry: 0,
            };
        }
        Place { leaf, entry }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let entries = self.leaves.get(self.leaf_of(key))?;
        let found = entries.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        Some(&entries[found])
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let leaf = self.leaf_of(key);
        let entries = self.leaves.get_mut(leaf)?;
        let found = entries.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        Some(&mut entries[found])
    }

    /// Adds a version, which must be newer than all of the key's; gives the latest before it.
    pub(crate) fn append(&mut self, key: &[u8], ver: Ver) -> Option<Ver> {
        let leaf = self.leaf_of(key);
        let Some(entries) = self.leaves.get_mut(leaf) else {
            self.insert(Place { leaf: 0, entry: 0 }, key, ver);
            return None;
        };
        match entries.binary_search_by(|entry| (*entry.key).cmp(key)) {
            Ok(found) => {
                let entry = &mut entries[found];
                debug_assert!(entry.latest.revision() < ver.revision());
                let was_live = entry.is_live();
                let before = entry.latest;
                entry.append(ver);
                self.live[leaf] = self.live[leaf] + u32::from(!ver.is_tombstone()) - u32::from(was_live);
                Some(before)
            }
            Err(entry) => {
                self.insert(Place { leaf, entry }, key, ver);
                None
            }
        }
    }

    fn insert(&mut self, place: Place, key: &[u8], ver: Ver) {
        let mut place = place;
        if self.leaves.is_empty() {
            self.leaves.push(Vec::new());
            self.live.push(0);
        } else if self.leaves[place.leaf].len() == LEAF_ENTRIES {
            place = self.split(place);
        }
        let entries = &mut self.leaves[place.leaf];
        if entries.len() == entries.capacity() {
            entries.reserve_exact(LEAF_STEP);
        }
        let entry = Entry {
            key: key.into(),
            latest: ver,
            older: None,
        };
        entries.insert(place.entry, entry);
        self.live[place.leaf] += u32::from(!ver.is_tombstone());
    }

    /// Makes room in a full leaf: halves it, or, at the very end, begins a new one (keys that come in order fill whole
    /// leaves).
    fn split(&mut self, place: Place) -> Place {
        let last = place.leaf + 1 == self.leaves.len() && place.entry == LEAF_ENTRIES;
        let at = if last { LEAF_ENTRIES } else { LEAF_ENTRIES / 2 };
        let entries = &mut self.leaves[place.leaf];
        let right = entries.split_off(at);
        if !last {
            entries.shrink_to_fit();
        }
        let right_live = count_live(&right);
        self.live[place.leaf] -= right_live;
        self.leaves.insert(place.leaf + 1, right);
        self.live.insert(place.leaf + 1, right_live);
        if place.entry >= at {
            return Place {
                leaf: place.leaf + 1,
                entry: place.entry - at,
            };
        }
        place
    }

    /// Adds a key with all its versions (oldest first, at least one) after all others. False if the order is wrong.
    pub(crate) fn push(&mut self, key: &[u8], versions: &[Ver]) -> bool {
        let Some((latest, older)) = versions.split_last() else {
            return false;
        };
        let after_last = self
            .leaves
            .last()
            .and_then(|entries| entries.last())
            .is_none_or(|last| *last.key < *key);
        if !after_last || !versions.is_sorted_by(|a, b| a.revision() < b.revision()) {
            return false;
        }
        if self.leaves.last().is_none_or(|entries| entries.len() == LEAF_ENTRIES) {
            self.leaves.push(Vec::with_capacity(LEAF_ENTRIES));
            self.live.push(0);
        }
        let entry = Entry {
            key: key.into(),
            latest: *latest,
            older: (!older.is_empty()).then(|| Box::new(Older(older.to_vec()))),
        };
        if let (Some(entries), Some(live)) = (self.leaves.last_mut(), self.live.last_mut()) {
            *live += u32::from(entry.is_live());
            entries.push(entry);
        }
        true
    }

    /// Moves a version's value; false if the key has no such version.
    pub(crate) fn relocate(&mut self, key: &[u8], revision: Revision, address: Address) -> Option<Address> {
        let ver = self.get_mut(key)?.version_mut(revision)?;
        if ver.is_tombstone() {
            return None;
        }
        Some(std::mem::replace(&mut ver.address, address))
    }

    fn bounds(&self, range: &KeyRange) -> (Place, Place) {
        let from = self.seek(&range.start);
        let to = match &range.end {
            RangeEnd::Single => match self.get(&range.start) {
                Some(_) => Place {
                    leaf: from.leaf,
                    entry: from.entry + 1,
                },
                None => from,
            },
            RangeEnd::Before(end) => self.seek(end).max(from),
            RangeEnd::Unbounded => Place {
                leaf: self.leaves.len(),
                entry: 0,
            },
        };
        (from, to)
    }

    /// The entries of each leaf between two places.
    fn between(&self, from: Place, to: Place) -> impl Iterator<Item = (usize, &[Entry])> {
        let leaves = from.leaf..self.leaves.len().min(to.leaf + 1);
        leaves.map(move |leaf| {
            let entries = &self.leaves[leaf];
            let start = if leaf == from.leaf { from.entry } else { 0 };
            let end = if leaf == to.leaf { to.entry } else { entries.len() };
            (leaf, &entries[start.min(end)..end])
        })
    }

    /// Visits the live keys of a range at a revision, in key order.
    pub(crate) fn scan(&self, range: &KeyRange, at: i64, visit: &mut dyn FnMut(&Bytes, &Version) -> ControlFlow<()>) {
        let (from, to) = self.bounds(range);
        let mut block = BytesMut::new();
        for (_, entries) in self.between(from, to) {
            for entry in entries {
                let Some(ver) = entry.at(at) else {
                    continue;
                };
                if block.capacity() < entry.key.len() {
                    block = BytesMut::with_capacity(KEY_BLOCK.max(entry.key.len()));
                }
                block.extend_from_slice(&entry.key);
                let key = block.split().freeze();
                if visit(&key, &ver.public()).is_break() {
                    return;
                }
            }
        }
    }

    /// The live keys of a range now.
    pub(crate) fn count_latest(&self, range: &KeyRange) -> u64 {
        let (from, to) = self.bounds(range);
        self.between(from, to)
            .map(|(leaf, entries)| {
                if entries.len() == self.leaves[leaf].len() {
                    u64::from(self.live[leaf])
                } else {
                    u64::from(count_live(entries))
                }
            })
            .sum()
    }

    /// The live keys of a range at a revision.
    pub(crate) fn count_at(&self, range: &KeyRange, at: i64) -> u64 {
        let (from, to) = self.bounds(range);
        self.between(from, to)
            .map(|(_, entries)| entries.iter().filter(|entry| entry.at(at).is_some()).count() as u64)
            .sum()
    }

    /// Visits every entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.leaves.iter().flatten()
    }

    /// Visits the entries after `cursor` (all with None) leaf by leaf until `visit` breaks; gives the last key visited,
    /// or None at the end. `visit` is asked after each leaf's entries whether to go on.
    pub(crate) fn walk(
        &self,
        cursor: Option<&[u8]>,
        visit: &mut dyn FnMut(&[Entry]) -> ControlFlow<()>,
    ) -> Option<Box<[u8]>> {
        let mut place = match cursor {
            None => Place { leaf: 0, entry: 0 },
            Some(key) => {
                let place = self.seek(key);
                match self.leaves.get(place.leaf) {
                    Some(entries) if *entries[place.entry].key == *key => Place {
                        leaf: place.leaf,
                        entry: place.entry + 1,
                    },
                    _ => place,
                }
            }
        };
        while let Some(entries) = self.leaves.get(place.leaf) {
            let entries = &entries[place.entry.min(entries.len())..];
            let flow = visit(entries);
            place = Place {
                leaf: place.leaf + 1,
                entry: 0,
            };
            if let (ControlFlow::Break(()), Some(last)) = (flow, entries.last())
                && place.leaf < self.leaves.len()
            {
                return Some(last.key.clone());
            }
        }
        None
    }

    /// Compacts the entries from `cursor` on, leaf by leaf, while `go_on` says so; gives where to go on, or None at the
    /// end.
    pub(crate) fn compact(
        &mut self,
        cursor: &[u8],
        revision: i64,
        dropped: &mut dyn FnMut(&[u8], &Ver),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<Box<[u8]>> {
        let mut leaf = self.leaf_of(cursor);
        let mut emptied = false;
        let mut next = None;
        while leaf < self.leaves.len() {
            let entries = &mut self.leaves[leaf];
            let before = entries.len();
            entries.retain_mut(|entry| !entry.compact(revision, dropped));
            emptied |= entries.is_empty();
            if entries.len() < before && entries.capacity() > entries.len() + 2 * LEAF_STEP {
                entries.shrink_to(entries.len() + LEAF_STEP);
            }
            leaf += 1;
            if leaf < self.leaves.len() && !go_on() {
                next = Some(self.leaves[leaf][0].key.clone());
                break;
            }
        }
        if emptied {
            self.remove_empty();
        }
        next
    }

    fn remove_empty(&mut self) {
        let mut kept = self.leaves.iter().map(|entries| !entries.is_empty());
        self.live.retain(|_| kept.next().unwrap_or(false));
        self.leaves.retain(|entries| !entries.is_empty());
    }
}

fn count_live(entries: &[Entry]) -> u32 {
    entries.iter().map(|entry| u32::from(entry.is_live())).sum()
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
