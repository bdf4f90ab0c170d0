//! Life on a moved node: status and its check, history, kubeadm's configuration, and taking our things off again.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::bench::{Bench, ETCD, LONG, STORE};

/// Where the last install's programs are called.
const INSTALLED: &str = "/usr/local/bin/quantykube";

#[test]
fn a_moved_node_tells_how_it_is() {
    let bench = Bench::set_up();
    let at_first = check(&bench, &format!("{}/run", bench.folder));
    assert_eq!(at_first.0, 0, "{}", at_first.1);
    assert!(
        at_first.1.starts_with("OK - the data lives in etcd | on_store=0 "),
        "{}",
        at_first.1
    );

    let installed = bench.run(&["install", "store"]).expect(0);
    bench.node.api_ready(LONG);
    let status = bench.status();
    assert_eq!(
        (&status["data"], &status["manifest"]["side"]),
        (&json!("store"), &json!("store"))
    );
    assert_eq!((&status["openMove"], &status["guard"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&status["etcd"]["url"], &status["store"]["url"]),
        (&json!(ETCD), &json!(STORE))
    );
    let etcd = status["etcd"]["revision"].as_i64().unwrap();
    assert!(etcd <= bench.revision(ETCD) && etcd > 0);
    assert!(status["store"]["revision"].as_i64().unwrap() >= etcd);
    let certificates = status["certificates"].as_array().unwrap();
    assert_eq!(certificates.len(), 2);
    for certificate in certificates {
        let days = certificate["days"].as_i64().unwrap();
        assert!(
            (360..=366).contains(&days),
            "kubeadm's are good for a year: {certificate}"
        );
    }
    let (code, line) = check(&bench, INSTALLED);
    assert_eq!(code, 0, "{line}");
    assert!(line.starts_with("OK - the data lives in store since 20"), "{line}");
    for data in [
        "on_store=1",
        "etcd_revision=",
        "store_revision=",
        "open_moves=0",
        "certificate_days=36",
    ] {
        assert!(line.contains(data), "{line}");
    }
    println!("check: {line}");
    let history = bench.installed(&["history"]).expect(0).last()["journals"].clone();
    assert_eq!(
        (&history[0]["id"], &history[0]["what"]),
        (&json!("1-store"), &json!("install store"))
    );
    assert_eq!(
        (&history[0]["status"], &history[0]["trouble"]),
        (&json!("done"), &json!([]))
    );

    unit_is_hardened(&bench);
    kubeadm_keeps_the_store(&bench, installed.last()["kubeadmConfig"].as_str().unwrap());

    // A store that does not run is critical, and so is a manifest that names etcd.
    bench.node.run(&["systemctl", "stop", "quantykube-store"]);
    let (code, line) = check(&bench, INSTALLED);
    assert_eq!(code, 2, "{line}");
    assert!(
        line.starts_with("CRITICAL - ") && line.contains("quantykube-store does not run"),
        "{line}"
    );
    bench.node.run(&["systemctl", "start", "quantykube-store"]);
    bench.node.api_ready(LONG);

    // Nothing is taken from under a cluster.
    let refused = bench.installed(&["remove"]).expect(4);
    assert_eq!(refused.last()["name"], "on-store");
    assert!(bench.is_active("quantykube-store"));

    // What undo will cost, and that of others it will overwrite.
    bench.node.etcdctl(&["put", "/registry/stranger/a", "theirs"]);
    let planned = bench.installed(&["plan", "store", "--undo"]).expect(0);
    let outlook = &planned.last()["outlook"];
    assert_eq!(
        outlook["writtenByOthers"],
        json!({"count": 1, "first": ["/registry/stranger/a"]})
    );
    assert!(
        outlook["storeRevision"].as_i64().unwrap() >= etcd && outlook["seconds"].is_number(),
        "{outlook}"
    );
    let undone = bench.installed(&["undo", "store"]).expect(0);
    bench.node.api_ready(LONG);
    let told = undone
        .events
        .iter()
        .any(|event| event.to_string().contains("/registry/stranger/a"));
    assert!(told, "undo names what it overwrites: {:#?}", undone.events);
    kubeadm_names_etcd_again(&bench, undone.last()["kubeadmConfig"].as_str().unwrap());
    let (code, line) = check(&bench, INSTALLED);
    assert_eq!(code, 0, "{line}");
    assert!(line.starts_with("OK - the data lives in etcd since 20"), "{line}");

    remove(&bench);
}

/// `status --check`: its exit code, and its one line.
fn check(bench: &Bench, program: &str) -> (i32, String) {
    let output = bench.node.exec(&[program, "status", "--check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (output.status.code().unwrap(), text.trim().to_owned())
}

fn sh(bench: &Bench, line: &str) -> Output {
    bench.node.exec(&["sh", "-c", line])
}

/// The unit as systemd itself judges it, and that it runs with it.
fn unit_is_hardened(bench: &Bench) {
    let show = bench.node.run(&[
        "systemctl",
        "show",
        "quantykube-store",
        "--property=OOMScoreAdjust,Before,NoNewPrivileges,ProtectSystem",
    ]);
    assert!(show.contains("OOMScoreAdjust=-997"), "{show}");
    let before = show.lines().find(|line| line.starts_with("Before=")).unwrap();
    assert!(before.contains("kubelet.service"), "{before}");
    assert!(
        show.contains("NoNewPrivileges=yes") && show.contains("ProtectSystem=strict"),
        "{show}"
    );
    let judged = bench
        .node
        .run(&["systemd-analyze", "--no-pager", "security", "quantykube-store"]);
    let exposure = judged
        .lines()
        .find(|line| line.contains("Overall exposure level"))
        .unwrap();
    println!("{}", exposure.trim());
    let number: f64 = exposure
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{exposure}"));
    assert!(number <= 2.0, "{exposure}");
}

/// What kubeadm would write as the API server's manifest, from the configuration that it keeps in the cluster.
fn rendered(bench: &Bench) -> String {
    let config = bench.kubectl(&[
        "-n",
        "kube-system",
        "get",
        "configmap",
        "kubeadm-config",
        "-o",
        "jsonpath={.data.ClusterConfiguration}",
    ]);
    std::fs::write(bench.node.path("/root/from-cluster.yaml"), config).unwrap();
    bench.node.run(&["sh", "-c", "rm -rf /etc/kubernetes/tmp"]);
    let render = "kubeadm init phase control-plane apiserver --config /root/from-cluster.yaml --dry-run";
    let output = sh(bench, render);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = bench
        .node
        .run(&["sh", "-c", "cat /etc/kubernetes/tmp/*/kube-apiserver.yaml"]);
    assert!(written.contains("kind: Pod"), "{written}");
    written
}

/// The lines in an order of their own: kubeadm puts flags that the configuration names behind all others.
fn sorted(manifest: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = manifest.lines().collect();
    lines.sort_unstable();
    lines
}

/// The printed command, exactly as printed, on the real API server; twice is once.
fn kubeadm_keeps_the_store(bench: &Bench, command: &str) {
    // As `kubeadm init` leaves a cluster; this node was made without it.
    bench.kubectl(&[
        "create",
        "clusterrolebinding",
        "kubeadm:cluster-admins",
        "--clusterrole=cluster-admin",
        "--group=kubeadm:cluster-admins",
    ]);
    bench.node.run(&[
        "kubeadm",
        "init",
        "phase",
        "upload-config",
        "kubeadm",
        "--config=/etc/node-kubeadm.yaml",
        "--kubeconfig=/etc/kubernetes/super-admin.conf",
    ]);
    let before = rendered(bench);
    assert!(before.contains(&format!("--etcd-servers={ETCD}")), "{before}");
    for _ in 0..2 {
        let output = sh(bench, command);
        assert!(
            output.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(sorted(&rendered(bench)), sorted(&before.replace(ETCD, STORE)));
    }
    println!("kubeadm renders a manifest that names {STORE} after: {command}");
}

fn kubeadm_names_etcd_again(bench: &Bench, command: &str) {
    let output = sh(bench, command);
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(rendered(bench).contains(&format!("--etcd-servers={ETCD}")));
}

/// Everything of ours goes, and nothing else; journals and store files only with `--purge`.
fn remove(bench: &Bench) {
    let units = || {
        bench.node.run(&[
            "sh",
            "-c",
            "find /etc/systemd /usr/local /etc/quantykube -name '*quantykube*' | sort",
        ])
    };
    let there = units();
    assert!(
        there.contains("quantykube-store.service") && there.contains("/usr/local/bin/quantykube"),
        "{there}"
    );
    let listed = bench.installed(&["remove", "--dry-run"]).expect(0).last()["items"].clone();
    assert!(listed.as_array().unwrap().len() >= 5, "{listed}");
    assert_eq!(units(), there, "a dry run changes nothing");
    let removed = bench.installed(&["remove"]).expect(0);
    assert_eq!(removed.last()["items"], listed);
    let left = sh(
        bench,
        "find / -xdev -name '*quantykube*' -not -path '/root/*' -not -path '/proc/*' 2>/dev/null",
    );
    let left = String::from_utf8(left.stdout).unwrap();
    let left: Vec<&str> = left.lines().filter(|path| !path.starts_with("/var/log/")).collect();
    assert_eq!(left, ["/var/lib/quantykube"], "only journals and store files stay");
    assert!(bench.node.path("/var/lib/quantykube/install/1-store/log").exists());
    assert_eq!(bench.run(&["remove"]).expect(0).last()["changed"], false);
    bench.run(&["remove", "--purge"]).expect(0);
    assert!(!Path::new(&bench.node.path("/var/lib/quantykube")).exists());
    let objects = bench.objects();
    assert!(objects.objects.len() > 100, "the cluster serves on");
}
