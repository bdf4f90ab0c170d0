//! The store as its users see it, on real files.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::*;

fn options() -> Options {
    Options {
        quota: 0,
        identity: Identity {
            cluster_id: 1,
            member_id: 2,
            raft_term: 3,
        },
    }
}

fn put(store: &mut Store, key: &'static str, value: &'static str, lease: i64) -> Version {
    let mut transaction = store.begin(1, key.len() + value.len(), false).unwrap();
    let version = transaction.put(Bytes::from(key), Bytes::from(value), lease);
    transaction.commit().unwrap();
    version
}

fn changes(store: &Store, from: i64, to: i64) -> Vec<(i64, String, Option<String>)> {
    let mut seen = Vec::new();
    store
        .changes(from, to, &mut |change| {
            let value = match change.what {
                ChangeKind::Put(version) => Some(text(&store.value(&version).unwrap())),
                ChangeKind::Delete => None,
            };
            seen.push((change.revision.main, text(&change.key), value));
            ControlFlow::Continue(())
        })
        .unwrap();
    seen
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn everything_is_there_after_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let mut store = Store::create(&path, options()).unwrap();
    assert_eq!((store.revision(), store.compacted()), (1, 0));
    assert!(matches!(Store::create(&path, options()), Err(Error::Exists { .. })));
    assert!(matches!(Store::open(&path, options()), Err(Error::Locked { .. })));
    assert!(matches!(Frozen::open(&path), Err(Error::Locked { .. })));
    let lease = Lease {
        id: 7,
        granted_ttl: 60,
        deadline_ms: 1000,
    };
    store.put_lease(lease).unwrap();
    let first = put(&mut store, "a", "1", 0);
    assert_eq!((first.create, first.modified.main, first.version), (2, 2, 1));
    put(&mut store, "b", "2", 7);
    let second = put(&mut store, "a", "3", 7);
    assert_eq!((second.create, second.modified.main, second.version), (2, 4, 2));
    assert_eq!(store.lease_keys(7), ["a", "b"]);
    let mut transaction = store.begin(3, 10, false).unwrap();
    assert!(transaction.delete(b"b"));
    assert!(!transaction.delete(b"b"));
    transaction.put(Bytes::from("c"), Bytes::new(), 0);
    assert_eq!(transaction.store().get(b"b", transaction.revision()), None);
    let seen = transaction.store().get(b"c", transaction.revision()).unwrap();
    assert_eq!(transaction.store().value(&seen).unwrap(), "");
    assert_eq!(transaction.commit().unwrap().revision, 5);
    let empty = store.begin(1, 1, false).unwrap().commit().unwrap();
    assert_eq!(empty.revision, 5);
    store.put_note("alarm", b"x").unwrap();
    store.put_note("gone", b"x").unwrap();
    store.put_note("gone", b"").unwrap();
    store.sync().unwrap();
    assert_eq!(store.durable().revision, 5);
    store.close().unwrap();

    let frozen = Frozen::open(&path).unwrap();
    assert_eq!((frozen.revision(), frozen.imported()), (5, None));
    assert_eq!(frozen.summary().unwrap().keys, 2);
    drop(frozen);

    let mut store = Store::open(&path, options()).unwrap();
    assert_eq!((store.revision(), store.durable().revision), (5, 5));
    assert_eq!(store.leases(), [lease]);
    assert_eq!(store.lease_keys(7), ["a"]);
    assert_eq!(store.note("alarm").unwrap(), "x");
    assert_eq!(store.note("gone"), None);
    assert_eq!(store.value(&store.get(b"a", 3).unwrap()).unwrap(), "1");
    assert_eq!(store.value(&store.get(b"a", 5).unwrap()).unwrap(), "3");
    assert_eq!(store.get(b"b", 4).unwrap().version, 1);
    assert_eq!(store.get(b"b", 5), None);
    let expected = [
        (2, "a", Some("1")),
        (3, "b", Some("2")),
        (4, "a", Some("3")),
        (5, "b", None),
        (5, "c", Some("")),
    ]
    .map(|(revision, key, value)| (revision, key.to_owned(), value.map(str::to_owned)));
    assert_eq!(changes(&store, 2, 5), expected);
    assert_eq!(changes(&store, 5, 9), expected[3..]);
    let all = KeyRange {
        start: Bytes::new(),
        end: RangeEnd::Unbounded,
    };
    assert_eq!(
        (store.count(&all, 5), store.count(&all, 4), store.count(&all, 1)),
        (2, 2, 0)
    );

    store.compact(5).unwrap();
    while store.maintain(std::time::Duration::from_millis(5)).unwrap() {}
    assert_eq!(store.compacted(), 5);
    assert_eq!(
        changes(&store, 5, 5),
        expected[3..],
        "the compacted revision itself is still told"
    );
    assert_eq!(store.lease_size(7), (1, 1));
    let mut transaction = store.begin(2, 10, true).unwrap();
    let mut deleted = Vec::new();
    transaction.end_lease_and_keys(7, &mut |key, revision| deleted.push((key, revision.main, revision.sub)));
    assert_eq!(deleted, [(Bytes::from("a"), 6, 0)]);
    transaction.commit().unwrap();
    assert!(store.leases().is_empty());
    assert_eq!(store.lease_size(7), (0, 0));
    store.close().unwrap();
    let store = Store::open(&path, options()).unwrap();
    assert!(store.leases().is_empty());
    assert_eq!((store.revision(), store.compacted()), (6, 5));
    assert_eq!(store.count(&all, 6), 1);
}

