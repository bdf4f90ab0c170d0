//! Watches on both servers: replies and events compared. How events of different revisions are grouped into responses is
//! a server's own affair; all events of one revision must be in one response, or in fragments that follow each other.

use std::time::Duration;

use quantykube_etcd_api::*;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::calls::make::*;
use crate::calls::{Call, blank, both};
use crate::servers::{Clients, block_on, pair};

/// How long an answer may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A watch stream of one server.
pub struct Stream {
    sender: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

/// What a watch has shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Its events, in order.
    pub events: Vec<Event>,
    /// Its last reply, if it was cancelled.
    pub canceled: Option<WatchResponse>,
}

impl Stream {
    /// Opens a stream. Its first request goes with it: a server may answer a call only then.
    pub async fn open(clients: &mut Clients, first: WatchRequest) -> Stream {
        let (sender, receiver) = mpsc::channel(64);
        sender.send(first).await.expect("the receiver is here");
        let responses = clients
            .watch
            .watch(ReceiverStream::new(receiver))
            .await
            .expect("a watch stream");
        Stream {
            sender,
            responses: responses.into_inner(),
        }
    }

    /// Sends a request.
    pub async fn send(&self, request: WatchRequest) {
        self.sender.send(request).await.expect("the stream is open");
    }

    /// The next response, ids and term blanked. A cancellation by compaction has no revision in its header.
    pub async fn next(&mut self) -> WatchResponse {
        let response = tokio::time::timeout(PATIENCE, self.responses.message()).await;
        let mut response = response
            .expect("a response in time")
            .expect("the stream lives")
            .expect("the stream goes on");
        blank(&mut response.header);
        response
    }

    /// Whether nothing comes for a while.
    pub async fn is_silent(&mut self, time: Duration) -> Option<WatchResponse> {
        match tokio::time::timeout(time, self.responses.message()).await {
            Err(_) => None,
            Ok(response) => response.expect("the stream lives"),
        }
    }

    /// Reads until the watch is known to have been shown everything up to `revision`, or is cancelled. Checks on the way
    /// that no revision is torn apart, that revisions ascend and that headers never run ahead.
    pub async fn read_to(&mut self, revision: i64) -> Seen {
        let mut seen = Seen::default();
        let (mut told, mut fragment) = (0, false);
        loop {
            self.send(progress()).await;
            let wait = Duration::from_millis(200);
            let Ok(response) = tokio::time::timeout(wait, self.responses.message()).await else {
                continue;
            };
            let mut response = response.expect("the stream lives").expect("the stream goes on");
            if response.canceled {
                blank(&mut response.header);
                seen.canceled = Some(response);
                return seen;
            }
            let header = response.header.as_ref().expect("a header").revision;
            if response.created {
                continue;
            }
            for event in &response.events {
                let at = event.kv.as_ref().expect("a key").mod_revision;
                assert!(
                    at > told || fragment,
                    "revision {at} after {told} was told: {response:?}"
                );
                assert!(at <= header, "an event of revision {at} under header {header}");
            }
            fragment = response.fragment;
            if !fragment {
                told = told.max(header);
            }
            seen.events.extend(response.events);
            if told >= revision && !fragment {
                return seen;
            }
        }
    }
}

/// A request for a watch.
pub fn create(key: &str, end: &str, change: impl FnOnce(&mut WatchCreateRequest)) -> WatchRequest {
    let mut request = WatchCreateRequest {
        key: bytes(key),
        range_end: bytes(end),
        ..Default::default()
    };
    change(&mut request);
    WatchRequest {
        request_union: Some(WatchRequestUnion::Create(request)),
    }
}

/// A request to cancel a watch.
pub fn cancel(watch_id: i64) -> WatchRequest {
    WatchRequest {
        request_union: Some(WatchRequestUnion::Cancel(WatchCancelRequest { watch_id })),
    }
}

/// A request for progress.
pub fn progress() -> WatchRequest {
    WatchRequest {
        request_union: Some(WatchRequestUnion::Progress(WatchProgressRequest {})),
    }
}

/// Both servers with a stream each.
struct Two {
    etcd: Clients,
    store: Clients,
    streams: [Stream; 2],
}

impl Two {
    async fn open(etcd: Clients, store: Clients, first: WatchRequest) -> Two {
        let (mut etcd, mut store) = (etcd, store);
        let streams = [
            Stream::open(&mut etcd, first.clone()).await,
            Stream::open(&mut store, first).await,
        ];
        Two { etcd, store, streams }
    }

    async fn call(&mut self, call: Call) {
        both(&mut self.etcd, &mut self.store, "between", call)
            .await
            .expect("a call that works");
    }

