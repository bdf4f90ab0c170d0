//! `inspect`: what a bundle claims to hold, from its first entry and its last member.

use std::fmt::Write;

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::Unverified;
use serde_json::json;

use crate::args::Inspect;
use crate::check;

/// Lists a bundle without reading all of it.
pub fn run(args: &Inspect, report: &Reporter) -> Result<(), Failure> {
    let bundle = Unverified::open(&args.file)?;
    let (manifest, packed) = (bundle.manifest(), bundle.packed_sizes());
    let mut text = format!(
        "{} {} for linux/{}, format {}, {} in {}\nbundle id  {} (claimed; `verify` checks it){}\n\n",
        manifest.name,
        manifest.version,
        manifest.architecture,
        manifest.format,
        human_bytes(manifest.size()),
        human_bytes(bundle.length()),
        bundle.id(),
        check::signed(&bundle, None),
    );
    let width = manifest
        .files
        .iter()
        .map(|file| file.path.len())
        .max()
        .unwrap_or(0)
        .max(4);
    let _ = writeln!(
        text,
        "{:width$}  {:>10}  {:>10}  {:10}  FROM",
        "FILE", "SIZE", "PACKED", "KIND"
    );
    for (file, packed) in manifest.files.iter().zip(&packed) {
        let (size, packed, kind) = (human_bytes(file.size), human_bytes(*packed), file.kind.name());
        let _ = writeln!(
            text,
            "{:width$}  {size:>10}  {packed:>10}  {kind:10}  {}",
            file.path, file.origin
        );
    }
    if !manifest.images.is_empty() {
        text.push('\n');
        for image in &manifest.images {
            let _ = writeln!(text, "image {}  {}", image.name, image.digest);
        }
    }
    let packed: serde_json::Map<String, serde_json::Value> = manifest
        .files
        .iter()
        .zip(&packed)
        .map(|(file, packed)| (file.path.clone(), json!(packed)))
        .collect();
    let value = json!({
        "verified": false,
        "id": bundle.id().to_string(),
        "signature": bundle.signature().map(|signature| json!({"key": signature.key().to_string(), "checked": false})),
        "size": bundle.length(),
        "folder": manifest.folder(),
        "packed": packed,
        "bundle": manifest,
    });
    report.result(text.trim_end(), value);
    Ok(())
}
