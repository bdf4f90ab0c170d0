//! More of etcdctl and etcdutl: every command that one member can answer, on both servers.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quantykube_tests::{peer, skipped};
use serde_json::Value;

use crate::commands::{TABLE, etcdctl, run};
use crate::servers::{Kind, Running, pair};

/// Commands of etcdctl that are tried here or elsewhere than in the table, with the test.
const ELSEWHERE: &[(&str, &str)] = &[
    ("check datascale", "writes_and_memory_are_checked"),
    (
        "check perf",
        "not run: it lasts a minute and judges the machine; benchmarks measure the same",
    ),
    ("elect", "lock_and_elect_hold_and_let_go"),
    ("endpoint status", "json_has_the_same_fields"),
    ("lease grant", "leases_print_the_same"),
    ("lock", "lock_and_elect_hold_and_let_go"),
    ("make-mirror", "a_mirror_goes_both_ways"),
    ("member list", "json_has_the_same_fields"),
    ("snapshot save", "snapshots_print_the_same"),
    ("watch", "commands.rs: a_watch_prints_the_same"),
    ("help", "it asks no server"),
    ("completion", "it asks no server"),
    // Wanted differences.
    (
        "auth enable",
        "users_and_roles_are_refused: who may connect is decided by certificates",
    ),
    ("auth disable", "users_and_roles_are_refused"),
    ("downgrade enable", "a_second_member_and_a_downgrade_are_refused"),
];

/// Every command that etcdctl knows is in the table or named above: a new version cannot add one in silence.
#[test]
fn every_command_of_etcdctl_is_tried() {
    let help = Command::new(peer("etcdctl"))
        .arg("--help")
        .output()
        .expect("etcdctl starts");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let known: BTreeSet<String> = help
        .split_once("COMMANDS:")
        .expect("a list of commands")
        .1
        .split_once("OPTIONS:")
        .expect("its end")
        .0
        .lines()
        .filter_map(|line| line.trim().split_once('\t').map(|(name, _)| name.to_owned()))
        .collect();
    assert!(known.len() > 40, "{known:?}");
    for command in &known {
        let words: Vec<&str> = command.split(' ').collect();
        let refused = ["user", "role"].contains(&words[0]);
        let tried = refused
            || TABLE.iter().any(|(args, _)| args.starts_with(&words))
            || ELSEWHERE.iter().any(|(name, _)| name == command);
        assert!(tried, "etcdctl {command} is nowhere tried");
    }
    for (command, _) in ELSEWHERE {
        assert!(known.contains(*command), "etcdctl {command} is not a command");
    }
}

/// The newest etcdctl prints the same on both as well. Where its own etcd answers otherwise than 3.6 does, both do.
#[test]
fn the_newest_etcdctl_prints_the_same_on_both() {
    let newest = quantykube_tests::places::cache().join("peers/bin/etcdctl37");
    if !newest.is_file() {
        skipped(
            "the_newest_etcdctl_prints_the_same_on_both",
            "no etcdctl 3.7 among the peers",
        );
        return;
    }
    let (etcd, store) = pair(&[]);
    for (args, input) in TABLE {
        let (expected, found) = (run(&newest, &etcd, args, input), run(&newest, &store, args, input));
        assert!(
            found == expected,
            "etcdctl 3.7 {args:?}\n etcd {expected:?}\nstore {found:?}"
        );
    }
}

/// Standard output as it is, nothing blanked.
fn printed(program: &Path, server: &Running, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .env("ETCDCTL_ENDPOINTS", server.url())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// A granted lease's id.
fn granted(server: &Running, ttl: &str) -> String {
    let text = printed(&peer("etcdctl"), server, &["lease", "grant", ttl]);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!((words[0], words[2]), ("lease", "granted"), "{text}");
    words[1].to_owned()
}

#[test]
fn leases_print_the_same() {
    let (etcd, store) = pair(&[]);
    let script = |server: &Running| {
        let id = &*granted(server, "100");
        let short = &*granted(server, "1");
        let mut said = Vec::new();
        for args in [
            &["put", "a", "1", "--lease", id][..],
            &["put", "b", "1", "--lease", id],
            &["get", "a", "-w", "fields"],
            &["put", "a", "2", "--ignore-lease"],
            &["lease", "list"],
            &["lease", "keep-alive", id, "--once"],
            &["lease", "keep-alive", id, "--once", "-w", "json"],
            &["lease", "revoke", short],
            &["lease", "revoke", short],
            &["lease", "keep-alive", short, "--once"],
            &["lease", "timetolive", short],
            &["put", "c", "1", "--lease", short],
            &["lease", "revoke", id, "-w", "json"],
            &["get", "", "--prefix"],
            &["lease", "list", "-w", "json"],
            &["lease", "grant", "nonsense"],
            &["lease", "grant", "0"],
            &["lease", "grant", "9000000001"],
        ] {
            said.push((args[..2.min(args.len())].join(" "), etcdctl(server, args, "")));
        }
        // The seconds left depend on when it was asked.
        let other = &*granted(server, "100");
        etcdctl(server, &["put", "k", "1", "--lease", other], "");
        let left = printed(&peer("etcdctl"), server, &["lease", "timetolive", other, "--keys"]);
        let (before, after) = left.split_once("remaining(").expect("what is left");
        assert!(before.ends_with("granted with TTL(100s), "), "{left}");
        assert!(after.ends_with("s), attached keys([k])\n"), "{left}");
        said
    };
    let (expected, found) = (script(&etcd), script(&store));
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(found, expected);
    }
}

