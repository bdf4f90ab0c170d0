//! The way back and etcd's room: its quota while the filler writes, and what others have written into it meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;

use etcd_client::{AlarmAction, AlarmType, Client};
use quantykube_base::Exit;
use quantykube_migrate::{copy_back, raise_revision, written_since};
use quantykube_store_file::Frozen;

use crate::back::{assert_moved_back, copied, live_on, reporter};
use crate::etcd::{Etcd, Kind};
use crate::history::{fill, generator};
use crate::records::of_etcd;

/// Small, so that few writes fill it.
const QUOTA: &str = "2097152";
/// Enough for its database to grow past that: each of them takes some 60 bytes and more.
const WRITES: i64 = 45_000;

/// A number that etcd itself counts, from its metrics.
fn counted(etcd: &Etcd, name: &str) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", etcd.port)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("etcd has no metric {name}"));
    line.trim().parse::<f64>().unwrap() as u64
}

async fn alarms(client: &Client) -> usize {
    let mut client = client.maintenance_client();
    let answer = client.alarm(AlarmAction::Get, AlarmType::None, None).await.unwrap();
    answer.alarms().len()
}

/// An etcd that tells its quota is never full: it is compacted and defragmented before.
#[tokio::test(flavor = "multi_thread")]
async fn the_filler_stays_below_a_small_quota() {
    let etcd = Etcd::start_with(Kind::Current, &["--quota-backend-bytes", QUOTA]);
    let client = etcd.client().await;
    fill(&client, "configmaps", 200, 1000).await;
    let (head, before) = of_etcd(&client, 0).await;
    let filled = raise_revision(&etcd.source, head + WRITES, &reporter()).await.unwrap();
    let defragmented = counted(&etcd, "etcd_disk_backend_defrag_duration_seconds_count");
    println!("{filled:?}; etcd counts {defragmented} defragmentations");
    assert!(filled.defragmentations >= 1, "the quota was never near: {filled:?}");
    assert_eq!(defragmented, filled.defragmentations);
    assert_eq!((filled.disarmed, alarms(&client).await), (0, 0));
    assert!(filled.writes >= WRITES as u64);
    let (now, after) = of_etcd(&client, 0).await;
    assert!(now >= head + WRITES);
    let ours = |key: &[u8]| key == quantykube_migrate::FILLER_KEY.as_bytes();
    let after: Vec<_> = after.into_iter().filter(|record| !ours(&record.key)).collect();
    assert_eq!(after, before, "every key is as it was");
}

/// An etcd that does not tell its quota answers at some point that it is full; the filler clears that away.
#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_that_the_filler_caused_is_disarmed() {
    let etcd = Etcd::start_with(Kind::Debian, &["--quota-backend-bytes", QUOTA]);
    let client = etcd.client().await;
    fill(&client, "configmaps", 200, 1000).await;
    let head = of_etcd(&client, 0).await.0;
    let filled = raise_revision(&etcd.source, head + WRITES, &reporter()).await.unwrap();
    let defragmented = counted(&etcd, "etcd_disk_backend_defrag_duration_seconds_count");
    println!("{filled:?}; etcd counts {defragmented} defragmentations");
    assert_eq!(
        filled.disarmed, 1,
        "etcd was full once, and then its quota was known: {filled:?}"
    );
    assert_eq!(defragmented, filled.defragmentations);
    assert_eq!(alarms(&client).await, 0);
    let put = client.kv_client().put("/registry/pods/later", "x", None).await.unwrap();
    assert!(put.header().unwrap().revision() > head + WRITES);
}

/// An etcd that its keys have filled stays as it is: that is for a person to decide.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_others_filled_is_left_alone() {
    for kind in [Kind::Current, Kind::Debian] {
        let etcd = Etcd::start_with(kind, &["--quota-backend-bytes", QUOTA]);
        let client = etcd.client().await;
        let mut number = 0;
        let put = async |number: u32| {
            let key = format!("/registry/big/{number}");
            client.kv_client().put(key, vec![1; 100_000], None).await.is_ok()
        };
        while put(number).await {
            number += 1;
        }
        assert_eq!(alarms(&client).await, 1, "{kind:?}: {number} keys have filled it");
        let before = of_etcd(&client, 0).await;
        let error = raise_revision(&etcd.source, before.0 + 100, &reporter())
            .await
            .unwrap_err();
        assert_eq!((error.exit(), error.name()), (Exit::NoSpace, "etcd-full"), "{error}");
        assert_eq!(alarms(&client).await, 1, "{kind:?}: not ours to disarm");
        assert_eq!(of_etcd(&client, 0).await, before);
        assert_eq!(counted(&etcd, "etcd_disk_backend_defrag_duration_seconds_count"), 0);
    }
}

/// What another program writes straight into etcd after the move is overwritten, and told.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_is_counted_and_named() {
    let mut random = generator("what others wrote");
    let (etcd, client, file) = copied(&mut random, Kind::Current).await;
    live_on(&file, &mut random, 200);
    let imported = Frozen::open(&file).unwrap().imported().unwrap();
    assert_eq!(written_since(&etcd.source, imported, 10).await.unwrap().count, 0);
    let (_, before) = of_etcd(&client, 0).await;
    for key in ["/registry/others/a", "/registry/others/b", "calico/c"] {
        client.kv_client().put(key, "theirs", None).await.unwrap();
    }
    // One that the store has kept as it was at the move.
    let (_, store, _) = crate::records::of_file(&file);
    let kept = store
        .iter()
        .find(|record| record.modified <= imported && record.lease == 0)
        .unwrap();
    client.kv_client().delete(&kept.key[..], None).await.unwrap();

    let seen = written_since(&etcd.source, imported, 2).await.unwrap();
    assert_eq!(
        (seen.count, &seen.first[..]),
        (
            3,
            &["/registry/others/a".to_owned(), "/registry/others/b".to_owned()][..]
        )
    );
    // Also when an interrupted way back has begun to write.
    raise_revision(&etcd.source, imported + 50, &reporter()).await.unwrap();
    assert_eq!(written_since(&etcd.source, imported, 2).await.unwrap(), seen);
    let outcome = copy_back(&file, &etcd.source, &reporter()).await.unwrap();
    assert_eq!(outcome.others.count, 4, "{:?}", outcome.others);
    for key in ["/registry/others/a", "/registry/others/b", "calico/c"] {
        assert!(
            outcome.others.first.iter().any(|named| named == key),
            "{:?}",
            outcome.others
        );
    }
    let before: Vec<_> = before.into_iter().filter(|record| record.key != kept.key).collect();
    assert_moved_back(&client, &before, &file, &outcome).await;
    // Once more: all is as the store has it.
    assert_eq!(
        copy_back(&file, &etcd.source, &reporter()).await.unwrap().others.count,
        0
    );
}
