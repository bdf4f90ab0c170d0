//! Snapshots while others write and compact, of clients that go away, and of a large store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, CompactionOptions, Txn, TxnOp};
use quantykube_etcd_files::etcd::Database;

use crate::store::Store;
use crate::stream::{Taken, open, rest};

/// Every write of one client: the revision, and what the key was then.
type Written = Vec<(i64, String, Option<Vec<u8>>)>;

/// Writes over a few keys of its own until told to stop.
async fn write(mut client: Client, name: usize, stop: Arc<AtomicBool>) -> Written {
    let mut written = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{name}/{}", number % 97);
        if number % 7 == 3 {
            let deleted = client.delete(key.clone(), None).await.unwrap();
            if deleted.deleted() > 0 {
                written.push((deleted.header().unwrap().revision(), key, None));
            }
        } else {
            let value = format!("{number} ").repeat(200).into_bytes();
            let put = client.put(key.clone(), value.clone(), None).await.unwrap();
            written.push((put.header().unwrap().revision(), key, Some(value)));
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_moment_while_others_write_and_compact() {
    let store = Store::start();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for name in 0..4 {
        let client = store.client().await;
        writers.push(tokio::spawn(write(client, name, Arc::clone(&stop))));
    }
    let mut client = store.client().await;
    // Enough that it does not fit what waits between the server and a client that takes nothing.
    for number in 0..200 {
        client
            .put(format!("ballast/{number}"), vec![b'b'; 100_000], None)
            .await
            .unwrap();
    }
    let mut snapshots = Vec::new();
    for _ in 0..4 {
        let mut stream = open(&store).await;
        let (mut taken, mut bytes) = (Taken::default(), Vec::new());
        for _ in 0..5 {
            let message = stream.message().await.unwrap().unwrap();
            taken.take(&message);
            bytes.extend_from_slice(&message.blob);
        }
        // The stream has begun. Writes and compactions go on, beyond its moment, before the rest is taken.
        let begun = Instant::now();
        let mut compacted = 0;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let head = client.put("tick", "", None).await.unwrap().header().unwrap().revision();
            let physical = CompactionOptions::new().with_physical();
            client.compact(head - 1, Some(physical)).await.unwrap();
            compacted = head - 1;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "writes waited for the snapshot"
        );
        let bytes = rest(stream, &mut taken, bytes).await;
        snapshots.push((compacted, bytes));
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.unwrap());
    }
    written.sort();
    println!("{} writes during {} snapshots", written.len(), snapshots.len());
    for (compacted, bytes) in snapshots {
        let database = Database::open(bytes).unwrap();
        assert!(database.verify_sum().unwrap() && database.check().unwrap().is_sound());
        let head = database.revision().unwrap();
        assert!(head < compacted, "the store was not compacted beyond {head} meanwhile");
        let (last, _, _) = written.last().unwrap();
        assert!(head < *last, "nothing was written after {head}");
        let mut expected = BTreeMap::new();
        for (revision, key, value) in written.iter().filter(|(revision, ..)| *revision <= head) {
            match value {
                Some(value) => expected.insert(key.clone().into_bytes(), (*revision, value.clone())),
                None => expected.remove(key.as_bytes()),
            };
        }
        let live = database.live(None).unwrap();
        let found: BTreeMap<Vec<u8>, (i64, Vec<u8>)> = live
            .records(&database)
            .unwrap()
            .map(Result::unwrap)
            .filter(|record| !record.key.starts_with(b"ballast/") && record.key[..] != *b"tick")
            .map(|record| (record.key.to_vec(), (record.mod_revision, record.value.to_vec())))
            .collect();
        assert!(expected.len() > 100);
        assert!(found == expected, "the keys at {head} are others");
    }
}

