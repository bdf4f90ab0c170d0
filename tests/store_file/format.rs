//! The format of the store file, number 1: files that were written when it was frozen, and what they answered then.
//! docs/store-file.md says what they hold. Every later version reads them.
//!
//! They were made by `QUANTYKUBE_FIXTURE=write cargo test -p quantykube-tests --test store_file format`, which writes what
//! is missing in `tests/store_file/format-1` and never what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use quantykube_store_file::{
    CrashKind, Frozen, Identity, Import, KeyRange, Lease, Options, RangeEnd, Record, SimDisk, Store, Tuning,
};
use quantykube_tests::places::{program, root};
use quantykube_tests::{Server, free_port, peer};
use serde_json::{Value, json};
use tempfile::TempDir;

const IDENTITY: Identity = Identity {
    cluster_id: 0x1111_2222_3333_4444,
    member_id: 0x5555_6666_7777_8888,
    raft_term: 5,
};

/// A version: value, create revision, version and lease.
type Made = (Vec<u8>, i64, i64, i64);

/// What the operations make: the state of every key after each revision, the leases that are left, the note.
#[derive(Default)]
struct Model {
    head: i64,
    compacted: i64,
    /// For each key its versions by revision; none for a delete.
    keys: BTreeMap<Vec<u8>, Vec<(i64, Option<Made>)>>,
}

impl Model {
    fn at(&self, key: &[u8], revision: i64) -> Option<&Made> {
        let versions = self.keys.get(key)?;
        versions.iter().rev().find(|(at, _)| *at <= revision)?.1.as_ref()
    }

    fn put(&mut self, key: &[u8], value: &[u8], lease: i64) {
        let revision = self.head + 1;
        let (create, version) = self
            .at(key, revision)
            .map_or((revision, 1), |(_, create, version, _)| (*create, version + 1));
        let made = Some((value.to_vec(), create, version, lease));
        self.keys.entry(key.to_vec()).or_default().push((revision, made));
    }

    fn delete(&mut self, key: &[u8]) {
        let revision = self.head + 1;
        self.keys.entry(key.to_vec()).or_default().push((revision, None));
    }
}

fn lease(id: i64) -> Lease {
    Lease {
        id,
        granted_ttl: 3600 + id,
        // Far away: a restored or served copy of it must not end.
        deadline_ms: 4_000_000_000_000 + id,
    }
}

/// Keys of every kind: plain ones, one that is no UTF-8, a long one.
fn key(n: i64) -> Vec<u8> {
    match n % 40 {
        0 => vec![0xff, 0, 0xfe],
        1 => [b"/long/".to_vec(), vec![b'k'; 300]].concat(),
        n => format!("/registry/things/{n:02}").into_bytes(),
    }
}

fn value(n: i64) -> Vec<u8> {
    let len = match n % 50 {
        0 => 0,
        49 => 3000,
        n => n + 10,
    };
    (0..len).map(|at| b'a' + ((n + at / 7) % 26) as u8).collect()
}

/// What the frozen file was made by: puts, deletes, transactions of several changes, leases granted, attached and ended, a
/// note, two compactions, checkpoints and copies on the way.
fn operations(store: &mut Store) -> Model {
    let mut model = Model {
        head: 1,
        ..Model::default()
    };
    store.put_lease(lease(7)).expect("a lease");
    store.put_lease(lease(8)).expect("a lease");
    store.put_note("fixture", b"a note").expect("a note");
    for n in 0..400 {
        let mut transaction = store.begin(3, 8000, false).expect("room");
        if n == 200 {
            transaction.end_lease_and_keys(8, &mut |key, _| model.delete(&key));
        }
        let lease = if n % 11 == 0 {
            7
        } else if n % 13 == 0 && n < 200 {
            8
        } else {
            0
        };
        if n % 5 == 4 && transaction.delete(&key(n * 3)) {
            model.delete(&key(n * 3));
        }
        let own = format!("/own/{}", n % 3).into_bytes();
        let rest = if n % 5 == 4 { vec![own] } else { vec![key(n * 7)] };
        for key in rest {
            transaction.put(key.clone().into(), value(n).into(), lease);
            model.put(&key, &value(n), lease);
        }
        model.head = transaction.revision();
        transaction.commit().expect("a commit");
        if n == 150 || n == 300 {
            model.compacted = model.head - 30;
            store.compact(model.compacted).expect("a compaction");
        }
        store.sync().expect("a sync");
        // Nothing further from here on: the file ends in frames that no checkpoint knows.
        while n < 380 && store.maintain(Duration::from_millis(5)).expect("upkeep") {
            store.sync().expect("a sync");
        }
    }
    model
}

