//! `bundle.json`: what the bundle says about itself, in the one canonical encoding.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{check_name, check_paths, check_version};
use crate::{Digest, Error};

/// The format this crate writes, and the newest it reads.
pub const FORMAT: u64 = 1;
/// The oldest version of the programs that reads [`FORMAT`].
pub const NEEDS: &str = "0.1.0";
/// The name of the manifest, the first entry of every bundle of every format.
pub const BUNDLE_JSON: &str = "bundle.json";
/// The name of the list that `sha256sum -c` reads.
pub const SHA256SUMS: &str = "SHA256SUMS";
/// The name of the signature of that list, in a bundle that is signed.
pub const SIGNATURE: &str = "SHA256SUMS.minisig";
/// The time of every entry where SOURCE_DATE_EPOCH is not set: 2026-01-01T00:00:00Z, in seconds since 1970.
pub const DEFAULT_MTIME: u64 = 1_767_225_600;
/// The latest time that a ustar header holds.
pub const MTIME_MAX: u64 = (1 << 33) - 1;
/// The largest file that a ustar header holds: one byte less than 8 GiB.
pub(crate) const SIZE_MAX: u64 = (1 << 33) - 1;
/// The largest `bundle.json` that is read, in bytes.
pub(crate) const BUNDLE_JSON_MAX: u64 = 16 << 20;

/// What a bundle holds. Fields stand in the order of their names: that order is the encoding.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The architecture of every program and image.
    pub architecture: Architecture,
    /// Every file but `bundle.json`, `SHA256SUMS` and its signature, sorted by path.
    pub files: Vec<FileEntry>,
    /// The format's number: [`FORMAT`].
    pub format: u64,
    /// Every image of the OCI layout under `images/`, sorted by name.
    pub images: Vec<Image>,
    /// The time of every entry, in seconds since 1970.
    pub mtime: u64,
    /// The bundle's name.
    pub name: String,
    /// The oldest version of the programs that reads this format.
    pub needs: String,
    /// The bundle's version.
    pub version: String,
}

/// One file of a bundle.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// What it is for.
    pub kind: Kind,
    /// Its mode.
    pub mode: FileMode,
    /// Where it came from.
    pub origin: Origin,
    /// Its path in the bundle's folder.
    pub path: String,
    /// The digest of its bytes.
    pub sha256: Digest,
    /// Its length in bytes.
    pub size: u64,
}

/// One image of a bundle.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// The digest of its manifest, as `sha256:...`.
    pub digest: String,
    /// Its name, as manifests of Kubernetes write it.
    pub name: String,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A program of QuantyKube: static.
    Program,
    /// Another program.
    Binary,
    /// A systemd unit.
    Unit,
    /// A manifest of Kubernetes.
    Manifest,
    /// User-data of cloud-init.
    CloudInit,
    /// A part of the OCI layout.
    Image,
    /// For people and their tools: it is not installed.
    Document,
}

impl Kind {
    /// The name in `bundle.json`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Program => "program",
            Kind::Binary => "binary",
            Kind::Unit => "unit",
            Kind::Manifest => "manifest",
            Kind::CloudInit => "cloud-init",
            Kind::Image => "image",
            Kind::Document => "document",
        }
    }
}

/// A file's mode: a program's or any other's.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum FileMode {
    /// 0755
    #[serde(rename = "0755")]
    Program,
    /// 0644
    #[serde(rename = "0644")]
    Plain,
}

impl FileMode {
    /// The permission bits.
    pub fn bits(self) -> u32 {
        match self {
            FileMode::Program => 0o755,
            FileMode::Plain => 0o644,
        }
    }
}

/// Where a file came from: never a path of the machine that built the bundle.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// A program of QuantyKube, by name.
    Own(String),
    /// A path relative to the spec.
    Spec(String),
    /// A URL.
    Url(String),
    /// A template, by its path among the templates.
    Template(String),
    /// Parts of images, by the names of the images that hold them.
    Images(Vec<String>),
    /// Made by quantykube-bundle of the other files: what it is.
    Generated(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Own(name) => write!(out, "program {name}"),
            Origin::Spec(path) => write!(out, "spec file {path}"),
            Origin::Generated(what) => write!(out, "the {what} of the other files"),
            Origin::Url(url) => out.write_str(url),
            Origin::Template(path) => write!(out, "template {path}"),
            Origin::Images(names) if names.is_empty() => out.write_str("images"),
            Origin::Images(names) => write!(out, "image {}", names.join(", ")),
        }
    }
}

