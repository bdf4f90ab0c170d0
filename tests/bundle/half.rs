//! Copies that stopped halfway: what is whole in them is said, and `fill` completes them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::workbench::{AMD64, Ran, Workbench, bytes, elf, tree};

/// A bundle of some 24 members.
fn bench() -> (Workbench, Vec<u8>) {
    let bench = Workbench::new();
    let mut large = elf(AMD64, false, 1000, 1);
    // Hardly compressible, so that the members are large.
    large.extend(bytes(64 << 20, 7));
    bench.put("quantykube", &large);
    let whole = fs::read(bench.default_bundle()).unwrap();
    (bench, whole)
}

/// The bytes that a traced command read of the file `name`, by the kernel's own account.
fn read_of(bench: &Workbench, name: &str, args: &[&str]) -> (Ran, u64) {
    let strace = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-e",
            "trace=read,pread64,readv,preadv,preadv2,mmap,sendfile,copy_file_range",
            "-o",
            "trace",
        ])
        .arg("-P")
        .arg(bench.path(name))
        .arg(bench.path("quantykube-bundle"))
        .args(args)
        .current_dir(bench.path(""))
        .output()
        .expect("strace is missing; scripts/setup --tests installs it");
    let trace = fs::read_to_string(bench.path("trace")).unwrap();
    let returned = |line: &str| {
        line.rsplit_once("= ")
            .and_then(|(_, rest)| rest.trim().parse::<u64>().ok())
    };
    let mut sum = 0;
    for line in trace.lines() {
        assert!(!line.contains("mmap("), "a mapped file is read without a trace: {line}");
        sum += returned(line).unwrap_or(0);
    }
    assert!(sum > 0, "nothing was traced: {trace}");
    (Ran::from(strace), sum)
}

#[test]
fn a_copy_of_63_percent_is_filled_with_38_percent_read() {
    let (bench, whole) = bench();
    let cut = whole.len() * 63 / 100;
    bench.put("half.tar.gz", &whole[..cut]);
    let ran = bench.run(&["verify", "half.tar.gz"]);
    ran.failed(
        3,
        &[
            "truncated",
            "whole in half.tar.gz",
            &format!("of {cut} bytes, from 0 to "),
            "fill half.tar.gz OTHER",
        ],
    );
    let (ran, read) = read_of(
        &bench,
        "out/b.tar.gz",
        &["fill", "half.tar.gz", "out/b.tar.gz", "--json"],
    );
    let ran = ran.ok();
    assert!(fs::read(bench.path("half.tar.gz")).unwrap() == whole);
    println!(
        "{read} of {} bytes were read: {:.1} %",
        whole.len(),
        100.0 * read as f64 / whole.len() as f64
    );
    // One member more than what is missing: the one that the copy stopped in; here members are 5 % of the whole.
    let result: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    // Whether it is a part is looked at before: 16 bytes.
    assert_eq!(
        result["read"].as_u64().unwrap() + 16,
        read,
        "what it says is what it does"
    );
    let most = whole.len() as u64 * 38 / 100 + (4 << 20) + 100_000;
    assert!(read <= most, "{read} of {} bytes were read", whole.len());
}

#[test]
fn holes_and_damage_are_filled_and_nothing_else() {
    let (bench, whole) = bench();
    let mut bad = whole.clone();
    let (a, b) = (whole.len() / 4, whole.len() / 2);
    bad[a..b].fill(0);
    bad[whole.len() * 3 / 4] ^= 1;
    bench.put("bad.tar.gz", &bad);
    let ran = bench.run(&["verify", "bad.tar.gz"]);
    ran.failed(3, &["damaged at byte", "whole in bad.tar.gz"]);
    let line = ran.err.lines().find(|line| line.starts_with("whole in")).unwrap();
    assert_eq!(line.matches(" to ").count(), 3, "three ranges are whole: {line}");
    bench.run(&["fill", "bad.tar.gz", "out/b.tar.gz"]).ok();
    assert!(fs::read(bench.path("bad.tar.gz")).unwrap() == whole);
    // Nothing to do is success, and changes nothing.
    let ran = bench.run(&["fill", "bad.tar.gz", "out/b.tar.gz", "--json"]).ok();
    assert!(ran.out.contains("\"written\":0"), "{}", ran.out);
    // A copy that was laid out in full before its bytes came.
    let file = fs::File::create(bench.path("sparse.tar.gz")).unwrap();
    file.set_len(whole.len() as u64).unwrap();
    file.write_all_at(&whole[..a], 0).unwrap();
    bench.run(&["fill", "sparse.tar.gz", "out/b.tar.gz"]).ok();
    assert!(fs::read(bench.path("sparse.tar.gz")).unwrap() == whole);
}

#[test]
fn a_file_that_is_no_copy_is_left_alone() {
    let (bench, whole) = bench();
    bench.put("letter.txt", b"dear reader");
    bench.put("quantykube", &elf(AMD64, false, 3 << 20, 5));
    bench.run(&["build", "spec.yaml", "-o", "other.tar.gz"]).ok();
    bench.put("longer.tar.gz", &[&whole[..], b"x"].concat());
    bench.put("half.tar.gz", &whole[..whole.len() / 2]);
    bench.put("badcopy.tar.gz", &{
        let mut bad = whole.clone();
        bad[whole.len() - 3_000_000] ^= 1;
        bad
    });
    let before = tree(&bench.path(""));
    for (file, other, names) in [
        ("letter.txt", "out/b.tar.gz", &["letter.txt", "no member"][..]),
        ("other.tar.gz", "out/b.tar.gz", &["other.tar.gz"]),
        (
            "longer.tar.gz",
            "out/b.tar.gz",
            &["longer.tar.gz has", "the other copy"][..1],
        ),
        ("half.tar.gz", "other.tar.gz", &["half.tar.gz"]),
    ] {
        let ran = bench.run(&["fill", file, other]);
        assert_eq!(ran.code, Some(3), "{file} {other}: {}", ran.err);
        assert!(
            names.iter().all(|name| ran.err.contains(name.trim_end_matches(" has"))),
            "{}",
            ran.err
        );
        assert!(tree(&bench.path("")) == before, "fill {file} {other} changed something");
    }
    // Of a bad copy what is good is taken, and the bad place is named; a second copy completes it.
    bench
        .run(&["fill", "half.tar.gz", "badcopy.tar.gz"])
        .failed(3, &["badcopy.tar.gz is damaged at byte"]);
    bench.run(&["fill", "half.tar.gz", "out/b.tar.gz"]).ok();
    assert!(fs::read(bench.path("half.tar.gz")).unwrap() == whole);
}
