//! What the comparison with a real etcd cannot reach: what is visible when, waiting, falling behind, and time.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use quantykube_etcd_api::*;
use quantykube_store_file::{Identity, Import, Lease, Options, Record, Store};

use super::*;

const IDENTITY: Identity = Identity {
    cluster_id: 1,
    member_id: 2,
    raft_term: 3,
};

const LIMITS: Limits = Limits {
    request_bytes: 1 << 20,
    quota: 0,
};

/// A moment, `seconds` after the beginning, on both clocks.
fn at(seconds: i64) -> Now {
    Now {
        wall: 1_000_000_000 + seconds * 1000,
        steady: 5_000 + seconds * 1000,
    }
}

struct World {
    mvcc: Mvcc,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn options() -> Options {
    Options {
        quota: 0,
        identity: IDENTITY,
    }
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let store = Store::create(&path, options()).unwrap();
    World {
        mvcc: Mvcc::new(store, LIMITS, at(0)),
        path,
        _folder: folder,
    }
}

fn reopen(path: &Path, now: Now) -> Mvcc {
    Mvcc::new(Store::open(path, options()).unwrap(), LIMITS, now)
}

impl World {
    /// Waits until everything is synced, and takes note of it.
    fn sync(&mut self) {
        let begun = Instant::now();
        let whole =
            |mvcc: &Mvcc, durable: Durable| durable.seq >= mvcc.queued && durable.revision >= mvcc.store.revision();
        // Asked from another thread than the writer's, the revision may lag behind the sequence number for a moment.
        while !whole(&self.mvcc, self.mvcc.store.durable()) {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "the writer thread does not sync"
            );
            std::thread::yield_now();
        }
        let durable = self.mvcc.store.durable();
        self.mvcc.advance(durable).unwrap();
    }

    fn put(&mut self, key: &str, value: &str) -> Applied<PutResponse> {
        let request = PutRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
            ..Default::default()
        };
        self.mvcc.put(&request).unwrap()
    }

    fn get(&mut self, key: &str) -> RangeResponse {
        self.mvcc.range(&range(key)).unwrap()
    }

    fn watch(&mut self, stream: StreamId, create: WatchCreateRequest) {
        let request = WatchRequest {
            request_union: Some(WatchRequestUnion::Create(create)),
        };
        self.mvcc.watch_request(stream, request);
    }

    fn next(&mut self, stream: StreamId) -> Option<WatchResponse> {
        let mut context = Context::from_waker(Waker::noop());
        match self.mvcc.watch_next(stream, &mut context) {
            Poll::Ready(outgoing) => outgoing.unwrap().map(|outgoing| outgoing.response),
            Poll::Pending => None,
        }
    }

    /// Everything that waits on a stream.
    fn drain(&mut self, stream: StreamId) -> Vec<WatchResponse> {
        let mut responses = Vec::new();
        let mut idle = 0;
        // A slice of history without an event also gives nothing: ask again before believing it.
        while idle < 100 {
            match self.next(stream) {
                Some(response) => responses.push(response),
                None => idle += 1,
            }
        }
        responses
    }
}

fn range(key: &str) -> RangeRequest {
    RangeRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        ..Default::default()
    }
}

fn everything() -> WatchCreateRequest {
    WatchCreateRequest {
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        prev_kv: true,
        ..Default::default()
    }
}

fn revisions(responses: &[WatchResponse]) -> Vec<i64> {
    let events = responses.iter().flat_map(|response| &response.events);
    events.map(|event| event.kv.as_ref().unwrap().mod_revision).collect()
}

