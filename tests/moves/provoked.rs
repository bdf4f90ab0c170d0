//! What goes wrong in the middle: each ends as before or moved, or says what to do.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, MANIFEST, STORE, Said};
use crate::kills::{read_until, read_up_to};

const FOLDER: &str = "/var/lib/quantykube/store";

#[test]
fn what_fails_in_the_middle_is_put_back_and_told() {
    let bench = Bench::set_up();
    let original = bench.manifest();
    let before = bench.objects();
    let as_before = |what: &str, said: &Said| {
        bench.node.api_ready(LONG);
        assert_eq!(
            (bench.serves_from().as_str(), bench.manifest()),
            (ETCD, original.clone()),
            "{what}"
        );
        assert!(
            !bench.is_active("quantykube-store") && !bench.is_enabled("quantykube-store"),
            "{what}"
        );
        assert_eq!(bench.status()["openMove"], Value::Null, "{what}");
        bench.objects().unchanged_since(&before);
        println!(
            "{what}: exit {}, {}, {}",
            said.code,
            said.last()["message"],
            said.last()["causes"]
        );
    };

    // etcd stands still from before the copy until the way back has begun.
    let mut run = bench.spawn(&["install", "store"]);
    read_up_to(&mut run, "quiet");
    signal_etcd(&bench, Signal::STOP);
    let events = read_until(&mut run, |event| event["name"] == "turn");
    signal_etcd(&bench, Signal::CONT);
    let said = Said::of(&run.output()).expect(1);
    let causes = said.last()["causes"].to_string();
    assert!(causes.contains("step copy"), "{causes} {events:#?}");
    as_before("etcd stands still during the copy", &said);

    // The disk of the store's file fills after every check has said yes.
    bench.node.run(&["mkdir", "-p", FOLDER]);
    bench
        .node
        .run(&["mount", "-t", "tmpfs", "-o", "size=512m,mode=700", "none", FOLDER]);
    let mut run = bench.spawn(&["install", "store"]);
    read_up_to(&mut run, "gone");
    let fill = format!("dd if=/dev/zero of={FOLDER}/fill bs=64k status=none; df --output=avail {FOLDER} | tail -1");
    let left = bench.node.exec(&["sh", "-c", &fill]);
    let left = String::from_utf8_lossy(&left.stdout).trim().to_owned();
    assert!(
        left.parse::<u64>().is_ok_and(|kib| kib < 64),
        "the disk is full: {left}"
    );
    let said = Said::of(&run.output()).expect(5);
    assert!(said.last()["causes"].to_string().contains("step copy"), "{said:#?}");
    as_before("the store's disk fills before the copy", &said);
    bench.node.run(&["umount", FOLDER]);

    // The API server does not start any more: its certificate is away while it should begin on the store.
    let (certificate, away) = ("/etc/kubernetes/pki/apiserver.crt", "/root/apiserver.crt");
    let mut run = bench.spawn(&["install", "store", "--ready-timeout", "25"]);
    read_up_to(&mut run, "gone");
    bench.node.run(&["mv", certificate, away]);
    let events = read_until(&mut run, |event| event["name"] == "turn");
    let reached = |name: &str| {
        events
            .iter()
            .any(|event| event["event"] == "step" && event["name"] == name)
    };
    assert!(
        reached("return") && reached("ready"),
        "it waited for it on the store: {events:#?}"
    );
    bench.node.run(&["mv", away, certificate]);
    let said = Said::of(&run.output()).expect(1);
    assert!(said.last()["causes"].to_string().contains("step ready"), "{said:#?}");
    as_before("the API server never gets ready", &said);

    // On the store, with etcd away: the copy back cannot be made, and the cluster stays on the store.
    bench.run(&["install", "store"]).expect(0);
    bench.node.api_ready(LONG);
    bench.kubectl(&["-n", "moves", "create", "configmap", "on-store", "--from-literal=a=b"]);
    let on_store = bench.objects();
    let stays = |what: &str, said: &Said| {
        assert!(matches!(said.code, 1 | 4 | 5), "{what}: {said:#?}");
        bench.node.api_ready(LONG);
        assert_eq!(bench.serves_from(), STORE, "{what}");
        assert!(
            bench.is_active("quantykube-store") && bench.is_enabled("quantykube-store"),
            "{what}"
        );
        assert_eq!(bench.status()["openMove"], Value::Null, "{what}");
        bench.objects().unchanged_since(&on_store);
        println!(
            "{what}: exit {}, {}, {}",
            said.code,
            said.last()["message"],
            said.last()["causes"]
        );
    };
    bench
        .node
        .run(&["mv", "/etc/kubernetes/manifests/etcd.yaml", "/root/etcd.yaml"]);
    while !bench.node.processes("etcd").is_empty() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = bench.run(&["undo", "store"]);
    stays("undo with etcd down", &said);
    bench
        .node
        .run(&["mv", "/root/etcd.yaml", "/etc/kubernetes/manifests/etcd.yaml"]);
    wait_for_etcd(&bench);

    // etcd stands still from before the copy back until the way back has begun.
    let mut run = bench.spawn(&["undo", "store"]);
    read_up_to(&mut run, "unit");
    signal_etcd(&bench, Signal::STOP);
    read_until(&mut run, |event| event["name"] == "turn");
    signal_etcd(&bench, Signal::CONT);
    let said = Said::of(&run.output()).expect(1);
    assert!(
        said.last()["causes"].to_string().contains("step copy-back"),
        "{said:#?}"
    );
    stays("etcd stands still during the copy back", &said);

    // NOSPACE: the alarm refuses every write.
    raise_nospace(&bench);
    let said = bench.run(&["undo", "store"]);
    stays("undo with etcd out of space", &said);
    bench.node.etcdctl(&["alarm", "disarm"]);
    bench.run(&["undo", "store"]).expect(0);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), ETCD);
    bench.kubectl(&["-n", "moves", "get", "configmap", "on-store"]);
    assert!(bench.node.path(MANIFEST).exists());
    println!("the alarm gone, undo brings all of it back");
}

