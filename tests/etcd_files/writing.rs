//! Real etcds start from what is written here.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use etcd_client::{CompactionOptions, DeleteOptions};
use quantykube_etcd_files::bolt::Source;
use quantykube_etcd_files::etcd::{
    Database, FileWriter, Finished, Hashing, Head, Lease, Measure, Member, Revision, SnapshotWriter,
};
use rand::RngExt;
use serde_json::Value;

use crate::world::{Dump, Etcd, Kind, dump, dump_of, fill, hashes, rng, run, same, some_revisions};

/// The head of a database with all its leases.
fn head_of<S: Source>(database: &Database<S>) -> Head {
    let mut head = Head::new(database.revision().unwrap(), database.compact_revision().unwrap())
        .with_identity(database)
        .unwrap();
    for lease in database.leases().unwrap() {
        head.lease(&lease);
    }
    head
}

/// Writes a snapshot with the records of another, as a stream that is measured first.
fn copy<S: Source>(database: &Database<S>, head: &Head, path: &Path) -> Finished {
    let mut measure = Measure::new(head).unwrap();
    for record in database.records(Revision::default()).unwrap() {
        let record = record.unwrap();
        if record.deleted {
            measure.delete(record.revision, record.key.len()).unwrap();
        } else {
            let (key, value) = (record.key.len(), record.value.len());
            measure
                .put(
                    record.revision,
                    key,
                    value,
                    record.create_revision,
                    record.version,
                    record.lease,
                )
                .unwrap();
        }
    }
    let measured = measure.finish().unwrap();
    let out = Hashing::new(BufWriter::new(File::create(path).unwrap()));
    let mut out = SnapshotWriter::new(out, head, measured).unwrap();
    for record in database.records(Revision::default()).unwrap() {
        let record = record.unwrap();
        if record.deleted {
            out.delete(record.revision, &record.key).unwrap();
        } else {
            let (create, version) = (record.create_revision, record.version);
            out.put(
                record.revision,
                &record.key,
                &record.value,
                create,
                version,
                record.lease,
            )
            .unwrap();
        }
    }
    let (out, finished) = out.finish().unwrap();
    out.append().unwrap();
    assert_eq!(fs::metadata(path).unwrap().len(), measured.bytes_with_sum());
    finished
}

/// What the tool says of a snapshot, which it checks page by page.
fn status(kind: Kind, path: &Path) -> Value {
    let output = run(kind
        .snapshot_tool()
        .args(["snapshot", "status", "-w", "json"])
        .arg(path));
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn a_copied_snapshot_is_the_same(kind: Kind) {
    let mut rng = rng();
    let etcd = Etcd::start(kind);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 160).await;
    let expected = dump(&mut client).await;
    let database = Database::open(File::open(etcd.save()).unwrap()).unwrap();
    let revisions = some_revisions(kind, &database, &mut rng);
    drop(client);
    let etcd = etcd.restarted();
    let expected_hashes = hashes(&mut etcd.client().await, &revisions).await;

    let path = etcd.folder.path().join("ours.db");
    let finished = copy(&database, &head_of(&database), &path);
    let told = status(kind, &path);
    assert_eq!(told["hash"], finished.status_hash);
    assert_eq!(told["hash"], database.status().unwrap().hash);
    assert_eq!(told["revision"], expected.revision);
    assert_eq!(told["totalSize"], finished.size);

    let restored = Etcd::restored(kind, &path);
    let mut client = restored.client().await;
    same(&dump(&mut client).await, &expected);
    assert_eq!(hashes(&mut client, &revisions).await, expected_hashes, "{revisions:?}");
    let put = client.put("next", "", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), expected.revision + 1);
}

#[tokio::test]
async fn a_copied_snapshot_of_the_current_etcd_is_the_same() {
    a_copied_snapshot_is_the_same(Kind::Current).await;
}

#[tokio::test]
async fn a_copied_snapshot_of_the_old_etcd_is_the_same() {
    a_copied_snapshot_is_the_same(Kind::Debian).await;
}

/// Live records alone, compacted at the head: all that clients see, the hash after a compaction, and remaining times.
#[tokio::test]
async fn live_records_are_a_whole_etcd() {
    let mut rng = rng();
    let etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 120).await;
    // The head is a delete, so that no live record stands at it.
    client.put("last", "", None).await.unwrap();
    client.delete("last", None).await.unwrap();
    let expected = dump(&mut client).await;
    let database = Database::open(File::open(etcd.save()).unwrap()).unwrap();

    let head_revision = database.revision().unwrap();
    let mut head = Head::new(head_revision, Some(head_revision)).with_member(
        &Member {
            id: 7,
            name: "any".into(),
            peer_urls: vec!["http://127.0.0.1:1".into()],
            ..Member::default()
        },
        1,
        1,
    );
    for lease in database.leases().unwrap() {
        head.lease(&Lease {
            remaining_ttl: 123,
            ..lease
        });
    }
    let live = database.live(None).unwrap();
    let mut records: Vec<_> = live.records(&database).unwrap().map(Result::unwrap).collect();
    records.sort_by_key(|record| record.revision);
    let path = etcd.folder.path().join("live.db");
    let mut out = FileWriter::new(BufWriter::new(File::create(&path).unwrap()), &head).unwrap();
    for record in &records {
        let (create, version) = (record.create_revision, record.version);
        out.put(
            record.revision,
            &record.key,
            &record.value,
            create,
            version,
            record.lease,
        )
        .unwrap();
    }
    let (file, finished) = out.finish().unwrap();
    drop(file);
    assert_eq!(finished.records, expected.keys.len() as u64);
    same(
        &dump_of(&Database::open(File::open(&path).unwrap()).unwrap()),
        &expected,
    );
    assert_eq!(status(Kind::Current, &path)["totalKey"], expected.keys.len());

    // As `etcdctl snapshot save` would have it.
    let bytes = fs::read(&path).unwrap();
    let mut out = Hashing::new(File::create(&path).unwrap());
    std::io::Write::write_all(&mut out, &bytes).unwrap();
    out.append().unwrap();
    let restored = Etcd::restored(Kind::Current, &path);
    let mut again = restored.client().await;
    same(&dump(&mut again).await, &expected);
    for id in expected.leases.keys() {
        let left = again.lease_time_to_live(*id, None).await.unwrap().ttl();
        assert!((60..=123).contains(&left), "lease {id:x} has {left} seconds left");
    }

    let physical = || Some(CompactionOptions::new().with_physical());
    client.compact(head_revision, physical()).await.unwrap();
    drop(client);
    let etcd = etcd.restarted();
    assert_eq!(
        hashes(&mut again, &[head_revision]).await,
        hashes(&mut etcd.client().await, &[head_revision]).await
    );
    assert!(
        again
            .get(
                "gone",
                Some(etcd_client::GetOptions::new().with_revision(head_revision - 1))
            )
            .await
            .is_err()
    );
}

