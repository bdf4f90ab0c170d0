//! Why a bundle was not written, not read or not believed.

use std::io;
use std::path::PathBuf;

use quantykube_base::{Exit, Failure};

use crate::Digest;

/// Why a bundle was not written, not read or not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is no bundle at all.
    #[error("{path} is not a bundle: {found}")]
    NotABundle {
        /// The file.
        path: PathBuf,
        /// What stands there instead.
        found: String,
    },
    /// The file ends too early.
    #[error("{path} is truncated: it ends at byte {length}, {found}")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: u64,
        /// What is missing.
        found: String,
    },
    /// The gzip frame is not the one encoding.
    #[error("{path} is damaged at byte {offset}: {found}")]
    Frame {
        /// The file.
        path: PathBuf,
        /// Where the gzip member begins.
        offset: u64,
        /// What was found and what was expected.
        found: String,
    },
    /// An entry of the archive is not the one that `bundle.json` says.
    #[error("{path}: entry {entry} is not what it must be: {found}")]
    Entry {
        /// The file.
        path: PathBuf,
        /// The entry as `bundle.json` names it.
        entry: String,
        /// What was found and what was expected.
        found: String,
    },
    /// Parts of a split bundle are missing, bad or of another bundle.
    #[error("{0}")]
    Parts(String),
    /// A part or a delta is of a newer format.
    #[error(
        "{path} has format {found}; this program reads format {known} and older, a newer quantykube-bundle is needed"
    )]
    NewerFile {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format this program reads.
        known: u64,
    },
    /// A delta is damaged, or does not fit its base.
    #[error("{path}: {found}")]
    Delta {
        /// The delta, or its base.
        path: PathBuf,
        /// What was found and what was expected.
        found: String,
    },
    /// `bundle.json` breaks a rule.
    #[error("bundle.json is not what it must be: {0}")]
    Manifest(String),
    /// A name that could lead out of the bundle or onto another name.
    #[error("the name {name:?} is not allowed in a bundle: {rule}")]
    Name {
        /// The name.
        name: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The format is newer than this program.
    #[error(
        "this bundle has format {found}; this program reads format {known} and older, version {needs} or newer is needed"
    )]
    Newer {
        /// The format of the bundle.
        found: u64,
        /// The newest format this program reads.
        known: u64,
        /// The program version that is needed, as the bundle says.
        needs: String,
    },
    /// A file's content is another.
    #[error("{path}: sha256 is {found}, expected {expected}")]
    Checksum {
        /// The file.
        path: String,
        /// What its bytes give.
        found: Digest,
        /// What `bundle.json` says.
        expected: Digest,
    },
    /// A folder does not hold exactly the files of `bundle.json`.
    #[error("{path}: {found}")]
    Folder {
        /// What stands in the folder.
        path: PathBuf,
        /// What was found and what was expected.
        found: String,
    },
    /// A key is trusted and the bundle has no signature.
    #[error("{path} is not signed, and only bundles signed with a trusted key are taken")]
    Unsigned {
        /// The file or folder.
        path: PathBuf,
    },
    /// The signature is not one by a trusted key of this bundle.
    #[error("{path}: {found}")]
    Signature {
        /// The file or folder.
        path: PathBuf,
        /// What was found and what was expected.
        found: String,
    },
    /// An input of a bundle cannot be packed.
    #[error("{path} cannot be packed: {found}")]
    Input {
        /// The input.
        path: String,
        /// Why.
        found: String,
    },
    /// The target of an extraction cannot be used.
    #[error("{path} {found}")]
    Target {
        /// The target.
        path: PathBuf,
        /// Why.
        found: &'static str,
    },
    /// A file that was asked for is not in the bundle.
    #[error("the bundle holds no {path}")]
    NoEntry {
        /// What was asked for.
        path: String,
    },
    /// There is not enough space.
    #[error("{path} has {available} bytes of space, {needed} are needed")]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// Bytes free for this user.
        available: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The caller's [`crate::Watcher`] said so.
    #[error("stopped before it was done")]
    Stopped,
    /// The system failed us.
    #[error("cannot {action} {path}")]
    Io {
        /// What was being done, as `read`.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    /// What a program ends with.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Newer { .. } | Error::NewerFile { .. } => Exit::NeedsNewer,
            Error::NoSpace { .. } => Exit::NoSpace,
            Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => Exit::NoSpace,
            Error::Io { .. } | Error::Stopped => Exit::Failed,
            Error::Input { .. } | Error::Target { .. } | Error::NoEntry { .. } => Exit::Refused,
            _ => Exit::NotVerified,
        }
    }

    /// A stable name for programs that read our output.
    pub fn name(&self) -> &'static str {
        match self {
            Error::NotABundle { .. } => "not-a-bundle",
            Error::Truncated { .. } => "truncated",
            Error::Frame { .. } => "damaged",
            Error::Entry { .. } => "entry",
            Error::Parts(_) => "parts",
            Error::NewerFile { .. } => "newer-format",
            Error::Delta { .. } => "delta",
            Error::Manifest(_) => "bundle-json",
            Error::Name { .. } => "name",
            Error::Newer { .. } => "newer-format",
            Error::Checksum { .. } => "checksum-differs",
            Error::Folder { .. } => "set-of-files",
            Error::Unsigned { .. } => "unsigned",
            Error::Signature { .. } => "signature",
            Error::Input { .. } => "input",
            Error::Target { .. } => "target",
            Error::NoEntry { .. } => "no-entry",
            Error::NoSpace { .. } => "no-space",
            Error::Stopped => "stopped",
            Error::Io { .. } => "io",
        }
    }

    /// What a person can do now.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Truncated { .. } | Error::Frame { .. } | Error::Checksum { .. } => {
                Some("copy the bundle again and compare its sha256sum with that of the original")
            }
            Error::Entry { .. } | Error::Manifest(_) | Error::Name { .. } => {
                Some("this file was not written by quantykube-bundle; do not use it")
            }
            Error::Parts(_) => Some("copy the part that is named again; the others can stay as they are"),
            Error::Newer { .. } => Some("use the program that came with the bundle: ./run in its folder"),
            Error::NoEntry { .. } => Some("quantykube-bundle inspect FILE lists what there is"),
            Error::Unsigned { .. } => Some("get the signed bundle from the one who holds the key; do not use this one"),
            Error::Signature { .. } => Some("this bundle is not from the one who holds the trusted key; do not use it"),
            Error::Folder { .. } => Some("remove the folder and extract the bundle again"),
            _ => None,
        }
    }

    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { action, path, source }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let failure = Failure::new(error.exit(), error.name(), error.to_string());
        let failure = match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        };
        match std::error::Error::source(&error) {
            Some(_) => failure.because(error),
            None => failure,
        }
    }
}
