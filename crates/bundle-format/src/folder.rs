//! Checking a folder that was extracted by whatever means.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::layout::{Body, Layout};
use crate::manifest::BUNDLE_JSON_MAX;
use crate::ordered::ordered;
use crate::signature::{self, KeyId, PublicKey, Signature};
use crate::verified::Watcher;
use crate::{BUNDLE_JSON, Digest, Error, Hasher, Manifest, SIGNATURE, Verified};

/// An extracted bundle whose `bundle.json` is well formed. What it says is not yet true.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    manifest: Manifest,
    layout: Layout,
    signature: Option<Signature>,
}

/// The bit by which everybody may write.
const OTHERS_WRITE: u32 = 0o002;

/// One file that must be in the folder.
struct Expected {
    size: u64,
    mode: u32,
    sha256: Digest,
}

impl Folder {
    /// Reads `bundle.json` and the signature, where there is one, and nothing else.
    pub fn open(root: &Path) -> Result<Folder, Error> {
        let path = root.join(BUNDLE_JSON);
        let missing = "it is missing: this is not the folder of a bundle".to_owned();
        let bytes = read(&path, BUNDLE_JSON_MAX)?.ok_or(Error::Folder { path, found: missing })?;
        let manifest = Manifest::parse(&bytes)?;
        let path = root.join(SIGNATURE);
        let signature = match read(&path, Signature::length(&manifest))? {
            Some(bytes) => Some(Signature::parse(&manifest, &bytes).map_err(|found| Error::Folder { path, found })?),
            None => None,
        };
        let layout = Layout::new(&manifest, signature.is_some())?;
        Ok(Folder {
            root: root.into(),
            manifest,
            layout,
            signature,
        })
    }

    /// What the folder claims to hold.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The id that the folder claims.
    pub fn id(&self) -> Digest {
        self.layout.id
    }

