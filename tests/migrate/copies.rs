//! A copy holds what etcd holds, key by key.

use std::time::{SystemTime, UNIX_EPOCH};

use quantykube_store_file::Frozen;

use crate::etcd::{Etcd, Kind, beside};
use crate::history::{fill, generator, grow};
use crate::program::run;
use crate::records::{assert_same, leases_of_etcd, of_etcd, of_file};

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

async fn copies_a_random_history(name: &str, kind: Kind, steps: usize) {
    let mut random = generator(name);
    let etcd = Etcd::start(kind);
    let client = etcd.client().await;
    for round in 0..3 {
        grow(&client, &mut random, steps).await;
        let (head, expected) = of_etcd(&client, 0).await;
        let leases = leases_of_etcd(&client).await;
        assert!(expected.len() > 50, "the history left {} keys", expected.len());

        let file = etcd.target(&format!("round-{round}"));
        let before = now_ms();
        let ended = run(&etcd.source, &file, &[]).await;
        let after = now_ms();
        let result = ended.done();
        assert_eq!(result["revision"], head);
        assert_eq!(result["keys"], expected.len());
        assert_eq!(result["revisionAfter"], head, "nobody wrote");
        assert_eq!(beside(&file), ["store.qks"], "no temporary file is left");

        let (file_head, found, file_leases) = of_file(&file);
        assert_eq!(file_head, head);
        assert_same(&found, &expected);
        assert_eq!(file_leases.len(), leases.len());
        for (id, granted) in &leases {
            let lease = file_leases[id];
            assert_eq!(lease.granted_ttl, *granted, "lease {id:x}");
            // In full from the moment of the copy.
            let (earliest, latest) = (before + granted * 1000, after + granted * 1000);
            assert!(
                (earliest..=latest).contains(&lease.deadline_ms),
                "lease {id:x}: {lease:?}"
            );
        }
        let frozen = Frozen::open(&file).unwrap();
        assert_eq!(frozen.imported(), Some(head));
        assert_eq!(
            frozen.compacted(),
            head,
            "everything before the head counts as compacted"
        );
        let status = client.maintenance_client().status().await.unwrap();
        let (header, identity) = (status.header().unwrap(), frozen.identity());
        assert_eq!(identity.cluster_id, header.cluster_id());
        assert_eq!(identity.member_id, header.member_id());
        assert_eq!(identity.raft_term, header.raft_term());
        assert_eq!(of_etcd(&client, 0).await, (head, expected), "etcd was not changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_history_of_etcd_3_6() {
    copies_a_random_history("etcd 3.6", Kind::Current, 600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_history_of_etcd_3_6_with_certificates() {
    copies_a_random_history("etcd 3.6 with certificates", Kind::Secure, 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_history_of_etcd_3_4() {
    copies_a_random_history("etcd 3.4", Kind::Debian, 600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_random_history_of_etcd_3_7() {
    copies_a_random_history("etcd 3.7", Kind::Newest, 600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_etcd() {
    let etcd = Etcd::start(Kind::Current);
    let file = etcd.target("empty");
    let ended = run(&etcd.source, &file, &[]).await;
    assert_eq!(ended.done()["keys"], 0);
    let (head, records, leases) = of_file(&file);
    assert_eq!((head, records.len(), leases.len()), (1, 0, 0));
}

/// A head that was compacted, and one whose last revision deleted the only key: both are the store's head.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_a_key() {
    let etcd = Etcd::start(Kind::Current);
    let client = etcd.client().await;
    let mut kv = client.kv_client();
    for n in 0..5 {
        kv.put(format!("/registry/pods/{n}"), "x", None).await.unwrap();
        kv.delete(format!("/registry/pods/{n}"), None).await.unwrap();
    }
    kv.compact(11, None).await.unwrap();
    let file = etcd.target("deleted");
    assert_eq!(run(&etcd.source, &file, &[]).await.done()["revision"], 11);
    assert_eq!(of_file(&file).0, 11);
}

/// Values that no page can hold next to another one, and a page that etcd makes larger than is taken.
#[tokio::test(flavor = "multi_thread")]
async fn values_larger_than_a_page() {
    let etcd = Etcd::start_with(
        Kind::Current,
        &["--max-request-bytes", "20000000", "--max-txn-ops", "10000"],
    );
    let client = etcd.client().await;
    fill(&client, "events", 9000, 100).await;
    let mut kv = client.kv_client();
    // The kind goes from 100 bytes to megabytes within itself: the page after 9,000 small keys is refused and read anew.
    for n in 0..30 {
        kv.put(format!("/registry/events/9{n:07}"), vec![7; 1 << 20], None)
            .await
            .unwrap();
    }
    kv.put("/registry/events/99999999", vec![8; 7 << 20], None)
        .await
        .unwrap();
    kv.put("/registry/secrets/a", vec![9; 8_300_000], None).await.unwrap();
    let (head, expected) = of_etcd(&client, 0).await;
    let file = etcd.target("large");
    let ended = run(&etcd.source, &file, &[]).await;
    assert_eq!(ended.done()["revision"], head);
    assert_same(&of_file(&file).1, &expected);

    // No store takes this one, and it says so.
    kv.put("/registry/secrets/b", vec![9; 12 << 20], None).await.unwrap();
    let file = etcd.target("too-large");
    let ended = run(&etcd.source, &file, &[]).await;
    ended.failed(1, "not-for-a-store");
    assert!(
        ended.last["causes"][0]
            .as_str()
            .unwrap()
            .contains("/registry/secrets/b")
    );
    assert!(beside(&file).is_empty());
}
