//! Real etcds start from snapshots of the store.

use std::fs::File;
use std::path::Path;

use etcd_client::{CompactionOptions, DeleteOptions};
use quantykube_etcd_files::etcd::{Database, Revision};
use rand::RngExt;
use serde_json::Value;

use crate::store::Store;
use crate::stream::{Taken, open, rest};
use crate::world::{Etcd, Kind, dump, dump_of, fill, hashes, rng, run, same};

/// What etcdutl says of a snapshot, which it checks page by page.
fn status(path: &Path) -> Value {
    let output = run(Kind::Current
        .snapshot_tool()
        .args(["snapshot", "status", "-w", "json"])
        .arg(path));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn an_etcd_from_a_snapshot_has_the_same_hashes_keys_and_leases() {
    let mut rng = rng();
    let store = Store::start();
    let mut client = store.client().await;
    fill(&mut client, &mut rng, 150).await;
    // A delete of exactly the compacted revision stays in etcd too, also beside a put of the same transaction's.
    client.put("gone", "1", None).await.unwrap();
    client.put("other", "1", None).await.unwrap();
    let ops = [
        etcd_client::TxnOp::delete("gone", None),
        etcd_client::TxnOp::put("other", "2", None),
    ];
    let both = client.txn(etcd_client::Txn::new().and_then(ops)).await.unwrap();
    let compacted = both.header().unwrap().revision();
    client
        .compact(compacted, Some(CompactionOptions::new().with_physical()))
        .await
        .unwrap();
    fill_after(&mut client, &mut rng).await;
    // The same once more after a restart: the log of the compacted revision is read from the file then.
    let store = store.restarted();
    let mut client = store.client().await;

    let expected = dump(&mut client).await;
    let head = expected.revision;
    let mut revisions = vec![head, compacted, compacted + 1];
    revisions.extend((0..6).map(|_| rng.random_range(compacted..=head)));
    let expected_hashes = hashes(&mut client, &revisions).await;
    assert_eq!(expected_hashes[0].1, compacted);
    let snapshot = store.save();

    let told = status(&snapshot);
    assert_eq!(told["revision"], head);
    assert_eq!(told["version"], "3.6.0");
    let database = Database::open(File::open(&snapshot).unwrap()).unwrap();
    assert!(database.verify_sum().unwrap());
    assert!(database.check().unwrap().is_sound());
    same(&dump_of(&database), &expected);
    let first: Vec<_> = database
        .records(Revision {
            main: compacted,
            sub: 0,
        })
        .unwrap()
        .map(Result::unwrap)
        .take_while(|record| record.revision.main == compacted)
        .map(|record| (record.key.to_vec(), record.deleted))
        .collect();
    assert_eq!(first, [(b"gone".to_vec(), true), (b"other".to_vec(), false)]);

    let etcd = Etcd::restored(Kind::Current, &snapshot);
    let mut client = etcd.client().await;
    same(&dump(&mut client).await, &expected);
    assert_eq!(hashes(&mut client, &revisions).await, expected_hashes);
    let put = client.put("next", "", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), head + 1);
    // An attached key ends with its lease there as well.
    let (id, _) = expected.leases.first_key_value().unwrap();
    client.lease_revoke(*id).await.unwrap();
}

/// Changes without a compaction.
async fn fill_after(client: &mut etcd_client::Client, rng: &mut rand::rngs::StdRng) {
    for number in 0..200 {
        let key = format!("/registry/{}/{}", rng.random_range(0..6), rng.random_range(0..60));
        if number % 4 == 0 {
            client.delete(key, None).await.unwrap();
        } else {
            client
                .put(key, vec![b'v'; rng.random_range(0..3000)], None)
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn empty_stores_and_emptied_ones_have_snapshots_too() {
    let store = Store::start();
    let snapshot = store.save();
    assert_eq!(status(&snapshot)["totalKey"], 0);
    let etcd = Etcd::restored(Kind::Current, &snapshot);
    let mut found = etcd.client().await;
    assert_eq!(dump(&mut found).await.revision, 1);
    drop(etcd);

    let mut client = store.client().await;
    for number in 0..50 {
        client.put(format!("{number}"), "x", None).await.unwrap();
    }
    let all = DeleteOptions::new().with_from_key();
    let head = client
        .delete("\0", Some(all))
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    for compaction in [None, Some(head)] {
        if let Some(at) = compaction {
            client.compact(at, None).await.unwrap();
        }
        let expected = hashes(&mut client, &[head]).await;
        let etcd = Etcd::restored(Kind::Current, &store.save());
        let mut found = etcd.client().await;
        assert_eq!(dump(&mut found).await.revision, head);
        assert_eq!(
            hashes(&mut found, &[head]).await,
            expected,
            "compacted at {compaction:?}"
        );
    }
}

#[tokio::test]
async fn the_stream_says_what_is_left_and_ends_with_its_sum() {
    let store = Store::start();
    let mut client = store.client().await;
    for number in 0..200 {
        client
            .put(format!("{number:03}"), vec![b'x'; number * 40], None)
            .await
            .unwrap();
    }
    // One value that fills many messages.
    client.put("big", vec![b'y'; 1_000_000], None).await.unwrap();
    let mut taken = Taken::default();
    let bytes = rest(open(&store).await, &mut taken, Vec::new()).await;
    assert!(taken.messages > 20 && taken.bytes + 32 == bytes.len() as u64);
    let database = Database::open(bytes).unwrap();
    same(&dump_of(&database), &dump(&mut client).await);
}