    async fn send(&mut self, request: WatchRequest) {
        for stream in &self.streams {
            stream.send(request.clone()).await;
        }
    }

    /// The next response of both, which must be the same.
    async fn same(&mut self, what: &str) -> WatchResponse {
        let expected = self.streams[0].next().await;
        let found = self.streams[1].next().await;
        assert!(found == expected, "{what}:\n etcd {expected:?}\nstore {found:?}");
        found
    }

    async fn silent(&mut self, what: &str) {
        for stream in &mut self.streams {
            let response = stream.is_silent(Duration::from_millis(300)).await;
            assert!(response.is_none(), "{what}: {response:?}");
        }
    }

    async fn history(&mut self, what: &str, revision: i64) -> Seen {
        let expected = self.streams[0].read_to(revision).await;
        let found = self.streams[1].read_to(revision).await;
        assert!(found == expected, "{what}:\n etcd {expected:?}\nstore {found:?}");
        found
    }
}

fn set(key: &str, value: &str) -> Call {
    Call::Put(put(key, value))
}

#[test]
fn replies_to_every_request() {
    let (etcd, store) = pair(&[]);
    block_on(async {
        let mut two = Two::open(etcd.clients().await, store.clients().await, create("a", "", |_| ())).await;
        two.same("created with the first id").await;
        two.send(create("a", "b", |_| ())).await;
        two.same("created with the second id").await;
        two.send(create("a", "", |request| request.watch_id = 5)).await;
        two.same("created with an id of one's own").await;
        two.send(create("a", "", |request| request.watch_id = 5)).await;
        two.same("a duplicate id").await;
        two.send(create("b", "a", |_| ())).await;
        two.same("an inverted range").await;
        two.send(create("b", "b", |_| ())).await;
        two.same("an empty range").await;
        two.send(create("b", "", |request| request.start_revision = -1)).await;
        two.same("a start below zero").await;
        two.send(create("", "", |_| ())).await;
        two.same("no key").await;
        two.send(create("", "\0", |_| ())).await;
        two.same("all keys").await;
        two.send(progress()).await;
        two.same("progress").await;
        two.send(cancel(77)).await;
        two.silent("cancelling what is not there").await;
        two.send(cancel(5)).await;
        two.same("cancelled").await;
        two.send(cancel(5)).await;
        two.silent("cancelling twice").await;
        two.call(set("x", "1")).await;
        two.same("an event for the watch of all keys alone").await;
        two.silent("and for no other").await;
        two.send(create("f", "", |request| request.start_revision = 4)).await;
        two.same("a watch of the future").await;
        two.send(progress()).await;
        two.silent("progress with a watch of the future").await;
        two.send(cancel(3)).await;
        two.same("the watch of all keys ends").await;
        two.call(set("f", "too early")).await;
        two.silent("before its start").await;
        two.call(set("f", "now")).await;
        two.same("from its start on").await;
        two.send(WatchRequest { request_union: None }).await;
        two.silent("a request that holds nothing").await;
    });
}

#[test]
fn events_as_they_happen() {
    let (etcd, store) = pair(&[]);
    block_on(async {
        let all = |change: fn(&mut WatchCreateRequest)| create("\0", "\0", change);
        let mut two = Two::open(etcd.clients().await, store.clients().await, all(|r| r.prev_kv = true)).await;
        two.same("created").await;
        two.call(set("a", "1")).await;
        two.same("a create has nothing before it").await;
        two.call(set("a", "2")).await;
        two.same("an update has").await;
        two.call(Call::Grant(grant(7, 60))).await;
        two.call(Call::Put(PutRequest {
            lease: 7,
            ..put("l", "1")
        }))
        .await;
        two.same("a lease").await;
        let requests = vec![
            Request::Put(put("b", "1")),
            Request::DeleteRange(delete("a", "")),
            Request::Put(put("c", "1")),
        ];
        two.call(Call::Txn(txn(vec![], requests, vec![]))).await;
        two.same("a txn in one response").await;
        let requests = vec![Request::DeleteRange(delete("b", "\0")), Request::Put(put("c", "2"))];
        two.call(Call::Txn(txn(vec![], requests, vec![]))).await;
        two.same("a key deleted and put in one revision").await;
        two.call(Call::Put(PutRequest {
            lease: 7,
            ..put("l", "1")
        }))
        .await;
        two.same("attached again").await;
        two.call(Call::Revoke(LeaseRevokeRequest { id: 7 })).await;
        two.same("a revoked lease").await;
        two.call(Call::Delete(delete("nothing", ""))).await;
        two.silent("nothing was deleted").await;
        two.send(all(|r| r.filters = vec![FilterType::NoPut as i32])).await;
        two.same("created").await;
        two.send(all(|r| r.filters = vec![FilterType::NoDelete as i32])).await;
        two.same("created").await;
        two.send(all(|r| {
            r.filters = vec![FilterType::NoDelete as i32, FilterType::NoPut as i32]
        }))
        .await;
        two.same("created").await;
        two.send(cancel(0)).await;
        two.same("cancelled").await;
        two.call(set("d", "1")).await;
        two.same("a put for one filter").await;
        two.call(Call::Delete(delete("d", ""))).await;
        two.same("a delete for the other").await;
        two.silent("and nothing more").await;
    });
}

