//! A seeded random stream of requests to both, with watches running beside it.

use quantykube_etcd_api::*;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::calls::make::*;
use crate::calls::{Call, both};
use crate::servers::{Clients, Kind, Running, block_on};
use crate::watches::{Stream, create};

/// Requests of one run.
const REQUESTS: usize = 4000;

/// Few keys, so that requests meet; no more than 12, for beyond that the order of equal keys in a sorted answer is
/// etcd's accident.
const KEYS: [&str; 12] = ["a", "aa", "ab", "abc", "b", "ba", "c", "ca", "d", "da", "z", "zz"];

/// What random requests know of the servers.
struct World {
    rng: SmallRng,
    head: i64,
    compacted: i64,
}

impl World {
    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn key(&mut self) -> String {
        if self.chance(60) {
            return String::new();
        }
        KEYS[self.rng.random_range(0..KEYS.len())].to_owned()
    }

    fn end(&mut self, key: &str) -> String {
        match self.rng.random_range(0..10) {
            0..=4 => String::new(),
            5..=6 => match key.as_bytes() {
                [] => String::new(),
                [head @ .., last] => {
                    let mut end = head.to_vec();
                    end.push(last + 1);
                    String::from_utf8(end).expect("all keys are ASCII")
                }
            },
            7 => "\0".to_owned(),
            _ => self.key(),
        }
    }

    fn value(&mut self) -> String {
        match self.rng.random_range(0..8) {
            0 => String::new(),
            1 => "v".repeat(self.rng.random_range(20..300)),
            _ => self.rng.random_range(0..5).to_string(),
        }
    }

    fn revision(&mut self) -> i64 {
        match self.rng.random_range(0..12) {
            0..=5 => 0,
            6 => self.head,
            7 => self.compacted,
            8 => self.compacted - 1,
            9 => self.head + 1,
            10 if self.chance(4) => -1,
            _ => self.rng.random_range(self.compacted.max(1)..=self.head),
        }
    }

    fn lease(&mut self) -> i64 {
        self.rng.random_range(1..6)
    }

    fn range(&mut self) -> RangeRequest {
        let key = self.key();
        let end = self.end(&key);
        let mut request = range(&key, &end);
        request.revision = self.revision();
        if self.chance(3) {
            request.limit = self.rng.random_range(-1..5);
        }
        if self.chance(4) {
            request.sort_order = self.rng.random_range(0..3);
            request.sort_target = self.rng.random_range(0..5);
        }
        request.keys_only = self.chance(8);
        request.count_only = self.chance(8);
        request.serializable = self.chance(4);
        for bound in [
            &mut request.min_mod_revision,
            &mut request.max_mod_revision,
            &mut request.min_create_revision,
            &mut request.max_create_revision,
        ] {
            if self.rng.random_range(0..12) == 0 {
                *bound = self.rng.random_range(0..=self.head + 1);
            }
        }
        request
    }

    fn put(&mut self) -> PutRequest {
        let (key, value) = (self.key(), self.value());
        let mut request = put(&key, &value);
        request.prev_kv = self.chance(3);
        if self.chance(5) {
            request.lease = self.lease();
        }
        if self.chance(12) {
            request.ignore_value = true;
            if !self.chance(5) {
                request.value.clear();
            }
        }
        if self.chance(12) {
            request.ignore_lease = true;
            if !self.chance(5) {
                request.lease = 0;
            }
        }
        request
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let key = self.key();
        let end = self.end(&key);
        DeleteRangeRequest {
            prev_kv: self.chance(2),
            ..delete(&key, &end)
        }
    }

    fn compare(&mut self) -> Compare {
        let key = self.key();
        let end = if self.chance(4) { self.end(&key) } else { String::new() };
        let target = self.rng.random_range(0..5);
        let union = match target {
            0 => TargetUnion::Version(self.rng.random_range(0..4)),
            1 => TargetUnion::CreateRevision(self.revision()),
            2 => TargetUnion::ModRevision(self.revision()),
            3 => TargetUnion::Value(bytes(&self.value())),
            _ => TargetUnion::Lease(self.rng.random_range(0..3)),
        };
        let mut compare = compare(&key, &end, CompareResult::Equal, CompareTarget::Version, union);
        compare.target = target;
        compare.result = self.rng.random_range(0..4);
        compare
    }

    fn ops(&mut self, depth: u32) -> Vec<RequestOp> {
        let count = self.rng.random_range(0..4);
        let mut ops = Vec::new();
        for _ in 0..count {
            let request = match self.rng.random_range(0..12) {
                0..=3 => Request::Range(self.range()),
                4..=7 => Request::Put(self.put()),
                8..=9 => {
                    let mut delete = self.delete();
                    // Followed by a put that ignores its value, such a delete ends an etcd 3.6 (it panics): not here.
                    if delete.range_end[..] == [0] {
                        delete.range_end.clear();
                    }
                    Request::DeleteRange(delete)
                }
                10 if self.chance(20) => {
                    ops.push(RequestOp { request: None });
                    continue;
                }
                _ if depth > 0 => Request::Txn(self.txn(depth - 1)),
                _ => Request::Range(self.range()),
            };
            ops.push(op(request));
        }
        ops
    }

