//! `init`: a spec to begin with.

use quantykube_base::{Failure, Reporter};
use serde_json::json;

use crate::args::Init;
use crate::files;

/// A spec with every key, those that need something of the user's commented out.
const SPEC: &str = include_str!("../init.yaml");

/// Writes it, never over another file.
pub fn run(args: &Init, report: &Reporter) -> Result<(), Failure> {
    files::make(&args.file, SPEC, 0o644)?;
    let file = args.file.display().to_string();
    let text = format!("{file}  edit it, then: quantykube-bundle build {file}");
    report.result(&text, json!({"file": file}));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::spec::{self, Spec};

    /// The spec with everything that is commented out.
    fn uncommented() -> String {
        let is_key = |line: &str| {
            let line = line.trim_start().trim_start_matches("- ");
            let key = line.split(':').next().unwrap_or_default();
            line.contains(':') && !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let open = |line: &str| match line.strip_prefix('#') {
            Some(rest) if is_key(rest.trim_start()) && !rest.contains("`") => {
                let rest = rest.strip_prefix(' ').unwrap_or(rest);
                // The lines below a program stand as deep as the program's own.
                match line.starts_with("#   path: out") || line.starts_with("#   sha256") {
                    true => format!("    {}", rest.trim_start()),
                    false => rest.to_owned(),
                }
            }
            _ => line.to_owned(),
        };
        SPEC.lines().map(|line| open(line) + "\n").collect()
    }

    #[test]
    fn it_shows_every_key_there_is() {
        let _: Spec = yaml_serde::from_str(SPEC).unwrap();
        let text = uncommented();
        let spec: Spec = yaml_serde::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!((spec.binaries.len(), spec.images.len(), spec.values.len()), (2, 3, 1));
        let schema = spec::schema();
        let mut keys = BTreeSet::new();
        let parts = [&schema]
            .into_iter()
            .chain(schema["definitions"].as_object().unwrap().values());
        for part in parts {
            keys.extend(part["properties"].as_object().unwrap().keys().cloned());
        }
        assert!(keys.len() >= 14, "{keys:?}");
        for key in keys {
            assert!(text.contains(&format!("{key}:")), "init shows no {key}");
        }
    }
}
