//! An image out of an archive of `docker save`, as an OCI image.

use std::path::Path;

use crate::archive::Archive;
use crate::image::{DOCUMENT_MAX, OS, check_digest, is_named};
use crate::wire::{Config, Descriptor, Manifest, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Saved};
use crate::{Blob, Digest, Error, Image, Place, Reference};

/// Finds the image `name` for `architecture` in the archive. Where the archive holds one image without a tag, it is that
/// one. Layers are taken as they lie in it: uncompressed, or as blobs under `blobs/sha256/`.
pub fn from_docker_archive(path: &Path, name: &Reference, architecture: &str) -> Result<Image, Error> {
    let archive = Archive::open(path)?;
    let malformed = |found: String| Error::Malformed {
        path: path.into(),
        found,
    };
    let saved: Vec<Saved> = serde_json::from_slice(&archive.read("manifest.json", DOCUMENT_MAX)?)
        .map_err(|error| malformed(format!("manifest.json cannot be read: {error}")))?;
    let saved = find(&saved, name).ok_or_else(|| {
        let tags: Vec<&str> = saved.iter().flat_map(tags).collect();
        let found = match tags.is_empty() {
            true => format!("it holds {} images without a tag", saved.len()),
            false => format!("it holds {}", tags.join(", ")),
        };
        Error::NoSuchImage {
            path: path.into(),
            name: name.to_string(),
            found,
        }
    })?;

    let config_bytes = archive.read(&saved.config, DOCUMENT_MAX)?;
    let config: Config = serde_json::from_slice(&config_bytes)
        .map_err(|error| malformed(format!("the config of {name} cannot be read: {error}")))?;
    if config.os != OS || config.architecture != architecture {
        return Err(Error::Platform {
            path: path.into(),
            name: name.to_string(),
            found: format!("{}/{}", config.os, config.architecture),
            expected: format!("{OS}/{architecture}"),
        });
    }
    let (layers, diff_ids) = (&saved.layers, &config.rootfs.diff_ids);
    if layers.len() != diff_ids.len() {
        let (found, expected) = (layers.len(), diff_ids.len());
        return Err(malformed(format!(
            "{name} has {found} layers, its config names {expected}"
        )));
    }
    let descriptor = |media_type: &str, digest, size| Descriptor {
        annotations: Default::default(),
        digest,
        media_type: media_type.into(),
        platform: None,
        size,
        urls: Vec::new(),
    };
    let mut manifest = Manifest {
        config: descriptor(OCI_CONFIG, Digest::of(&config_bytes), config_bytes.len() as u64),
        layers: Vec::new(),
        media_type: Some(OCI_MANIFEST.into()),
        schema_version: 2,
    };
    let mut blobs = vec![Blob {
        digest: manifest.config.digest,
        size: manifest.config.size,
        place: Place::Bytes(config_bytes),
    }];
    for (layer, diff_id) in layers.iter().zip(diff_ids) {
        let Some((offset, size)) = archive.find(layer) else {
            return Err(Error::Blob {
                path: path.into(),
                blob: layer.clone(),
                found: "is missing".into(),
            });
        };
        let compression = match archive.start(offset)? {
            [0x1f, 0x8b, ..] => "+gzip",
            [0x28, 0xb5, 0x2f, 0xfd] => "+zstd",
            _ => "",
        };
        // A blob is named by its digest; what lies there uncompressed has the digest that the config names.
        let digest = match layer
            .strip_prefix("blobs/sha256/")
            .map(|hex| format!("sha256:{hex}").parse())
        {
            Some(Ok(digest)) => digest,
            _ if compression.is_empty() => *diff_id,
            _ => {
                return Err(malformed(format!(
                    "the layer {layer} is compressed and not named by its digest"
                )));
            }
        };
        manifest
            .layers
            .push(descriptor(&format!("{OCI_LAYER}{compression}"), digest, size));
        blobs.push(Blob {
            digest,
            size,
            place: Place::Part {
                path: path.into(),
                offset,
            },
        });
    }
    let bytes = serde_json::to_vec(&manifest).expect("a manifest holds nothing that JSON cannot");
    let digest = Digest::of(&bytes);
    check_digest(path, name, digest)?;
    blobs.insert(
        0,
        Blob {
            digest,
            size: bytes.len() as u64,
            place: Place::Bytes(bytes),
        },
    );
    let (name, media_type, architecture) = (name.clone(), OCI_MANIFEST.to_owned(), architecture.to_owned());
    Ok(Image {
        name,
        digest,
        media_type,
        architecture,
        blobs,
    })
}

fn tags(saved: &Saved) -> impl Iterator<Item = &str> {
    saved.repo_tags.iter().flatten().map(String::as_str)
}

fn find<'s>(saved: &'s [Saved], name: &Reference) -> Option<&'s Saved> {
    saved
        .iter()
        .find(|image| tags(image).any(|tag| is_named(tag, name)))
        .or(match saved {
            [only] if tags(only).next().is_none() => Some(only),
            _ => None,
        })
}
