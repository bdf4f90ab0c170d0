//! One file of the manifests folder: a pod of one container.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

/// A pod as the kubelet names it: `name-node_namespace`. Two files with one such name are one pod.
pub type PodName = String;

/// What the worker needs to know to run a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: PodName,
    /// 32 hexadecimal digits.
    pub uid: String,
    /// `namespace_name-node_uid`, the name of the pod's folder of logs.
    pub log_folder: String,
    pub container: String,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub grace: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("it is not a pod: {0}")]
    Parse(#[from] yaml_serde::Error),
    #[error("its kind is {0:?}, not Pod")]
    Kind(String),
    #[error("it has {0} containers; this stand-in runs pods of one")]
    Containers(usize),
    #[error("container {0:?} has no command, and there is no image to take one from")]
    NoCommand(String),
}

#[derive(Deserialize)]
struct PodFile {
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Vec<Container>,
    termination_grace_period_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<EnvVar>,
}

#[derive(Deserialize)]
struct EnvVar {
    name: String,
    #[serde(default)]
    value: String,
}

/// Parses the file at `path`, YAML or JSON.
pub fn parse(content: &[u8], path: &Path, node: &str) -> Result<Pod, ManifestError> {
    let file: PodFile = yaml_serde::from_slice(content)?;
    if file.kind != "Pod" {
        return Err(ManifestError::Kind(file.kind));
    }
    let [container] = <[Container; 1]>::try_from(file.spec.containers)
        .map_err(|containers| ManifestError::Containers(containers.len()))?;
    if container.command.is_empty() {
        return Err(ManifestError::NoCommand(container.name));
    }
    let namespace = file.metadata.namespace.unwrap_or_else(|| "default".to_string());
    let name = format!("{}-{node}", file.metadata.name);
    let uid = uid(content, node, path);
    Ok(Pod {
        log_folder: format!("{namespace}_{name}_{uid}"),
        name: format!("{name}_{namespace}"),
        uid,
        container: container.name,
        argv: container.command.into_iter().chain(container.args).collect(),
        env: container.env.into_iter().map(|var| (var.name, var.value)).collect(),
        grace: Duration::from_secs(file.spec.termination_grace_period_seconds.unwrap_or(30)),
    })
}

/// FNV-1a of 128 bits over the content, the host and the path. The kubelet hashes the parsed pod instead of the
/// bytes; what matters is the same: the same file has the same UID, another flag another one.
fn uid(content: &[u8], node: &str, path: &Path) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let host = format!("host:{node}");
    let file = format!("file:{}", path.display());
    let hash = [content, host.as_bytes(), file.as_bytes()]
        .into_iter()
        .flatten()
        .fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032x}")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: api\n  namespace: kube-system\nspec:\n  containers:\n  - command:\n    - program\n    - --flag=1\n    args: [last]\n    env: [{name: A, value: b}]\n    name: api\n";

    fn pod(text: &str) -> Result<Pod, ManifestError> {
        parse(text.as_bytes(), Path::new("/m/api.yaml"), "node1")
    }

    #[test]
    fn a_pod_is_read() {
        let pod = pod(POD).unwrap();
        assert_eq!(pod.name, "api-node1_kube-system");
        assert_eq!(pod.argv, ["program", "--flag=1", "last"]);
        assert_eq!(pod.env, [("A".to_string(), "b".to_string())]);
        assert_eq!(pod.grace, Duration::from_secs(30));
        assert_eq!(pod.log_folder, format!("kube-system_api-node1_{}", pod.uid));
    }

    #[test]
    fn the_uid_follows_content_host_and_path() {
        let first = pod(POD).unwrap().uid;
        assert_eq!(first.len(), 32);
        assert_eq!(first, pod(POD).unwrap().uid);
        assert_ne!(first, pod(&POD.replace("flag=1", "flag=2")).unwrap().uid);
        assert_ne!(
            first,
            parse(POD.as_bytes(), Path::new("/m/api.yml"), "node1").unwrap().uid
        );
        assert_ne!(
            first,
            parse(POD.as_bytes(), Path::new("/m/api.yaml"), "node2").unwrap().uid
        );
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // FNV-1a of 128 bits of "a", from the algorithm's published test values.
        let only = |text: &str| {
            const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
            const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
            text.bytes()
                .fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
        };
        assert_eq!(format!("{:032x}", only("a")), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(
            uid(b"a", "n", Path::new("p")),
            format!("{:032x}", only("ahost:nfile:p"))
        );
    }

    #[test]
    fn what_is_no_pod_is_refused() {
        for (text, part) in [
            ("", "not a pod"),
            (": :", "not a pod"),
            (
                "kind: ConfigMap\nmetadata: {name: a}\nspec: {containers: []}\n",
                "ConfigMap",
            ),
            (
                "kind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n",
                "0 containers",
            ),
            (
                "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n",
                "no command",
            ),
        ] {
            let message = pod(text).unwrap_err().to_string();
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    }
}
