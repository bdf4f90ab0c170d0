//! An etcd database, open for reading.

use std::collections::BTreeMap;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::state::{Alarm, Auth, Cluster, ConfState, Lease, Member, Meta, Role, User};
use super::{
    ALARM, AUTH, AUTH_ENABLED, AUTH_REVISION, AUTH_ROLES, AUTH_USERS, CLUSTER, CLUSTER_VERSION, CONF_STATE,
    CONSISTENT_INDEX, DOWNGRADE, FINISHED_COMPACT, KEY, LEASE, Live, MEMBERS, MEMBERS_REMOVED, META, Record, Revision,
    SCHEDULED_COMPACT, STORAGE_VERSION, TERM, sum,
};
use crate::bolt::{Bucket, Cursor, Db, Entry, Report, Source};
use crate::error::{ReadError, shown};

/// An etcd database: a member's `snap/db`, or a snapshot.
///
/// Nothing is cached: every question reads the file. Of a member's own file the caller must know that no etcd has it
/// open (`flock` succeeds), and that records may stand in the write-ahead log only.
#[derive(Debug)]
pub struct Database<S> {
    db: Db<S>,
    has_sum: bool,
}

impl<S: Source> Database<S> {
    /// Opens it; a snapshot's sum is told by the length.
    ///
    /// # Errors
    /// It is not a bbolt file, or cut off.
    pub fn open(source: S) -> Result<Database<S>, ReadError> {
        let size = source.size().map_err(|source| ReadError::Io {
            offset: 0,
            length: 0,
            source,
        })?;
        let has_sum = sum::has_sum(size);
        let size = if has_sum { size - sum::SUM as u64 } else { size };
        let db = Db::open_part(source, size)?;
        Ok(Database { db, has_sum })
    }

    /// The file's pages.
    pub fn db(&self) -> &Db<S> {
        &self.db
    }

    /// Whether it ends with a sum, as snapshots do and copied files do not.
    pub fn has_sum(&self) -> bool {
        self.has_sum
    }

    /// Compares a snapshot's sum with its bytes. `false` if there is none.
    ///
    /// # Errors
    /// They differ, or reading failed.
    pub fn verify_sum(&self) -> Result<bool, ReadError> {
        if self.has_sum {
            sum::verify(self.db.source(), self.db.size())?;
        }
        Ok(self.has_sum)
    }

    /// Checks all pages.
    ///
    /// # Errors
    /// When reading fails.
    pub fn check(&self) -> Result<Report, ReadError> {
        self.db.check()
    }

