//! tar, gzip, sha256sum and we say the same.

use std::fs;
use std::process::Command;

use crate::workbench::{OWN, Ran, Workbench, tree};

fn sh(bench: &Workbench, script: &str) -> Ran {
    Command::new("sh")
        .args(["-ec", script])
        .current_dir(bench.path(""))
        .output()
        .unwrap()
        .into()
}

#[test]
fn any_tar_opens_what_we_write() {
    let bench = Workbench::new();
    bench.default_bundle();
    bench.run(&["verify", "out/b.tar.gz"]).ok();
    bench.run(&["extract", "out/b.tar.gz", "ours"]).ok();
    sh(
        &bench,
        "gzip -t out/b.tar.gz; mkdir theirs; tar xzf out/b.tar.gz -C theirs",
    )
    .ok();
    assert!(
        tree(&bench.path("ours")) == tree(&bench.path("theirs")),
        "tar and we extract different trees"
    );
    let summed = sh(&bench, "cd theirs/*; sha256sum -c --strict SHA256SUMS").ok();
    assert_eq!(
        summed.out.lines().filter(|line| line.ends_with(": OK")).count(),
        30,
        "{}",
        summed.out
    );
    // Every file but the list itself is in the list.
    assert_eq!(sh(&bench, "cd theirs/*; find . -type f | wc -l").ok().out.trim(), "31");
    let listed = sh(&bench, "tar tzf out/b.tar.gz | head -1").ok().out;
    assert_eq!(listed.trim(), "quantykube-0.1.0-linux-amd64/bundle.json");
}

#[test]
fn both_see_a_changed_file() {
    let bench = Workbench::new();
    bench.default_bundle();
    sh(&bench, "tar xzf out/b.tar.gz; echo >> quantykube-0.1.0-linux-amd64/run").ok();
    let summed = sh(&bench, "cd quantykube-0.1.0-linux-amd64; sha256sum -c SHA256SUMS");
    assert_eq!(summed.code, Some(1));
    assert!(summed.out.contains("run: FAILED"), "{}", summed.out);
}

#[test]
fn an_extraction_is_the_same_under_every_umask() {
    let bench = Workbench::new();
    bench.default_bundle();
    for umask in ["0000", "022", "077"] {
        sh(
            &bench,
            &format!("umask {umask}; mkdir -m 755 u{umask}; ./quantykube-bundle extract out/b.tar.gz u{umask}"),
        )
        .ok();
    }
    let first = tree(&bench.path("u0000"));
    assert_eq!(
        first[&std::path::PathBuf::from("quantykube-0.1.0-linux-amd64/run")].0 & 0o7777,
        0o755
    );
    assert!(first == tree(&bench.path("u022")) && first == tree(&bench.path("u077")));
}

#[test]
fn the_end_of_a_build_says_what_to_type() {
    let bench = Workbench::new();
    let built = bench.build(OWN).ok().out;
    let id = sh(
        &bench,
        "tar xzOf out/b.tar.gz quantykube-0.1.0-linux-amd64/bundle.json | sha256sum",
    )
    .ok()
    .out;
    let id = id.split(' ').next().unwrap();
    let mut rest = built.as_str();
    let verify = format!("./run verify --id {id}");
    for step in [
        "bundle id",
        id,
        "tar xzf b.tar.gz",
        "cd quantykube-0.1.0-linux-amd64",
        &verify,
        "./run plan store",
        "./run install store",
        "quantykube undo store",
    ] {
        let at = rest
            .find(step)
            .unwrap_or_else(|| panic!("{step:?} is missing or out of order:\n{built}"));
        rest = &rest[at + step.len()..];
    }
    bench.run(&["verify", "out/b.tar.gz", "--id", id]).ok();
    bench
        .run(&["verify", "out/b.tar.gz", "--id", &"0".repeat(64)])
        .failed(3, &["has the id", id]);
    bench
        .run(&["verify", "out/b.tar.gz", "--id", "zz"])
        .failed(2, &["--id"]);
}

#[test]
fn json_says_the_same() {
    let bench = Workbench::new();
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    let last = |ran: Ran| -> serde_json::Value { serde_json::from_str(ran.out.lines().last().unwrap()).unwrap() };
    let built = last(bench.run(&["build", "spec.yaml", "-o", "out/b.tar.gz", "--json"]).ok());
    let verified = last(bench.run(&["verify", "out/b.tar.gz", "--json"]).ok());
    let inspected = last(bench.run(&["inspect", "out/b.tar.gz", "--json"]).ok());
    assert_eq!(built["event"], "result");
    assert_eq!(built["id"], verified["id"]);
    assert_eq!(built["id"], inspected["id"]);
    assert_eq!(inspected["bundle"]["files"][3]["path"], "run");
    assert_eq!(inspected["bundle"]["files"][3]["origin"]["own"], "quantykube");
    let file = fs::read(bench.path("out/b.tar.gz")).unwrap();
    assert_eq!(built["size"], file.len());
    assert_eq!(
        built["sha256"],
        hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&file))
    );
    let failed = bench.run(&["verify", "none", "--json"]);
    assert_eq!((failed.code, &last(failed)["event"]), (Some(1), &"error".into()));
}

#[test]
fn an_extraction_does_not_touch_what_is_there() {
    let bench = Workbench::new();
    bench.default_bundle();
    bench.put("dir/quantykube-0.1.0-linux-amd64/mine", b"mine");
    let before = tree(&bench.path("dir"));
    bench
        .run(&["extract", "out/b.tar.gz", "dir"])
        .failed(4, &["is there already"]);
    std::os::unix::fs::symlink("nowhere", bench.path("out/quantykube-0.1.0-linux-amd64")).unwrap();
    bench
        .run(&["extract", "out/b.tar.gz", "out"])
        .failed(4, &["is there already"]);
    assert!(tree(&bench.path("dir")) == before);
}
