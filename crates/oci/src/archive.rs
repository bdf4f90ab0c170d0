//! Where the files of a tar archive lie in it. Nothing is unpacked.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The most entries that are read.
const ENTRIES_MAX: usize = 100_000;

enum Entry {
    File {
        offset: u64,
        size: u64,
    },
    /// To another name in the archive, already resolved.
    Link(String),
}

/// A tar archive and its table of files.
pub(crate) struct Archive {
    pub path: PathBuf,
    file: File,
    entries: BTreeMap<String, Entry>,
}

impl Archive {
    pub fn open(path: &Path) -> Result<Archive, Error> {
        let malformed = |found: &str| Error::Malformed {
            path: path.into(),
            found: found.into(),
        };
        let file = quantykube_base::open_regular(path).map_err(Error::io(path))?;
        let mut start = [0; 2];
        if file.read_exact_at(&mut start, 0).is_ok() && start == [0x1f, 0x8b] {
            return Err(malformed("the archive is compressed; unpack it with gunzip first"));
        }
        let mut entries = BTreeMap::new();
        let mut archive = tar::Archive::new(&file);
        for entry in archive.entries_with_seek().map_err(Error::io(path))? {
            let entry = entry.map_err(Error::io(path))?;
            if entries.len() >= ENTRIES_MAX {
                return Err(malformed("it has more than 100000 entries"));
            }
            let Some(name) = normal(&String::from_utf8_lossy(&entry.path_bytes())) else {
                return Err(malformed("an entry has a name that leads out of it"));
            };
            let found = match entry.header().entry_type() {
                tar::EntryType::Regular => Entry::File {
                    offset: entry.raw_file_position(),
                    size: entry.size(),
                },
                tar::EntryType::Symlink | tar::EntryType::Link => {
                    let target = entry.link_name_bytes().unwrap_or_default();
                    let target = String::from_utf8_lossy(&target).into_owned();
                    let hard = entry.header().entry_type() == tar::EntryType::Link;
                    let folder = if hard {
                        ""
                    } else {
                        name.rsplit_once('/').map_or("", |(folder, _)| folder)
                    };
                    match normal(&format!("{folder}/{target}")) {
                        Some(target) if !target.is_empty() => Entry::Link(target),
                        _ => return Err(malformed("a link in it leads out of it")),
                    }
                }
                _ => continue,
            };
            if entries.insert(name, found).is_some() {
                return Err(malformed("two entries have the same name"));
            }
        }
        Ok(Archive {
            path: path.into(),
            file,
            entries,
        })
    }

    /// Offset and size of a file; a link to a file is followed once.
    pub fn find(&self, name: &str) -> Option<(u64, u64)> {
        let at = |name: &str| match self.entries.get(name)? {
            Entry::File { offset, size } => Some(Ok((*offset, *size))),
            Entry::Link(target) => Some(Err(target.clone())),
        };
        match at(&normal(name)?)? {
            Ok(found) => Some(found),
            Err(target) => at(&target)?.ok(),
        }
    }

    /// The first bytes from `offset` on, which say whether something is compressed.
    pub fn start(&self, offset: u64) -> Result<[u8; 4], Error> {
        let mut start = [0; 4];
        match self.file.read_exact_at(&mut start, offset) {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(Error::io(&self.path)(error)),
            _ => Ok(start),
        }
    }

    /// A small file, whole.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let malformed = |found: String| Error::Malformed {
            path: self.path.clone(),
            found,
        };
        let Some((offset, size)) = self.find(name) else {
            return Err(malformed(format!("{name} is missing")));
        };
        if size > most {
            return Err(malformed(format!("{name} has {size} bytes, at most {most} are read")));
        }
        let mut bytes = vec![0; size as usize];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(Error::io(&self.path))?;
        Ok(bytes)
    }
}

/// A name without `.`, `..` and empty parts; `None` where it leads out.
fn normal(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn names_are_resolved_inside_the_archive() {
        assert_eq!(normal("a/../b//./c").as_deref(), Some("b/c"));
        assert_eq!(normal("x/../../etc/passwd"), None);
        assert_eq!(normal("a/../b.tar").as_deref(), Some("b.tar"));
    }
}
