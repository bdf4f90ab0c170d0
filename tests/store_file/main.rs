//! The verbs of quantykube-store on a file that no server holds: what they print, what they refuse, what they find.

mod format;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use quantykube_store_file::{Identity, Options, Store};
use quantykube_tests::{Server, free_port, peer, program};
use serde_json::Value;
use tempfile::TempDir;

fn options() -> Options {
    Options {
        quota: 0,
        identity: Identity {
            cluster_id: 0xabc,
            member_id: 0xdef,
            raft_term: 3,
        },
    }
}

/// Runs a verb.
fn run(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(program("quantykube-store"));
    let output = command.args(arguments).arg(file).output();
    output.expect("the program runs")
}

/// The last event of a verb that ends with this code.
fn event(arguments: &[&str], file: &Path, code: i32) -> Value {
    let output = run(&[arguments, &["--json"]].concat(), file);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    let last = text.lines().last().expect("an event");
    serde_json::from_str(last).expect("JSON")
}

fn put(store: &mut Store, key: &str, value: impl Into<Bytes>) {
    let value = value.into();
    let mut transaction = store.begin(1, key.len() + value.len(), false).expect("room");
    transaction.put(Bytes::copy_from_slice(key.as_bytes()), value, 0);
    transaction.commit().expect("a commit");
}

fn made(fill: impl FnOnce(&mut Store)) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.qks");
    let mut store = Store::create(&path, options()).expect("a store");
    fill(&mut store);
    store.close().expect("closed");
    (folder, path)
}

fn place_of(bytes: &[u8], what: &[u8]) -> usize {
    let mut places = (0..bytes.len() - what.len()).filter(|at| bytes[*at..].starts_with(what));
    places.next().expect("it is in the file")
}

#[test]
fn check_names_the_place_of_every_damage() {
    let (_folder, path) = made(|store| {
        for n in 0..200 {
            put(store, &format!("key{n:03}"), format!("<value {n:03}>").repeat(20));
        }
    });
    let sound = event(&["check"], &path, 0);
    assert_eq!(
        (&sound["sound"], &sound["keys"], &sound["revision"]),
        (&Value::from(true), &Value::from(200), &Value::from(201))
    );
    let bytes = std::fs::read(&path).expect("readable");
    let places: Vec<usize> = ["<value 050>", "<value 120>"]
        .map(|value| place_of(&bytes, value.as_bytes()))
        .into();
    let mut damaged = bytes.clone();
    damaged[places[0]] ^= 1;
    std::fs::write(&path, &damaged).expect("writable");
    let output = run(&["check"], &path);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    let refused = event(&["check"], &path, 3);
    let offset: u64 = {
        let text = refused.to_string();
        let digits = text.split("offset ").nth(1).expect("an offset is told");
        let end = digits.find(|c: char| !c.is_ascii_digit()).expect("text follows");
        digits[..end].parse().expect("a number")
    };
    let place = places[0] as u64;
    assert!(
        offset <= place && place - offset < 1000,
        "byte {place} was flipped, {offset} is named"
    );
    assert_eq!(
        std::fs::read(&path).expect("readable"),
        damaged,
        "a check changes nothing"
    );
}

#[test]
fn a_file_that_is_served_or_is_none_is_refused_by_every_verb() {
    let (folder, path) = made(|store| put(store, "k", "v"));
    let noise = folder.path().join("noise");
    std::fs::write(&noise, vec![7; 100_000]).expect("writable");
    let held = Store::open(&path, options()).expect("it opens");
    let verbs: [&[&str]; 6] = [
        &["check"],
        &["status"],
        &["hashkv"],
        &["dump"],
        &["compact"],
        &["extract", "-n", "x"],
    ];
    for verb in verbs {
        let output = run(verb, &path);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{verb:?}: {told}");
        assert!(told.contains("in use by another process"), "{verb:?}: {told}");
        assert_eq!(
            run(verb, &folder.path().join("none")).status.code(),
            Some(4),
            "{verb:?}"
        );
        assert_eq!(run(verb, &noise).status.code(), Some(3), "{verb:?}");
    }
    drop(held);
    assert_eq!(run(&["check"], &path).status.code(), Some(0));
}

