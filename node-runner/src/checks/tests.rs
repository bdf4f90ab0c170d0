//! Every check of `install store`, provoked on a node in a temporary tree with a real etcd behind it.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::Ordering;

use quantykube_journal::System;
use quantykube_journal::system::sim::Sim;

use crate::checks::{self, Verdict};
use crate::facts;
use crate::moves::places;
use crate::testing::{API_SERVER, API_SERVER_PID, ETCD, TestNode, fake_process, put, replace};

/// A system of which only the units are asked: the kubelet runs.
pub(super) fn system() -> Sim {
    let mut sim = Sim::new("0123456789abcdef0123456789abcdef");
    sim.file("/etc/systemd/system/kubelet.service", "[Service]\n", 0o644);
    sim.set_active("kubelet.service", true).unwrap();
    sim
}

/// The names of the checks that say no.
pub(super) fn no(facts: &facts::Store) -> BTreeSet<&'static str> {
    let (all, ready) = checks::store::judge(facts, facts.node.architecture);
    let no: BTreeSet<_> = all
        .iter()
        .filter(|check| !check.result.allows())
        .map(|check| check.name)
        .collect();
    assert_eq!(
        ready.is_some(),
        no.is_empty(),
        "a plan is possible exactly when every check says yes"
    );
    for check in &all {
        let hints = matches!(check.result, Verdict::Fail | Verdict::Warn);
        assert_eq!(
            check.hint.is_some(),
            hints,
            "{check:?}: a hint goes with what is not good"
        );
    }
    no
}

