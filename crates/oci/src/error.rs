//! Why an image was not taken.

use std::io;
use std::path::PathBuf;

/// Why an image was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place holds no image of that name.
    #[error("{path} holds no image named {name}: {found}")]
    NoSuchImage {
        /// The layout or archive.
        path: PathBuf,
        /// The name that was looked for.
        name: String,
        /// What it holds.
        found: String,
    },
    /// The image is for another machine.
    #[error("the image {name} in {path} is for {found}, expected {expected}")]
    Platform {
        /// The layout or archive.
        path: PathBuf,
        /// The image.
        name: String,
        /// The platforms it is for.
        found: String,
        /// The platform that is needed.
        expected: String,
    },
    /// A blob is not what its descriptor says.
    #[error("{path}: the blob {blob} {found}")]
    Blob {
        /// The layout or archive.
        path: PathBuf,
        /// The blob's digest or name.
        blob: String,
        /// What was found and what was expected.
        found: String,
    },
    /// Something breaks the rules of a layout or archive.
    #[error("{path}: {found}")]
    Malformed {
        /// The layout or archive.
        path: PathBuf,
        /// What.
        found: String,
    },
    /// The system failed us.
    #[error("cannot read {path}")]
    Io {
        /// What was read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }
}
