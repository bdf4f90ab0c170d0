//! Single entries out of a bundle, without reading the rest.

use std::fs;
use std::process::Command;

use crate::workbench::{Ran, Workbench, tree};

const TOP: &str = "quantykube-0.1.0-linux-amd64";

/// Where the members of a bundle begin, by the table at its end; and where the last one ends.
fn offsets(whole: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let trailer = whole.len() - word(whole.len() - 14);
    let mut offsets = vec![0];
    let mut entry = trailer + 16;
    while *offsets.last().unwrap() < trailer {
        offsets.push(offsets.last().unwrap() + word(entry));
        entry += 4;
    }
    offsets
}

/// The members of the default bundle: of bundle.json, the folder, SHA256SUMS, bin/, bin/quantykube-store, manifests/ and
/// the two in it, and of run the first of its three.
const STORE: usize = 4;
const RUN: usize = 8;

#[test]
fn what_was_asked_for_comes_as_from_the_whole() {
    let bench = Workbench::new();
    bench.default_bundle();
    bench.run(&["extract", "out/b.tar.gz", "whole"]).ok();
    let mut whole = tree(&bench.path("whole"));
    let id = bench.run(&["inspect", "out/b.tar.gz", "--json"]).ok().out;
    let id: serde_json::Value = serde_json::from_str(id.trim()).unwrap();
    let id = id["id"].as_str().unwrap();
    let args = [
        "extract",
        "out/b.tar.gz",
        "some",
        "bin/",
        "run",
        "bundle.json",
        "--id",
        id,
    ];
    let ran = bench.run(&args).ok();
    assert!(!ran.out.contains("claimed"), "{}", ran.out);
    let some = tree(&bench.path("some"));
    let left_out = ["systemd", "manifests", "share", "SHA256SUMS", "sbom.spdx.json"];
    whole.retain(|path, _| !left_out.iter().any(|name| path.to_str().unwrap().contains(name)));
    assert!(some == whole, "{:?}", some.keys());
    let ran = bench
        .run(&["extract", "out/b.tar.gz", "one", "bin/quantykube-store"])
        .ok();
    assert!(
        ran.out.contains("(claimed; --id or --public-key checks it)"),
        "{}",
        ran.out
    );
    assert_eq!(tree(&bench.path("one")).len(), 3);
}

#[test]
fn the_rest_is_not_read() {
    let bench = Workbench::new();
    let mut bytes = fs::read(bench.default_bundle()).unwrap();
    let members = offsets(&bytes);
    assert!(members[RUN + 3] - members[RUN] > 2 << 20, "run is the large one");
    // Everything of `run` is overwritten: what nobody reads, nobody misses.
    bytes[members[RUN]..members[RUN + 3]].fill(0xaa);
    bench.put("holed.tar.gz", &bytes);
    bench.run(&["verify", "holed.tar.gz"]).failed(3, &["damaged"]);
    let script = "./quantykube-bundle extract holed.tar.gz new bin/quantykube-store --jobs 1 && cat /proc/$$/io";
    let ran: Ran = Command::new("bash")
        .args(["-c", script])
        .current_dir(bench.path(""))
        .output()
        .unwrap()
        .into();
    let ran = ran.ok();
    // The shell's count has that of its ended children in it, with what loading the program reads.
    let read = ran.out.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    let read: usize = read.parse().unwrap();
    assert!(read < 1 << 20, "{read} of {} bytes were read", bytes.len());
    let store = fs::read(bench.path("quantykube-store")).unwrap();
    assert!(fs::read(bench.path(&format!("new/{TOP}/bin/quantykube-store"))).unwrap() == store);
}

#[test]
fn what_is_read_is_not_trusted() {
    let bench = Workbench::new();
    let bytes = fs::read(bench.default_bundle()).unwrap();
    let members = offsets(&bytes);
    for place in (members[STORE]..members[STORE + 1]).step_by(20_011) {
        let mut bad = bytes.clone();
        bad[place] ^= 0x10;
        bench.put("bad.tar.gz", &bad);
        bench
            .run(&["extract", "bad.tar.gz", "new", "bin/quantykube-store"])
            .failed(3, &[]);
        assert!(!bench.path("new").exists(), "byte {place} left something");
    }
    let zeros = "0".repeat(64);
    for (args, code, said) in [
        (&["run", "bin/none"][..], 4, "the bundle holds no bin/none"),
        (&["../run"], 4, "the bundle holds no ../run"),
        (&["/run"], 4, "the bundle holds no /run"),
        (&[""], 4, "the bundle holds no"),
        (&["run", "--id", &zeros], 3, "has the id"),
    ] {
        let args = [&["extract", "out/b.tar.gz", "new"], args].concat();
        bench.run(&args).failed(code, &[said]);
        assert!(!bench.path("new").exists(), "{args:?} left something");
    }
    bench.run(&["extract", "out/b.tar.gz", "new", "run"]).ok();
    bench
        .run(&["extract", "out/b.tar.gz", "new", "bin"])
        .failed(4, &["is there already"]);
}