/// Asserts that exactly these checks say no now, and that looking changed nothing.
#[track_caller]
pub(super) fn expect(node: &TestNode, what: &str, names: &[&'static str]) {
    let before = node.snapshot();
    let facts = facts::store(&node.root, &system());
    let found = no(&facts);
    assert!(before == node.snapshot(), "{what}: looking changed the node");
    println!("{what}: {}", found.iter().copied().collect::<Vec<_>>().join(" "));
    assert_eq!(found, names.iter().copied().collect(), "{what}: {facts:#?}");
}

#[test]
fn each_check_says_no_to_its_own_fault() {
    let node = TestNode::start();
    expect(&node, "a good node", &[]);

    let edited = |path: &str, pairs: &[(&str, &str)], names: &[&'static str]| {
        let whole = fs::read(node.root.at(path)).unwrap();
        replace(&node.root, path, pairs);
        expect(&node, pairs[0].1, names);
        fs::write(node.root.at(path), whole).unwrap();
    };
    let gone = |path: &str, names: &[&'static str]| {
        let (at, aside) = (node.root.at(path), node.root.at("/aside"));
        fs::rename(&at, &aside).unwrap();
        expect(&node, &format!("without {path}"), names);
        fs::rename(&aside, &at).unwrap();
    };
    const WITHOUT_API: &[&str] = &[
        "kubeadm",
        "etcd-servers",
        "etcd-local",
        "etcd-client",
        "etcd-server",
        "etcd-users",
        "etcd",
        "alarms",
        "members",
        "foreign-keys",
        "port",
        "space",
        "api-server-process",
        "api-server",
        "memory",
    ];

    // Not a kubeadm control-plane node.
    gone(
        "/var/lib/kubelet/config.yaml",
        &[WITHOUT_API, &["static-pods"]].concat(),
    );
    gone(API_SERVER, WITHOUT_API);
    gone("/etc/machine-id", &["identity"]);

    // An etcd that is not kubeadm's.
    gone(ETCD, &["etcd-local", "etcd-server"]);
    edited(ETCD, &[(&node.etcd_url, "https://127.0.0.9:2379")], &["etcd-local"]);

    // More than one etcd named; the process is another one's then.
    let url = node.etcd_url.as_str();
    let two = format!("--etcd-servers={url},https://10.0.0.11:2379");
    edited(
        API_SERVER,
        &[(&format!("--etcd-servers={url}"), &two)],
        &[
            "etcd-servers",
            "etcd-local",
            "etcd-server",
            "etcd-users",
            "etcd",
            "alarms",
            "members",
            "foreign-keys",
            "port",
            "space",
            "memory",
            "api-server-process",
        ],
    );
    let overrides = format!("    - --etcd-servers-overrides=/events#{url}\n    - --etcd-servers={url}");
    edited(
        API_SERVER,
        &[(&format!("    - --etcd-servers={url}"), &overrides)],
        &[
            "etcd-servers",
            "etcd-local",
            "etcd-server",
            "etcd-users",
            "etcd",
            "alarms",
            "members",
            "foreign-keys",
            "port",
            "space",
            "memory",
        ],
    );

    // Certificates.
    const WITHOUT_ETCD: &[&str] = &[
        "etcd-users",
        "etcd",
        "alarms",
        "members",
        "foreign-keys",
        "space",
        "memory",
    ];
    let without_client = [WITHOUT_ETCD, &["etcd-client"]].concat();
    edited(
        API_SERVER,
        &[(
            "etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
            "etcd-certfile=/etc/kubernetes/pki/front-proxy-client.crt",
        )],
        &without_client,
    );
    gone("/etc/kubernetes/pki/apiserver-etcd-client.key", &without_client);
    // etcd reads its own pair anew at each handshake.
    gone(
        "/etc/kubernetes/pki/etcd/server.key",
        &[WITHOUT_ETCD, &["etcd-server"]].concat(),
    );
    edited(
        ETCD,
        &[("pki/etcd/server.crt", "pki/apiserver-etcd-client.crt")],
        &["etcd-server"],
    );

    // The API server: not ready, not running, twice.
    node.api_ready.store(false, Ordering::SeqCst);
    expect(&node, "not ready", &["api-server"]);
    node.api_ready.store(true, Ordering::SeqCst);
    gone(&format!("/proc/{API_SERVER_PID}"), &["api-server-process"]);
    let argv = facts::manifest::Manifest::read(&node.root, API_SERVER.as_ref())
        .unwrap()
        .unwrap()
        .argv;
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    fake_process(&node.root, 77, &argv, 5);
    expect(&node, "two API servers", &["api-server-process"]);
    fs::remove_dir_all(node.root.at("/proc/77")).unwrap();

    // A store file and a taken port.
    put(&node.root, places::STORE_FILE, "data");
    expect(&node, "a store file", &["store-file"]);
    fs::remove_file(node.root.at(places::STORE_FILE)).unwrap();
    put(&node.root, "/etc/kubernetes/quantykube/kube-apiserver.yaml", "x");
    expect(&node, "a manifest that waits already", &["waiting"]);
    fs::remove_file(node.root.at("/etc/kubernetes/quantykube/kube-apiserver.yaml")).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", places::STORE_PORT)).unwrap();
    expect(&node, "a taken port", &["port"]);
    drop(listener);

    // Keys of others; ours and the API server's own mark are none.
    for key in [
        "compact_rev_key",
        "quantykube/filler",
        "/registry/a",
        "/calico/a",
        "coreos.com/network",
    ] {
        assert!(node.etcdctl(&["put", key, "x"]).status.success());
        let names: &[&str] = if key.starts_with("/calico") || key.starts_with("coreos") {
            &["foreign-keys"]
        } else {
            &[]
        };
        expect(&node, key, names);
    }
    assert!(node.etcdctl(&["del", "/calico/a"]).status.success());
    assert!(node.etcdctl(&["del", "coreos.com/network"]).status.success());
    expect(&node, "without keys of others", &[]);

    // A second member, even if it only learns.
    let add = ["member", "add", "node2", "--learner", "--peer-urls=http://127.0.0.1:1"];
    let output = node.etcdctl(&add);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    expect(&node, "two members", &["members"]);
}

#[test]
fn facts_of_the_machine_are_judged() {
    let node = TestNode::start();
    let good = facts::store(&node.root, &system());
    assert_eq!(no(&good), BTreeSet::new());
    let changed = |change: &dyn Fn(&mut facts::Store)| {
        let mut facts = good.clone();
        change(&mut facts);
        no(&facts).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(changed(&|facts| facts.node.uid = 1000), ["root"]);
    assert_eq!(changed(&|facts| facts.node.name = None), ["identity"]);
    assert_eq!(
        changed(&|facts| facts.node.open_move = Ok(Some("1-store".into()))),
        ["open-move"]
    );
    assert_eq!(
        changed(&|facts| facts.node.open_move = Err("damaged".into())),
        ["open-move"]
    );
    assert_eq!(changed(&|facts| facts.node.kubelet_active = Ok(false)), ["kubelet"]);
    assert_eq!(
        changed(&|facts| facts.node.kubelet_active = Err("no bus".into())),
        ["kubelet"]
    );
    assert_eq!(
        changed(&|facts| facts.node.architecture = "riscv64"),
        Vec::<&str>::new()
    );
    let (all, ready) = checks::store::judge(&good, "riscv64");
    assert!(ready.is_none());
    assert!(
        all.iter()
            .any(|check| check.name == "architecture" && check.result == Verdict::Fail)
    );
    let in_use = good.etcd.as_ref().unwrap().status.db_size_in_use;
    assert!(in_use > 0);
    let needed = 2 * in_use + checks::RESERVE_BYTES;
    assert_eq!(changed(&|facts| facts.free_bytes = Some(needed - 1)), ["space"]);
    assert_eq!(changed(&|facts| facts.free_bytes = Some(needed)), Vec::<&str>::new());
    assert_eq!(changed(&|facts| facts.free_bytes = None), ["space"]);
    let version = |text: &str| {
        changed(&|facts| {
            let status = &mut facts.etcd.as_mut().unwrap().status;
            status.version = quantykube_migrate::Version::parse(text);
            status.version_text = text.to_owned();
        })
    };
    assert_eq!(version("3.3.27"), ["etcd"]);
    assert_eq!(version("3.8.0"), ["etcd"]);
    assert_eq!(version("nonsense"), ["etcd"]);
    assert_eq!(version("3.5.21"), Vec::<&str>::new());
    let alarm = |name: &str| changed(&|facts| facts.etcd.as_mut().unwrap().status.alarms = vec![name.to_owned()]);
    assert_eq!(alarm("NOSPACE"), Vec::<&str>::new());
    assert_eq!(alarm("CORRUPT"), ["alarms"]);
    let setting = |name: &'static str, value: &str| {
        changed(&|facts| {
            let etcd = facts.local_etcd.as_mut().unwrap().as_mut().unwrap();
            etcd.settings.push((name, value.to_owned()));
        })
    };
    assert_eq!(setting("max-request-bytes", "4194304"), Vec::<&str>::new());
    assert_eq!(setting("max-request-bytes", "10485760"), ["etcd-settings"]);
    assert_eq!(setting("quota-backend-bytes", "8589934592"), Vec::<&str>::new());
    assert_eq!(setting("quota-backend-bytes", "8GiB"), ["etcd-settings"]);
}

#[test]
fn each_check_of_undo_says_no_to_its_own_fault() {
    let node = TestNode::start();
    let url = node.etcd_url.clone();
    let store_url = "https://127.0.0.1:2479";
    let cluster = facts::store(&node.root, &system()).etcd.unwrap().status.cluster_id;
    replace(&node.root, API_SERVER, &[(&url, store_url)]);
    let installed = crate::moves::undo_store::Installed {
        id: "1-store".into(),
        version: "0.1.0".into(),
        binding: quantykube_journal::Binding {
            machine_id: "0123456789abcdef0123456789abcdef".into(),
            node: "node1".into(),
            cluster: format!("{cluster:x}"),
        },
        manifest: API_SERVER.into(),
        waiting: "/etc/kubernetes/quantykube/kube-apiserver.yaml".into(),
        etcd: url.clone(),
        store: store_url.into(),
    };
    put(&node.root, places::STORE_FILE, "data");
    let facts = |change: &dyn Fn(&mut facts::UndoStore)| {
        let mut facts = facts::undo_store(&node.root, &system(), Some(installed.clone()));
        change(&mut facts);
        let (all, ready) = checks::undo_store::judge(&facts);
        let no: Vec<_> = all
            .iter()
            .filter(|check| !check.result.allows())
            .map(|check| check.name)
            .collect();
        assert_eq!(ready.is_some(), no.is_empty());
        no
    };
    assert_eq!(facts(&|_| {}), Vec::<&str>::new());
    // The API server need not answer, nor run.
    node.api_ready.store(false, Ordering::SeqCst);
    assert_eq!(facts(&|_| {}), Vec::<&str>::new());
    fs::rename(node.root.at(format!("/proc/{API_SERVER_PID}")), node.root.at("/gone")).unwrap();
    assert_eq!(facts(&|_| {}), Vec::<&str>::new());

    assert_eq!(facts(&|facts| facts.node.uid = 1000), ["root"]);
    assert_eq!(facts(&|facts| facts.node.kubelet_active = Ok(false)), ["kubelet"]);
    assert_eq!(
        facts(&|facts| facts.node.machine_id = Some("other".into())),
        ["machine"]
    );
    assert_eq!(
        facts(&|facts| facts.etcd.as_mut().unwrap().status.cluster_id += 1),
        ["cluster"]
    );
    assert_eq!(
        facts(&|facts| facts.etcd.as_mut().unwrap().status.alarms = vec!["NOSPACE".into()]),
        ["alarms"]
    );
    put(&node.root, "/etc/kubernetes/quantykube/kube-apiserver.yaml", "x");
    assert_eq!(facts(&|_| {}), ["waiting"]);
    fs::remove_file(node.root.at("/etc/kubernetes/quantykube/kube-apiserver.yaml")).unwrap();
    fs::remove_file(node.root.at(places::STORE_FILE)).unwrap();
    assert_eq!(facts(&|_| {}), ["store-file"]);
    put(&node.root, places::STORE_FILE, "data");

    // The manifest names etcd again, as after a kubeadm upgrade, or something else.
    replace(&node.root, API_SERVER, &[(store_url, &url)]);
    assert_eq!(facts(&|_| {}), ["etcd-servers"]);
    replace(&node.root, API_SERVER, &[(&url, "https://127.0.0.1:9")]);
    assert_eq!(facts(&|_| {}), ["etcd-servers"]);
    fs::remove_file(node.root.at(API_SERVER)).unwrap();
    let no = facts(&|_| {});
    assert!(
        no.contains(&"etcd-servers") && no.contains(&"api-server-process"),
        "{no:?}"
    );
}