#[test]
fn nobody_sees_what_is_not_synced() {
    let mut world = world();
    let stream = world.mvcc.watch_open();
    world.watch(stream, everything());
    assert!(world.next(stream).unwrap().created);
    let applied = world.put("k", "1");
    assert_eq!(applied.response.header.unwrap().revision, 2);
    assert!(applied.wait > world.mvcc.durable().seq, "the response must wait");
    let read = world.get("k");
    assert_eq!((read.count, read.header.unwrap().revision), (0, 1));
    assert!(world.next(stream).is_none());
    assert!(
        world
            .mvcc
            .range(&RangeRequest {
                revision: 2,
                ..range("k")
            })
            .is_err(),
        "a future revision to readers"
    );

    // A transaction that may write sees the head; refused or not, its answer waits.
    let compare = Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Mod as i32,
        key: Bytes::from_static(b"k"),
        target_union: Some(TargetUnion::ModRevision(0)),
        ..Default::default()
    };
    let write = RequestOp {
        request: Some(Request::Put(PutRequest {
            key: Bytes::from_static(b"k"),
            ..Default::default()
        })),
    };
    let request = TxnRequest {
        compare: vec![compare.clone()],
        success: vec![write],
        failure: vec![],
    };
    let refused = world.mvcc.txn(&request).unwrap();
    assert!(!refused.response.succeeded && refused.response.responses.is_empty());
    assert!(
        refused.wait >= applied.wait,
        "it tells of a write that may still be lost"
    );
    // One that only reads is answered at once, and as readers see it.
    let request = TxnRequest {
        compare: vec![compare],
        ..Default::default()
    };
    let read = world.mvcc.txn(&request).unwrap();
    assert!(read.response.succeeded && read.wait == 0);

    world.sync();
    assert_eq!(world.get("k").count, 1);
    assert_eq!(revisions(&world.drain(stream)), [2]);
}

#[test]
fn a_compaction_waits_for_what_watchers_are_owed() {
    let mut world = world();
    let stream = world.mvcc.watch_open();
    world.watch(stream, everything());
    for value in ["1", "2", "3"] {
        world.put("k", value);
    }
    let request = CompactionRequest {
        revision: 4,
        physical: false,
    };
    assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Later(_))));
    world.sync();
    assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Done(_))));
    assert!(matches!(world.mvcc.compact(&request), Err(Error::Compacted)));
    let responses = world.drain(stream);
    assert_eq!(revisions(&responses), [2, 3, 4]);
    let events: Vec<&Event> = responses.iter().flat_map(|response| &response.events).collect();
    assert!(events[0].prev_kv.is_none());
    assert_eq!(&events[2].prev_kv.as_ref().unwrap().value[..], b"2");
}

#[test]
fn a_large_range_reads_on_at_its_revision_whatever_is_compacted_meanwhile() {
    let mut world = world();
    for n in 0..40 {
        world.put(&format!("large{n:02}"), &"v".repeat(100_000));
    }
    world.sync();
    let request = RangeRequest {
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        ..Default::default()
    };
    let Ok(Range::Listed(mut listed, held)) = world.mvcc.range_begin(&request) else {
        panic!("4 MB in one slice")
    };
    for n in 0..40 {
        world.put(&format!("large{n:02}"), "short");
    }
    world.sync();
    let request = CompactionRequest {
        revision: 81,
        physical: false,
    };
    assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Done(_))));
    let (mut elements, mut slices) = (Vec::new(), 0);
    while !listed.is_done() {
        world.mvcc.list_read(&mut listed, 1_000_000, &mut elements).unwrap();
        while world.mvcc.maintain(Duration::from_millis(50)).unwrap() {
            world.sync();
        }
        slices += 1;
    }
    assert!(slices >= 4, "{slices} slices");
    assert_eq!(elements.len(), listed.elements_len());
    let frame = listed.frame();
    assert_eq!(
        (frame.count, frame.more, frame.header.unwrap().revision),
        (40, false, 41)
    );
    let response = RangeResponse::decode(&elements[..]).unwrap();
    assert_eq!(response.kvs.len(), 40);
    assert!(
        response
            .kvs
            .iter()
            .all(|kv| kv.value.len() == 100_000 && kv.mod_revision <= 41)
    );
    world.mvcc.list_end(held);
}

