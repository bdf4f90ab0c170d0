//! The same inputs give the same bytes, whatever the folder, umask, time zone, user, time or number of threads.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::workbench::{OWN, Ran, Workbench};

const SPEC: &str =
    "binaries: [{name: tool, path: inputs/tool}]\nvalues: {site: 'north \"1\"'}\ntemplates: {folder: inputs}\n";

/// A workbench with a spec that uses every kind of input.
fn bench() -> Workbench {
    let bench = Workbench::new();
    bench.put("inputs/tool", b"#!/bin/sh\nexit 0\n");
    bench.put(
        "inputs/manifests/a.yaml",
        b"kind: ConfigMap\ndata: {site: {{ site | yaml }}}\n",
    );
    bench.put(
        "inputs/systemd/b.service",
        b"[Service]\nExecStart={{ programs }}/tool\n",
    );
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}{SPEC}").as_bytes());
    bench
}

fn build(bench: &Workbench, prefix: &[&str], before: &str, args: &str) -> Vec<u8> {
    let script = format!("{before}; exec ./quantykube-bundle build spec.yaml -o out/b.tar.gz {args}");
    let (program, rest) = [prefix, &["sh", "-ec", &script]]
        .concat()
        .split_first()
        .map(|(p, r)| (*p, r.to_vec()))
        .unwrap();
    let ran = Command::new(program)
        .args(rest)
        .current_dir(bench.path(""))
        .env_remove("SOURCE_DATE_EPOCH")
        .output();
    Ran::from(ran.unwrap()).ok();
    fs::read(bench.path("out/b.tar.gz")).unwrap()
}

#[test]
fn nothing_around_a_build_shows_in_it() {
    let first = build(&bench(), &[], "true", "--jobs 1");
    assert!(first.len() > 1 << 20, "the bundle must have several members");
    let others = [
        ("umask 0000", "--jobs 2"),
        ("umask 077", "--jobs 5"),
        ("export TZ=Pacific/Kiritimati LC_ALL=tr_TR.UTF-8 LANG=C", ""),
        ("touch -d 2001-01-01 quantykube quantykube-store inputs/tool", ""),
        ("chmod 0600 quantykube; chmod 0777 inputs/tool", ""),
        ("export HOME=/nonexistent; unset PATH USER", ""),
    ];
    for (before, args) in others {
        assert!(
            build(&bench(), &[], before, args) == first,
            "{before} {args} changed the bytes"
        );
    }
}

#[test]
fn another_user_builds_the_same() {
    if !rustix::process::geteuid().is_root() {
        return quantykube_tests::skipped("another_user_builds_the_same", "only root can become another user");
    }
    let bench = bench();
    let first = build(&bench, &[], "true", "");
    fs::remove_file(bench.path("out/b.tar.gz")).unwrap();
    fs::set_permissions(bench.path("out"), fs::Permissions::from_mode(0o777)).unwrap();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    assert!(build(&bench, &nobody, "test $(id -u) = 65534", "") == first);
}

#[test]
fn source_date_epoch_is_the_time_of_every_entry() {
    let bench = bench();
    let without = build(&bench, &[], "true", "");
    let with = build(&bench, &[], "export SOURCE_DATE_EPOCH=86400", "");
    assert!(with == build(&bench, &[], "export SOURCE_DATE_EPOCH=86400", "--jobs 1"));
    assert!(with != without);
    let listed = Command::new("tar")
        .args(["--utc", "-tvzf"])
        .arg(bench.path("out/b.tar.gz"))
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.lines().count() > 8 && listed.lines().all(|line| line.contains(" 1970-01-02 00:00 ")),
        "{listed}"
    );
    for bad in ["x", "-1", "8589934592"] {
        let ran = bench
            .command()
            .args(["build", "spec.yaml"])
            .env("SOURCE_DATE_EPOCH", bad)
            .output()
            .unwrap();
        Ran::from(ran).failed(2, &["SOURCE_DATE_EPOCH"]);
    }
}

#[test]
fn no_path_of_this_machine_is_in_a_bundle() {
    let bench = bench();
    build(&bench, &[], "true", "");
    let shown = bench.run(&["inspect", "out/b.tar.gz", "--json"]).ok().out;
    let folder = bench.path("").display().to_string();
    let event: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let bundle = event["bundle"].to_string();
    assert!(!bundle.contains(folder.trim_end_matches('/')), "{bundle}");
    assert!(bundle.contains(r#""origin":{"spec":"inputs/tool"}"#), "{bundle}");
}

#[test]
fn the_default_needs_no_spec() {
    let bench = Workbench::new();
    if std::env::consts::ARCH != "x86_64" {
        return quantykube_tests::skipped("the_default_needs_no_spec", "the stand-ins are for amd64");
    }
    bench.run(&["build"]).ok();
    let default = fs::read(bench.path("quantykube-0.1.0-linux-amd64.tar.gz")).unwrap();
    let spec = quantykube_tests::places::root().join("bundles/default.yaml");
    bench.run(&["build", spec.to_str().unwrap(), "-o", "out/b.tar.gz"]).ok();
    assert!(
        default == fs::read(bench.path("out/b.tar.gz")).unwrap(),
        "bundles/default.yaml is the default"
    );
    // A quantykube.yaml in the folder takes its place.
    bench.put("quantykube.yaml", format!("version: 3.0.0\n{OWN}").as_bytes());
    bench.run(&["build"]).ok();
    assert!(bench.path("quantykube-3.0.0-linux-amd64.tar.gz").is_file());
}
