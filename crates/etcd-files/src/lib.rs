//! etcd's own files: its database read and written without etcd.
//!
//! [`bolt`] knows bbolt's pages: an untrusting reader, a full check, and a writer that makes a whole file in one
//! sequential pass. [`etcd`] knows what etcd keeps in it: the buckets, revisions, records, leases, members, hashes, and
//! snapshots as `etcdctl snapshot save` stores them.
//!
//! The bytes may be anybody's: reading never panics, never recurses, and takes no more memory than one leaf may
//! have ([`bolt::RUN_MAX`]) and a small branch per level of a tree. Whoever reads a file that he did not write should call
//! [`bolt::Db::check`] first: it also bounds the time that all later reading can take.
//!
//! This crate never locks, renames or syncs a file, and never talks to a server: its callers do.

#![forbid(unsafe_code)]

pub mod bolt;
mod error;
pub mod etcd;

pub use error::{ReadError, WriteError};
