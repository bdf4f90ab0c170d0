//! etcd's own hashes over its data: equal hashes prove equal data.

use std::collections::{HashMap, HashSet};

use super::database::Database;
use super::record::Record;
use super::{KEY, META, Revision, STORAGE_VERSION};
use crate::bolt::Source;
use crate::error::ReadError;

/// What the `HashKV` call answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HashKv {
    /// CRC32C over the records that count.
    pub hash: u32,
    /// Up to which revision.
    pub revision: i64,
    /// The compaction revision that was taken; -1 for none, as etcd has it.
    pub compact_revision: i64,
}

/// What `etcdutl snapshot status` says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// CRC32C over all buckets: names, keys, values.
    pub hash: u32,
    /// The last record's revision; unlike [`Database::revision`], no compaction counts.
    pub revision: i64,
    /// Live keys; the mark of a bumped revision counts as one.
    pub keys: u64,
    /// The bytes of all pages.
    pub size: u64,
    /// The version of the layout, from 3.6 on.
    pub version: Option<String>,
}

impl<S: Source> Database<S> {
    /// The hash at a revision, or at the head.
    ///
    /// Records up to the compaction count only if they are what their key has at the revision asked for. Memory in
    /// proportion to the keys that have such records.
    ///
    /// # Errors
    /// When a record is damaged, or the revision is not in the file.
    pub fn hash_kv(&self, at: Option<i64>) -> Result<HashKv, ReadError> {
        let revision = self.readable(at)?;
        let compacted = self.compact_revision()?.unwrap_or(-1);
        let kept = if compacted > 0 {
            self.kept(compacted, revision)?
        } else {
            Kept::default()
        };
        let mut hash = crc32c::crc32c(KEY.as_bytes());
        if let Some(bucket) = self.bucket(KEY)? {
            for entry in bucket.cursor() {
                let entry = entry?;
                let record = Record::decode(&entry.key, &entry.value)?;
                let main = record.revision.main;
                if main > revision {
                    break;
                }
                let gone = main <= compacted && kept.any && !kept.old.contains(&record.revision);
                if gone || main == compacted && record.deleted {
                    continue;
                }
                hash = crc32c::crc32c_append(hash, &entry.key);
                hash = crc32c::crc32c_append(hash, &entry.value);
            }
        }
        Ok(HashKv {
            hash,
            revision,
            compact_revision: compacted,
        })
    }

    /// Which records up to the compaction are what their key has at `revision`.
    fn kept(&self, compacted: i64, revision: i64) -> Result<Kept, ReadError> {
        // Keys whose newest record is an old one; and whether any key exists at all: without one etcd keeps everything.
        let mut newest: HashMap<Box<[u8]>, Revision> = HashMap::new();
        let mut young: HashSet<Box<[u8]>> = HashSet::new();
        for record in self.records(Revision::default())? {
            let record = record?;
            let main = record.revision.main;
            if main > revision {
                break;
            }
            if main <= compacted && !record.deleted {
                newest.insert(Box::from(&record.key[..]), record.revision);
                continue;
            }
            newest.remove(&record.key[..]);
            if record.deleted {
                young.remove(&record.key[..]);
            } else {
                young.insert(Box::from(&record.key[..]));
            }
        }
        Ok(Kept {
            any: !newest.is_empty() || !young.is_empty(),
            old: newest.into_values().collect(),
        })
    }

    /// What `etcdutl snapshot status` says, without its check of the pages.
    ///
    /// # Errors
    /// When something is damaged.
    pub fn status(&self) -> Result<Status, ReadError> {
        let root = self.db().root();
        let (mut hash, mut revision) = (0, 0);
        let mut live: HashSet<Box<[u8]>> = HashSet::new();
        for entry in root.cursor() {
            let entry = entry?;
            hash = crc32c::crc32c_append(hash, &entry.key);
            let is_key = entry.key == KEY.as_bytes();
            for entry in root.child(&entry)?.cursor() {
                let entry = entry?;
                hash = crc32c::crc32c_append(hash, &entry.key);
                hash = crc32c::crc32c_append(hash, &entry.value);
                if !is_key {
                    continue;
                }
                let record = Record::decode(&entry.key, &entry.value)?;
                revision = record.revision.main;
                if record.deleted {
                    live.remove(&record.key[..]);
                } else if !live.contains(&record.key[..]) {
                    live.insert(Box::from(&record.key[..]));
                }
            }
        }
        let version = self
            .raw(META)?
            .get(STORAGE_VERSION.as_bytes())
            .map(|version| String::from_utf8_lossy(version).into_owned());
        Ok(Status {
            hash,
            revision,
            keys: live.len() as u64,
            size: self.db().meta().pages * u64::from(self.db().meta().page_size),
            version,
        })
    }
}

#[derive(Default)]
struct Kept {
    any: bool,
    old: HashSet<Revision>,
}
