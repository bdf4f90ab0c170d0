//! The contract. Signatures are binding for `store` and `migrate`; bodies move into their own files.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::*;

/// What can go wrong with a store file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file exists and must not.
    #[error("{} exists already", path.display())]
    Exists {
        #[doc = "The file."]
        path: PathBuf,
    },
    /// The file does not exist.
    #[error("{} does not exist", path.display())]
    Missing {
        #[doc = "The file."]
        path: PathBuf,
    },
    /// Another process holds the file.
    #[error("{} is in use by another process", path.display())]
    Locked {
        #[doc = "The file."]
        path: PathBuf,
    },
    /// Not a store file, or damaged where no torn write can explain it.
    #[error("damaged at offset {offset}: {what}")]
    Damaged {
        #[doc = "Byte offset in the file."]
        offset: u64,
        #[doc = "What was found and expected."]
        what: String,
    },
    /// A newer format.
    #[error("store file format {found} is newer than {supported}, the newest this program reads")]
    Newer {
        #[doc = "Found."]
        found: u32,
        #[doc = "Supported."]
        supported: u32,
    },
    /// The quota or the disk has no room: nothing was written.
    #[error("no space: {needed} bytes are needed")]
    NoSpace {
        #[doc = "Bytes needed."]
        needed: u64,
    },
    /// A read, write or sync failed. After a failed write or sync every later call answers this.
    #[error("{what} failed")]
    Io {
        #[doc = "What was tried."]
        what: &'static str,
        #[doc = "Why it failed."]
        #[source]
        source: std::io::Error,
    },
    /// An import whose records are not in order or otherwise impossible.
    #[error("import: {0}")]
    Import(String),
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most bytes the file may take, 0 for no limit but the disk's.
    pub quota: u64,
    /// The identity of a new file.
    pub identity: Identity,
}

/// An open store: the index in memory, the log on disk, the writer thread behind.
///
/// One owner calls the `&mut` methods; the order of those calls is the order of the log. Reads see every change made so
/// far, durable or not: who must not show what could still be lost reads at [`Store::durable`]'s revision.
pub struct Store {}

