//! Many images as one layout.

use std::collections::{BTreeMap, BTreeSet};

use crate::image::OS;
use crate::wire::{CONTAINERD_NAME, Descriptor, Index, LayoutMark, OCI_INDEX, Platform, REF_NAME};
use crate::{Blob, Digest, Image};

/// One OCI layout that holds many images; a blob that several share is there once.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The bytes of `oci-layout`.
    pub oci_layout: Vec<u8>,
    /// The bytes of `index.json`: one descriptor for each image, sorted by name.
    pub index_json: Vec<u8>,
    /// Every blob, with the names of the images that hold it.
    pub blobs: BTreeMap<Digest, (Blob, BTreeSet<String>)>,
}

/// Merges images whose names differ. The result does not depend on their order.
pub fn merge(images: &[Image]) -> Merged {
    let mut blobs: BTreeMap<Digest, (Blob, BTreeSet<String>)> = BTreeMap::new();
    let mut manifests = BTreeMap::new();
    for image in images {
        for blob in &image.blobs {
            let entry = blobs
                .entry(blob.digest)
                .or_insert_with(|| (blob.clone(), BTreeSet::new()));
            entry.1.insert(image.name.to_string());
        }
        let names = [CONTAINERD_NAME, REF_NAME].map(|key| (key.to_owned(), image.name.to_string()));
        let descriptor = Descriptor {
            annotations: BTreeMap::from(names),
            digest: image.digest,
            media_type: image.media_type.clone(),
            platform: Some(Platform {
                architecture: image.architecture.clone(),
                os: OS.into(),
            }),
            size: image.blobs[0].size,
            urls: Vec::new(),
        };
        manifests.insert(image.name.to_string(), descriptor);
    }
    let index = Index {
        manifests: manifests.into_values().collect(),
        media_type: Some(OCI_INDEX.into()),
        schema_version: 2,
    };
    let mark = LayoutMark {
        image_layout_version: "1.0.0".into(),
    };
    let json = |value: Result<Vec<u8>, _>| value.expect("a layout holds nothing that JSON cannot");
    Merged {
        oci_layout: json(serde_json::to_vec(&mark)),
        index_json: json(serde_json::to_vec(&index)),
        blobs,
    }
}
