//! Blobs by their digests in a folder, as a layout has them: fetched for one build, or kept in a cache.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure, durable};
use quantykube_bundle_format::{Digest, Hasher};
use rustix::fs::FlockOperation;
use tempfile::{NamedTempFile, TempDir};

/// The folder of blobs in a store, as in an OCI layout.
const BLOBS: &str = "blobs/sha256";

/// How a blob is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    Missing,
    Damaged,
    Whole,
}

/// What a file is called that has no digest yet.
const NEW: &str = ".new-";

/// A folder of blobs. What is in it may be damaged: whoever packs a blob compares its digest.
#[derive(Debug)]
pub struct Contents {
    folder: PathBuf,
    /// What killed runs left was looked for once.
    swept: OnceCell<()>,
    /// The folder goes when this is dropped.
    temporary: Option<TempDir>,
}

impl Contents {
    /// A cache, which stays.
    pub fn cache(folder: &Path) -> Contents {
        Contents {
            folder: folder.into(),
            swept: OnceCell::new(),
            temporary: None,
        }
    }

    /// A folder for one build.
    pub fn temporary() -> Result<Contents, Failure> {
        let made = tempfile::Builder::new().prefix("quantykube-bundle-").tempdir();
        let made = made.map_err(|error| {
            Failure::new(Exit::Failed, "temporary", "cannot make a temporary folder").because(error)
        })?;
        Ok(Contents {
            folder: made.path().into(),
            swept: OnceCell::new(),
            temporary: Some(made),
        })
    }

    /// Where the folder is that holds `blobs/`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a blob is, or would be.
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(BLOBS).join(digest.to_string())
    }

    /// A file beside the blobs, to be kept or dropped.
    pub fn begin(&self) -> Result<NamedTempFile, Failure> {
        let folder = self.folder.join(BLOBS);
        let begin = || {
            fs::create_dir_all(&folder)?;
            self.swept.get_or_init(|| sweep(&folder));
            loop {
                let file = tempfile::Builder::new().prefix(NEW).tempfile_in(&folder)?;
                // Some file systems know no locks: there nothing is swept either.
                let _ = rustix::fs::flock(file.as_file(), FlockOperation::LockShared);
                // Between the two calls another run may have taken it for one that a killed run left.
                if file.path().exists() {
                    return Ok(file);
                }
            }
        };
        begin().map_err(|error: io::Error| self.cannot_write(error))
    }

    /// Gives a file that [`Contents::begin`] made and whose digest was compared its name.
    pub fn keep(&self, file: NamedTempFile, digest: Digest) -> Result<PathBuf, Failure> {
        let path = self.path(digest);
        let kept = file
            .as_file()
            .set_permissions(fs::Permissions::from_mode(0o644))
            .and_then(|()| match self.temporary {
                Some(_) => Ok(()),
                None => file.as_file().sync_all(),
            })
            .and_then(|()| file.persist(&path).map_err(|error| error.error))
            .and_then(|_| match self.temporary {
                Some(_) => Ok(()),
                None => durable::sync_parent(&path),
            });
        kept.map_err(|error| self.cannot_write(error)).map(|()| path)
    }

    /// Reads a blob and says how it is. Nothing is changed.
    pub fn state(&self, digest: Digest) -> Result<State, Failure> {
        let path = self.path(digest);
        let cannot = |error: io::Error| {
            Failure::new(Exit::Failed, "read", format!("cannot read {}", path.display())).because(error)
        };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Missing),
            Err(error) => return Err(cannot(error)),
        };
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer).map_err(cannot)? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            }
        }
        Ok(match hasher.finish() == digest {
            true => State::Whole,
            false => State::Damaged,
        })
    }

    /// Whether a blob is there and right. One that is not right is taken away, for no digest of it is true.
    pub fn is_whole(&self, digest: Digest) -> Result<bool, Failure> {
        let state = self.state(digest)?;
        if state == State::Damaged {
            fs::remove_file(self.path(digest)).map_err(|error| self.cannot_write(error))?;
        }
        Ok(state == State::Whole)
    }

    fn cannot_write(&self, error: io::Error) -> Failure {
        let exit = match error.kind() {
            io::ErrorKind::StorageFull => Exit::NoSpace,
            _ => Exit::Failed,
        };
        Failure::new(exit, "write", format!("cannot write into {}", self.folder.display())).because(error)
    }
}

/// Takes away what killed runs left half fetched: nobody holds a lock on it.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let new = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(NEW.as_bytes());
    for entry in entries.flatten().filter(new) {
        let Ok(file) = quantykube_base::open_regular(&entry.path()) else {
            continue;
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What cannot be taken away is in nobody's way.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_blob_that_is_damaged_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::cache(&folder.path().join("deep/cache"));
        let digest = Digest::of(b"bytes");
        assert!(!contents.is_whole(digest).unwrap());
        let mut file = contents.begin().unwrap();
        file.write_all(b"bytes").unwrap();
        let path = contents.keep(file, digest).unwrap();
        assert!(contents.is_whole(digest).unwrap());
        fs::write(&path, b"Bytes").unwrap();
        assert!(!contents.is_whole(digest).unwrap());
        assert!(!path.exists());
    }
    #[test]
    fn what_a_killed_run_left_goes_and_what_another_one_fetches_stays() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = folder.path().join(BLOBS);
        fs::create_dir_all(&blobs).unwrap();
        let left = blobs.join(".new-left");
        fs::write(&left, b"half").unwrap();
        let other = Contents::cache(folder.path()).begin().unwrap();
        assert!(!left.exists());
        let mine = Contents::cache(folder.path()).begin().unwrap();
        assert!(other.path().exists() && mine.path().exists());
    }
}
