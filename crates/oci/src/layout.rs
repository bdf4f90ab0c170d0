//! An image out of an OCI layout: a folder with `oci-layout`, `index.json` and `blobs/`; or out of its `blobs/` alone, by
//! the digest of its manifest or index.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::image::{DOCUMENT_MAX, OS, check_digest, is_named, named_by};
use crate::wire::{
    Config, Descriptor, Index, LayoutMark, Manifest, OCI_INDEX, OCI_MANIFEST, Shape, is_index, is_manifest,
};
use crate::{Blob, Digest, Error, Image, Place, Reference};

/// How deep indexes may lie in one another.
const DEPTH_MAX: usize = 4;

/// Finds the image `name` for `architecture` in the layout. Where the layout names no image and holds one, it is that
/// one. Of an index with several platforms only the one for `architecture` is taken.
pub fn from_layout(path: &Path, name: &Reference, architecture: &str) -> Result<Image, Error> {
    let layout = Layout { path, shown: path };
    let mark: LayoutMark = layout.parse("oci-layout", &layout.read(Path::new("oci-layout"))?)?;
    if mark.image_layout_version != "1.0.0" {
        return Err(layout.malformed(format!(
            "the layout has version {}, expected 1.0.0",
            mark.image_layout_version
        )));
    }
    let index: Index = layout.parse("index.json", &layout.read(Path::new("index.json"))?)?;
    let descriptor = layout.find(&index, name)?;
    layout.image(descriptor, name, architecture)
}

/// The image `name` for `architecture` whose manifest, or index, has the digest `root`. All its blobs lie in
/// `folder/blobs/sha256/`. Errors call it `shown`, for the folder says nothing to a user.
pub fn from_blobs(
    folder: &Path,
    shown: &str,
    root: Digest,
    name: &Reference,
    architecture: &str,
) -> Result<Image, Error> {
    let layout = Layout {
        path: folder,
        shown: Path::new(shown),
    };
    layout.image(&layout.root(root)?, name, architecture)
}

/// A blob that an image needs and that is not there, or not as long as it must be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missing {
    /// What its bytes must hash to.
    pub digest: Digest,
    /// Its length in bytes, as the document that names it says.
    pub size: u64,
    /// Whether it is a manifest or an index: registries keep those apart from other blobs.
    pub is_manifest: bool,
}

/// What is still missing in `folder/blobs/sha256/` of the image with the manifest or index `root`, which is there already.
/// Of an index that is the manifest for `architecture` alone, so that whoever fetches has to ask again until the answer
/// is empty. The arguments are those of [`from_blobs`].
pub fn missing(
    folder: &Path,
    shown: &str,
    root: Digest,
    name: &Reference,
    architecture: &str,
) -> Result<Vec<Missing>, Error> {
    let layout = Layout {
        path: folder,
        shown: Path::new(shown),
    };
    let mut descriptor = layout.root(root)?;
    for _ in 0..DEPTH_MAX {
        let bytes = layout.document(&descriptor)?;
        if is_manifest(&descriptor.media_type) {
            let manifest: Manifest = layout.parse("the manifest", &bytes)?;
            let mut seen = BTreeSet::new();
            let mut found = Vec::new();
            for named in named_by(&manifest).filter(|named| seen.insert(named.digest)) {
                layout.is_distributed(named)?;
                if !layout.is_there(named) {
                    found.push(Missing {
                        digest: named.digest,
                        size: named.size,
                        is_manifest: false,
                    });
                }
            }
            return Ok(found);
        }
        descriptor = layout.selected(&descriptor, &bytes, name, architecture)?;
        if !layout.is_there(&descriptor) {
            return Ok(vec![Missing {
                digest: descriptor.digest,
                size: descriptor.size,
                is_manifest: true,
            }]);
        }
    }
    Err(layout.too_deep(name))
}

struct Layout<'a> {
    path: &'a Path,
    /// What errors call it.
    shown: &'a Path,
}

