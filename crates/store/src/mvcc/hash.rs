//! `HashKV`: the checksum over the history that etcd members compare with each other.
//!
//! CRC-32C over the word "key" and then, for every record in order of (main, sub), its bucket key (BE64 main, '_',
//! BE64 sub, 't' for a delete) and its encoded `mvccpb.KeyValue` (of a delete only the key). Of the records at or below
//! the compacted revision only those count that are still the latest at the hashed revision. Works in slices, so that a
//! large store answers other requests meanwhile.

use std::ops::ControlFlow;

use bytes::Bytes;
use prost::Message;
use quantykube_etcd_api::KeyValue;
use quantykube_store_file::{ChangeKind, KeyRange, RangeEnd, Revision, Store, Version};

use super::{Error, Mvcc};

/// Keys or revisions handled in one slice.
const SLICE: usize = 2000;

/// A hash in the making.
pub struct Hasher {
    /// The revision to hash up to.
    pub revision: i64,
    /// The compacted revision it was begun at, 0 if there never was a compaction.
    pub compacted: i64,
    /// The same in etcd's count, which tells "never" (-1) from a compaction at 0.
    pub first: i64,
    /// The published revision when it was begun.
    pub current: i64,
    crc: u32,
    /// The next key to collect of those at or below the compacted revision; None when all are.
    next_key: Option<Bytes>,
    /// The collected records, latest first once they are sorted.
    old: Vec<(Bytes, Version)>,
    next_revision: i64,
    /// Whether no key at all lives at the hashed revision: then etcd counts whatever is still there.
    empty: bool,
}

impl Mvcc {
    /// Begins a hash at a revision, 0 for the published one.
    pub fn hash_begin(&self, revision: i64) -> Result<Hasher, Error> {
        let compacted = self.store.compacted();
        if revision > 0 && revision < compacted {
            return Err(Error::Compacted);
        }
        if revision > self.visible {
            return Err(Error::FutureRevision);
        }
        Ok(Hasher {
            revision: if revision <= 0 { self.visible } else { revision },
            compacted,
            first: self.first(),
            current: self.visible,
            crc: crc32c::crc32c(b"key"),
            next_key: (compacted > 0).then(|| Bytes::from_static(&[0])),
            old: Vec::new(),
            next_revision: compacted + 1,
            empty: self
                .store
                .count(&super::all_keys(), if revision <= 0 { self.visible } else { revision })
                == 0,
        })
    }

    /// Hashes a slice; the hash once it is whole. A compaction meanwhile ends it.
    pub fn hash_step(&self, hasher: &mut Hasher) -> Result<Option<u32>, Error> {
        if self.store.compacted() != hasher.compacted {
            return Err(Error::Compacted);
        }
        if hasher.next_key.is_some() {
            hasher.collect(&self.store);
        } else if !hasher.old.is_empty() {
            hasher.hash_old(&self.store)?;
        } else if hasher.next_revision <= hasher.revision {
            hasher.hash_changes(&self.store)?;
        } else {
            return Ok(Some(hasher.crc));
        }
        Ok(None)
    }
}

impl Hasher {
    fn collect(&mut self, store: &Store) {
        let Some(start) = self.next_key.take() else { return };
        let range = KeyRange {
            start,
            end: RangeEnd::Unbounded,
        };
        let (mut seen, mut next) = (0, None);
        store.scan(&range, self.compacted, &mut |key, version| {
            if seen == SLICE {
                next = Some(key.clone());
                return ControlFlow::Break(());
            }
            seen += 1;
            let latest = store
                .get(key, self.revision)
                .is_some_and(|latest| latest.modified == version.modified);
            if latest || self.empty {
                self.old.push((key.clone(), *version));
            }
            ControlFlow::Continue(())
        });
        self.next_key = next;
        if self.next_key.is_none() {
            self.old
                .sort_unstable_by_key(|(_, version)| std::cmp::Reverse(version.modified));
        }
    }

    fn hash_old(&mut self, store: &Store) -> Result<(), Error> {
        for _ in 0..SLICE {
            let Some((key, version)) = self.old.pop() else { break };
            self.put(store, key, &version)?;
        }
        Ok(())
    }

    fn hash_changes(&mut self, store: &Store) -> Result<(), Error> {
        let from = self.next_revision;
        let to = self.revision.min(from + SLICE as i64 - 1);
        let mut failed = None;
        store.changes(from, to, &mut |change| {
            match change.what {
                ChangeKind::Put(version) => {
                    if let Err(error) = self.put(store, change.key, &version) {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                ChangeKind::Delete => {
                    let kv = KeyValue {
                        key: change.key,
                        ..Default::default()
                    };
                    self.record(change.revision, true, &kv);
                }
            }
            ControlFlow::Continue(())
        })?;
        self.next_revision = to + 1;
        failed.map_or(Ok(()), Err)
    }

    fn put(&mut self, store: &Store, key: Bytes, version: &Version) -> Result<(), Error> {
        let kv = KeyValue {
            key,
            create_revision: version.create,
            mod_revision: version.modified.main,
            version: version.version,
            value: store.value(version)?,
            lease: version.lease,
        };
        self.record(version.modified, false, &kv);
        Ok(())
    }

    fn record(&mut self, revision: Revision, tombstone: bool, kv: &KeyValue) {
        let mut key = [0; 18];
        key[..8].copy_from_slice(&revision.main.to_be_bytes());
        key[8] = b'_';
        key[9..17].copy_from_slice(&i64::from(revision.sub).to_be_bytes());
        key[17] = b't';
        let key = if tombstone { &key[..] } else { &key[..17] };
        self.crc = crc32c::crc32c_append(self.crc, key);
        self.crc = crc32c::crc32c_append(self.crc, &kv.encode_to_vec());
    }
}
