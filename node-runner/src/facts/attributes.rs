//! What keeps a file from being moved: attributes of its file system, links, and folders on different file systems.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, Mode, OFlags};

use crate::facts::Root;

/// A file or folder that stands fast, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fast {
    /// Where.
    pub path: PathBuf,
    /// Why.
    pub why: Why,
}

/// Why something cannot be moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// `chattr +i`: nothing about it can be changed, and nothing in the folder.
    Immutable,
    /// `chattr +a`: it can only grow.
    AppendOnly,
    /// It is a symbolic link: renaming moves the link, and editing would change a file elsewhere.
    Link,
    /// The folder beside it, where it would wait, is on another file system.
    OtherFileSystem,
}

/// What keeps a manifest from being taken out of `folder` and put back.
pub fn of_manifest(root: &Root, folder: &Path, manifest: &str, waiting: &Path) -> Vec<Fast> {
    let path = folder.join(manifest);
    let mut found = Vec::new();
    let mut push = |path: &Path, why| {
        found.push(Fast {
            path: path.to_owned(),
            why,
        })
    };
    if root.at(&path).symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
        push(&path, Why::Link);
    }
    let existing = nearest(root, waiting);
    for place in [path.as_path(), folder, existing.as_path()] {
        if let Some(why) = of(root, place) {
            push(place, why);
        }
    }
    let device = |path: &Path| fs::metadata(root.at(path)).map(|meta| meta.dev()).ok();
    if device(folder) != device(&existing) {
        push(&existing, Why::OtherFileSystem);
    }
    found
}

/// What its file system says of one file or folder. `None` where it says nothing.
pub fn of(root: &Root, path: &Path) -> Option<Why> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(root.at(path), flags, Mode::empty()).ok()?;
    // Not every file system knows attributes: that is an answer, too.
    let attributes = rustix::fs::ioctl_getflags(&file).ok()?;
    if attributes.contains(IFlags::IMMUTABLE) {
        Some(Why::Immutable)
    } else if attributes.contains(IFlags::APPEND) {
        Some(Why::AppendOnly)
    } else {
        None
    }
}

/// The path itself, or the nearest folder above it that exists.
pub fn nearest(root: &Root, path: &Path) -> PathBuf {
    let exists = |path: &&Path| root.at(path).exists();
    path.ancestors().find(exists).unwrap_or(Path::new("/")).to_owned()
}
