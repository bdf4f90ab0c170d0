//! That the node is what the other tests take it for.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use quantykube_test_node::{Node, Options};

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
const AWAY: &str = "/root/kube-apiserver.yaml";
const LONG: Duration = Duration::from_secs(180);

/// Prints how long something took and returns its result.
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    println!("{:7.2} s  {what}", begun.elapsed().as_secs_f64());
    result
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "not within {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The UID of the pod a process belongs to, from its control group as the node sees it.
fn pod_of(node: &Node, pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("0::"))
        .unwrap_or_else(|| panic!("no version 2 in {text}"));
    let uid = line
        .split("-pod")
        .nth(1)
        .unwrap_or_else(|| panic!("no pod in {line}"))
        .split(".slice")
        .next()
        .unwrap();
    let slice = format!("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
    node.run(&["test", "-d", &slice]);
    uid.to_string()
}

fn slice_exists(node: &Node, uid: &str) -> bool {
    let slice = format!("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
    node.exec(&["test", "-d", &slice]).status.success()
}

fn only(pids: Vec<u32>) -> u32 {
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

#[test]
fn a_control_plane_node_lives() {
    let mut node = timed("a new node boots", || Node::boot(Options::default()));
    timed("etcd and the API server are ready", || node.api_ready(LONG));

    // They are the real ones, as kubeadm's manifests describe them.
    let version = node.kubectl(&["version", "--output=yaml"]);
    assert_eq!(version.matches("gitVersion: v1.36.3").count(), 2, "{version}");
    let status = node.etcdctl(&["endpoint", "status", "--write-out=json"]);
    assert!(status.contains("\"version\":\"3.6.14\""), "{status}");
    let api = only(node.processes("kube-apiserver"));
    let etcd = only(node.processes("etcd"));
    let command = fs::read(format!("/proc/{api}/cmdline")).unwrap();
    let manifest = fs::read_to_string(node.path(MANIFEST)).unwrap();
    for flag in command.split(|byte| *byte == 0).filter(|flag| !flag.is_empty()) {
        let flag = String::from_utf8_lossy(flag);
        assert!(
            manifest.contains(&format!("- {flag}\n")),
            "{flag} is not in the manifest"
        );
    }
    assert_ne!(pod_of(&node, api), pod_of(&node, etcd));

    let config = [
        "create",
        "configmap",
        "smoke",
        "--namespace=default",
        "--from-literal=a=b",
    ];
    node.kubectl(&config);
    let version = |node: &Node| {
        node.kubectl(&[
            "get",
            "configmap",
            "smoke",
            "--namespace=default",
            "--output=jsonpath={.metadata.resourceVersion}",
        ])
    };
    let written_at = version(&node);

    // Out of the folder: the process ends, the pod's slice goes, etcd stays.
    let uid = pod_of(&node, api);
    timed("the manifest leaves, the API server ends", || {
        fs::rename(node.path(MANIFEST), node.path(AWAY)).unwrap();
        wait_until("the API server ends", || node.processes("kube-apiserver").is_empty());
        wait_until("its slice goes", || !slice_exists(&node, &uid));
    });
    assert_eq!(only(node.processes("etcd")), etcd);

    // Back: the same bytes are the same pod.
    timed("the manifest returns, the API server is ready", || {
        fs::rename(node.path(AWAY), node.path(MANIFEST)).unwrap();
        node.api_ready(LONG);
    });
    let again = only(node.processes("kube-apiserver"));
    assert_ne!(again, api);
    assert_eq!(pod_of(&node, again), uid);
    assert_eq!(version(&node), written_at);

    // Out and back at once: it still ends first and then starts anew.
    timed(
        "the manifest leaves and returns at once, the API server is ready",
        || {
            fs::rename(node.path(MANIFEST), node.path(AWAY)).unwrap();
            fs::rename(node.path(AWAY), node.path(MANIFEST)).unwrap();
            wait_until("another API server", || {
                node.processes("kube-apiserver").iter().any(|pid| *pid != again)
            });
            assert_eq!(node.processes("kube-apiserver").len(), 1, "the earlier one has ended");
            node.api_ready(LONG);
        },
    );

    // Another flag is another pod.
    timed("the manifest changes, the API server is ready", || {
        let before = only(node.processes("kube-apiserver"));
        let changed = manifest.replace(
            "- --allow-privileged=true\n",
            "- --allow-privileged=true\n    - --v=1\n",
        );
        fs::write(node.path("/etc/kubernetes/manifests/.new"), changed).unwrap();
        fs::rename(node.path("/etc/kubernetes/manifests/.new"), node.path(MANIFEST)).unwrap();
        wait_until("another API server", || {
            node.processes("kube-apiserver").iter().any(|pid| *pid != before)
        });
        node.api_ready(LONG);
    });
    assert_ne!(pod_of(&node, only(node.processes("kube-apiserver"))), uid);

    // A process that dies starts again.
    let api = only(node.processes("kube-apiserver"));
    timed("the API server is killed, the next one is ready", || {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(api as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        wait_until("another API server", || {
            node.processes("kube-apiserver").iter().any(|pid| *pid != api)
        });
        node.api_ready(LONG);
    });

    // Pods outlive the kubelet, and it knows them again.
    let api = only(node.processes("kube-apiserver"));
    timed("the kubelet restarts and finds them", || {
        node.run(&["systemctl", "restart", "kubelet"]);
        wait_until("the kubelet finds them", || {
            node.run(&["journalctl", "--unit=kubelet", "--no-pager"])
                .matches(" found as process")
                .count()
                == 2
        });
    });
    assert_eq!(only(node.processes("kube-apiserver")), api);

    // A kubelet that starts while no API server answers deletes nothing.
    timed(
        "a kubelet without an API server deletes nothing, then all is ready",
        || {
            node.run(&["systemctl", "stop", "kubelet"]);
            let frozen = rustix::process::Pid::from_raw(api as i32).unwrap();
            rustix::process::kill_process(frozen, rustix::process::Signal::KILL).unwrap();
            wait_until("the API server ends", || node.processes("kube-apiserver").is_empty());
            fs::rename(node.path(MANIFEST), node.path(AWAY)).unwrap();
            node.run(&["systemctl", "start", "kubelet"]);
            let etcd_manifest = node.path("/etc/kubernetes/manifests/etcd.yaml");
            wait_until("the kubelet finds etcd", || {
                node.run(&["journalctl", "--unit=kubelet", "--no-pager"])
                    .matches("etcd-node1_kube-system found")
                    .count()
                    == 2
            });
            fs::rename(&etcd_manifest, node.path("/root/etcd.yaml")).unwrap();
            wait_until("the kubelet says that it skips", || {
                node.run(&["journalctl", "--unit=kubelet", "--no-pager"])
                    .contains("skipping delete of etcd-node1_kube-system")
            });
            assert_eq!(only(node.processes("etcd")), etcd);
            fs::rename(node.path("/root/etcd.yaml"), &etcd_manifest).unwrap();
            fs::rename(node.path(AWAY), node.path(MANIFEST)).unwrap();
            node.api_ready(LONG);
        },
    );

    // The kill of a node, and its return.
    let id = node.run(&["cat", "/etc/machine-id"]);
    timed("the node is killed", || node.kill());
    assert!(!node.is_on());
    assert_eq!(timed("it boots again", || node.start()), "running");
    timed("etcd and the API server are ready", || node.api_ready(LONG));
    assert_eq!(version(&node), written_at);
    assert_eq!(node.run(&["cat", "/etc/machine-id"]), id);

    assert_eq!(timed("the node reboots in order", || node.reboot(LONG)), "running");
    timed("etcd and the API server are ready", || node.api_ready(LONG));
    assert_eq!(version(&node), written_at);
}

#[test]
fn a_bare_node_runs_programs() {
    let options = Options {
        kubeadm: false,
        kubelet: false,
        ..Options::default()
    };
    let node = timed("a bare node boots", || Node::boot(options));
    assert_eq!(node.run(&["hostname"]), "node1\n");
    assert_eq!(node.exec(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert!(!Path::new(&node.path("/etc/kubernetes/manifests")).exists());

    // No network but lo, on which its address is.
    let links = node.run(&["ip", "-oneline", "link"]);
    assert_eq!(links.lines().count(), 1, "{links}");
    assert!(node.run(&["ip", "route"]).contains("default via 10.0.0.10"));

    // A program that goes on can be killed, and is gone then.
    let mut spawned = node.spawn(&["sh", "-c", "echo begun; sleep 1000 & wait"]);
    wait_until("it runs", || node.processes("sleep").len() == 1);
    assert!(!spawned.kill().success());
    let spawned = node.spawn(&["sh", "-c", "echo out; echo err >&2; exit 3"]);
    let output = spawned.output();
    assert_eq!(
        (output.status.code(), &*output.stdout, &*output.stderr),
        (Some(3), &b"out\n"[..], &b"err\n"[..])
    );

    // A test's own client reaches what listens in the node, and only from there.
    let listener = node.in_network(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    assert!(node.in_network(|| TcpStream::connect(address)).is_ok());
    assert!(TcpStream::connect(address).is_err());

    let here = std::env::current_exe().unwrap();
    node.copy_in(&here, "/opt/some/where/program");
    let sizes = node.run(&["stat", "--format=%s %u", "/opt/some/where/program"]);
    assert_eq!(sizes, format!("{} 0\n", fs::metadata(&here).unwrap().len()));
}

#[test]
fn nobody_outlives_a_power_cut() {
    let options = Options {
        kubeadm: false,
        kubelet: false,
        ..Options::default()
    };
    let mut node = Node::boot(options);
    // Each waits for the end of another process, and writes it down at once.
    let watchers = "for i in $(seq 100); do (sleep 1000 & wait; echo $i >>/root/outlived) & done; wait";
    let _running = node.spawn(&["bash", "-c", watchers]);
    wait_until("all of them wait", || node.processes("sleep").len() == 100);
    // They would: one of them sees the end of what it waits for.
    node.run(&["sh", "-c", "kill -9 $(pgrep -o -x sleep)"]);
    wait_until("one has written", || node.path("/root/outlived").exists());
    std::fs::remove_file(node.path("/root/outlived")).unwrap();
    node.kill();
    assert!(
        !node.path("/root/outlived").exists(),
        "{:?}",
        std::fs::read(node.path("/root/outlived"))
    );
}

#[test]
fn a_node_of_ipv6_has_its_etcd_there() {
    let address: IpAddr = "fd00::10".parse().unwrap();
    let node = timed("a node of IPv6 boots", || {
        Node::boot(Options {
            address,
            ..Options::default()
        })
    });
    timed("etcd and the API server are ready", || node.api_ready(LONG));
    let manifest = fs::read_to_string(node.path(MANIFEST)).unwrap();
    assert!(manifest.contains("--etcd-servers=https://[::1]:2379"), "{manifest}");
    assert!(node.etcdctl(&["endpoint", "health"]).contains("is healthy"));
}

#[test]
fn nothing_is_left_of_a_node() {
    let options = Options {
        kubeadm: false,
        kubelet: false,
        ..Options::default()
    };
    let node = Node::boot(options);
    let (leader, root) = (node.leader(), node.root());
    let children: BTreeSet<u32> = node.processes("systemd-journald").into_iter().collect();
    assert_eq!(children.len(), 1);
    drop(node);
    for pid in children.into_iter().chain([leader]) {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left");
    }
    assert!(!root.exists());
}
