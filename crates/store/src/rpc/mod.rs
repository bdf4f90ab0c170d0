//! The services, one file each. Every call: check and apply in `mvcc`, map the error, wait until it is synced, fill the
//! header. No logic of their own.

pub mod auth;
pub mod cluster;
mod error;
pub mod health;
pub mod kv;
pub mod lease;
pub mod list;
pub mod maintenance;
mod snapshot;
pub mod watch;

pub use error::status;
