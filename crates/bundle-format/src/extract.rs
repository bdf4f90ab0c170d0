//! Extraction: into a new folder, checked while it is written, given its name only when all of it was right.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};

use crate::layout::{Body, Entry};
use crate::verified::Watcher;
use crate::verify::Sink;
use crate::{Error, Unverified, Verified};

impl Unverified {
    /// Extracts into the new folder `into/NAME-VERSION-linux-ARCHITECTURE`, whatever the umask. `into` is made where it
    /// is missing. After an error nothing of it is left.
    pub fn extract(&self, into: &Path, jobs: usize, watcher: &mut dyn Watcher) -> Result<Verified, Error> {
        let root = self.extract_into(into, None, jobs, watcher)?;
        Ok(Verified {
            manifest: self.manifest.clone(),
            id: self.layout.id,
            root: Some(root),
        })
    }

    /// Extracts the entries `paths` (of a folder: all in it) as [`Unverified::extract`] does, and reads no others. Each
    /// file has the digest that `bundle.json` gives; whether `bundle.json` is the right one, the id or the signature
    /// says. Returns the folder that was made.
    pub fn extract_some(
        &self,
        into: &Path,
        paths: &[String],
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<PathBuf, Error> {
        let mut wanted = BTreeSet::new();
        for path in paths {
            let path = path.strip_suffix('/').unwrap_or(path);
            let inside = format!("{path}/");
            let entries = || self.layout.entries.iter().enumerate();
            let named = |entry: &Entry| !path.is_empty() && (entry.path == path || entry.path.starts_with(&inside));
            let found: Vec<usize> = entries().filter(|(_, e)| named(e)).map(|(index, _)| index).collect();
            if found.is_empty() {
                return Err(Error::NoEntry { path: path.into() });
            }
            let above = |entry: &Entry| entry.body == Body::Folder && path.starts_with(&format!("{}/", entry.path));
            wanted.extend(
                entries()
                    .filter(|(_, e)| e.path.is_empty() || above(e))
                    .map(|(index, _)| index),
            );
            wanted.extend(found);
        }
        self.extract_into(into, Some(&wanted), jobs, watcher)
    }

    /// Extracts all entries, or those that are wanted.
    fn extract_into(
        &self,
        into: &Path,
        wanted: Option<&BTreeSet<usize>>,
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<PathBuf, Error> {
        let target = into.join(self.manifest.folder());
        let made = match std::fs::create_dir(into) {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(source) => {
                return Err(Error::Io {
                    action: "make",
                    path: into.into(),
                    source,
                });
            }
        };
        let result = self.extract_to(into, &target, wanted, jobs, watcher);
        if result.is_err() && made {
            let _ = std::fs::remove_dir(into);
        }
        result.map(|()| target)
    }

    fn extract_to(
        &self,
        into: &Path,
        target: &Path,
        wanted: Option<&BTreeSet<usize>>,
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<(), Error> {
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(Error::Target {
                path: target.into(),
                found: "is there already",
            });
        }
        self.check_space(into, wanted)?;
        let mut staging = Staging::make(into, &self.manifest.folder())?;
        let mut writer = Writer {
            root: &staging.folder,
            root_path: &staging.path,
            open: None,
        };
        match wanted {
            Some(wanted) => self.check_some(wanted, jobs, watcher, &mut writer)?,
            None => self.check(jobs, watcher, &mut writer)?,
        }
        rustix::fs::syncfs(&staging.folder).map_err(|e| Error::io("sync", &staging.path)(e.into()))?;
        // Never onto something that appeared meanwhile.
        rustix::fs::renameat_with(CWD, &staging.path, CWD, target, RenameFlags::NOREPLACE)
            .map_err(|e| Error::io("rename to", target)(e.into()))?;
        staging.renamed = true;
        File::open(into)
            .and_then(|folder| folder.sync_all())
            .map_err(Error::io("sync", into))?;
        Ok(())
    }

    fn check_space(&self, into: &Path, wanted: Option<&BTreeSet<usize>>) -> Result<(), Error> {
        let space = rustix::fs::statvfs(into).map_err(|e| Error::io("read", into)(e.into()))?;
        let available = space.f_bavail.saturating_mul(space.f_frsize);
        let block = space.f_frsize.max(1);
        let needed = self
            .layout
            .entries
            .iter()
            .enumerate()
            .filter(|(index, _)| wanted.is_none_or(|wanted| wanted.contains(index)))
            .map(|(_, entry)| entry.size.next_multiple_of(block))
            .sum();
        match available < needed {
            true => Err(Error::NoSpace {
                path: into.into(),
                available,
                needed,
            }),
            false => Ok(()),
        }
    }
}

/// The folder under its temporary name. Dropped under that name, it is removed.
struct Staging {
    path: PathBuf,
    folder: OwnedFd,
    /// From then on the temporary name may be another extraction's.
    renamed: bool,
}

impl Staging {
    fn make(into: &Path, name: &str) -> Result<Staging, Error> {
        let path = into.join(format!(".{name}.quantykube-new"));
        let failed = |action| {
            let path = path.clone();
            move |error: rustix::io::Errno| Error::Io {
                action,
                path,
                source: error.into(),
            }
        };
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, Mode::empty()).map_err(failed("open"))
        };
        let lock = |folder: &OwnedFd| {
            rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::Target {
                path: path.clone(),
                found: "is being written by another extraction",
            })
        };
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => {}
            // What a killed extraction left: nobody holds its lock.
            Err(rustix::io::Errno::EXIST) => {
                lock(&open()?)?;
                std::fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
                rustix::fs::mkdir(&path, Mode::RWXU).map_err(failed("make"))?;
            }
            Err(error) => return Err(failed("make")(error)),
        }
        let folder = open()?;
        lock(&folder)?;
        Ok(Staging {
            path,
            folder,
            renamed: false,
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes entries below one folder. Every part of a path is opened without following links.
struct Writer<'a> {
    root: &'a OwnedFd,
    root_path: &'a Path,
    open: Option<(File, PathBuf)>,
}

impl Writer<'_> {
    fn parent(&self, path: &str) -> Result<(OwnedFd, String), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = self.root.try_clone().map_err(Error::io("open", self.root_path))?;
        let (parents, name) = match path.rsplit_once('/') {
            Some((parents, name)) => (parents, name),
            None => ("", path),
        };
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            folder = rustix::fs::openat(&folder, part, flags, Mode::empty())
                .map_err(|e| Error::io("open", self.root_path.join(parents))(e.into()))?;
        }
        Ok((folder, name.to_owned()))
    }
}

impl Sink for Writer<'_> {
    fn begin(&mut self, entry: &Entry) -> Result<(), Error> {
        let path = self.root_path.join(&entry.path);
        let mode = Mode::from_raw_mode(entry.mode);
        let failed = |action| {
            let path = path.clone();
            move |error: rustix::io::Errno| Error::Io {
                action,
                path,
                source: error.into(),
            }
        };
        if entry.path.is_empty() {
            return rustix::fs::fchmod(self.root, mode).map_err(failed("set the mode of"));
        }
        let (parent, name) = self.parent(&entry.path)?;
        if entry.body == Body::Folder {
            rustix::fs::mkdirat(&parent, &name, Mode::RWXU).map_err(failed("make"))?;
            // The folder was just made in one that is ours alone.
            return rustix::fs::chmodat(&parent, &name, mode, AtFlags::empty()).map_err(failed("set the mode of"));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &name, flags, Mode::RUSR | Mode::WUSR).map_err(failed("make"))?;
        rustix::fs::fchmod(&file, mode).map_err(failed("set the mode of"))?;
        self.open = Some((File::from(file), path));
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.open {
            Some((file, path)) => file.write_all(bytes).map_err(Error::io("write", &*path)),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.open = None;
        Ok(())
    }
}
