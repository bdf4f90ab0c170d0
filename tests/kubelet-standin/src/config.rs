//! The kubelet's configuration file, as far as static pods need it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// What the command line and the files it names say.
pub struct Config {
    pub node: String,
    pub static_pods: PathBuf,
    pub check_every: Duration,
    /// Where the API server is; none for a kubelet without a cluster.
    pub api_server: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("--config is missing. hint: --config=/var/lib/kubelet/config.yaml")]
    NoConfig,
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot parse {path}: {source}")]
    Parse { path: PathBuf, source: yaml_serde::Error },
    #[error("{path} has no staticPodPath")]
    NoStaticPods { path: PathBuf },
    #[error("{path}: fileCheckFrequency {value:?} is no duration")]
    Duration { path: PathBuf, value: String },
    #[error("{path}: server {value:?} is not https://ADDRESS:PORT with a literal address")]
    Server { path: PathBuf, value: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfiguration {
    static_pod_path: Option<PathBuf>,
    file_check_frequency: Option<String>,
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    server: String,
}

/// Reads `--config=` and `--kubeconfig=`; other flags of the kubelet are ignored.
pub fn load(args: impl Iterator<Item = String>) -> Result<Config, ConfigError> {
    let (mut config, mut kubeconfig) = (None, None);
    for arg in args {
        if let Some(path) = arg.strip_prefix("--config=") {
            config = Some(PathBuf::from(path));
        } else if let Some(path) = arg.strip_prefix("--kubeconfig=") {
            kubeconfig = Some(PathBuf::from(path));
        }
    }
    let path = config.ok_or(ConfigError::NoConfig)?;
    let parsed: KubeletConfiguration = parse(&path)?;
    let static_pods = parsed
        .static_pod_path
        .ok_or_else(|| ConfigError::NoStaticPods { path: path.clone() })?;
    let check_every = match parsed.file_check_frequency {
        None => Duration::ZERO,
        Some(value) => duration(&value).ok_or(ConfigError::Duration { path, value })?,
    };
    Ok(Config {
        node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        static_pods,
        // 0 means the default, as everywhere in that file.
        check_every: if check_every.is_zero() {
            Duration::from_secs(20)
        } else {
            check_every
        },
        api_server: kubeconfig.map(|path| server(&path)).transpose()?.flatten(),
    })
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    yaml_serde::from_str(&text).map_err(|source| ConfigError::Parse {
        path: path.to_owned(),
        source,
    })
}

fn server(path: &Path) -> Result<Option<SocketAddr>, ConfigError> {
    let kubeconfig: Kubeconfig = parse(path)?;
    let Some(first) = kubeconfig.clusters.into_iter().next() else {
        return Ok(None);
    };
    let value = first.cluster.server;
    match value
        .strip_prefix("https://")
        .and_then(|address| address.trim_end_matches('/').parse().ok())
    {
        Some(address) => Ok(Some(address)),
        None => Err(ConfigError::Server {
            path: path.to_owned(),
            value,
        }),
    }
}

/// A duration as Go writes it: `20s`, `1m0s`, `1h2m`, `0`.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
        let count: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        total += match &rest[..letters] {
            "ms" => Duration::from_millis(count),
            "s" => Duration::from_secs(count),
            "m" => Duration::from_secs(count.checked_mul(60)?),
            "h" => Duration::from_secs(count.checked_mul(3600)?),
            _ => return None,
        };
        rest = &rest[letters..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_writes_them() {
        assert_eq!(duration("20s"), Some(Duration::from_secs(20)));
        assert_eq!(duration("1m0s"), Some(Duration::from_secs(60)));
        assert_eq!(duration("1h2m3s4ms"), Some(Duration::from_millis(3_723_004)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
        for wrong in ["", "20", "s", "20 s", "-1s", "1y"] {
            assert_eq!(duration(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn kubeadms_files_are_understood() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.yaml");
        let kubeconfig = dir.path().join("kubelet.conf");
        std::fs::write(
            &config,
            "kind: KubeletConfiguration\nfileCheckFrequency: 0s\nstaticPodPath: /etc/kubernetes/manifests\n",
        )
        .unwrap();
        std::fs::write(
            &kubeconfig,
            "clusters:\n- cluster:\n    server: https://10.0.0.10:6443\n  name: k\n",
        )
        .unwrap();
        let args = [
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--v=2".to_string(),
        ];
        let loaded = load(args.into_iter()).unwrap();
        assert_eq!(loaded.static_pods, Path::new("/etc/kubernetes/manifests"));
        assert_eq!(loaded.check_every, Duration::from_secs(20));
        assert_eq!(loaded.api_server, Some("10.0.0.10:6443".parse().unwrap()));
    }

    #[test]
    fn a_server_by_name_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubelet.conf");
        std::fs::write(
            &kubeconfig,
            "clusters:\n- cluster:\n    server: https://cluster.local:6443\n",
        )
        .unwrap();
        let message = server(&kubeconfig).unwrap_err().to_string();
        assert!(message.contains("cluster.local"), "{message}");
    }
}
