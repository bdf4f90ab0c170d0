//! etcd into a store file and back, with the proof that both hold the same.
//!
//! - [`copy`] reads every key of an etcd at one revision into a new store file. etcd is never changed.
//! - [`copy_back`] makes an etcd hold what a closed store file holds; it can be stopped and started again at any point.
//! - [`status`], [`store_revision`] and [`foreign_keys`] answer what a move must know before it starts.
//!
//! This crate knows etcd as its clients see it and the store as a file. It never knows a node, a manifest or a journal.

mod back;
mod connect;
mod copy;
mod error;
mod file;
mod leases;
mod movement;
mod pages;
mod status;
mod version;

pub use back::{BackOutcome, Filled, copy_back, raise_revision};
pub use connect::Source;
pub use copy::{Options, Outcome, copy, copy_with};
pub use error::Error;
pub use file::{FileState, file_state, file_state_of, imported_at};
pub use movement::Movement;
pub use pages::PAGE_BYTES_MAX;
pub use status::{
    EtcdStatus, Foreign, Member, count_below, foreign_keys, has_users, status, store_revision, written_since,
};
pub use version::Version;

/// The one key that [`copy_back`] writes to lift etcd's revision past the store's. Removed at its end; a leftover of an
/// interrupted run is ours and no foreign key.
pub const FILLER_KEY: &str = "quantykube/filler";

/// The one key of kube-apiserver outside its prefix.
pub const COMPACT_KEY: &str = "compact_rev_key";

/// Reads an etcd as [`copy`] does and throws every page away; gives the number of keys and of their bytes. What
/// benchmarks measure a copy against.
#[doc(hidden)]
pub async fn read_and_discard(source: &Source) -> Result<(u64, u64), Error> {
    let connection = connect::Connection::open_known(source).await?;
    let mut pager = pages::Pager::at_head(&connection);
    let (mut keys, mut bytes) = (0, 0);
    while let Some(page) = pager.next().await? {
        keys += page.records.len() as u64;
        bytes += page.bytes;
    }
    Ok((keys, bytes))
}
