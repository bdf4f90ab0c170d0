//! A delta: what makes a bundle of an older one.
//!
//! It holds the new `bundle.json`, the signature, and of every file where its bytes are: in a file of the base, near one,
//! or here. The archive is then packed anew, which gives the same bytes: packing makes no choice by the machine. That it
//! did is proven by the digest of the whole. `docs/bundle.md` draws the bytes.

mod apply;
mod diff;
mod make;
mod patch;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::manifest::BUNDLE_JSON_MAX;
use crate::read::open_file;
use crate::signature::Signature;
use crate::verified::Watcher;
use crate::{Digest, Error, Hasher, KeyId, Manifest, PublicKey, signature};

pub use apply::Base;
pub use make::{Made, Taken};

const MAGIC: &[u8; 16] = b"quantykube-delta";
/// The newest format of deltas.
const FORMAT: u32 = 1;
/// Magic, format, length of the head, digest of all after it.
const FRONT: u64 = 16 + 4 + 4 + 32;

/// What a delta says first, as canonical JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Head {
    /// The id of the bundle it starts from.
    base: Digest,
    /// Its folder, for people.
    base_folder: String,
    /// The length of the new `bundle.json`, deflated.
    bundle_json: u64,
    /// Of each file of the new bundle, in its order, where its bytes are.
    files: Vec<Place>,
    /// The digest of the whole new bundle.
    sha256: Digest,
    /// The length of the signature; 0 without one.
    signature: u64,
    /// The length of the whole new bundle.
    size: u64,
}

/// Where the bytes of a file are.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum Place {
    /// In this file of the base, as they are.
    Base(String),
    /// In the delta, deflated, that many bytes.
    Here(u64),
    /// Near those of a file of the base.
    Near {
        /// Its path.
        base: String,
        /// The lengths of the three streams.
        control: u64,
        difference: u64,
        extra: u64,
    },
}

impl Place {
    /// The bytes of the delta.
    fn length(&self) -> u64 {
        match self {
            Place::Base(_) => 0,
            Place::Here(length) => *length,
            // A sum that is too large is refused with the file's length.
            Place::Near {
                control,
                difference,
                extra,
                ..
            } => control.saturating_add(*difference).saturating_add(*extra),
        }
    }
}

/// A delta whose own checksum is right. That it fits its base is proven when it is applied.
#[derive(Debug)]
pub struct Delta {
    path: PathBuf,
    file: File,
    head: Head,
    manifest: Manifest,
    signature: Option<Signature>,
    /// Where the bytes of the first file begin.
    start: u64,
    length: u64,
}

impl Delta {
    /// Reads all of it once and checks its checksum.
    pub fn open(path: &Path, watcher: &mut dyn Watcher) -> Result<Delta, Error> {
        let wrong = |found: String| Error::Delta {
            path: path.into(),
            found,
        };
        let file = open_file(path)?;
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        let read = |at: u64, length: u64| {
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, at)
                .map(|()| bytes)
                .map_err(Error::io("read", path))
        };
        if length < FRONT {
            return Err(wrong(format!("it has {length} bytes: it is no delta, or truncated")));
        }
        let front = read(0, FRONT)?;
        if front[..16] != *MAGIC {
            return Err(wrong("it does not begin as a delta".into()));
        }
        let word = |at: usize| u32::from_le_bytes(front[at..at + 4].try_into().expect("four bytes"));
        if word(16) > FORMAT {
            let (found, known) = (word(16).into(), FORMAT.into());
            return Err(Error::NewerFile {
                path: path.into(),
                found,
                known,
            });
        }
        let expected = Digest(front[24..56].try_into().expect("thirty-two bytes"));
        let mut sum = Hasher::new();
        let mut at = FRONT;
        watcher.tell(at, length)?;
        while at < length {
            let part = read(at, (length - at).min(1 << 20))?;
            sum.update(&part);
            at += part.len() as u64;
            watcher.tell(at, length)?;
        }
        if word(16) != FORMAT || sum.finish() != expected {
            return Err(wrong(
                "it is damaged or truncated: its bytes do not have the checksum that it says".into(),
            ));
        }
        let head_length = u64::from(word(20));
        if head_length > BUNDLE_JSON_MAX || FRONT + head_length > length {
            return Err(wrong(format!("its head cannot have {head_length} bytes")));
        }
        let bytes = read(FRONT, head_length)?;
        let head: Head = serde_json::from_slice(&bytes).map_err(|error| wrong(format!("its head: {error}")))?;
        let mut start = FRONT + head_length;
        let fits = |at: u64, size: u64| at.checked_add(size).is_some_and(|end| end <= length);
        if !fits(start, head.bundle_json) || !fits(start + head.bundle_json, head.signature) {
            return Err(wrong("its lengths go beyond its end".into()));
        }
        let bundle_json =
            inflate(&read(start, head.bundle_json)?).map_err(|error| wrong(format!("bundle.json: {error}")))?;
        start += head.bundle_json;
        let manifest = Manifest::parse(&bundle_json)?;
        let signature = match head.signature {
            0 => None,
            size if size != Signature::length(&manifest) => {
                return Err(wrong(format!("a signature of {size} bytes cannot be")));
            }
            size => Some(Signature::parse(&manifest, &read(start, size)?).map_err(wrong)?),
        };
        start += head.signature;
        if head.files.len() != manifest.files.len() {
            let (found, expected) = (head.files.len(), manifest.files.len());
            return Err(wrong(format!("it has {found} files, bundle.json {expected}")));
        }
        let mut end = start;
        for place in &head.files {
            end = end.saturating_add(place.length());
        }
        if end != length {
            return Err(wrong(format!("its files end at byte {end}, it has {length}")));
        }
        Ok(Delta {
            path: path.into(),
            file,
            head,
            manifest,
            signature,
            start,
            length,
        })
    }

    /// The id of the bundle that it starts from.
    pub fn base(&self) -> Digest {
        self.head.base
    }

    /// The name and version of that bundle, for people.
    pub fn base_folder(&self) -> &str {
        &self.head.base_folder
    }

    /// The id of the bundle that it makes.
    pub fn id(&self) -> Digest {
        self.manifest.id()
    }

    /// The digest of the whole bundle that it makes.
    pub fn sha256(&self) -> Digest {
        self.head.sha256
    }

    /// The length of the bundle that it makes.
    pub fn size(&self) -> u64 {
        self.head.size
    }

    /// Its own length.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What the bundle that it makes holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The signature of the bundle that it makes.
    pub fn signature(&self) -> Option<&Signature> {
        self.signature.as_ref()
    }

    /// Checks that the bundle that it makes is signed with one of `keys`.
    pub fn check_signature(&self, keys: &[PublicKey]) -> Result<KeyId, Error> {
        let sums = crate::sums::sums(&self.manifest, self.id());
        signature::check(&self.path, self.signature.as_ref(), &sums, keys)
    }
}

/// A `bundle.json`, with a bound on its length.
fn inflate(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut out = Vec::new();
    flate2::read::DeflateDecoder::new(bytes)
        .take(BUNDLE_JSON_MAX + 1)
        .read_to_end(&mut out)?;
    match out.len() as u64 > BUNDLE_JSON_MAX {
        true => Err(std::io::Error::other(format!(
            "it has more than {BUNDLE_JSON_MAX} bytes"
        ))),
        false => Ok(out),
    }
}
