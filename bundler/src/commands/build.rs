//! `build`: from a spec to one tarball, or nothing.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure, Reporter, human_bytes};
use quantykube_bundle_format::{
    Content, Digest, Draft, FileMode, Input, Kind, Origin, PublicKey, Sealed, Signer, Written, seal,
};
use serde_json::json;

use crate::args::{self, Build};
use crate::commands::{delta, find_images};
use crate::content::{Contents, State};
use crate::fresh::{Fresh, cannot_write};
use crate::inputs::{Inputs, RUNNER, Source};
use crate::lock::{self, Lock};
use crate::parts::Choice;
use crate::references::{self, PROGRAMS, Packed};
use crate::registry::{self, Credentials, Registries};
use crate::render::{self, Rendered};
use crate::signing::SecretKey;
use crate::watch::{Shown, Stop};
use crate::{elf, fetch, images, pages, sbom};

/// Builds a bundle and says what to do with it.
pub fn run(args: &Build, report: &Reporter) -> Result<(), Failure> {
    let stop = Stop::on_signals();
    let inputs = load(args)?;
    if !args.find_images.is_empty() {
        return find_images::run(&inputs, &args.find_images, report);
    }
    // A wrong password is said before the work, not after it.
    let key = args
        .sign
        .as_deref()
        .map(|path| SecretKey::read(path, report))
        .transpose()?;
    let jobs = args::jobs(args.jobs);
    // What is fetched for this build alone goes when this is dropped.
    let contents = fetched(args, &inputs, report, &stop)?;

    let mut files = Vec::new();
    let mut pinned = BTreeMap::new();
    let mut own = BTreeMap::new();
    for program in &inputs.programs {
        let (path, shown) = match (&program.source, program.sha256, &contents) {
            (Source::File(path), ..) => (path.clone(), path.display().to_string()),
            (Source::Url(url), Some(sha256), Some(contents)) => (contents.path(sha256), url.clone()),
            (Source::Url(url), ..) => unreachable!("{url} was not fetched"),
        };
        elf::check(&path, &shown, program.kind, inputs.draft.architecture)?;
        if let Some(sha256) = program.sha256 {
            pinned.insert(program.target.clone(), (shown, sha256));
        }
        if program.kind == Kind::Program {
            own.insert(program.target.clone(), path.clone());
        }
        files.push(Input {
            path: program.target.clone(),
            kind: program.kind,
            mode: FileMode::Program,
            origin: program.origin.clone(),
            content: Content::File(path),
        });
    }
    files.extend(pages::of(inputs.programs.iter().map(|program| program.target.as_str())));
    let (images, blobs) = images::collect(&inputs.images, inputs.draft.architecture.name(), contents.as_ref())?;
    files.extend(blobs);
    let rendered = render(&inputs)?;
    let packed = Packed {
        version: &inputs.draft.version,
        programs: inputs
            .programs
            .iter()
            .map(|program| name_on_node(&program.target))
            .collect(),
        units: rendered
            .iter()
            .filter_map(|file| file.path.strip_prefix("systemd/"))
            .map(String::from)
            .collect(),
        images: &images,
    };
    references::check(&rendered, &packed)?;
    files.extend(rendered.into_iter().map(file_of));

    let draft = Draft { images, ..inputs.draft };
    let mut shown = Shown::new(report, "reading", &stop);
    let sealed = seal(draft, files, jobs, &mut shown)?;
    shown.finish();
    compare(&sealed, &pinned)?;
    let sealed = add_sbom(sealed, &own)?;
    if !inputs.parts.is_empty() {
        report.step("parts", &format!("with the optional parts {}", inputs.parts.join(", ")));
    }
    let sealed = match &key {
        Some(key) => sealed.sign(key)?,
        None => sealed,
    };
    if args.dry_run {
        say_what_would_be(&sealed, report);
        return Ok(());
    }
    if let Some(base) = &args.base {
        return delta::run(&sealed, base, args, report, &stop);
    }
    let target = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{}.tar.gz", sealed.manifest().folder())),
    };
    let written = write(&sealed, &target, jobs, report, &stop)?;
    if args.check_reproducible {
        check_reproducible(args, &sealed, &written, jobs, report, &stop)?;
    }
    say(
        &sealed,
        &target,
        &written,
        key.as_ref().map(SecretKey::public_key),
        report,
    );
    Ok(())
}

/// The spec, with the digests of its lock where that is asked for.
fn load(args: &Build) -> Result<Inputs, Failure> {
    let choice = Choice::Said {
        with: &args.with,
        without: &args.without,
    };
    let mut inputs = Inputs::load(args.spec.as_deref(), args.templates.as_deref(), choice)?;
    if args.locked {
        let spec = Inputs::spec_path(args.spec.as_deref());
        Lock::read(&lock::place(spec, args.lock_file.as_deref()))?.apply(&mut inputs)?;
    }
    Ok(inputs)
}

