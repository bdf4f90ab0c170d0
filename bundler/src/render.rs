//! Templates: text in, text out. No node, no clock, no environment.
//!
//! A value may be written without a filter only where it is a plain word, which means the same everywhere. Any other
//! goes through `yaml` or `unit`, which quote it, or the rendering fails: a template cannot forget it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{Environment, ErrorKind, State, UndefinedBehavior, Value};
use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::Kind;

/// The templates that come with the program.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "manifests/prometheus-rules.yaml",
        include_str!("../../templates/manifests/prometheus-rules.yaml"),
    ),
    (
        "manifests/prometheus-scrape.yaml",
        include_str!("../../templates/manifests/prometheus-scrape.yaml"),
    ),
    (
        "systemd/quantykube-guard.service",
        include_str!("../../templates/systemd/quantykube-guard.service"),
    ),
    (
        "systemd/quantykube-recover.service",
        include_str!("../../templates/systemd/quantykube-recover.service"),
    ),
    (
        "systemd/quantykube-resume.service",
        include_str!("../../templates/systemd/quantykube-resume.service"),
    ),
    (
        "systemd/quantykube-store.service",
        include_str!("../../templates/systemd/quantykube-store.service"),
    ),
];
/// Which folder of templates makes what.
const FOLDERS: [(&str, Kind); 3] = [
    ("systemd", Kind::Unit),
    ("manifests", Kind::Manifest),
    ("cloud-init", Kind::CloudInit),
];
/// The longest template, in bytes.
const TEMPLATE_MAX: u64 = 4 << 20;

/// One template.
#[derive(Clone, Debug)]
pub struct Template {
    /// Its path among the templates, and that of its rendering in the bundle.
    pub path: String,
    pub kind: Kind,
    pub text: String,
}

/// One rendering.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub path: String,
    pub kind: Kind,
    pub text: String,
}

fn kind_of(path: &str) -> Option<Kind> {
    let folder = path.split_once('/')?.0;
    FOLDERS.iter().find(|(name, _)| *name == folder).map(|(_, kind)| *kind)
}

/// The templates that come with the program.
pub fn built_in() -> Vec<Template> {
    let template = |(path, text): &(&str, &str)| Template {
        path: (*path).to_owned(),
        kind: kind_of(path).expect("a built-in template is in a known folder"),
        text: (*text).to_owned(),
    };
    BUILT_IN.iter().map(template).collect()
}

/// The templates of a folder: the files right in its `systemd`, `manifests` and `cloud-init`, but for hidden ones.
pub fn templates_in(folder: &Path) -> Result<Vec<Template>, Failure> {
    let wrong = |message: String| Failure::new(Exit::Usage, "templates", message);
    let mut templates = Vec::new();
    for (name, kind) in FOLDERS {
        let inner = folder.join(name);
        let entries = match std::fs::read_dir(&inner) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(wrong(format!("cannot read {}", inner.display())).because(error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| wrong(format!("cannot read {}", inner.display())).because(error))?;
            let file = entry.file_name().to_string_lossy().into_owned();
            if file.starts_with('.') {
                continue;
            }
            let text = crate::files::read_text(&entry.path(), TEMPLATE_MAX)?;
            templates.push(Template {
                path: format!("{name}/{file}"),
                kind,
                text,
            });
        }
    }
    if templates.is_empty() {
        let message = format!("{} holds no template", folder.display());
        return Err(
            wrong(message).hint("put units into systemd/, manifests into manifests/, user-data into cloud-init/")
        );
    }
    templates.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(templates)
}

