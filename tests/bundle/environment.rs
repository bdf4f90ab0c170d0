//! Where a bundle is built and read: umasks, mounts without execution, disks that fill, dead proxies, no network, clocks.

use std::fs;
use std::process::Command;

use crate::workbench::{AMD64, OWN, Ran, Workbench, bytes, elf, tree, unshared};

const FOLDER: &str = "quantykube-0.1.0-linux-amd64";

/// Programs of a few hundred kilobytes.
fn small() -> Workbench {
    let bench = Workbench::new();
    bench.put("quantykube", &elf(AMD64, false, 200_000, 1));
    bench.put("spec.yaml", format!("architecture: amd64\n{OWN}").as_bytes());
    bench
}

fn sh(bench: &Workbench, script: &str) -> Ran {
    let run = Command::new("sh")
        .args(["-ec", script])
        .current_dir(bench.path(""))
        .output();
    run.unwrap().into()
}

#[test]
fn no_umask_shows_on_either_side() {
    let bench = small();
    let mut built = None;
    for here in ["000", "022", "027", "077"] {
        sh(
            &bench,
            &format!("umask {here}; ./quantykube-bundle build spec.yaml -o out/b{here}.tar.gz"),
        )
        .ok();
        let bytes = fs::read(bench.path(&format!("out/b{here}.tar.gz"))).unwrap();
        assert!(
            *built.get_or_insert_with(|| bytes.clone()) == bytes,
            "umask {here} changed the bytes"
        );
    }
    sh(
        &bench,
        "./quantykube-bundle build spec.yaml --base out/b000.tar.gz -o d.delta",
    )
    .ok();
    let mut unpacked = None;
    for there in ["000", "022", "027", "077"] {
        let script = format!(
            "umask {there}; mkdir -m 755 u{there} t{there}; ./quantykube-bundle extract out/b077.tar.gz u{there}; \
             tar xzf out/b077.tar.gz -C t{there}; ./quantykube-bundle apply d.delta t{there}/{FOLDER} -o a{there}"
        );
        // `apply` verifies the folder that tar made under this umask.
        sh(&bench, &script).ok();
        let ours = tree(&bench.path(&format!("u{there}")));
        assert!(
            *unpacked.get_or_insert_with(|| ours.clone()) == ours,
            "umask {there} shows in the tree"
        );
        assert!(Some(fs::read(bench.path(&format!("a{there}"))).unwrap()) == built);
    }
}

#[test]
fn nothing_needs_to_run_from_tmp_or_var() {
    let bench = small();
    sh(&bench, "./quantykube-bundle build spec.yaml -o plain.tar.gz").ok();
    let script = format!(
        "mount --bind . /mnt && mount -t tmpfs -o noexec none /tmp && mount -t tmpfs -o noexec none /var || exit 99
        cd /mnt; cp quantykube-bundle /tmp/; if /tmp/quantykube-bundle --help; then exit 98; fi
        set -e; ./quantykube-bundle build spec.yaml -o out/b.tar.gz; cmp out/b.tar.gz plain.tar.gz
        ./quantykube-bundle verify out/b.tar.gz; ./quantykube-bundle extract out/b.tar.gz /var/here
        test $(stat -c %a /var/here/{FOLDER}/run) = 755"
    );
    if let Some(ran) = unshared(&bench, "nothing_needs_to_run_from_tmp_or_var", &["--mount"], &script) {
        let ran = ran.ok();
        assert!(
            ran.err.contains("/tmp/quantykube-bundle"),
            "the mount must forbid it: {}",
            ran.err
        );
    }
}

#[test]
fn a_disk_that_is_full_after_any_number_of_pages_leaves_nothing() {
    let bench = small();
    sh(&bench, "./quantykube-bundle build spec.yaml -o b.tar.gz").ok();
    bench.put("quantykube-store", &elf(AMD64, false, 200_000, 9));
    sh(
        &bench,
        "./quantykube-bundle build spec.yaml --base b.tar.gz -o d.delta; mkdir p; \
         ./quantykube-bundle split b.tar.gz --size 150K -o p",
    )
    .ok();
    // Each must say 5 until there is room, and then do its work; what is left is counted after each try.
    let verbs = [
        "build spec.yaml -o small/x",
        "extract b.tar.gz small",
        "join p/b.tar.gz.part-1-of-2 -o small/x",
        "apply d.delta b.tar.gz -o small/x",
        "split b.tar.gz --size 150K -o small",
        "build spec.yaml --base b.tar.gz -o small/x",
    ];
    fs::create_dir(bench.path("small")).unwrap();
    for verb in verbs {
        let script = format!(
            "mount -t tmpfs -o size=4k none small || exit 99
            pages=1; full=0
            while [ $pages -lt 600 ]; do
                mount -o remount,size=$((4 * pages))k small || exit 98
                ./quantykube-bundle {verb} >/dev/null 2>err; code=$?
                case $code in
                    0) echo full $full; exit 0 ;;
                    5) full=$((full + 1)); test -z \"$(ls -A small)\" || {{ ls -A small; exit 97; }} ;;
                    *) cat err >&2; exit 96 ;;
                esac
                pages=$((pages + pages / 6 + 1))
            done; exit 95"
        );
        let test = "a_disk_that_is_full_after_any_number_of_pages_leaves_nothing";
        let Some(ran) = unshared(&bench, test, &["--mount"], &script) else {
            return;
        };
        let ran = ran.ok();
        let full: u32 = ran.out.trim().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(full >= 1, "{verb}: the disk was never full: {}", ran.out);
    }
}

