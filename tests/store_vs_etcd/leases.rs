//! Leases over time: ending, keeping alive, surviving a restart.

use std::time::{Duration, Instant};

use quantykube_etcd_api::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::calls::make::*;
use crate::servers::{Clients, Kind, Running, block_on};
use crate::watches::{Stream, create};

struct KeepAlive {
    sender: mpsc::Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
}

impl KeepAlive {
    async fn open(clients: &mut Clients, id: i64) -> KeepAlive {
        let (sender, receiver) = mpsc::channel(16);
        sender
            .send(LeaseKeepAliveRequest { id })
            .await
            .expect("the receiver is here");
        let answers = clients
            .lease
            .lease_keep_alive(ReceiverStream::new(receiver))
            .await
            .expect("a stream")
            .into_inner();
        KeepAlive { sender, answers }
    }

    async fn answer(&mut self) -> (i64, i64) {
        let answer = self
            .answers
            .message()
            .await
            .expect("the stream lives")
            .expect("an answer");
        (answer.id, answer.ttl)
    }

    async fn ask(&mut self, id: i64) -> i64 {
        self.sender
            .send(LeaseKeepAliveRequest { id })
            .await
            .expect("the stream is open");
        let (found, ttl) = self.answer().await;
        assert_eq!(found, id);
        ttl
    }
}

async fn attached(clients: &mut Clients, key: &str, lease: i64) -> i64 {
    let request = PutRequest { lease, ..put(key, "x") };
    let response = clients.kv.put(request).await.expect("a put").into_inner();
    response.header.expect("a header").revision
}

async fn is_there(clients: &mut Clients, key: &str) -> bool {
    clients
        .kv
        .range(range(key, ""))
        .await
        .expect("a read")
        .into_inner()
        .count
        == 1
}

async fn time_left(clients: &mut Clients, id: i64) -> i64 {
    let request = LeaseTimeToLiveRequest { id, keys: false };
    clients
        .lease
        .lease_time_to_live(request)
        .await
        .expect("an answer")
        .into_inner()
        .ttl
}

/// The same on each server: the keys of a lease go in one revision, in order, and not before their time.
fn ends(kind: Kind) {
    let running = Running::fresh(kind, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let mut stream = Stream::open(&mut clients, create("\0", "\0", |r| r.prev_kv = true)).await;
        assert!(stream.next().await.created);
        clients.lease.lease_grant(grant(7, 2)).await.expect("a lease");
        let begun = Instant::now();
        for key in ["c", "a", "b"] {
            attached(&mut clients, key, 7).await;
            stream.next().await;
        }
        let gone = stream.next().await;
        let passed = begun.elapsed();
        assert!(
            passed >= Duration::from_millis(1900) && passed < Duration::from_secs(6),
            "{kind:?}: {passed:?}"
        );
        let keys: Vec<_> = gone
            .events
            .iter()
            .map(|event| event.kv.as_ref().expect("a key"))
            .collect();
        assert_eq!(
            keys.iter().map(|kv| &kv.key[..]).collect::<Vec<_>>(),
            [b"a", b"b", b"c"],
            "{kind:?}"
        );
        assert!(keys.iter().all(|kv| kv.mod_revision == 5), "{kind:?}: one revision");
        assert!(gone.events.iter().all(|event| event.prev_kv.is_some()));
        assert_eq!(time_left(&mut clients, 7).await, -1);
        // Kept alive: gone is only what is not asked for any more, and after its end an answer says 0.
        clients.lease.lease_grant(grant(8, 2)).await.expect("a lease");
        attached(&mut clients, "kept", 8).await;
        let mut keep = KeepAlive::open(&mut clients, 8).await;
        assert_eq!(keep.answer().await, (8, 2));
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(900)).await;
            assert_eq!(keep.ask(8).await, 2, "{kind:?}");
        }
        assert!(is_there(&mut clients, "kept").await);
        assert_eq!(keep.ask(4711).await, 0, "no such lease is no error");
        clients
            .lease
            .lease_revoke(LeaseRevokeRequest { id: 8 })
            .await
            .expect("revoked");
        assert_eq!(keep.ask(8).await, 0, "{kind:?}: nothing renews what was revoked");
        assert!(!is_there(&mut clients, "kept").await);
    });
}

