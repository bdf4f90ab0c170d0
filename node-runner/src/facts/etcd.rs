//! The etcd that an API server uses, as it answers.

use quantykube_migrate::{EtcdStatus, Foreign, Source};

use crate::facts::certificates::Files;
use crate::facts::{Known, Root, chain};

/// An etcd as it answers.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// What it says of itself.
    pub status: EtcdStatus,
    /// Keys that are not the API server's.
    pub foreign: Foreign,
}

/// How many keys of others are named.
const FOREIGN_NAMED: usize = 5;

/// Asks an etcd. `prefix` is the API server's.
pub fn ask(root: &Root, url: &str, files: &Files, prefix: &str) -> Known<Etcd> {
    let source = source(root, url, files);
    let asked = runtime()?.block_on(async {
        let status = quantykube_migrate::status(&source).await?;
        let foreign = quantykube_migrate::foreign_keys(&source, prefix, FOREIGN_NAMED).await?;
        Ok(Etcd { status, foreign })
    });
    asked.map_err(|error: quantykube_migrate::Error| chain(&error))
}

/// An etcd (or the store) as migrate reaches it.
pub fn source(root: &Root, url: &str, files: &Files) -> Source {
    Source {
        endpoints: vec![url.to_owned()],
        cert: Some(root.at(&files.cert)),
        key: Some(root.at(&files.key)),
        cacert: Some(root.at(&files.ca)),
    }
}

/// What runs the calls of a client: this program itself waits for each.
pub fn runtime() -> Known<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime of connections: {error}"))
}