#[test]
fn a_range_of_more_keys_than_one_slice_is_found_as_in_one_go() {
    let mut world = world();
    for n in 0..4500 {
        world.put(&format!("many{:04}", n % 4400), "v");
    }
    world.sync();
    let requests = [
        (0, 0, 0),
        (3000, 0, 0),
        (0, 0, 2),
        (100, 4000, 1),
        (4399, 0, 0),
        (4400, 0, 0),
        (4401, 0, 0),
    ];
    for (limit, min_mod_revision, sort_order) in requests {
        let request = RangeRequest {
            key: Bytes::from_static(b"many"),
            range_end: Bytes::from_static(b"manz"),
            limit,
            min_mod_revision,
            sort_order,
            ..Default::default()
        };
        let expected = world.mvcc.range(&request).unwrap();
        let Ok(Range::Searching(mut search, held)) = world.mvcc.range_begin(&request) else {
            panic!("{request:?} in one slice")
        };
        while !world.mvcc.list_on(&mut search) {}
        let mut listed = world.mvcc.list_found(*search).unwrap();
        let mut bytes = Vec::new();
        while !listed.is_done() {
            world.mvcc.list_read(&mut listed, 10_000, &mut bytes).unwrap();
        }
        let mut response = RangeResponse::decode(&bytes[..]).unwrap();
        let frame = listed.frame();
        (response.header, response.more, response.count) = (frame.header, frame.more, frame.count);
        assert_eq!(response, expected, "{request:?}");
        world.mvcc.list_end(held);
    }
}

#[test]
fn a_stream_that_does_not_read_falls_behind_and_catches_up() {
    let mut world = world();
    let (slow, quick) = (world.mvcc.watch_open(), world.mvcc.watch_open());
    world.watch(slow, everything());
    world.watch(quick, everything());
    let writes = 3000;
    let mut quickly = Vec::new();
    for n in 0..writes {
        world.put(&format!("k{}", n % 7), "x");
        world.sync();
        quickly.extend(world.drain(quick));
    }
    assert!(
        revisions(&quickly).into_iter().eq(2..writes + 2),
        "every revision, in order"
    );
    let figures = world.mvcc.watch_figures();
    assert_eq!(figures.slow, 1, "the slow one is behind");
    assert!(figures.pending <= 1025, "{} responses wait", figures.pending);

    // Progress is asked for while it is behind: the answer comes after everything.
    let progress = WatchRequest {
        request_union: Some(WatchRequestUnion::Progress(WatchProgressRequest {})),
    };
    world.mvcc.watch_request(slow, progress);
    let slowly = world.drain(slow);
    assert!(
        revisions(&slowly).into_iter().eq(2..writes + 2),
        "every revision, in order"
    );
    let last = slowly.last().unwrap();
    assert_eq!(
        (last.watch_id, last.events.len(), last.header.as_ref().unwrap().revision),
        (-1, 0, writes + 1)
    );
    assert_eq!(world.mvcc.watch_figures().slow, 0);
    let missing = slowly
        .iter()
        .flat_map(|response| &response.events)
        .filter(|event| event.prev_kv.is_none());
    assert_eq!(missing.count(), 7, "only creations have nothing before them");
    for response in &slowly {
        let header = response.header.as_ref().unwrap().revision;
        assert!(
            revisions(std::slice::from_ref(response))
                .iter()
                .all(|revision| *revision <= header)
        );
    }
}