/// A file of small segments with all of that in it.
fn write_file() -> (Vec<u8>, Model) {
    let disk = SimDisk::new();
    let options = Options {
        quota: 0,
        identity: IDENTITY,
    };
    let mut store = Store::create_on(Arc::new(disk.clone()), options, Tuning::small()).expect("a store");
    let model = operations(&mut store);
    assert!(store.stats().checkpoints >= 2, "{:?}", store.stats());
    store.close().expect("closed");
    (disk.after_crash(CrashKind::LoseAll), model)
}

fn imported() -> Vec<Record> {
    let record = |n: i64| Record {
        key: format!("/imported/{n:03}").into(),
        value: value(n).into(),
        create: 100 + n,
        modified: 500 + n / 2,
        version: 1 + n % 9,
        lease: if n % 10 == 0 { 7 } else { 0 },
    };
    (0..100).map(record).collect()
}

/// A file as a migration makes it.
fn write_import() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.qks");
    let mut import = Import::create(&path, IDENTITY, 900).expect("an import");
    for record in imported() {
        import.push(&record).expect("a record");
    }
    import.lease(lease(7)).expect("a lease");
    import.finish().expect("finished").publish().expect("published");
    std::fs::read(&path).expect("readable")
}

/// The snapshot that etcdctl saves of a server on the first file.
fn write_snapshot() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, port) = (folder.path().join("store.qks"), free_port());
    std::fs::write(&path, fixture("written.qks")).expect("a copy");
    let mut command = Command::new(program("quantykube-store"));
    command
        .arg("--data")
        .arg(&path)
        .args(["--listen", &format!("127.0.0.1:{port}")]);
    // Segments of the file are small: it takes no larger write.
    command.args(["--max-request-bytes", "5000"]);
    let mut server = Server::start(&mut command, &folder.path().join("log"));
    server.wait_for_port(port, Duration::from_secs(30));
    let file = folder.path().join("snapshot.db");
    let saved = Command::new(peer("etcdctl"))
        .args(["--endpoints", &format!("http://127.0.0.1:{port}"), "snapshot", "save"])
        .arg(&file)
        .output()
        .expect("etcdctl starts");
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    std::fs::read(&file).expect("readable")
}

fn place(name: &str) -> PathBuf {
    root().join("tests/store_file/format-1").join(name)
}

/// Writes what is missing, when asked to.
fn freeze(name: &str, make: impl FnOnce() -> Vec<u8>) {
    if std::env::var_os("QUANTYKUBE_FIXTURE").is_none_or(|value| value != "write") || place(name).exists() {
        return;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&make()).expect("memory");
    let bytes = encoder.finish().expect("memory");
    assert!(bytes.len() < 64 << 10, "{name} has {} bytes", bytes.len());
    std::fs::write(place(name), bytes).expect("writable");
}

/// A frozen file, unpacked; tests that run at once make the missing ones once.
fn fixture(name: &str) -> Vec<u8> {
    let packed = std::fs::read(place(&format!("{name}.gz"))).expect("a file of tests/store_file/format-1");
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("gzip");
    bytes
}

fn frozen() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        freeze("written.qks.gz", || write_file().0);
        freeze("imported.qks.gz", write_import);
        freeze("snapshot.db.gz", write_snapshot);
        freeze("answers.json.gz", || {
            serde_json::to_vec_pretty(&answers()).expect("JSON")
        });
    });
}

fn copy(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, fixture(name)).expect("a copy");
    (folder, path)
}

/// Runs a verb; its output in lines, each without what differs from run to run.
fn lines(arguments: &[&str], path: &Path) -> Vec<Value> {
    let output = Command::new(program("quantykube-store"))
        .args(arguments)
        .arg(path)
        .output();
    let output = output.expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .map(|mut line: Value| {
            if let Some(object) = line.as_object_mut() {
                object.remove("path");
                object.remove("time");
            }
            line
        })
        .collect()
}

fn last(arguments: &[&str], path: &Path) -> Value {
    lines(arguments, path).pop().expect("an event")
}

/// What `restore` makes of the snapshot. It draws ids of its own, and leases begin anew.
fn restored() -> Vec<Value> {
    let (folder, snapshot) = copy("snapshot.db");
    let to = folder.path().join("restored.qks");
    let _ = last(&["restore", "--json", "--to", to.to_str().expect("UTF-8")], &snapshot);
    let mut lines = lines(&["dump"], &to);
    for line in &mut lines {
        let object = line.as_object_mut().expect("an object");
        for name in ["clusterId", "memberId", "deadlineMs"] {
            object.remove(name);
        }
    }
    lines
}

/// What the verbs say of the frozen files.
fn answers() -> Value {
    let mut answers = json!({ "restored": restored() });
    for name in ["written.qks", "imported.qks"] {
        let (_folder, path) = copy(name);
        answers[name] = json!({
            "check": last(&["check", "--json"], &path),
            "hashkv": last(&["hashkv", "--json"], &path),
            "dump": lines(&["dump"], &path),
        });
        assert_eq!(
            std::fs::read(&path).expect("readable"),
            fixture(name),
            "looking changes nothing"
        );
    }
    answers
}

