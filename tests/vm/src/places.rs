//! Where things lie in the cache.

use std::path::{Path, PathBuf};
use std::process::Command;

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("tests/vm is two folders down")
}

fn cache() -> PathBuf {
    let cache = match std::env::var_os("QUANTYKUBE_CACHE") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/quantykube"),
    };
    cache.join("vm")
}

/// The folder that `scripts/vm bake` has made.
pub fn baked() -> PathBuf {
    let output = Command::new(checkout().join("scripts/vm"))
        .arg("path")
        .output()
        .expect("scripts/vm can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim())
}

/// The one folder of the one machine: its disk, its sockets, what it printed.
pub fn run() -> PathBuf {
    cache().join("run")
}

/// Held while a machine lives.
pub fn lock() -> PathBuf {
    cache().join("machine.lock")
}
