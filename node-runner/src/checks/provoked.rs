//! Faults around the control plane, each provoked on a node in a temporary tree; a good deal of them again on a node with
//! systemd in tests/moves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::fs::IFlags;

use crate::checks::tests::{expect, no, system};
use crate::checks::{self, Check, Verdict};
use crate::facts;
use crate::testing::{API_SERVER, ETCD, KUBELET_PID, MOUNTS, TestNode, fake_process, put};

/// The check of that name.
fn check(facts: &facts::Store, name: &str) -> Check {
    let (all, _) = checks::store::judge(facts, facts.node.architecture);
    let found = all.into_iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("there is no check {name}"))
}

/// Asserts that nothing says no, and that the named check alone warns, with these words. Slow disks may warn, too.
#[track_caller]
fn warns(node: &TestNode, name: &str, words: &str) {
    expect(node, words, &[]);
    let facts = facts::store(&node.root, &system());
    let (all, ready) = checks::store::judge(&facts, facts.node.architecture);
    assert!(ready.is_some(), "a warning does not keep a move from beginning");
    let warned: Vec<_> = all
        .iter()
        .filter(|check| check.result == Verdict::Warn && check.name != "sync-time")
        .collect();
    let [one] = warned.as_slice() else {
        panic!("{warned:#?}");
    };
    assert_eq!(one.name, name);
    assert!(one.found.contains(words), "{one:?}");
    println!("{name} warns: {}", one.found);
}

/// Asserts that the named check alone says no, with these words.
#[track_caller]
fn refuses(node: &TestNode, name: &'static str, words: &str) {
    expect(node, words, &[name]);
    let check = check(&facts::store(&node.root, &system()), name);
    assert_eq!(check.result, Verdict::Fail);
    assert!(check.found.contains(words), "{check:?}");
}

const STATIC_PODS: &str = "/etc/kubernetes/manifests";

