//! `verify`: is the bundle whole, and the one that was meant?

use std::path::PathBuf;

use quantykube_base::{Exit, Failure, human_bytes};
use serde_json::json;

use crate::commands::Context;
use crate::commands::bundle::{self, Meant};

/// Checks every bit and prints the id.
pub fn run(context: &Context, file: Option<PathBuf>, meant: Meant) -> Result<Exit, Failure> {
    let (verified, key) = bundle::verify(context, file.as_deref(), &meant)?;
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
    match key {
        Some(key) => text.push_str(&format!("\nsigned by: {key}")),
        None => text.push_str("\nsigned by: not checked, this node trusts no key (/etc/quantykube/trusted-keys/*.pub)"),
    }
    if meant.id.is_none() {
        text.push_str("\nhint: compare this id with the one that quantykube-bundle printed, or give it: --id ID");
    }
    context.reporter.result(
        &text,
        json!({
            "verified": true,
            "id": verified.id().to_string(),
            "idCompared": meant.id.is_some(),
            "signedBy": key.map(|key| key.to_string()),
            "name": manifest.name,
            "version": manifest.version,
            "architecture": manifest.architecture.to_string(),
            "files": manifest.files.len(),
            "bytes": manifest.size(),
        }),
    );
    Ok(Exit::Done)
}