/// The cache of a lock, which must hold everything, whole. Nothing in it is changed.
fn in_cache(args: &Build, inputs: &Inputs) -> Result<Contents, Failure> {
    const FILL: &str = "quantykube-bundle lock SPEC fills the cache, where there is a network";
    let contents = Contents::cache(&lock::cache(args.cache.as_deref())?);
    let check = |digest, what: String| {
        let folder = contents.folder().display();
        let failure = match contents.state(digest)? {
            State::Whole => return Ok(()),
            State::Missing => Failure::new(Exit::Refused, "not-cached", format!("the cache {folder} lacks {what}")),
            State::Damaged => Failure::new(
                Exit::NotVerified,
                "damaged-cache",
                format!("in the cache {folder} this is damaged: {what}"),
            ),
        };
        Err(failure.hint(FILL))
    };
    for (url, sha256) in inputs.urls() {
        let sha256 = sha256.expect("a lock has all");
        check(sha256, format!("sha256:{sha256}, which is {url}"))?;
    }
    let architecture = inputs.draft.architecture.name();
    for image in inputs.pulled() {
        let whole = |digest| check(registry::ours(digest), format!("{digest} of the image {}", image.name));
        whole(image.digest)?;
        let (folder, shown) = (contents.folder(), image.shown());
        let failure = |error| images::failure(error).hint(FILL);
        let missing = quantykube_oci::missing(folder, &shown, image.digest, image.name, architecture);
        if let Some(missing) = missing.map_err(failure)?.first() {
            whole(missing.digest)?;
        }
        let found = quantykube_oci::from_blobs(folder, &shown, image.digest, image.name, architecture);
        for blob in &found.map_err(failure)?.blobs {
            whole(blob.digest)?;
        }
    }
    Ok(contents)
}

/// Everything that is not a file here already, fetched and compared; `None` where there is nothing of the kind.
fn fetched(args: &Build, inputs: &Inputs, report: &Reporter, stop: &Stop) -> Result<Option<Contents>, Failure> {
    inputs.check_digests()?;
    if inputs.urls().next().is_none() && inputs.pulled().next().is_none() {
        return Ok(None);
    }
    if args.locked {
        return in_cache(args, inputs).map(Some);
    }
    let contents = match &args.cache {
        Some(folder) => Contents::cache(folder),
        None => Contents::temporary()?,
    };
    for (url, sha256) in inputs.urls() {
        let sha256 = sha256.expect("checked above");
        if !contents.is_whole(sha256)? {
            let (file, found) = fetch::fetch(url, &contents, report, stop)?;
            if found != sha256 {
                return Err(fetch::checksum_differs(url, found, sha256));
            }
            contents.keep(file, found)?;
        }
    }
    let credentials = match &args.credentials {
        Some(path) => Credentials::read(path)?,
        None => Credentials::default(),
    };
    let mut registries = Registries::new(&inputs.registries, &credentials, report, stop);
    for image in inputs.pulled() {
        registries.pull(&image, inputs.draft.architecture.name(), &contents)?;
    }
    Ok(Some(contents))
}

fn render(inputs: &Inputs) -> Result<Vec<Rendered>, Failure> {
    let Draft {
        name,
        version,
        architecture,
        ..
    } = &inputs.draft;
    let given = BTreeMap::from([
        ("name", name.clone()),
        ("version", version.clone()),
        ("architecture", architecture.to_string()),
        ("programs", format!("{PROGRAMS}/{version}")),
    ]);
    render::render(&inputs.templates, &given, &inputs.values)
}

/// `run` is installed under the name of its program, all others under their own.
fn name_on_node(target: &str) -> String {
    match target {
        "run" => RUNNER.to_owned(),
        _ => target.strip_prefix("bin/").unwrap_or(target).to_owned(),
    }
}

fn file_of(rendered: Rendered) -> Input {
    let Rendered { path, kind, text } = rendered;
    let (mode, origin) = (FileMode::Plain, Origin::Template(path.clone()));
    Input {
        path,
        kind,
        mode,
        origin,
        content: Content::Bytes(text.into_bytes()),
    }
}

/// Adds the bill of materials: of what was read, and of what our own programs say that they were built from.
fn add_sbom(sealed: Sealed, own: &BTreeMap<String, PathBuf>) -> Result<Sealed, Failure> {
    let mut crates = sbom::Crates::new();
    for (target, path) in own {
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::new(Exit::Failed, "read", format!("cannot read {}", path.display())).because(error)
        })?;
        if let Some(list) = sbom::crates_of(&bytes) {
            crates.insert(target.clone(), list);
        }
    }
    let document = sbom::spdx::document(sealed.manifest(), &crates);
    Ok(sealed.with(Input {
        path: sbom::PATH.into(),
        kind: Kind::Document,
        mode: FileMode::Plain,
        origin: Origin::Generated("bill of materials".into()),
        content: Content::Bytes(document.into_bytes()),
    })?)
}

/// Compares what was read with the checksums of the spec.
fn compare(sealed: &Sealed, pinned: &BTreeMap<String, (String, Digest)>) -> Result<(), Failure> {
    for (target, (shown, expected)) in pinned {
        let found = sealed
            .manifest()
            .file(target)
            .expect("what was pinned was packed")
            .sha256;
        if found != *expected {
            return Err(fetch::checksum_differs(shown, found, *expected));
        }
    }
    Ok(())
}