#[test]
fn no_connection_is_tried() {
    let bench = small();
    let script = "export HTTP_PROXY=http://192.0.2.1:9 HTTPS_PROXY=http://192.0.2.1:9 http_proxy=http://192.0.2.1:9 ALL_PROXY=socks5://192.0.2.1:9
        set -e
        for verb in 'build spec.yaml -o out/b.tar.gz' 'verify out/b.tar.gz' 'inspect out/b.tar.gz' 'extract out/b.tar.gz out' \
            'split out/b.tar.gz --size 150K' 'join out/b.tar.gz.part-1-of-2 -o j' 'build spec.yaml --base out/b.tar.gz -o d' 'apply d j -o k'; do
            strace -f -qq -e trace=network -o trace ./quantykube-bundle $verb
            if grep -E 'connect|sendto|AF_INET' trace; then exit 9; fi
        done
        # The trace sees what it must see.
        strace -f -qq -e trace=network -o trace bash -c '(: </dev/tcp/127.0.0.1/9) 2>/dev/null' || grep -q connect trace
        test -s trace";
    sh(&bench, script).ok();
    let test = "no_connection_is_tried";
    let offline = "ip link show up | grep . && exit 98; ./quantykube-bundle verify out/b.tar.gz && ./quantykube-bundle build spec.yaml -o again && cmp again out/b.tar.gz";
    if let Some(ran) = unshared(&bench, test, &["--net"], offline) {
        ran.ok();
    }
}

#[test]
fn no_clock_is_asked() {
    // The time of day goes into nothing and decides nothing. A static program cannot be given another clock by
    // preloading, so the sources are the judge: none of them asks for it.
    let root = quantykube_tests::places::root();
    let mut looked = 0;
    for folder in ["bundler/src", "crates/bundle-format/src", "crates/oci/src"] {
        let mut todo = vec![root.join(folder)];
        while let Some(next) = todo.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    todo.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    looked += 1;
                    for clock in [
                        "SystemTime",
                        "UtcDateTime",
                        "OffsetDateTime",
                        "Utc::now",
                        "CLOCK_REALTIME",
                    ] {
                        assert!(!text.contains(clock), "{} asks for the time: {clock}", path.display());
                    }
                }
            }
        }
    }
    assert!(looked > 30, "{looked} files");
    // Where the program can be given one, it is: 1970 and ten years on.
    let bench = small();
    sh(&bench, "./quantykube-bundle build spec.yaml -o plain.tar.gz").ok();
    let program = fs::read(bench.path("quantykube-bundle")).unwrap();
    let dynamic = program.windows(9).any(|window| window == b"ld-linux-");
    let faketime = Command::new("faketime").arg("--version").output().is_ok();
    if !dynamic || !faketime {
        return quantykube_tests::skipped(
            "no_clock_is_asked",
            "a part of another test: faketime is not there, or the program is static; the sources were read",
        );
    }
    for day in ["1970-01-02", "2036-12-01"] {
        let script = format!(
            "faketime {day} ./quantykube-bundle build spec.yaml -o f; cmp f plain.tar.gz; faketime {day} ./quantykube-bundle verify f; rm f"
        );
        sh(&bench, &script).ok();
    }
}

#[test]
fn colours_only_on_a_terminal_that_wants_them() {
    let bench = Workbench::bare();
    bench.put("noise", &bytes(1000, 1));
    for args in ["--help", "verify noise", "dance"] {
        let ran = bench.run(&args.split(' ').collect::<Vec<_>>());
        assert!(!(ran.out + &ran.err).contains('\x1b'), "{args}");
        // On a terminal: `script` makes one.
        let on_terminal = |before: &str| {
            let inner = format!("{before} ./quantykube-bundle {args}");
            let run = Command::new("script")
                .args(["-qec", &inner, "/dev/null"])
                .env("TERM", "xterm-256color")
                .env_remove("NO_COLOR")
                .current_dir(bench.path(""))
                .output()
                .unwrap();
            String::from_utf8_lossy(&run.stdout).into_owned()
        };
        assert!(!on_terminal("NO_COLOR=1").contains("\x1b["), "{args}");
        if args == "dance" {
            assert!(on_terminal("").contains("\x1b["), "the terminal must be one");
        }
    }
}
