//! The messages, one file per service. Names and numbers are etcd's; byte fields are [`bytes::Bytes`], so that a value
//! is not copied between the connection and the store.

mod auth;
mod cluster;
mod health;
mod kv;
mod lease;
mod maintenance;
mod watch;

pub use auth::*;
pub use cluster::*;
pub use health::*;
pub use kv::*;
pub use lease::*;
pub use maintenance::*;
pub use watch::*;

#[cfg(test)]
mod tests;
