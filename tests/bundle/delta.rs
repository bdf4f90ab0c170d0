//! `build --base` and `apply`: the very bytes of the whole bundle, or nothing.

use std::fs;

use crate::workbench::{AMD64, OWN, Workbench, bytes, elf, tree};

/// A program, and the same built again: some code more in front, other addresses behind it.
fn programs() -> (Vec<u8>, Vec<u8>) {
    let old = elf(AMD64, false, 3 << 20, 1);
    let mut new = old[..200_000].to_vec();
    new.extend(bytes(3000, 77));
    new.extend_from_slice(&old[200_000..]);
    for place in (250_000..new.len() - 8).step_by(199) {
        new[place] = new[place].wrapping_add(0xb8);
    }
    (old, new)
}

/// Two bundles, whole, in `old.tar.gz` and `new.tar.gz`, and the delta between them.
fn bench() -> Workbench {
    let bench = Workbench::new();
    let (old, new) = programs();
    bench.put("tools/same", &elf(AMD64, false, 5 << 20, 8));
    bench.put(
        "spec.yaml",
        format!("architecture: amd64\n{OWN}binaries: [{{name: same, path: tools/same}}]\n").as_bytes(),
    );
    bench.put("quantykube", &old);
    bench.run(&["build", "spec.yaml", "-o", "old.tar.gz"]).ok();
    bench.put("quantykube", &new);
    bench.put("quantykube-store", &elf(AMD64, false, 250_000, 12));
    bench.run(&["build", "spec.yaml", "-o", "new.tar.gz"]).ok();
    bench
        .run(&["build", "spec.yaml", "--base", "old.tar.gz", "-o", "d.delta"])
        .ok();
    bench
}

#[test]
fn a_delta_gives_the_very_bytes_of_the_whole() {
    let bench = bench();
    let whole = fs::read(bench.path("new.tar.gz")).unwrap();
    let delta = fs::metadata(bench.path("d.delta")).unwrap().len();
    println!("{delta} of {} bytes", whole.len());
    assert!(
        delta < whole.len() as u64 * 15 / 100,
        "{delta} of {} bytes",
        whole.len()
    );
    bench
        .run(&["apply", "d.delta", "old.tar.gz", "-o", "from-file.tar.gz"])
        .ok();
    assert!(fs::read(bench.path("from-file.tar.gz")).unwrap() == whole);
    // From the folder that tar made, and from parts.
    bench.run(&["extract", "old.tar.gz", "unpacked"]).ok();
    let folder = "unpacked/quantykube-0.1.0-linux-amd64";
    bench
        .run(&["apply", "d.delta", folder, "-o", "from-folder.tar.gz"])
        .ok();
    assert!(fs::read(bench.path("from-folder.tar.gz")).unwrap() == whole);
    bench.run(&["split", "old.tar.gz", "--size", "2M", "-o", "out"]).ok();
    let parts = fs::read_dir(bench.path("out")).unwrap().count();
    assert!(parts > 1);
    let first = format!("out/old.tar.gz.part-1-of-{parts}");
    bench.run(&["apply", "d.delta", &first, "-o", "from-parts.tar.gz"]).ok();
    assert!(fs::read(bench.path("from-parts.tar.gz")).unwrap() == whole);
    bench
        .run(&["apply", "d.delta", "old.tar.gz", "-o", "from-file.tar.gz"])
        .failed(4, &["is there already"]);
    // The same inputs give the same delta.
    bench
        .run(&[
            "build",
            "spec.yaml",
            "--base",
            "old.tar.gz",
            "-o",
            "again.delta",
            "--jobs",
            "1",
        ])
        .ok();
    assert!(fs::read(bench.path("again.delta")).unwrap() == fs::read(bench.path("d.delta")).unwrap());
}

#[test]
fn a_signed_bundle_stays_signed() {
    let bench = bench();
    bench.run(&["keygen", "-o", "site", "--no-password"]).ok();
    bench
        .run(&["build", "spec.yaml", "--sign", "site.key", "-o", "signed.tar.gz"])
        .ok();
    bench
        .run(&[
            "build",
            "spec.yaml",
            "--sign",
            "site.key",
            "--base",
            "old.tar.gz",
            "-o",
            "s.delta",
        ])
        .ok();
    bench
        .run(&[
            "apply",
            "s.delta",
            "old.tar.gz",
            "--public-key",
            "site.pub",
            "-o",
            "made.tar.gz",
        ])
        .ok();
    assert!(fs::read(bench.path("made.tar.gz")).unwrap() == fs::read(bench.path("signed.tar.gz")).unwrap());
    bench
        .run(&[
            "apply",
            "d.delta",
            "old.tar.gz",
            "--public-key",
            "site.pub",
            "-o",
            "other.tar.gz",
        ])
        .failed(3, &["is not signed"]);
    bench
        .run(&[
            "apply",
            "s.delta",
            "old.tar.gz",
            "--id",
            &"0".repeat(64),
            "-o",
            "other.tar.gz",
        ])
        .failed(3, &["has the id"]);
}

#[test]
fn nothing_comes_of_a_wrong_base_or_a_bad_delta() {
    let bench = bench();
    let delta = fs::read(bench.path("d.delta")).unwrap();
    let old = fs::read(bench.path("old.tar.gz")).unwrap();
    let mut bad = old.clone();
    bad[old.len() / 2] ^= 1;
    bench.put("bad.tar.gz", &bad);
    bench.put("empty.delta", b"");
    bench.put("newer.delta", &{
        let mut newer = delta.clone();
        newer[16] = 7;
        newer
    });
    let before = tree(&bench.path(""));
    bench
        .run(&["apply", "d.delta", "new.tar.gz", "-o", "x"])
        .failed(3, &["new.tar.gz has the id", "the delta starts from"]);
    bench
        .run(&["apply", "d.delta", "bad.tar.gz", "-o", "x"])
        .failed(3, &["bad.tar.gz"]);
    bench
        .run(&["apply", "empty.delta", "old.tar.gz", "-o", "x"])
        .failed(3, &["empty.delta", "truncated"]);
    bench
        .run(&["apply", "old.tar.gz", "old.tar.gz", "-o", "x"])
        .failed(3, &["does not begin as a delta"]);
    bench
        .run(&["apply", "newer.delta", "old.tar.gz", "-o", "x"])
        .failed(7, &["newer.delta has format 7"]);
    bench
        .run(&["build", "spec.yaml", "--base", "bad.tar.gz", "-o", "x"])
        .failed(3, &["bad.tar.gz"]);
    assert!(tree(&bench.path("")) == before);
    let mut places: Vec<usize> = (0..56).step_by(5).collect();
    places.extend((1..20).map(|part| delta.len() * part / 20));
    for place in places {
        let mut bad = delta.clone();
        bad[place] ^= 0x10;
        bench.put("bad.delta", &bad);
        let ran = bench.run(&["apply", "bad.delta", "old.tar.gz", "-o", "x"]);
        assert!(matches!(ran.code, Some(3 | 7)), "byte {place}: {}", ran.err);
        bench.put("bad.delta", &delta[..place]);
        bench
            .run(&["apply", "bad.delta", "old.tar.gz", "-o", "x"])
            .failed(3, &["bad.delta"]);
        assert!(!bench.path("x").exists());
    }
}
