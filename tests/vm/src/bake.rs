//! Makes the cluster on a bare disk, once, and keeps the disk and the memory of the machine that runs it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use crate::machine::Vm;

/// Generous, for the machine may be shared.
const LONG: Duration = Duration::from_secs(2400);

/// In `folder` are `vmlinuz`, `initrd.img` and `bare.raw`; this adds `node.qcow2`, `memory` and `facts.json`.
///
/// # Panics
/// If any of it fails; the folder is of no use then.
pub fn bake(folder: &Path) {
    let begun = Instant::now();
    let say = |text: &str| eprintln!("vm: {text} after {} s", begun.elapsed().as_secs());
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a clock past 1970");
    let mut vm = Vm::make(folder, &folder.join("bare.raw"), "raw", now.as_secs());
    vm.power_on();
    say("it runs scripts");
    vm.until("containerd serves", "ctr version >/dev/null 2>&1", LONG);
    say("containerd serves");
    vm.start(
        "init",
        "kubeadm init --config /etc/kubeadm.yaml --skip-phases=addon/coredns,addon/kube-proxy \
         --ignore-preflight-errors=all",
    );
    let (mut shown, mut phase) = (0, String::new());
    let output = loop {
        let ended = vm.ended("init");
        let text = vm.sh("cat /run/init.out");
        // One line of each phase is enough.
        for line in text.lines().skip(shown) {
            if let Some((now, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']'))
                && now != phase
            {
                say(line);
                phase = now.to_owned();
            }
        }
        shown = text.lines().count();
        if let Some(output) = ended {
            break output;
        }
        assert!(begun.elapsed() < LONG, "kubeadm init has not ended:\n{text}");
        std::thread::sleep(Duration::from_secs(5));
    };
    assert!(
        output.code == 0,
        "kubeadm init: {}\n{}{}",
        output.code,
        output.out,
        output.err
    );
    vm.sh("mkdir -p /root/.kube && cp /etc/kubernetes/admin.conf /root/.kube/config");
    vm.until(
        "the node is ready",
        "kubectl wait --for=condition=Ready node/node1 --timeout=60s",
        LONG,
    );
    say("the node is ready");
    vm.until("its account is there", "kubectl get serviceaccount default", LONG);
    vm.sh("kubectl create --validate=false -f /etc/sleeper.yaml");
    vm.until(
        "all pods are ready",
        "kubectl wait --for=condition=Ready pods --all --all-namespaces --timeout=60s && \
         [ $(kubectl get pods -A --no-headers | wc -l) = 5 ]",
        LONG,
    );
    say("all pods are ready");
    // What comes late: statuses, leases, events.
    std::thread::sleep(Duration::from_secs(20));
    vm.sh("journalctl --sync; sync; echo 3 >/proc/sys/vm/drop_caches; sync");
    let clock: u64 = vm.sh("date +%s").trim().parse().expect("date prints seconds");
    let memory = folder.join("memory");
    let mut qmp = vm.qmp();
    qmp.call("stop", json!({}));
    let unbounded = json!({ "max-bandwidth": 1u64 << 40 });
    qmp.call("migrate-set-parameters", unbounded);
    qmp.call("migrate", json!({ "uri": format!("exec:cat >'{}'", memory.display()) }));
    loop {
        let state = qmp.call("query-migrate", json!({}));
        match state["status"].as_str() {
            Some("completed") => break,
            Some("failed" | "cancelled") => panic!("the memory cannot be kept: {state}"),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    }
    qmp.call("quit", json!({}));
    vm.wait_until_off(Duration::from_secs(120));
    let disk = folder.join("node.qcow2");
    fs::copy(vm.folder.join("disk.qcow2"), &disk).expect("the disk can be kept");
    // The folder gets its name only now: the disk below is named from where the upper one lies.
    let rebase = ["rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", "bare.raw"];
    let status = std::process::Command::new("qemu-img").args(rebase).arg(&disk).status();
    assert!(
        status.expect("qemu-img can be run").success(),
        "the disk below cannot be named"
    );
    let facts = json!({ "clock": clock, "seconds": begun.elapsed().as_secs() });
    fs::write(folder.join("facts.json"), facts.to_string()).expect("the facts can be kept");
    say(&format!(
        "kept: {} MB of disk, {} MB of memory",
        size(&disk) / 1_000_000,
        size(&memory) / 1_000_000
    ));
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