impl Store {
    /// Makes a new file (parent folder synced) at revision 1 with no keys.
    pub fn create(path: &Path, options: Options) -> Result<Store, Error> {
        let _ = (path, options);
        todo!()
    }
    /// Opens and recovers: newest valid checkpoint, then the log after it; a torn tail is cut.
    pub fn open(path: &Path, options: Options) -> Result<Store, Error> {
        let _ = (path, options);
        todo!()
    }
    /// Sets what is called (on the writer thread) after each sync, or once with the error that stopped the writer.
    pub fn on_durable(&mut self, hook: Box<dyn FnMut(Result<Durable, &Error>) + Send>) {
        let _ = hook;
        todo!()
    }
    /// The identity in the header.
    pub fn identity(&self) -> Identity {
        todo!()
    }
    /// The head revision, durable or not.
    pub fn revision(&self) -> i64 {
        todo!()
    }
    /// What is synced.
    pub fn durable(&self) -> Durable {
        todo!()
    }
    /// Everything before this revision may be gone; reads at it still work. 0 when nothing was ever compacted.
    pub fn compacted(&self) -> i64 {
        todo!()
    }
    /// The head revision at which the import ended, while no transaction followed it; else None.
    pub fn untouched_import(&self) -> Option<i64> {
        todo!()
    }
    /// The version of `key` at revision `at` (`compacted() <= at <= revision()`).
    pub fn get(&self, key: &[u8], at: i64) -> Option<Version> {
        let _ = (key, at);
        todo!()
    }
    /// Visits the live keys of a range at revision `at`, in key order.
    pub fn scan(&self, range: &KeyRange, at: i64, visit: &mut dyn FnMut(&Bytes, &Version) -> ControlFlow<()>) {
        let _ = (range, at, visit);
        todo!()
    }
    /// The number of live keys of a range at revision `at`.
    pub fn count(&self, range: &KeyRange, at: i64) -> u64 {
        let _ = (range, at);
        todo!()
    }
    /// The value of a version this store gave out. Checked against the checksum it was written with.
    pub fn value(&self, version: &Version) -> Result<Bytes, Error> {
        let _ = version;
        todo!()
    }
    /// The changes of revisions `from..=to` (`from > compacted()`), in order of revision. Stops on Break.
    pub fn changes(&self, from: i64, to: i64, visit: &mut dyn FnMut(Change) -> ControlFlow<()>) -> Result<(), Error> {
        let _ = (from, to, visit);
        todo!()
    }
    /// Begins a transaction whose keys and values take at most `bytes`, `changes` changes at most. Reserves the space:
    /// with [`Error::NoSpace`] nothing has changed. `spare` allows the spare kept for deleting and compacting.
    pub fn begin(&mut self, changes: usize, bytes: usize, spare: bool) -> Result<Transaction<'_>, Error> {
        let _ = (changes, bytes, spare);
        todo!()
    }
    /// Grants or changes a lease (an existing id gets the new TTL and deadline).
    pub fn put_lease(&mut self, lease: Lease) -> Result<Queued, Error> {
        let _ = lease;
        todo!()
    }
    /// A lease by id.
    pub fn lease(&self, id: i64) -> Option<Lease> {
        let _ = id;
        todo!()
    }
    /// All leases, by id.
    pub fn leases(&self) -> Vec<Lease> {
        todo!()
    }
    /// The keys attached to a lease now, sorted.
    pub fn lease_keys(&self, id: i64) -> Vec<Bytes> {
        let _ = id;
        todo!()
    }
    /// Marks everything before `revision` as compacted (`compacted() < revision <= revision()`).
    pub fn compact(&mut self, revision: i64) -> Result<Queued, Error> {
        let _ = revision;
        todo!()
    }
    /// Keeps a small value under a name for the server (alarms and the like); an empty value removes it.
    pub fn put_note(&mut self, name: &str, value: &[u8]) -> Result<Queued, Error> {
        let _ = (name, value);
        todo!()
    }
    /// A note.
    pub fn note(&self, name: &str) -> Option<Bytes> {
        let _ = name;
        todo!()
    }
    /// Does a slice of background work (index compaction, copying forward, checkpoints) for about `budget`; true while
    /// more is waiting. The owner calls it between requests.
    pub fn maintain(&mut self, budget: std::time::Duration) -> Result<bool, Error> {
        let _ = budget;
        todo!()
    }
    /// Sizes now.
    pub fn sizes(&self) -> Sizes {
        todo!()
    }
    /// Counts and times of writes, syncs, checkpoints and compactions since the start.
    pub fn stats(&self) -> Stats {
        todo!()
    }
    /// Waits until all that is queued is synced and ends the writer.
    pub fn close(self) -> Result<(), Error> {
        todo!()
    }
}

/// Counts since the start, for metrics.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Syncs done.
    pub syncs: u64,
    /// Sum of the syncs' durations, in seconds.
    pub sync_seconds: f64,
    /// Syncs by duration: `(upper bound in seconds, count at or below it)`, the bounds etcd uses (0.001 * 2^n, 14 of them).
    pub sync_buckets: Vec<(f64, u64)>,
    /// Bytes written to the log.
    pub bytes_written: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
}

/// One transaction: one revision if it changes anything. Changes are visible to its own reads at once. Dropped without
/// commit only if it changed nothing (a programmer's error otherwise).
pub struct Transaction<'a> {
    store: std::marker::PhantomData<&'a mut Store>,
}

