//! CycloneDX 1.6.

use std::collections::{BTreeMap, BTreeSet};

use quantykube_bundle_format::{Kind, Manifest};
use serde_json::{Value, json};

use super::{Crate, Crates, crate_purl, image_purl, timestamp};

/// The document of a bundle.
pub fn document(manifest: &Manifest, crates: &Crates) -> Value {
    let mut components = Vec::new();
    let mut links: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &manifest.files {
        let reference = format!("file:{}", file.path);
        components.push(json!({
            "type": match file.kind {
                Kind::Program | Kind::Binary => "application",
                _ => "file",
            },
            "bom-ref": reference,
            "name": file.path,
            "hashes": [{"alg": "SHA-256", "content": file.sha256.to_string()}],
        }));
        links.entry("bundle".into()).or_default().insert(reference.clone());
        let linked = crates.get(&file.path).into_iter().flatten().map(crate_purl).collect();
        links.insert(reference, linked);
    }
    for image in &manifest.images {
        let reference = image_purl(&image.name, &image.digest);
        let digest = image.digest.strip_prefix("sha256:").unwrap_or(&image.digest);
        components.push(json!({
            "type": "container",
            "bom-ref": format!("image:{}", image.name),
            "name": image.name,
            "version": image.digest,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "purl": reference,
        }));
        let name = format!("image:{}", image.name);
        links.entry("bundle".into()).or_default().insert(name.clone());
        links.insert(name, BTreeSet::new());
    }
    let all: BTreeSet<&Crate> = crates.values().flatten().collect();
    for of in all {
        let reference = crate_purl(of);
        components.push(json!({
            "type": "library",
            "bom-ref": reference,
            "name": of.name,
            "version": of.version,
            "purl": reference,
        }));
        links.entry(reference).or_default();
    }
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(manifest.mtime),
            "tools": {"components": [{
                "type": "application",
                "name": "quantykube-bundle",
                "version": env!("CARGO_PKG_VERSION"),
            }]},
            "component": {
                "type": "application",
                "bom-ref": "bundle",
                "name": manifest.name,
                "version": manifest.version,
            },
        },
        "components": components,
        "dependencies": links
            .iter()
            .map(|(reference, on)| json!({"ref": reference, "dependsOn": on}))
            .collect::<Vec<_>>(),
    })
}
