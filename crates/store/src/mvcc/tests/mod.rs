//! What the comparison with a real etcd cannot reach: what is visible when, waiting, falling behind, and time.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use quantykube_etcd_api::*;
use quantykube_store_file::{Identity, Import, Lease, Options, Record, Store};

use super::*;

mod leases;
mod reading;
mod upkeep;
mod watching;

const IDENTITY: Identity = Identity {
    cluster_id: 1,
    member_id: 2,
    raft_term: 3,
};

const LIMITS: Limits = Limits {
    request_bytes: 1 << 20,
    quota: 0,
    watch_streams: 100,
    watches: 100,
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
