//! An image out of an OCI layout: a folder with `oci-layout`, `index.json` and `blobs/`.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::image::{DOCUMENT_MAX, OS, check_digest, is_named, named_by};
use crate::wire::{Config, Descriptor, Index, LayoutMark, Manifest, is_index, is_manifest};
use crate::{Blob, Digest, Error, Image, Place, Reference};

/// How deep indexes may lie in one another.
const DEPTH_MAX: usize = 4;

/// Finds the image `name` for `architecture` in the layout. Where the layout names no image and holds one, it is that
/// one. Of an index with several platforms only the one for `architecture` is taken.
pub fn from_layout(path: &Path, name: &Reference, architecture: &str) -> Result<Image, Error> {
    let layout = Layout { path };
    let mark: LayoutMark = layout.parse("oci-layout", &layout.read(Path::new("oci-layout"))?)?;
    if mark.image_layout_version != "1.0.0" {
        return Err(layout.malformed(format!(
            "the layout has version {}, expected 1.0.0",
            mark.image_layout_version
        )));
    }
    let index: Index = layout.parse("index.json", &layout.read(Path::new("index.json"))?)?;
    let descriptor = layout.find(&index, name)?;
    let (descriptor, bytes) = layout.manifest_for(descriptor, name, architecture)?;
    check_digest(path, name, descriptor.digest)?;
    let manifest: Manifest = layout.parse("the manifest", &bytes)?;

    let config = layout.document(&manifest.config)?;
    let parsed: Config = layout.parse("the config", &config)?;
    if parsed.os != OS || parsed.architecture != architecture {
        return Err(layout.platform(name, format!("{}/{}", parsed.os, parsed.architecture), architecture));
    }
    let mut blobs = vec![Blob {
        digest: descriptor.digest,
        size: descriptor.size,
        place: Place::Bytes(bytes),
    }];
    for named in named_by(&manifest) {
        blobs.push(Blob {
            digest: named.digest,
            size: named.size,
            place: Place::File(layout.measured(named)?),
        });
    }
    Ok(Image {
        name: name.clone(),
        digest: descriptor.digest,
        media_type: descriptor.media_type,
        architecture: architecture.to_owned(),
        blobs,
    })
}

struct Layout<'a> {
    path: &'a Path,
}

impl Layout<'_> {
    fn malformed(&self, found: String) -> Error {
        Error::Malformed {
            path: self.path.into(),
            found,
        }
    }

    fn platform(&self, name: &Reference, found: String, architecture: &str) -> Error {
        let (path, name, expected) = (self.path.into(), name.to_string(), format!("{OS}/{architecture}"));
        Error::Platform {
            path,
            name,
            found,
            expected,
        }
    }

    fn parse<T: DeserializeOwned>(&self, what: &str, bytes: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes).map_err(|error| self.malformed(format!("{what} cannot be read: {error}")))
    }

    fn read(&self, name: &Path) -> Result<Vec<u8>, Error> {
        let path = self.path.join(name);
        let file = quantykube_base::open_regular(&path).map_err(Error::io(&path))?;
        let mut bytes = Vec::new();
        file.take(DOCUMENT_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io(&path))?;
        match bytes.len() as u64 > DOCUMENT_MAX {
            true => Err(self.malformed(format!("{} is longer than {DOCUMENT_MAX} bytes", name.display()))),
            false => Ok(bytes),
        }
    }

    fn find<'i>(&self, index: &'i Index, name: &Reference) -> Result<&'i Descriptor, Error> {
        let mut named = index
            .manifests
            .iter()
            .filter(|descriptor| descriptor.names().any(|found| is_named(found, name)));
        let anonymous = || match &index.manifests[..] {
            [only] if only.names().next().is_none() => Some(only),
            _ => None,
        };
        match (named.next(), named.next()) {
            (Some(_), Some(_)) => Err(self.malformed(format!("two images are named {name}"))),
            (Some(found), None) => Ok(found),
            (None, _) => anonymous().ok_or_else(|| {
                let names: Vec<&str> = index.manifests.iter().flat_map(Descriptor::names).collect();
                let found = match names.is_empty() {
                    true => format!("it holds {} images without a name", index.manifests.len()),
                    false => format!("it holds {}", names.join(", ")),
                };
                Error::NoSuchImage {
                    path: self.path.into(),
                    name: name.to_string(),
                    found,
                }
            }),
        }
    }

    /// Goes through indexes to the manifest for one platform.
    fn manifest_for(
        &self,
        descriptor: &Descriptor,
        name: &Reference,
        architecture: &str,
    ) -> Result<(Descriptor, Vec<u8>), Error> {
        let mut descriptor = descriptor.clone();
        for _ in 0..DEPTH_MAX {
            let bytes = self.document(&descriptor)?;
            if is_manifest(&descriptor.media_type) {
                return Ok((descriptor, bytes));
            }
            if !is_index(&descriptor.media_type) {
                return Err(self.malformed(format!("{name} has the media type {}", descriptor.media_type)));
            }
            let index: Index = self.parse("an index", &bytes)?;
            let platform = |d: &Descriptor| d.platform.clone();
            let fits = |d: &&Descriptor| platform(d).is_some_and(|p| p.os == OS && p.architecture == architecture);
            let Some(found) = index.manifests.iter().find(fits) else {
                let platforms = index.manifests.iter().filter_map(platform);
                let found: Vec<String> = platforms.map(|p| format!("{}/{}", p.os, p.architecture)).collect();
                return Err(self.platform(name, found.join(", "), architecture));
            };
            descriptor = found.clone();
        }
        Err(self.malformed(format!("{name} is an index in more than {DEPTH_MAX} others")))
    }

    fn blob(digest: Digest) -> PathBuf {
        Path::new("blobs/sha256").join(digest.hex())
    }

    /// A small blob, whole, compared with its descriptor.
    fn document(&self, descriptor: &Descriptor) -> Result<Vec<u8>, Error> {
        self.measured(descriptor)?;
        let bytes = self.read(&Self::blob(descriptor.digest))?;
        let found = Digest::of(&bytes);
        match found == descriptor.digest {
            true => Ok(bytes),
            false => Err(Error::Blob {
                path: self.path.into(),
                blob: descriptor.digest.to_string(),
                found: format!("has the digest {found}"),
            }),
        }
    }

    /// The path of a blob that is there and as long as its descriptor says.
    fn measured(&self, descriptor: &Descriptor) -> Result<PathBuf, Error> {
        let wrong = |found: String| Error::Blob {
            path: self.path.into(),
            blob: descriptor.digest.to_string(),
            found,
        };
        if !descriptor.urls.is_empty() {
            return Err(wrong(
                "is not distributed with the image, and a node could not fetch it".into(),
            ));
        }
        let path = self.path.join(Self::blob(descriptor.digest));
        let data = match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(wrong("is missing".into())),
            other => other.map_err(Error::io(&path))?,
        };
        if !data.is_file() || data.len() != descriptor.size {
            return Err(wrong(format!("has {} bytes, expected {}", data.len(), descriptor.size)));
        }
        Ok(path)
    }
}
