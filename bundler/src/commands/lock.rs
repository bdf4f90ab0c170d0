//! `lock`: what every URL and every name of an image stands for now, written down; or compared with what is written.

use std::path::Path;

use quantykube_base::{Exit, Failure, Reporter, durable};
use quantykube_oci::Digest as Oci;
use serde_json::json;

use crate::args::Lock as Args;
use crate::content::Contents;
use crate::fetch;
use crate::fresh::cannot_write;
use crate::images;
use crate::inputs::{Image, ImagePlace, Inputs};
use crate::lock::{self, Lock, LockedImage, LockedUrl};
use crate::parts::Choice;
use crate::registry::{self, Credentials, Pulled, Registries};
use crate::watch::Stop;

/// Writes the lock of a spec and fills the cache, or compares.
pub fn run(args: &Args, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    // Also what is optional: whatever is taken of it, a build finds it in the lock.
    let inputs = Inputs::load(args.spec.as_deref(), None, Choice::Everything)?;
    let path = lock::place(Inputs::spec_path(args.spec.as_deref()), args.lock_file.as_deref());
    let credentials = match &args.credentials {
        Some(path) => Credentials::read(path)?,
        None => Credentials::default(),
    };
    let registries = Registries::new(&inputs.registries, &credentials, report, &stop);
    let mut work = Work {
        inputs: &inputs,
        registries,
        report,
        stop: &stop,
    };
    match args.check {
        true => work.compare(&path),
        false => {
            let contents = Contents::cache(&lock::cache(args.cache.as_deref())?);
            work.write(&path, &contents)
        }
    }
}

struct Work<'a> {
    inputs: &'a Inputs,
    registries: Registries<'a>,
    report: &'a Reporter,
    stop: &'a Stop,
}

/// The repository of an image of a registry, and the digest that the spec pins.
fn wanted(image: &Image) -> Option<(&str, Option<Oci>)> {
    match &image.place {
        ImagePlace::Registry { repository, digest } => Some((repository, *digest)),
        _ => None,
    }
}

