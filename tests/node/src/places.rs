//! Where the node's parts come from and where it lives.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the node's root folder links to, bound in at `/opt/kubernetes`.
const PEERS: &[&str] = &["etcd", "etcdctl", "etcdutl", "kube-apiserver", "kubeadm", "kubectl"];

const STANDIN: &str = "quantykube-kubelet-standin";

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("tests/node is two folders down")
}

fn cache() -> PathBuf {
    match std::env::var_os("QUANTYKUBE_CACHE") {
        Some(folder) => folder.into(),
        None => PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/quantykube"),
    }
}

/// The folder of the peers.
pub fn peers() -> PathBuf {
    let folder = cache().join("peers/bin");
    for peer in PEERS {
        assert!(
            folder.join(peer).is_file(),
            "{peer} is missing in {}: run scripts/peers",
            folder.display()
        );
    }
    folder
}

/// The root folder that nodes are copies of.
pub fn template() -> PathBuf {
    let output = Command::new(checkout().join("scripts/node"))
        .arg("path")
        .output()
        .expect("scripts/node can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim())
}

/// How many nodes there may be on this machine at a time.
pub const SLOTS: usize = 3;

/// The folder of the node in a slot.
pub fn node(slot: usize) -> PathBuf {
    cache().join(format!("node/machine-{slot}"))
}

/// Held while the node of a slot lives.
pub fn lock(slot: usize) -> PathBuf {
    cache().join(format!("node/machine-{slot}.lock"))
}

/// The stand-in for the kubelet: in `QUANTYKUBE_BIN`, else built now (static, for the node has no build tools).
pub fn standin() -> PathBuf {
    if let Some(folder) = std::env::var_os("QUANTYKUBE_BIN") {
        let path = PathBuf::from(folder).join(STANDIN);
        assert!(
            path.is_file(),
            "{} is missing: scripts/test builds it, in its part 'programs'",
            path.display()
        );
        return path;
    }
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // A target folder of its own: a build that goes on elsewhere does not hold up the node.
    let target = cache().join("node/target");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--package", STANDIN, "--target", &triple])
        .current_dir(checkout())
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the stand-in for the kubelet does not build");
    target.join(triple).join("debug").join(STANDIN)
}
