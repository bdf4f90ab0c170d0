//! `verify`: is the bundle whole, and the one that was meant?

use std::path::PathBuf;

use quantykube_base::{Exit, Failure, human_bytes};
use serde_json::json;

use crate::args::Id;
use crate::commands::{Context, bundle};

/// Checks every bit and prints the id.
pub fn run(context: &Context, file: Option<PathBuf>, id: Option<Id>) -> Result<Exit, Failure> {
    let verified = bundle::verify(context, file.as_deref(), id.as_ref())?;
    let manifest = verified.manifest();
    let mut text = format!(
        "verified: {} {} for {}, {} files, {}\nid: {}",
        manifest.name,
        manifest.version,
        manifest.architecture,
        manifest.files.len(),
        human_bytes(manifest.size()),
        verified.id(),
    );
    if id.is_none() {
        text.push_str("\nhint: compare this id with the one that quantykube-bundle printed, or give it: --id ID");
    }
    context.reporter.result(
        &text,
        json!({
            "verified": true,
            "id": verified.id().to_string(),
            "idCompared": id.is_some(),
            "name": manifest.name,
            "version": manifest.version,
            "architecture": manifest.architecture.to_string(),
            "files": manifest.files.len(),
            "bytes": manifest.size(),
        }),
    );
    Ok(Exit::Done)
}
