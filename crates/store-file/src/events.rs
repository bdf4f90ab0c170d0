//! What changes without a revision: leases, the compacted revision, notes.

use bytes::Bytes;

use crate::codec::{put_bytes, put_signed};
use crate::frame::Kind;
use crate::{Error, Lease, Queued, Store, record};

impl Store {
    /// Grants or changes a lease (an existing id gets the new TTL and deadline).
    pub fn put_lease(&mut self, lease: Lease) -> Result<Queued, Error> {
        let mut payload = Vec::new();
        record::put_lease(&mut payload, &lease);
        self.reserve(1, payload.len(), false)?;
        self.leases.insert(lease.id, lease);
        Ok(self.log(Kind::Lease, &payload))
    }

    /// A lease by id.
    pub fn lease(&self, id: i64) -> Option<Lease> {
        self.leases.get(&id).copied()
    }

    /// All leases, by id.
    pub fn leases(&self) -> Vec<Lease> {
        self.leases.values().copied().collect()
    }

    /// The keys attached to a lease now, sorted.
    pub fn lease_keys(&self, id: i64) -> Vec<Bytes> {
        let keys = self.lease_keys.get(&id);
        keys.into_iter()
            .flatten()
            .map(|key| Bytes::copy_from_slice(key))
            .collect()
    }

    /// How many keys hang on a lease, and their bytes.
    pub fn lease_size(&self, id: i64) -> (usize, usize) {
        let keys = self.lease_keys.get(&id);
        let sizes = keys.into_iter().flatten().map(|key| key.len());
        sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
    }

    /// Moves a key from one lease to another (0: none).
    pub(crate) fn attach(&mut self, key: &[u8], from: i64, to: i64) {
        if from == to {
            return;
        }
        if from != 0
            && let Some(keys) = self.lease_keys.get_mut(&from)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.lease_keys.remove(&from);
            }
        }
        if to != 0 {
            self.lease_keys.entry(to).or_default().insert(key.into());
        }
    }

    /// Marks everything before `revision` as compacted (`compacted() < revision <= revision()`).
    pub fn compact(&mut self, revision: i64) -> Result<Queued, Error> {
        assert!(
            self.compacted < revision && revision <= self.head,
            "compaction at {revision} is not in {}..={}",
            self.compacted + 1,
            self.head
        );
        let mut payload = Vec::new();
        put_signed(&mut payload, revision);
        self.reserve(1, payload.len(), true)?;
        self.compacted = revision;
        self.revisions.forget_before(self.floor());
        self.upkeep.compact_from_start();
        Ok(self.log(Kind::Compact, &payload))
    }

    /// Keeps a small value under a name for the server (alarms and the like); an empty value removes it.
    pub fn put_note(&mut self, name: &str, value: &[u8]) -> Result<Queued, Error> {
        let mut payload = Vec::new();
        put_bytes(&mut payload, name.as_bytes());
        put_bytes(&mut payload, value);
        self.reserve(1, payload.len(), true)?;
        if value.is_empty() {
            self.notes.remove(name);
        } else {
            self.notes.insert(name.to_owned(), Bytes::copy_from_slice(value));
        }
        Ok(self.log(Kind::Note, &payload))
    }

    /// A note.
    pub fn note(&self, name: &str) -> Option<Bytes> {
        self.notes.get(name).cloned()
    }
}