/// An architecture, named as OCI names it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// x86_64
    Amd64,
    /// aarch64
    Arm64,
}

impl Architecture {
    /// The name as OCI and Go write it.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }

    /// The architecture this program was built for, where it is one of ours.
    pub fn of_this_program() -> Option<Architecture> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Architecture::Amd64),
            "aarch64" => Some(Architecture::Arm64),
            _ => None,
        }
    }

    /// The number of the architecture in an ELF header (`e_machine`).
    pub fn elf_machine(self) -> u16 {
        match self {
            Architecture::Amd64 => 62,
            Architecture::Arm64 => 183,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(text: &str) -> Result<Architecture, String> {
        match text {
            "amd64" => Ok(Architecture::Amd64),
            "arm64" => Ok(Architecture::Arm64),
            _ => Err(format!("{text:?} is no architecture of ours: expected amd64 or arm64")),
        }
    }
}

/// The two fields that every format keeps, so that an older program can say what is needed.
#[derive(Deserialize)]
struct Outline {
    format: u64,
    #[serde(default)]
    needs: String,
}

impl Manifest {
    /// The canonical bytes: names in order, two spaces, one line feed at the end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a manifest holds nothing that JSON cannot");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the canonical bytes, and no others. Names are checked.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, Error> {
        let outline: Outline = serde_json::from_slice(bytes).map_err(|e| Error::Manifest(e.to_string()))?;
        if outline.format > FORMAT {
            let plain = |c: &char| c.is_ascii_alphanumeric() || ".+-".contains(*c);
            let needs: String = outline.needs.chars().filter(plain).take(40).collect();
            return Err(Error::Newer {
                found: outline.format,
                known: FORMAT,
                needs: if needs.is_empty() { "(not said)".into() } else { needs },
            });
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|e| Error::Manifest(e.to_string()))?;
        manifest.check()?;
        if manifest.to_bytes() != bytes {
            return Err(Error::Manifest(
                "it is valid JSON but not in the canonical encoding".into(),
            ));
        }
        Ok(manifest)
    }

    /// Checks every rule that the types do not hold.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let broken = |text: String| Err(Error::Manifest(text));
        if self.format != FORMAT {
            return broken(format!("there is no format {}", self.format));
        }
        check_name(&self.name)?;
        check_version(&self.version)?;
        check_version(&self.needs)?;
        if self.mtime > MTIME_MAX {
            return broken(format!("mtime {} is later than a tar header holds", self.mtime));
        }
        let generated = [BUNDLE_JSON, SHA256SUMS, SIGNATURE];
        check_paths(generated.into_iter().chain(self.files.iter().map(|f| f.path.as_str())))?;
        if let Some(pair) = self.files.windows(2).find(|pair| pair[0].path >= pair[1].path) {
            return broken(format!("{} stands after {}", pair[1].path, pair[0].path));
        }
        if let Some(file) = self.files.iter().find(|file| file.size > SIZE_MAX) {
            return broken(format!(
                "{} has {} bytes, {SIZE_MAX} are the most",
                file.path, file.size
            ));
        }
        // A blob of an OCI layout is named by its digest.
        for file in &self.files {
            let name = file.path.strip_prefix("images/blobs/sha256/").map(str::parse::<Digest>);
            match name {
                None => {}
                Some(Ok(expected)) if expected == file.sha256 => {}
                Some(Ok(expected)) => {
                    let (path, found) = (file.path.clone(), file.sha256);
                    return Err(Error::Checksum { path, found, expected });
                }
                Some(Err(_)) => return broken(format!("{} is not named by a digest", file.path)),
            }
        }
        if let Some(pair) = self.images.windows(2).find(|pair| pair[0].name >= pair[1].name) {
            return broken(format!("image {} stands after {}", pair[1].name, pair[0].name));
        }
        for image in &self.images {
            let digest = image.digest.strip_prefix("sha256:").map(str::parse::<Digest>);
            if !matches!(digest, Some(Ok(_))) {
                return broken(format!("image {} has the digest {:?}", image.name, image.digest));
            }
        }
        Ok(())
    }

    /// The bundle's id: the digest of the canonical bytes.
    pub fn id(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// The name of the bundle's one folder: `NAME-VERSION-linux-ARCHITECTURE`.
    pub fn folder(&self) -> String {
        format!("{}-{}-linux-{}", self.name, self.version, self.architecture)
    }

    /// The entry of a path.
    pub fn file(&self, path: &str) -> Option<&FileEntry> {
        let found = self.files.binary_search_by(|file| file.path.as_str().cmp(path));
        found.ok().map(|index| &self.files[index])
    }

    /// The bytes of all files of [`Manifest::files`].
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Manifest {
        Manifest {
            architecture: Architecture::Amd64,
            files: vec![
                FileEntry {
                    kind: Kind::Program,
                    mode: FileMode::Program,
                    origin: Origin::Own("quantykube-store".into()),
                    path: "bin/quantykube-store".into(),
                    sha256: Digest::of(b"store"),
                    size: 5,
                },
                FileEntry {
                    kind: Kind::Program,
                    mode: FileMode::Program,
                    origin: Origin::Own("quantykube".into()),
                    path: "run".into(),
                    sha256: Digest::of(b"run"),
                    size: 3,
                },
            ],
            format: FORMAT,
            images: vec![],
            mtime: DEFAULT_MTIME,
            name: "quantykube".into(),
            needs: NEEDS.into(),
            version: "0.1.0".into(),
        }
    }

    #[test]
    fn the_canonical_bytes_are_drawn_here() {
        let mut manifest = example();
        manifest.files.truncate(1);
        let expected = r#"{
  "architecture": "amd64",
  "files": [
    {
      "kind": "program",
      "mode": "0755",
      "origin": {
        "own": "quantykube-store"
      },
      "path": "bin/quantykube-store",
      "sha256": "a9fc9e61fd77ef35bb3ae9f35f65a30ccfe42aa2e53a4b3d6c3ed4c6e3d1a1a6",
      "size": 5
    }
  ],
  "format": 1,
  "images": [],
  "mtime": 1767225600,
  "name": "quantykube",
  "needs": "0.1.0",
  "version": "0.1.0"
}
"#;
        let digest = Digest::of(b"store").to_string();
        let expected = expected.replace(
            "a9fc9e61fd77ef35bb3ae9f35f65a30ccfe42aa2e53a4b3d6c3ed4c6e3d1a1a6",
            &digest,
        );
        assert_eq!(String::from_utf8(manifest.to_bytes()).unwrap(), expected);
        assert_eq!(Manifest::parse(expected.as_bytes()).unwrap(), manifest);
    }

    #[test]
    fn only_the_canonical_bytes_are_read() {
        let text = String::from_utf8(example().to_bytes()).unwrap();
        for other in [
            text.trim_end().to_owned(),
            format!(" {text}"),
            text.replace("  \"format\"", " \"format\""),
            text.replace("\"0755\"", "\"0777\""),
            text.replace("\"format\": 1,", "\"format\": 1,\n  \"more\": 1,"),
            text.replace("\"format\": 1,", "\"format\": 0,"),
            text.replace("\"run\"", "\"../run\""),
            text.replace("\"run\"", "\"a\""),
            text.replace("\"run\"", "\"bundle.json\""),
            text.replace("\"run\"", "\"sha256sums\""),
            text.replace("\"run\"", "\"SHA256SUMS.minisig\""),
            text.replace("quantykube-store", "\\u0071uantykube-store"),
        ] {
            assert_ne!(other, text);
            let error = Manifest::parse(other.as_bytes()).unwrap_err();
            assert_eq!(error.exit(), quantykube_base::Exit::NotVerified, "{other}");
        }
    }

    #[test]
    fn a_newer_format_says_what_it_needs() {
        let text = r#"{"format": 7, "needs": "2.0.0", "shape": {"unknown": true}}"#;
        let error = Manifest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.exit(), quantykube_base::Exit::NeedsNewer);
        assert!(
            error.to_string().contains("version 2.0.0 or newer is needed"),
            "{error}"
        );
    }
}
