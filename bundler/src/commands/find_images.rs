//! `build --find-images`: what manifests name, and what of it the spec lacks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure, Reporter};
use quantykube_oci::Reference;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use yaml_serde::Value;

use crate::files;
use crate::inputs::{Image, ImagePlace, Inputs};
use crate::references;

/// The longest manifest, in bytes.
const LENGTH_MAX: u64 = 64 << 20;

/// Where an image is named.
struct Place {
    file: String,
    /// As `Deployment/web`; empty of what is no object.
    object: String,
    field: String,
}

/// What the spec says of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Packed,
    Lacking,
    /// The name has a digest, and the spec has the image from a file: the digest shows when it is built.
    Unclear,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Packed => "in the spec",
            State::Lacking => "lacking",
            State::Unclear => "unclear",
        }
    }
}

/// Lists every image of the manifests, completed as a runtime does it, and what to add to the spec.
pub fn run(inputs: &Inputs, manifests: &[PathBuf], report: &Reporter) -> Result<(), Failure> {
    let mut found: BTreeMap<String, (State, Vec<Place>)> = BTreeMap::new();
    let mut count = 0;
    for file in manifests_of(manifests)? {
        count += 1;
        let shown = file.display().to_string();
        for document in documents(&file)? {
            for named in references::images_in(&document) {
                let (object, field) = object_of(&document, &named.field);
                let place = Place {
                    file: shown.clone(),
                    object,
                    field,
                };
                match Reference::parse(&named.name) {
                    Ok(name) => {
                        let state = state(&name, &inputs.images);
                        let entry = found.entry(name.to_string()).or_insert((state, Vec::new()));
                        entry.1.push(place);
                    }
                    Err(error) => report.warning("no-image", &format!("{}: {error}", place.shown())),
                }
            }
        }
    }
    say(&found, count, report);
    Ok(())
}

fn say(found: &BTreeMap<String, (State, Vec<Place>)>, files: usize, report: &Reporter) {
    let width = found.keys().map(String::len).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (name, (state, places)) in found {
        let more = match places.len() {
            1 => String::new(),
            several => format!(" and {} more", several - 1),
        };
        lines.push(format!(
            "{name:width$}  {:11}  {}{more}",
            state.word(),
            places[0].shown()
        ));
    }
    let of = |state: State| {
        found
            .iter()
            .filter(move |(_, (found, _))| *found == state)
            .map(|(name, _)| name)
    };
    let lacking: Vec<&String> = of(State::Lacking).collect();
    let unclear = of(State::Unclear).count();
    lines.push(format!(
        "{files} files name {} images; the spec lacks {}{}",
        found.len(),
        lacking.len(),
        match unclear {
            0 => String::new(),
            some => format!(", and of {some} the digest shows when it is built"),
        }
    ));
    if !lacking.is_empty() {
        lines.push("to add to the spec (lock finds the digests):\nimages:".into());
        lines.extend(lacking.iter().map(|name| format!("  - name: {name}")));
    }
    let rows: Vec<Json> = found
        .iter()
        .map(|(name, (state, places))| {
            let places: Vec<Json> = places
                .iter()
                .map(|place| json!({"file": place.file, "object": place.object, "field": place.field}))
                .collect();
            json!({"name": name, "state": state.word(), "named": places})
        })
        .collect();
    report.result(
        &lines.join("\n"),
        json!({"files": files, "images": rows, "lacking": lacking}),
    );
}

impl Place {
    fn shown(&self) -> String {
        match self.object.is_empty() {
            true => format!("{} {}", self.file, self.field),
            false => format!("{} {} {}", self.file, self.object, self.field),
        }
    }
}

fn state(wanted: &Reference, images: &[Image]) -> State {
    let of_it: Vec<&Image> = images
        .iter()
        .filter(|image| image.name.repository == wanted.repository)
        .collect();
    let fits = |image: &&Image| match (wanted.digest, &image.place) {
        (None, _) => image.name.tag == wanted.tag,
        (Some(digest), ImagePlace::Registry { digest: pulled, .. }) => {
            image.name.digest == Some(digest) || *pulled == Some(digest)
        }
        (Some(digest), _) => image.name.digest == Some(digest),
    };
    if of_it.iter().any(fits) {
        return State::Packed;
    }
    let may_fit = |image: &&Image| {
        image.name.digest.is_none() && !matches!(image.place, ImagePlace::Registry { digest: Some(_), .. })
    };
    match wanted.digest.is_some() && of_it.iter().any(may_fit) {
        true => State::Unclear,
        false => State::Lacking,
    }
}

/// The object that a field belongs to, and the field in it: of a list that is one of its items.
fn object_of(document: &Value, field: &str) -> (String, String) {
    let item = field.strip_prefix("items[").and_then(|rest| rest.split_once("]."));
    if let Some((index, rest)) = item {
        let items = document.get("items").and_then(Value::as_sequence);
        let object = index.parse::<usize>().ok().and_then(|index| items?.get(index));
        if let Some(object) = object.filter(|object| object.get("kind").is_some()) {
            // A list in a list is no object either.
            return object_of(object, rest);
        }
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, metadata) = (text(document.get("kind")), document.get("metadata"));
    let name = |key| text(metadata.and_then(|metadata| metadata.get(key)));
    let named = [name("name"), name("generateName")]
        .into_iter()
        .find(|name| !name.is_empty());
    let object = match (kind.is_empty(), named) {
        (true, _) => String::new(),
        (false, None) => kind,
        (false, Some(name)) => format!("{kind}/{name}"),
    };
    (object, field.to_owned())
}

fn documents(file: &Path) -> Result<Vec<Value>, Failure> {
    let text = files::read_text(file, LENGTH_MAX)?;
    let mut found = Vec::new();
    for document in yaml_serde::Deserializer::from_str(&text) {
        let value = Value::deserialize(document).map_err(|error| {
            let message = format!("{} is not valid YAML: {error}", file.display());
            Failure::new(Exit::Usage, "manifest", message)
                .hint("templates are rendered first; a chart, by helm template")
        })?;
        found.push(value);
    }
    Ok(found)
}

/// The files, those of folders sorted by their names.
fn manifests_of(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        match path.is_dir() {
            true => below(path, &mut files)?,
            false => files.push(path.clone()),
        }
    }
    Ok(files)
}

fn below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        Failure::new(Exit::Failed, "read", format!("cannot read {}", folder.display())).because(error)
    };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        // A link to a folder may lead in a circle, and is not followed.
        entries.push((entry.path(), entry.file_type().map_err(cannot)?.is_dir()));
    }
    entries.sort();
    for (path, is_folder) in entries {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if is_folder {
            below(&path, files)?;
        } else if ["yaml", "yml", "json"].contains(&ending) && !path.is_dir() {
            files.push(path);
        }
    }
    Ok(())
}
