//! The images of a bundle: what its layout says of itself must be so.

use std::io;
use std::path::Path;

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::Unverified;
use quantykube_oci::{DOCUMENT_MAX, Error, Files, Held};

use crate::images;

/// The folder of the layout in the bundle.
pub const FOLDER: &str = "images";

struct InBundle<'a>(&'a Unverified);

impl Files for InBundle<'_> {
    fn held(&self, path: &str) -> Option<Held> {
        let file = self.0.manifest().file(&format!("{FOLDER}/{path}"))?;
        let digest = format!("sha256:{}", file.sha256).parse().ok()?;
        Some(Held {
            digest,
            size: file.size,
        })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let read = self.0.small_file(&format!("{FOLDER}/{path}"), DOCUMENT_MAX);
        read.map_err(io::Error::other)
    }
}

/// Walks every descriptor of the layout of `bundle`, and compares its images with those of `bundle.json`. It is right as
/// far as `bundle.json` is: documents are compared with it, layers are not read.
///
/// # Errors
/// 3 where a descriptor names a blob that the bundle lacks or that has another digest or length, or where the images are
/// others. One with the name `read` says that a document could not be read as `bundle.json` has it.
pub fn check(bundle: &Unverified) -> Result<(), Failure> {
    let manifest = bundle.manifest();
    let of_images = |path: &str| path.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'));
    if manifest.images.is_empty() && !manifest.files.iter().any(|file| of_images(&file.path)) {
        return Ok(());
    }
    let shown = Path::new(FOLDER);
    let named = manifest
        .images
        .iter()
        .map(|image| (image.name.as_str(), image.digest.as_str()));
    quantykube_oci::walk(shown, &InBundle(bundle))
        .and_then(|listed| quantykube_oci::compare(shown, &listed, named))
        .map_err(|error| match &error {
            // Nothing is known of what could not be read.
            Error::Io { .. } => Failure {
                exit: Exit::Failed,
                ..images::failure(error)
            },
            _ => images::failure(error).hint(
                "every byte is as bundle.json says, and yet the images are not whole: whatever built it made a mistake; build the \
                 bundle again",
            ),
        })
}
