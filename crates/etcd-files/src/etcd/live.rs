//! The keys that exist at a revision.

use std::collections::BTreeMap;

use super::database::Database;
use super::{KEY, Record, Revision};
use crate::bolt::{Cursor, Source};
use crate::error::{ReadError, shown};

/// The keys that exist at a revision, with everything but their values: memory in proportion to the keys.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub(crate) keys: BTreeMap<Box<[u8]>, LiveKey>,
    revision: i64,
}

/// What is known of such a key without its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LiveKey {
    /// Where its record stands.
    pub revision: Revision,
    /// The main revision of the creating put.
    pub create_revision: i64,
    /// The number of puts since.
    pub version: i64,
    /// The lease, 0 for none.
    pub lease: i64,
}

impl Live {
    /// The keys as of a revision; all records up to it are read once.
    pub(crate) fn at<S: Source>(database: &Database<S>, revision: i64) -> Result<Live, ReadError> {
        let mut keys: BTreeMap<Box<[u8]>, LiveKey> = BTreeMap::new();
        for record in database.records(Revision::default())? {
            let record = record?;
            if record.revision.main > revision {
                break;
            }
            // The mark that a bumped revision leaves has no key.
            if record.key.is_empty() {
                continue;
            }
            if record.deleted {
                keys.remove(&record.key[..]);
                continue;
            }
            let live = LiveKey {
                revision: record.revision,
                create_revision: record.create_revision,
                version: record.version,
                lease: record.lease,
            };
            match keys.get_mut(&record.key[..]) {
                Some(old) => *old = live,
                None => {
                    keys.insert(Box::from(&record.key[..]), live);
                }
            }
        }
        Ok(Live { keys, revision })
    }

    /// As of which revision.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// One key.
    pub fn get(&self, key: &[u8]) -> Option<&LiveKey> {
        self.keys.get(key)
    }

    /// All keys in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &LiveKey)> {
        self.keys.iter().map(|(key, live)| (&key[..], live))
    }

    /// All records with their values, in the order of keys.
    ///
    /// # Errors
    /// When the way to the records is damaged.
    pub fn records<'a, S: Source>(
        &'a self,
        database: &'a Database<S>,
    ) -> Result<impl Iterator<Item = Result<Record, ReadError>> + 'a, ReadError> {
        let mut cursor = database.bucket(KEY)?.map(|bucket| bucket.cursor());
        Ok(self.iter().map(move |(key, live)| fetch(&mut cursor, key, live)))
    }
}

fn fetch<S: Source>(cursor: &mut Option<Cursor<'_, S>>, key: &[u8], live: &LiveKey) -> Result<Record, ReadError> {
    let place = live.revision.encode();
    let found = match cursor {
        Some(cursor) => {
            cursor.seek(&place)?;
            cursor.next().transpose()?
        }
        None => None,
    };
    match found.filter(|entry| entry.key[..] == place) {
        Some(entry) => Record::decode(&entry.key, &entry.value),
        None => Err(ReadError::Content {
            bucket: KEY,
            key: shown(&place),
            what: format!("the record of key {} is gone: the file changes", shown(key)),
        }),
    }
}
