//! What rendered files name, and whether the bundle holds it.

use std::collections::BTreeSet;

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{Image, Kind};
use quantykube_oci::Reference;
use serde::Deserialize;
use yaml_serde::Value;

use crate::render::Rendered;

/// Where programs of bundles stand on a node: below it a folder for each version.
pub const PROGRAMS: &str = "/usr/local/lib/quantykube";

/// What a bundle holds.
#[derive(Debug)]
pub struct Packed<'a> {
    /// Its version.
    pub version: &'a str,
    /// Names of programs as they stand on a node.
    pub programs: BTreeSet<String>,
    /// Names of units.
    pub units: BTreeSet<String>,
    pub images: &'a [Image],
}

/// Checks every rendering.
pub fn check(rendered: &[Rendered], packed: &Packed) -> Result<(), Failure> {
    for file in rendered {
        packed.programs_of(file)?;
        match file.kind {
            Kind::Unit => packed.units_of(file)?,
            _ => packed.images_of(file)?,
        }
    }
    Ok(())
}

fn missing(file: &Rendered, what: &str, hint: &str) -> Failure {
    let message = format!("{} names {what}, which is not in the bundle", file.path);
    Failure::new(Exit::Refused, "not-packed", message).hint(hint)
}

/// What a file of a bundle names, in words, for people who look into the bundle: images, units of ours, programs.
pub fn named(file: &Rendered) -> Vec<String> {
    let mut found = BTreeSet::new();
    for line in code(file) {
        for (at, _) in line.match_indices(PROGRAMS) {
            let rest = &line[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "._+@-/".contains(c)));
            let path = &rest[..end.unwrap_or(rest.len())];
            if path[PROGRAMS.len()..].matches('/').count() == 2 {
                found.insert(format!("program {path}"));
            }
        }
        if file.kind == Kind::Unit {
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "._@-/".contains(c)));
            let units = words.filter(|word| word.starts_with("quantykube") && word.contains('.'));
            found.extend(units.map(|word| format!("unit {word}")));
        }
    }
    if file.kind != Kind::Unit {
        for document in yaml_serde::Deserializer::from_str(&file.text) {
            let images = Value::deserialize(document).map(|value| images_in(&value));
            let images = images.unwrap_or_default().into_iter();
            found.extend(images.map(|image| format!("image {}", image.name)));
        }
    }
    found.into_iter().collect()
}

