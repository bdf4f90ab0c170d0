//! The store starts from snapshots: etcd's and its own.

use etcd_client::WatchOptions;

use crate::store::Store;
use crate::world::{Etcd, Kind, dump, fill, hashes, rng, same};

async fn restores(kind: Kind) {
    let mut rng = rng();
    let etcd = Etcd::start(kind);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 120).await;
    let expected = dump(&mut client).await;
    let (store, result) = Store::restored(&etcd.save(), &[]);
    assert_eq!(result["revision"], expected.revision);
    assert_eq!(result["keys"], expected.keys.len());
    assert_eq!(result["leases"], expected.leases.len());
    let mut client = store.client().await;
    same(&dump(&mut client).await, &expected);
    let put = client.put("next", "", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), expected.revision + 1);
}

#[tokio::test]
async fn a_store_from_a_snapshot_of_etcd_has_every_key() {
    restores(Kind::Current).await;
}

#[tokio::test]
async fn a_store_from_a_snapshot_of_an_old_etcd_has_every_key() {
    restores(Kind::Debian).await;
}

#[tokio::test]
async fn a_snapshot_goes_from_store_to_store_and_on_to_etcd() {
    let mut rng = rng();
    let store = Store::start();
    let mut client = store.client().await;
    fill(&mut client, &mut rng, 120).await;
    let expected = dump(&mut client).await;
    let (second, _) = Store::restored(&store.save(), &[]);
    let mut client = second.client().await;
    same(&dump(&mut client).await, &expected);
    // The second's history begins at its head: an import, whose changes are not in the log.
    let hash = hashes(&mut client, &[expected.revision]).await;
    assert_eq!(hash[0].1, expected.revision);
    let etcd = Etcd::restored(Kind::Current, &second.save());
    let mut client = etcd.client().await;
    same(&dump(&mut client).await, &expected);
    assert_eq!(hashes(&mut client, &[expected.revision]).await, hash);
}

#[tokio::test]
async fn a_raised_revision_tells_old_watches_that_they_missed_something() {
    let mut rng = rng();
    let etcd = Etcd::start(Kind::Current);
    let mut client = etcd.client().await;
    fill(&mut client, &mut rng, 60).await;
    let mut expected = dump(&mut client).await;
    let before = expected.revision;
    let (store, result) = Store::restored(&etcd.save(), &["--bump-revision", "1000000"]);
    expected.revision += 1_000_000;
    assert_eq!(result["snapshotRevision"], before);
    assert_eq!(result["revision"], expected.revision);
    let mut client = store.client().await;
    same(&dump(&mut client).await, &expected);

    // It stays raised on the way back, though no record has that revision.
    let back = Etcd::restored(Kind::Current, &store.save());
    same(&dump(&mut back.client().await).await, &expected);
    drop(back);

    // One that saw revisions which the snapshot does not have, and one that did not.
    for seen in [before - 3, before + 500] {
        let from = WatchOptions::new().with_prefix().with_start_revision(seen + 1);
        let mut stream = client.watch("/registry/", Some(from)).await.unwrap();
        let told = loop {
            let message = stream.message().await.unwrap().expect("an answer");
            if message.canceled() {
                break message.compact_revision();
            }
            assert!(message.created() && message.events().is_empty());
        };
        assert_eq!(told, expected.revision);
    }
    let put = client.put("next", "", None).await.unwrap();
    assert_eq!(put.header().unwrap().revision(), expected.revision + 1);
}
