//! `inspect`: what a bundle claims to hold, from its first entry and its last member.

use std::fmt::Write;

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::{Kind, Unverified};
use serde_json::json;

use crate::args::Inspect;
use crate::check;
use crate::references;
use crate::render::Rendered;

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
    let width = manifest.files.iter().map(|file| shown_length(&file.path)).max();
    let width = width.unwrap_or(0).max(4);
    let _ = writeln!(
        text,
        "{:width$}  {:>10}  {:>10}  {:10}  FROM",
        "FILE", "SIZE", "PACKED", "KIND"
    );
    let mut above: Vec<&str> = Vec::new();
    for (file, packed) in manifest.files.iter().zip(&packed) {
        let (folders, name) = folders_and_name(&file.path);
        // A line for each folder that begins here.
        let common = folders.iter().zip(&above).take_while(|(a, b)| a == b).count();
        for (depth, folder) in folders.iter().enumerate().skip(common) {
            let _ = writeln!(text, "{:indent$}{folder}/", "", indent = 2 * depth);
        }
        let name = format!("{:indent$}{name}", "", indent = 2 * folders.len());
        above = folders;
        let (size, packed, kind) = (human_bytes(file.size), human_bytes(*packed), file.kind.name());
        let _ = writeln!(
            text,
            "{name:width$}  {size:>10}  {packed:>10}  {kind:10}  {}",
            file.origin
        );
    }
    if !manifest.images.is_empty() {
        text.push('\n');
        for image in &manifest.images {
            let _ = writeln!(text, "image {}  {}", image.name, image.digest);
        }
    }
    let named = named(&bundle)?;
    if !named.is_empty() {
        text.push('\n');
        for (path, names) in &named {
            let _ = writeln!(text, "{path} names {}", names.join(", "));
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
        "names": named.iter().map(|(path, names)| (path.clone(), json!(names))).collect::<serde_json::Map<_, _>>(),
        "bytesRead": bundle.bytes_read(),
        "bundle": manifest,
    });
    report.result(text.trim_end(), value);
    Ok(())
}

/// The longest text file that is looked into.
const TEXT_MAX: u64 = 1 << 20;

/// What each unit, manifest and user-data names.
fn named(bundle: &Unverified) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let mut found = Vec::new();
    for file in &bundle.manifest().files {
        if !matches!(file.kind, Kind::Unit | Kind::Manifest | Kind::CloudInit) || file.size > TEXT_MAX {
            continue;
        }
        let text = String::from_utf8_lossy(&bundle.small_file(&file.path, TEXT_MAX)?).into_owned();
        let names = references::named(&Rendered {
            path: file.path.clone(),
            kind: file.kind,
            text,
        });
        if !names.is_empty() {
            found.push((file.path.clone(), names));
        }
    }
    Ok(found)
}

fn folders_and_name(path: &str) -> (Vec<&str>, &str) {
    let mut folders: Vec<&str> = path.split('/').collect();
    let name = folders.pop().unwrap_or_default();
    (folders, name)
}

/// The length of a file's line in the tree: its name, indented.
fn shown_length(path: &str) -> usize {
    let (folders, name) = folders_and_name(path);
    2 * folders.len() + name.len()
}
