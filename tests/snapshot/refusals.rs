//! What `restore` refuses, with which exit code, and what it leaves behind: nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use quantykube_tests::program;

use crate::store::{Store, last_event, restore};
use crate::world::{Etcd, Kind, dump, fill, rng, run, same};

/// Restores and expects an exit code and the name of the error; nothing new may stand in the folder.
fn refused(snapshot: &Path, to: &Path, extra: &[&str], exit: i32, name: &str) {
    let listed = || fs::read_dir(to.parent().unwrap()).unwrap().count();
    let before = listed();
    let output = restore(snapshot, to, extra);
    let event = last_event(&output);
    assert_eq!(output.status.code(), Some(exit), "{name}: {event}");
    assert_eq!((&event["event"], &event["name"]), (&"error".into(), &name.into()));
    assert_eq!(listed(), before, "{name}: something was left behind");
}

#[tokio::test]
async fn damaged_snapshots_are_refused() {
    let mut rng = rng();
    let store = Store::start();
    let mut client = store.client().await;
    fill(&mut client, &mut rng, 40).await;
    let snapshot = store.save();
    let folder = tempfile::tempdir().unwrap();
    let (to, bad) = (folder.path().join("to.qks"), folder.path().join("bad.db"));
    let bytes = fs::read(&snapshot).unwrap();

    refused(&folder.path().join("none"), &to, &[], 4, "unreadable");
    for cut in [0, 100, 4096, bytes.len() / 2, bytes.len() - 512] {
        fs::write(&bad, &bytes[..cut]).unwrap();
        refused(&bad, &to, &[], 3, "damaged");
    }
    fs::write(&bad, &bytes[..bytes.len() - 1]).unwrap();
    refused(&bad, &to, &[], 3, "no-sum");
    for at in [24, 5000, bytes.len() / 3, bytes.len() - 40, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 16;
        fs::write(&bad, &flipped).unwrap();
        refused(&bad, &to, &[], 3, "damaged");
    }
    // Without its sum, and with a page that is none.
    let without = &bytes[..bytes.len() - 32];
    fs::write(&bad, without).unwrap();
    refused(&bad, &to, &[], 3, "no-sum");
    let mut torn = without.to_vec();
    let pages = torn.len() / 4096;
    torn[(pages - 1) * 4096..].fill(0xa5);
    fs::write(&bad, &torn).unwrap();
    refused(&bad, &to, &["--skip-hash-check"], 3, "damaged");
    refused(&snapshot, &to, &["--bump-revision", "9223372036854775807"], 2, "usage");

    fs::write(&bad, without).unwrap();
    fs::write(&to, "a file of somebody's").unwrap();
    refused(&bad, &to, &["--skip-hash-check"], 4, "target-exists");
    assert_eq!(fs::read(&to).unwrap(), b"a file of somebody's");
    fs::remove_file(&to).unwrap();
    assert!(restore(&bad, &to, &["--skip-hash-check"]).status.success());
}

#[tokio::test]
async fn an_etcds_own_database_is_taken_when_asked_for() {
    let mut rng = rng();
    let mut etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 30).await;
    let expected = dump(&mut client).await;
    drop(client);
    etcd.stop();
    let folder = tempfile::tempdir().unwrap();
    refused(&etcd.db(), &folder.path().join("to.qks"), &[], 3, "no-sum");
    let (store, _) = Store::restored(&etcd.db(), &["--skip-hash-check"]);
    same(&dump(&mut store.client().await).await, &expected);
}

#[tokio::test]
async fn users_are_not_dropped_in_silence() {
    let etcd = Etcd::start(Kind::Current);
    etcd.client().await.put("k", "v", None).await.unwrap();
    let endpoint = format!("--endpoints=http://127.0.0.1:{}", etcd.port);
    for words in ["user add root:secret", "user grant-role root root", "auth enable"] {
        run(Kind::Current.etcdctl().arg(&endpoint).args(words.split(' ')));
    }
    let snapshot = etcd.folder.path().join("auth.db");
    run(Kind::Current
        .etcdctl()
        .args([&endpoint, "--user=root:secret", "snapshot", "save"])
        .arg(&snapshot));
    let folder = tempfile::tempdir().unwrap();
    refused(&snapshot, &folder.path().join("to.qks"), &[], 4, "authentication");
}

#[test]
fn a_wrong_command_line_is_a_wrong_command_line() {
    for line in [
        "",
        "restore",
        "restore x",
        "restore x --to y --bump-revision -1",
        "restore x --to y --data z",
    ] {
        let output = Command::new(program("quantykube-store"))
            .args(line.split_whitespace())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "`{line}`");
    }
}
