//! The JSON documents of images: the OCI image specification 1.1, and `manifest.json` of `docker save`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Digest;

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The annotation by which containerd names an image of a layout.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The annotation by which OCI names an image of a layout.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

pub(crate) fn is_manifest(media_type: &str) -> bool {
    [OCI_MANIFEST, DOCKER_MANIFEST].contains(&media_type)
}

/// What a registry is asked for: every kind of manifest and index that is read here, for the header `Accept`.
pub const ACCEPTED: [&str; 4] = [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST];

pub(crate) fn is_index(media_type: &str) -> bool {
    [OCI_INDEX, DOCKER_LIST].contains(&media_type)
}

/// A reference to a blob. Fields are in the order in which we write them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    pub digest: Digest,
    pub media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    pub size: u64,
    /// Where a blob that is not in the layout would be; never followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Platform {
    pub architecture: String,
    pub os: String,
}

impl Descriptor {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [CONTAINERD_NAME, REF_NAME]
            .into_iter()
            .filter_map(|key| self.annotations.get(key))
            .map(String::as_str)
    }
}

/// An index, also `index.json` of a layout.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub manifests: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub schema_version: u32,
}

/// A manifest: what an image is made of.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub schema_version: u32,
}

/// What tells an index from a manifest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shape {
    pub media_type: Option<String>,
    pub config: Option<serde::de::IgnoredAny>,
    pub manifests: Option<serde::de::IgnoredAny>,
}

/// The part of a config that is looked at.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    pub rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFs {
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

/// `oci-layout`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LayoutMark {
    pub image_layout_version: String,
}

/// One image of `manifest.json` of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Saved {
    pub config: String,
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    pub layers: Vec<String>,
}
