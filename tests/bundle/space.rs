//! File systems that are too small: exit code 5, and nothing left.

use crate::raw::{self, named};
use crate::workbench::{OWN, Ran, Workbench, unshared};

/// Runs `script` beside a file system of `size` mounted on `small`, in a namespace of its own; it ends by listing what
/// is left there. `None`, said loudly, where this machine does not let us mount.
fn on_a_small_disk(bench: &Workbench, test: &str, size: &str, script: &str) -> Option<Ran> {
    std::fs::create_dir(bench.path("small")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size} none small || exit 99\n{script}\ncode=$?; echo left: $(ls -A small); exit $code"
    );
    unshared(bench, test, &["--mount"], &script)
}

#[test]
fn an_extraction_says_what_it_needs_before_it_writes() {
    let bench = Workbench::bare();
    let zeros = vec![0; 64 << 20];
    bench.put("b.tar.gz", &raw::archive(&raw::entries(&[named("run", &zeros)])));
    let test = "an_extraction_says_what_it_needs_before_it_writes";
    let script = "./quantykube-bundle extract b.tar.gz small";
    if let Some(ran) = on_a_small_disk(&bench, test, "16m", script) {
        ran.failed(5, &["small has", "bytes of space", "are needed"]);
        assert!(ran.out.ends_with("left:\n"), "{}", ran.out);
    }
}

#[test]
fn a_build_that_fills_the_disk_leaves_nothing() {
    let bench = Workbench::new();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    let test = "a_build_that_fills_the_disk_leaves_nothing";
    let script = "./quantykube-bundle build spec.yaml -o small/b.tar.gz";
    if let Some(ran) = on_a_small_disk(&bench, test, "1m", script) {
        ran.failed(5, &["cannot write small/b.tar.gz", "No space left"]);
        assert!(ran.out.ends_with("left:\n"), "{}", ran.out);
    }
}