#[test]
fn an_import_reads_at_its_head_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let records: Vec<Record> = (0..5000)
        .map(|n| Record {
            key: Bytes::from(format!("/registry/{n:05}")),
            value: Bytes::from(vec![n as u8; 300]),
            create: 5 + n % 3,
            modified: 10 + n / 2,
            version: 3,
            lease: n % 2,
        })
        .collect();
    let mut import = Import::create(&path, options().identity, 9000).unwrap();
    let mut digest = Digest::default();
    for record in &records {
        import.push(record).unwrap();
        digest.add(record);
    }
    assert!(matches!(import.push(&records[0]), Err(Error::Import(_))));
    let lease = Lease {
        id: 1,
        granted_ttl: 3600,
        deadline_ms: 5,
    };
    import.lease(lease).unwrap();
    let finished = import.finish().unwrap();
    assert!(!path.exists());
    let summary = finished.summary().clone();
    assert_eq!(
        (summary.keys, summary.head, summary.digest),
        (5000, 9000, digest.finish())
    );
    finished.publish().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    let frozen = Frozen::open(&path).unwrap();
    assert_eq!((frozen.imported(), frozen.compacted()), (Some(9000), 9000));
    assert_eq!(frozen.summary().unwrap(), summary);
    let mut read = Vec::new();
    frozen
        .records(&mut |record| {
            read.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(read, records);
    drop(frozen);

    let mut store = Store::open(&path, options()).unwrap();
    assert_eq!(store.untouched_import(), Some(9000));
    assert_eq!(store.lease_keys(1).len(), 2500);
    let version = store.get(b"/registry/00003", 9000).unwrap();
    assert_eq!(
        (version.create, version.modified.main, version.modified.sub),
        (5, 11, 1)
    );
    assert_eq!(store.value(&version).unwrap(), records[3].value);
    // Its own revision is told to a watcher from there: what still has the version of the head.
    let told = changes(&store, 9000, 9000);
    assert!(told.is_empty(), "no record was modified at the head");
    let next = put(&mut store, "/registry/00003", "new", 0);
    assert_eq!((next.create, next.modified.main, next.version), (5, 9001, 4));
    assert_eq!(store.untouched_import(), None);
    assert_eq!(store.get(b"/registry/00003", 9000), Some(version));
    store.close().unwrap();
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(
        store.value(&store.get(b"/registry/00003", 9001).unwrap()).unwrap(),
        "new"
    );
    assert_eq!(store.untouched_import(), None);
    assert_eq!(
        Frozen::open(&path).err().map(|error| error.to_string()),
        Some(format!("{} is in use by another process", path.display()))
    );
}

#[test]
fn an_import_given_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let import = Import::create(&path, options().identity, 9).unwrap();
    drop(import);
    let finished = Import::create(&path, options().identity, 9).unwrap().finish().unwrap();
    assert_eq!(finished.summary().keys, 0);
    drop(finished);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(&path, b"x").unwrap();
    assert!(matches!(
        Import::create(&path, options().identity, 9),
        Err(Error::Exists { .. })
    ));
}

