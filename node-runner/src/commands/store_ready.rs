//! Hidden: asks the store for its revision with the API server's own certificate.

use quantykube_base::{Exit, Failure};
use quantykube_migrate::Source;
use serde_json::json;

use crate::args::Etcd;
use crate::commands::Context;
use crate::facts::etcd::runtime;

/// Succeeds where the store answers.
pub fn run(context: &Context, etcd: &Etcd) -> Result<Exit, Failure> {
    let runtime = runtime().map_err(|error| Failure::new(Exit::Failed, "runtime", error))?;
    let revision = runtime
        .block_on(quantykube_migrate::store_revision(&source(etcd)))
        .map_err(Failure::from)?;
    let text = format!("the store at {} is at revision {revision}", etcd.endpoints);
    context
        .reporter
        .result(&text, json!({"ready": true, "revision": revision}));
    Ok(Exit::Done)
}

/// As migrate takes it.
pub fn source(etcd: &Etcd) -> Source {
    Source {
        endpoints: vec![etcd.endpoints.clone()],
        cert: Some(etcd.cert.clone()),
        key: Some(etcd.key.clone()),
        cacert: Some(etcd.cacert.clone()),
    }
}
