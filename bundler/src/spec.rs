//! The spec as it is typed: every key, nothing checked but its shape. What stands here is also its JSON Schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;

/// What quantykube-bundle packs into a bundle. Paths are relative to this file.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("required" = ["programs"]))]
pub struct Spec {
    /// The first part of the folder's name; default quantykube.
    #[schemars(regex(pattern = "^[a-z][a-z0-9-]{0,39}$"))]
    pub name: Option<String>,
    /// The version of the bundle; default: that of quantykube-bundle. In YAML, quote one that could be a number.
    #[schemars(regex(pattern = "^[0-9][0-9A-Za-z.+-]{0,39}$"))]
    pub version: Option<String>,
    /// The architecture of everything in the bundle; default: this machine's.
    #[schemars(extend("enum" = ["amd64", "arm64", null]))]
    pub architecture: Option<String>,
    /// QuantyKube's own programs: quantykube, which becomes ./run and must be there, and any quantykube-*.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Other programs; they become bin/NAME.
    #[serde(default)]
    pub binaries: Vec<Binary>,
    /// Which templates are rendered into systemd/, manifests/ and cloud-init/; default: all built-in ones.
    #[serde(default)]
    pub templates: Templates,
    /// What templates use, each by its name. A value that no template uses is an error.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub values: BTreeMap<String, yaml_serde::Value>,
    /// Images, packed into one OCI layout.
    #[serde(default)]
    pub images: Vec<Image>,
    /// How registries are reached; one that is not listed: with https and the usual authorities.
    #[serde(default)]
    pub registries: Vec<Registry>,
    /// What is packed only where it is asked for with --with, or unless it is refused with --without.
    #[serde(default)]
    pub parts: Vec<Part>,
}

/// A part that can be left out: what stands in it is as if it stood at the top where the part is taken.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name, for --with and --without.
    #[schemars(regex(pattern = "^[a-z][a-z0-9-]{0,39}$"))]
    pub name: String,
    /// Whether it is taken unless --without names it; default: only where --with names it.
    #[serde(default)]
    pub default: bool,
    /// More of QuantyKube's own programs.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// More of other programs.
    #[serde(default)]
    pub binaries: Vec<Binary>,
    /// The templates that are left out with it, each by its path; no template is of two parts.
    #[serde(default)]
    pub templates: Vec<String>,
    /// More of what templates use.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub values: BTreeMap<String, yaml_serde::Value>,
    /// More images.
    #[serde(default)]
    pub images: Vec<Image>,
}

/// One of QuantyKube's own programs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    #[schemars(regex(pattern = "^quantykube(-[^/]*)?$"))]
    pub name: String,
    /// Where it is; default: beside quantykube-bundle.
    #[schemars(regex(pattern = "^[^/]"))]
    pub path: Option<String>,
    /// The SHA-256 that it must have.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
}

/// Another program: a path, or a url with its sha256, which the lock gives where it is not here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["path"]}, {"required": ["url"]}]))]
pub struct Binary {
    /// Its name.
    #[schemars(regex(pattern = "^[^/]+$"))]
    pub name: String,
    /// Where it is: an ELF program or a script.
    #[schemars(regex(pattern = "^[^/]"))]
    pub path: Option<String>,
    /// Where it is fetched from; it is written into the bundle.
    #[schemars(regex(pattern = "^https?://[^@/]+(/.*)?$"))]
    pub url: Option<String>,
    /// The SHA-256 that it must have, as its publisher states it.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
}

/// Which templates are rendered.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Templates {
    /// A folder with systemd/, manifests/ and cloud-init/ in place of the built-in templates.
    #[schemars(regex(pattern = "^[^/]"))]
    pub folder: Option<String>,
    /// Only these, each by its path in that folder; default: all.
    pub only: Option<Vec<String>>,
    /// Those that parts name, which must be there.
    #[serde(skip)]
    pub of_parts: Vec<String>,
    /// Those of parts that are left out.
    #[serde(skip)]
    pub except: Vec<String>,
}

/// One image: from an OCI layout, from a docker archive, or else from a registry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("oneOf" = [
    {"required": ["ociLayout"], "not": {"anyOf": [{"required": ["digest"]}, {"required": ["from"]}]}},
    {"required": ["dockerArchive"], "not": {"anyOf": [{"required": ["digest"]}, {"required": ["from"]}]}},
    {"not": {"anyOf": [{"required": ["ociLayout"]}, {"required": ["dockerArchive"]}]}},
]))]
pub struct Image {
    /// Its name, as manifests write it.
    pub name: String,
    /// A folder with oci-layout, index.json and blobs/.
    #[schemars(regex(pattern = "^[^/]"))]
    pub oci_layout: Option<String>,
    /// A file that `docker save` wrote, itself not compressed.
    #[schemars(regex(pattern = "^[^/]"))]
    pub docker_archive: Option<String>,
    /// Of an image of a registry: the digest of its manifest, or of an index of which the bundle's platform is taken.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,
    /// Of an image of a registry: the repository that holds it, as HOST/PATH; default: that of its name.
    #[schemars(regex(pattern = "^[^:@]+(:[0-9]+/[^:@]+)?$"))]
    pub from: Option<String>,
}

/// How one registry is reached.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("not" = {"required": ["ca", "plainHttp"], "properties": {"plainHttp": {"const": true}, "ca": {"type": "string"}}}))]
pub struct Registry {
    /// Its host, and port where it has one, as names of images write it.
    #[schemars(regex(pattern = "^[^/@]+$"))]
    pub host: String,
    /// A PEM file with the only certificate authorities that are believed for it.
    #[schemars(regex(pattern = "^[^/]"))]
    pub ca: Option<String>,
    /// http without TLS: whoever is between can read the credentials and see what is fetched, but not change it.
    #[serde(default)]
    pub plain_http: bool,
}

/// The JSON Schema of a spec: draft-07, which editors know.
pub fn schema() -> serde_json::Value {
    let generator = SchemaSettings::draft07().into_generator();
    let mut schema = generator.into_root_schema_for::<Spec>();
    schema.insert("title".into(), "The spec of a QuantyKube bundle".into());
    schema.to_value()
}