/// Every key at every revision that is kept, every lease and the note, as the operations made them; and it goes on.
#[test]
fn every_version_of_the_frozen_file_reads_back() {
    frozen();
    let (_, model) = write_file();
    let (_folder, path) = copy("written.qks");
    let options = Options {
        quota: 0,
        identity: IDENTITY,
    };
    let mut store = Store::open(&path, options.clone()).expect("it opens");
    assert_eq!((store.revision(), store.compacted()), (model.head, model.compacted));
    assert!(model.compacted > 200 && model.head > model.compacted + 100);
    let read = store.identity();
    assert_eq!(
        (read.cluster_id, read.member_id, read.raft_term),
        (IDENTITY.cluster_id, IDENTITY.member_id, IDENTITY.raft_term)
    );
    assert_eq!(store.leases(), [lease(7)], "lease 8 has ended");
    assert_eq!(store.note("fixture"), Some(Bytes::from_static(b"a note")));
    let everything = KeyRange {
        start: Bytes::new(),
        end: RangeEnd::Unbounded,
    };
    let mut read = 0;
    for revision in model.compacted..=model.head {
        let mut live = 0;
        for key in model.keys.keys() {
            let expected = model.at(key, revision);
            let found = store.get(key, revision);
            assert_eq!(found.is_some(), expected.is_some(), "{key:?} at {revision}");
            let (Some(found), Some((value, create, version, lease))) = (found, expected) else {
                continue;
            };
            assert_eq!((found.create, found.version, found.lease), (*create, *version, *lease));
            assert_eq!(
                &store.value(&found).expect("a value")[..],
                &value[..],
                "{key:?} at {revision}"
            );
            (live, read) = (live + 1, read + 1);
        }
        assert_eq!(store.count(&everything, revision), live);
    }
    assert!(read > 1000, "{read} versions read");
    let attached: BTreeSet<Vec<u8>> = store.lease_keys(7).iter().map(|key| key.to_vec()).collect();
    let expected = model
        .keys
        .keys()
        .filter(|key| model.at(key, model.head).is_some_and(|(_, _, _, lease)| *lease == 7));
    assert_eq!(attached, expected.cloned().collect());

    let mut transaction = store.begin(1, 10, false).expect("room");
    transaction.put("new".into(), "value".into(), 7);
    transaction.commit().expect("a commit");
    store.close().expect("closed");
    let check = last(&["check", "--json"], &path);
    assert_eq!(
        (&check["sound"], &check["revision"]),
        (&json!(true), &json!(model.head + 1))
    );
}

#[test]
fn every_record_of_the_frozen_import_reads_back() {
    frozen();
    let (_folder, path) = copy("imported.qks");
    let frozen = Frozen::open(&path).expect("it opens");
    assert_eq!((frozen.imported(), frozen.compacted()), (Some(900), 900));
    let mut read = Vec::new();
    let all = frozen.records(&mut |record| {
        read.push(record);
        std::ops::ControlFlow::Continue(())
    });
    all.expect("readable");
    assert_eq!(read, imported());
}

/// `check`, `hashkv` and `dump` of the frozen files, and what `restore` makes of the frozen snapshot, as recorded.
#[test]
fn verbs_give_the_recorded_answers_of_the_frozen_files() {
    frozen();
    let recorded: Value = serde_json::from_slice(&fixture("answers.json")).expect("JSON");
    let found = answers();
    for (part, expected) in recorded.as_object().expect("an object") {
        assert_eq!(found[part], *expected, "{part}");
    }
    assert_eq!(recorded.as_object().map(|parts| parts.len()), Some(3));
    assert!(recorded["restored"].as_array().is_some_and(|lines| lines.len() > 30));
}

/// The same operations give a file of the same format today: number, place and size of everything in the header, and the
/// same content. Whoever changes the format changes its number, and freezes files of the new one beside these.
#[test]
fn the_same_operations_give_a_file_of_the_frozen_format() {
    frozen();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, written) in [("written.qks", write_file().0), ("imported.qks", write_import())] {
        let frozen = fixture(name);
        // Magic, number, segment size; the cluster's identity; the import's head.
        for place in [0..24, 32..64] {
            assert_eq!(written[place.clone()], frozen[place], "{name}");
        }
        assert_eq!(frozen[16..20], [1, 0, 0, 0], "the frozen number");
        let path = folder.path().join(name);
        std::fs::write(&path, &written).expect("writable");
        let (_folder, before) = copy(name);
        assert_eq!(lines(&["dump"], &path), lines(&["dump"], &before), "{name}");
    }
}
