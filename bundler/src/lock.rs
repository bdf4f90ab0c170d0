//! The lock: what every URL and every name of an image of a spec stood for when it was written. docs/bundle.md describes
//! the file.

use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{Architecture, Digest, NEEDS};
use quantykube_oci::Digest as Oci;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::inputs::{ImagePlace, Inputs, Source};

/// The name of the file, beside the spec.
const NAME: &str = "quantykube.lock";
/// The format that is written, and the newest that is read.
const FORMAT: u64 = 1;
/// The longest file that is read, in bytes.
const LENGTH_MAX: u64 = 16 << 20;

/// What is in the file. Fields stand in the order of their names: that order is the encoding.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The architecture for which images were resolved.
    pub architecture: Architecture,
    pub format: u64,
    /// Every image of a registry, sorted by name.
    pub images: Vec<LockedImage>,
    /// The oldest version of the programs that reads this format.
    pub needs: String,
    /// Every URL once, sorted.
    pub urls: Vec<LockedUrl>,
}

/// One image.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LockedImage {
    /// Of its manifest for the architecture: what the node knows it by.
    pub digest: Oci,
    /// The repository that holds it.
    pub from: String,
    /// Its name, completed.
    pub name: String,
    /// What the registry was asked for: the digest of the manifest, or of an index that names it.
    pub pulled: Oci,
}

/// One file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LockedUrl {
    pub sha256: Digest,
    /// Its length in bytes.
    pub size: u64,
    pub url: String,
}

/// What stands in every format to come.
#[derive(Deserialize)]
struct Outline {
    format: u64,
    #[serde(default)]
    needs: String,
}

/// Where the lock of a spec is.
pub fn place(spec: Option<&Path>, asked: Option<&Path>) -> PathBuf {
    match (asked, spec.and_then(Path::parent)) {
        (Some(path), _) => path.into(),
        (None, Some(folder)) => folder.join(NAME),
        (None, None) => NAME.into(),
    }
}

/// The cache where none is named: `content` below `QUANTYKUBE_CACHE`, or below `~/.cache/quantykube`.
pub fn cache(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(folder) = asked {
        return Ok(folder.into());
    }
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = set("QUANTYKUBE_CACHE").or_else(|| set("HOME").map(|home| home.join(".cache/quantykube")));
    base.map(|base| base.join("content")).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "cache",
            "there is no folder for the cache: HOME is not set",
        )
        .hint("give --cache DIR")
    })
}

/// What a lock says and the spec does not.
fn not_locked(message: String) -> Failure {
    Failure::new(Exit::Refused, "not-locked", message)
        .hint("quantykube-bundle lock SPEC writes a lock for the spec as it is")
}

impl Lock {
    /// A lock with its parts in order.
    pub fn new(architecture: Architecture, mut images: Vec<LockedImage>, mut urls: Vec<LockedUrl>) -> Lock {
        images.sort_by(|a, b| a.name.cmp(&b.name));
        urls.sort_by(|a, b| a.url.cmp(&b.url));
        urls.dedup();
        let (format, needs) = (FORMAT, NEEDS.into());
        Lock {
            architecture,
            format,
            images,
            needs,
            urls,
        }
    }

    /// The canonical bytes: names in order, two spaces, one line feed at the end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a lock holds nothing that JSON cannot");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the canonical bytes, and no others.
    pub fn read(path: &Path) -> Result<Lock, Failure> {
        let shown = path.display();
        let text = files::read_text(path, LENGTH_MAX).map_err(|failure| match path.exists() {
            true => failure,
            false => Failure::new(Exit::Refused, "not-locked", format!("there is no {shown}"))
                .hint("quantykube-bundle lock SPEC writes it"),
        })?;
        let broken = |found: String| {
            Failure::new(Exit::Usage, "lock", format!("{shown} is no lock: {found}"))
                .hint("quantykube-bundle lock SPEC writes it anew")
        };
        let outline: Outline = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if outline.format > FORMAT {
            let needs: String = outline.needs.chars().filter(char::is_ascii_graphic).take(40).collect();
            let message = format!(
                "{shown} has format {}, this program reads {FORMAT}: version {needs} of it is needed",
                outline.format
            );
            return Err(Failure::new(Exit::NeedsNewer, "newer", message));
        }
        let lock: Lock = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        match lock.to_bytes() == text.as_bytes() {
            true => Ok(lock),
            false => Err(broken("it is not in the one encoding that a lock has".into())),
        }
    }

    /// The image of this name from this repository.
    pub fn image(&self, name: &str, from: &str) -> Option<&LockedImage> {
        self.images
            .iter()
            .find(|image| image.name == name && image.from == from)
    }

    /// The file of this URL.
    pub fn url(&self, url: &str) -> Option<&LockedUrl> {
        self.urls.iter().find(|file| file.url == url)
    }

    /// Gives every URL and image of the spec the digest that is locked. What the spec pins must be the same.
    pub fn apply(&self, inputs: &mut Inputs) -> Result<(), Failure> {
        if self.architecture != inputs.draft.architecture {
            let (found, expected) = (self.architecture, inputs.draft.architecture);
            return Err(not_locked(format!("the lock is for {found}, the spec for {expected}")));
        }
        for program in &mut inputs.programs {
            let Source::Url(url) = &program.source else { continue };
            let Some(locked) = self.url(url) else {
                return Err(not_locked(format!("the url {url} is not in the lock")));
            };
            if let Some(sha256) = program.sha256.filter(|sha256| *sha256 != locked.sha256) {
                let message = format!("the lock has {} for {url}, the spec {sha256}", locked.sha256);
                return Err(not_locked(message));
            }
            program.sha256 = Some(locked.sha256);
        }
        for image in &mut inputs.images {
            let name = image.name.to_string();
            let ImagePlace::Registry { repository, digest } = &mut image.place else {
                continue;
            };
            let Some(locked) = self.image(&name, repository) else {
                return Err(not_locked(format!(
                    "the image {name} from {repository} is not in the lock"
                )));
            };
            if let Some(digest) = digest.filter(|digest| *digest != locked.pulled) {
                let message = format!("the lock has {} for the image {name}, the spec {digest}", locked.pulled);
                return Err(not_locked(message));
            }
            *digest = Some(locked.pulled);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_encoding_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let image = LockedImage {
            digest: Oci::of(b"manifest"),
            from: "r.example/a".into(),
            name: "r.example/a:1".into(),
            pulled: Oci::of(b"index"),
        };
        let lock = Lock::new(Architecture::Amd64, vec![image], Vec::new());
        let text = String::from_utf8(lock.to_bytes()).unwrap();
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Lock::read(&path)
        };
        assert_eq!(read(&text).unwrap(), lock);
        for (from, to, exit) in [
            ("\"format\": 1", "\"format\": 2", Exit::NeedsNewer),
            ("\n}", "}", Exit::Usage),
            ("\"urls\"", "\"more\": 1,\n  \"urls\"", Exit::Usage),
            ("amd64", "x86", Exit::Usage),
        ] {
            assert_eq!(read(&text.replace(from, to)).unwrap_err().exit, exit, "{to}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Lock::read(&path).unwrap_err().exit, Exit::Refused);
    }
}
