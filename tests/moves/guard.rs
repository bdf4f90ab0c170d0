//! The guard: a manifest that names the other side than the journal never serves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, ETCD, LONG, MANIFEST, STORE};
use crate::kills::read_up_to;

/// What kubeadm needs to render the API server's manifest again, on a node without the network.
const CONFIG: &str = "/etc/node-kubeadm.yaml";

#[test]
fn a_manifest_that_names_the_other_side_never_serves() {
    let mut bench = Bench::set_up();
    bench.run(&["install", "store"]).expect(0);
    bench.node.api_ready(LONG);
    let on_store = bench.manifest();
    assert!(bench.is_active("quantykube-guard") && bench.is_enabled("quantykube-guard"));
    println!("the guard takes {} KiB of memory", memory(&bench));
    bench.kubectl(&[
        "-n",
        "moves",
        "create",
        "configmap",
        "only-on-the-store",
        "--from-literal=a=b",
    ]);

    // As kubeadm writes it: straight into the kubelet's folder.
    let render = |bench: &Bench| {
        bench.node.run(&[
            "kubeadm",
            "init",
            "phase",
            "control-plane",
            "apiserver",
            "--config",
            CONFIG,
        ]);
    };
    let (window, answers) = watched(&bench, || render(&bench));
    println!(
        "kubeadm wrote the manifest anew: it was there for {window:?}, {answers} answers came from etcd meanwhile"
    );
    assert_eq!(answers, 0);
    cured(&bench, STORE, &on_store);
    bench.kubectl(&["-n", "moves", "get", "configmap", "only-on-the-store"]);

    // While the machine was off; the guard looks before the kubelet does.
    let wrong = on_store.replace(STORE, ETCD);
    bench.node.kill();
    std::fs::write(bench.node.path(MANIFEST), &wrong).unwrap();
    bench.node.turn_on();
    wait_until("the guard has taken it at boot", || !bench.node.path(MANIFEST).exists());
    wait_until("the guard runs", || bench.is_active("quantykube-guard"));
    let log = bench
        .node
        .run(&["journalctl", "--boot", "--unit=kubelet", "--output=cat", "--no-pager"]);
    assert!(!log.contains("kube-apiserver-node1_kube-system started"), "{log}");
    cured(&bench, STORE, &on_store);
    println!("written while the node was off: taken before the kubelet looked");

    // Under another name, which the kubelet reads all the same.
    let other = "/etc/kubernetes/manifests/old.bak";
    std::fs::write(bench.node.path(other), &wrong).unwrap();
    wait_until("the guard has taken the copy", || !bench.node.path(other).exists());
    let retired = incident(&bench)["retired"].as_str().unwrap().to_owned();
    bench.node.run(&["rm", &retired]);
    bench.node.run(&["systemctl", "restart", "kubelet"]);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), STORE);

    // One that runs already is asked to end.
    bench.node.run(&["systemctl", "stop", "quantykube-guard"]);
    std::fs::write(bench.node.path(MANIFEST), &wrong).unwrap();
    wait_until("an API server runs on etcd", || {
        bench.is_served_from().as_deref() == Some(ETCD)
    });
    // One that has just begun would be gone before the guard looks: the kubelet, too, asks it to end.
    bench.node.api_ready(LONG);
    bench.node.run(&["systemctl", "start", "quantykube-guard"]);
    wait_until("it has ended", || bench.node.processes("kube-apiserver").is_empty());
    assert_eq!(incident(&bench)["terminated"].as_array().unwrap().len(), 1);
    cured(&bench, STORE, &on_store);

    // While a move is open the guard does nothing, and after an undo the store's manifest is the wrong one.
    let mut run = bench.spawn(&["undo", "store"]);
    read_up_to(&mut run, "ready");
    assert!(
        bench.node.path(MANIFEST).exists(),
        "the guard left the move's own manifest alone"
    );
    assert_eq!(run.output().status.code(), Some(0));
    bench.node.api_ready(LONG);
    let on_etcd = bench.manifest();
    std::fs::write(bench.node.path(MANIFEST), &on_store).unwrap();
    wait_until("the guard has taken it after the undo", || {
        !bench.node.path(MANIFEST).exists()
    });
    assert_eq!(incident(&bench)["data"], "etcd");
    cured(&bench, ETCD, &on_etcd);
    println!("after the undo a manifest that names the store is taken, too");
}

/// Does something that writes a wrong manifest; returns for how long it was in the folder, and how many answers came from
/// an API server on etcd until 10 s after.
fn watched(bench: &Bench, write: impl FnOnce()) -> (Duration, usize) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let polls = scope.spawn(|| {
            let mut answers = 0;
            while !stop.load(Ordering::SeqCst) {
                let on_etcd = bench.node.processes("kube-apiserver").iter().any(|pid| {
                    std::fs::read(format!("/proc/{pid}/cmdline"))
                        .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&format!("--etcd-servers={ETCD}")))
                });
                // Whatever answers while such a process is there counts as an answer from etcd.
                let ready = [
                    "kubectl",
                    "--kubeconfig",
                    "/etc/kubernetes/super-admin.conf",
                    "--request-timeout=1s",
                ];
                let asked = bench
                    .node
                    .exec(&[&ready[..], &["get", "--raw", "/api/v1/namespaces/moves/configmaps"]].concat());
                if asked.status.success()
                    && (on_etcd || !String::from_utf8_lossy(&asked.stdout).contains("only-on-the-store"))
                {
                    answers += 1;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            answers
        });
        let seen = scope.spawn(|| {
            let wrong = || std::fs::read_to_string(bench.node.path(MANIFEST)).is_ok_and(|text| text.contains(ETCD));
            while !wrong() && bench.node.path(MANIFEST).exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let begun = Instant::now();
            while wrong() {
                std::thread::sleep(Duration::from_millis(1));
                assert!(begun.elapsed() < Duration::from_secs(30), "the guard does not take it");
            }
            begun.elapsed()
        });
        write();
        let window = seen.join().unwrap();
        std::thread::sleep(Duration::from_secs(10));
        stop.store(true, Ordering::SeqCst);
        (window, polls.join().unwrap())
    })
}

/// The cure that the guard names brings the API server back on the side with the data.
fn cured(bench: &Bench, side: &str, manifest: &str) {
    wait_until("the guard has written down why", || {
        bench.node.path("/var/lib/quantykube/guard.json").exists()
    });
    let incident = incident(bench);
    assert_eq!(incident["cure"], "quantykube guard release", "{incident}");
    assert_eq!(incident["expected"], side, "{incident}");
    bench.installed(&["guard", "release"]).expect(0);
    bench.node.api_ready(LONG);
    assert_eq!(bench.serves_from(), side);
    assert_eq!(bench.manifest(), manifest);
    assert_eq!(
        bench.installed(&["guard", "release"]).expect(0).last()["changed"],
        false
    );
    assert!(bench.is_active("quantykube-guard"));
}

fn incident(bench: &Bench) -> Value {
    let text = std::fs::read(bench.node.path("/var/lib/quantykube/guard.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LONG, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What the guard's process has in memory, in KiB.
fn memory(bench: &Bench) -> u64 {
    let pid = bench
        .node
        .run(&["systemctl", "show", "--property=MainPID", "--value", "quantykube-guard"]);
    let status = bench.node.run(&["cat", &format!("/proc/{}/status", pid.trim())]);
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