    fn txn(&mut self, depth: u32) -> TxnRequest {
        let compares = self.rng.random_range(0..3);
        TxnRequest {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: self.ops(depth),
            failure: self.ops(depth),
        }
    }

    fn call(&mut self) -> Call {
        match self.rng.random_range(0..100) {
            0..=24 => Call::Range(self.range()),
            25..=49 => Call::Put(self.put()),
            50..=59 => Call::Delete(self.delete()),
            60..=87 => Call::Txn(self.txn(2)),
            88..=91 => Call::Grant(grant(self.lease(), 1000)),
            92..=93 => Call::Revoke(LeaseRevokeRequest { id: self.lease() }),
            94..=95 => Call::TimeToLive(LeaseTimeToLiveRequest {
                id: self.lease(),
                keys: true,
            }),
            96 => Call::Leases,
            // The hash of a revision that was itself compacted at comes from a cache in etcd, older than the compaction.
            97 => Call::HashKv(if self.chance(2) {
                0
            } else {
                self.rng.random_range(self.compacted + 1..=self.head + 1)
            }),
            _ if self.chance(3) => {
                let revision = match self.rng.random_range(0..6) {
                    // Not at 0: after that, etcd answers hashes at 0 from a cache, with a hash of nothing.
                    0 if self.compacted == 0 => -1,
                    0 => self.compacted,
                    1 => self.head + 1,
                    2 => self.head,
                    _ => self
                        .rng
                        .random_range(self.compacted + 1..=self.head.max(self.compacted + 1)),
                };
                Call::Compact(CompactionRequest {
                    revision,
                    physical: self.chance(2),
                })
            }
            _ => Call::Range(self.range()),
        }
    }
}

/// A watch that runs on both.
struct Pair {
    what: String,
    etcd: Stream,
    store: Stream,
}

async fn watch(etcd: &mut Clients, store: &mut Clients, what: String, request: WatchRequest) -> Pair {
    Pair {
        etcd: Stream::open(etcd, request.clone()).await,
        store: Stream::open(store, request).await,
        what,
    }
}

async fn head(clients: &mut Clients) -> i64 {
    let response = clients.kv.range(range("a", "")).await.expect("a read").into_inner();
    response.header.expect("a header").revision
}

#[test]
fn the_same_random_requests_get_the_same_answers() {
    let seed = match std::env::var("QUANTYKUBE_SEED") {
        Ok(seed) => seed.parse().expect("QUANTYKUBE_SEED is a number"),
        Err(_) => rand::random_range(0..u64::from(u32::MAX)),
    };
    println!("seed {seed} (QUANTYKUBE_SEED={seed} repeats this run)");
    let etcd = Running::fresh(Kind::Etcd, &["--unsafe-no-fsync"]);
    let store = Running::fresh(Kind::Store, &[]);
    block_on(async {
        let (mut etcd, mut store) = (etcd.clients().await, store.clients().await);
        let mut world = World {
            rng: SmallRng::seed_from_u64(seed),
            head: 1,
            compacted: 0,
        };
        let all = create("\0", "\0", |r| r.prev_kv = true);
        let mut watches = vec![watch(&mut etcd, &mut store, "all keys".to_owned(), all).await];
        let (mut refused, mut compactions) = (0, 0);
        for number in 0..REQUESTS {
            let call = world.call();
            let compact = match &call {
                Call::Compact(request) => request.revision,
                _ => 0,
            };
            let answer = both(&mut etcd, &mut store, &format!("seed {seed}, request {number}"), call).await;
            refused += usize::from(answer.is_err());
            if compact > 0 && answer.is_ok() {
                world.compacted = compact;
                compactions += 1;
            }
            world.head = head(&mut store).await;
            if world.chance(250) {
                let key = world.key();
                let end = world.end(&key);
                let start = world.rng.random_range(world.compacted.max(1)..=world.head + 1);
                let what = format!("{key:?} {end:?} from {start}");
                let request = create(&key, &end, |r| (r.start_revision, r.prev_kv) = (start, true));
                let mut pair = watch(&mut etcd, &mut store, what, request).await;
                let (expected, found) = (pair.etcd.next().await, pair.store.next().await);
                assert!(found == expected, "{}:\n etcd {expected:?}\nstore {found:?}", pair.what);
                if found.canceled {
                    continue;
                }
                // Caught up before the next compaction, or etcd may cancel what it had not yet read.
                let head = world.head;
                if start <= head {
                    let (expected, found) = (pair.etcd.read_to(head).await, pair.store.read_to(head).await);
                    assert!(found == expected, "{}:\n etcd {expected:?}\nstore {found:?}", pair.what);
                }
                watches.push(pair);
            }
        }
        assert_eq!(head(&mut etcd).await, world.head);
        let mut events = 0;
        for mut pair in watches {
            // A watch of the future has no progress before its start.
            let (expected, found) = (
                pair.etcd.read_to(world.head).await,
                pair.store.read_to(world.head).await,
            );
            events += found.events.len();
            assert!(found == expected, "{}:\n etcd {expected:?}\nstore {found:?}", pair.what);
        }
        println!(
            "{REQUESTS} requests ({refused} refused by both), {} revisions, {compactions} compactions, {events} events",
            world.head
        );
        assert!(
            refused > REQUESTS / 50 && compactions > 2 && events > REQUESTS / 4,
            "the stream reaches everything"
        );
    });
}
