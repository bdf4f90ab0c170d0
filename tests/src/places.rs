//! Where the built programs, the peers and the cache are.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is inside the checkout")
}

/// The cache folder outside the checkout: `QUANTYKUBE_CACHE`, else `~/.cache/quantykube`.
pub fn cache() -> PathBuf {
    match std::env::var_os("QUANTYKUBE_CACHE") {
        Some(folder) => folder.into(),
        None => PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/quantykube"),
    }
}

/// A program of ours: in `QUANTYKUBE_BIN`, else beside the test (the profile's own folder).
///
/// # Panics
/// If it is not built; the message says how to build it.
pub fn program(name: &str) -> PathBuf {
    let path = match std::env::var_os("QUANTYKUBE_BIN") {
        Some(folder) => PathBuf::from(folder).join(name),
        None => {
            let test = std::env::current_exe().expect("a test knows its own path");
            // target/PROFILE/deps/TEST -> target/PROFILE
            test.ancestors()
                .nth(2)
                .expect("a test is in target/PROFILE/deps")
                .join(name)
        }
    };
    assert!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace` or set QUANTYKUBE_BIN",
        path.display()
    );
    path
}

/// A peer that `scripts/peers` built.
///
/// # Panics
/// If it is not there; the message says what to run.
pub fn peer(name: &str) -> PathBuf {
    let path = cache().join("peers/bin").join(name);
    assert!(path.is_file(), "{} is missing: run scripts/peers", path.display());
    path
}

/// Prometheus' own checker of rules, unpacked from Debian's package in the cache; None where `scripts/peers` could not
/// bring it.
pub fn promtool() -> Option<PathBuf> {
    let path = cache().join("debian-prometheus/usr/bin/promtool");
    path.is_file().then_some(path)
}

/// The folder of cloud-init's Python modules, unpacked from Debian's package in the cache; None where `scripts/peers` could
/// not bring it.
pub fn cloud_init() -> Option<PathBuf> {
    let path = cache().join("debian-cloud-init/usr/lib/python3/dist-packages");
    path.is_dir().then_some(path)
}

/// Debian's registry, unpacked in the cache; None where `scripts/peers` could not bring it.
pub fn docker_registry() -> Option<PathBuf> {
    let path = cache().join("debian-registry/usr/bin/docker-registry");
    path.is_file().then_some(path)
}

/// A program of Debian's etcd packages, unpacked in the cache (etcd 3.4): `etcd` or `etcdctl`.
///
/// # Panics
/// If it is not there; the message says what to run.
pub fn debian_etcd(name: &str) -> PathBuf {
    let path = cache().join("debian-etcd/usr/bin").join(name);
    assert!(path.is_file(), "{} is missing: run scripts/peers", path.display());
    path
}