/// Sends a signal to the node's etcd.
fn signal_etcd(bench: &Bench, signal: Signal) {
    let pids = bench.node.processes("etcd");
    assert_eq!(pids.len(), 1, "one etcd runs");
    kill_process(Pid::from_raw(pids[0] as i32).unwrap(), signal).unwrap();
}

fn wait_for_etcd(bench: &Bench) {
    let begun = std::time::Instant::now();
    let pki = "/etc/kubernetes/pki";
    let (ca, cert, key) = (
        format!("--cacert={pki}/etcd/ca.crt"),
        format!("--cert={pki}/apiserver-etcd-client.crt"),
        format!("--key={pki}/apiserver-etcd-client.key"),
    );
    let ask = [
        "etcdctl",
        &format!("--endpoints={ETCD}"),
        &ca,
        &cert,
        &key,
        "endpoint",
        // One with an alarm is not called healthy.
        "status",
    ];
    while !bench.node.exec(&ask).status.success() {
        assert!(begun.elapsed() < LONG, "etcd does not come back");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// etcd's own alarm, as it raises it when its file has reached the quota.
fn raise_nospace(bench: &Bench) {
    let manifest = "/etc/kubernetes/manifests/etcd.yaml";
    let text = std::fs::read_to_string(bench.node.path(manifest)).unwrap();
    assert!(text.contains("- etcd\n"), "{text}");
    // A quota below what it holds: the next write raises the alarm, which outlives the quota.
    let small = text.replacen("    - etcd\n", "    - etcd\n    - --quota-backend-bytes=65536\n", 1);
    replace(bench, manifest, &small);
    let put = |bench: &Bench| {
        let pki = "/etc/kubernetes/pki";
        let script = format!(
            "etcdctl --endpoints={ETCD} --cacert={pki}/etcd/ca.crt --cert={pki}/apiserver-etcd-client.crt \
             --key={pki}/apiserver-etcd-client.key put quantykube-test x"
        );
        bench.node.exec(&["sh", "-c", &script])
    };
    let refused = String::from_utf8_lossy(&put(bench).stderr).into_owned();
    assert!(refused.contains("space"), "{refused}");
    replace(bench, manifest, &text);
    assert!(bench.node.etcdctl(&["alarm", "list"]).contains("NOSPACE"));
}

/// Replaces etcd's manifest and waits for the etcd that is started from it.
fn replace(bench: &Bench, path: &str, text: &str) {
    let old = bench.node.processes("etcd");
    let temporary = bench.node.path("/etc/kubernetes/manifests/.etcd.yaml.new");
    std::fs::write(&temporary, text).unwrap();
    std::fs::rename(&temporary, bench.node.path(path)).unwrap();
    let begun = std::time::Instant::now();
    while bench.node.processes("etcd").iter().any(|pid| old.contains(pid)) {
        assert!(begun.elapsed() < LONG, "etcd does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for_etcd(bench);
}
