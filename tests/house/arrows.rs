//! The arrows between crates, read from the Cargo.tomls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use quantykube_tests::places::root;

/// Who may depend on whom. Everyone may use `base`; whatever is not listed stands alone.
const ARROWS: &[(&str, &[&str])] = &[
    ("quantykube-bundle", &["quantykube-bundle-format", "quantykube-oci"]),
    (
        "quantykube-node-runner",
        &[
            "quantykube-bundle-format",
            "quantykube-oci",
            "quantykube-journal",
            "quantykube-migrate",
        ],
    ),
    (
        "quantykube-migrate",
        &["quantykube-store-file", "quantykube-etcd-files"],
    ),
    (
        "quantykube-store",
        &["quantykube-etcd-api", "quantykube-store-file", "quantykube-etcd-files"],
    ),
    ("quantykube-runtime", &["quantykube-oci"]),
];

/// Test packages may look at anything.
const TEST_PACKAGES: &[&str] = &[
    "quantykube-tests",
    "quantykube-test-node",
    "quantykube-test-vm",
    "quantykube-test-kubeadm",
    "quantykube-kubelet-standin",
    "quantykube-api-driver",
    "quantykube-fuzz",
];

fn manifests() -> Vec<(String, toml::Table)> {
    let workspace: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| {
            let path = root().join(member.as_str().unwrap()).join("Cargo.toml");
            let table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            (table["package"]["name"].as_str().unwrap().to_owned(), table)
        })
        .collect()
}

/// Our own crates among the dependencies of a manifest; test-only ones left out.
fn ours(manifest: &toml::Table) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |table: Option<&toml::Value>| {
        for name in table.and_then(|t| t.as_table()).into_iter().flat_map(|t| t.keys()) {
            if name.starts_with("quantykube") {
                found.insert(name.clone());
            }
        }
    };
    add(manifest.get("dependencies"));
    add(manifest.get("build-dependencies"));
    for target in manifest
        .get("target")
        .and_then(|t| t.as_table())
        .into_iter()
        .flat_map(|t| t.values())
    {
        add(target.get("dependencies"));
    }
    found
}

fn wrong_arrows(manifests: &[(String, toml::Table)]) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, manifest) in manifests
        .iter()
        .filter(|(name, _)| !TEST_PACKAGES.contains(&name.as_str()))
    {
        for other in ours(manifest) {
            let fine = other == "quantykube-base" && name != "quantykube-base"
                || allowed
                    .get(name.as_str())
                    .is_some_and(|list| list.contains(&other.as_str()));
            if !fine {
                wrong.push(format!("{name} -> {other}"));
            }
        }
    }
    wrong
}

#[test]
fn no_arrow_but_the_drawn_ones() {
    let wrong = wrong_arrows(&manifests());
    assert!(
        wrong.is_empty(),
        "arrows that docs/architecture.md does not draw: {wrong:?}"
    );
}

#[test]
fn a_wrong_arrow_is_found() {
    let manifest: toml::Table =
        "[package]\nname='quantykube-journal'\n[dependencies]\nquantykube-store-file.workspace=true"
            .parse()
            .unwrap();
    let wrong = wrong_arrows(&[("quantykube-journal".into(), manifest)]);
    assert_eq!(wrong, ["quantykube-journal -> quantykube-store-file"]);
}

#[test]
fn the_map_names_every_crate() {
    let map = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let workspace: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        assert!(
            map.contains(&format!("`{member}/`")),
            "docs/architecture.md does not name {member}/"
        );
    }
}
