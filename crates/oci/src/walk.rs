//! A layout inside something that was verified already: every descriptor walked, from `index.json` to the last layer.
//!
//! Who verified the layout's files knows the digest and the length of each; what is left to see is whether the documents
//! of the layout name these files, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::image::{DOCUMENT_MAX, named_by};
use crate::wire::{CONTAINERD_NAME, Descriptor, Index, LayoutMark, Manifest, is_index, is_manifest};
use crate::{Digest, Error};

/// How deep indexes may lie in one another below `index.json`.
const DEPTH_MAX: usize = 4;
/// How many descriptors are walked: far more than a bundle can hold files.
const DESCRIPTORS_MAX: usize = 100_000;
/// How many bytes of documents are read, those that several images name each time.
const BYTES_MAX: u64 = 256 << 20;

/// A file of the layout, as it was verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Held {
    /// What its bytes hash to.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
}

/// The files of a layout, by their paths in it, as `index.json`.
pub trait Files {
    /// What is known of a file; `None` where there is none.
    fn held(&self, path: &str) -> Option<Held>;
    /// The bytes of a file that has at most [`DOCUMENT_MAX`] of them.
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>>;
}

/// An image of a layout.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The name by which containerd knows it.
    pub name: String,
    /// What the name stands for: a manifest, or an index.
    pub digest: Digest,
    /// Every blob it is made of, by digest, with its length in bytes.
    pub blobs: BTreeMap<Digest, u64>,
    /// Its line of `index.json`.
    pub(crate) descriptor: Descriptor,
}

/// Where a blob is in a layout.
pub(crate) fn blob_path(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Walks every descriptor of a layout and gives its images, in the order of `index.json`. `shown` is what errors call it.
///
/// # Errors
/// [`Error::Blob`] where a descriptor names a blob that is not there or that has another digest or length;
/// [`Error::Malformed`] where a document is none, lies too deep, or has no name for an image.
pub fn walk(shown: &Path, files: &dyn Files) -> Result<Vec<Listed>, Error> {
    let mut walk = Walk {
        shown,
        files,
        descriptors: 0,
        bytes: 0,
    };
    let mark: LayoutMark = walk.read("oci-layout")?;
    if mark.image_layout_version != "1.0.0" {
        let found = mark.image_layout_version.chars().take(40).collect::<String>();
        return Err(walk.malformed(format!("the layout has version {found:?}, expected 1.0.0")));
    }
    let index: Index = walk.read("index.json")?;
    let mut names = BTreeSet::new();
    let mut found = Vec::new();
    for descriptor in index.manifests {
        let Some(name) = descriptor.annotations.get(CONTAINERD_NAME).cloned() else {
            return Err(walk.malformed(format!(
                "index.json names {} without the annotation {CONTAINERD_NAME}",
                descriptor.digest
            )));
        };
        if !names.insert(name.clone()) {
            return Err(walk.malformed(format!("index.json names two images {name:?}")));
        }
        let mut image = Listed {
            name,
            digest: descriptor.digest,
            blobs: BTreeMap::new(),
            descriptor: descriptor.clone(),
        };
        walk.descend(&descriptor, 0, &mut image.blobs, &mut BTreeSet::new())?;
        found.push(image);
    }
    Ok(found)
}

/// Compares a layout with what is said of it elsewhere: `images` are names and digests, each name once.
///
/// # Errors
/// [`Error::Malformed`], which names the first image that is only in one of the two, or there with another digest.
pub fn compare<'a>(
    shown: &Path,
    listed: &[Listed],
    images: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), Error> {
    let wrong = |found: String| Error::Malformed {
        path: shown.into(),
        found,
    };
    let mut left: BTreeMap<&str, Digest> = listed.iter().map(|image| (image.name.as_str(), image.digest)).collect();
    for (name, digest) in images {
        match left.remove(name) {
            None => return Err(wrong(format!("index.json does not name the image {name}"))),
            Some(found) if found.to_string() != digest => {
                return Err(wrong(format!(
                    "index.json names {found} for the image {name}, expected {digest}"
                )));
            }
            Some(_) => {}
        }
    }
    match left.into_keys().next() {
        Some(name) => Err(wrong(format!("index.json names {name:?}, which nothing else does"))),
        None => Ok(()),
    }
}

struct Walk<'a> {
    shown: &'a Path,
    files: &'a dyn Files,
    /// How many were seen.
    descriptors: usize,
    /// Of documents, how many were read.
    bytes: u64,
}

