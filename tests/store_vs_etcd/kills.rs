//! kill -9 under load: nothing acknowledged is lost, no revision goes back. The same loop runs on etcd first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quantykube_etcd_api::*;
use tokio::sync::Mutex;

use crate::calls::make::*;
use crate::servers::{Kind, Running, block_on};

/// Writers at once.
const WRITERS: usize = 24;

/// What one writer knows of its key.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The last number whose write was acknowledged, and its revision.
    acknowledged: (u64, i64),
    /// The last number that was sent.
    sent: u64,
}

async fn write(
    running: &Running,
    known: &Arc<Vec<Mutex<Known>>>,
    acknowledged: &Arc<AtomicUsize>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut clients = running.clients().await;
        let (known, acknowledged) = (Arc::clone(known), Arc::clone(acknowledged));
        writers.push(tokio::spawn(async move {
            loop {
                let mut mine = known[writer].lock().await;
                mine.sent += 1;
                let number = mine.sent;
                let value = format!("{number} {}", "v".repeat(200 + (number % 7) as usize * 300));
                let request = put(&format!("writer{writer}"), &value);
                // Every fifth goes as the API server writes: only over the revision it knows.
                let revision = if number.is_multiple_of(5) && mine.acknowledged.0 + 1 == number {
                    let compare = vec![mod_is(&format!("writer{writer}"), mine.acknowledged.1)];
                    match clients.kv.txn(txn(compare, vec![Request::Put(request)], vec![])).await {
                        Ok(response) => {
                            let response = response.into_inner();
                            assert!(response.succeeded, "someone else wrote key {writer}");
                            response.header
                        }
                        Err(_) => return,
                    }
                } else {
                    match clients.kv.put(request).await {
                        Ok(response) => response.into_inner().header,
                        Err(_) => return,
                    }
                };
                let revision = revision.expect("a header").revision;
                assert!(
                    revision > mine.acknowledged.1,
                    "revision {revision} after {}",
                    mine.acknowledged.1
                );
                mine.acknowledged = (number, revision);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    writers
}

fn kill_loop(kind: Kind, rounds: usize) {
    let mut running = Running::fresh(kind, &[]);
    block_on(async {
        let known: Arc<Vec<Mutex<Known>>> = Arc::new((0..WRITERS).map(|_| Mutex::default()).collect());
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let mut head = 1;
        let mut compacted = 0;
        for round in 0..rounds {
            let before = acknowledged.load(Ordering::Relaxed);
            let writers = write(&running, &known, &acknowledged).await;
            // Long enough for some writes, then at a moment of no one's choosing.
            while acknowledged.load(Ordering::Relaxed) < before + 200 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if round % 3 == 1 {
                let mut clients = running.clients().await;
                compacted = head;
                let compaction = CompactionRequest {
                    revision: head,
                    physical: false,
                };
                let _ = clients.kv.compact(compaction).await;
            }
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..150))).await;
            running.kill();
            for writer in writers {
                writer.await.expect("a writer ends well");
            }
            running.restart();
            let mut clients = running.clients().await;
            let response = clients
                .kv
                .range(range("writer", "writes"))
                .await
                .expect("a read")
                .into_inner();
            let now = response.header.expect("a header").revision;
            let found: HashMap<&[u8], &KeyValue> = response.kvs.iter().map(|kv| (&kv.key[..], kv)).collect();
            for (writer, known) in known.iter().enumerate() {
                let mut known = known.lock().await;
                let Some(kv) = found.get(format!("writer{writer}").as_bytes()) else {
                    assert_eq!(known.acknowledged.0, 0, "{kind:?}: key {writer} is lost");
                    continue;
                };
                let text = std::str::from_utf8(&kv.value).expect("text");
                let number: u64 = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
                assert!(
                    number >= known.acknowledged.0 && number <= known.sent,
                    "{kind:?}: key {writer} has {number}; {} was acknowledged, {} sent",
                    known.acknowledged.0,
                    known.sent
                );
                assert!(
                    kv.mod_revision >= known.acknowledged.1 && kv.mod_revision <= now,
                    "{kind:?}: key {writer}"
                );
                if number == known.acknowledged.0 {
                    assert_eq!(kv.mod_revision, known.acknowledged.1, "{kind:?}: key {writer} moved");
                }
                known.acknowledged = (number, kv.mod_revision);
                known.sent = number;
            }
            assert!(now >= head, "{kind:?}: revision {now} after {head}");
            head = now;
        }
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        println!(
            "{kind:?}: {rounds} kills, {acknowledged} acknowledged writes, revision {head}, compacted {compacted}"
        );
        assert!(acknowledged >= rounds * 200, "the load ran");
    });
}

#[test]
fn etcd_keeps_what_it_acknowledged() {
    kill_loop(Kind::Etcd, 2);
}

/// QUANTYKUBE_STORE_KILLS says how many kills; `scripts/test --long` takes 200.
#[test]
fn the_store_keeps_what_it_acknowledged() {
    let kills = std::env::var("QUANTYKUBE_STORE_KILLS").unwrap_or_else(|_| "10".to_owned());
    kill_loop(Kind::Store, kills.parse().expect("QUANTYKUBE_STORE_KILLS is a number"));
}

/// A watch that is resumed after a kill sees every revision exactly once.
#[test]
fn a_resumed_watch_misses_nothing_over_a_kill() {
    let mut running = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let mut told = 1;
        for _ in 0..3 {
            let mut clients = running.clients().await;
            let first = crate::watches::create("\0", "\0", |r| r.start_revision = told + 1);
            let mut stream = crate::watches::Stream::open(&mut clients, first).await;
            assert!(stream.next().await.created);
            let mut kv = clients.kv.clone();
            let writer = tokio::spawn(async move {
                let mut n = 0;
                while kv.put(put("k", &n.to_string())).await.is_ok() {
                    n += 1;
                }
                n
            });
            let from = told;
            while told < from + 100 {
                for event in stream.next().await.events {
                    let at = event.kv.expect("a key").mod_revision;
                    assert_eq!(at, told + 1, "the next revision");
                    told = at;
                }
            }
            running.kill();
            assert!(writer.await.expect("the writer ends") >= 99);
            running.restart();
        }
        let mut clients = running.clients().await;
        let head = clients
            .kv
            .range(range("k", ""))
            .await
            .expect("a read")
            .into_inner()
            .header
            .expect("a header")
            .revision;
        assert!(head >= told, "a watch was shown revision {told}, the store has {head}");
    });
}

