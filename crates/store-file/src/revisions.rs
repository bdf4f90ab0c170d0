//! Where the transaction of each uncompacted revision stands.

use std::collections::VecDeque;

use crate::layout::Address;

/// A table of consecutive revisions.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    /// The revision of the first address.
    first: i64,
    addresses: VecDeque<Address>,
}

impl Revisions {
    /// From revisions in order. What stands before a gap was compacted while the list was written.
    pub(crate) fn from_list(list: &[(i64, Address)]) -> Revisions {
        let gap = list.windows(2).rposition(|pair| pair[0].0 + 1 != pair[1].0);
        let list = &list[gap.map_or(0, |gap| gap + 1)..];
        Revisions {
            first: list.first().map_or(0, |(first, _)| *first),
            addresses: list.iter().map(|(_, address)| *address).collect(),
        }
    }

    /// At most `count` addresses from `revision` on (or the first there is): the revision of the first, and them.
    pub(crate) fn run(&self, revision: i64, count: usize) -> (i64, impl ExactSizeIterator<Item = Address>) {
        let from = revision.max(self.first);
        let skip = ((from - self.first) as usize).min(self.addresses.len());
        let count = count.min(self.addresses.len() - skip);
        (from, self.addresses.range(skip..skip + count).copied())
    }

    /// Adds the next revision. One that is there already (a replay) changes nothing; false if one would be left out.
    pub(crate) fn push(&mut self, revision: i64, address: Address) -> bool {
        if self.addresses.is_empty() {
            self.first = revision;
        }
        let next = self.first + self.addresses.len() as i64;
        if revision == next {
            self.addresses.push_back(address);
        }
        revision <= next
    }

    pub(crate) fn get(&self, revision: i64) -> Option<Address> {
        let at = usize::try_from(revision.checked_sub(self.first)?).ok()?;
        self.addresses.get(at).copied()
    }

    /// Forgets the revisions before one.
    pub(crate) fn forget_before(&mut self, revision: i64) {
        while self.first < revision && self.addresses.pop_front().is_some() {
            self.first += 1;
        }
        if self.addresses.capacity() > 1024 && self.addresses.len() < self.addresses.capacity() / 4 {
            self.addresses.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_consecutive_and_forgotten_from_the_front() {
        let mut revisions = Revisions::default();
        for revision in 5..10 {
            assert!(revisions.push(revision, revision as u64 * 8));
        }
        assert!(revisions.push(7, 1), "a replay");
        assert!(!revisions.push(11, 1), "a gap");
        assert_eq!(revisions.get(7), Some(56));
        revisions.forget_before(8);
        assert_eq!((revisions.get(7), revisions.get(8)), (None, Some(64)));
        revisions.forget_before(100);
        assert_eq!(revisions.get(9), None);
        assert!(revisions.push(100, 5));
        assert_eq!(revisions.get(100), Some(5));
        let listed = Revisions::from_list(&[(1, 1), (3, 3), (4, 4)]);
        assert_eq!((listed.get(1), listed.get(3), listed.get(4)), (None, Some(3), Some(4)));
        let (first, run) = listed.run(0, 1);
        assert_eq!((first, run.collect::<Vec<_>>()), (3, vec![3]));
        let (first, run) = listed.run(4, 9);
        assert_eq!((first, run.collect::<Vec<_>>()), (4, vec![4]));
        assert_eq!(listed.run(5, 9).1.len(), 0);
    }
}