#[test]
fn files_of_the_kubelets_folder() {
    let node = TestNode::start();
    let root = &node.root;
    let api_server = fs::read_to_string(root.at(API_SERVER)).unwrap();
    let etcd = fs::read_to_string(root.at(ETCD)).unwrap();
    let with = |name: &str, text: &str, look: &dyn Fn()| {
        let path = format!("{STATIC_PODS}/{name}");
        put(root, &path, text);
        look();
        fs::remove_file(root.at(path)).unwrap();
    };
    for copy in [
        "kube-apiserver.yaml.bak",
        "kube-apiserver.yaml~",
        "kube-apiserver",
        "a.json",
    ] {
        with(copy, &api_server, &|| {
            refuses(&node, "static-pods", "the API server's pod a second time");
        });
    }
    with("etcd.yaml.old", &etcd, &|| {
        refuses(&node, "static-pods", "etcd's pod a second time")
    });
    let renamed = api_server.replace("name: kube-apiserver\n", "name: second\n");
    assert_ne!(renamed, api_server);
    with("second.yaml", &renamed, &|| {
        refuses(&node, "static-pods", "a second API server on the same etcd");
    });
    // A tenant's API server on another etcd, a hidden copy and another pod are nothing of ours.
    let tenant = renamed.replace(&node.etcd_url, "https://192.0.2.1:2379");
    for (name, text) in [("tenant.yaml", &tenant), (".kube-apiserver.yaml", &api_server)] {
        with(name, text, &|| expect(&node, name, &[]));
    }
    with(
        "proxy.yaml",
        "metadata: {name: proxy}\nspec: {containers: [{image: x}]}\n",
        &|| expect(&node, "another pod", &[]),
    );
    with("note.txt", "kept for later", &|| {
        warns(&node, "static-pods", "note.txt (it is no pod)")
    });

    // A manifest that cannot be taken away.
    let place = root.at(API_SERVER);
    fs::rename(&place, root.at("/elsewhere.yaml")).unwrap();
    std::os::unix::fs::symlink(root.at("/elsewhere.yaml"), &place).unwrap();
    refuses(&node, "manifest", "is a symbolic link");
    fs::remove_file(&place).unwrap();
    fs::rename(root.at("/elsewhere.yaml"), &place).unwrap();
    for (path, attribute, words) in [
        (API_SERVER, IFlags::IMMUTABLE, "kube-apiserver.yaml is immutable"),
        (API_SERVER, IFlags::APPEND, "kube-apiserver.yaml is append-only"),
        (STATIC_PODS, IFlags::IMMUTABLE, "manifests is immutable"),
    ] {
        with_attribute(&root.at(path), attribute, &|| refuses(&node, "manifest", words));
    }
    fs::create_dir_all(root.at("/usr/local/bin")).unwrap();
    with_attribute(&root.at("/usr/local/bin"), IFlags::IMMUTABLE, &|| {
        refuses(&node, "writable", "/usr/local/bin is immutable");
    });

    // A manifest that cannot be read, even by root.
    fs::rename(&place, root.at("/elsewhere.yaml")).unwrap();
    fs::create_dir(&place).unwrap();
    let unread = check(&facts::store(root, &system()), "kubeadm");
    assert!(unread.found.contains("cannot read"), "{unread:?}");
    fs::remove_dir(&place).unwrap();
    fs::rename(root.at("/elsewhere.yaml"), &place).unwrap();
    expect(&node, "all as before", &[]);

    // kubeadm at work, stopped halfway, or stopped between two programs.
    fake_process(root, 900, &["kubeadm", "upgrade", "apply", "v1.37.2"], 1);
    refuses(&node, "kubeadm-work", "kubeadm upgrade apply");
    fake_process(root, 900, &["kubeadm", "token", "list"], 1);
    expect(&node, "a kubeadm that writes nothing", &[]);
    fs::remove_dir_all(root.at("/proc/900")).unwrap();
    put(root, "/etc/kubernetes/tmp/kubeadm-backup-manifests-1/x", "");
    expect(&node, "a backup that an upgrade has left", &[]);
    put(root, "/etc/kubernetes/tmp/kubeadm-upgraded-manifests1/x", "");
    warns(&node, "kubeadm-work", "kubeadm-upgraded-manifests1 is left");
    fs::remove_dir_all(root.at("/etc/kubernetes/tmp")).unwrap();
    let scheduler = "metadata: {name: kube-scheduler, namespace: kube-system}\nspec:\n  containers:\n  - image: r/kube-scheduler:v1.35.4\n    command: [kube-scheduler]\n";
    with("kube-scheduler.yaml", scheduler, &|| {
        warns(&node, "kubeadm-work", "kube-scheduler v1.35.4")
    });
}

