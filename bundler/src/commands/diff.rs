//! `diff`: what differs between two bundles, in words.

use std::collections::BTreeMap;

use quantykube_base::{Failure, Reporter, human_bytes};
use quantykube_bundle_format::{FileEntry, Manifest, Unverified};
use serde_json::{Value, json};

use crate::args::Diff;

/// One difference: its sentence, and the same for programs.
type Difference = (String, Value);

/// Compares what the two say of themselves.
pub fn run(args: &Diff, report: &Reporter) -> Result<(), Failure> {
    let (old, new) = (Unverified::open(&args.old)?, Unverified::open(&args.new)?);
    let mut found = heads(old.manifest(), new.manifest());
    found.extend(files(old.manifest(), new.manifest()));
    found.extend(images(old.manifest(), new.manifest()));
    let key = |bundle: &Unverified| bundle.signature().map(|signature| signature.key().to_string());
    let (before, after) = (key(&old), key(&new));
    if before != after {
        let says = |key: &Option<String>| key.clone().unwrap_or_else(|| "nobody".into());
        found.push((
            format!(
                "it claims to be signed by {} and was by {}",
                says(&after),
                says(&before)
            ),
            json!({"what": "signature", "old": before, "new": after}),
        ));
    }
    let same = old.id() == new.id();
    let text = match (found.is_empty(), same) {
        (true, true) => format!("the same bundle: both have the id {}", new.id()),
        _ => found
            .iter()
            .map(|(text, _)| text.as_str())
            .collect::<Vec<_>>()
            .join("\n"),
    };
    let value = json!({
        "same": same,
        "old": old.id().to_string(),
        "new": new.id().to_string(),
        "differences": found.into_iter().map(|(_, value)| value).collect::<Vec<_>>(),
    });
    report.result(&text, value);
    Ok(())
}

fn heads(old: &Manifest, new: &Manifest) -> Vec<Difference> {
    let pairs = [
        ("name", old.name.clone(), new.name.clone()),
        ("version", old.version.clone(), new.version.clone()),
        (
            "architecture",
            old.architecture.to_string(),
            new.architecture.to_string(),
        ),
        ("format", old.format.to_string(), new.format.to_string()),
        ("mtime", old.mtime.to_string(), new.mtime.to_string()),
    ];
    let differs = pairs.into_iter().filter(|(_, old, new)| old != new);
    let says = |(what, old, new): (&str, String, String)| {
        (
            format!("the {what} is {new} and was {old}"),
            json!({"what": what, "old": old, "new": new}),
        )
    };
    differs.map(says).collect()
}

fn files(old: &Manifest, new: &Manifest) -> Vec<Difference> {
    let by_path = |manifest: &Manifest| -> BTreeMap<String, FileEntry> {
        manifest
            .files
            .iter()
            .map(|file| (file.path.clone(), file.clone()))
            .collect()
    };
    let (before, after) = (by_path(old), by_path(new));
    let mut found = Vec::new();
    for (path, file) in &after {
        let (kind, size) = (file.kind.name(), human_bytes(file.size));
        let Some(other) = before.get(path) else {
            let moved = before
                .values()
                .find(|other| other.sha256 == file.sha256 && !after.contains_key(&other.path));
            let (text, from) = match moved {
                Some(other) => (format!("{kind} {path} was {}", other.path), Some(other.path.clone())),
                None => (format!("{kind} {path} is new, {size}, from {}", file.origin), None),
            };
            found.push((
                text,
                json!({"what": "file", "path": path, "change": "added", "movedFrom": from}),
            ));
            continue;
        };
        let mut changes = Vec::new();
        if file.sha256 != other.sha256 {
            changes.push(match file.size == other.size {
                true => format!("has other bytes, {size} as before"),
                false => format!("has other bytes, {size} and had {}", human_bytes(other.size)),
            });
        }
        if file.mode != other.mode {
            changes.push(format!(
                "has the mode {:04o} and had {:04o}",
                file.mode.bits(),
                other.mode.bits()
            ));
        }
        if file.kind != other.kind {
            changes.push(format!("is of the kind {kind} and was {}", other.kind.name()));
        }
        if file.origin != other.origin {
            changes.push(format!("comes from {} and came from {}", file.origin, other.origin));
        }
        if !changes.is_empty() {
            found.push((
                format!("{kind} {path} {}", changes.join(", ")),
                json!({"what": "file", "path": path, "change": "changed", "old": other.sha256, "new": file.sha256}),
            ));
        }
    }
    for (path, file) in &before {
        let moved = after
            .values()
            .any(|other| other.sha256 == file.sha256 && !before.contains_key(&other.path));
        if !after.contains_key(path) && !moved {
            found.push((
                format!("{} {path} is gone, {}", file.kind.name(), human_bytes(file.size)),
                json!({"what": "file", "path": path, "change": "removed"}),
            ));
        }
    }
    found
}

fn images(old: &Manifest, new: &Manifest) -> Vec<Difference> {
    let by_name = |manifest: &Manifest| -> BTreeMap<String, String> {
        let pairs = manifest
            .images
            .iter()
            .map(|image| (image.name.clone(), image.digest.clone()));
        pairs.collect()
    };
    let (before, after) = (by_name(old), by_name(new));
    let mut found = Vec::new();
    for (name, digest) in &after {
        let text = match before.get(name) {
            Some(other) if other == digest => continue,
            Some(other) => format!("image {name} is {digest} and was {other}"),
            None => format!("image {name} is new, {digest}"),
        };
        found.push((
            text,
            json!({"what": "image", "name": name, "old": before.get(name), "new": digest}),
        ));
    }
    for (name, digest) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
        let value = json!({"what": "image", "name": name, "old": digest, "new": null});
        found.push((format!("image {name} is gone"), value));
    }
    found
}
