//! The values that cross this crate's border.

use bytes::Bytes;

/// A revision: the transaction and the change within it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Revision {
    /// The transaction's revision; the store's first write has 2, as in etcd.
    pub main: i64,
    /// The number of the change within its transaction, from 0.
    pub sub: u32,
}

/// Who the store says it is. Carried over from the etcd it was migrated from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// The cluster id in every response header.
    pub cluster_id: u64,
    /// The member id in every response header.
    pub member_id: u64,
    /// The raft term in every response header; at least 1.
    pub raft_term: u64,
}

/// Where a value stands. Opaque: only the store that gave it out can read it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ValueRef {
    /// The address of the value's checksum, which stands before it.
    pub(crate) offset: u64,
    /// The value's length in bytes.
    pub len: u32,
}

/// One version of a key, without its value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Version {
    /// The main revision of the put that created this generation of the key.
    pub create: i64,
    /// The revision of this version.
    pub modified: Revision,
    /// The number of puts since creation, from 1.
    pub version: i64,
    /// The lease the key is attached to, 0 for none.
    pub lease: i64,
    /// Where the value stands.
    pub value: ValueRef,
}

/// A set of keys: `[start, end)`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// What ends the range.
    pub end: RangeEnd,
}

/// What ends a range of keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RangeEnd {
    /// Only the start key itself.
    Single,
    /// All keys below this one.
    Before(Bytes),
    /// All keys from the start on.
    Unbounded,
}

impl KeyRange {
    /// Whether the range holds `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            RangeEnd::Single => key == self.start,
            RangeEnd::Before(end) => key >= &self.start[..] && key < &end[..],
            RangeEnd::Unbounded => key >= &self.start[..],
        }
    }
}

/// A live key with its value, as migration, comparison and snapshots see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The main revision of the creating put.
    pub create: i64,
    /// The main revision of the last put.
    pub modified: i64,
    /// The number of puts since creation.
    pub version: i64,
    /// The lease, 0 for none.
    pub lease: i64,
}

/// One change of the history, as watchers see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The revision of the change.
    pub revision: Revision,
    /// What happened.
    pub what: ChangeKind,
}

/// What a change did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChangeKind {
    /// A put; the version it made.
    Put(Version),
    /// A delete.
    Delete,
}

/// A lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// The id, never 0.
    pub id: i64,
    /// The TTL it was granted, in seconds.
    pub granted_ttl: i64,
    /// When it ends: milliseconds since the Unix epoch, wall clock.
    pub deadline_ms: i64,
}

/// How far the file is on disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Durable {
    /// The last frame's sequence number that is synced.
    pub seq: u64,
    /// The last revision whose frame is synced.
    pub revision: i64,
}

/// What a commit gives back: the frame is queued, not yet durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Queued {
    /// The frame's sequence number: acknowledged once [`Durable::seq`] has reached it.
    pub seq: u64,
    /// The head revision after it.
    pub revision: i64,
}

/// Sizes of the file, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sizes {
    /// Space taken on the disk.
    pub allocated: u64,
    /// Space that live and uncompacted data needs.
    pub in_use: u64,
    /// The quota, 0 for none.
    pub quota: u64,
}