#[test]
fn a_stream_behind_the_compaction_is_told_so() {
    let mut world = world();
    for n in 0..10 {
        world.put("k", &n.to_string());
    }
    world.sync();
    let stream = world.mvcc.watch_open();
    for start_revision in [2, 5, 6] {
        world.watch(
            stream,
            WatchCreateRequest {
                start_revision,
                ..everything()
            },
        );
    }
    for _ in 0..3 {
        assert!(world.next(stream).unwrap().created);
    }
    let request = CompactionRequest {
        revision: 6,
        physical: false,
    };
    world.mvcc.compact(&request).unwrap();
    let responses = world.drain(stream);
    let ended: Vec<_> = responses.iter().filter(|response| response.canceled).collect();
    assert_eq!(
        ended.iter().map(|response| response.watch_id).collect::<Vec<_>>(),
        [0, 1]
    );
    assert!(ended.iter().all(|response| response.compact_revision == 6));
    assert_eq!(
        revisions(&responses),
        [6, 7, 8, 9, 10, 11],
        "the third gets all from the compacted revision on"
    );
    assert_eq!(world.mvcc.watch_figures().watchers, 1);
}

#[test]
fn closing_a_stream_leaves_nothing_behind() {
    let mut world = world();
    for round in 0..3 {
        let stream = world.mvcc.watch_open();
        for n in 0..50 {
            let key = Bytes::from(format!("k{n}"));
            world.watch(
                stream,
                WatchCreateRequest {
                    key,
                    start_revision: round,
                    ..Default::default()
                },
            );
        }
        world.put("k7", "x");
        world.sync();
        world.mvcc.watch_close(stream);
        let figures = world.mvcc.watch_figures();
        assert_eq!(
            (figures.streams, figures.watchers, figures.slow, figures.pending),
            (0, 0, 0, 0)
        );
    }
}

fn grant(world: &mut World, id: i64, ttl: i64, now: Now) {
    let request = LeaseGrantRequest { id, ttl };
    world.mvcc.lease_grant(&request, 0, now).unwrap();
}

fn attach(world: &mut World, key: &str, lease: i64) {
    let request = PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        lease,
        ..Default::default()
    };
    world.mvcc.put(&request).unwrap();
}

#[test]
fn a_lease_ends_by_the_steady_clock_alone() {
    let mut world = world();
    grant(&mut world, 7, 10, at(0));
    attach(&mut world, "k", 7);
    let jumped = Now {
        wall: at(100_000).wall,
        ..at(9)
    };
    assert!(!world.mvcc.expire_leases(jumped).unwrap());
    world.sync();
    assert_eq!(world.get("k").count, 1, "the wall clock jumped, no time has passed");
    assert_eq!(world.mvcc.lease_renew(7, at(9)).unwrap().response, 10);
    world.mvcc.expire_leases(at(18)).unwrap();
    world.sync();
    assert_eq!(world.get("k").count, 1, "it was renewed");
    assert_eq!(
        world.mvcc.lease_renew(7, at(19)).unwrap().response,
        0,
        "due, if not yet ended"
    );
    world.mvcc.expire_leases(at(19)).unwrap();
    world.sync();
    let read = world.get("k");
    assert_eq!((read.count, read.header.unwrap().revision), (0, 3));
    assert_eq!(world.mvcc.lease_count(), 0);
}

#[test]
fn a_deadline_outlives_the_process() {
    let mut world = world();
    grant(&mut world, 7, 10, at(0));
    attach(&mut world, "k", 7);
    world.sync();
    let World { mvcc, path, _folder } = world;
    mvcc.into_store().close().unwrap();
    let mut mvcc = reopen(&path, at(4));
    let request = LeaseTimeToLiveRequest { id: 7, keys: true };
    let found = mvcc.lease_time_to_live(&request, at(4)).unwrap().response.unwrap();
    assert_eq!((found.ttl, found.granted_ttl, found.keys.len()), (6, 10, 1));
    mvcc.expire_leases(at(9)).unwrap();
    assert!(mvcc.store.lease(7).is_some());
    mvcc.expire_leases(at(10)).unwrap();
    assert!(mvcc.store.lease(7).is_none());
}

