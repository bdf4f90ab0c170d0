//! SPDX 2.3, written and read back.

use std::collections::{BTreeMap, BTreeSet};

use quantykube_bundle_format::{Kind, Manifest};
use serde_json::{Value, json};

use super::{Crate, Crates, crate_purl, image_purl, stands_for, timestamp};

/// The document of a bundle. Files are packages: SPDX wants SHA-1 of what it calls files.
pub fn document(manifest: &Manifest, crates: &Crates) -> String {
    let folder = manifest.folder();
    let mut packages = vec![json!({
        "SPDXID": "SPDXRef-bundle",
        "name": manifest.name,
        "versionInfo": manifest.version,
        "packageFileName": format!("{folder}.tar.gz"),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "primaryPackagePurpose": "ARCHIVE",
    })];
    let mut links = vec![link("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-bundle")];
    let mut all: BTreeMap<Crate, String> = BTreeMap::new();
    for of in crates.values().flatten() {
        let id = format!("SPDXRef-crate-{}-{}", plain(&of.name), plain(&of.version));
        all.insert(of.clone(), id);
    }
    for (index, file) in manifest.files.iter().enumerate() {
        if file.path == super::PATH {
            continue;
        }
        let id = format!("SPDXRef-file-{index}");
        packages.push(json!({
            "SPDXID": id,
            "name": file.path,
            "packageFileName": file.path,
            "checksums": [{"algorithm": "SHA256", "checksumValue": file.sha256.to_string()}],
            "comment": format!("{} bytes, from {}", file.size, file.origin),
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false,
            "primaryPackagePurpose": match file.kind {
                Kind::Program | Kind::Binary => "APPLICATION",
                _ => "FILE",
            },
        }));
        links.push(link("SPDXRef-bundle", "CONTAINS", &id));
        for of in crates.get(&file.path).into_iter().flatten() {
            links.push(link(&id, "STATIC_LINK", &all[of]));
        }
    }
    for (index, image) in manifest.images.iter().enumerate() {
        let id = format!("SPDXRef-image-{index}");
        let digest = image.digest.strip_prefix("sha256:").unwrap_or(&image.digest);
        packages.push(json!({
            "SPDXID": id,
            "name": image.name,
            "versionInfo": image.digest,
            "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
            "downloadLocation": "NOASSERTION",
            "externalRefs": [purl(&image_purl(&image.name, &image.digest))],
            "filesAnalyzed": false,
            "primaryPackagePurpose": "CONTAINER",
        }));
        links.push(link("SPDXRef-bundle", "CONTAINS", &id));
    }
    for (of, id) in &all {
        packages.push(json!({
            "SPDXID": id,
            "name": of.name,
            "versionInfo": of.version,
            "licenseDeclared": of.license.as_deref().map_or_else(|| "NOASSERTION".to_owned(), modern),
            "downloadLocation": "NOASSERTION",
            "externalRefs": [purl(&crate_purl(of))],
            "filesAnalyzed": false,
            "primaryPackagePurpose": "LIBRARY",
        }));
    }
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": folder,
        "documentNamespace": format!("https://quantyroot.io/spdx/{folder}-{}", stands_for(manifest)),
        "creationInfo": {
            "created": timestamp(manifest.mtime),
            "creators": [format!("Tool: quantykube-bundle-{}", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages,
        "relationships": links,
    });
    serde_json::to_string_pretty(&document).expect("a document is JSON") + "\n"
}

/// The crates of each program, out of a document that [`document`] wrote. `None` where it is another.
pub fn crates(document: &[u8]) -> Option<Crates> {
    let document: Value = serde_json::from_slice(document).ok()?;
    let packages = document["packages"].as_array()?;
    let by_id: BTreeMap<&str, &Value> = packages
        .iter()
        .filter_map(|package| Some((package["SPDXID"].as_str()?, package)))
        .collect();
    let mut found: BTreeMap<String, BTreeSet<Crate>> = BTreeMap::new();
    for link in document["relationships"].as_array()? {
        if link["relationshipType"] != "STATIC_LINK" {
            continue;
        }
        let program = by_id.get(link["spdxElementId"].as_str()?)?;
        let of = by_id.get(link["relatedSpdxElement"].as_str()?)?;
        let license = of["licenseDeclared"]
            .as_str()
            .filter(|license| *license != "NOASSERTION");
        found
            .entry(program["name"].as_str()?.to_owned())
            .or_default()
            .insert(Crate {
                name: of["name"].as_str()?.to_owned(),
                version: of["versionInfo"].as_str()?.to_owned(),
                license: license.map(String::from),
            });
    }
    Some(found)
}

fn link(from: &str, kind: &str, to: &str) -> Value {
    json!({"spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to})
}

fn purl(locator: &str) -> Value {
    json!({
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": locator,
    })
}

/// An identifier holds letters, digits, dots and hyphens.
fn plain(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    text.chars().map(allowed).collect()
}

/// Older crates write `MIT/Apache-2.0`.
fn modern(license: &str) -> String {
    license.replace(" / ", " OR ").replace('/', " OR ")
}
