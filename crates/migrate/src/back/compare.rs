//! What one key needs. Pure.

use std::collections::HashSet;

use bytes::Bytes;
use quantykube_store_file::Record;

/// What tells a key of the store's own time from one that is as it was at the move.
#[derive(Clone, Debug)]
pub(super) struct Since<'a> {
    /// Up to this revision the store's history is etcd's own.
    pub imported: i64,
    /// The store's last revision. What etcd wrote later, this copy wrote.
    pub revision: i64,
    /// Leases that have ended: their keys are gone.
    pub ended: &'a HashSet<i64>,
}

/// A change to make in etcd.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Change {
    Put { key: Bytes, value: Bytes, lease: i64 },
    Delete { key: Bytes },
}

impl Change {
    /// The key that is changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Change::Put { key, .. } | Change::Delete { key } => key,
        }
    }
}

/// What a key came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Both sides hold the same.
    Same,
    /// Neither side holds it: its lease has ended.
    Ended,
    /// etcd must be changed.
    Change(Change),
}

/// Compares one key. At least one side has it, and both have the same key.
pub(super) fn verdict(store: Option<&Record>, etcd: Option<&Record>, since: &Since<'_>) -> Verdict {
    let live = store.filter(|record| record.lease == 0 || !since.ended.contains(&record.lease));
    match (live, etcd) {
        (Some(store), Some(etcd)) if holds(store, etcd, since) => Verdict::Same,
        (Some(store), _) => Verdict::Change(Change::Put {
            key: store.key.clone(),
            value: store.value.clone(),
            lease: store.lease,
        }),
        (None, Some(etcd)) => Verdict::Change(Change::Delete { key: etcd.key.clone() }),
        (None, None) => Verdict::Ended,
    }
}

/// Whether etcd's key is right as it stands. A client that has seen the key on the store must see no lower revision
/// for it, and an update with a number of the store's must not succeed on a key that was written there.
fn holds(store: &Record, etcd: &Record, since: &Since<'_>) -> bool {
    let untouched = store.modified <= since.imported
        && store.modified == etcd.modified
        && store.create == etcd.create
        && store.version == etcd.version;
    let copied = etcd.modified > since.revision;
    store.lease == etcd.lease && (untouched || copied) && store.value == etcd.value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(modified: i64, value: &'static str, lease: i64) -> Record {
        Record {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(value.as_bytes()),
            create: 5,
            modified,
            version: 1,
            lease,
        }
    }

    fn judged(store: Option<Record>, etcd: Option<Record>) -> Verdict {
        let ended = HashSet::from([9]);
        let since = Since {
            imported: 100,
            revision: 200,
            ended: &ended,
        };
        verdict(store.as_ref(), etcd.as_ref(), &since)
    }

    fn put(value: &'static str, lease: i64) -> Verdict {
        Verdict::Change(Change::Put {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(value.as_bytes()),
            lease,
        })
    }

    fn delete() -> Verdict {
        Verdict::Change(Change::Delete {
            key: Bytes::from_static(b"k"),
        })
    }

    #[test]
    fn every_case_of_one_key() {
        let cases = [
            (
                "as at the move",
                Some(record(50, "a", 0)),
                Some(record(50, "a", 0)),
                Verdict::Same,
            ),
            (
                "written on the store",
                Some(record(150, "b", 0)),
                Some(record(50, "a", 0)),
                put("b", 0),
            ),
            (
                "written on the store with its old value",
                Some(record(150, "a", 0)),
                Some(record(50, "a", 0)),
                put("a", 0),
            ),
            (
                "copied before",
                Some(record(150, "b", 0)),
                Some(record(201, "b", 0)),
                Verdict::Same,
            ),
            (
                "copied before, then written again",
                Some(record(150, "c", 0)),
                Some(record(201, "b", 0)),
                put("c", 0),
            ),
            (
                "copied before the store went on",
                Some(record(150, "b", 0)),
                Some(record(199, "b", 0)),
                put("b", 0),
            ),
            ("new on the store", Some(record(150, "b", 0)), None, put("b", 0)),
            ("gone from etcd", Some(record(50, "a", 0)), None, put("a", 0)),
            ("deleted on the store", None, Some(record(50, "a", 0)), delete()),
            (
                "changed in etcd alone",
                Some(record(50, "a", 0)),
                Some(record(120, "x", 0)),
                put("a", 0),
            ),
            (
                "changed in etcd alone, later",
                Some(record(50, "a", 0)),
                Some(record(300, "x", 0)),
                put("a", 0),
            ),
            (
                "put back",
                Some(record(50, "a", 0)),
                Some(record(300, "a", 0)),
                Verdict::Same,
            ),
            (
                "another lease",
                Some(record(150, "a", 7)),
                Some(record(201, "a", 8)),
                put("a", 7),
            ),
            (
                "a lease that stands",
                Some(record(50, "a", 7)),
                Some(record(50, "a", 7)),
                Verdict::Same,
            ),
            (
                "ended, still in etcd",
                Some(record(50, "a", 9)),
                Some(record(50, "a", 9)),
                delete(),
            ),
            ("ended on both", Some(record(50, "a", 9)), None, Verdict::Ended),
        ];
        for (name, store, etcd, expected) in cases {
            assert_eq!(judged(store, etcd), expected, "{name}");
        }
    }
}
