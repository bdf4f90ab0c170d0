//! The spec as it is used: every value checked, every path resolved, nothing read yet but the spec and the templates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{
    Architecture, DEFAULT_MTIME, Digest, Draft, Kind, MTIME_MAX, Origin, check_name, check_version,
};

use quantykube_oci::Reference;

use crate::http::Authorities;
use crate::parts::{self, Choice};
use crate::registry::{Access, Pulled};
use crate::render::{self, Template};
use crate::spec::{self, Spec};

/// The spec that is taken where none is given.
const DEFAULT_SPEC: &str = include_str!("../../bundles/default.yaml");
/// The spec that is taken where it is in the current folder.
const SPEC_HERE: &str = "quantykube.yaml";
/// The longest spec, in bytes.
const SPEC_MAX: u64 = 4 << 20;
/// The program that every bundle holds: it becomes `run`.
pub const RUNNER: &str = "quantykube";

/// Everything that goes into a bundle.
#[derive(Debug)]
pub struct Inputs {
    pub draft: Draft,
    pub programs: Vec<Program>,
    pub templates: Vec<Template>,
    pub values: BTreeMap<String, yaml_serde::Value>,
    pub images: Vec<Image>,
    /// How registries are reached, by host.
    pub registries: BTreeMap<String, Access>,
    /// The optional parts that are taken.
    pub parts: Vec<String>,
}

/// A program to pack, ours or another.
#[derive(Debug)]
pub struct Program {
    /// Its path in the bundle.
    pub target: String,
    pub kind: Kind,
    pub source: Source,
    pub sha256: Option<Digest>,
    pub origin: Origin,
}

/// Where a program's bytes are.
#[derive(Debug)]
pub enum Source {
    File(PathBuf),
    Url(String),
}

/// An image to pack.
#[derive(Debug)]
pub struct Image {
    pub name: Reference,
    pub place: ImagePlace,
}

/// Where an image is.
#[derive(Debug)]
pub enum ImagePlace {
    OciLayout(PathBuf),
    DockerArchive(PathBuf),
    Registry {
        /// Host and path, as `docker.io/library/nginx`.
        repository: String,
        /// That of a manifest or an index.
        digest: Option<quantykube_oci::Digest>,
    },
}

impl Image {
    /// What is pulled, where that is known: `None` of an image of a file, or without a digest.
    pub fn pulled(&self) -> Option<Pulled<'_>> {
        match &self.place {
            ImagePlace::Registry {
                repository,
                digest: Some(digest),
            } => Some(Pulled {
                name: &self.name,
                repository,
                digest: *digest,
            }),
            _ => None,
        }
    }
}

/// A mistake in the spec.
fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "spec", message)
}

impl Inputs {
    /// Every URL, and the checksum that is known of it.
    pub fn urls(&self) -> impl Iterator<Item = (&str, Option<Digest>)> {
        self.programs.iter().filter_map(|program| match &program.source {
            Source::Url(url) => Some((url.as_str(), program.sha256)),
            Source::File(_) => None,
        })
    }