impl Walk<'_> {
    fn malformed(&self, found: String) -> Error {
        Error::Malformed {
            path: self.shown.into(),
            found,
        }
    }

    /// A document, parsed.
    fn read<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, Error> {
        let held = self
            .files
            .held(path)
            .ok_or_else(|| self.malformed(format!("{path} is missing")))?;
        if held.size > DOCUMENT_MAX {
            return Err(self.malformed(format!("{path} is longer than {DOCUMENT_MAX} bytes")));
        }
        self.bytes += held.size;
        if self.bytes > BYTES_MAX {
            return Err(self.malformed(format!("its documents take more than {BYTES_MAX} bytes to read")));
        }
        let bytes = self.files.read(path).map_err(Error::io(self.shown.join(path)))?;
        if Digest::of(&bytes) != held.digest {
            return Err(self.malformed(format!("{path} changed while it was read")));
        }
        serde_json::from_slice(&bytes).map_err(|error| self.malformed(format!("{path} cannot be read: {error}")))
    }

    /// The blob that a descriptor names is there, with its digest and its length.
    fn look(&mut self, descriptor: &Descriptor) -> Result<(), Error> {
        self.descriptors += 1;
        if self.descriptors > DESCRIPTORS_MAX {
            return Err(self.malformed(format!("it has more than {DESCRIPTORS_MAX} descriptors")));
        }
        let wrong = |found: String| Error::Blob {
            path: self.shown.into(),
            blob: descriptor.digest.to_string(),
            found,
        };
        let held = self
            .files
            .held(&blob_path(descriptor.digest))
            .ok_or_else(|| wrong("is missing".into()))?;
        if held.digest != descriptor.digest {
            return Err(wrong(format!("has the digest {}", held.digest)));
        }
        match held.size == descriptor.size {
            true => Ok(()),
            false => Err(wrong(format!("has {} bytes, expected {}", held.size, descriptor.size))),
        }
    }

    /// What lies below the descriptor of a manifest or an index. `walked` holds the documents of the image that were walked
    /// before, and as what: one that is named again is not walked again.
    fn descend(
        &mut self,
        descriptor: &Descriptor,
        depth: usize,
        blobs: &mut BTreeMap<Digest, u64>,
        walked: &mut BTreeSet<(Digest, bool)>,
    ) -> Result<(), Error> {
        self.look(descriptor)?;
        blobs.insert(descriptor.digest, descriptor.size);
        let is_index = is_index(&descriptor.media_type);
        if !is_index && !is_manifest(&descriptor.media_type) {
            let media_type = descriptor.media_type.chars().take(80).collect::<String>();
            return Err(self.malformed(format!("{} has the media type {media_type:?}", descriptor.digest)));
        }
        if is_index && depth == DEPTH_MAX {
            return Err(self.malformed(format!("{} is an index in {DEPTH_MAX} others", descriptor.digest)));
        }
        if !walked.insert((descriptor.digest, is_index)) {
            return Ok(());
        }
        let path = blob_path(descriptor.digest);
        if is_index {
            let index: Index = self.read(&path)?;
            for named in &index.manifests {
                self.descend(named, depth + 1, blobs, walked)?;
            }
            return Ok(());
        }
        let manifest: Manifest = self.read(&path)?;
        for named in named_by(&manifest) {
            self.look(named)?;
            blobs.insert(named.digest, named.size);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::{OCI_INDEX, OCI_MANIFEST};

    /// A layout in memory.
    #[derive(Default)]
    struct Memory {
        files: BTreeMap<String, Vec<u8>>,
        named: Vec<Value>,
    }

    impl Files for Memory {
        fn held(&self, path: &str) -> Option<Held> {
            let bytes = self.files.get(path)?;
            Some(Held {
                digest: Digest::of(bytes),
                size: bytes.len() as u64,
            })
        }

        fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
            Ok(self.files[path].clone())
        }
    }

    impl Memory {
        fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
            let digest = Digest::of(bytes);
            self.files.insert(blob_path(digest), bytes.to_vec());
            json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
        }

        fn manifest(&mut self, layers: &[Value]) -> Value {
            let config = self.blob("config", b"{}");
            let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
            self.blob(OCI_MANIFEST, manifest.to_string().as_bytes())
        }

        fn index(&mut self, manifests: &[Value]) -> Value {
            let index = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
            self.blob(OCI_INDEX, index.as_bytes())
        }

        fn name(&mut self, name: &str, mut descriptor: Value) {
            descriptor["annotations"] = json!({CONTAINERD_NAME: name});
            self.named.push(descriptor);
        }

        fn walk(mut self) -> Result<Vec<Listed>, String> {
            let index = json!({"schemaVersion": 2, "manifests": self.named}).to_string();
            self.files.insert("index.json".into(), index.into_bytes());
            let mark = br#"{"imageLayoutVersion":"1.0.0"}"#;
            self.files.entry("oci-layout".into()).or_insert(mark.to_vec());
            walk(Path::new("images"), &self).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn every_blob_of_every_image_is_listed() {
        let mut layout = Memory::default();
        let shared = layout.blob("layer", b"shared");
        let own = layout.blob("layer", b"own");
        let one = layout.manifest(&[shared.clone(), own]);
        let two = layout.manifest(std::slice::from_ref(&shared));
        let both = layout.index(&[one.clone(), two]);
        layout.name("a:1", one);
        layout.name("b:1", both);
        let found = layout.walk().unwrap();
        let counts: Vec<_> = found
            .iter()
            .map(|image| (image.name.as_str(), image.blobs.len()))
            .collect();
        assert_eq!(counts, [("a:1", 4), ("b:1", 6)]);
    }

    #[test]
    fn what_a_descriptor_says_must_be_so() {
        let refused = |change: &dyn Fn(&mut Memory, &mut Value), names: &str| {
            let mut layout = Memory::default();
            let mut layer = layout.blob("layer", b"a layer");
            change(&mut layout, &mut layer);
            let manifest = layout.manifest(&[layer]);
            // Within an index, and beside an image that is right.
            let index = layout.index(std::slice::from_ref(&manifest));
            layout.name("a:1", index);
            let said = layout.walk().unwrap_err();
            assert!(said.contains(names), "{said}");
        };
        let at = blob_path(Digest::of(b"a layer"));
        refused(&|layout, _| drop(layout.files.remove(&at)), "is missing");
        refused(
            &|layout, _| drop(layout.files.insert(at.clone(), b"another".to_vec())),
            "has the digest sha256:",
        );
        refused(&|_, layer| layer["size"] = 8.into(), "has 7 bytes, expected 8");
        refused(&|_, layer| layer["size"] = (-1).into(), "cannot be read");
        refused(&|_, layer| layer["digest"] = "sha256:../../x".into(), "no digest");
        refused(
            &|layout, _| {
                drop(
                    layout
                        .files
                        .insert("oci-layout".into(), br#"{"imageLayoutVersion":"2"}"#.to_vec()),
                )
            },
            "expected 1.0.0",
        );
    }

    #[test]
    fn a_manifest_that_is_also_a_layer_is_walked_all_the_same() {
        let mut layout = Memory::default();
        let lost = layout.blob("layer", b"lost");
        let hidden = layout.manifest(&[lost]);
        layout.files.remove(&blob_path(Digest::of(b"lost")));
        let decoy = layout.manifest(std::slice::from_ref(&hidden));
        let index = layout.index(&[decoy, hidden]);
        layout.name("a:1", index);
        assert!(layout.walk().unwrap_err().contains("is missing"));
    }

    #[test]
    fn depth_number_and_size_are_bounded() {
        let mut layout = Memory::default();
        let mut deep = layout.manifest(&[]);
        for _ in 0..DEPTH_MAX {
            deep = layout.index(&[deep]);
        }
        layout.name("right:1", deep.clone());
        let too_deep = layout.index(&[deep]);
        let mut other = Memory {
            files: layout.files.clone(),
            named: Vec::new(),
        };
        assert_eq!(layout.walk().unwrap().len(), 1);
        other.name("deep:1", too_deep);
        assert!(other.walk().unwrap_err().contains("is an index in 4 others"));

        // Each level names the one below a hundred times: walked once, and counted.
        let mut layout = Memory::default();
        let mut wide = layout.manifest(&[]);
        for _ in 0..DEPTH_MAX {
            wide = layout.index(&vec![wide; 100]);
        }
        for number in 0..10 {
            layout.name(&format!("wide:{number}"), wide.clone());
        }
        assert_eq!(layout.walk().unwrap().len(), 10);
        let mut layout = Memory::default();
        let manifest = layout.manifest(&[]);
        let wide = layout.index(&vec![manifest; 20_000]);
        for number in 0..6 {
            layout.name(&format!("wide:{number}"), wide.clone());
        }
        assert!(layout.walk().unwrap_err().contains("more than 100000 descriptors"));

        // A large document that many images name.
        let mut layout = Memory::default();
        let layer = layout.blob("layer", b"x");
        let config = layout.blob("config", b"{}");
        let padded = json!({"schemaVersion": 2, "config": config, "layers": [layer], "pad": "x".repeat(4_000_000)});
        let large = layout.blob(OCI_MANIFEST, padded.to_string().as_bytes());
        for number in 0..70 {
            layout.name(&format!("large:{number}"), large.clone());
        }
        assert!(layout.walk().unwrap_err().contains("bytes to read"));
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let mut layout = Memory::default();
        let bomb = layout.blob(OCI_MANIFEST, nested.as_bytes());
        layout.name("bomb:1", bomb);
        assert!(layout.walk().unwrap_err().contains("cannot be read"));
    }
}
