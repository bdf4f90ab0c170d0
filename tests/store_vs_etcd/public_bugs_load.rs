//! Published bugs that need load, time or several connections; see `public_bugs`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quantykube_etcd_api::*;

use crate::calls::make::*;
use crate::public_bugs::{bugs, compacted, longest_put, revision, written};
use crate::servers::{Clients, Kind, Running, block_on};
use crate::watches::{Stream, create, progress};

bugs! {
    bug_01_progress_ahead_of_events;
    bug_02_many_slow_watches_on_one_stream;
    bug_11_deadlines_over_a_restart;
    bug_18_many_large_reads_at_once;
    bug_19_a_watch_beside_large_reads;
    bug_25_one_huge_lease;
}

/// Writes a key `times`, in several connections' worth of requests at once.
async fn fill(clients: &Clients, key: &str, times: usize, value: &str) {
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..10 {
        let (mut clients, key, value) = (clients.clone(), key.to_owned(), value.to_owned());
        let mine = times / 10 + usize::from(part < times % 10);
        tasks.spawn(async move {
            for _ in 0..mine {
                written(&mut clients, &key, &value).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("a writer ends well");
    }
}

async fn exists(clients: &mut Clients, key: &str) -> bool {
    let found = clients.kv.range(range(key, "")).await.expect("a read");
    found.into_inner().count == 1
}

/// etcd#15220: progress that was asked for ran ahead of events, so that clients skipped them.
fn bug_01_progress_ahead_of_events(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        fill(&clients, "k", 2000, "x").await;
        let mut reader = running.clients().await;
        let mut stream = Stream::open(&mut reader, create("k", "l", |r| r.start_revision = 2)).await;
        let other = running.clients().await;
        let writing = tokio::spawn(async move { fill(&other, "k", 1000, "y").await });
        let (mut last, mut told, mut asked) = (1, 0, 0);
        while last < 3001 {
            stream.send(progress()).await;
            asked += 1;
            let response = stream.next().await;
            for event in &response.events {
                let next = event.kv.as_ref().expect("a key").mod_revision;
                assert_eq!(next, last + 1, "{kind:?}");
                assert!(next > told, "{kind:?}: revision {next} after progress to {told}");
                last = next;
            }
            if response.events.is_empty() && !response.created {
                told = revision(&response.header);
            }
        }
        writing.await.expect("it ends well");
        // Asked once more it comes, and is the last event's. etcd answers nothing while a watch catches up: asked again.
        while told < 3001 {
            stream.send(progress()).await;
            if let Ok(response) = tokio::time::timeout(Duration::from_secs(2), stream.next()).await {
                told = revision(&response.header);
            }
        }
        assert_eq!(told, 3001, "{kind:?}: asked {asked} times");
        assert_eq!(written(&mut clients, "k", "z").await, 3002);
    });
}

/// etcd#17529: of many slow watches on one stream some starved and then lost events to compaction.
fn bug_02_many_slow_watches_on_one_stream(kind: Kind) {
    const WATCHES: usize = 100;
    const LAST: i64 = 1501;
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let clients = running.clients().await;
        fill(&clients, "hot", 1000, &"x".repeat(300)).await;
        let mut reader = running.clients().await;
        let watch = || create("hot", "", |r| r.start_revision = 2);
        let mut stream = Stream::open(&mut reader, watch()).await;
        let other = running.clients().await;
        let writing = tokio::spawn(async move {
            for round in 0..5 {
                fill(&other, "hot", 100, "y").await;
                let mut other = other.clone();
                compacted(&mut other, 900 + round * 100, true)
                    .await
                    .expect("a compaction");
            }
        });
        let mut reached: BTreeMap<i64, i64> = BTreeMap::new();
        let (mut ended, mut cancelled, mut created) = (0, 0, 1);
        while ended < WATCHES {
            if created < WATCHES {
                stream.send(watch()).await;
                created += 1;
            }
            let response = stream.next().await;
            if response.canceled {
                let at = reached.get(&response.watch_id).copied().unwrap_or(1);
                assert!(
                    response.compact_revision > at,
                    "{kind:?}: cancelled with {at} told: {response:?}"
                );
                (ended, cancelled) = (ended + 1, cancelled + 1);
            }
            let at = reached.entry(response.watch_id).or_insert(1);
            for event in &response.events {
                let next = event.kv.as_ref().expect("a key").mod_revision;
                assert_eq!(next, *at + 1, "{kind:?}: watch {}", response.watch_id);
                *at = next;
                ended += usize::from(next == LAST);
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        writing.await.expect("it ends well");
        println!("{kind:?}: {cancelled} of {WATCHES} watches were cancelled as compacted, all others told everything");
    });
}

/// etcd#9395, #9888: a restart gave every lease its whole time again. etcd does so by design; the store keeps the deadline.
fn bug_11_deadlines_over_a_restart(kind: Kind) {
    let mut running = Running::fresh(kind, &[]);
    const TTL: u64 = 8;
    let begun = block_on(async {
        let mut clients = running.clients().await;
        let begun = Instant::now();
        clients.lease.lease_grant(grant(7, TTL as i64)).await.expect("a lease");
        let request = PutRequest {
            lease: 7,
            ..put("k", "x")
        };
        clients.kv.put(request).await.expect("a put");
        tokio::time::sleep(Duration::from_secs(TTL / 2)).await;
        begun
    });
    running.kill();
    let restarted = Instant::now();
    running.restart();
    block_on(async {
        let mut clients = running.clients().await;
        assert!(exists(&mut clients, "k").await, "{kind:?}: gone before its time");
        while exists(&mut clients, "k").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "{kind:?}: it never ends");
        }
        let (whole, since) = (begun.elapsed(), restarted.elapsed());
        println!("{kind:?}: a lease of {TTL} s ended {whole:?} after it was granted, {since:?} after the restart");
        assert!(whole >= Duration::from_secs(TTL), "{kind:?}");
        // Which of the two it is: the whole time again, or what was left.
        assert_eq!(
            since >= Duration::from_secs(TTL),
            kind == Kind::Etcd,
            "{kind:?}: {since:?}"
        );
    });
}

