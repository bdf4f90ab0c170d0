//! Optional parts of a spec: which are taken, and the spec with these in it.

use std::collections::BTreeSet;

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::check_name;

use crate::spec::{Part, Spec};

/// Which parts are wanted.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// All of them: what a lock has to know.
    Everything,
    /// Those that are taken unless said, and what was said.
    Said { with: &'a [String], without: &'a [String] },
}

impl Choice<'_> {
    fn takes(self, part: &Part) -> bool {
        let named = |names: &[String]| names.contains(&part.name);
        match self {
            Choice::Everything => true,
            Choice::Said { with, without } => named(with) || (part.default && !named(without)),
        }
    }

    /// Refuses names that no part has, and a part that is both wanted and not.
    fn check(self, parts: &[Part]) -> Result<(), Failure> {
        let Choice::Said { with, without } = self else {
            return Ok(());
        };
        let known: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        if let Some(name) = with.iter().chain(without).find(|name| !known.contains(&name.as_str())) {
            let there = match known.is_empty() {
                true => "it has no parts".into(),
                false => format!("there are: {}", known.join(", ")),
            };
            return Err(Failure::new(
                Exit::Usage,
                "part",
                format!("there is no part {name:?}; {there}"),
            ));
        }
        match with.iter().find(|name| without.contains(name)) {
            Some(name) => {
                let message = format!("the part {name} is in --with and in --without");
                Err(Failure::new(Exit::Usage, "part", message))
            }
            None => Ok(()),
        }
    }
}

/// The spec with the parts that are taken as if all of it stood at the top, and their names. What a part that is left out
/// names of templates is left out, too.
pub fn taken(mut spec: Spec, choice: Choice) -> Result<(Spec, Vec<String>), Failure> {
    let parts = std::mem::take(&mut spec.parts);
    let wrong = |message: String| Failure::new(Exit::Usage, "spec", message);
    let mut names = BTreeSet::new();
    for part in &parts {
        check_name(&part.name).map_err(|error| wrong(format!("a part: {error}")))?;
        if !names.insert(part.name.clone()) {
            return Err(wrong(format!("the part {} is listed twice", part.name)));
        }
    }
    choice.check(&parts)?;
    let mut found = Vec::new();
    for part in parts {
        let takes = choice.takes(&part);
        for template in &part.templates {
            if spec.templates.of_parts.contains(template) {
                return Err(wrong(format!("the template {template} is of two parts")));
            }
            spec.templates.of_parts.push(template.clone());
            if !takes {
                spec.templates.except.push(template.clone());
            }
        }
        if !takes {
            continue;
        }
        spec.programs.extend(part.programs);
        spec.binaries.extend(part.binaries);
        spec.images.extend(part.images);
        for (name, value) in part.values {
            if spec.values.insert(name.clone(), value).is_some() {
                return Err(wrong(format!("the value {name} is listed twice")));
            }
        }
        found.push(part.name);
    }
    Ok((spec, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "
programs: [{name: quantykube}]
parts:
- {name: always, default: true, binaries: [{name: a, path: a}], templates: [manifests/a.yaml]}
- {name: tools, binaries: [{name: t, path: t}], values: {t: 1}, templates: [manifests/t.yaml]}
";

    fn of(with: &[&str], without: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let names = |names: &[&str]| names.iter().map(|name| String::from(*name)).collect::<Vec<_>>();
        let (with, without) = (names(with), names(without));
        let choice = Choice::Said {
            with: &with,
            without: &without,
        };
        let spec: Spec = yaml_serde::from_str(SPEC).unwrap();
        let (spec, found) = taken(spec, choice).map_err(|failure| failure.message)?;
        assert_eq!(spec.binaries.len(), found.len());
        assert_eq!(spec.values.len(), usize::from(found.contains(&"tools".to_owned())));
        assert_eq!(spec.templates.of_parts.len(), 2);
        Ok((found, spec.templates.except))
    }

    #[test]
    fn parts_are_taken_as_said() {
        let (a, t) = ("manifests/a.yaml".to_owned(), "manifests/t.yaml".to_owned());
        assert_eq!(of(&[], &[]).unwrap(), (vec!["always".into()], vec![t.clone()]));
        assert_eq!(
            of(&["tools"], &["always"]).unwrap(),
            (vec!["tools".into()], vec![a.clone()])
        );
        assert_eq!(
            of(&["always"], &["tools"]).unwrap(),
            (vec!["always".into()], vec![t.clone()])
        );
        assert_eq!(of(&[], &["always"]).unwrap(), (Vec::new(), vec![a, t]));
        let said = of(&["tool"], &[]).unwrap_err();
        assert!(
            said.contains("no part \"tool\"") && said.contains("always, tools"),
            "{said}"
        );
        assert!(
            of(&["tools"], &["tools"])
                .unwrap_err()
                .contains("--with and in --without")
        );
        let spec: Spec = yaml_serde::from_str(SPEC).unwrap();
        assert_eq!(taken(spec, Choice::Everything).unwrap().1, ["always", "tools"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (parts, said) in [
            ("[{name: a}, {name: a}]", "the part a is listed twice"),
            ("[{name: A b}]", "a part: "),
            ("[{name: a, templates: [x]}, {name: b, templates: [x]}]", "of two parts"),
            (
                "[{name: a, values: {v: 1}}, {name: b, values: {v: 2}}]",
                "the value v is listed twice",
            ),
        ] {
            let spec: Spec = yaml_serde::from_str(&format!("parts: {parts}")).unwrap();
            let failure = taken(spec, Choice::Everything).unwrap_err();
            assert!(failure.message.contains(said), "{}", failure.message);
        }
    }
}