#[test]
fn history_and_compaction() {
    let (etcd, store) = pair(&[]);
    block_on(async {
        let (mut etcd, mut store) = (etcd.clients().await, store.clients().await);
        let mut revision = 1;
        for round in 0..40 {
            for key in ["a", "ab", "b"] {
                both(&mut etcd, &mut store, "fill", set(key, &format!("{round}")))
                    .await
                    .expect("a put");
                revision += 1;
            }
            both(&mut etcd, &mut store, "fill", Call::Delete(delete("ab", "")))
                .await
                .expect("a delete");
            revision += 1;
        }
        // Each from 2 on, then from the compacted revision itself (a delete among them), then from before it.
        let starts = [2, 3, 77, revision - 3, revision];
        let ranges = [("\0", "\0"), ("a", ""), ("a", "b"), ("ab", ""), ("b", "\0")];
        for (key, end) in ranges {
            for start in starts {
                let request = create(key, end, |r| (r.start_revision, r.prev_kv) = (start, true));
                let mut two = Two::open(etcd.clone(), store.clone(), request).await;
                two.same("created").await;
                two.history(&format!("{key:?} {end:?} from {start}"), revision).await;
            }
        }
        let compacted = 77;
        let compaction = CompactionRequest {
            revision: compacted,
            physical: true,
        };
        both(&mut etcd, &mut store, "compact", Call::Compact(compaction))
            .await
            .expect("a compaction");
        for start in compacted - 2..compacted + 3 {
            let request = create("\0", "\0", |r| (r.start_revision, r.prev_kv) = (start, true));
            let mut two = Two::open(etcd.clone(), store.clone(), request).await;
            two.same("created").await;
            let seen = two
                .history(&format!("from {start} after compaction at {compacted}"), revision)
                .await;
            assert_eq!(seen.canceled.is_some(), start < compacted, "{seen:?}");
        }
        let mut two = Two::open(etcd.clone(), store.clone(), create("a", "", |r| r.start_revision = 1)).await;
        two.same("created").await;
        two.same("compacted").await;
        two.send(create("a", "", |r| r.watch_id = 9)).await;
        two.same("the stream goes on").await;
        two.send(cancel(0)).await;
        two.same("a compacted watch may be cancelled").await;
    });
}

#[test]
fn large_responses_in_pieces() {
    let (etcd, store) = pair(&[]);
    block_on(async {
        let (mut etcd, mut store) = (etcd.clients().await, store.clients().await);
        let request = create("\0", "\0", |r| (r.fragment, r.prev_kv) = (true, true));
        let mut two = Two::open(etcd.clone(), store.clone(), request).await;
        two.same("created").await;
        let value = "v".repeat(700_000);
        for round in 0..3 {
            for key in ["a", "b", "c", "d", "e"] {
                both(&mut etcd, &mut store, "fill", set(key, &format!("{value}{round}")))
                    .await
                    .expect("a put");
            }
        }
        both(&mut etcd, &mut store, "delete", Call::Delete(delete("\0", "\0")))
            .await
            .expect("a delete");
        let expected = two.streams[0].read_to(17).await;
        let found = two.streams[1].read_to(17).await;
        assert_eq!(found.events.len(), 20);
        assert!(found == expected, "the events are the same");
    });
}

