//! What etcd keeps in its database: buckets, revisions, records, leases, members, and its hashes over them.
//!
//! ```text
//! key              BE64 main '_' BE64 sub ['t']  ->  mvccpb.KeyValue; 't' marks a delete, whose value has only the key
//! meta             consistent_index, term (BE64), confState (JSON), storageVersion, scheduledCompactRev,
//!                  finishedCompactRev (17 bytes as in `key`)
//! lease            BE64 id -> leasepb.Lease        alarm     AlarmMember -> nothing
//! members          hex id  -> JSON                 cluster   clusterVersion, downgrade
//! members_removed  hex id  -> "removed"            auth      authEnabled, authRevision; authUsers, authRoles
//! ```
//!
//! A snapshot is such a file with the SHA-256 of all its bytes behind it. Its length tells: 32 more than a multiple
//! of 512.

mod database;
mod hash;
mod head;
mod live;
mod proto;
mod record;
mod snapshot;
mod state;
mod sum;
#[cfg(test)]
mod tests;

pub use database::{Database, Records};
pub use hash::{HashKv, Status};
pub use head::Head;
pub use live::{Live, LiveKey};
pub use record::{Record, Revision};
pub use snapshot::{FileWriter, Finished, Measure, Measured, SnapshotWriter};
pub use state::{Alarm, AlarmKind, Auth, Cluster, ConfState, Lease, Member, Meta, Permission, Role, User};
pub use sum::{Hashing, SUM};

/// The names of etcd's buckets, in the order in which they stand in the file.
pub const BUCKETS: [&str; 10] = [
    ALARM,
    AUTH,
    AUTH_ROLES,
    AUTH_USERS,
    CLUSTER,
    KEY,
    LEASE,
    MEMBERS,
    MEMBERS_REMOVED,
    META,
];

pub(crate) const ALARM: &str = "alarm";
pub(crate) const AUTH: &str = "auth";
pub(crate) const AUTH_ROLES: &str = "authRoles";
pub(crate) const AUTH_USERS: &str = "authUsers";
pub(crate) const CLUSTER: &str = "cluster";
pub(crate) const KEY: &str = "key";
pub(crate) const LEASE: &str = "lease";
pub(crate) const MEMBERS: &str = "members";
pub(crate) const MEMBERS_REMOVED: &str = "members_removed";
pub(crate) const META: &str = "meta";

pub(crate) const CONSISTENT_INDEX: &str = "consistent_index";
pub(crate) const TERM: &str = "term";
pub(crate) const CONF_STATE: &str = "confState";
pub(crate) const STORAGE_VERSION: &str = "storageVersion";
pub(crate) const SCHEDULED_COMPACT: &str = "scheduledCompactRev";
pub(crate) const FINISHED_COMPACT: &str = "finishedCompactRev";
pub(crate) const CLUSTER_VERSION: &str = "clusterVersion";
pub(crate) const DOWNGRADE: &str = "downgrade";
pub(crate) const AUTH_ENABLED: &str = "authEnabled";
pub(crate) const AUTH_REVISION: &str = "authRevision";