/// Renders all templates. `given` are the values that every template has; `values` those of the spec, each of which
/// some template must use.
pub fn render(
    templates: &[Template],
    given: &BTreeMap<&str, String>,
    values: &BTreeMap<String, yaml_serde::Value>,
) -> Result<Vec<Rendered>, Failure> {
    let wrong = |message: String| Failure::new(Exit::Usage, "template", message);
    if let Some(name) = values.keys().find(|name| given.contains_key(name.as_str())) {
        return Err(wrong(format!(
            "values gives {name}, which comes from the bundle itself"
        )));
    }
    let mut context: BTreeMap<String, Value> = BTreeMap::new();
    context.extend(
        given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str()))),
    );
    context.extend(
        values
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(Serde(value)))),
    );
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder()
        .keep_trailing_newline(true)
        .trim_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the usual delimiters are well formed"));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(plain_or_quoted);
    environment.add_filter("yaml", yaml);
    environment.add_filter("unit", unit);
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut rendered = Vec::new();
    for template in templates {
        let cannot = |error: &minijinja::Error| {
            let line = error.line().map(|line| format!(" line {line}")).unwrap_or_default();
            let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
            format!(
                "the template {}{line} cannot be rendered: {}{detail}",
                template.path,
                error.kind()
            )
        };
        let parsed = environment
            .template_from_named_str(&template.path, &template.text)
            .map_err(|error| wrong(cannot(&error)))?;
        let asked = parsed.undeclared_variables(false);
        let text = parsed.render(&context).map_err(|error| {
            let mut missing: Vec<&str> = asked
                .iter()
                .map(String::as_str)
                .filter(|n| !context.contains_key(*n))
                .collect();
            missing.sort_unstable();
            match error.kind() == ErrorKind::UndefinedError && !missing.is_empty() {
                true => {
                    let names = missing.join(", ");
                    let line = error.line().map(|line| format!(" line {line}")).unwrap_or_default();
                    wrong(format!(
                        "the template {}{line} uses {names}, which has no value",
                        template.path
                    ))
                    .hint(format!("give it under values in the spec: `{}: ...`", missing[0]))
                }
                false => wrong(cannot(&error)),
            }
        })?;
        used.extend(asked);
        rendered.push(Rendered {
            path: template.path.clone(),
            kind: template.kind,
            text,
        });
    }
    if let Some(unused) = values.keys().find(|name| !used.contains(*name)) {
        return Err(wrong(format!("values gives {unused}, which no template uses")));
    }
    Ok(rendered)
}

/// Writes what a filter quoted, numbers, booleans and plain words; anything else is an error.
fn plain_or_quoted(out: &mut minijinja::Output, state: &mut State, value: &Value) -> Result<(), minijinja::Error> {
    let plain = match value.kind() {
        // Python's True means nothing to YAML or a unit.
        ValueKind::Bool => return Ok(out.write_str(if value.is_true() { "true" } else { "false" })?),
        ValueKind::Number => true,
        ValueKind::String => value.is_safe() || value.as_str().is_some_and(is_plain_word),
        // The formatter of minijinja names what is undefined.
        ValueKind::Undefined => true,
        _ => false,
    };
    if plain {
        return minijinja::escape_formatter(out, state, value);
    }
    let message = format!("{value:?} is no plain word: write {{{{ ... | yaml }}}} or {{{{ ... | unit }}}}");
    Err(minijinja::Error::new(ErrorKind::BadEscape, message))
}

/// A word that needs no quotes in YAML, in a unit and in a shell.
fn is_plain_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric() || first == b'/')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._/+-".contains(&byte))
}

/// Any value as YAML on one line: JSON is YAML, but for characters that only YAML takes as a break or refuses.
fn yaml(value: Value) -> Result<Value, minijinja::Error> {
    defined(&value)?;
    let failed = |error: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut quoted = String::new();
    for character in serde_json::to_string(&value).map_err(failed)?.chars() {
        match character {
            '\u{7f}'..='\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => quoted.push(character),
        }
    }
    Ok(Value::from_safe_string(quoted))
}

/// minijinja hands what is undefined to a filter, however strict it is.
fn defined(value: &Value) -> Result<(), minijinja::Error> {
    match value.is_undefined() {
        true => Err(ErrorKind::UndefinedError.into()),
        false => Ok(()),
    }
}

