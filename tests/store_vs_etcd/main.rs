//! The store beside a real etcd: the same requests to both, and every answer compared, codes and texts included. What
//! two servers can never share (ids, term, sizes, times) is blanked first; all else must be equal.
//!
//! - `cases`: a table of requests, each picked for something that servers other than etcd get wrong.
//! - `random`: a seeded stream of requests with watches running; prints its seed, `QUANTYKUBE_SEED` repeats one.
//! - `watches`, `leases`: what needs time, streams or restarts.
//! - `commands`, `commands_more`: etcdctl and etcdutl against both.
//! - `alerts`: the alert rules of the bundle against the store's metrics and Prometheus' own checker.
//! - `pages`: health, version and metrics over plain HTTP.
//! - `public_bugs`, `public_bugs_load`: bugs that others have published, tried on both.
//! - `edges`: unknown methods, thousands of streams cancelled at once, what systemd is told.
//! - `limits`: more streams, watches, bytes or operations than may be, and versions of TLS that are too old.
//! - `streams`: RangeStream beside etcd 3.7, and lists of many megabytes.
//! - `secure`: certificates, and their renewal.
//! - `kills`: kill -9 under load, on etcd first.

mod alerts;
mod calls;
mod cases;
mod commands;
mod commands_more;
mod edges;
mod kills;
mod leases;
mod limits;
mod pages;
mod public_bugs;
mod public_bugs_load;
mod random;
mod secure;
mod servers;
mod streams;
mod watches;
