//! Hidden: the rule of the acknowledged write. A store file that was written to since it was copied is not given up.

use std::path::Path;

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::args::Etcd;
use crate::commands::Context;
use crate::commands::store_ready::source;
use crate::facts::etcd::runtime;

/// Succeeds only where the file's head is still the copied revision. The store may run: then it is asked at `server`.
pub fn run(context: &Context, file: &Path, server: Option<&Etcd>) -> Result<Exit, Failure> {
    let state = match server {
        Some(server) => {
            let runtime = runtime().map_err(|error| Failure::new(Exit::Failed, "runtime", error))?;
            runtime.block_on(quantykube_migrate::file_state_of(file, &source(server)))
        }
        None => quantykube_migrate::file_state(file),
    }
    .map_err(Failure::from)?;
    let value = json!({"untouched": state.untouched(), "revision": state.revision, "copied": state.imported});
    if !state.untouched() {
        return Err(Failure::new(
            Exit::Refused,
            "written-to",
            format!(
                "{} is at revision {}, copied was {}: it may hold acknowledged writes",
                file.display(),
                state.revision,
                state
                    .imported
                    .map_or("nothing".to_owned(), |revision| format!("revision {revision}")),
            ),
        ));
    }
    let text = format!("{} is at revision {}, as it was copied", file.display(), state.revision);
    context.reporter.result(&text, value);
    Ok(Exit::Done)
}
