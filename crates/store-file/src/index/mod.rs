//! The index: ordered keys, each with its versions, in memory.
//!
//! Keys stand in leaves of at most 64 entries, leaves in branches of at most 256, each with the number of live keys
//! below it: a key is found by three binary searches, a range at the head is counted by adding up whole branches and
//! leaves. An entry takes 60 bytes and its key; older versions that are not compacted yet take 48 bytes each.

mod keys;
mod versions;

use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};

use keys::Keys;
use versions::Versions;
pub(crate) use versions::{Entry, Ver};

use crate::layout::Address;
use crate::{KeyRange, RangeEnd, Revision, Version};

const LEAF_ENTRIES: usize = 64;
const LEAF_STEP: usize = 8;
const BRANCH_LEAVES: usize = 256;
/// Keys given to a visitor are cut from blocks of this size.
const KEY_BLOCK: usize = 4096;

/// Neighbouring keys with their versions; never empty between calls.
#[derive(Debug, Default)]
struct Leaf {
    keys: Keys,
    versions: Vec<Versions>,
}

impl Leaf {
    fn entry(&self, at: usize) -> Entry<'_> {
        Entry {
            key: self.keys.get(at),
            versions: &self.versions[at],
        }
    }

    fn entries(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = Entry<'_>> {
        range.map(|at| self.entry(at))
    }

    fn live(&self, range: std::ops::Range<usize>) -> u32 {
        self.versions[range]
            .iter()
            .map(|versions| u32::from(versions.is_live()))
            .sum()
    }

    fn insert(&mut self, at: usize, key: &[u8], versions: Versions) {
        if self.versions.len() == self.versions.capacity() {
            self.versions.reserve_exact(LEAF_STEP);
        }
        self.keys.insert(at, key);
        self.versions.insert(at, versions);
    }

    fn split_off(&mut self, at: usize) -> Leaf {
        Leaf {
            keys: self.keys.split_off(at),
            versions: self.versions.split_off(at),
        }
    }

    fn shrink(&mut self) {
        self.keys.shrink();
        self.versions.shrink_to_fit();
    }
}

/// Neighbouring leaves; never empty between calls.
#[derive(Debug, Default)]
struct Branch {
    /// For each leaf a key that is not above any in it, and above all in the leaf before (for the very first leaf of
    /// the index it may be above some: what is below all of these belongs there).
    firsts: Keys,
    leaves: Vec<Leaf>,
    /// The live keys of each leaf.
    live: Vec<u32>,
    live_sum: u64,
}

impl Branch {
    fn insert(&mut self, at: usize, leaf: Leaf) {
        let live = leaf.live(0..leaf.versions.len());
        self.firsts.insert(at, leaf.keys.get(0));
        self.leaves.insert(at, leaf);
        self.live.insert(at, live);
        self.live_sum += u64::from(live);
    }

    fn add_live(&mut self, leaf: usize, came: bool, went: bool) {
        self.live[leaf] = self.live[leaf] + u32::from(came) - u32::from(went);
        self.live_sum = self.live_sum + u64::from(came) - u64::from(went);
    }

    fn split_off(&mut self, at: usize) -> Branch {
        let live = self.live.split_off(at);
        let live_sum = live.iter().map(|live| u64::from(*live)).sum();
        self.live_sum -= live_sum;
        Branch {
            firsts: self.firsts.split_off(at),
            leaves: self.leaves.split_off(at),
            live,
            live_sum,
        }
    }

    fn remove_empty(&mut self) {
        let leaves = &self.leaves;
        self.firsts.retain(|at| !leaves[at].versions.is_empty());
        let mut leaf = leaves.iter();
        self.live
            .retain(|_| leaf.next().is_some_and(|leaf| !leaf.versions.is_empty()));
        self.leaves.retain(|leaf| !leaf.versions.is_empty());
    }
}

/// Ordered keys with their versions.
#[derive(Debug, Default)]
pub(crate) struct Index {
    branches: Vec<Branch>,
}

/// A place between entries.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    branch: usize,
    leaf: usize,
    entry: usize,
}

