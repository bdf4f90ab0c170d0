//! The images of a bundle that was verified: what its layout says of itself must be so.

use std::io::{self, Read};
use std::path::Path;

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{Unverified, Verified};
use quantykube_oci::{DOCUMENT_MAX, Error, Files, Held, Listed};

/// The folder of the layout in the bundle.
pub const FOLDER: &str = "images";

/// A bundle whose every bit was checked.
pub struct InBundle<'a> {
    /// What it holds.
    pub verified: &'a Verified,
    /// The archive, where it was not extracted.
    pub archive: Option<&'a Unverified>,
}

impl Files for InBundle<'_> {
    fn held(&self, path: &str) -> Option<Held> {
        let file = self.verified.file(&format!("{FOLDER}/{path}"))?;
        let digest = format!("sha256:{}", file.sha256).parse().ok()?;
        Some(Held {
            digest,
            size: file.size,
        })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let path = format!("{FOLDER}/{path}");
        if let Some(archive) = self.archive {
            return archive.small_file(&path, DOCUMENT_MAX).map_err(io::Error::other);
        }
        let root = self.verified.root().ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = Vec::new();
        quantykube_base::open_regular(&root.join(path))?
            .take(DOCUMENT_MAX)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Walks every descriptor of the bundle's layout, compares its images with those of `bundle.json`, and gives them.
///
/// # Errors
/// 3 where a descriptor names a blob that the bundle lacks or that has another digest or length, or where the images are
/// others.
pub fn walk(bundle: &InBundle) -> Result<Vec<Listed>, Failure> {
    let manifest = bundle.verified.manifest();
    let of_images = |path: &str| path.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'));
    if manifest.images.is_empty() && !manifest.files.iter().any(|file| of_images(&file.path)) {
        return Ok(Vec::new());
    }
    let shown = Path::new(FOLDER);
    let named = manifest
        .images
        .iter()
        .map(|image| (image.name.as_str(), image.digest.as_str()));
    let listed = quantykube_oci::walk(shown, bundle).map_err(failure)?;
    quantykube_oci::compare(shown, &listed, named).map_err(failure)?;
    Ok(listed)
}

fn failure(error: Error) -> Failure {
    let (exit, name) = match &error {
        Error::Blob { .. } => (Exit::NotVerified, "blob"),
        Error::Io { .. } => (Exit::Failed, "read"),
        _ => (Exit::NotVerified, "image"),
    };
    let mut failure = Failure::new(exit, name, error.to_string());
    if exit == Exit::NotVerified {
        failure = failure.hint(
            "every byte is as bundle.json says, and yet the images are not whole: whatever built it made a mistake; build the \
             bundle again",
        );
    }
    match std::error::Error::source(&error) {
        Some(_) => failure.because(error),
        None => failure,
    }
}
