//! `plan store --rehearse`: the copy and the start of the store on a live node, with nothing changed at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, ETCD, LONG, Said};

/// Where our things and those that a move touches would show.
const WATCHED: [&str; 6] = [
    "/etc/kubernetes",
    "/etc/quantykube",
    "/etc/systemd/system",
    "/usr/local",
    "/var/lib/quantykube",
    "/var/lib/.quantykube-rehearsal",
];

/// Every entry below the watched folders, with what would show a write: length, mode, time of change.
fn tree(bench: &Bench) -> BTreeMap<String, String> {
    let folders = WATCHED.join(" ");
    let listed = bench.node.exec(&[
        "sh",
        "-c",
        &format!("find {folders} -printf '%p %s %m %U %C@\\n' 2>/dev/null; ls -A /var/lib"),
    ]);
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            (name.to_owned(), rest.to_owned())
        })
        .collect()
}

fn stores(bench: &Bench) -> Vec<u32> {
    bench.node.processes("quantykube-store")
}

#[test]
fn a_rehearsal_changes_nothing() {
    let bench = Bench::set_up();
    let before = tree(&bench);
    assert!(before.len() > 20, "{before:?}");
    let servers = bench.node.processes("kube-apiserver");
    let manifest = bench.manifest();

    let rehearsed = bench.run(&["plan", "store", "--rehearse"]).expect(0);
    let said = rehearsed.last();
    println!(
        "rehearsal: {} keys, copy {} s, start {} s, {} s in all, file {} bytes",
        said["keys"], said["copySeconds"], said["startSeconds"], said["seconds"], said["fileBytes"]
    );
    assert_eq!(
        (&said["changed"], said["servedKeys"].as_u64()),
        (&false.into(), said["keys"].as_u64())
    );
    assert!(said["keys"].as_u64().unwrap() > 200 && said["fileBytes"].as_u64().unwrap() > 0);
    assert_eq!(said["servedRevision"], said["revision"]);
    assert_eq!(tree(&bench), before);
    assert_eq!(
        bench.node.processes("kube-apiserver"),
        servers,
        "the API server went on"
    );
    assert_eq!((bench.manifest(), bench.serves_from()), (manifest, ETCD.to_owned()));
    assert!(stores(&bench).is_empty());

    // TERM, and KILL, while the copy's server runs. The fault has fired where the folder or the server was seen.
    let folder = bench.node.path("/var/lib/.quantykube-rehearsal");
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let rehearsal = bench.spawn(&["plan", "store", "--rehearse"]);
        wait_for(&folder);
        rehearsal.signal(signal);
        let output = rehearsal.output();
        if signal == Signal::KILL {
            assert!(folder.exists(), "the kill came while it was there");
            continue;
        }
        let said = Said::of(&output).expect(1);
        assert_eq!(said.last()["name"], "interrupted");
        assert_eq!(tree(&bench), before, "after the signal {}", signal.as_raw());
        assert!(stores(&bench).is_empty(), "after the signal {}", signal.as_raw());
    }
    // The next one clears away what the killed one has left.
    bench.run(&["plan", "store", "--rehearse"]).expect(0);
    assert_eq!(tree(&bench), before, "after a kill and another rehearsal");
    assert!(stores(&bench).is_empty());

    // And the move can still be made.
    bench.run(&["install", "store"]).expect(0);
}

fn wait_for(folder: &Path) {
    let begun = Instant::now();
    while !folder.join("store.qks").exists() && !folder.join("lock").exists() {
        assert!(begun.elapsed() < LONG, "the rehearsal has not begun");
        std::thread::sleep(Duration::from_millis(2));
    }
}