#[test]
fn dump_holds_every_version_that_is_kept() {
    let (_folder, path) = made(|store| {
        for round in 0..3u8 {
            for key in ["a", "b", "c"] {
                put(store, key, vec![round, 0xff]);
            }
        }
        let mut transaction = store.begin(1, 10, false).expect("room");
        assert!(transaction.delete(b"b"));
        transaction.commit().expect("a commit");
        store.compact(6).expect("compacted");
    });
    let output = run(&["dump"], &path);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&lines[0]["type"], &lines[0]["clusterId"]),
        (&"store".into(), &"abc".into())
    );
    let told: Vec<(&str, i64, &str)> = lines[1..]
        .iter()
        .map(|line| {
            let (kind, key) = (
                line["type"].as_str().expect("a type"),
                line["key"].as_str().expect("a key"),
            );
            (key, line["revision"].as_i64().expect("a revision"), kind)
        })
        .collect();
    // At the compacted revision 6: c of revision 4, a of 5, b of 6; then the changes up to 11.
    let expected = [
        ("a", 5, "put"),
        ("b", 6, "put"),
        ("c", 4, "put"),
        ("c", 7, "put"),
        ("a", 8, "put"),
        ("b", 9, "put"),
        ("c", 10, "put"),
        ("b", 11, "delete"),
    ];
    assert_eq!(told, expected);
    let value = base64::engine::general_purpose::STANDARD.encode([2, 0xff]);
    assert_eq!(lines[5]["value"], value.as_str());
    let live = run(&["dump", "--live", "--keys-only"], &path);
    let live = String::from_utf8(live.stdout).expect("UTF-8");
    assert_eq!(live.lines().count(), 3, "the store, a and c: {live}");
    assert!(live.contains("\"valueBytes\":2") && !live.contains("\"value\""));
}

#[test]
fn compact_gives_space_back_and_is_done_once() {
    let (_folder, path) = made(|store| {
        for n in 0..120u8 {
            put(store, "k", vec![n; 1 << 20]);
        }
    });
    let before = std::fs::read(&path).map(|bytes| bytes.len()).expect("readable");
    let first = event(&["compact"], &path, 0);
    assert_eq!(
        (&first["changed"], &first["compactRevision"]),
        (&true.into(), &121.into())
    );
    let (was, is) = (first["allocatedBytesBefore"].as_u64(), first["allocatedBytes"].as_u64());
    println!("{before} bytes long, {was:?} on disk before, {is:?} after");
    assert!(
        was.expect("a number") > 120 << 20 && is.expect("a number") < 60 << 20,
        "{first}"
    );
    let checked = event(&["check"], &path, 0);
    assert_eq!((&checked["sound"], &checked["keys"]), (&true.into(), &1.into()));
    assert_eq!(event(&["compact"], &path, 0)["changed"], false);
    assert_eq!(run(&["compact", "--rev", "500"], &path).status.code(), Some(2));
    let store = Store::open(&path, options()).expect("it opens");
    let version = store.get(b"k", 121).expect("the last version is there");
    assert_eq!(&store.value(&version).expect("readable")[..10], &[119; 10]);
}

