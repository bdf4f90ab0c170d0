//! Holds: what a long read needs stays, whatever is compacted meanwhile.

use crate::Store;

impl Store {
    /// Keeps everything readable from the compacted revision on, also when it is compacted meanwhile; gives that
    /// revision, for reads and for [`Store::release`]. Until then the space of what is held is not given back. A hold
    /// is not in the file: a restart ends it.
    pub fn hold(&mut self) -> i64 {
        *self.holds.entry(self.compacted).or_default() += 1;
        self.compacted
    }

    /// Ends a hold.
    ///
    /// # Panics
    /// If no such hold stands.
    pub fn release(&mut self, revision: i64) {
        let before = self.floor();
        let count = self
            .holds
            .get_mut(&revision)
            .expect("a hold is released at most as often as it was taken");
        *count -= 1;
        if *count == 0 {
            self.holds.remove(&revision);
        }
        let floor = self.floor();
        if floor > before {
            self.revisions.forget_before(floor);
            self.upkeep.compact_from_start();
        }
    }

    /// Whether the transaction of a revision is in the log, with its deletes.
    pub fn in_log(&self, revision: i64) -> bool {
        self.revisions.get(revision).is_some()
    }

    /// Everything before this revision may go: the compacted one, or the oldest that is held.
    pub(crate) fn floor(&self) -> i64 {
        self.holds.first_key_value().map_or(self.compacted, |(held, _)| *held)
    }
}