impl Packed<'_> {
    /// Every path below the folder of our programs, in whatever key of whatever file.
    fn programs_of(&self, file: &Rendered) -> Result<(), Failure> {
        for line in code(file) {
            for (at, _) in line.match_indices(PROGRAMS) {
                let rest = &line[at + PROGRAMS.len()..];
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "._+@-/".contains(c)));
                let rest = &rest[..end.unwrap_or(rest.len())];
                let Some(rest) = rest.strip_prefix('/') else {
                    continue;
                };
                let path = format!("{PROGRAMS}/{rest}");
                match rest.split_once('/') {
                    // The folder alone names no program.
                    None | Some((_, "")) => {}
                    Some((version, name)) if version == self.version && self.programs.contains(name) => {}
                    Some((version, name)) if self.programs.contains(name) => {
                        let hint = format!("this bundle has version {}, not {version}", self.version);
                        return Err(missing(file, &format!("the program {path}"), &hint));
                    }
                    Some(_) => {
                        let hint = "list it under programs or binaries in the spec";
                        return Err(missing(file, &format!("the program {path}"), hint));
                    }
                }
            }
        }
        Ok(())
    }

    /// Every unit of ours that a unit names.
    fn units_of(&self, file: &Rendered) -> Result<(), Failure> {
        const ENDINGS: [&str; 6] = [".service", ".timer", ".path", ".socket", ".target", ".mount"];
        for line in code(file) {
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "._@-/".contains(c)));
            for word in words {
                let ours = word.starts_with("quantykube") && ENDINGS.iter().any(|ending| word.ends_with(ending));
                if ours && !self.units.contains(word) && !self.units.contains(&template_of(word)) {
                    return Err(missing(
                        file,
                        &format!("the unit {word}"),
                        "add its template to systemd/",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Every `image` of every document.
    fn images_of(&self, file: &Rendered) -> Result<(), Failure> {
        for document in yaml_serde::Deserializer::from_str(&file.text) {
            let value = Value::deserialize(document).map_err(|error| {
                Failure::new(
                    Exit::Usage,
                    "template",
                    format!("{} is not valid YAML: {error}", file.path),
                )
            })?;
            for Named { name, .. } in images_in(&value) {
                let reference = Reference::parse(&name).map_err(|error| {
                    let message = format!("{} names an image that cannot be: {error}", file.path);
                    Failure::new(Exit::Usage, "template", message)
                })?;
                if !self.holds(&reference) {
                    return Err(missing(
                        file,
                        &format!("the image {name}"),
                        "list it under images in the spec",
                    ));
                }
            }
        }
        Ok(())
    }

    fn holds(&self, wanted: &Reference) -> bool {
        self.images.iter().any(|image| {
            let packed = Reference::parse(&image.name).expect("the name was written by us");
            let same = packed.repository == wanted.repository;
            match wanted.digest {
                Some(digest) => same && digest.to_string() == image.digest,
                None => same && packed.tag == wanted.tag,
            }
        })
    }
}

/// The file of a unit that is an instance: `a@b.service` is made from `a@.service`.
fn template_of(unit: &str) -> String {
    match (unit.find('@'), unit.rfind('.')) {
        (Some(at), Some(dot)) if at < dot => format!("{}{}", &unit[..=at], &unit[dot..]),
        _ => unit.to_owned(),
    }
}

/// The lines of a file that are no comment.
fn code(file: &Rendered) -> impl Iterator<Item = &str> {
    file.text
        .lines()
        .filter(|line| !line.trim_start().starts_with(['#', ';']))
}

/// An image that a document names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// The name as it is written.
    pub name: String,
    /// Where in the document, as `spec.containers[0].image`.
    pub field: String,
}

/// Every image that a document names, however deep: what stands under a key `image`, of containers of every kind and of
/// whatever else; and `image.reference` of a volume.
pub fn images_in(value: &Value) -> Vec<Named> {
    let mut found = Vec::new();
    collect(value, &mut String::new(), &mut found);
    found
}

fn collect(value: &Value, field: &mut String, found: &mut Vec<Named>) {
    let length = field.len();
    match value {
        Value::Mapping(mapping) => {
            let of_volume = field.ends_with(".image") || field == "image";
            for (key, value) in mapping {
                if !field.is_empty() {
                    field.push('.');
                }
                // Kubernetes takes other keys, such as numbers, for texts.
                let key = key.as_str();
                match key {
                    Some(key) => field.push_str(key),
                    None => field.push_str("(a key that is no text)"),
                }
                match value.as_str() {
                    Some(name) if key == Some("image") || (of_volume && key == Some("reference")) => {
                        found.push(Named {
                            name: name.to_owned(),
                            field: field.clone(),
                        })
                    }
                    _ => collect(value, field, found),
                }
                field.truncate(length);
            }
        }
        Value::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                field.push_str(&format!("[{index}]"));
                collect(item, field, found);
                field.truncate(length);
            }
        }
        Value::Tagged(tagged) => collect(&tagged.value, field, found),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: Kind, text: &str) -> Rendered {
        Rendered {
            path: "manifests/a.yaml".into(),
            kind,
            text: text.into(),
        }
    }

    fn check_one(kind: Kind, text: &str) -> Result<(), String> {
        let digest = format!("sha256:{}", "a".repeat(64));
        let images = [
            ("registry.k8s.io/pause:3.10", &digest),
            ("docker.io/library/nginx:1", &digest),
        ]
        .map(|(name, digest)| Image {
            name: name.into(),
            digest: digest.clone(),
        });
        let packed = Packed {
            version: "0.1.0",
            programs: ["quantykube", "quantykube-store"].map(String::from).into(),
            units: ["quantykube-store.service", "quantykube-on@.service"]
                .map(String::from)
                .into(),
            images: &images,
        };
        check(&[file(kind, text)], &packed).map_err(|failure| failure.message)
    }

    #[test]
    fn programs_are_found_wherever_they_are_named() {
        let ok = |text: &str| check_one(Kind::Unit, text).unwrap();
        ok("ExecStart=/usr/local/lib/quantykube/0.1.0/quantykube-store --data x\n");
        ok("ExecStart=-/usr/bin/true\nReadOnlyPaths=/usr/local/lib/quantykube\n");
        ok("# /usr/local/lib/quantykube/9/none\n");
        let no = |text: &str, name: &str| {
            let message = check_one(Kind::Unit, text).unwrap_err();
            assert!(message.contains(name), "{message}");
        };
        no(
            "ExecStart=/usr/local/lib/quantykube/0.1.0/quantykube-guard\n",
            "0.1.0/quantykube-guard",
        );
        no("ExecStartPre=-+/usr/local/lib/quantykube/0.1.0/bin/x\n", "0.1.0/bin/x");
        no(
            "ExecStart=/bin/sh -c \"/usr/local/lib/quantykube/0.0.9/quantykube\"\n",
            "0.0.9/quantykube",
        );
        let manifest = "args: [/usr/local/lib/quantykube/0.1.0/none]";
        assert!(check_one(Kind::Manifest, manifest).unwrap_err().contains("0.1.0/none"));
    }

    #[test]
    fn units_of_ours_are_found() {
        check_one(
            Kind::Unit,
            "After=quantykube-store.service kubelet.service quantykube-on@a.service\n",
        )
        .unwrap();
        let message = check_one(Kind::Unit, "Wants=kubelet.service quantykube-guard.path\n").unwrap_err();
        assert!(message.contains("the unit quantykube-guard.path"), "{message}");
    }

    #[test]
    fn images_are_found_in_every_document_and_list() {
        let ok = |text: &str| check_one(Kind::Manifest, text).unwrap();
        ok("spec: {containers: [{image: registry.k8s.io/pause:3.10}]}");
        ok("image: nginx:1\n---\nimage: docker.io/library/nginx:1\n---\n");
        ok(&format!("image: registry.k8s.io/pause@sha256:{}", "a".repeat(64)));
        ok(&format!("image: registry.k8s.io/pause:9@sha256:{}", "a".repeat(64)));
        ok("image: {repository: x}\n");
        ok("volumes: [{image: {reference: 'nginx:1'}}]\nreference: x\n");
        for text in [
            "spec: {containers: [{image: registry.k8s.io/pause:3.9}]}",
            "a: 1\n---\nkind: List\nitems:\n- spec: {initContainers: [{name: a, image: 'other/x:1'}]}\n",
            "image: nginx\n",
            "image: localhost:5000/nginx:1\n",
            "spec: {volumes: [{name: a, image: {reference: 'r.example/data:1', pullPolicy: Never}}]}\n",
            "pools: {1: {image: 'example.org/x:1'}}\n",
            &format!("image: registry.k8s.io/pause@sha256:{}", "b".repeat(64)),
        ] {
            assert!(
                check_one(Kind::Manifest, text).unwrap_err().contains("the image "),
                "{text}"
            );
        }
        assert!(
            check_one(Kind::Manifest, "a: [\n")
                .unwrap_err()
                .contains("not valid YAML")
        );
    }
}