/// What the store's file needs, in bytes.
async fn in_use(client: &mut Client) -> u64 {
    client.status().await.unwrap().raft_used_db_size() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_holds_nothing() {
    let store = Store::start();
    let mut client = store.client().await;
    for number in 0..300 {
        client
            .put(format!("{}", number % 3), vec![number as u8; 100_000], None)
            .await
            .unwrap();
    }
    let full = in_use(&mut client).await;
    assert!(full > 25_000_000, "{full}");
    let mut half = Vec::new();
    for number in 0..6 {
        let mut stream = open(&store).await;
        for _ in 0..3 {
            stream.message().await.unwrap().unwrap();
        }
        // Some go at once, some while the store is compacted.
        if number % 2 == 0 {
            half.push(stream);
        }
    }
    let head = client.put("0", "", None).await.unwrap().header().unwrap().revision();
    client.compact(head, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let held = in_use(&mut client).await;
    assert!(held > 25_000_000, "{held} bytes in use: what the streams read is gone");
    drop(half);
    let begun = Instant::now();
    while in_use(&mut client).await > 5_000_000 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the moments of clients that are gone are still held"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut taken = Taken::default();
    rest(open(&store).await, &mut taken, Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_ends_a_snapshot_with_an_error() {
    let mut store = Store::start();
    let mut client = store.client().await;
    for number in 0..100 {
        client
            .put(format!("{number}"), vec![b'x'; 200_000], None)
            .await
            .unwrap();
    }
    let mut stream = open(&store).await;
    let first = stream.message().await.unwrap().unwrap();
    let stopping = tokio::task::spawn_blocking(move || store.server.stop(Duration::from_secs(15)));
    let end = loop {
        match stream.message().await {
            Ok(Some(message)) => assert!(message.remaining_bytes > 0, "all of {first:?} came: it was too small"),
            Ok(None) => panic!("the stream ended as if it were whole"),
            Err(status) => break status,
        }
    };
    println!("{end:?}");
    assert!(stopping.await.unwrap().success());
}

/// The server's anonymous memory in bytes.
fn anonymous(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How much is filled, in steps of 200 MB: `QUANTYKUBE_SNAPSHOT_SIZE=5` makes it a gigabyte.
fn size() -> u64 {
    std::env::var("QUANTYKUBE_SNAPSHOT_SIZE").map_or(1, |size| size.parse().unwrap())
}

/// Memory beyond what the store has anyway: slices on their way, messages, pages, and the records that were picked.
const MEMORY_MAX: u64 = 24 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_bounded_on_two_hundred_megabytes() {
    let store = Store::start();
    let mut filling = Vec::new();
    for part in 0..10 {
        let mut client = store.client().await;
        filling.push(tokio::spawn(async move {
            for number in 0..200 * size() {
                let put = |at: usize| TxnOp::put(format!("{part}/{number}/{at}"), vec![at as u8; 8_000], None);
                client
                    .txn(Txn::new().and_then((0..12).map(put).collect::<Vec<_>>()))
                    .await
                    .unwrap();
                let small = |at: usize| TxnOp::put(format!("small/{part}/{number}/{at}"), "x", None);
                client
                    .txn(Txn::new().and_then((0..20).map(small).collect::<Vec<_>>()))
                    .await
                    .unwrap();
            }
        }));
    }
    for part in filling {
        part.await.unwrap();
    }
    // One half of it at the compacted revision, the other as changes.
    let mut client = store.client().await;
    let head = client.put("0", "", None).await.unwrap().header().unwrap().revision();
    client.compact(head / 2, None).await.unwrap();
    let store = store.restarted();
    // It listens before it has loaded its index.
    store.client().await.get("0", None).await.unwrap();
    let pid = store.server.pid();
    let before = anonymous(pid);
    let mut stream = open(&store).await;
    let (mut taken, mut most) = (Taken::default(), 0);
    while let Some(message) = stream.message().await.unwrap() {
        taken.take(&message);
        // A client that is slow in the beginning lets everything pile up that can.
        if taken.messages < 5 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if taken.messages.is_multiple_of(16) || taken.messages < 6 {
            most = most.max(anonymous(pid));
        }
    }
    assert!(
        taken.is_done() && taken.bytes > 190_000_000 * size(),
        "{} bytes",
        taken.bytes
    );
    let more = most.saturating_sub(before);
    println!(
        "{} MiB of snapshot, {} MiB before, {} MiB more",
        taken.bytes >> 20,
        before >> 20,
        more >> 20
    );
    assert!(more < MEMORY_MAX, "{more} bytes more than the {before} before");
}
