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
    /// How many of them are of programs that are known to keep their data in etcd: names and counts, none of 0.
    pub owners: Vec<(&'static str, u64)>,
}

/// Below which keys other programs keep their data.
const OWNERS: [(&str, &str); 7] = [
    ("Calico", "/calico/"),
    ("Calico", "calico/"),
    ("Cilium", "cilium/"),
    ("flannel", "/coreos.com/network/"),
    ("flannel", "coreos.com/network/"),
    ("CoreDNS", "/skydns/"),
    ("Traefik", "/traefik/"),
];

/// How many keys of others are named.
const FOREIGN_NAMED: usize = 5;

/// Asks an etcd. `prefix` is the API server's.
pub fn ask(root: &Root, url: &str, files: &Files, prefix: &str) -> Known<Etcd> {
    let source = source(root, url, files);
    let asked = runtime()?.block_on(async {
        let status = quantykube_migrate::status(&source).await?;
        let foreign = quantykube_migrate::foreign_keys(&source, prefix, FOREIGN_NAMED).await?;
        let mut owners: Vec<(&'static str, u64)> = Vec::new();
        if foreign.count > 0 {
            for (owner, below) in OWNERS {
                let count = quantykube_migrate::count_below(&source, below).await?;
                match owners.iter_mut().find(|(known, _)| *known == owner) {
                    Some((_, sum)) => *sum += count,
                    None => owners.push((owner, count)),
                }
            }
            owners.retain(|(_, count)| *count > 0);
        }
        Ok(Etcd {
            status,
            foreign,
            owners,
        })
    });
    asked.map_err(|error: quantykube_migrate::Error| chain(&error))
}

/// Whether an etcd asks for users of its own. It answers this to whoever may connect.
pub fn has_users(root: &Root, url: &str, files: &Files) -> Known<bool> {
    let source = source(root, url, files);
    runtime()?
        .block_on(quantykube_migrate::has_users(&source))
        .map_err(|error| chain(&error))
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
