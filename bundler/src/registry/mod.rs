//! Images out of registries: manifests by digest, then what they name, each compared with its digest.

mod challenge;
mod credentials;
mod host;

use std::collections::BTreeMap;
use std::io::Write;

use quantykube_base::{Exit, Failure, Reporter};
use quantykube_oci::{Digest, Missing, Reference};

pub use credentials::Credentials;
pub use host::Access;
use host::{Host, Repository};

use crate::content::Contents;
use crate::download::{self, Wanted, again_and_again};
use crate::images;
use crate::watch::Stop;

/// An image of a registry.
#[derive(Debug)]
pub struct Pulled<'a> {
    /// The name under which it is packed.
    pub name: &'a Reference,
    /// Host and path of the repository that holds it.
    pub repository: &'a str,
    /// The digest of its manifest or index there.
    pub digest: Digest,
}

/// Every registry that is asked, by host.
pub struct Registries<'a> {
    access: &'a BTreeMap<String, Access>,
    credentials: &'a Credentials,
    report: &'a Reporter,
    stop: &'a Stop,
    hosts: BTreeMap<String, Host>,
}

impl<'a> Registries<'a> {
    pub fn new(
        access: &'a BTreeMap<String, Access>,
        credentials: &'a Credentials,
        report: &'a Reporter,
        stop: &'a Stop,
    ) -> Registries<'a> {
        let hosts = BTreeMap::new();
        Registries {
            access,
            credentials,
            report,
            stop,
            hosts,
        }
    }

    fn at(&mut self, repository: &str) -> Result<(&Host, Repository), Failure> {
        let (host, repository) = Repository::of(repository, self.credentials)?;
        let access = self.access.get(&host).cloned().unwrap_or_default();
        let host = self
            .hosts
            .entry(host)
            .or_insert_with_key(|name| Host::new(name, &access));
        Ok((host, repository))
    }

    /// Fetches into `contents` what is not there yet of an image, and compares everything that was there.
    pub fn pull(&mut self, image: &Pulled, architecture: &str, contents: &Contents) -> Result<(), Failure> {
        let shown = image.shown();
        if !contents.is_whole(ours(image.digest))? {
            self.document(image, image.digest, None, contents)?;
        }
        let missing = || {
            quantykube_oci::missing(contents.folder(), &shown, image.digest, image.name, architecture)
                .map_err(images::failure)
        };
        // A blob in a cache may be damaged though it has the right length.
        let mut compared = false;
        loop {
            let wanted = missing()?;
            if wanted.is_empty() {
                if compared {
                    return Ok(());
                }
                let found =
                    quantykube_oci::from_blobs(contents.folder(), &shown, image.digest, image.name, architecture)
                        .map_err(images::failure)?;
                for blob in &found.blobs {
                    contents.is_whole(ours(blob.digest))?;
                }
                compared = true;
            }
            for blob in wanted {
                match blob.is_manifest {
                    true => self.document(image, blob.digest, Some(blob.size), contents)?,
                    false => self.blob(image, &blob, contents)?,
                }
            }
        }
    }

    /// What the tag of `name` stands for now in `repository`, and the manifest or index itself.
    pub fn resolve(&mut self, name: &Reference, repository: &str) -> Result<(Digest, Vec<u8>), Failure> {
        let stop = self.stop;
        let tag = name.tag.as_deref().expect("a name without a digest has a tag");
        let what = format!("the manifest of the image {name} (tag {tag} in {repository})");
        let bytes = self.ask(repository, &what, stop, &mut |host, repository| {
            host.manifest(repository, tag)
        })?;
        Ok((Digest::of(&bytes), bytes))
    }

    /// Whether the manifest or index with this digest is there still, and is what it was.
    pub fn look(&mut self, image: &Pulled) -> Result<(), Failure> {
        self.manifest(image, image.digest, None).map(drop)
    }

    fn ask<T>(
        &mut self,
        repository: &str,
        what: &str,
        stop: &Stop,
        send: &mut dyn FnMut(&Host, &Repository) -> Result<T, crate::http::Trouble>,
    ) -> Result<T, Failure> {
        let credentials = self.credentials;
        let (host, repository) = self.at(repository)?;
        let what = format!("{what} from {}", host.name());
        let sent = again_and_again(&what, stop, &mut || send(host, &repository));
        sent.map_err(|failure| hinted(failure, credentials))
    }

    fn manifest(&mut self, image: &Pulled, digest: Digest, size: Option<u64>) -> Result<Vec<u8>, Failure> {
        let stop = self.stop;
        let what = format!("the manifest {digest} of the image {}", image.name);
        let bytes = self.ask(image.repository, &what, stop, &mut |host, repository| {
            host.manifest(repository, &digest.to_string())
        })?;
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(differs(image, "manifest", &digest, &format!("has the digest {found}")));
        }
        match size.filter(|size| *size != bytes.len() as u64) {
            Some(size) => {
                let found = format!("has {} bytes, its index says {size}", bytes.len());
                Err(differs(image, "manifest", &digest, &found))
            }
            None => Ok(bytes),
        }
    }

    fn document(
        &mut self,
        image: &Pulled,
        digest: Digest,
        size: Option<u64>,
        contents: &Contents,
    ) -> Result<(), Failure> {
        let bytes = self.manifest(image, digest, size)?;
        keep(contents, &bytes, digest)
    }

    fn blob(&mut self, image: &Pulled, blob: &Missing, contents: &Contents) -> Result<(), Failure> {
        let (report, stop, credentials) = (self.report, self.stop, self.credentials);
        let (host, repository) = self.at(image.repository)?;
        let what = format!(
            "the blob {} of the image {} from {}",
            blob.digest,
            image.name,
            host.name()
        );
        let wanted = Wanted {
            what: &what,
            size: Some(blob.size),
            most: blob.size,
        };
        let mut file = contents.begin()?;
        let found = download::download(&wanted, file.as_file_mut(), report, stop, &mut |headers| {
            host.blob(&repository, blob.digest, headers)
        });
        let found = found.map_err(|failure| hinted(failure, credentials))?;
        if found != ours(blob.digest) {
            let found = format!("has the digest sha256:{found}");
            return Err(differs(image, "blob", &blob.digest, &found));
        }
        contents.keep(file, found).map(drop)
    }
}

