//! Hidden: lifts etcd's revision past the store's while the store still serves, so that the copy back, made with the API
//! server stopped, finds little left to do.

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::args::Etcd;
use crate::commands::{Context, store_ready};
use crate::facts::etcd::runtime;

/// Succeeds also where the store does not answer: the copy back then does all of it, from the store's file.
pub fn run(context: &Context, etcd: &Etcd, store: &str) -> Result<Exit, Failure> {
    let runtime = runtime().map_err(|error| Failure::new(Exit::Failed, "runtime", error))?;
    let target = store_ready::source(etcd);
    let asked = Etcd {
        endpoints: store.to_owned(),
        ..etcd.clone()
    };
    let revision = match runtime.block_on(quantykube_migrate::store_revision(&store_ready::source(&asked))) {
        Ok(revision) => revision,
        Err(error) => {
            let why = crate::facts::chain(&error);
            context
                .reporter
                .warning("store", &format!("{why}; the copy back will lift etcd's revision"));
            return Ok(Exit::Done);
        }
    };
    let begun = std::time::Instant::now();
    let filled = runtime
        .block_on(quantykube_migrate::raise_revision(
            &target,
            revision + 1,
            &context.reporter,
        ))
        .map_err(Failure::from)?;
    context.reporter.result(
        &format!(
            "etcd is past the store's revision {revision}: {} writes in {:.1} s, {} compactions and {} defragmentations to keep it below its quota",
            filled.writes,
            begun.elapsed().as_secs_f64(),
            filled.compactions,
            filled.defragmentations
        ),
        json!({
            "storeRevision": revision,
            "writes": filled.writes,
            "seconds": begun.elapsed().as_secs_f64(),
            "compactions": filled.compactions,
            "defragmentations": filled.defragmentations,
            "alarmsDisarmed": filled.disarmed,
        }),
    );
    Ok(Exit::Done)
}