#[test]
fn the_changes_of_an_imports_head_are_those_it_still_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let mut import = Import::create(&path, options().identity, 7).unwrap();
    for (key, modified) in [("a", 7), ("b", 6), ("c", 7)] {
        let record = Record {
            key: Bytes::from(key),
            value: Bytes::from(format!("value of {key}")),
            create: 2,
            modified,
            version: 1,
            lease: 0,
        };
        import.push(&record).unwrap();
    }
    import.finish().unwrap().publish().unwrap();
    let mut store = Store::open(&path, options()).unwrap();
    put(&mut store, "a", "new", 0);
    let expected = [
        (7, "a", Some("value of a")),
        (7, "c", Some("value of c")),
        (8, "a", Some("new")),
    ]
    .map(|(revision, key, value)| (revision, key.to_owned(), value.map(str::to_owned)));
    assert_eq!(changes(&store, 7, 8), expected);
}

#[test]
fn commits_that_come_while_a_sync_runs_are_one_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let mut store = Store::create(&path, options()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    store.on_durable(Box::new(move |durable| tell.send(durable.unwrap()).unwrap()));
    let mut last = 0;
    for n in 0..2000u32 {
        let key = Bytes::from(format!("{n:05}"));
        let mut transaction = store.begin(1, 1000, false).unwrap();
        transaction.put(key, Bytes::from(vec![1; 900]), 0);
        last = transaction.commit().unwrap().seq;
    }
    while told.recv().unwrap().seq < last {}
    assert_eq!(
        store.durable(),
        Durable {
            seq: last,
            revision: 2001
        }
    );
    let stats = store.stats();
    assert!(stats.syncs < 1000, "{} syncs for 2000 commits: no groups", stats.syncs);
    assert!(stats.bytes_written > 2000 * 900);
    assert_eq!(stats.sync_buckets.len(), 14);
}

#[test]
fn a_store_may_change_threads() {
    fn is_send<T: Send>() {}
    is_send::<Store>();
    is_send::<Import>();
    is_send::<Frozen>();
}

#[test]
fn a_version_given_out_stays_readable_while_its_value_is_moved() {
    let disk = SimDisk::new();
    let tuning = Tuning {
        grace: std::time::Duration::from_secs(3600),
        ..Tuning::small()
    };
    let mut store = Store::create_on(std::sync::Arc::new(disk), options(), tuning).unwrap();
    let write = |store: &mut Store, n: u32, byte: u8| {
        let mut transaction = store.begin(1, 500, false).unwrap();
        let version = transaction.put(Bytes::from(format!("{n:03}")), Bytes::from(vec![byte; 400]), 0);
        transaction.commit().unwrap();
        version
    };
    // One key that stays among many that change.
    let given = write(&mut store, 0, 7);
    for round in 0..20 {
        for n in 1..30 {
            write(&mut store, n, round);
        }
    }
    store.compact(store.revision()).unwrap();
    for _ in 0..1000 {
        store.sync().unwrap();
        store.maintain(std::time::Duration::ZERO).unwrap();
    }
    let now = store.get(b"000", store.revision()).unwrap();
    assert!(
        store.upkeep.copied > 0 && now.value != given.value,
        "the value was not moved"
    );
    assert_eq!(store.value(&given).unwrap(), vec![7; 400]);
    // With the grace over, its space is given back and the old version is refused, not misread.
    store.tuning.grace = std::time::Duration::ZERO;
    for _ in 0..1000 {
        store.sync().unwrap();
        store.maintain(std::time::Duration::ZERO).unwrap();
    }
    assert!(matches!(store.value(&given), Err(Error::Gone)));
    assert_eq!(store.value(&now).unwrap(), vec![7; 400]);
}
