//! The kubelet's configuration, as far as it says where static pods are read from.

use std::fs;
use std::path::{Path, PathBuf};

use yaml_serde::Value;

use crate::facts::manifest::Flags;
use crate::facts::{Root, process};

/// Where kubeadm puts the kubelet's configuration.
const CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// Why the folder is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        #[doc = "The file."]
        path: PathBuf,
        #[doc = "Why."]
        #[source]
        source: std::io::Error,
    },
    /// The configuration is not YAML.
    #[error("{} is not YAML", path.display())]
    Yaml {
        #[doc = "The file."]
        path: PathBuf,
        #[doc = "Where the parser stopped."]
        #[source]
        source: yaml_serde::Error,
    },
    /// No file names a folder.
    #[error("{} has no staticPodPath", path.display())]
    Missing {
        #[doc = "The file."]
        path: PathBuf,
    },
}

/// The folder of static pods: the last of the configuration file, its drop-ins in order of their names, and the flag.
pub fn static_pod_path(root: &Root) -> Result<PathBuf, Error> {
    let running = process::of_program(root, "kubelet");
    let flags = running
        .first()
        .map(|kubelet| Flags::parse(&kubelet.argv))
        .unwrap_or_default();
    if let Some(path) = flags.last("pod-manifest-path") {
        return Ok(path.into());
    }
    let config = PathBuf::from(flags.last("config").unwrap_or(CONFIG));
    let mut files = vec![config.clone()];
    if let Some(folder) = flags.last("config-dir") {
        files.extend(drop_ins(root, Path::new(folder))?);
    }
    let mut found = None;
    for file in &files {
        found = path_in(root, file)?.or(found);
    }
    found.ok_or(Error::Missing { path: config })
}

/// The `.conf` files of a drop-in folder, in the order in which the kubelet merges them.
fn drop_ins(root: &Root, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(root.at(folder)) {
        Ok(entries) => entries,
        Err(source) => {
            return Err(Error::Read {
                path: folder.to_owned(),
                source,
            });
        }
    };
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| folder.join(entry.file_name()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "conf"))
        .collect();
    names.sort();
    Ok(names)
}

fn path_in(root: &Root, file: &Path) -> Result<Option<PathBuf>, Error> {
    let text = fs::read_to_string(root.at(file)).map_err(|source| Error::Read {
        path: file.to_owned(),
        source,
    })?;
    let value: Value = yaml_serde::from_str(&text).map_err(|source| Error::Yaml {
        path: file.to_owned(),
        source,
    })?;
    let path = value
        .get("staticPodPath")
        .and_then(Value::as_str)
        .filter(|path| !path.is_empty());
    Ok(path.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake_process, put};

    #[test]
    fn the_last_word_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(matches!(static_pod_path(&root), Err(Error::Read { .. })));
        put(&root, CONFIG, "kind: KubeletConfiguration\n");
        assert!(matches!(static_pod_path(&root), Err(Error::Missing { .. })));
        put(&root, CONFIG, "staticPodPath: /etc/kubernetes/manifests\n");
        assert_eq!(static_pod_path(&root).unwrap(), Path::new("/etc/kubernetes/manifests"));
        put(&root, "/etc/kubelet.d/10.conf", "staticPodPath: /ten\n");
        put(&root, "/etc/kubelet.d/20.conf", "staticPodPath: /twenty\n");
        put(&root, "/etc/kubelet.d/30.conf", "kind: KubeletConfiguration\n");
        put(&root, "/etc/kubelet.d/40.yaml", "staticPodPath: /ignored\n");
        fake_process(&root, 5, &["/usr/bin/kubelet", "--config-dir=/etc/kubelet.d"], 1);
        assert_eq!(static_pod_path(&root).unwrap(), Path::new("/twenty"));
        fake_process(&root, 5, &["/usr/bin/kubelet", "--pod-manifest-path=/flag"], 1);
        assert_eq!(static_pod_path(&root).unwrap(), Path::new("/flag"));
    }
}