    pub(crate) fn bucket(&self, name: &str) -> Result<Option<Bucket<'_, S>>, ReadError> {
        self.db.bucket(name.as_bytes())
    }

    /// All entries of a small bucket as they stand.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn raw(&self, bucket: &'static str) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ReadError> {
        self.all(bucket, |entry| Ok((entry.key.to_vec(), entry.value.to_vec())))
            .map(|entries| entries.into_iter().collect())
    }

    fn all<T>(&self, bucket: &'static str, decode: impl Fn(&Entry) -> Result<T, String>) -> Result<Vec<T>, ReadError> {
        let Some(found) = self.bucket(bucket)? else {
            return Ok(Vec::new());
        };
        found
            .cursor()
            .map(|entry| {
                let entry = entry?;
                decode(&entry).map_err(|what| content(bucket, &entry.key, what))
            })
            .collect()
    }

    fn one<T>(
        &self,
        bucket: &'static str,
        key: &str,
        decode: impl Fn(&Bytes) -> Result<T, String>,
    ) -> Result<Option<T>, ReadError> {
        let Some(found) = self.bucket(bucket)? else {
            return Ok(None);
        };
        let Some(value) = found.get(key.as_bytes())? else {
            return Ok(None);
        };
        decode(&value)
            .map(Some)
            .map_err(|what| content(bucket, key.as_bytes(), what))
    }

    /// The bucket `meta`.
    ///
    /// # Errors
    /// When it is damaged or holds what etcd would not write.
    pub fn meta(&self) -> Result<Meta, ReadError> {
        Ok(Meta {
            consistent_index: self.one(META, CONSISTENT_INDEX, be64)?,
            term: self.one(META, TERM, be64)?,
            conf_state: self.one(META, CONF_STATE, json::<ConfState>)?,
            storage_version: self.one(META, STORAGE_VERSION, text)?,
            scheduled_compact: self.one(META, SCHEDULED_COMPACT, |bytes| Revision::decode(bytes))?,
            finished_compact: self.one(META, FINISHED_COMPACT, |bytes| Revision::decode(bytes))?,
        })
    }

    /// The revision at which an etcd starts from this file: the last record's, or a later compaction's; 1 for a fresh
    /// one.
    ///
    /// # Errors
    /// When the way to it is damaged.
    pub fn revision(&self) -> Result<i64, ReadError> {
        let last = match self.bucket(KEY)? {
            Some(bucket) => bucket.last()?,
            None => None,
        };
        let last = match last {
            Some(entry) => Record::decode(&entry.key, &entry.value)?.revision.main,
            None => 0,
        };
        Ok(last.max(self.compacted()?).max(1))
    }

    /// The revision of the last compaction, also of one that was begun and not done: etcd finishes it when it starts.
    /// `None` if there was none. What is older cannot be read.
    ///
    /// # Errors
    /// When the way to it is damaged.
    pub fn compact_revision(&self) -> Result<Option<i64>, ReadError> {
        Ok(Some(self.compacted()?).filter(|revision| *revision > 0))
    }

    fn compacted(&self) -> Result<i64, ReadError> {
        let meta = self.meta()?;
        let main = |revision: Option<Revision>| revision.map_or(0, |revision| revision.main);
        Ok(main(meta.scheduled_compact).max(main(meta.finished_compact)))
    }

    /// All leases by id, read as a number without sign.
    ///
    /// # Errors
    /// When one is damaged.
    pub fn leases(&self) -> Result<Vec<Lease>, ReadError> {
        self.all(LEASE, |entry| Lease::decode(&entry.key, &entry.value))
    }

    /// The alarms that are raised.
    ///
    /// # Errors
    /// When one is damaged.
    pub fn alarms(&self) -> Result<Vec<Alarm>, ReadError> {
        self.all(ALARM, |entry| Alarm::decode(&entry.key))
    }

    /// What the members agreed on.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn cluster(&self) -> Result<Cluster, ReadError> {
        Ok(Cluster {
            version: self.one(CLUSTER, CLUSTER_VERSION, text)?,
            downgrade: self.one(CLUSTER, DOWNGRADE, text)?,
        })
    }

    /// The members.
    ///
    /// # Errors
    /// When one is damaged.
    pub fn members(&self) -> Result<Vec<Member>, ReadError> {
        self.all(MEMBERS, |entry| json(&entry.value))
    }

    /// The ids of members that were removed, as text in hex.
    ///
    /// # Errors
    /// When the bucket is damaged.
    pub fn removed_members(&self) -> Result<Vec<String>, ReadError> {
        self.all(MEMBERS_REMOVED, |entry| text(&entry.key))
    }

    /// Users and roles.
    ///
    /// # Errors
    /// When one is damaged.
    pub fn auth(&self) -> Result<Auth, ReadError> {
        Ok(Auth {
            enabled: self
                .one(AUTH, AUTH_ENABLED, |value| Ok(value[..] == [1]))?
                .unwrap_or(false),
            revision: self.one(AUTH, AUTH_REVISION, be64)?.unwrap_or(0),
            users: self.all(AUTH_USERS, |entry| User::decode(&entry.value))?,
            roles: self.all(AUTH_ROLES, |entry| Role::decode(&entry.value))?,
        })
    }

    /// The history in the order of revisions, from `from` on: records older than the compaction are those of keys that
    /// have no newer one up to it.
    ///
    /// # Errors
    /// When the way to the first is damaged.
    pub fn records(&self, from: Revision) -> Result<Records<'_, S>, ReadError> {
        let cursor = match self.bucket(KEY)? {
            Some(bucket) => {
                let mut cursor = bucket.cursor();
                cursor.seek(&from.encode())?;
                Some(cursor)
            }
            None => None,
        };
        Ok(Records { cursor })
    }

    /// The keys at the head, or at an older revision that is not compacted away.
    ///
    /// # Errors
    /// When a record is damaged, or the revision is not in the file.
    pub fn live(&self, at: Option<i64>) -> Result<Live, ReadError> {
        let at = self.readable(at)?;
        Live::at(self, at)
    }

    /// The head, or `at` if it can be read.
    pub(crate) fn readable(&self, at: Option<i64>) -> Result<i64, ReadError> {
        let (compacted, head) = (self.compacted()?, self.revision()?);
        match at {
            None => Ok(head),
            Some(at) if (compacted..=head).contains(&at) => Ok(at),
            Some(asked) => Err(ReadError::Revision { asked, compacted, head }),
        }
    }

    /// Live keys that name a lease which is not in the file. etcd never expires such a key and panics when a put keeps
    /// its lease: who takes the file over must drop those leases.
    ///
    /// # Errors
    /// When a lease is damaged.
    pub fn dangling_leases(&self, live: &Live) -> Result<Vec<(Vec<u8>, i64)>, ReadError> {
        let known: std::collections::HashSet<i64> = self.leases()?.iter().map(|lease| lease.id).collect();
        Ok(live
            .iter()
            .filter(|(_, found)| found.lease != 0 && !known.contains(&found.lease))
            .map(|(key, found)| (key.to_vec(), found.lease))
            .collect())
    }
}

/// Yields records, and ends after the first error.
#[derive(Debug)]
pub struct Records<'db, S> {
    cursor: Option<Cursor<'db, S>>,
}

impl<S: Source> Iterator for Records<'_, S> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self
            .cursor
            .as_mut()?
            .next()?
            .and_then(|entry| Record::decode(&entry.key, &entry.value));
        if next.is_err() {
            self.cursor = None;
        }
        Some(next)
    }
}

impl<S: Source> FusedIterator for Records<'_, S> {}

fn content(bucket: &'static str, key: &[u8], what: String) -> ReadError {
    ReadError::Content {
        bucket,
        key: shown(key),
        what,
    }
}

fn be64(bytes: &Bytes) -> Result<u64, String> {
    let bytes: [u8; 8] = bytes[..]
        .try_into()
        .map_err(|_| format!("{} bytes instead of 8", bytes.len()))?;
    Ok(u64::from_be_bytes(bytes))
}

fn text(bytes: &Bytes) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "not text".to_owned())
}

fn json<T: serde::de::DeserializeOwned>(bytes: &Bytes) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("not the JSON that etcd writes: {error}"))
}