impl Transaction<'_> {
    /// The revision this transaction will have: head + 1.
    pub fn revision(&self) -> i64 {
        todo!()
    }
    /// The store as this transaction sees it, own changes included (read at [`Transaction::revision`]).
    pub fn store(&self) -> &Store {
        let _ = self.store;
        todo!()
    }
    /// Puts a key; gives the new version.
    pub fn put(&mut self, key: Bytes, value: Bytes, lease: i64) -> Version {
        let _ = (key, value, lease);
        todo!()
    }
    /// Deletes a key; false if it is not there (nothing changes).
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let _ = key;
        todo!()
    }
    /// Ends a lease within this transaction (its keys are deleted by the caller). Alone it makes no revision.
    pub fn end_lease(&mut self, id: i64) {
        let _ = id;
        todo!()
    }
    /// Queues the frame. With no change and no ended lease nothing is written and `seq` is the last queued one.
    pub fn commit(self) -> Result<Queued, Error> {
        todo!()
    }
}

/// Writes a new store file from records in key order: the import section of a migration.
///
/// Nothing stands under the final name before [`Import::publish`].
pub struct Import {}

/// What an import holds, for comparison.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Summary {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The head revision.
    pub head: i64,
    /// SHA-256 over every record in key order, as [`Digest`] makes it.
    pub digest: [u8; 32],
}

impl Import {
    /// Begins in a temporary file beside `path` (its name begins with a dot). Refuses a `path` that exists.
    pub fn create(path: &Path, identity: Identity, head: i64) -> Result<Import, Error> {
        let _ = (path, identity, head);
        todo!()
    }
    /// Adds the next record; keys strictly ascend, revisions are in `1..=head`.
    pub fn push(&mut self, record: &Record) -> Result<(), Error> {
        let _ = record;
        todo!()
    }
    /// Adds a lease.
    pub fn lease(&mut self, lease: Lease) -> Result<(), Error> {
        let _ = lease;
        todo!()
    }
    /// Ends the section, syncs, reads the whole file back through recovery's reader and gives what it holds.
    pub fn finish(self) -> Result<Finished, Error> {
        todo!()
    }
}

/// A finished, synced import that has no final name yet. Dropped, it is removed.
pub struct Finished {}

impl Finished {
    /// What the synced file holds, read back from it.
    pub fn summary(&self) -> &Summary {
        todo!()
    }
    /// Gives the file its final name (never replacing one) and syncs the folder.
    pub fn publish(self) -> Result<(), Error> {
        todo!()
    }
}

/// A closed store file, read only: nothing in it is changed, a torn tail is left alone (and not read).
pub struct Frozen {}

impl Frozen {
    /// Opens for reading; refuses a file that a server holds.
    pub fn open(path: &Path) -> Result<Frozen, Error> {
        let _ = path;
        todo!()
    }
    /// The identity.
    pub fn identity(&self) -> Identity {
        todo!()
    }
    /// The head revision.
    pub fn revision(&self) -> i64 {
        todo!()
    }
    /// The compacted revision.
    pub fn compacted(&self) -> i64 {
        todo!()
    }
    /// The head at which the import ended, if the file was made by one (kept for ever in the file).
    pub fn imported(&self) -> Option<i64> {
        todo!()
    }
    /// All leases.
    pub fn leases(&self) -> Vec<Lease> {
        todo!()
    }
    /// Visits every live key at the head, in key order, with its value.
    pub fn records(&self, visit: &mut dyn FnMut(Record) -> ControlFlow<()>) -> Result<(), Error> {
        let _ = visit;
        todo!()
    }
    /// Number, bytes and digest of all live keys.
    pub fn summary(&self) -> Result<Summary, Error> {
        todo!()
    }
}

/// The digest that proves two sides equal: SHA-256 over, for each record in key order, key length (u32 LE), key, value
/// length (u32 LE), value, create, modified, version and lease (i64 LE each).
#[derive(Clone, Default)]
pub struct Digest {}

impl Digest {
    /// Adds the next record.
    pub fn add(&mut self, record: &Record) {
        let _ = record;
        todo!()
    }
    /// The digest.
    pub fn finish(self) -> [u8; 32] {
        todo!()
    }
}