/// Sets an attribute of the file system for the time of a look. As root on a disk's own file system it always goes.
fn with_attribute(path: &Path, attribute: IFlags, look: &dyn Fn()) {
    let file = fs::File::open(path).unwrap();
    let Ok(before) = rustix::fs::ioctl_getflags(&file) else {
        println!("SKIPPED files_of_the_kubelets_folder: the file system of temporary folders has no attributes");
        return;
    };
    if rustix::fs::ioctl_setflags(&file, before | attribute).is_err() {
        println!("SKIPPED files_of_the_kubelets_folder: attributes may not be set here");
        return;
    }
    let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
    // First back, or the folder could never be removed.
    rustix::fs::ioctl_setflags(&file, before).unwrap();
    if let Err(panic) = looked {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn file_systems_memory_and_schedules() {
    let node = TestNode::start();
    let root = &node.root;
    fs::create_dir_all(root.at("/usr/local/lib")).unwrap();
    let data_on = |line: &str| put(root, "/proc/self/mountinfo", &format!("{MOUNTS}{line}\n"));
    for (kind, words) in [
        ("tmpfs", "in memory"),
        ("ramfs", "in memory"),
        ("nfs4", "no local disk"),
        ("cifs", "no local disk"),
        ("fuse.sshfs", "no local disk"),
        ("vfat", "no owners and modes"),
    ] {
        data_on(&format!("30 22 0:30 / /var/lib rw - {kind} x rw"));
        refuses(&node, "file-system", words);
    }
    data_on("30 22 0:30 / /var/lib rw - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c,volatile");
    refuses(&node, "file-system", "mounted volatile");
    data_on("30 22 0:30 / /var/lib rw - overlay overlay rw,lowerdir=/a:/b");
    refuses(&node, "file-system", "no upper folder");
    data_on("30 22 0:30 / /var/lib rw - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c");
    warns(&node, "file-system", "as durable as its upper folder /b");
    data_on("30 22 0:30 / /var/lib rw - nilfs2 /dev/sdb rw");
    warns(&node, "file-system", "never tried");
    data_on("30 22 0:30 / /var/lib rw - xfs /dev/sdb rw");
    expect(&node, "xfs", &[]);
    data_on("30 22 0:30 / /var/lib ro - xfs /dev/sdb rw");
    refuses(&node, "writable", "mounted read-only");
    data_on("30 22 0:30 / /usr rw - erofs /dev/sdb ro");
    refuses(&node, "writable", "/usr/local/lib/quantykube is on /usr");
    data_on("30 22 0:30 / /usr/local rw,noexec - ext4 /dev/sdb rw");
    refuses(&node, "writable", "noexec");
    data_on("");
    fs::rename(root.at("/proc/self/mountinfo"), root.at("/aside")).unwrap();
    expect(&node, "mounts that cannot be read", &["file-system", "writable"]);
    fs::rename(root.at("/aside"), root.at("/proc/self/mountinfo")).unwrap();

    put(root, "/proc/meminfo", "MemAvailable: 65535 kB\n");
    refuses(&node, "memory", "64.0 MiB of memory available");
    put(root, "/proc/meminfo", "MemAvailable: 4194304 kB\n");

    put(root, "/sys/fs/selinux/enforce", "1");
    refuses(&node, "selinux", "enforcing");
    put(root, "/sys/fs/selinux/enforce", "0");
    warns(&node, "selinux", "permissive");
    fs::remove_file(root.at("/sys/fs/selinux/enforce")).unwrap();

    put(
        root,
        "/etc/cron.d/save-etcd",
        "0 3 * * * root etcdctl snapshot save /backup/x\n",
    );
    warns(&node, "schedules", "/etc/cron.d/save-etcd");
    fs::remove_file(root.at("/etc/cron.d/save-etcd")).unwrap();

    // A kubelet that was restarted just now may not have seen the API server yet (kubernetes 43292 and its kin).
    put(root, "/proc/uptime", "5000.00 1.0\n");
    fake_process(root, KUBELET_PID, &["/usr/bin/kubelet"], 499_000);
    warns(&node, "kubelet-since", "10 s ago");
    fake_process(root, KUBELET_PID, &["/usr/bin/kubelet"], 50);
    expect(&node, "all as before", &[]);

    // Values that no tree gives at will.
    let good = facts::store(root, &system());
    let changed = |change: &dyn Fn(&mut facts::Store)| {
        let mut facts = good.clone();
        change(&mut facts);
        assert!(no(&facts).is_empty());
        facts
    };
    let slow = changed(&|facts| facts.around.sync = Ok(vec![Duration::from_millis(11); 24]));
    assert_eq!(check(&slow, "sync-time").result, Verdict::Warn);
    let one_slow = |at: usize, of: usize| {
        let mut times = vec![Duration::from_millis(1); of];
        times[at] = Duration::from_millis(20);
        times.sort();
        check(&changed(&|facts| facts.around.sync = Ok(times.clone())), "sync-time").result
    };
    assert_eq!(one_slow(0, 24), Verdict::Warn, "the slowest of 24 is the 99th of 100");
    assert_eq!(one_slow(0, 200), Verdict::Pass);
    let unmeasured = changed(&|facts| facts.around.sync = Err("no such thing".into()));
    assert_eq!(check(&unmeasured, "sync-time").result, Verdict::Pass);
    // Certificates that end soon; those of kubeadm live for a year, its authority for ten.
    let ends = good.server_good.as_ref().unwrap().ends;
    let day = 86_400;
    let at = |now: u64| changed(&|facts| facts.around.now = now);
    for name in ["etcd-server", "etcd-client"] {
        assert_eq!(check(&good, name).result, Verdict::Pass);
        let soon = check(&at(ends - 29 * day), name);
        assert_eq!(soon.result, Verdict::Warn, "{soon:?}");
        assert!(soon.hint.unwrap().contains("kubeadm certs renew"), "{name}");
    }
    let authority = changed(&|facts| facts.server_good.as_mut().unwrap().ca_ends = facts.around.now + 29 * day);
    let soon = check(&authority, "etcd-server");
    assert!(
        soon.result == Verdict::Warn && soon.found.contains("its authority"),
        "{soon:?}"
    );
}

#[test]
fn users_and_keys_of_others_in_a_real_etcd() {
    let node = TestNode::start();
    let etcdctl = |args: &[&str]| {
        let output = node.etcdctl(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    // Whose keys they are, with counts (Calico, Cilium and flannel share etcds).
    for key in [
        "/calico/a",
        "/calico/b",
        "cilium/state",
        "/coreos.com/network/config",
        "stray",
    ] {
        etcdctl(&["put", key, "x"]);
    }
    refuses(
        &node,
        "foreign-keys",
        "5 keys are not the API server's: 2 of Calico, 1 of Cilium, 1 of flannel, 1 of others",
    );
    for key in ["/calico/a", "/calico/b", "cilium/state", "/coreos.com/network/config"] {
        etcdctl(&["del", key]);
    }
    refuses(
        &node,
        "foreign-keys",
        "1 of programs that are not known; the first are stray",
    );
    etcdctl(&["del", "stray"]);
    expect(&node, "without keys of others", &[]);

    // Users, though etcd is not told to ask for them.
    for name in ["root", "kube-apiserver-etcd-client"] {
        etcdctl(&["user", "add", &format!("{name}:secret")]);
        etcdctl(&["user", "grant-role", name, "root"]);
    }
    expect(&node, "users that nobody asks for", &[]);
    // The API server's certificate names a user that may do everything: all else would pass.
    etcdctl(&["auth", "enable"]);
    refuses(&node, "etcd-users", "authentication switched on");
    // One that may do nothing.
    etcdctl(&["user", "revoke-role", "kube-apiserver-etcd-client", "root"]);
    let nothing = no(&facts::store(&node.root, &system()));
    assert!(
        nothing.contains("etcd-users") && nothing.contains("etcd"),
        "{nothing:?}"
    );
    etcdctl(&["--user=root:secret", "auth", "disable"]);
    expect(&node, "switched off again", &[]);

    // A learner is a second member: the cluster is being enlarged.
    etcdctl(&["member", "add", "node2", "--learner", "--peer-urls=http://127.0.0.1:1"]);
    refuses(&node, "members", "(not started yet) (learner)");
}

#[test]
fn every_check_is_in_the_table() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/checks.md")).unwrap();
    let rows = |title: &str| -> Vec<&str> {
        let (_, section) = text
            .split_once(title)
            .unwrap_or_else(|| panic!("docs/checks.md has no {title:?}"));
        let section = section.split("\n## ").next().unwrap();
        section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect()
    };
    let node = TestNode::start();
    let facts = facts::store(&node.root, &system());
    let (all, _) = checks::store::judge(&facts, facts.node.architecture);
    // The bundle is verified before the node is looked at.
    let names: Vec<_> = ["bundle"]
        .into_iter()
        .chain(all.iter().map(|check| check.name))
        .collect();
    assert_eq!(rows("## Before `install store`"), names);
    let facts = facts::undo_store(&node.root, &system(), None);
    let (all, _) = checks::undo_store::judge(&facts);
    let names: Vec<_> = all.iter().map(|check| check.name).collect();
    assert_eq!(rows("## Before `undo store`"), names);
    // And what `--json` says of each.
    let said = serde_json::to_value(Check::warn("a", "b", "c")).unwrap();
    assert_eq!(
        said,
        serde_json::json!({"name": "a", "state": "warning", "found": "b", "hint": "c"})
    );
    for (verdict, state) in [
        (Verdict::Pass, "ok"),
        (Verdict::Fail, "no"),
        (Verdict::Unknown, "unknown"),
    ] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), state);
    }
}
