//! The store's one file: format, recovery, group commit, index, checkpoints, compaction.
//!
//! This crate knows keys, revisions and leases as data, and a disk. It never knows tokio, gRPC or etcd's requests: what
//! a request means is decided above it (`mvcc` in the store).

mod api;
mod types;

pub use api::*;
pub use types::*;