impl Index {
    /// Number of entries, tombstones included.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.entries().count()
    }

    /// The branch and the leaf that hold `key` or would; None while there is none.
    fn leaf_of(&self, key: &[u8]) -> Option<(usize, usize)> {
        let after = self.branches.partition_point(|branch| branch.firsts.get(0) <= key);
        let branch = after.saturating_sub(1);
        Some((branch, self.branches.get(branch)?.firsts.covering(key)))
    }

    fn end(&self) -> Place {
        Place {
            branch: self.branches.len(),
            leaf: 0,
            entry: 0,
        }
    }

    /// The first entry at or after `key`.
    fn seek(&self, key: &[u8]) -> Place {
        let Some((branch, leaf)) = self.leaf_of(key) else {
            return self.end();
        };
        let entry = self.branches[branch].leaves[leaf].keys.search(key);
        let entry = entry.unwrap_or_else(|after| after);
        self.normal(Place { branch, leaf, entry })
    }

    /// The same place, as the start of the next leaf if it is the end of one.
    fn normal(&self, place: Place) -> Place {
        let Some(branch) = self.branches.get(place.branch) else {
            return place;
        };
        if place.entry < branch.leaves[place.leaf].versions.len() {
            place
        } else if place.leaf + 1 < branch.leaves.len() {
            Place {
                leaf: place.leaf + 1,
                entry: 0,
                ..place
            }
        } else {
            Place {
                branch: place.branch + 1,
                leaf: 0,
                entry: 0,
            }
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        let (branch, leaf) = self.leaf_of(key)?;
        let leaf = &self.branches[branch].leaves[leaf];
        Some(leaf.entry(leaf.keys.search(key).ok()?))
    }

    /// Adds a version, which must be newer than all of the key's; gives the latest before it.
    pub(crate) fn append(&mut self, key: &[u8], ver: Ver) -> Option<Ver> {
        let mut latest = None;
        self.append_with(key, |before| {
            latest = before;
            ver
        });
        latest
    }

    /// Adds the version that `make` makes of the latest before it.
    pub(crate) fn append_with(&mut self, key: &[u8], make: impl FnOnce(Option<Ver>) -> Ver) {
        let Some((at, leaf)) = self.leaf_of(key) else {
            let mut first = Leaf::default();
            first.insert(0, key, Versions::new(make(None)));
            self.branches.push(Branch::default());
            self.branches[0].insert(0, first);
            return;
        };
        let branch = &mut self.branches[at];
        match branch.leaves[leaf].keys.search(key) {
            Ok(found) => {
                let versions = &mut branch.leaves[leaf].versions[found];
                let was_live = versions.is_live();
                let ver = make(Some(*versions.latest()));
                versions.append(ver);
                branch.add_live(leaf, !ver.is_tombstone(), was_live);
            }
            Err(entry) => {
                let (at, leaf, entry) = self.make_room(at, leaf, entry);
                let ver = make(None);
                let branch = &mut self.branches[at];
                branch.leaves[leaf].insert(entry, key, Versions::new(ver));
                branch.add_live(leaf, !ver.is_tombstone(), false);
            }
        }
    }

    /// Ends a live key with a tombstone; gives the version that ended. None, and nothing changes, if it is not there.
    pub(crate) fn end_live(&mut self, key: &[u8], revision: Revision) -> Option<Ver> {
        let (at, leaf) = self.leaf_of(key)?;
        let branch = &mut self.branches[at];
        let found = branch.leaves[leaf].keys.search(key).ok()?;
        let versions = &mut branch.leaves[leaf].versions[found];
        let live = *versions.latest();
        if live.is_tombstone() {
            return None;
        }
        versions.append(Ver::tombstone(revision));
        branch.add_live(leaf, false, true);
        Some(live)
    }

    /// Splits a full leaf (and a full branch) before an insertion; gives where the entry goes now. A leaf is halved, but
    /// at the very end a new one begins: keys that come in order fill whole leaves.
    fn make_room(&mut self, at: usize, leaf: usize, entry: usize) -> (usize, usize, usize) {
        let last_branch = at + 1 == self.branches.len();
        let branch = &mut self.branches[at];
        if branch.leaves[leaf].versions.len() < LEAF_ENTRIES {
            return (at, leaf, entry);
        }
        let last = last_branch && leaf + 1 == branch.leaves.len() && entry == LEAF_ENTRIES;
        let middle = if last { LEAF_ENTRIES - 1 } else { LEAF_ENTRIES / 2 };
        let right = branch.leaves[leaf].split_off(middle);
        branch.leaves[leaf].shrink();
        let moved = right.live(0..right.versions.len());
        branch.live[leaf] -= moved;
        branch.live_sum -= u64::from(moved);
        branch.insert(leaf + 1, right);
        let (mut at, mut leaf, mut entry) = (at, leaf, entry);
        if entry > middle {
            (leaf, entry) = (leaf + 1, entry - middle);
        }
        if branch.leaves.len() > BRANCH_LEAVES {
            let middle = if last { BRANCH_LEAVES } else { BRANCH_LEAVES / 2 };
            let right = branch.split_off(middle);
            self.branches.insert(at + 1, right);
            if leaf >= middle {
                (at, leaf) = (at + 1, leaf - middle);
            }
        }
        (at, leaf, entry)
    }

    /// Adds a key with all its versions (oldest first, at least one) after all others. False if the order is wrong.
    pub(crate) fn push(&mut self, key: &[u8], versions: &[Ver]) -> bool {
        let Some((latest, older)) = versions.split_last() else {
            return false;
        };
        if !versions.is_sorted_by(|a, b| a.revision() < b.revision()) {
            return false;
        }
        let versions = Versions::with_older(*latest, older);
        if self.branches.is_empty() {
            self.branches.push(Branch::default());
        }
        let full = self
            .branches
            .last()
            .is_some_and(|branch| branch.leaves.len() == BRANCH_LEAVES);
        let Some(branch) = self.branches.last_mut() else {
            return false;
        };
        let live = versions.is_live();
        match branch.leaves.last_mut() {
            Some(leaf) if leaf.keys.get(leaf.keys.len() - 1) >= key => return false,
            Some(leaf) if leaf.versions.len() < LEAF_ENTRIES => {
                leaf.insert(leaf.versions.len(), key, versions);
                branch.add_live(branch.leaves.len() - 1, live, false);
            }
            last => {
                if let Some(last) = last {
                    last.shrink();
                }
                let mut leaf = Leaf::default();
                leaf.insert(0, key, versions);
                if full {
                    self.branches.push(Branch::default());
                }
                if let Some(branch) = self.branches.last_mut() {
                    branch.insert(branch.leaves.len(), leaf);
                }
            }
        }
        true
    }

    /// Moves a version's value and gives where it was; None if the key has no such version.
    pub(crate) fn relocate(&mut self, key: &[u8], revision: Revision, address: Address) -> Option<Address> {
        let (branch, leaf) = self.leaf_of(key)?;
        let leaf = &mut self.branches[branch].leaves[leaf];
        let found = leaf.keys.search(key).ok()?;
        let ver = leaf.versions[found].version_mut(revision)?;
        if ver.is_tombstone() {
            return None;
        }
        Some(std::mem::replace(&mut ver.address, address))
    }

    fn bounds(&self, range: &KeyRange) -> (Place, Place) {
        let from = self.seek(&range.start);
        let to = match &range.end {
            RangeEnd::Single if self.get(&range.start).is_some() => Place {
                entry: from.entry + 1,
                ..from
            },
            RangeEnd::Single => from,
            RangeEnd::Before(end) => self.seek(end).max(from),
            RangeEnd::Unbounded => self.end(),
        };
        (from, to)
    }

    /// The leaves between two places, and which of their entries.
    fn between(&self, from: Place, to: Place) -> impl Iterator<Item = (&Leaf, std::ops::Range<usize>)> {
        let branches = self.branches.iter().enumerate().take(to.branch + 1).skip(from.branch);
        branches.flat_map(move |(at, branch)| {
            let first = if at == from.branch { from.leaf } else { 0 };
            let leaves = branch.leaves.iter().enumerate().skip(first);
            leaves
                .map(move |(leaf, entries)| ((at, leaf), entries))
                .take_while(move |(place, _)| *place <= (to.branch, to.leaf))
                .map(move |(place, entries)| {
                    let start = if place == (from.branch, from.leaf) {
                        from.entry
                    } else {
                        0
                    };
                    let end = if place == (to.branch, to.leaf) {
                        to.entry
                    } else {
                        entries.versions.len()
                    };
                    (entries, start..end.max(start))
                })
        })
    }

    /// Visits the live keys of a range at a revision, in key order.
    pub(crate) fn scan(&self, range: &KeyRange, at: i64, visit: &mut dyn FnMut(&Bytes, &Version) -> ControlFlow<()>) {
        let (from, to) = self.bounds(range);
        let mut block = BytesMut::new();
        for (leaf, entries) in self.between(from, to) {
            for entry in leaf.entries(entries) {
                let Some(ver) = entry.at(at) else {
                    continue;
                };
                if block.capacity() < entry.key.len() {
                    block = BytesMut::with_capacity(KEY_BLOCK.max(entry.key.len()));
                }
                block.extend_from_slice(entry.key);
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
        self.live_before(to) - self.live_before(from)
    }

    /// The live keys before a place.
    fn live_before(&self, place: Place) -> u64 {
        let whole: u64 = self.branches[..place.branch].iter().map(|branch| branch.live_sum).sum();
        let Some(branch) = self.branches.get(place.branch) else {
            return whole;
        };
        let leaves: u32 = branch.live[..place.leaf].iter().sum();
        whole + u64::from(leaves) + u64::from(branch.leaves[place.leaf].live(0..place.entry))
    }

    /// The live keys of a range at a revision.
    pub(crate) fn count_at(&self, range: &KeyRange, at: i64) -> u64 {
        let (from, to) = self.bounds(range);
        let seen = |(leaf, entries): (&Leaf, std::ops::Range<usize>)| {
            let versions = &leaf.versions[entries];
            versions.iter().filter(|versions| versions.at(at).is_some()).count() as u64
        };
        self.between(from, to).map(seen).sum()
    }

    /// Every entry, in key order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let leaves = self.branches.iter().flat_map(|branch| &branch.leaves);
        leaves.flat_map(|leaf| leaf.entries(0..leaf.versions.len()))
    }

    /// Visits the entries after `cursor` (all with None) until `visit` breaks; gives the last key visited, or None at
    /// the end.
    pub(crate) fn walk(
        &self,
        cursor: Option<&[u8]>,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Option<Box<[u8]>> {
        let from = cursor.map_or(
            Place {
                branch: 0,
                leaf: 0,
                entry: 0,
            },
            |key| self.seek(key),
        );
        for (leaf, entries) in self.between(from, self.end()) {
            for entry in leaf.entries(entries) {
                if cursor == Some(entry.key) {
                    continue;
                }
                if visit(entry).is_break() {
                    return Some(entry.key.into());
                }
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
        let (mut branch, mut leaf) = self.leaf_of(cursor)?;
        let first = branch;
        let next = loop {
            compact_leaf(&mut self.branches[branch].leaves[leaf], revision, dropped);
            leaf += 1;
            if leaf == self.branches[branch].leaves.len() {
                (branch, leaf) = (branch + 1, 0);
            }
            if branch == self.branches.len() {
                break None;
            }
            if !go_on() {
                break Some(self.branches[branch].leaves[leaf].keys.get(0).into());
            }
        };
        let touched = first..self.branches.len().min(branch + 1);
        self.branches[touched].iter_mut().for_each(Branch::remove_empty);
        self.branches.retain(|branch| !branch.leaves.is_empty());
        next
    }
}

fn compact_leaf(leaf: &mut Leaf, revision: i64, dropped: &mut dyn FnMut(&[u8], &Ver)) {
    let Leaf { keys, versions } = leaf;
    // A bit for each entry that goes: a leaf has 64 at most.
    let (mut at, mut gone) = (0, 0u64);
    versions.retain_mut(|versions| {
        let goes = versions.compact(keys.get(at), revision, dropped);
        gone |= u64::from(goes) << at;
        at += 1;
        !goes
    });
    if gone != 0 {
        keys.retain(|at| gone >> at & 1 == 0);
        if versions.capacity() > versions.len() + 2 * LEAF_STEP {
            leaf.shrink();
        }
    }
}

#[cfg(test)]
mod tests;