#[test]
fn extract_prints_json_whole_and_names_the_rest() {
    // apps/v1 Deployment "web" of namespace shop, as an API server stores it: an envelope with the object in it.
    let metadata = b"\x0a\x03web\x1a\x04shop\x2a\x03u-1";
    let object = [&[0x0a, metadata.len() as u8], &metadata[..]].concat();
    let kind = b"\x0a\x07apps/v1\x12\x0aDeployment";
    let envelope = [
        &b"k8s\0\x0a"[..],
        &[kind.len() as u8],
        kind,
        &[0x12, object.len() as u8],
        &object,
    ]
    .concat();
    let (_folder, path) = made(|store| {
        put(store, "/registry/deployments/shop/web", envelope);
        put(
            store,
            "/registry/example.com/crons/shop/nightly",
            r#"{"apiVersion":"example.com/v1","kind":"Cron","spec":{"enabled":"on","at":"0123"}}"#,
        );
        put(
            store,
            "/registry/secrets/shop/token",
            &b"k8s:enc:aescbc:v1:key1:\x01\x02"[..],
        );
        put(store, "/registry/secrets/other/token", "{}");
    });
    let output = run(&["extract", "-n", "shop", "-o", "yaml"], &path);
    let (text, told) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{told}");
    for line in [
        "# /registry/deployments/shop/web: Deployment of apps/v1, stored as protobuf: not printed whole",
        "# name web, uid u-1",
        "# /registry/example.com/crons/shop/nightly",
        "  \"apiVersion\": \"example.com/v1\"",
        "    \"at\": \"0123\"",
        "    \"enabled\": \"on\"",
        "# /registry/secrets/shop/token: encrypted with aescbc:v1:key1",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    assert!(!text.contains("other"), "{text}");
    assert!(
        told.contains("1 of 3 objects are not printed whole") && told.contains("1 of 3 objects are encrypted"),
        "{told}"
    );
    assert_eq!(run(&["extract", "-n", "none"], &path).status.code(), Some(4));
}

/// The same writes to etcd and to the store: all ways to ask for the hash give the same.
#[test]
fn the_hash_of_a_closed_file_is_etcds() {
    let folder = tempfile::tempdir().expect("a folder");
    let (etcd, etcd_port) = Server::etcd(&peer("etcd"), folder.path(), &["--unsafe-no-fsync"]);
    let port = free_port();
    let path = folder.path().join("store.qks");
    let mut command = Command::new(program("quantykube-store"));
    command
        .arg("--data")
        .arg(&path)
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    let mut store = Server::start(&mut command, &folder.path().join("store.log"));
    store.wait_for_port(port, Duration::from_secs(30));
    let etcdctl = |port: u16, arguments: &[&str]| -> String {
        let mut command = Command::new(peer("etcdctl"));
        command.arg(format!("--endpoints=127.0.0.1:{port}")).args(arguments);
        let output = command.output().expect("etcdctl runs");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let mut hashes = Vec::new();
    for port in [etcd_port, port] {
        for n in 0..6 {
            etcdctl(port, &["put", &format!("k{}", n % 3), &n.to_string()]);
        }
        etcdctl(port, &["del", "k1"]);
        etcdctl(port, &["compaction", "5", "--physical"]);
        etcdctl(port, &["put", "k2", "last"]);
        let json = etcdctl(port, &["endpoint", "hashkv", "-w", "json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        hashes.push(json[0]["HashKV"]["hash"].as_u64().expect("a hash"));
    }
    drop((etcd, store));
    let closed = event(&["hashkv"], &path, 0);
    hashes.push(closed["hash"].as_u64().expect("a hash"));
    let output = Command::new(peer("etcdutl"))
        .args(["hashkv", "-w", "json"])
        .arg(folder.path().join("etcd/member/snap/db"))
        .output()
        .expect("etcdutl runs");
    let of_etcd: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    hashes.push(of_etcd["hash"].as_u64().expect("a hash"));
    assert!(
        hashes.iter().all(|hash| *hash == hashes[0]),
        "etcd, store, closed store, closed etcd: {hashes:?}"
    );
    assert_eq!(
        (&closed["hashRevision"], &closed["compactRevision"]),
        (&9.into(), &5.into())
    );
    let earlier = event(&["hashkv", "--rev", "6"], &path, 0);
    assert_ne!(earlier["hash"], closed["hash"]);
    assert_eq!(
        run(&["hashkv", "--rev", "3"], &path).status.code(),
        Some(4),
        "compacted"
    );
    assert_eq!(
        run(&["hashkv", "--rev", "99"], &path).status.code(),
        Some(4),
        "not there yet"
    );
}