impl Pulled<'_> {
    /// How errors call it.
    pub fn shown(&self) -> String {
        format!("{}@{}", self.repository, self.digest)
    }
}

/// Keeps a manifest or an index whose digest is right.
pub fn keep(contents: &Contents, bytes: &[u8], digest: Digest) -> Result<(), Failure> {
    let mut file = contents.begin()?;
    file.write_all(bytes).map_err(|error| {
        let message = format!("cannot write into {}", contents.folder().display());
        Failure::new(Exit::Failed, "write", message).because(error)
    })?;
    contents.keep(file, ours(digest)).map(drop)
}

/// The same digest as the bundle's format knows it.
pub fn ours(digest: Digest) -> quantykube_bundle_format::Digest {
    digest.hex().parse().expect("both are SHA-256")
}

fn differs(image: &Pulled, kind: &str, expected: &Digest, found: &str) -> Failure {
    let message = format!(
        "the registry gives another {kind} for the image {}: it {found}, expected {expected}",
        image.name
    );
    Failure::new(Exit::NotVerified, "blob", message)
        .hint("nothing of it was taken; ask who runs the registry, or what stands between it and here")
}

/// A refusal says where credentials come from.
fn hinted(failure: Failure, credentials: &Credentials) -> Failure {
    let causes = failure.chain().join(" ");
    match causes.contains("http status: 401") || causes.contains("http status: 403") {
        true => failure.hint(credentials.hint()),
        false => failure,
    }
}
