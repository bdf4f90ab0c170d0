//! Hidden: makes etcd hold what a closed store file holds. It may be called again after any end.

use std::path::Path;

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::args::Etcd;
use crate::commands::{Context, store_ready};
use crate::facts::etcd::runtime;

/// Copies until both sides hold the same.
pub fn run(context: &Context, etcd: &Etcd, file: &Path) -> Result<Exit, Failure> {
    let runtime = runtime().map_err(|error| Failure::new(Exit::Failed, "runtime", error))?;
    let copied = runtime
        .block_on(quantykube_migrate::copy_back(
            file,
            &store_ready::source(etcd),
            &context.reporter,
        ))
        .map_err(Failure::from)?;
    if copied.others.count > 0 {
        context.reporter.warning(
            "etcd-written-to",
            &super::outlook::others(&copied.others, "were overwritten"),
        );
    }
    let text = format!(
        "etcd at {} holds the store's {} keys: {} untouched, {} written, {} deleted, {} leases granted; revision {} -> {} (the store's was {})",
        copied.endpoint,
        copied.keys,
        copied.untouched,
        copied.puts,
        copied.deletes,
        copied.leases_granted,
        copied.etcd_revision_before,
        copied.etcd_revision,
        copied.store_revision,
    );
    context.reporter.result(
        &text,
        json!({
            "name": "copy-back",
            "keys": copied.keys,
            "untouched": copied.untouched,
            "puts": copied.puts,
            "deletes": copied.deletes,
            "leasesGranted": copied.leases_granted,
            "storeRevision": copied.store_revision,
            "etcdRevisionBefore": copied.etcd_revision_before,
            "etcdRevision": copied.etcd_revision,
            "fillers": copied.filled.writes,
            "compactions": copied.filled.compactions,
            "defragmentations": copied.filled.defragmentations,
            "alarmsDisarmed": copied.filled.disarmed,
            "writtenByOthers": {"count": copied.others.count, "first": copied.others.first},
            "passes": copied.passes,
            "seconds": copied.took.as_secs_f64(),
        }),
    );
    Ok(Exit::Done)
}
