//! What is checked on a target after the move, one file per question.

/// Every key, revision and lease, before anything writes.
pub mod raw;

/// Every object as the API shows it, one by one and in lists.
pub mod objects;

/// Watches through the API from old and current resourceVersions.
pub mod watches;

/// Updates and deletions with resourceVersions noted before the move.
pub mod updates;

/// The end of the events' leases.
pub mod leases;

/// Every event since the move, through an etcd client.
pub mod history;
