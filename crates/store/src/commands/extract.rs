//! `extract`: the Kubernetes objects of a namespace out of a closed file.

use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use bytes::Bytes;
use clap::ValueEnum;
use quantykube_base::{Exit, Failure, Reporter};
use quantykube_store_file::{KeyRange, RangeEnd};
use serde_json::{Value, json};

use super::objects::{self, Object};
use super::{failure, look, printed};

/// Print the Kubernetes objects of a namespace out of a closed store file
///
/// Objects that the API server stored as JSON (custom resources) are printed whole, as YAML documents (in its
/// flow style, which is JSON) that `kubectl apply` takes. Those it stored as protobuf (all kinds of its own) are named with their kind, uid and labels in comments:
/// printing them whole needs the schema of each kind, which the store does not have. Start the store on a copy of the file
/// with an API server before it, and ask that with kubectl. Encrypted objects are named with the key they need.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The store file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The namespace
    #[arg(long, short, value_name = "NAME")]
    namespace: String,

    /// How to print
    #[arg(long, short, value_enum, default_value = "yaml")]
    output: Output,

    /// Where the API server keeps its keys
    #[arg(long, value_name = "PREFIX", default_value = "/registry/")]
    prefix: String,
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// Documents of YAML; what cannot be printed whole is in comments.
    Yaml,
    /// A line of JSON for each key.
    Json,
}

#[derive(Default)]
struct Counts {
    whole: usize,
    named: usize,
    encrypted: usize,
}

/// Prints.
pub fn run(args: &Args, reporter: &Reporter) -> Result<(), Failure> {
    let store = look(&args.file)?;
    let mut found: Vec<(Bytes, Bytes)> = Vec::new();
    let mut failed = None;
    let all = KeyRange {
        start: Bytes::copy_from_slice(args.prefix.as_bytes()),
        end: RangeEnd::Unbounded,
    };
    store.scan(&all, store.revision(), &mut |key, version| {
        let Some(rest) = key.strip_prefix(args.prefix.as_bytes()) else {
            return ControlFlow::Break(());
        };
        if belongs(rest, &args.namespace) {
            match store.value(version) {
                Ok(value) => found.push((key.clone(), value)),
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });
    if let Some(error) = failed {
        return Err(failure(&args.file, error));
    }
    if found.is_empty() {
        let message = format!(
            "{} has no key of namespace {} under {}",
            args.file.display(),
            args.namespace,
            args.prefix
        );
        let hint = "see its keys: quantykube-store dump --live --keys-only FILE";
        return Err(Failure::new(Exit::Refused, "nothing-found", message).hint(hint));
    }
    let mut counts = Counts::default();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut outcome = Ok(());
    for (key, value) in &found {
        let key = String::from_utf8_lossy(key);
        outcome = match args.output {
            Output::Yaml => yaml(&mut out, &key, value, &mut counts),
            Output::Json => writeln!(out, "{}", line(&key, value, &mut counts)),
        };
        if outcome.is_err() {
            break;
        }
    }
    printed(outcome.and_then(|()| out.flush()))?;
    let Counts {
        whole,
        named,
        encrypted,
    } = counts;
    if named > 0 {
        let message = format!(
            "{named} of {} objects are not printed whole: they are stored as protobuf, whose schemas the store does not \
             have",
            found.len()
        );
        reporter.warning("protobuf", &message);
    }
    if encrypted > 0 {
        let message = format!(
            "{encrypted} of {} objects are encrypted: only the API server has the keys",
            found.len()
        );
        reporter.warning("encrypted", &message);
    }
    reporter.step(
        "extracted",
        &format!("{whole} of {} objects printed whole", found.len()),
    );
    Ok(())
}

/// Whether a key (without the prefix) is of the namespace: RESOURCE/NAMESPACE/NAME, with a group or a further word before
/// the resource, or the namespace itself.
fn belongs(key: &[u8], namespace: &str) -> bool {
    let parts: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
    let namespace = namespace.as_bytes();
    match &parts[..] {
        [b"namespaces", name] => *name == namespace,
        [_, place, _] | [_, _, place, _] => *place == namespace,
        _ => false,
    }
}

fn yaml(out: &mut impl Write, key: &str, value: &[u8], counts: &mut Counts) -> std::io::Result<()> {
    match objects::read(value) {
        Object::Json(object) => {
            counts.whole += 1;
            let mut text = serde_json::to_string_pretty(&object).map_err(std::io::Error::other)?;
            // JSON is YAML, and unlike plain words its strings stay strings for every reader ("on", "0123"). Only these
            // characters are folded inside YAML's quotes.
            for (folded, escape) in [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")] {
                text = text.replace(folded, escape);
            }
            writeln!(out, "---\n# {key}\n{text}")
        }
        Object::Protobuf {
            api_version,
            kind,
            meta,
        } => {
            counts.named += 1;
            let meta = meta.unwrap_or_default();
            let labels = json!(meta.labels);
            writeln!(
                out,
                "---\n# {key}: {kind} of {api_version}, stored as protobuf: not printed whole\n# name {}, uid {}, labels \
                 {labels}",
                meta.name, meta.uid
            )
        }
        Object::Encrypted(with) => {
            counts.encrypted += 1;
            writeln!(out, "---\n# {key}: encrypted with {with}")
        }
        Object::Other => {
            counts.named += 1;
            writeln!(
                out,
                "---\n# {key}: {} bytes that are no object of Kubernetes",
                value.len()
            )
        }
    }
}

fn line(key: &str, value: &[u8], counts: &mut Counts) -> Value {
    match objects::read(value) {
        Object::Json(object) => {
            counts.whole += 1;
            json!({"key": key, "stored": "json", "object": object})
        }
        Object::Protobuf {
            api_version,
            kind,
            meta,
        } => {
            counts.named += 1;
            let meta = meta.unwrap_or_default();
            let meta = json!({
                "name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "labels": meta.labels,
            });
            json!({"key": key, "stored": "protobuf", "apiVersion": api_version, "kind": kind, "metadata": meta})
        }
        Object::Encrypted(with) => {
            counts.encrypted += 1;
            json!({"key": key, "stored": "encrypted", "with": with})
        }
        Object::Other => {
            counts.named += 1;
            json!({"key": key, "stored": "other", "bytes": value.len()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_namespace_are_known_by_their_shape() {
        for key in [
            "namespaces/shop",
            "pods/shop/web",
            "services/specs/shop/web",
            "stable.example.com/crontabs/shop/one",
        ] {
            assert!(belongs(key.as_bytes(), "shop"), "{key}");
        }
        for key in [
            "namespaces/shopping",
            "pods/other/shop",
            "shop",
            "shop/a",
            "nodes/shop",
            "a/b/c/shop/d",
            "",
        ] {
            assert!(!belongs(key.as_bytes(), "shop"), "{key}");
        }
    }
}