impl Layout<'_> {
    fn malformed(&self, found: String) -> Error {
        Error::Malformed {
            path: self.shown.into(),
            found,
        }
    }

    fn too_deep(&self, name: &Reference) -> Error {
        self.malformed(format!("{name} is an index in more than {DEPTH_MAX} others"))
    }

    /// The image of a manifest, or of an index's manifest for `architecture`.
    fn image(&self, descriptor: &Descriptor, name: &Reference, architecture: &str) -> Result<Image, Error> {
        let (descriptor, bytes) = self.manifest_for(descriptor, name, architecture)?;
        check_digest(self.shown, name, descriptor.digest)?;
        let manifest: Manifest = self.parse("the manifest", &bytes)?;

        let config = self.document(&manifest.config)?;
        let parsed: Config = self.parse("the config", &config)?;
        if parsed.os != OS || parsed.architecture != architecture {
            return Err(self.platform(name, format!("{}/{}", parsed.os, parsed.architecture), architecture));
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
                place: Place::File(self.measured(named)?),
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

    /// A descriptor of a manifest or an index that is known by its digest alone: the document says itself what it is.
    fn root(&self, digest: Digest) -> Result<Descriptor, Error> {
        let bytes = self.read(&Self::blob(digest))?;
        let shape: Shape = self.parse("the manifest", &bytes)?;
        let media_type = match (shape.media_type, shape.manifests.is_some(), shape.config.is_some()) {
            (Some(media_type), ..) => media_type,
            (None, true, false) => OCI_INDEX.to_owned(),
            (None, false, true) => OCI_MANIFEST.to_owned(),
            _ => return Err(self.malformed(format!("{digest} is neither a manifest nor an index"))),
        };
        Ok(Descriptor {
            annotations: Default::default(),
            digest,
            media_type,
            platform: None,
            size: bytes.len() as u64,
            urls: Vec::new(),
        })
    }

    fn platform(&self, name: &Reference, found: String, architecture: &str) -> Error {
        let (path, name, expected) = (self.shown.into(), name.to_string(), format!("{OS}/{architecture}"));
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
                    path: self.shown.into(),
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
            descriptor = self.selected(&descriptor, &bytes, name, architecture)?;
        }
        Err(self.too_deep(name))
    }

    /// What an index names for the platform.
    fn selected(
        &self,
        descriptor: &Descriptor,
        bytes: &[u8],
        name: &Reference,
        architecture: &str,
    ) -> Result<Descriptor, Error> {
        if !is_index(&descriptor.media_type) {
            return Err(self.malformed(format!("{name} has the media type {}", descriptor.media_type)));
        }
        let index: Index = self.parse("an index", bytes)?;
        let platform = |d: &Descriptor| d.platform.clone();
        let fits = |d: &&Descriptor| platform(d).is_some_and(|p| p.os == OS && p.architecture == architecture);
        index.manifests.iter().find(fits).cloned().ok_or_else(|| {
            let platforms = index.manifests.iter().filter_map(platform);
            let found: Vec<String> = platforms.map(|p| format!("{}/{}", p.os, p.architecture)).collect();
            self.platform(name, found.join(", "), architecture)
        })
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
                path: self.shown.into(),
                blob: descriptor.digest.to_string(),
                found: format!("has the digest {found}"),
            }),
        }
    }

    /// The path of a blob that is there and as long as its descriptor says.
    fn measured(&self, descriptor: &Descriptor) -> Result<PathBuf, Error> {
        let wrong = |found: String| Error::Blob {
            path: self.shown.into(),
            blob: descriptor.digest.to_string(),
            found,
        };
        self.is_distributed(descriptor)?;
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

    /// Refuses a blob that is somewhere else.
    fn is_distributed(&self, descriptor: &Descriptor) -> Result<(), Error> {
        match descriptor.urls.is_empty() {
            true => Ok(()),
            false => Err(Error::Blob {
                path: self.shown.into(),
                blob: descriptor.digest.to_string(),
                found: "is not distributed with the image, and a node could not fetch it".into(),
            }),
        }
    }

    /// Whether a blob is there with the right length.
    fn is_there(&self, descriptor: &Descriptor) -> bool {
        let data = std::fs::metadata(self.path.join(Self::blob(descriptor.digest)));
        data.is_ok_and(|data| data.is_file() && data.len() == descriptor.size)
    }
}