/// SIGTERM is a clean end: in time, exit code 0, and everything is there afterwards.
#[test]
fn a_clean_stop_under_load() {
    let mut running = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let known: Arc<Vec<Mutex<Known>>> = Arc::new((0..WRITERS).map(|_| Mutex::default()).collect());
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let writers = write(&running, &known, &acknowledged).await;
        let mut clients = running.clients().await;
        let mut stream = crate::watches::Stream::open(&mut clients, crate::watches::create("a", "", |_| ())).await;
        assert!(stream.next().await.created);
        while acknowledged.load(Ordering::Relaxed) < 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let status = tokio::task::spawn_blocking(move || {
            let status = running.server.stop(Duration::from_secs(10));
            (status, running)
        });
        let (status, mut stopped) = status.await.expect("it stops");
        assert_eq!(status.code(), Some(0), "{}", stopped.server.log_end());
        for writer in writers {
            writer.await.expect("a writer ends well");
        }
        stopped.restart();
        let mut clients = stopped.clients().await;
        for (writer, known) in known.iter().enumerate() {
            let known = known.lock().await;
            let read = clients
                .kv
                .range(range(&format!("writer{writer}"), ""))
                .await
                .expect("a read")
                .into_inner();
            let revision = read.kvs.first().map_or(0, |kv| kv.mod_revision);
            assert!(revision >= known.acknowledged.1, "key {writer} lost its last write");
        }
    });
}

/// Bugs 5, 6 and 31 of others: compacted at the head, killed, started again: the revision stays, what can be read stays.
fn compacted_at_the_head(kind: Kind) {
    let mut running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        clients.kv.put(put("a", "1")).await.expect("a put");
        clients.kv.delete_range(delete("a", "")).await.expect("a delete");
        let compaction = CompactionRequest {
            revision: 3,
            physical: true,
        };
        clients.kv.compact(compaction).await.expect("a compaction");
        for _ in 0..2 {
            running.kill();
            running.restart();
        }
        let mut clients = running.clients().await;
        let at = |revision| RangeRequest {
            revision,
            ..range("a", "")
        };
        let read = clients
            .kv
            .range(at(3))
            .await
            .expect("a read at the compacted revision")
            .into_inner();
        assert_eq!(
            (read.count, read.header.expect("a header").revision),
            (0, 3),
            "{kind:?}"
        );
        let status = clients.kv.range(at(2)).await.expect_err("a read before it");
        assert_eq!(
            status.message(),
            "etcdserver: mvcc: required revision has been compacted",
            "{kind:?}"
        );
        let first = crate::watches::create("a", "", |r| r.start_revision = 3);
        let mut stream = crate::watches::Stream::open(&mut clients, first).await;
        assert!(stream.next().await.created);
        let put = clients.kv.put(put("a", "2")).await.expect("a put").into_inner();
        assert_eq!(put.header.expect("a header").revision, 4, "{kind:?}");
        // The delete at the compacted revision itself is still told.
        let mut events = Vec::new();
        while events.len() < 2 {
            events.extend(stream.next().await.events);
        }
        let told: Vec<(i32, i64)> = events
            .iter()
            .map(|e| (e.r#type, e.kv.as_ref().expect("a key").mod_revision))
            .collect();
        assert_eq!(
            told,
            [(EventType::Delete as i32, 3), (EventType::Put as i32, 4)],
            "{kind:?}"
        );
    });
}

#[test]
fn etcd_keeps_its_revision_when_compacted_at_the_head() {
    compacted_at_the_head(Kind::Etcd);
}

#[test]
fn the_store_keeps_its_revision_when_compacted_at_the_head() {
    compacted_at_the_head(Kind::Store);
}