#[test]
fn many_leases_end_a_few_at_a_time() {
    let mut world = world();
    for id in 1..=100 {
        grant(&mut world, id, 10, at(0));
    }
    let mut rounds = 0;
    while world.mvcc.expire_leases(at(10)).unwrap() {
        rounds += 1;
    }
    assert!(rounds >= 6, "{rounds} rounds for 100 leases");
    assert_eq!(world.mvcc.lease_count(), 0);
    assert_eq!(world.mvcc.store.revision(), 1, "leases without keys make no revision");
}

#[test]
fn after_an_import_no_lease_ends_before_the_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let mut import = Import::create(&path, IDENTITY, 50).unwrap();
    let record = Record {
        key: Bytes::from_static(b"event"),
        value: Bytes::from_static(b"x"),
        create: 20,
        modified: 40,
        version: 2,
        lease: 7,
    };
    import.push(&record).unwrap();
    let lease = Lease {
        id: 7,
        granted_ttl: 10,
        deadline_ms: at(10).wall,
    };
    import.lease(lease).unwrap();
    import.finish().unwrap().publish().unwrap();
    let mut world = World {
        mvcc: reopen(&path, at(5)),
        path,
        _folder: folder,
    };
    world.mvcc.expire_leases(at(1000)).unwrap();
    assert_eq!(
        world.mvcc.store.revision(),
        50,
        "no revision without a write of a client"
    );
    let read = world.get("event");
    assert_eq!((read.count, read.kvs[0].mod_revision, read.kvs[0].version), (1, 40, 2));
    assert!(matches!(
        world.mvcc.range(&RangeRequest {
            revision: 49,
            ..range("event")
        }),
        Err(Error::Compacted)
    ));
    world.put("first", "write");
    world.mvcc.expire_leases(at(1000)).unwrap();
    world.sync();
    assert_eq!(world.get("event").count, 0, "now it ends");
    assert_eq!(world.mvcc.store.revision(), 52);
    assert!(world.path.exists());
}

/// The change at an import's head may have been a delete, which an import does not bring: a watch from there would wait
/// for it in silence.
#[test]
fn history_begins_behind_an_import() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let import = Import::create(&path, IDENTITY, 50).unwrap();
    import.finish().unwrap().publish().unwrap();
    let mut world = World {
        mvcc: reopen(&path, at(0)),
        path,
        _folder: folder,
    };
    let stream = world.mvcc.watch_open();
    for start_revision in [1, 50, 51] {
        let create = WatchCreateRequest {
            start_revision,
            ..everything()
        };
        world.watch(stream, create);
    }
    world.put("k", "first");
    world.sync();
    let responses = world.drain(stream);
    let ended = responses.iter().filter(|response| response.canceled);
    let ended: Vec<_> = ended
        .map(|response| (response.watch_id, response.compact_revision))
        .collect();
    assert_eq!(
        ended,
        [(0, 50), (1, 51)],
        "as etcd says it, and where a client may begin again"
    );
    assert_eq!(revisions(&responses), [51]);
}

#[test]
fn alarms_and_the_quota_outlive_the_process() {
    let mut world = world();
    world.mvcc.limits.quota = 1;
    let request = PutRequest {
        key: Bytes::from_static(b"k"),
        ..Default::default()
    };
    assert!(matches!(world.mvcc.put(&request), Err(Error::NoSpace)));
    assert_eq!(world.mvcc.alarms().len(), 1);
    world.sync();
    let World { mvcc, path, _folder } = world;
    mvcc.into_store().close().unwrap();
    let mut mvcc = reopen(&path, at(0));
    assert!(
        matches!(mvcc.put(&request), Err(Error::NoSpace)),
        "the alarm stands, though the quota is gone"
    );
    let disarm = AlarmRequest {
        action: AlarmAction::Deactivate as i32,
        member_id: IDENTITY.member_id,
        alarm: AlarmType::NoSpace as i32,
    };
    assert_eq!(mvcc.alarm(&disarm).unwrap().response.len(), 1);
    assert!(mvcc.put(&request).is_ok());
}
