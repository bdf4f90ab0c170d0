//! Snapshots between the store and real etcds, both ways, and what comes in between.
//!
//! The peers are etcd 3.6 with its etcdctl and etcdutl, and Debian's 3.4. Random parts print their seed;
//! `QUANTYKUBE_SEED` repeats them.

mod from_etcd;
mod refusals;
mod store;
mod stream;
mod to_etcd;
mod under_way;
#[path = "../etcd_files/world.rs"]
#[allow(dead_code, reason = "another test crate uses the rest")]
mod world;