/// A string as one word of a systemd unit: quoted where it must be, with `%` and `$` taken as they are.
fn unit(value: Value) -> Result<Value, minijinja::Error> {
    defined(&value)?;
    let text = match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool => value.to_string(),
        kind => {
            let message = format!("a unit takes a word, not a {kind}");
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
        }
    };
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        let message = format!("{text:?} has a control character, which a unit cannot hold");
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
    }
    if is_plain_word(&text) {
        return Ok(Value::from_safe_string(text));
    }
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '%' => quoted.push_str("%%"),
            '$' => quoted.push_str("$$"),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    Ok(Value::from_safe_string(quoted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, values: &str) -> Result<String, Failure> {
        with(text, yaml_serde::from_str(values).unwrap())
    }

    fn with(text: &str, values: BTreeMap<String, yaml_serde::Value>) -> Result<String, Failure> {
        let template = Template {
            path: "manifests/a.yaml".into(),
            kind: Kind::Manifest,
            text: text.into(),
        };
        let given = BTreeMap::from([("version", "0.1.0".to_owned())]);
        Ok(render(&[template], &given, &values)?.remove(0).text)
    }

    #[test]
    fn hostile_values_stay_values() {
        for value in [
            "a: b\nc: d",
            "'",
            "\"",
            "{{ version }}",
            "#",
            "- x",
            "*a",
            "&a",
            "~",
            "\\",
            "\u{85}",
            "%x",
        ] {
            let values = BTreeMap::from([("v".to_owned(), yaml_serde::Value::from(value))]);
            let text = with("key: {{ v | yaml }}\n", values.clone()).unwrap();
            let back: BTreeMap<String, String> = yaml_serde::from_str(&text).unwrap();
            assert_eq!(back["key"], value);
            assert!(with("key: {{ v }}\n", values).is_err(), "{value:?} needs a filter");
        }
        assert!(one("{{ v | unit }}", r#"v: "a\nExecStart=/bin/sh""#).is_err());
        assert_eq!(
            one("{{ v | unit }}", r#"v: 'a "b" %i $c \d'"#).unwrap(),
            r#""a \"b\" %%i $$c \\d""#
        );
    }

    #[test]
    fn plain_values_need_no_filter() {
        assert_eq!(
            one("{{ version }} {{ n }} {{ b }}\n", "n: 3\nb: true").unwrap(),
            "0.1.0 3 true\n"
        );
        assert_eq!(one("{{ v | yaml }}", "v: [1, 'a b']").unwrap(), r#"[1,"a b"]"#);
    }

    #[test]
    fn a_variable_without_a_value_is_named() {
        for filter in ["", " | yaml", " | unit"] {
            let failure = one(&format!("a\n{{{{ site{filter} }}}}\n"), "{}").unwrap_err();
            let expected = "manifests/a.yaml line 2 uses site, which has no value";
            assert!(failure.message.contains(expected), "{filter}: {}", failure.message);
            assert!(one(&format!("{{{{ v.inner{filter} }}}}"), "v: {other: 1}").is_err());
        }
        let failure = one("{{ v.inner }}", "v: {other: 1}").unwrap_err();
        assert!(
            failure.message.contains("manifests/a.yaml line 1"),
            "{}",
            failure.message
        );
        assert!(
            one("x", "typo: 1")
                .unwrap_err()
                .message
                .contains("typo, which no template uses")
        );
        assert!(
            one("{{ version }}", "version: 9")
                .unwrap_err()
                .message
                .contains("comes from the bundle itself")
        );
    }

    #[test]
    fn every_template_of_the_tree_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../templates");
        let on_disk: Vec<(String, String)> = templates_in(&folder)
            .unwrap()
            .into_iter()
            .map(|template| (template.path, template.text))
            .collect();
        let built_in: Vec<(String, String)> = built_in()
            .into_iter()
            .map(|template| (template.path, template.text))
            .collect();
        assert_eq!(on_disk, built_in);
    }
}
