//! The spec as it is typed: every key, nothing checked but its shape.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A spec.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub name: Option<String>,
    pub version: Option<String>,
    pub architecture: Option<String>,
    #[serde(default)]
    pub programs: Vec<Program>,
    #[serde(default)]
    pub binaries: Vec<Binary>,
    #[serde(default)]
    pub templates: Templates,
    #[serde(default)]
    pub values: BTreeMap<String, yaml_serde::Value>,
    #[serde(default)]
    pub images: Vec<Image>,
}

/// One of QuantyKube's own programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub name: String,
    pub path: Option<String>,
    pub sha256: Option<String>,
}

/// Another program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binary {
    pub name: String,
    pub path: Option<String>,
    pub url: Option<String>,
    pub sha256: Option<String>,
}

/// Which templates are rendered.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Templates {
    pub folder: Option<String>,
    pub only: Option<Vec<String>>,
}

/// One image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Image {
    pub name: String,
    pub oci_layout: Option<String>,
    pub docker_archive: Option<String>,
}