/// Writes the tarball under a temporary name beside `target` and renames it when it is whole and synced.
fn write(sealed: &Sealed, target: &Path, jobs: usize, report: &Reporter, stop: &Stop) -> Result<Written, Failure> {
    let fresh = Fresh::make(target)?;
    let mut out = BufWriter::with_capacity(1 << 20, &fresh.file);
    let mut shown = Shown::new(report, "packing", stop);
    let written = sealed.write(&mut out, target, jobs, &mut shown)?;
    out.flush().map_err(cannot_write(target))?;
    drop(out);
    shown.finish();
    fresh.replace()?;
    Ok(written)
}

/// Reads and packs everything a second time, with another number of threads, and compares with what was written.
fn check_reproducible(
    args: &Build,
    first: &Sealed,
    written: &Written,
    jobs: usize,
    report: &Reporter,
    stop: &Stop,
) -> Result<(), Failure> {
    let mut shown = Shown::new(report, "packing again", stop);
    let jobs = if jobs == 1 { 3 } else { 1 };
    let again = first.again(jobs, &mut shown)?;
    let rendered = render(&load(args)?)?;
    for file in &rendered {
        let found = Digest::of(file.text.as_bytes());
        if first.manifest().file(&file.path).map(|entry| entry.sha256) != Some(found) {
            let message = format!("{} is rendered in another way the second time", file.path);
            return Err(Failure::new(Exit::Failed, "not-reproducible", message));
        }
    }
    shown.finish();
    match (again.id, again.sha256) == (written.id, written.sha256) {
        true => {
            report.step("reproducible", "built twice: the same bytes");
            Ok(())
        }
        false => {
            let message = format!(
                "a second build has the id {} and the sha256 {}, the first {} and {}",
                again.id, again.sha256, written.id, written.sha256
            );
            Err(Failure::new(Exit::Failed, "not-reproducible", message))
        }
    }
}

/// What a build would pack.
fn say_what_would_be(sealed: &Sealed, report: &Reporter) {
    let manifest = sealed.manifest();
    let lines: Vec<String> = manifest
        .files
        .iter()
        .map(|file| {
            let size = human_bytes(file.size);
            format!(
                "{:10}  {size:>10}  {}  from {}",
                file.kind.name(),
                file.path,
                file.origin
            )
        })
        .collect();
    let text = format!(
        "{}\n{} would hold {} files of {}, and nothing was written\nbundle id  {}",
        lines.join("\n"),
        manifest.folder(),
        manifest.files.len(),
        human_bytes(manifest.size()),
        sealed.id(),
    );
    report.result(
        &text,
        json!({"dryRun": true, "id": sealed.id().to_string(), "bundle": manifest}),
    );
}

/// What was made, and what to type on the node.
fn say(sealed: &Sealed, target: &Path, written: &Written, key: Option<&PublicKey>, report: &Reporter) {
    let folder = sealed.manifest().folder();
    let file = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut verify = format!("./run verify --id {}", written.id);
    if let Some(key) = key {
        verify.push_str(&format!(" --public-key {key}"));
    }
    let signed = key.map(|key| format!("\nsigned by  {}", key.id())).unwrap_or_default();
    let commands = [
        format!("tar xzf {file}"),
        format!("cd {folder}"),
        verify,
        "./run plan store".to_owned(),
        "./run install store".to_owned(),
    ];
    let undo = "quantykube undo store";
    let lines: Vec<String> = commands.iter().map(|command| format!("  {command}")).collect();
    let text = format!(
        "{}  {}, {} files\nbundle id  {}\nsha256     {}{signed}\n\nCopy it to the node. There, as root, in this order:\n{}\nThe way back, \
         at any time and without the bundle:\n  {undo}",
        target.display(),
        human_bytes(written.size),
        sealed.manifest().files.len() + 2 + usize::from(sealed.signature().is_some()),
        written.id,
        written.sha256,
        lines.join("\n"),
    );
    let value = json!({
        "file": target.display().to_string(),
        "size": written.size,
        "sha256": written.sha256.to_string(),
        "id": written.id.to_string(),
        "signedBy": key.map(|key| key.id().to_string()),
        "publicKey": key.map(|key| key.to_string()),
        "folder": folder,
        "commands": commands,
        "undo": [undo],
    });
    report.result(&text, value);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The renderings of the built-in templates as they were looked at and found good. After a wanted change write them
    /// anew with `QUANTYKUBE_GOLDEN=write cargo test -p quantykube-bundle golden`.
    #[test]
    fn golden_renderings() {
        let mut inputs = Inputs::load(None, None, Choice::Everything).unwrap();
        inputs.draft.version = "0.0.0-golden".into();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        let rendered = render(&inputs).unwrap();
        assert!(!rendered.is_empty());
        for file in rendered {
            let path = golden.join(&file.path);
            if std::env::var_os("QUANTYKUBE_GOLDEN").is_some_and(|value| value == "write") {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &file.text).unwrap();
            }
            let expected = fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(file.text, expected, "{} differs from {}", file.path, path.display());
        }
    }
}
