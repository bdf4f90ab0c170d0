//! etcdctl against both: the same commands must print the same, once ids and figures that differ are blanked.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use quantykube_tests::peer;

use crate::servers::{Running, pair};

/// What a command printed and how it ended.
#[derive(Debug, Eq, PartialEq)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs etcdctl 3.6 with an input, its output blanked of what two servers never share.
pub fn etcdctl(server: &Running, args: &[&str], input: &str) -> Outcome {
    run(&peer("etcdctl"), server, args, input)
}

/// Runs a version of etcdctl.
pub fn run(program: &Path, server: &Running, args: &[&str], input: &str) -> Outcome {
    let mut child = Command::new(program)
        .args(args)
        .env("ETCDCTL_ENDPOINTS", server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("etcdctl starts");
    child
        .stdin
        .take()
        .expect("it has an input")
        .write_all(input.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("etcdctl ends");
    let text = |bytes: &[u8]| blank(server, &String::from_utf8_lossy(bytes));
    let err = text(&output.stderr);
    Outcome {
        code: output.status.code(),
        out: text(&output.stdout),
        // The client's own log lines carry times.
        err: err
            .lines()
            .filter(|line| !line.starts_with('{'))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

/// Blanks the port, ids (long runs of digits), times and sizes.
fn blank(server: &Running, text: &str) -> String {
    let text = text
        .replace(&server.url(), "URL")
        .replace(&server.url()["http://".len()..], "URL");
    let mut blanked = String::new();
    let mut word = String::new();
    for letter in text.chars().chain(['\n']) {
        if letter.is_ascii_alphanumeric() || letter == '.' {
            word.push(letter);
            continue;
        }
        let id = word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit());
        let time = word.ends_with("ms") || word.ends_with("us") || word.ends_with('s');
        let time = time && word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        blanked.push_str(if id || time { "_" } else { &word });
        word.clear();
        blanked.push(letter);
    }
    blanked.trim_end().to_owned()
}

/// Commands with their input.
pub const TABLE: &[(&[&str], &str)] = &[
    (&["put", "a", "1"], ""),
    (&["put", "a", "2", "--prev-kv"], ""),
    (&["put", "ab", "-w", "json", "--", "-x-"], ""),
    (&["put", "ac"], "from the input"),
    (&["get", "a"], ""),
    (&["get", "a", "-w", "fields"], ""),
    (&["get", "", "--prefix", "--keys-only"], ""),
    (&["get", "a", "b", "--limit", "1", "-w", "fields"], ""),
    (
        &["get", "", "--from-key", "--sort-by", "MODIFY", "--order", "DESCEND"],
        "",
    ),
    (&["get", "", "--prefix", "--count-only", "-w", "fields"], ""),
    (&["get", "a", "--rev", "2"], ""),
    (&["get", "a", "--rev", "100"], ""),
    (&["get", "a", "--consistency", "s"], ""),
    (&["txn"], "mod(\"a\") > \"1\"\n\nput b 7\nget b\n\nget a\n\n"),
    (&["txn"], "value(\"a\") = \"no\"\n\nput b 8\n\nget a\ndel ab\n\n"),
    (&["txn", "-w", "json"], "ver(\"b\") = \"1\"\n\nput c 1\nput c 2\n\n\n"),
    (&["put", "ab", "--ignore-value", "--prev-kv"], ""),
    (&["put", "ab", "--ignore-lease", "--", "y"], ""),
    (&["put", "new", "--ignore-value"], ""),
    (&["put", "", "x"], ""),
    (&["get", "ab", "--print-value-only"], ""),
    (&["get", "ab", "--hex"], ""),
    (&["get", "ab", "-w", "json"], ""),
    (&["get", "a", "--prefix", "--max-mod-rev", "3", "-w", "fields"], ""),
    (&["get", "a", "--prefix", "--min-create-rev", "4", "-w", "fields"], ""),
    (&["get", "", "--prefix", "--sort-by", "VALUE"], ""),
    (
        &["get", "", "--prefix", "--sort-by", "VERSION", "--order", "DESCEND"],
        "",
    ),
    (&["txn", "-i"], "create(\"none\") = \"0\"\n\nput made 1\n\nget made\n\n"),
    (&["txn"], "ver(\"a\") < \"9\"\n\nget a --prefix\n\n\n"),
    (&["del", "ab", "--prev-kv"], ""),
    (&["del", "a", "--prefix"], ""),
    (&["del", "nothing"], ""),
    (&["del", "b", "c", "--prev-kv", "-w", "fields"], ""),
    (&["del", "zz", "--from-key"], ""),
    (&["compaction", "4"], ""),
    (&["compaction", "4"], ""),
    (&["compaction", "100"], ""),
    (&["compact", "5", "--physical"], ""),
    (&["get", "a", "--rev", "3"], ""),
    (&["lease", "list"], ""),
    (&["lease", "timetolive", "1234"], ""),
    (&["lease", "revoke", "1234"], ""),
    (&["lease", "keep-alive", "--once", "1234"], ""),
    (&["put", "x", "1", "--lease", "1234"], ""),
    (&["alarm", "list"], ""),
    (&["alarm", "disarm"], ""),
    (&["defrag"], ""),
    (&["endpoint", "health"], ""),
    (&["member", "promote", "1234"], ""),
    (&["member", "remove", "1234"], ""),
    (&["auth", "status"], ""),
    (&["downgrade", "validate", "3.4"], ""),
    (&["downgrade", "validate", "3.6"], ""),
    (&["downgrade", "validate", "nonsense"], ""),
    (&["downgrade", "cancel"], ""),
    (&["move-leader", "1234"], ""),
    (&["member", "update", "1234", "--peer-urls", "http://127.0.0.1:1"], ""),
    (&["member", "add", "other", "--peer-urls", "nonsense"], ""),
    (&["version"], ""),
    (&["completion", "bash", "--help"], ""),
    (&["get"], ""),
    (&["no-such-command"], ""),
    (&["check", "datascale", "--help"], ""),
    (&["endpoint", "hashkv"], ""),
];

#[test]
fn the_same_commands_print_the_same() {
    let (etcd, store) = pair(&[]);
    for (args, input) in TABLE {
        let (expected, found) = (etcdctl(&etcd, args, input), etcdctl(&store, args, input));
        assert!(
            found == expected,
            "etcdctl {args:?}\n etcd {expected:?}\nstore {found:?}"
        );
    }
    // These hold figures that no two servers share; what must be in them is checked by name.
    let status = etcdctl(&store, &["endpoint", "status", "-w", "fields"], "");
    assert_eq!(status.code, Some(0), "{status:?}");
    for line in [
        "\"Version\" : \"3.6.14\"",
        "\"StorageVersion\" : \"3.6.0\"",
        "\"IsLearner\" : false",
        "\"Errors\" : []",
    ] {
        assert!(status.out.contains(line), "{line} in {status:?}");
    }
    let members = etcdctl(&store, &["member", "list"], "");
    assert_eq!(members.out, "_, started, default, URL, URL, false");
    let granted = etcdctl(&store, &["lease", "grant", "100"], "");
    assert!(granted.out.starts_with("lease _ granted with TTL(100s)"), "{granted:?}");
    let lock = etcdctl(&store, &["lock", "name", "true"], "");
    assert_eq!(lock.code, Some(0), "{lock:?}");
}

/// Interactive watches: what one prints while the other writes.
#[test]
fn a_watch_prints_the_same() {
    let (etcd, store) = pair(&[]);
    let watch = |server: &Running| {
        for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
            etcdctl(server, &["put", key, value], "");
        }
        etcdctl(server, &["del", "a"], "");
        let mut child = Command::new(peer("etcdctl"))
            .args(["watch", "", "--prefix", "--rev", "1", "--prev-kv"])
            .env("ETCDCTL_ENDPOINTS", server.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("etcdctl starts");
        std::thread::sleep(Duration::from_secs(2));
        let _ = child.kill();
        let output = child.wait_with_output().expect("etcdctl ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (expected, found) = (watch(&etcd), watch(&store));
    assert!(expected.contains("DELETE"), "{expected}");
    assert_eq!(found, expected);
}

/// The quota: full, refused, alarm, and a way out.
#[test]
fn a_full_quota_raises_the_alarm_and_there_is_a_way_out() {
    let store = Running::fresh(crate::servers::Kind::Store, &["--quota-backend-bytes", "33554432"]);
    let value = "v".repeat(1_000_000);
    let mut refused = None;
    for n in 0..100 {
        let outcome = etcdctl(&store, &["put", &format!("k{n}")], &value);
        if outcome.code != Some(0) {
            refused = Some((n, outcome));
            break;
        }
    }
    let (written, outcome) = refused.expect("a quota of 32 MiB ends before 100 MB");
    assert!(
        outcome.err.contains("etcdserver: mvcc: database space exceeded"),
        "{outcome:?}"
    );
    assert!(written > 10, "{written} puts of 1 MB fit into 32 MiB");
    let alarms = etcdctl(&store, &["alarm", "list"], "");
    assert_eq!(alarms.out, "memberID:_ alarm:NOSPACE");
    assert_ne!(
        etcdctl(&store, &["put", "small", "x"], "").code,
        Some(0),
        "every put is refused now"
    );
    assert_eq!(etcdctl(&store, &["get", "k0", "--keys-only"], "").out, "k0");
    assert_eq!(etcdctl(&store, &["del", "k", "--prefix"], "").out, written.to_string());
    let head = (written + 2).to_string();
    assert_eq!(etcdctl(&store, &["compact", &head, "--physical"], "").code, Some(0));
    assert_eq!(
        etcdctl(&store, &["alarm", "disarm"], "").out,
        "memberID:_ alarm:NOSPACE"
    );
    let begun = std::time::Instant::now();
    while etcdctl(&store, &["put", "small", "x"], "").code != Some(0) {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "no space after deleting all and compacting"
        );
        std::thread::sleep(Duration::from_millis(200));
        etcdctl(&store, &["alarm", "disarm"], "");
    }
}