#[test]
fn keys_end_with_their_lease_on_etcd() {
    ends(Kind::Etcd);
}

#[test]
fn keys_end_with_their_lease_on_the_store() {
    ends(Kind::Store);
}

/// A wanted difference from etcd (bug 11 there): restarts do not lengthen a lease.
#[test]
fn a_deadline_survives_restarts() {
    let mut running = Running::fresh(Kind::Store, &[]);
    let begun = Instant::now();
    block_on(async {
        let mut clients = running.clients().await;
        clients.lease.lease_grant(grant(7, 6)).await.expect("a lease");
        attached(&mut clients, "k", 7).await;
        // Renewed once: the deadline that survives is the new one.
        let mut keep = KeepAlive::open(&mut clients, 7).await;
        assert_eq!(keep.answer().await, (7, 6));
    });
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(2));
        running.kill();
        running.restart();
    }
    block_on(async {
        let mut clients = running.clients().await;
        assert!(is_there(&mut clients, "k").await, "not before its time");
        let left = time_left(&mut clients, 7).await;
        assert!((0..=2).contains(&left), "{left} s left after about 4 of 6");
        while is_there(&mut clients, "k").await {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "it lives on after {:?}",
                begun.elapsed()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(
            begun.elapsed() >= Duration::from_secs(6),
            "gone after {:?}",
            begun.elapsed()
        );
    });
}

/// Many leases that end at once are spread: a put in between does not wait for all of them. One lease with very many
/// keys is one revision all the same.
#[test]
fn many_leases_that_end_at_once_hold_nobody_up() {
    let running = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        let mut waiting = tokio::task::JoinSet::new();
        let leases = 2000;
        for worker in 0..20 {
            let mut clients = clients.clone();
            waiting.spawn(async move {
                for n in 0..leases / 20 {
                    let id = 1 + worker * leases / 20 + n;
                    clients.lease.lease_grant(grant(id, 3)).await.expect("a lease");
                    attached(&mut clients, &format!("many/{id}"), id).await;
                }
            });
        }
        waiting.join_all().await;
        let begun = Instant::now();
        let mut slowest = Duration::ZERO;
        loop {
            let asked = Instant::now();
            clients.kv.put(put("other", "x")).await.expect("a put");
            slowest = slowest.max(asked.elapsed());
            let count = RangeRequest {
                count_only: true,
                ..range("many/", "many0")
            };
            if clients.kv.range(count).await.expect("a count").into_inner().count == 0 {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "leases live on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!("{leases} leases ended, the slowest put beside them took {slowest:?}");
        assert!(slowest < Duration::from_secs(1), "a put took {slowest:?}");
    });
}

/// Bug 25 of others: one lease with very many keys ends in one revision, and writes beside it go on.
#[test]
fn a_huge_lease_ends_in_one_revision() {
    let running = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let mut clients = running.clients().await;
        clients.lease.lease_grant(grant(7, 20)).await.expect("a lease");
        let keys = 20_000;
        for first in (0..keys).step_by(125) {
            let puts = (first..first + 125).map(|n| {
                Request::Put(PutRequest {
                    lease: 7,
                    ..put(&format!("huge/{n}"), "x")
                })
            });
            clients
                .kv
                .txn(txn(vec![], puts.collect(), vec![]))
                .await
                .expect("a txn");
        }
        let count = || RangeRequest {
            count_only: true,
            ..range("huge/", "huge0")
        };
        let before = clients.kv.range(count()).await.expect("a count").into_inner();
        assert_eq!(before.count, keys);
        let mut other = running.clients().await;
        let beside = tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            loop {
                let begun = Instant::now();
                if other.kv.put(put("beside", "x")).await.is_err() {
                    return slowest;
                }
                slowest = slowest.max(begun.elapsed());
                let left = other.kv.range(range("huge/0", "")).await.expect("a read").into_inner();
                if left.count == 0 {
                    return slowest;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        clients
            .lease
            .lease_revoke(LeaseRevokeRequest { id: 7 })
            .await
            .expect("revoked");
        let slowest = beside.await.expect("the writer ends");
        assert_eq!(clients.kv.range(count()).await.expect("a count").into_inner().count, 0);
        println!("{keys} keys went at once, the slowest put beside them took {slowest:?}");
        assert!(slowest < Duration::from_secs(3), "a put took {slowest:?}");
    });
}