/// etcd works on in the file: deletes and compactions that merge our pages, and a defragmentation.
#[tokio::test]
async fn etcd_compacts_and_defragments_what_was_written() {
    let mut rng = rng();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ours.db");
    // 3 versions of each key; the number of pages is another one each time.
    let keys = rng.random_range(5_000..7_000);
    let head = Head::new(3 * keys + 1, None);
    let mut out = FileWriter::new(BufWriter::new(File::create(&path).unwrap()), &head).unwrap();
    for number in 0..3 * keys {
        let key = format!("/registry/pods/{:05}", number % keys);
        let value = vec![b'v'; rng.random_range(1..900)];
        let main = number + 2;
        let (create, version) = (number % keys + 2, number / keys + 1);
        out.put(Revision { main, sub: 0 }, key.as_bytes(), &value, create, version, 0)
            .unwrap();
    }
    out.finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    run(Kind::Current
        .snapshot_tool()
        .args(["snapshot", "restore", "--skip-hash-check", "--data-dir"])
        .arg(folder.path().join("etcd"))
        .arg(&path));
    let mut etcd = Etcd::start_in(Kind::Current, folder);
    let mut client = etcd.client().await;
    let physical = || Some(CompactionOptions::new().with_physical());
    for at in [keys / 2, 2 * keys, 3 * keys + 1] {
        client.compact(at, physical()).await.unwrap();
    }
    let half = DeleteOptions::new().with_range("/registry/pods/03000");
    let deleted = client.delete("/registry/pods/", Some(half)).await.unwrap().deleted();
    assert_eq!(deleted, 3000);
    client.compact(3 * keys + 2, physical()).await.unwrap();
    let before = dump(&mut client).await;
    assert_eq!(before.keys.len() as i64, keys - 3000);
    assert!(before.keys.values().all(|seen| seen.version == 3));
    etcd.stop();
    let sound = |etcd: &Etcd| {
        let database = Database::open(File::open(etcd.db()).unwrap()).unwrap();
        let report = database.check().unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        same(&dump_of(&database), &before);
        report.pages
    };
    let pages = sound(&etcd);

    let mut etcd = etcd.restarted();
    let mut client = etcd.client().await;
    same(&dump(&mut client).await, &before);
    client.defragment().await.unwrap();
    same(&dump(&mut client).await, &before);
    etcd.stop();
    assert!(sound(&etcd) < pages / 2, "nothing was given back");
}

/// Swapping the database alone under a member's log: its identity stays, its data are others.
#[tokio::test]
async fn a_member_starts_with_another_database_under_its_log() {
    let mut rng = rng();
    let other = Etcd::start(Kind::Current);
    let mut client = other.client().await;
    fill(&mut client, &mut rng, 80).await;
    let expected: Dump = dump(&mut client).await;
    let new = Database::open(File::open(other.save()).unwrap()).unwrap();

    let mut etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 30).await;
    let status = client.status().await.unwrap();
    let (index, term) = (status.raft_index(), status.raft_term());
    let identity = |header: &etcd_client::ResponseHeader| (header.cluster_id(), header.member_id());
    let who = identity(status.header().unwrap());
    etcd.stop();

    let old = Database::open(File::open(etcd.db()).unwrap()).unwrap();
    let mut head = Head::new(new.revision().unwrap(), new.compact_revision().unwrap())
        .with_identity(&old)
        .unwrap();
    head.raft(index, term);
    for lease in new.leases().unwrap() {
        head.lease(&lease);
    }
    let beside = etcd.folder.path().join("new.db");
    let mut out = FileWriter::new(BufWriter::new(File::create(&beside).unwrap()), &head).unwrap();
    for record in new.records(Revision::default()).unwrap() {
        let record = record.unwrap();
        if record.deleted {
            out.delete(record.revision, &record.key).unwrap();
        } else {
            let (create, version) = (record.create_revision, record.version);
            out.put(
                record.revision,
                &record.key,
                &record.value,
                create,
                version,
                record.lease,
            )
            .unwrap();
        }
    }
    out.finish().unwrap();
    fs::rename(&beside, etcd.db()).unwrap();

    let Etcd { folder, .. } = etcd;
    let etcd = Etcd::start_in(Kind::Current, folder);
    let mut client = etcd.client().await;
    same(&dump(&mut client).await, &expected);
    assert_eq!(identity(client.status().await.unwrap().header().unwrap()), who);
    let head = expected.revision;
    assert_eq!(hashes(&mut client, &[head]).await[0].0, new.hash_kv(None).unwrap().hash);
}