/// Replaces everything but the shape: numbers by 0, texts by "" where they are a server's own.
fn shape(value: &mut Value) {
    match value {
        Value::Number(_) => *value = 0.into(),
        Value::String(text) => text.clear(),
        Value::Array(values) => values.iter_mut().for_each(shape),
        Value::Object(fields) => fields.values_mut().for_each(shape),
        _ => {}
    }
}

#[test]
fn json_has_the_same_fields() {
    let (etcd, store) = pair(&[]);
    for server in [&etcd, &store] {
        etcdctl(server, &["put", "a", "1"], "");
    }
    for args in [
        &["endpoint", "status"][..],
        &["endpoint", "health"],
        &["endpoint", "hashkv"],
        &["member", "list"],
        &["alarm", "list"],
        &["lease", "grant", "100"],
        &["auth", "status"],
        &["defrag"],
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["-w", "json"]).collect();
        let of = |server: &Running| {
            let text = printed(&peer("etcdctl"), server, &args);
            // etcdctl defrag prints no JSON, whatever it is asked for.
            serde_json::from_str(&text).map(|mut value: Value| {
                shape(&mut value);
                value
            })
        };
        match (of(&etcd), of(&store)) {
            (Ok(expected), Ok(found)) => assert_eq!(found, expected, "etcdctl {args:?}"),
            (Err(_), Err(_)) => {}
            (expected, found) => panic!("etcdctl {args:?}\n etcd {expected:?}\nstore {found:?}"),
        }
    }
    for format in ["simple", "table", "fields"] {
        for args in [&["endpoint", "status"][..], &["member", "list"]] {
            let args: Vec<&str> = args.iter().copied().chain(["-w", format]).collect();
            let lines = |server: &Running| printed(&peer("etcdctl"), server, &args).lines().count();
            assert_eq!(lines(&store), lines(&etcd), "etcdctl {args:?}");
        }
    }
}

