//! What can go wrong with a store file.

use std::io;
use std::path::PathBuf;

/// What can go wrong with a store file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file exists and must not.
    #[error("{} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file does not exist.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds the file.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Damaged where no torn write can explain it.
    #[error("damaged at offset {offset}: {what}")]
    Damaged {
        /// Byte offset in the file.
        offset: u64,
        /// What was found and expected.
        what: String,
    },
    /// Nothing in the file says that it is, or ever was, a store file.
    #[error("it is no store file: {bytes} bytes without any of a store file's marks")]
    Foreign {
        /// Its length.
        bytes: u64,
    },
    /// A newer format.
    #[error("store file format {found} is newer than {supported}, the newest this program reads")]
    Newer {
        /// Found.
        found: u32,
        /// Supported.
        supported: u32,
    },
    /// The quota or the disk has no room: nothing was written.
    #[error("no space: {needed} bytes are needed")]
    NoSpace {
        /// Bytes needed.
        needed: u64,
    },
    /// A read, write or sync failed. After a failed write or sync every later call answers this.
    #[error("{what} failed")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The value is of a version, given out some time ago, that was compacted away or moved.
    #[error("the value was compacted away or moved")]
    Gone,
    /// An import whose records are not in order or otherwise impossible.
    #[error("import: {0}")]
    Import(String),
}

impl Error {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }

    pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> Error {
        Error::Damaged {
            offset,
            what: what.into(),
        }
    }
}

/// A failure that is told more than once: to the hook, and to every later call.
#[derive(Debug)]
pub(crate) struct Failure {
    what: &'static str,
    kind: io::ErrorKind,
    code: Option<i32>,
    text: String,
}

impl Failure {
    pub(crate) fn new(what: &'static str, error: &io::Error) -> Failure {
        Failure {
            what,
            kind: error.kind(),
            code: error.raw_os_error(),
            text: error.to_string(),
        }
    }

    pub(crate) fn error(&self) -> Error {
        let source = match self.code {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(self.kind, self.text.clone()),
        };
        Error::Io {
            what: self.what,
            source,
        }
    }
}