/// A reader that does not read costs nobody an event, and the server no memory (bug 35 of other servers: a full channel
/// of 256 drops).
#[test]
fn a_slow_reader_misses_nothing() {
    let (_, store) = pair(&[]);
    block_on(async {
        let mut clients = store.clients().await;
        let mut other = store.clients().await;
        let first = create("k", "l", |r| (r.prev_kv, r.progress_notify) = (true, true));
        let mut slow = Stream::open(&mut clients, first).await;
        assert!(slow.next().await.created);
        let value = "v".repeat(4000);
        let writes = 6000;
        let mut waiting = tokio::task::JoinSet::new();
        for writer in 0..20 {
            let (mut kv, value) = (other.kv.clone(), value.clone());
            waiting.spawn(async move {
                for n in 0..writes / 20 {
                    kv.put(put(&format!("k{writer}"), &format!("{n} {value}")))
                        .await
                        .expect("a put");
                }
            });
        }
        waiting.join_all().await;
        let head = other
            .kv
            .range(range("k", ""))
            .await
            .expect("a read")
            .into_inner()
            .header
            .expect("a header")
            .revision;
        assert_eq!(head, writes + 1);
        let resident = resident_mib(store.server.pid());
        assert!(
            resident < 300,
            "the server holds {resident} MiB for a reader that does not read"
        );
        let seen = slow.read_to(head).await;
        assert_eq!(seen.events.len() as i64, writes);
        let revisions: Vec<i64> = seen
            .events
            .iter()
            .map(|event| event.kv.as_ref().expect("a key").mod_revision)
            .collect();
        assert!(
            revisions.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "every revision, in order"
        );
        let without = seen.events.iter().filter(|event| event.prev_kv.is_none()).count();
        assert_eq!(without, 20, "only what was created had nothing before it");
    });
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    kib / 1024
}

/// Bug 1: progress must never run ahead of events. Bug 2: many slow watches on one stream, compaction running.
#[test]
fn progress_never_runs_ahead_and_watches_on_one_stream_all_end_well() {
    let (_, store) = pair(&[]);
    block_on(async {
        let clients = store.clients().await;
        let mut reader = store.clients().await;
        let backlog = 3000;
        let fill = |mut kv: kv_client::KVClient<tonic::transport::Channel>, count: i64| async move {
            for n in 0..count {
                kv.put(put(&format!("hot{}", n % 3), &n.to_string()))
                    .await
                    .expect("a put");
            }
        };
        fill(clients.kv.clone(), backlog).await;
        let first = create("hot", "hou", |r| (r.start_revision, r.prev_kv) = (2, true));
        let mut stream = Stream::open(&mut reader, first).await;
        for _ in 1..100 {
            stream.send(create("hot", "hou", |r| r.start_revision = 2)).await;
        }
        let writer = tokio::spawn(fill(clients.kv.clone(), 500));
        let head = backlog + 500 + 1;
        let mut told = [1i64; 100];
        let mut canceled = [false; 100];
        let mut promised = 0;
        let mut compactor = clients.kv.clone();
        let mut responses = 0;
        while (0..100).any(|watch| !canceled[watch] && told[watch] < head) {
            let response = stream.next().await;
            responses += 1;
            if responses % 50 == 0 {
                stream.send(progress()).await;
            }
            if responses == 2000 {
                let revision = 1500;
                let compaction = CompactionRequest {
                    revision,
                    physical: false,
                };
                compactor.compact(compaction).await.expect("a compaction");
            }
            if response.created {
                continue;
            }
            let header = response.header.as_ref().expect("a header").revision;
            if response.watch_id == -1 {
                promised = promised.max(header);
                continue;
            }
            let watch = response.watch_id as usize;
            if response.canceled {
                assert!(response.compact_revision > 0, "{response:?}");
                canceled[watch] = true;
                continue;
            }
            for event in &response.events {
                let at = event.kv.as_ref().expect("a key").mod_revision;
                assert_eq!(at, told[watch] + 1, "watch {watch} misses nothing");
                assert!(at > promised, "revision {at} came after progress {promised}");
                told[watch] = at;
            }
        }
        writer.await.expect("the writer ends");
        let ended = canceled.iter().filter(|canceled| **canceled).count();
        println!("{responses} responses, {ended} watches ended by compaction");
    });
}

#[test]
fn periodic_progress() {
    let (_, store) = pair(&["--watch-progress-notify-interval", "200ms"]);
    block_on(async {
        let mut clients = store.clients().await;
        let mut stream = Stream::open(&mut clients, create("a", "", |r| r.progress_notify = true)).await;
        assert!(stream.next().await.created);
        stream.send(create("b", "", |_| ())).await;
        assert!(stream.next().await.created);
        let begun = std::time::Instant::now();
        for _ in 0..3 {
            let response = stream.next().await;
            assert_eq!(
                (response.watch_id, response.events.len()),
                (0, 0),
                "only the watch that asked is told"
            );
            assert_eq!(response.header.expect("a header").revision, 1);
        }
        assert!(
            begun.elapsed() >= Duration::from_millis(550),
            "after {:?}",
            begun.elapsed()
        );
        clients.kv.put(put("other", "1")).await.expect("a put");
        let response = stream.next().await;
        assert_eq!(
            response.header.expect("a header").revision,
            2,
            "progress tells of writes elsewhere"
        );
    });
}
