//! Making a bundle of its base and a delta.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::DeflateDecoder;

use super::make::tempfile_beside;
use super::{Delta, Place, patch};
use crate::gzip::CUT;
use crate::tar::BLOCK;
use crate::verified::Watcher;
use crate::{Content, Digest, Error, Hasher, Manifest, Sealed, Unverified, Verified, Written};

/// The older bundle, verified.
#[derive(Clone, Debug)]
pub enum Base {
    /// The bundle itself. Whoever makes this has verified it.
    Archive(Arc<Unverified>),
    /// The folder that was extracted from it.
    Folder(Verified),
}

impl Base {
    /// Its id.
    pub fn id(&self) -> Digest {
        match self {
            Base::Archive(archive) => archive.id(),
            Base::Folder(folder) => folder.id(),
        }
    }

    fn manifest(&self) -> &Manifest {
        match self {
            Base::Archive(archive) => archive.manifest(),
            Base::Folder(folder) => folder.manifest(),
        }
    }

    /// A file that is read here and there: out of an archive each reading would inflate a whole member.
    fn at_hand(&self, path: &str, size: u64, beside: &Path) -> Result<Content, Error> {
        let Base::Archive(archive) = self else {
            return Ok(self.content(path));
        };
        let file = tempfile_beside(beside)?;
        let mut buffer = vec![0; CUT as usize];
        let mut at = 0;
        while at < size {
            // Each reading ends where a member does.
            let part = &mut buffer[..(CUT - (at + BLOCK) % CUT).min(size - at) as usize];
            archive.read_file(path, at, part)?;
            file.write_all_at(part, at).map_err(Error::io("write", beside))?;
            at += part.len() as u64;
        }
        Ok(Content::Open {
            file: Arc::new(file),
            name: path.into(),
        })
    }

    fn content(&self, path: &str) -> Content {
        match self {
            Base::Archive(archive) => Content::Entry {
                archive: Arc::clone(archive),
                path: path.into(),
            },
            Base::Folder(folder) => Content::File(folder.root().expect("a folder has a root").join(path)),
        }
    }
}

impl Delta {
    /// Packs the new bundle into `out`. What is not in the base as it is goes through files without a name beside
    /// `out_path`. An error where what was packed is not, byte for byte, what a whole build gives.
    pub fn apply(
        &self,
        base: &Base,
        out: &mut dyn Write,
        out_path: &Path,
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<Written, Error> {
        if base.id() != self.head.base {
            return Err(self.wrong(format!(
                "it starts from {} with the id {}, and the base has the id {}",
                self.head.base_folder,
                self.head.base,
                base.id()
            )));
        }
        let mut contents = Vec::new();
        let mut at = self.start;
        for (index, place) in self.head.files.iter().enumerate() {
            contents.push(match place {
                Place::Base(path) => {
                    let wanted = &self.manifest.files[index];
                    match base.manifest().file(path) {
                        Some(old) if (old.sha256, old.size) == (wanted.sha256, wanted.size) => base.content(path),
                        _ => {
                            return Err(self.wrong(format!("the base has no {path} with the bytes of {}", wanted.path)));
                        }
                    }
                }
                _ => Content::Open {
                    file: Arc::new(self.rebuild(index, at, base, out_path)?),
                    name: PathBuf::from(&self.manifest.files[index].path),
                },
            });
            at += place.length();
        }
        let sealed = Sealed::rebuilt(self.manifest.clone(), self.signature.clone(), contents)?;
        let written = sealed.write(out, out_path, jobs, watcher)?;
        match self.gives(&written) {
            true => Ok(written),
            false => Err(self.wrong(format!(
                "the bundle that comes out has the sha256 {}, expected {}: this program packs the same files in another \
                 way than the one that made the delta; use the version that made it",
                written.sha256, self.head.sha256
            ))),
        }
    }

    fn wrong(&self, found: String) -> Error {
        Error::Delta {
            path: self.path.clone(),
            found,
        }
    }

    /// One file that is not in the base as it is, with its digest checked.
    fn rebuild(&self, index: usize, at: u64, base: &Base, out_path: &Path) -> Result<File, Error> {
        let file = &self.manifest.files[index];
        let unnamed = tempfile_beside(out_path)?;
        let mut buffered = io::BufWriter::with_capacity(1 << 20, &unnamed);
        let (mut sum, mut length) = (Hasher::new(), 0);
        let mut take = |bytes: &[u8]| {
            sum.update(bytes);
            length += bytes.len() as u64;
            buffered.write_all(bytes)
        };
        let made = match &self.head.files[index] {
            Place::Base(_) => unreachable!("the caller takes what is in the base"),
            Place::Here(deflated) => self.inflate(at, *deflated, file.size, &mut take),
            Place::Near {
                base: path,
                control,
                difference,
                extra,
            } => {
                let old = match base.manifest().file(path) {
                    Some(old) => old.size,
                    None => return Err(self.wrong(format!("the base has no {path}"))),
                };
                let content = base.at_hand(path, old, out_path)?;
                let read = |at: u64, out: &mut [u8]| match at.checked_add(out.len() as u64) {
                    Some(end) if end <= old => content.read_at(at, out).map_err(io::Error::other),
                    _ => Err(io::Error::other("it reads beyond the old file")),
                };
                patch::apply(
                    &read,
                    self.stream(at, *control),
                    self.stream(at + control, *difference),
                    self.stream(at + control + difference, *extra),
                    file.size,
                    &mut take,
                )
            }
        };
        made.and_then(|()| buffered.flush())
            .map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull => Error::io("write", out_path)(error),
                _ => self.wrong(format!("{}: {error}", file.path)),
            })?;
        drop(buffered);
        let found = sum.finish();
        match found == file.sha256 && length == file.size {
            true => Ok(unnamed),
            false => Err(Error::Checksum {
                path: file.path.clone(),
                found,
                expected: file.sha256,
            }),
        }
    }

    fn inflate(
        &self,
        at: u64,
        deflated: u64,
        size: u64,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        // One byte more is enough to see that it is longer.
        let mut from = DeflateDecoder::new(self.stream(at, deflated)).take(size + 1);
        let mut buffer = vec![0; 1 << 16];
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(()),
                length => take(&buffer[..length])?,
            }
        }
    }

    fn stream(&self, at: u64, length: u64) -> impl Read + '_ {
        io::BufReader::with_capacity(
            1 << 16,
            Stream {
                file: &self.file,
                at,
                end: at + length,
            },
        )
    }
}

/// A row of bytes of a file.
struct Stream<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min((self.end - self.at) as usize);
        let read = self.file.read_at(&mut out[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