/// Waits for a key to appear or to go.
fn wait_for(server: &Running, key: &str, there: bool) -> String {
    let begun = Instant::now();
    loop {
        let found = printed(&peer("etcdctl"), server, &["get", key, "--prefix"]);
        if found.is_empty() != there {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{key} there: {}", !there);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn lock_and_elect(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    for args in [&["lock", "name", "--ttl", "2"][..], &["elect", "name", "proposal"]] {
        let mut holder = Command::new(peer("etcdctl"))
            .args(args)
            .env("ETCDCTL_ENDPOINTS", running.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("etcdctl starts");
        wait_for(&running, "name/", true);
        // A second one waits; killed, it leaves nothing that stands in the way.
        if args[0] == "lock" {
            let mut second = Command::new(peer("etcdctl"))
                .args(args)
                .env("ETCDCTL_ENDPOINTS", running.url())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .expect("etcdctl starts");
            std::thread::sleep(Duration::from_millis(500));
            assert!(
                second.try_wait().expect("it can be asked").is_none(),
                "{kind:?}: it must wait"
            );
            second.kill().expect("it runs");
            second.wait().expect("it ends");
        }
        let pid = rustix::process::Pid::from_child(&holder);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        holder.wait().expect("it ends");
        wait_for(&running, "name/", false);
    }
}

#[test]
fn lock_and_elect_hold_and_let_go_on_etcd() {
    lock_and_elect(Kind::Etcd);
}

#[test]
fn lock_and_elect_hold_and_let_go_on_the_store() {
    lock_and_elect(Kind::Store);
}

/// From etcd into the store and from the store into etcd.
#[test]
fn a_mirror_goes_both_ways() {
    let (etcd, store) = pair(&[]);
    for (from, to, prefix) in [(&etcd, &store, "/a/"), (&store, &etcd, "/b/")] {
        for number in 0..10 {
            etcdctl(from, &["put", &format!("{prefix}{number}"), "before"], "");
        }
        let mut mirror = Command::new(peer("etcdctl"))
            .args(["make-mirror", "--prefix", prefix, &to.url()])
            .env("ETCDCTL_ENDPOINTS", from.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("etcdctl starts");
        wait_for(to, &format!("{prefix}9"), true);
        etcdctl(from, &["put", &format!("{prefix}9"), "after"], "");
        etcdctl(from, &["del", &format!("{prefix}0")], "");
        etcdctl(from, &["put", &format!("{prefix}x"), "last"], "");
        wait_for(to, &format!("{prefix}x"), true);
        mirror.kill().expect("it runs");
        mirror.wait().expect("it ends");
        let get = ["get", prefix, "--prefix"];
        assert_eq!(etcdctl(to, &get, "").out, etcdctl(from, &get, "").out);
    }
}

/// Saved by etcdctl, looked at by etcdutl: the same figures and the same hash, and etcdutl takes the store's through all
/// it can do with a file.
#[test]
fn snapshots_print_the_same() {
    let (etcd, store) = pair(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let etcdutl = |args: &[&str]| {
        let output = Command::new(peer("etcdutl"))
            .args(args)
            .output()
            .expect("etcdutl starts");
        assert!(output.status.success(), "etcdutl {args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let mut said = Vec::new();
    for server in [&etcd, &store] {
        for number in 0..30 {
            etcdctl(server, &["put", &format!("k{}", number % 7), &format!("{number}")], "");
        }
        etcdctl(server, &["del", "k3"], "");
        etcdctl(server, &["compact", "20", "--physical"], "");
        let file = folder.path().join(format!("{:?}.db", server.kind));
        let file = file.to_str().expect("text");
        let saved = printed(&peer("etcdctl"), server, &["snapshot", "save", file]);
        let saved = saved.replace(file, "FILE");
        // First of all: what only looks at the file writes into it, and then its sum is wrong.
        let data = folder.path().join(format!("{:?}.etcd", server.kind));
        let data = data.to_str().expect("text");
        etcdutl(&["snapshot", "restore", file, "--data-dir", data]);
        let status: Value = serde_json::from_str(&etcdutl(&["snapshot", "status", file, "-w", "json"])).expect("JSON");
        let hash: Value = serde_json::from_str(&etcdutl(&["hashkv", file, "-w", "json"])).expect("JSON");
        let online = printed(&peer("etcdctl"), server, &["endpoint", "hashkv", "-w", "json"]);
        let online: Value = serde_json::from_str(&online).expect("JSON");
        assert_eq!(
            hash["hash"], online[0]["HashKV"]["hash"],
            "{:?}: the file's hash is the server's",
            server.kind
        );
        etcdutl(&["defrag", "--data-dir", data]);
        etcdutl(&["migrate", "--data-dir", data, "--target-version", "3.6"]);
        said.push((
            saved,
            status["revision"].clone(),
            status["totalKey"].clone(),
            status["version"].clone(),
            hash["hash"].clone(),
            hash["compactRevision"].clone(),
        ));
    }
    assert_eq!(said[1], said[0]);
}

/// Who may connect is decided by certificates: no user or role is kept, and none is dropped in silence.
#[test]
fn users_and_roles_are_refused() {
    let store = Running::fresh(Kind::Store, &[]);
    for args in [
        &["auth", "enable"][..],
        &["auth", "disable"],
        &["user", "add", "root", "--new-user-password", "x"],
        &["user", "list"],
        &["user", "get", "root"],
        &["user", "delete", "root"],
        &["user", "grant-role", "root", "root"],
        &["user", "revoke-role", "root", "root"],
        &["role", "add", "r"],
        &["role", "list"],
        &["role", "get", "r"],
        &["role", "delete", "r"],
        &["role", "grant-permission", "r", "read", "k"],
        &["role", "revoke-permission", "r", "k"],
    ] {
        let said = etcdctl(&store, args, "");
        assert_eq!(said.code, Some(1), "etcdctl {args:?}: {said:?}");
        assert!(
            said.err.contains("etcdserver: authentication is not enabled"),
            "etcdctl {args:?}: {said:?}"
        );
    }
}

/// There is one member for ever, and one format: a member that never comes would take the store's majority away.
#[test]
fn a_second_member_and_a_downgrade_are_refused() {
    let store = Running::fresh(Kind::Store, &[]);
    let added = etcdctl(
        &store,
        &["member", "add", "other", "--peer-urls", "http://127.0.0.1:1"],
        "",
    );
    assert_eq!(added.code, Some(1), "{added:?}");
    assert!(
        added
            .err
            .contains("re-configuration failed due to not enough started members"),
        "{added:?}"
    );
    let down = etcdctl(&store, &["downgrade", "enable", "3.5"], "");
    assert_eq!(down.code, Some(1), "{down:?}");
    let listed = etcdctl(&store, &["member", "list"], "");
    assert_eq!(listed.out, "_, started, default, URL, URL, false");
}

/// etcdctl's own check of how much memory 10,000 keys take: both pass it.
#[test]
fn writes_and_memory_are_checked() {
    for kind in [Kind::Etcd, Kind::Store] {
        let running = Running::fresh(kind, &[]);
        let said = etcdctl(&running, &["check", "datascale", "--load", "s"], "");
        assert_eq!(said.code, Some(0), "{kind:?}: {said:?}");
        assert!(said.out.contains("PASS"), "{kind:?}: {said:?}");
    }
}
