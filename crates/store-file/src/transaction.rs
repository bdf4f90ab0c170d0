//! One transaction: its changes go into the index at once and into one chain of frames.

use bytes::Bytes;

use crate::frame::Kind;
use crate::index::Ver;
use crate::record::{PREFIX_OVERHEAD, RECORD_OVERHEAD, put_delete, put_end_lease, put_prefix, put_put};
use crate::space::weight;
use crate::{Error, Queued, Revision, Store, Version};

/// One transaction: one revision if it changes anything. Changes are visible to its own reads at once. Dropped without
/// commit only if it changed nothing (a programmer's error otherwise).
pub struct Transaction<'a> {
    store: &'a mut Store,
    changes: u32,
    begun: bool,
    done: bool,
}

impl Store {
    /// Begins a transaction whose keys and values take at most `bytes`, `changes` changes at most (an ended lease is
    /// one). Reserves the space: with [`Error::NoSpace`] nothing has changed. `spare` allows the spare kept for deleting
    /// and compacting.
    pub fn begin(&mut self, changes: usize, bytes: usize, spare: bool) -> Result<Transaction<'_>, Error> {
        self.reserve(changes, bytes, spare)?;
        self.open.active = true;
        Ok(Transaction {
            store: self,
            changes: 0,
            begun: false,
            done: false,
        })
    }

    /// The most bytes one key with its value may take: a record never crosses a segment.
    pub fn max_change(&self) -> usize {
        self.space.capacity() - RECORD_OVERHEAD - PREFIX_OVERHEAD - 64
    }
}

impl Transaction<'_> {
    /// The revision this transaction will have: head + 1.
    pub fn revision(&self) -> i64 {
        self.store.head + 1
    }

    /// The store as this transaction sees it, own changes included (read at [`Transaction::revision`]).
    pub fn store(&self) -> &Store {
        self.store
    }

    /// Puts a key; gives the new version. Key and value take at most [`Store::max_change`] bytes (a programmer's error
    /// otherwise).
    pub fn put(&mut self, key: Bytes, value: Bytes, lease: i64) -> Version {
        assert!(
            key.len() + value.len() <= self.store.max_change(),
            "a put of {} bytes is larger than a segment takes",
            key.len() + value.len()
        );
        let main = self.revision();
        self.room(key.len() + value.len());
        let store = &mut *self.store;
        let mut ver = Ver {
            create: main,
            main,
            version: 1,
            lease,
            address: 0,
            sub: self.changes,
            len: value.len() as u32,
        };
        let (open, mut lease_before) = (&mut store.open, 0);
        store.index.append_with(&key, |before| {
            if let Some(live) = before.filter(|before| !before.is_tombstone()) {
                (ver.create, ver.version, lease_before) = (live.create, live.version + 1, live.lease);
            }
            let at = put_put(&mut open.bytes, &key, &value, ver.create, ver.version, lease);
            ver.address = open.address + at as u64;
            ver
        });
        store.space.weigh(ver.address, weight(key.len(), ver.len), true);
        store.attach(&key, lease_before, lease);
        self.changes += 1;
        ver.public()
    }

    /// Deletes a key; false if it is not there (nothing changes).
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let Some(live) = self.delete_live(key) else {
            return false;
        };
        self.store.attach(key, live.lease, 0);
        true
    }

    /// Deletes a key that is there, but for the lease it hangs on; gives the version that ended.
    fn delete_live(&mut self, key: &[u8]) -> Option<Ver> {
        let revision = Revision {
            main: self.revision(),
            sub: self.changes,
        };
        let live = self.store.index.end_live(key, revision)?;
        self.room(key.len());
        put_delete(&mut self.store.open.bytes, key);
        self.changes += 1;
        Some(live)
    }

    /// Ends a lease within this transaction (its keys are deleted by the caller). Alone it makes no revision.
    pub fn end_lease(&mut self, id: i64) {
        if self.store.leases.remove(&id).is_none() {
            return;
        }
        self.room(0);
        put_end_lease(&mut self.store.open.bytes, id);
    }

    /// Ends a lease and deletes its keys, in order; `deleted` is told each. Cheaper for many keys than to delete one
    /// after the other: all of them let go of the lease at once.
    pub fn end_lease_and_keys(&mut self, id: i64, deleted: &mut dyn FnMut(Bytes, Revision)) {
        for key in self.store.lease_keys.remove(&id).unwrap_or_default() {
            let gone = self.delete_live(&key);
            debug_assert!(gone.is_some(), "a key that hangs on a lease is there");
            if gone.is_some() {
                let sub = self.changes - 1;
                let main = self.revision();
                deleted(Bytes::from(key), Revision { main, sub });
            }
        }
        self.end_lease(id);
    }

    /// Queues the frame. With no change and no ended lease nothing is written and `seq` is the last queued one.
    pub fn commit(mut self) -> Result<Queued, Error> {
        self.done = true;
        self.store.open.active = false;
        if !self.begun {
            return Ok(self.store.queued());
        }
        let revision = self.made();
        let address = self.store.chain_start();
        self.store.end_frame(Kind::Transaction, true, revision);
        if revision > 0 {
            self.store.head = revision;
            self.store.revisions.push(revision, address);
        }
        self.store.writer.shared().check()?;
        Ok(self.store.queued())
    }

    /// Makes room for a record in the open frame, beginning the next one where it is full.
    fn room(&mut self, bytes: usize) {
        let need = bytes + RECORD_OVERHEAD;
        if self.begun && self.store.fits(need) {
            return;
        }
        if self.begun {
            let revision = self.made();
            self.store.end_frame(Kind::Transaction, false, revision);
        }
        self.begun = true;
        self.store.begin_frame(need + PREFIX_OVERHEAD);
        let revision = self.revision();
        put_prefix(&mut self.store.open.bytes, revision, self.changes);
    }

    /// The revision made so far; 0 while nothing but leases changed.
    fn made(&self) -> i64 {
        if self.changes > 0 { self.revision() } else { 0 }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.store.open.active = false;
        assert!(
            self.done || !self.begun || std::thread::panicking(),
            "a transaction with changes was dropped without commit"
        );
    }
}
