//! Images as files of the bundle.

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format as format;
use quantykube_bundle_format::{Content, FileMode, Kind, Origin};
use quantykube_oci::{Error, Place};

use crate::content::Contents;
use crate::inputs::{Image, ImagePlace};
use crate::layout::FOLDER;

/// Finds every image and gives the files of one layout that holds them all. Those of registries are in `contents`.
pub fn collect(
    images: &[Image],
    architecture: &str,
    contents: Option<&Contents>,
) -> Result<(Vec<format::Image>, Vec<format::Input>), Failure> {
    if images.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut found = Vec::new();
    for image in images {
        let taken = match &image.place {
            ImagePlace::OciLayout(path) => quantykube_oci::from_layout(path, &image.name, architecture),
            ImagePlace::DockerArchive(path) => quantykube_oci::from_docker_archive(path, &image.name, architecture),
            ImagePlace::Registry { .. } => {
                let pulled = image.pulled().expect("its digest is known by now");
                let folder = contents.expect("it was fetched before").folder();
                quantykube_oci::from_blobs(folder, &pulled.shown(), pulled.digest, pulled.name, architecture)
            }
        };
        found.push(taken.map_err(failure)?);
    }
    let merged = quantykube_oci::merge(&found);
    let all: Vec<String> = images.iter().map(|image| image.name.to_string()).collect();
    let input = |path: String, mut names: Vec<String>, content| {
        names.sort();
        let (kind, mode, origin) = (Kind::Image, FileMode::Plain, Origin::Images(names));
        format::Input {
            path,
            kind,
            mode,
            origin,
            content,
        }
    };
    let mut inputs = vec![
        input(
            format!("{FOLDER}/oci-layout"),
            all.clone(),
            Content::Bytes(merged.oci_layout),
        ),
        input(format!("{FOLDER}/index.json"), all, Content::Bytes(merged.index_json)),
    ];
    for (digest, (blob, names)) in merged.blobs {
        let content = match blob.place {
            Place::Bytes(bytes) => Content::Bytes(bytes),
            Place::File(path) => Content::File(path),
            Place::Part { path, offset } => Content::Part {
                path,
                offset,
                length: blob.size,
            },
        };
        inputs.push(input(
            format!("{FOLDER}/blobs/sha256/{}", digest.hex()),
            names.into_iter().collect(),
            content,
        ));
    }
    let named = |image: quantykube_oci::Image| format::Image {
        digest: image.digest.to_string(),
        name: image.name.to_string(),
    };
    Ok((found.into_iter().map(named).collect(), inputs))
}

/// An image that was not taken, as a user sees it.
pub fn failure(error: Error) -> Failure {
    let (exit, name) = match &error {
        Error::NoSuchImage { .. } => (Exit::Refused, "no-such-image"),
        Error::Platform { .. } => (Exit::Refused, "architecture"),
        Error::Blob { .. } => (Exit::NotVerified, "blob"),
        Error::Io { .. } => (Exit::Refused, "read"),
        _ => (Exit::NotVerified, "image"),
    };
    let failure = Failure::new(exit, name, error.to_string());
    match std::error::Error::source(&error) {
        Some(_) => failure.because(error),
        None => failure,
    }
}