    /// Every image of a registry whose digest is known.
    pub fn pulled(&self) -> impl Iterator<Item = Pulled<'_>> {
        self.images.iter().filter_map(Image::pulled)
    }

    /// Refuses what could be another thing tomorrow.
    pub fn check_digests(&self) -> Result<(), Failure> {
        if let Some((url, _)) = self.urls().find(|(_, sha256)| sha256.is_none()) {
            return Err(wrong(format!("the url {url} has no sha256")).hint(
                "give the sha256 that the publisher of the file states, or lock the spec and build with --locked",
            ));
        }
        let open = |image: &&Image| matches!(image.place, ImagePlace::Registry { digest: None, .. });
        match self.images.iter().find(open) {
            Some(image) => Err(wrong(format!(
                "the image {} has no digest, and no ociLayout or dockerArchive",
                image.name
            ))
            .hint("a tag may be another image tomorrow: give the digest, or lock the spec and build with --locked")),
            None => Ok(()),
        }
    }

    /// The spec that the command line means; `None` is the built-in one.
    pub fn spec_path(given: Option<&Path>) -> Option<&Path> {
        let here = Path::new(SPEC_HERE);
        given.or(here.exists().then_some(here))
    }

    /// Reads the spec that the command line means and checks all of it.
    pub fn load(spec: Option<&Path>, templates: Option<&Path>, choice: Choice) -> Result<Inputs, Failure> {
        let path = Inputs::spec_path(spec);
        let (text, name, base) = match path {
            Some(path) => {
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                (
                    crate::files::read_text(path, SPEC_MAX)?,
                    path.display().to_string(),
                    folder,
                )
            }
            None => (DEFAULT_SPEC.to_owned(), "the built-in spec".to_owned(), PathBuf::new()),
        };
        let parse = || -> Result<Spec, Failure> {
            yaml_serde::from_str(&text).map_err(|error| {
                wrong(format!("{name} cannot be read: {error}")).hint("docs/bundle.md lists every key of a spec")
            })
        };
        let loader = Loader {
            base,
            beside: program_folder()?,
        };
        let of = |choice| {
            let (spec, parts) = parts::taken(parse()?, choice)?;
            let inputs = loader.inputs(spec, templates)?;
            Ok(Inputs { parts, ..inputs })
        };
        // A mistake in a part is one whether the part is taken or not, and what two parts share, too.
        of(Choice::Everything)
            .and_then(|all| match choice {
                Choice::Everything => Ok(all),
                choice => of(choice),
            })
            .map_err(|failure: Failure| Failure {
                message: format!("{name}: {}", failure.message),
                ..failure
            })
    }
}

/// The folder of the running program.
fn program_folder() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(|error| {
            Failure::new(Exit::Failed, "own-path", "cannot find the folder of this program").because(error)
        })?;
    Ok(path.parent().unwrap_or(Path::new("/")).to_owned())
}

struct Loader {
    /// What paths of the spec are relative to.
    base: PathBuf,
    /// Where our own programs are.
    beside: PathBuf,
}

impl Loader {
    fn inputs(&self, spec: Spec, templates: Option<&Path>) -> Result<Inputs, Failure> {
        let architecture = match &spec.architecture {
            Some(text) => text.parse::<Architecture>().map_err(wrong)?,
            None => Architecture::of_this_program()
                .ok_or_else(|| wrong("it gives no architecture, and this machine's is not one of amd64 and arm64"))?,
        };
        let draft = Draft {
            name: spec.name.unwrap_or_else(|| "quantykube".into()),
            version: spec.version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").into()),
            architecture,
            mtime: source_date_epoch()?,
            images: Vec::new(),
        };
        check_name(&draft.name)
            .and(check_version(&draft.version))
            .map_err(|error| wrong(error.to_string()))?;
        let mut programs = Vec::new();
        for program in spec.programs {
            programs.push(self.program(program)?);
        }
        if !programs.iter().any(|program| program.target == "run") {
            return Err(wrong(format!(
                "programs does not list {RUNNER}, which every bundle needs: it becomes ./run"
            )));
        }
        for binary in spec.binaries {
            programs.push(self.binary(binary)?);
        }
        let mut targets = BTreeSet::new();
        if let Some(twice) = programs
            .iter()
            .find(|program| !targets.insert(program.target.to_ascii_lowercase()))
        {
            return Err(wrong(format!("two programs become {}", twice.target)));
        }
        let mut images = Vec::new();
        let mut names = BTreeSet::new();
        for image in spec.images {
            let image = self.image(image)?;
            if !names.insert(image.name.to_string()) {
                return Err(wrong(format!("the image {} is listed twice", image.name)));
            }
            images.push(image);
        }
        let templates = self.templates(&spec.templates, templates)?;
        let mut registries = BTreeMap::new();
        for registry in spec.registries {
            let host = registry.host.clone();
            if registries.insert(host.clone(), self.registry(registry)?).is_some() {
                return Err(wrong(format!("the registry {host} is listed twice")));
            }
        }
        Ok(Inputs {
            draft,
            programs,
            templates,
            values: spec.values,
            images,
            registries,
            parts: Vec::new(),
        })
    }

