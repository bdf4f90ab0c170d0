//! The store's one file: format, recovery, group commit, index, checkpoints, compaction.
//!
//! This crate knows keys, revisions and leases as data, and a disk. It never knows tokio, gRPC or etcd's requests: what
//! a request means is decided above it (`mvcc` in the store).

mod changes;
mod checkpoint;
mod codec;
mod digest;
mod disk;
mod error;
mod events;
mod frame;
mod frozen;
mod hold;
mod import;
mod index;
mod layout;
mod open;
mod peek;
mod read;
mod recent;
mod record;
mod recovery;
mod revisions;
mod space;
mod stats;
mod store;
mod transaction;
mod tuning;
mod types;
mod upkeep;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub use digest::Digest;
pub use disk::{CrashKind, Disk, FileDisk, Seeded, SimDisk, short_slices};
pub use error::Error;
pub use frozen::Frozen;
pub use import::{Finished, Import, Summary};
pub use peek::imported_at;
pub use stats::Stats;
pub use store::{Options, Store};
pub use transaction::Transaction;
pub use tuning::Tuning;
pub use types::*;
pub use verify::{Checked, Problem, check, check_on};
pub use writer::DurableHook;
