//! Making a delta.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::patch::{self, deflated};
use super::{Delta, FORMAT, FRONT, Head, MAGIC, Place};
use crate::verified::Watcher;
use crate::{Digest, Error, Hasher, Kind, Sealed, Unverified, Written};

/// Larger files are not compared byte by byte: three times their size would be in memory.
const NEAR_MAX: u64 = 1 << 30;

/// What a file of the new bundle costs.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its path.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// `base`, `near` or `here`.
    pub place: &'static str,
    /// Its bytes in the delta.
    pub bytes: u64,
    /// Its bytes in the whole bundle, packed.
    pub packed: u64,
}

/// A delta that was written.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its length.
    pub length: u64,
    /// What a whole build has.
    pub whole: Written,
    /// Each file.
    pub files: Vec<Taken>,
}

impl Sealed {
    /// Writes the delta from `base`, which was verified, into the empty file `out`, and proves it by applying it.
    pub fn delta(
        &self,
        base: &Arc<Unverified>,
        out: &mut File,
        out_path: &Path,
        jobs: usize,
        watcher: &mut dyn Watcher,
    ) -> Result<Made, Error> {
        let by_digest: BTreeMap<(Digest, u64), &str> = base
            .manifest()
            .files
            .iter()
            .map(|file| ((file.sha256, file.size), file.path.as_str()))
            .collect();
        let manifest = self.manifest();
        let total = manifest.size();
        let mut done = 0;
        watcher.tell(done, total)?;
        // The bytes of the files are written first, behind room that is filled in at the end.
        let mut places = Vec::new();
        let body = tempfile_beside(out_path)?;
        let mut body_out = io::BufWriter::with_capacity(1 << 20, &body);
        let write = |out: &mut dyn Write, bytes: &[u8]| out.write_all(bytes).map_err(Error::io("write", out_path));
        for (index, file) in manifest.files.iter().enumerate() {
            let place = match by_digest.get(&(file.sha256, file.size)) {
                Some(path) => Place::Base((*path).to_owned()),
                None => {
                    let (place, streams) = self.place(index, base)?;
                    for stream in streams {
                        write(&mut body_out, &stream)?;
                    }
                    place
                }
            };
            places.push(place);
            done += file.size;
            watcher.tell(done, total)?;
        }
        body_out.flush().map_err(Error::io("write", out_path))?;
        drop(body_out);
        let whole = self.write(&mut io::sink(), out_path, jobs, watcher)?;
        let bundle_json = deflated(&manifest.to_bytes());
        let signature = self.signature().map(|signature| signature.bytes()).unwrap_or_default();
        let head = Head {
            base: base.id(),
            base_folder: base.manifest().folder(),
            bundle_json: bundle_json.len() as u64,
            files: places.clone(),
            sha256: whole.sha256,
            signature: signature.len() as u64,
            size: whole.size,
        };
        let head = serde_json::to_vec(&head).expect("a head holds nothing that JSON cannot");
        let mut sum = Hasher::new();
        let mut length = FRONT;
        write(out, &[0; FRONT as usize])?;
        for bytes in [&head[..], &bundle_json, signature] {
            sum.update(bytes);
            length += bytes.len() as u64;
            write(out, bytes)?;
        }
        let end = body.metadata().map_err(Error::io("read", out_path))?.len();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < end {
            let part = &mut buffer[..(end - at).min(1 << 20) as usize];
            body.read_exact_at(part, at).map_err(Error::io("read", out_path))?;
            sum.update(part);
            write(out, part)?;
            at += part.len() as u64;
        }
        length += end;
        let mut front = MAGIC.to_vec();
        front.extend_from_slice(&FORMAT.to_le_bytes());
        front.extend_from_slice(&(head.len() as u32).to_le_bytes());
        front.extend_from_slice(&sum.finish().0);
        out.write_all_at(&front, 0).map_err(Error::io("write", out_path))?;
        let packed = self.packed_sizes(&whole);
        let files = manifest
            .files
            .iter()
            .zip(&places)
            .zip(packed)
            .map(|((file, place), packed)| Taken {
                path: file.path.clone(),
                kind: file.kind,
                place: match place {
                    Place::Base(_) => "base",
                    Place::Here(_) => "here",
                    Place::Near { .. } => "near",
                },
                bytes: place.length(),
                packed,
            });
        Ok(Made {
            length,
            files: files.collect(),
            whole,
        })
    }

    /// Where the bytes of a file that is new come from, and what of them the delta holds.
    fn place(&self, index: usize, base: &Unverified) -> Result<(Place, Vec<Vec<u8>>), Error> {
        let file = &self.manifest().files[index];
        let new = self.bytes_of(index)?;
        let here = deflated(&new);
        let near = match base.manifest().file(&file.path) {
            Some(old) if old.kind == file.kind && old.size.max(file.size) <= NEAR_MAX => {
                let mut bytes = vec![0; old.size as usize];
                base.read_file(&file.path, 0, &mut bytes)?;
                Some(patch::make(&bytes, &new))
            }
            _ => None,
        };
        Ok(match near.filter(|near| near.length() < here.len()) {
            Some(near) => (
                Place::Near {
                    base: file.path.clone(),
                    control: near.control.len() as u64,
                    difference: near.difference.len() as u64,
                    extra: near.extra.len() as u64,
                },
                vec![near.control, near.difference, near.extra],
            ),
            None => (Place::Here(here.len() as u64), vec![here]),
        })
    }
}

/// A file without a name, on the file system of `path`.
pub(super) fn tempfile_beside(path: &Path) -> Result<File, Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::tempfile_in(folder).map_err(Error::io("make a file in", folder))
}

impl Delta {
    /// Whether `made` is what this delta says, for the one who made it.
    pub fn gives(&self, made: &Written) -> bool {
        (made.sha256, made.size) == (self.head.sha256, self.head.size)
    }
}