    /// A path of the spec, which has to be relative: an absolute one would not mean the same elsewhere.
    fn relative(&self, path: &str) -> Result<PathBuf, Failure> {
        if path.is_empty() || path.starts_with('/') {
            return Err(wrong(format!("the path {path:?} must be relative to the spec")));
        }
        Ok(self.base.join(path))
    }

    fn program(&self, program: spec::Program) -> Result<Program, Failure> {
        let name = program.name;
        let target = match name.as_str() {
            RUNNER => "run".to_owned(),
            _ if name.starts_with("quantykube-") && !name.contains('/') => format!("bin/{name}"),
            _ => {
                return Err(
                    wrong(format!("{name:?} is no program of QuantyKube")).hint("other programs belong under binaries")
                );
            }
        };
        let source = match &program.path {
            Some(path) => Source::File(self.relative(path)?),
            None => Source::File(self.beside.join(&name)),
        };
        let origin = Origin::Own(name);
        Ok(Program {
            target,
            kind: Kind::Program,
            source,
            sha256: digest(program.sha256)?,
            origin,
        })
    }

    fn binary(&self, binary: spec::Binary) -> Result<Program, Failure> {
        let name = binary.name;
        if ["", ".", ".."].contains(&name.as_str()) || name.contains('/') || name.starts_with(RUNNER) {
            return Err(wrong(format!(
                "{name:?} is no name for a binary: it must not have a / or begin as ours do"
            )));
        }
        let sha256 = digest(binary.sha256)?;
        let (source, origin) = match (binary.path, binary.url) {
            (Some(path), None) => (Source::File(self.relative(&path)?), Origin::Spec(path)),
            (None, Some(url)) => {
                check_url(&url)?;
                (Source::Url(url.clone()), Origin::Url(url))
            }
            _ => return Err(wrong(format!("the binary {name} must have either a path or a url"))),
        };
        Ok(Program {
            target: format!("bin/{name}"),
            kind: Kind::Binary,
            source,
            sha256,
            origin,
        })
    }

    fn image(&self, image: spec::Image) -> Result<Image, Failure> {
        let name = Reference::parse(&image.name).map_err(wrong)?;
        let of_registry = image.digest.is_some() || image.from.is_some();
        let place = match (image.oci_layout, image.docker_archive, of_registry) {
            (Some(path), None, false) => ImagePlace::OciLayout(self.relative(&path)?),
            (None, Some(path), false) => ImagePlace::DockerArchive(self.relative(&path)?),
            (None, None, _) => {
                let repository = match &image.from {
                    Some(from) => repository(from)?,
                    None => name.repository.clone(),
                };
                let digest = image.digest.map(|text| text.parse().map_err(wrong)).transpose()?;
                let digest = digest.or(name.digest);
                ImagePlace::Registry { repository, digest }
            }
            _ => {
                return Err(wrong(format!(
                    "the image {name} must have one of ociLayout and dockerArchive, or neither, and then digest and from are for \
                     a registry"
                )));
            }
        };
        Ok(Image { name, place })
    }