impl Work<'_> {
    fn write(&mut self, path: &Path, contents: &Contents) -> Result<(), Failure> {
        let architecture = self.inputs.draft.architecture;
        let mut urls = Vec::new();
        for (url, sha256) in self.inputs.urls() {
            let sha256 = match sha256 {
                Some(sha256) if contents.is_whole(sha256)? => sha256,
                expected => {
                    let (file, found) = fetch::fetch(url, contents, self.report, self.stop)?;
                    if let Some(expected) = expected.filter(|expected| *expected != found) {
                        return Err(fetch::checksum_differs(url, found, expected));
                    }
                    contents.keep(file, found)?;
                    found
                }
            };
            let blob = contents.path(sha256);
            let size = std::fs::metadata(&blob).map(|data| data.len()).map_err(|error| {
                Failure::new(Exit::Failed, "read", format!("cannot read {}", blob.display())).because(error)
            })?;
            let url = url.to_owned();
            urls.push(LockedUrl { sha256, size, url });
        }
        let mut locked = Vec::new();
        for image in &self.inputs.images {
            let Some((repository, digest)) = wanted(image) else {
                continue;
            };
            let digest = match digest {
                Some(digest) => digest,
                None => {
                    let (digest, bytes) = self.registries.resolve(&image.name, repository)?;
                    registry::keep(contents, &bytes, digest)?;
                    digest
                }
            };
            let pulled = Pulled {
                name: &image.name,
                repository,
                digest,
            };
            self.registries.pull(&pulled, architecture.name(), contents)?;
            let found = quantykube_oci::from_blobs(
                contents.folder(),
                &pulled.shown(),
                digest,
                &image.name,
                architecture.name(),
            );
            locked.push(LockedImage {
                digest: found.map_err(images::failure)?.digest,
                from: repository.into(),
                name: image.name.to_string(),
                pulled: digest,
            });
        }
        let lock = Lock::new(architecture, locked, urls);
        durable::write(path, &lock.to_bytes(), 0o644).map_err(cannot_write(path))?;
        let lines = lock
            .images
            .iter()
            .map(|image| format!("image {}  {}", image.name, image.digest));
        let files = lock
            .urls
            .iter()
            .map(|file| format!("url {}  sha256:{}", file.url, file.sha256));
        let lines: Vec<String> = lines.chain(files).collect();
        let (path, cache) = (path.display().to_string(), contents.folder().display().to_string());
        let text = format!(
            "{}{path}  {} images and {} urls; their bytes are in {cache}\nfrom these alone, without a network: quantykube-bundle \
             build --locked",
            lines.iter().map(|line| format!("{line}\n")).collect::<String>(),
            lock.images.len(),
            lock.urls.len(),
        );
        self.report
            .result(&text, json!({"file": path, "cache": cache, "lock": lock}));
        Ok(())
    }

    /// Asks again for everything that is locked. Nothing is written.
    fn compare(&mut self, path: &Path) -> Result<(), Failure> {
        let lock = Lock::read(path)?;
        let mut changes = Vec::new();
        let (then, now) = (lock.architecture, self.inputs.draft.architecture);
        if then != now {
            changes.push(format!("the spec is for {now}, the lock for {then}"));
        }
        self.compare_urls(&lock, &mut changes)?;
        self.compare_images(&lock, &mut changes)?;
        let shown = path.display();
        if changes.is_empty() {
            let (images, urls) = (lock.images.len(), lock.urls.len());
            let text = format!("{shown}: {images} images and {urls} urls are what they were");
            self.report
                .result(&text, json!({"file": shown.to_string(), "changes": []}));
            return Ok(());
        }
        for change in &changes {
            self.report.step("changed", change);
        }
        let message = match changes.len() {
            1 => format!("{shown}: 1 thing changed since it was written"),
            several => format!("{shown}: {several} things changed since it was written"),
        };
        Err(Failure::new(Exit::Failed, "changed", message)
            .hint("look at what changed; quantykube-bundle lock SPEC takes it as it is now"))
    }

    fn compare_urls(&mut self, lock: &Lock, changes: &mut Vec<String>) -> Result<(), Failure> {
        // Whole files have to come to be compared; they go at once.
        let contents = Contents::temporary()?;
        for (url, pinned) in self.inputs.urls() {
            let Some(locked) = lock.url(url) else {
                changes.push(format!("url {url} is new in the spec"));
                continue;
            };
            if let Some(pinned) = pinned.filter(|pinned| *pinned != locked.sha256) {
                changes.push(format!(
                    "url {url}: the spec has sha256 {pinned}, the lock {}",
                    locked.sha256
                ));
            }
            match fetch::fetch(url, &contents, self.report, self.stop) {
                Ok((_, found)) if found == locked.sha256 => {}
                Ok((file, found)) => {
                    let size = file.as_file().metadata().map_or(0, |data| data.len());
                    changes.push(format!(
                        "url {url}: it had {} bytes with the sha256 {}, and has now {size} with {found}",
                        locked.size, locked.sha256
                    ));
                }
                Err(failure) if is_gone(&failure) => changes.push(format!("url {url} is not there any more")),
                Err(failure) => return Err(failure),
            }
        }
        let left = lock
            .urls
            .iter()
            .filter(|file| !self.inputs.urls().any(|(url, _)| url == file.url));
        changes.extend(left.map(|file| format!("url {} is not in the spec any more", file.url)));
        Ok(())
    }

    fn compare_images(&mut self, lock: &Lock, changes: &mut Vec<String>) -> Result<(), Failure> {
        let mut known = Vec::new();
        for image in &self.inputs.images {
            let Some((repository, pinned)) = wanted(image) else {
                continue;
            };
            let name = &image.name;
            let Some(locked) = lock.image(&name.to_string(), repository) else {
                changes.push(format!("image {name} from {repository} is new in the spec"));
                continue;
            };
            known.push(locked);
            if let Some(pinned) = pinned {
                if pinned != locked.pulled {
                    changes.push(format!(
                        "image {name}: the spec has {pinned}, the lock {}",
                        locked.pulled
                    ));
                }
                let pulled = Pulled {
                    name,
                    repository,
                    digest: locked.pulled,
                };
                match self.registries.look(&pulled) {
                    Err(failure) if is_gone(&failure) => changes.push(format!(
                        "image {name}: {} is not in {repository} any more",
                        locked.pulled
                    )),
                    other => other?,
                }
                continue;
            }
            match self.registries.resolve(name, repository) {
                Ok((found, _)) if found == locked.pulled => {}
                Ok((found, _)) => {
                    let tag = name.tag.as_deref().unwrap_or_default();
                    let was = locked.pulled;
                    changes.push(format!("image {name}: the tag {tag} was {was}, and is now {found}"));
                }
                Err(failure) if is_gone(&failure) => {
                    changes.push(format!("image {name}: its tag is not in {repository} any more"));
                }
                Err(failure) => return Err(failure),
            }
        }
        let left = lock.images.iter().filter(|image| !known.contains(image));
        changes
            .extend(left.map(|image| format!("image {} from {} is not in the spec any more", image.name, image.from)));
        Ok(())
    }
}

/// Whether the server answered, and that there is no such thing.
fn is_gone(failure: &Failure) -> bool {
    let causes = failure.chain().join(" ");
    ["404", "410"]
        .iter()
        .any(|status| causes.contains(&format!("http status: {status}")))
}
