//! A static pod's manifest: its text, and the flags of its one container.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use yaml_serde::Value;

use crate::facts::Root;

/// A manifest as it stands in the kubelet's folder.
#[derive(Clone, Debug, Serialize)]
pub struct Manifest {
    /// Where it stands on the node.
    pub path: PathBuf,
    /// Its text, untouched.
    #[serde(skip)]
    pub text: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What the container is started with: `command`, then `args`.
    #[serde(skip)]
    pub argv: Vec<String>,
}

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read at all.
    #[error("cannot read {}", path.display())]
    Read {
        #[doc = "The manifest."]
        path: PathBuf,
        #[doc = "Why."]
        #[source]
        source: io::Error,
    },
    /// It is not YAML.
    #[error("{} is not YAML", path.display())]
    Yaml {
        #[doc = "The manifest."]
        path: PathBuf,
        #[doc = "Where the parser stopped."]
        #[source]
        source: yaml_serde::Error,
    },
    /// It is YAML, but not one pod with one container.
    #[error("{}: {what}", path.display())]
    Shape {
        #[doc = "The manifest."]
        path: PathBuf,
        #[doc = "What was found and expected."]
        what: String,
    },
}

impl Manifest {
    /// Reads a manifest; `None` where there is none.
    pub fn read(root: &Root, path: &Path) -> Result<Option<Manifest>, Error> {
        let real = root.at(path);
        let read = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let text = match fs::read_to_string(&real) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read(error)),
        };
        let meta = fs::metadata(&real).map_err(read)?;
        let argv = argv(&text).map_err(|what| what.of(path))?;
        Ok(Some(Manifest {
            path: path.to_owned(),
            text,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            argv,
        }))
    }

    /// The flags of the container.
    pub fn flags(&self) -> Flags {
        Flags::parse(&self.argv)
    }
}

/// What the one container of a pod is started with: `command`, then `args`.
pub fn argv(text: &str) -> Result<Vec<String>, Wrong> {
    let shape = |what: String| Wrong::Shape(what);
    let pod: Value = yaml_serde::from_str(text).map_err(Wrong::Yaml)?;
    let containers = pod
        .get("spec")
        .and_then(|spec| spec.get("containers"))
        .and_then(Value::as_sequence)
        .ok_or_else(|| shape("no list spec.containers, which every pod has".to_owned()))?;
    let [container] = containers.as_slice() else {
        return Err(shape(format!("{} containers, kubeadm makes one", containers.len())));
    };
    let mut argv = Vec::new();
    for list in ["command", "args"] {
        match container.get(list) {
            None | Some(Value::Null) => {}
            Some(Value::Sequence(items)) => {
                for item in items {
                    let item = item
                        .as_str()
                        .ok_or_else(|| shape(format!("an entry of {list} is not a string")))?;
                    argv.push(item.to_owned());
                }
            }
            Some(_) => return Err(shape(format!("{list} is not a list"))),
        }
    }
    Ok(argv)
}

/// What is wrong with a text that should be a pod.
#[derive(Debug)]
pub enum Wrong {
    /// It is not YAML.
    Yaml(yaml_serde::Error),
    /// It is YAML, but not one pod with one container.
    Shape(String),
}

impl Wrong {
    fn of(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            Wrong::Yaml(source) => Error::Yaml { path, source },
            Wrong::Shape(what) => Error::Shape { path, what },
        }
    }
}

/// The flags of a Kubernetes program, in the order given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Flags(Vec<(String, String)>);

impl Flags {
    /// Reads `--name=value`, and `--name value` where the next item is not a flag. As in the programs themselves, `_` in a
    /// name stands for `-`.
    pub fn parse(argv: &[String]) -> Flags {
        let mut flags = Vec::new();
        let mut items = argv.iter().peekable();
        while let Some(item) = items.next() {
            let Some(flag) = item.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => match items.next_if(|next| !next.starts_with("--")) {
                    Some(value) => (flag, value.clone()),
                    None => (flag, "true".to_owned()),
                },
            };
            flags.push((name.replace('_', "-"), value));
        }
        Flags(flags)
    }

    /// Every value given for a flag.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .collect()
    }

    /// The value that counts for a flag that is no list: the last one.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.all(name).pop()
    }

    /// Whether the flag is given.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn flags_are_read_in_each_form() {
        let flags = Flags::parse(&items(&[
            "kube-apiserver",
            "--a=1",
            "--b",
            "2",
            "--c",
            "--etcd_servers=x",
            "--a=3",
            "--d=k=v",
            "--etcd-servers",
            "y",
        ]));
        assert_eq!(flags.all("a"), ["1", "3"]);
        assert_eq!(flags.last("a"), Some("3"));
        assert_eq!(flags.last("b"), Some("2"));
        assert_eq!(flags.last("c"), Some("true"));
        assert_eq!(flags.last("d"), Some("k=v"));
        assert_eq!(flags.all("etcd-servers"), ["x", "y"]);
        assert!(!flags.has("e"));
    }

    #[test]
    fn command_and_args_are_one_line() {
        let text = "spec:\n  containers:\n  - command: [kube-apiserver]\n    args:\n    - --x=1\n";
        assert_eq!(argv(text).unwrap(), ["kube-apiserver", "--x=1"]);
        for bad in [
            "a: [",
            "spec: {}",
            "spec: {containers: []}",
            "spec: {containers: [{command: [1]}]}",
        ] {
            assert!(argv(bad).is_err(), "{bad}");
        }
    }
}
