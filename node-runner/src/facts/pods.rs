//! Every file that the kubelet reads as a static pod: each regular one whose name does not begin with a dot, whatever its
//! ending (Kubernetes, pkg/kubelet/config/file.go).

use std::fs;
use std::path::Path;

use yaml_serde::Value;

use crate::facts::manifest::Flags;
use crate::facts::{Known, Root};

/// A file of the kubelet's folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PodFile {
    /// Its name.
    pub name: String,
    /// What the kubelet makes of it; else why it makes nothing.
    pub pod: Known<Pod>,
}

/// A static pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pod {
    /// Its name, as in its metadata: two files with one name are one pod, and nobody knows which.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What the containers are started with.
    pub containers: Vec<Container>,
}

/// A container of a static pod.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Container {
    /// Its image.
    pub image: String,
    /// The base name of its program.
    pub program: String,
    /// The etcd servers that it is told of.
    pub etcd_servers: Vec<String>,
}

/// The kubelet reads no larger file (`maxConfigLength`), in bytes.
const FILE_BYTES_MAX: u64 = 10 << 20;

/// Reads the kubelet's folder, in order of the names.
pub fn read(root: &Root, folder: &Path) -> Known<Vec<PodFile>> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(root.at(folder)).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The kubelet follows links, and passes over what is no regular file.
        let regular = fs::metadata(entry.path()).is_ok_and(|meta| meta.is_file());
        if name.starts_with('.') || !regular {
            continue;
        }
        files.push(PodFile {
            pod: pod(&entry.path()),
            name,
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn pod(path: &Path) -> Known<Pod> {
    let bytes = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("{bytes} bytes are more than the kubelet reads"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value: Value = yaml_serde::from_str(&text).map_err(|error| format!("it is not YAML: {error}"))?;
    let string = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = value.get("metadata");
    let name = string(metadata.and_then(|metadata| metadata.get("name")));
    let containers = value
        .get("spec")
        .and_then(|spec| spec.get("containers"))
        .and_then(Value::as_sequence);
    let (false, Some(containers)) = (name.is_empty(), containers) else {
        return Err("it is no pod".to_owned());
    };
    let namespace = string(metadata.and_then(|metadata| metadata.get("namespace")));
    Ok(Pod {
        name,
        namespace: if namespace.is_empty() {
            "default".to_owned()
        } else {
            namespace
        },
        containers: containers.iter().map(container).collect(),
    })
}

fn container(value: &Value) -> Container {
    let list = |name: &str| {
        let items = value.get(name).and_then(Value::as_sequence);
        items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
    };
    let argv: Vec<String> = list("command").chain(list("args")).collect();
    let program = argv
        .first()
        .map_or("", |program| program.rsplit('/').next().unwrap_or(program));
    Container {
        image: value
            .get("image")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        program: program.to_owned(),
        etcd_servers: Flags::parse(&argv)
            .all("etcd-servers")
            .iter()
            .flat_map(|list| list.split(','))
            .map(str::to_owned)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn every_file_but_hidden_ones_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(read(&root, Path::new("/pods")).is_err());
        let api = "metadata: {name: kube-apiserver, namespace: kube-system}\nspec:\n  containers:\n  - image: x:v1\n    command: [/usr/bin/kube-apiserver]\n    args: ['--etcd-servers=a,b']\n";
        for name in ["api.yaml", "api.yaml.bak", "api", ".api.yaml", "api~"] {
            put(&root, &format!("/pods/{name}"), api);
        }
        put(&root, "/pods/folder/api.yaml", api);
        put(&root, "/pods/list.yaml", "a: [");
        put(&root, "/pods/note.txt", "to whom it may concern");
        std::os::unix::fs::symlink("api", root.at("/pods/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.at("/pods/loose")).unwrap();
        let files = read(&root, Path::new("/pods")).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "api",
                "api.yaml",
                "api.yaml.bak",
                "api~",
                "link",
                "list.yaml",
                "note.txt"
            ]
        );
        let pod = files[4].pod.as_ref().unwrap();
        assert_eq!(
            (pod.name.as_str(), pod.namespace.as_str()),
            ("kube-apiserver", "kube-system")
        );
        assert_eq!(pod.containers[0].program, "kube-apiserver");
        assert_eq!(pod.containers[0].etcd_servers, ["a", "b"]);
        assert!(files[5].pod.as_ref().unwrap_err().contains("not YAML"));
        assert_eq!(files[6].pod, Err("it is no pod".to_owned()));
    }
}