    /// The signature, where there is one. Who made it is a claim until [`Folder::check_signature`] says so.
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }

    /// Checks that the folder is signed with one of `keys`, and says with which. From then on all that `bundle.json` says
    /// is true, and what is left to check is whether the folder holds it.
    pub fn check_signature(&self, keys: &[PublicKey]) -> Result<KeyId, Error> {
        signature::check(&self.root, self.signature.as_ref(), &self.layout.sums, keys)
    }

    /// Checks that the folder holds exactly the bundle's files, each with its bytes and mode, and no link. `watcher`
    /// hears of the bytes that were read.
    pub fn verify(self, jobs: usize, watcher: &mut dyn Watcher) -> Result<Verified, Error> {
        let mut expected: BTreeMap<&str, Option<Expected>> = BTreeMap::new();
        for entry in &self.layout.entries {
            let sha256 = match entry.body {
                Body::Folder => {
                    expected.insert(&entry.path, None);
                    continue;
                }
                Body::Manifest => self.layout.id,
                Body::Sums => Digest::of(&self.layout.sums),
                Body::Signature => Digest::of(self.signature.as_ref().map_or(&[], Signature::bytes)),
                Body::File(index) => self.manifest.files[index].sha256,
            };
            let (size, mode) = (entry.size, entry.mode);
            expected.insert(&entry.path, Some(Expected { size, mode, sha256 }));
        }
        let mut missing: BTreeSet<String> = expected.keys().map(|path| (*path).to_owned()).collect();
        self.walk(Path::new(""), &expected, &mut missing)?;
        if let Some(path) = missing.into_iter().next() {
            return Err(self.wrong(&path, "it is missing"));
        }
        let files: Vec<(&str, &Expected)> = expected
            .iter()
            .filter_map(|(path, expected)| Some((*path, expected.as_ref()?)))
            .collect();
        let (total, mut done) = (files.iter().map(|(_, expected)| expected.size).sum(), 0);
        watcher.tell(done, total)?;
        let worker = || |index: usize| self.check_file(files[index].0, files[index].1);
        ordered(jobs, 1, files.len(), worker, |index, ()| {
            done += files[index].1.size;
            watcher.tell(done, total)
        })?;
        Ok(Verified {
            id: self.layout.id,
            root: Some(self.root),
            manifest: self.manifest,
        })
    }

    fn wrong(&self, path: &str, found: impl Into<String>) -> Error {
        Error::Folder {
            path: self.root.join(path),
            found: found.into(),
        }
    }

    /// Compares names and kinds; strikes what it finds off `missing`.
    fn walk(
        &self,
        folder: &Path,
        expected: &BTreeMap<&str, Option<Expected>>,
        missing: &mut BTreeSet<String>,
    ) -> Result<(), Error> {
        missing.remove(folder.to_str().unwrap_or_default());
        let full = self.root.join(folder);
        let mode = std::fs::metadata(&full).map_err(Error::io("read", &full))?.mode() & 0o7777;
        if mode & OTHERS_WRITE != 0 {
            let found = format!("its mode is {mode:04o}: everybody could put another file there");
            return Err(self.wrong(folder.to_str().unwrap_or_default(), found));
        }
        let mut found: Vec<_> = std::fs::read_dir(&full)
            .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
            .map_err(Error::io("read", &full))?;
        found.sort_by_key(|entry| entry.file_name());
        for entry in found {
            let path = folder.join(entry.file_name());
            let text = path.to_string_lossy().into_owned();
            let kind = entry.file_type().map_err(Error::io("read", entry.path()))?;
            match expected.get(text.as_str()) {
                None => return Err(self.wrong(&text, "it is not in the bundle")),
                Some(None) if kind.is_dir() => self.walk(&path, expected, missing)?,
                Some(Some(_)) if kind.is_file() => {
                    missing.remove(&text);
                }
                Some(_) if kind.is_symlink() => return Err(self.wrong(&text, "it is a symbolic link")),
                Some(None) => return Err(self.wrong(&text, "it must be a folder")),
                Some(Some(_)) => return Err(self.wrong(&text, "it must be a regular file")),
            }
        }
        Ok(())
    }

    fn check_file(&self, path: &str, expected: &Expected) -> Result<(), Error> {
        let full = self.root.join(path);
        let mut file = open_file(&full).map_err(Error::io("open", &full))?;
        let data = file.metadata().map_err(Error::io("read", &full))?;
        if !data.is_file() {
            return Err(self.wrong(path, "it must be a regular file"));
        }
        if data.len() != expected.size {
            return Err(self.wrong(path, format!("it has {} bytes, expected {}", data.len(), expected.size)));
        }
        // A umask may have taken bits from the others; what counts is whether its owner can run it, and no set-id bit.
        let (found, wanted) = (data.mode() & 0o7777, expected.mode);
        // And nobody else may write to what root is about to run.
        if found & (0o7000 | OTHERS_WRITE) != 0 || (found & 0o100) != (wanted & 0o100) {
            return Err(self.wrong(path, format!("its mode is {found:04o}, expected {wanted:04o}")));
        }
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        // One byte more than expected is enough to see that the file grew; the digest then differs.
        let mut left = expected.size + 1;
        while left > 0 {
            let part = buffer.len().min(left as usize);
            let read = file.read(&mut buffer[..part]).map_err(Error::io("read", &full))?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            left -= read as u64;
        }
        let found = hasher.finish();
        match found == expected.sha256 {
            true => Ok(()),
            false => Err(Error::Checksum {
                path: path.into(),
                found,
                expected: expected.sha256,
            }),
        }
    }
}

/// Reads a small file, which is no link; `None` where it is not there.
fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Error> {
    let wrong = |found: String| Error::Folder {
        path: path.into(),
        found,
    };
    let file = match open_file(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(wrong("it is a symbolic link".into()));
        }
        Err(source) => return Err(Error::io("open", path)(source)),
    };
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(Error::io("read", path))?;
    match bytes.len() as u64 > most {
        true => Err(wrong(format!("it is longer than {most} bytes"))),
        false => Ok(Some(bytes)),
    }
}

/// Opens a file that is no link and, should it be a pipe, does not wait for it.
fn open_file(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
}