    fn registry(&self, registry: spec::Registry) -> Result<Access, Failure> {
        let host = &registry.host;
        let named = Reference::parse(&format!("{host}/x")).map_err(wrong)?;
        if host.contains('/') || named.repository != format!("{host}/x") {
            return Err(wrong(format!(
                "{host:?} is no host of a registry as names of images write it: expected a dot, a port or localhost in it"
            )));
        }
        if registry.plain_http && registry.ca.is_some() {
            return Err(wrong(format!(
                "the registry {host} has a ca, which plainHttp has no use for"
            )));
        }
        let authorities = match &registry.ca {
            Some(path) => {
                let path = self.relative(path)?;
                let text = crate::files::read_text(&path, SPEC_MAX)?;
                let wrong = |error| wrong(format!("{} cannot be taken: {error}", path.display()));
                Some(Authorities::from_pem(&text).map_err(wrong)?)
            }
            None => None,
        };
        Ok(Access {
            authorities,
            plain: registry.plain_http,
        })
    }

    fn templates(&self, spec: &spec::Templates, given: Option<&Path>) -> Result<Vec<Template>, Failure> {
        let folder = match (given, &spec.folder) {
            (Some(folder), _) => Some(folder.to_owned()),
            (None, Some(folder)) => Some(self.relative(folder)?),
            (None, None) => None,
        };
        let mut templates = match folder {
            Some(folder) => render::templates_in(&folder)?,
            None => render::built_in(),
        };
        if let Some(only) = &spec.only {
            let names: BTreeSet<&str> = templates.iter().map(|template| template.path.as_str()).collect();
            if let Some(unknown) = only.iter().find(|name| !names.contains(name.as_str())) {
                let known: Vec<&str> = names.into_iter().collect();
                return Err(wrong(format!(
                    "there is no template {unknown}; there are: {}",
                    known.join(", ")
                )));
            }
            templates.retain(|template| only.contains(&template.path));
        }
        let there = |name: &&String| templates.iter().any(|template| template.path == **name);
        if let Some(unknown) = spec.of_parts.iter().find(|name| !there(name)) {
            return Err(wrong(format!(
                "a part names the template {unknown}, which is not there"
            )));
        }
        templates.retain(|template| !spec.except.contains(&template.path));
        Ok(templates)
    }
}

fn digest(text: Option<String>) -> Result<Option<Digest>, Failure> {
    text.map(|text| {
        text.parse()
            .map_err(|error: quantykube_bundle_format::NoDigest| wrong(error.to_string()))
    })
    .transpose()
}

/// A repository without a tag or a digest.
fn repository(text: &str) -> Result<String, Failure> {
    let no = || {
        wrong(format!(
            "from is {text:?}, expected HOST/PATH without a tag or a digest"
        ))
    };
    // A second tag or digest is no name.
    let of_digest = format!("{text}@sha256:{}", "0".repeat(64));
    let found = Reference::parse(&of_digest).map_err(|_| no())?;
    match found.tag.is_none() && found.repository == text {
        true => Ok(found.repository),
        false => Err(no()),
    }
}

/// A URL ends up in `bundle.json`, so that it must hold no secret.
fn check_url(url: &str) -> Result<(), Failure> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err(wrong(format!("the url {url:?} must begin with https:// or http://")));
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || host.contains('@') {
        return Err(wrong(
            "a url must name a host and no user: it is written into the bundle",
        ));
    }
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    plain
        .then_some(())
        .ok_or_else(|| wrong(format!("the url {url:?} has characters that a url cannot have")))
}

