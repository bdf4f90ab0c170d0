//! Builds and extractions that were stopped, by a signal or by death.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::workbench::{OWN, Workbench, bytes, elf, tree};

/// A workbench whose build takes a while.
fn slow() -> Workbench {
    let bench = Workbench::new();
    let mut large = elf(62, false, 1000, 1);
    large.extend(bytes(8 << 20, 3).repeat(6));
    bench.put("quantykube", &large);
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    bench
}

fn start(bench: &Workbench, args: &[&str]) -> Child {
    bench
        .command()
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until something that is no folder and not empty appears below `out`.
fn wait_for_bytes(bench: &Workbench, child: &mut Child) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let some = || {
        tree(&bench.path("out"))
            .values()
            .any(|(_, content)| !content.is_empty())
    };
    while !some() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before anything was written"
        );
        assert!(Instant::now() < deadline, "nothing was written in 60 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_stopped_build_leaves_nothing() {
    let bench = slow();
    for kind in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut child = start(&bench, &["build", "spec.yaml", "-o", "out/b.tar.gz"]);
        wait_for_bytes(&bench, &mut child);
        signal(&child, kind);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(
            ended.status.code(),
            Some(1),
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
        assert!(String::from_utf8_lossy(&ended.stderr).contains("stopped before it was done"));
        assert!(tree(&bench.path("out")).is_empty());
    }
}

#[test]
fn a_killed_build_is_never_seen_and_the_next_one_cleans_up() {
    let bench = slow();
    let mut child = start(&bench, &["build", "spec.yaml", "-o", "out/b.tar.gz"]);
    wait_for_bytes(&bench, &mut child);
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    let left: Vec<_> = tree(&bench.path("out")).into_keys().collect();
    assert_eq!(
        left,
        [std::path::PathBuf::from(".b.tar.gz.quantykube-new")],
        "the kill must come in the middle"
    );
    bench.put("quantykube", &elf(62, false, 1000, 1));
    bench.run(&["build", "spec.yaml", "-o", "out/b.tar.gz"]).ok();
    assert_eq!(tree(&bench.path("out")).len(), 1);
    bench.run(&["verify", "out/b.tar.gz"]).ok();
}

#[test]
fn two_builds_of_one_file_do_not_mix() {
    let bench = slow();
    let mut child = start(&bench, &["build", "spec.yaml", "-o", "out/b.tar.gz"]);
    wait_for_bytes(&bench, &mut child);
    bench
        .run(&["build", "spec.yaml", "-o", "out/b.tar.gz"])
        .failed(4, &["another build is writing"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    bench.run(&["verify", "out/b.tar.gz"]).ok();
}

#[test]
fn a_killed_extraction_is_never_seen_and_the_next_one_cleans_up() {
    let bench = slow();
    bench.run(&["build", "spec.yaml", "-o", "b.tar.gz"]).ok();
    let mut child = start(&bench, &["extract", "b.tar.gz", "out", "--jobs", "1"]);
    wait_for_bytes(&bench, &mut child);
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    let folder = bench.path("out/quantykube-0.1.0-linux-amd64");
    assert!(!folder.exists(), "the kill must come in the middle");
    assert!(bench.path("out/.quantykube-0.1.0-linux-amd64.quantykube-new").exists());
    bench.run(&["extract", "b.tar.gz", "out"]).ok();
    assert_eq!(fs::read_dir(bench.path("out")).unwrap().count(), 1);
    let mut child = start(&bench, &["extract", "b.tar.gz", "out/again", "--jobs", "1"]);
    while !bench.path("out/again").exists() {
        assert!(child.try_wait().unwrap().is_none());
    }
    signal(&child, rustix::process::Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(
        !bench.path("out/again").exists(),
        "a stopped extraction leaves nothing, not even the folder it made"
    );
}
