//! One image and where its blobs lie.

use std::path::{Path, PathBuf};

use crate::wire::{Descriptor, Manifest};
use crate::{Digest, Error, Reference};

/// One image for one platform.
#[derive(Clone, Debug)]
pub struct Image {
    /// The name under which it is known on the node.
    pub name: Reference,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The manifest's media type.
    pub(crate) media_type: String,
    /// The architecture, as OCI names it.
    pub(crate) architecture: String,
    /// The manifest, the config and the layers.
    pub blobs: Vec<Blob>,
}

/// One blob of an image.
#[derive(Clone, Debug)]
pub struct Blob {
    /// What its bytes must hash to. Whoever copies a layer compares.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Where its bytes are.
    pub place: Place,
}

/// Where the bytes of a blob are.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory.
    Bytes(Vec<u8>),
    /// In a whole file.
    File(PathBuf),
    /// In a part of a file.
    Part {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
    },
}

/// The platform of every bundle but for the architecture.
pub(crate) const OS: &str = "linux";

/// Manifests and configs are small; one with more bytes is refused unread.
pub const DOCUMENT_MAX: u64 = 4 << 20;

/// The descriptors that a manifest names, config first.
pub(crate) fn named_by(manifest: &Manifest) -> impl Iterator<Item = &Descriptor> {
    std::iter::once(&manifest.config).chain(&manifest.layers)
}

/// Whether the text names the image: names are compared as a runtime completes them.
pub(crate) fn is_named(text: &str, name: &Reference) -> bool {
    Reference::parse(text).is_ok_and(|found| found.repository == name.repository && found.tag == name.tag)
}

/// A name that has a digest must have that of the image, or no node would find it.
pub(crate) fn check_digest(path: &Path, name: &Reference, found: Digest) -> Result<(), Error> {
    match name.digest {
        Some(digest) if digest != found => Err(Error::NoSuchImage {
            path: path.into(),
            name: name.to_string(),
            found: format!("the manifest for this platform has the digest {found}"),
        }),
        _ => Ok(()),
    }
}
