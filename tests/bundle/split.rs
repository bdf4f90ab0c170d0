//! `split` and `join`: every size gives the same bytes back, and every bad part is named and left alone.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::workbench::{AMD64, OWN, Ran, Workbench, bytes, elf, tree};

/// A small bundle in small members, so that it can be cut at many sizes.
fn small() -> (Workbench, Vec<u8>) {
    let bench = Workbench::new();
    bench.put("quantykube", &elf(AMD64, false, 20_000, 1));
    bench.put("quantykube-store", &elf(AMD64, false, 30_000, 2));
    let mut spec = format!("{OWN}binaries:\n");
    for number in 0..12 {
        bench.put(
            &format!("tools/t{number}"),
            &elf(AMD64, false, 5000 + 700 * number, 10 + number as u64),
        );
        spec.push_str(&format!("  - {{name: t{number}, path: tools/t{number}}}\n"));
    }
    bench.build(&spec).ok();
    let whole = fs::read(bench.path("out/b.tar.gz")).unwrap();
    (bench, whole)
}

fn parts(bench: &Workbench, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(bench.path(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut parts: Vec<PathBuf> = entries
        .filter(|path| path.display().to_string().contains(".part-"))
        .collect();
    parts.sort();
    parts
}

fn split(bench: &Workbench, size: usize, folder: &str) -> Vec<PathBuf> {
    fs::create_dir_all(bench.path(folder)).unwrap();
    bench
        .run(&["split", "out/b.tar.gz", "--size", &size.to_string(), "-o", folder])
        .ok();
    parts(bench, folder)
}

/// `join` of the part `first` must fail with 3, name everything in `names` and change nothing.
#[track_caller]
fn refused(bench: &Workbench, first: &str, names: &[&str]) {
    let before = tree(&bench.path("p"));
    bench.run(&["join", first, "-o", "out/again.tar.gz"]).failed(3, names);
    bench.run(&["verify", first]).failed(3, names);
    assert!(tree(&bench.path("p")) == before, "a part was changed or taken away");
    assert!(!bench.path("out/again.tar.gz").exists());
    assert_eq!(
        fs::read_dir(bench.path("out")).unwrap().count(),
        1,
        "something was left"
    );
}

#[test]
fn every_size_gives_the_same_bytes_back() {
    let seed = quantykube_tests_seed();
    let (bench, whole) = small();
    let mut state = seed | 1;
    let mut sizes = vec![whole.len() + 1000, whole.len() / 2];
    for _ in 0..12 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sizes.push(32_000 + (state >> 40) as usize % whole.len());
    }
    for (round, size) in sizes.into_iter().enumerate() {
        let folder = format!("p{round}");
        let parts = split(&bench, size, &folder);
        assert!(!parts.is_empty(), "size {size}");
        for part in &parts {
            let length = fs::metadata(part).unwrap().len() as usize;
            assert!(
                length < size,
                "{} has {length} bytes, asked for fewer than {size}",
                part.display()
            );
        }
        let first = parts[0].strip_prefix(bench.path("")).unwrap().display().to_string();
        let joined = format!("{folder}/joined");
        bench.run(&["join", &first, "-o", &joined]).ok();
        assert!(fs::read(bench.path(&joined)).unwrap() == whole, "size {size}");
        bench.run(&["verify", &first]).ok();
        // Any tar opens what cat makes of them.
        let script = format!("cat {folder}/*.part-* | tar tzf - | wc -l");
        let listed = Command::new("sh")
            .args(["-c", &script])
            .current_dir(bench.path(""))
            .output()
            .unwrap();
        let plain = Command::new("sh")
            .args(["-c", "tar tzf out/b.tar.gz | wc -l"])
            .current_dir(bench.path(""))
            .output();
        assert_eq!(
            Ran::from(listed).ok().out,
            Ran::from(plain.unwrap()).ok().out,
            "size {size}"
        );
    }
    bench
        .run(&["split", "out/b.tar.gz", "--size", "500"])
        .failed(2, &["a part of this bundle needs"]);
    bench
        .run(&["split", "out/b.tar.gz", "--size", "many"])
        .failed(2, &["--size"]);
}

fn quantykube_tests_seed() -> u64 {
    let given = std::env::var("QUANTYKUBE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(20_261_130);
    println!("QUANTYKUBE_SEED={seed}");
    seed
}

#[test]
fn every_bad_part_is_named() {
    let (bench, _) = small();
    let parts = split(&bench, 30_000, "p");
    assert!(parts.len() >= 3, "{parts:?}");
    let name = |index: usize| parts[index].strip_prefix(bench.path("")).unwrap().display().to_string();
    let (first, second, third) = (name(0), name(1), name(2));
    let good = fs::read(&parts[1]).unwrap();
    let put = |bytes: &[u8]| fs::write(&parts[1], bytes).unwrap();

    fs::remove_file(&parts[1]).unwrap();
    refused(&bench, &first, &[&format!("part 2 of {} is missing", parts.len())]);
    put(&good[..good.len() - 1]);
    refused(&bench, &first, &[&second, "truncated"]);
    put(&good[..10]);
    refused(&bench, &first, &[&second, "truncated"]);
    put(&[&good[..], b"more"].concat());
    refused(&bench, &first, &[&second]);
    for place in [30, 60, 100, 130, good.len() - 1] {
        let mut bad = good.clone();
        bad[place] ^= 4;
        put(&bad);
        refused(&bench, &first, &[&second]);
    }
    // One that says that it is another: of both names, and of what is missing then.
    put(&fs::read(&parts[2]).unwrap());
    refused(&bench, &first, &[&second, &third, "are both part 3", "part 2 of"]);
    put(&good);
    let twice = bench.path("p/once-more");
    fs::copy(&parts[1], &twice).unwrap();
    refused(&bench, &first, &[&second, "p/once-more", "are both part 2"]);
    fs::remove_file(&twice).unwrap();

    // Under other names, and in each other's place, they are what they say: told, and joined.
    fs::rename(&parts[1], bench.path("p/holiday.jpg")).unwrap();
    let ran = bench.run(&["join", &first, "-o", "renamed"]).ok();
    assert!(ran.err.contains("p/holiday.jpg is part 2 of"), "{}", ran.err);
    fs::rename(&parts[2], &parts[1]).unwrap();
    fs::rename(bench.path("p/holiday.jpg"), &parts[2]).unwrap();
    let ran = bench.run(&["join", &first, "-o", "swapped"]).ok();
    assert!(ran.err.contains(&format!("{second} is part 3 of")), "{}", ran.err);
    for made in ["renamed", "swapped"] {
        assert!(fs::read(bench.path(made)).unwrap() == fs::read(bench.path("out/b.tar.gz")).unwrap());
    }
    bench
        .run(&["join", &first, "-o", "swapped"])
        .failed(4, &["swapped is there already"]);
}

#[test]
fn parts_of_other_splits_and_bundles_do_not_mix() {
    let (bench, whole) = small();
    let parts_a = split(&bench, 60_000, "p");
    // An older, finer split stays in the folder.
    split(&bench, 40_000, "p");
    let first = parts_a[0].strip_prefix(bench.path("")).unwrap().display().to_string();
    bench.run(&["join", &first, "-o", "joined"]).ok();
    assert!(fs::read(bench.path("joined")).unwrap() == whole);
    // Given by name, a foreign one is named.
    bench.put("tools/t1", &elf(AMD64, false, 9000, 99));
    fs::rename(bench.path("out/b.tar.gz"), bench.path("old.tar.gz")).unwrap();
    bench.run(&["build", "spec.yaml", "-o", "out/b.tar.gz"]).ok();
    let other = split(&bench, 60_000, "q");
    assert_eq!(other.len(), parts_a.len());
    let mut given: Vec<String> = parts_a.iter().map(|path| path.display().to_string()).collect();
    given[1] = other[1].display().to_string();
    let mut args = vec!["join", "-o", "mixed"];
    args.extend(given.iter().map(String::as_str));
    bench.run(&args).failed(3, &[&given[1], "of bundle", "part 2 of"]);
    args[0] = "verify";
    args.drain(1..3);
    bench.run(&args).failed(3, &[&given[1]]);
    // So it is under the name of the one that is missing.
    fs::copy(&other[1], &parts_a[1]).unwrap();
    bench.run(&["join", &first, "-o", "mixed"]).failed(
        3,
        &[
            &given[1].replace("/q/", "/p/")[bench.path("").display().to_string().len()..],
            "is missing",
        ],
    );
    assert!(!bench.path("mixed").exists());
}

#[test]
fn a_split_leaves_what_is_there_and_nothing_of_itself() {
    let (bench, whole) = small();
    let parts = split(&bench, 60_000, "p");
    fs::remove_file(&parts[0]).unwrap();
    let before = tree(&bench.path("p"));
    bench
        .run(&["split", "out/b.tar.gz", "--size", "60000", "-o", "p"])
        .failed(4, &["is there already"]);
    assert!(tree(&bench.path("p")) == before);
    // A damaged bundle is not split.
    let mut bad = whole;
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    bench.put("bad.tar.gz", &bad);
    fs::create_dir(bench.path("r")).unwrap();
    bench
        .run(&["split", "bad.tar.gz", "--size", "60000", "-o", "r"])
        .failed(3, &[]);
    assert!(tree(&bench.path("r")).is_empty());
    // A newer format of parts is not guessed at.
    let mut newer = fs::read(&parts[1]).unwrap();
    newer[16] = 9;
    bench.put("newer", &newer);
    bench.run(&["join", "newer"]).failed(7, &["newer has format 9"]);
}

#[test]
fn a_large_bundle_is_cut_inside_its_files() {
    let bench = Workbench::new();
    let mut large = elf(AMD64, false, 1000, 1);
    large.extend(bytes(20 << 20, 3));
    bench.put("quantykube", &large);
    let whole = fs::read(bench.default_bundle()).unwrap();
    let parts = split(&bench, 4 << 20, "p");
    assert!(parts.len() >= 3, "{parts:?}");
    let name = |number: usize| format!("b.tar.gz.part-{number}-of-{}", parts.len());
    bench.run(&["extract", &format!("p/{}", name(1)), "unpacked"]).ok();
    assert!(fs::read(bench.path("unpacked/quantykube-0.1.0-linux-amd64/run")).unwrap() == large);
    fs::create_dir(bench.path("n")).unwrap();
    for part in &parts {
        fs::rename(part, bench.path("n").join(part.file_name().unwrap())).unwrap();
    }
    bench.run(&["join", &format!("n/{}", name(2)), "-o", "n/whole"]).ok();
    assert!(fs::read(bench.path("n/whole")).unwrap() == whole);
}