/// The most memory that the server has had, in MiB.
fn peak_mib(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.server.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        / 1024
}

/// etcd#12342, k8s#118776: many clients that read everything at once take memory for each. The store makes an answer as it
/// is sent; etcd makes it whole.
fn bug_18_many_large_reads_at_once(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let value = "v".repeat(500_000);
        for number in 0..50 {
            written(&mut clients, &format!("k{number}"), &value).await;
        }
        let before = peak_mib(&running);
        let mut reads = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let mut one = running.clients().await;
            reads.spawn(async move {
                one.kv
                    .range(range("k", "l"))
                    .await
                    .expect("a read")
                    .into_inner()
                    .kvs
                    .len()
            });
        }
        while let Some(read) = reads.join_next().await {
            assert_eq!(read.expect("it ends well"), 50, "{kind:?}");
        }
        let after = peak_mib(&running);
        println!("{kind:?}: at most {after} MiB with 12 reads of 24 MiB at once, {before} MiB before");
        if kind == Kind::Store {
            let answers = 12 * 24;
            assert!(after < before + answers / 2, "{after} MiB, {before} MiB before");
        }
        assert_eq!(written(&mut clients, "after", "x").await, 52, "{kind:?}: it lives");
    });
}

/// etcd#15402: a watch starved behind large reads on the same connection. How long an event took is printed.
fn bug_19_a_watch_beside_large_reads(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let value = "v".repeat(500_000);
        for number in 0..40 {
            written(&mut clients, &format!("large{number}"), &value).await;
        }
        let mut stream = Stream::open(&mut clients, create("small", "", |_| ())).await;
        assert!(stream.next().await.created);
        let mut reads = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let mut kv = clients.kv.clone();
            reads.spawn(async move {
                loop {
                    let read = kv.range(range("large", "largf")).await.expect("a read").into_inner();
                    assert_eq!(read.kvs.len(), 40);
                }
            });
        }
        let mut writer = running.clients().await;
        let mut slowest = Duration::ZERO;
        for number in 0..20 {
            let begun = Instant::now();
            let at = written(&mut writer, "small", &format!("{number}")).await;
            // It comes at all: the stream gives up after its patience.
            while revision(&stream.next().await.header) < at {}
            slowest = slowest.max(begun.elapsed());
        }
        reads.abort_all();
        println!("{kind:?}: the slowest of 20 events beside reads of 20 MB came after {slowest:?}");
    });
}

/// k8s#96836, k8s#110210: a lease with very many keys ended and held everything up.
fn bug_25_one_huge_lease(kind: Kind) {
    const KEYS: i64 = 5000;
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        clients.lease.lease_grant(grant(7, 600)).await.expect("a lease");
        for part in 0..KEYS / 100 {
            let puts = (0..100).map(|n| {
                Request::Put(PutRequest {
                    lease: 7,
                    ..put(&format!("k{}", part * 100 + n), "x")
                })
            });
            clients.kv.txn(txn(vec![], puts.collect(), vec![])).await.expect("puts");
        }
        let mut stream = Stream::open(&mut clients, create("k", "l", |_| ())).await;
        assert!(stream.next().await.created);
        // What the machine does to a put when nothing else goes on.
        let alone = longest_put(&mut clients, "before", 50, || false).await.0;
        let mut other = running.clients().await;
        let revoking = tokio::spawn(async move { other.lease.lease_revoke(LeaseRevokeRequest { id: 7 }).await });
        let longest = longest_put(&mut clients, "beside", 50, || revoking.is_finished())
            .await
            .0;
        revoking.await.expect("it ends").expect("a revocation");
        let mut gone = BTreeMap::new();
        while gone.values().sum::<i64>() < KEYS {
            stream.send(progress()).await;
            for event in stream.next().await.events {
                assert_eq!(event.r#type(), EventType::Delete, "{kind:?}");
                *gone.entry(event.kv.expect("a key").mod_revision).or_insert(0) += 1;
            }
        }
        assert_eq!(gone.len(), 1, "{kind:?}: one revision for all: {gone:?}");
        println!(
            "{kind:?}: {KEYS} keys of one lease went in one revision, the longest of 50 puts beside took {longest:?}, of 50 \
             before it {alone:?}"
        );
    });
}