/// The time of every entry.
fn source_date_epoch() -> Result<u64, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(DEFAULT_MTIME);
    };
    let text = text.to_string_lossy();
    text.parse().ok().filter(|time| *time <= MTIME_MAX).ok_or_else(|| {
        let message = format!("SOURCE_DATE_EPOCH is {text:?}, expected seconds since 1970, at most {MTIME_MAX}");
        Failure::new(Exit::Usage, "source-date-epoch", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Inputs, Failure> {
        let spec: Spec = yaml_serde::from_str(text).map_err(|error| wrong(error.to_string()))?;
        Loader {
            base: "base".into(),
            beside: "/beside".into(),
        }
        .inputs(spec, None)
        .and_then(|inputs| inputs.check_digests().map(|()| inputs))
    }

    #[test]
    fn the_default_spec_takes_our_programs_from_beside() {
        let inputs = load(DEFAULT_SPEC).unwrap();
        let targets: Vec<&str> = inputs.programs.iter().map(|program| program.target.as_str()).collect();
        assert_eq!(targets, ["run", "bin/quantykube-store"]);
        let Source::File(path) = &inputs.programs[1].source else {
            panic!("no file")
        };
        assert_eq!(path, Path::new("/beside/quantykube-store"));
    }

    #[test]
    fn mistakes_are_named() {
        let own = "programs: [{name: quantykube}]";
        for (spec, expected) in [
            ("programs: []", "does not list quantykube"),
            ("programs: [{name: etcd}]", "no program of QuantyKube"),
            (&format!("{own}\narchitecture: x86"), "expected amd64 or arm64"),
            (
                &format!("{own}\nbinaries: [{{name: a, path: /usr/bin/a}}]"),
                "relative to the spec",
            ),
            (&format!("{own}\nbinaries: [{{name: a}}]"), "either a path or a url"),
            (
                &format!("{own}\nbinaries: [{{name: a, url: 'https://x/y'}}]"),
                "no sha256",
            ),
            (
                &format!("{own}\nbinaries: [{{name: a, path: a, sha256: AB}}]"),
                "no SHA-256",
            ),
            (
                &format!("{own}\nbinaries: [{{name: ../a, path: a}}]"),
                "no name for a binary",
            ),
            (
                &format!("{own}\nbinaries: [{{name: .., path: a}}]"),
                "no name for a binary",
            ),
            (
                &format!("{own}\nbinaries: [{{name: a, path: a}}, {{name: A, path: a}}]"),
                "two programs",
            ),
            (&format!("{own}\nimages: [{{name: a}}]"), "no digest"),
            (
                &format!("{own}\nimages: [{{name: a, ociLayout: x, dockerArchive: y}}]"),
                "one of ociLayout and dockerArchive",
            ),
            (
                &format!("{own}\nimages: [{{name: a, ociLayout: x, from: r.example/a}}]"),
                "one of ociLayout and dockerArchive",
            ),
            (
                &format!("{own}\nimages: [{{name: a, from: 'r.example/a:1'}}]"),
                "without a tag",
            ),
            (
                &format!("{own}\nimages: [{{name: a, digest: 'sha256:1'}}]"),
                "no digest of the form",
            ),
            (&format!("{own}\nregistries: [{{host: r}}]"), "no host of a registry"),
            (
                &format!("{own}\nregistries: [{{host: r.example}}, {{host: r.example}}]"),
                "listed twice",
            ),
            (
                &format!("{own}\nregistries: [{{host: r.example, ca: ca.pem, plainHttp: true}}]"),
                "no use for",
            ),
            (
                &format!("{own}\nimages: [{{name: A b, ociLayout: x}}]"),
                "no name of an image",
            ),
            (
                &format!(
                    "{own}\nimages: [{{name: a, ociLayout: x}}, {{name: 'docker.io/library/a:latest', ociLayout: y}}]"
                ),
                "docker.io/library/a:latest is listed twice",
            ),
            (
                &format!("{own}\ntemplates: {{only: [systemd/x.service]}}"),
                "no template systemd/x.service",
            ),
            (&format!("{own}\nextra: 1"), "unknown field"),
        ] {
            let failure = load(spec).unwrap_err();
            assert!(failure.message.contains(expected), "{spec}: {}", failure.message);
            assert_eq!(failure.exit, Exit::Usage);
        }
        let secret = format!(
            "{own}\nbinaries: [{{name: a, url: 'https://me:secret@x/y', sha256: '{}'}}]",
            Digest::of(b"")
        );
        assert!(!load(&secret).unwrap_err().message.contains("secret"));
    }
}
