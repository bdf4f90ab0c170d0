//! What was checked, and how the caller follows the checking.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::{Digest, Error, FileEntry, Manifest};

/// A bundle of which every bit was checked. Nothing else makes this type.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) manifest: Manifest,
    pub(crate) id: Digest,
    pub(crate) root: Option<PathBuf>,
}

impl Verified {
    /// The bundle's id: the digest of `bundle.json`.
    pub fn id(&self) -> Digest {
        self.id
    }

    /// What the bundle holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The folder with the files; `None` where an archive was checked without writing anything.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The entry of one file, by its path in the bundle's folder.
    pub fn file(&self, path: &str) -> Option<&FileEntry> {
        self.manifest.file(path)
    }
}

/// Follows a long piece of work. Every `FnMut(done, total)` is one that never stops it.
pub trait Watcher {
    /// `done` of `total` bytes are done. [`ControlFlow::Break`] ends the work with [`Error::Stopped`].
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()>;
}

impl<F: FnMut(u64, u64)> Watcher for F {
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        self(done, total);
        ControlFlow::Continue(())
    }
}

impl dyn Watcher + '_ {
    pub(crate) fn tell(&mut self, done: u64, total: u64) -> Result<(), Error> {
        match self.progress(done, total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}
