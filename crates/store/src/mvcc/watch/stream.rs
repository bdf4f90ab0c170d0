//! One client's watch stream: its watches by id, and what waits to be sent on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use quantykube_etcd_api::WatchResponse;
use quantykube_store_file::KeyRange;

/// A stream's number.
pub type StreamId = u64;

/// Most bytes of events that wait for a stream that does not read.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;

/// Most responses that wait.
pub const OUTBOX_RESPONSES_MAX: usize = 1024;

/// From here on a stream counts as slow while all streams together hold [`super::hub::ALL_BYTES_MAX`].
pub const OUTBOX_BYTES_FEW: usize = 64 << 10;

/// A response that waits to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// The response.
    pub response: WatchResponse,
    /// Whether the watcher wants large responses in pieces.
    pub fragment: bool,
    /// Rough size on the wire.
    pub bytes: usize,
}

/// One watch.
pub struct Watcher {
    /// Its stream.
    pub stream: StreamId,
    /// Its id on the stream.
    pub id: i64,
    /// The keys.
    pub range: KeyRange,
    /// Whether puts are left out.
    pub no_put: bool,
    /// Whether deletes are left out.
    pub no_delete: bool,
    /// Whether events carry what was there before.
    pub prev_kv: bool,
    /// Whether large responses go in pieces.
    pub fragment: bool,
    /// Whether it is told of progress now and then.
    pub progress: bool,
    /// Whether it was sent an event since it was last told of progress.
    pub heard: bool,
    /// The start revision that was asked for, 0 for now.
    pub start: i64,
    /// The first revision it has not been given.
    pub next: i64,
    /// Whether it gets events as they are published; else it is behind and reads history.
    pub synced: bool,
    /// What the publication or catch-up that runs now has for it.
    pub batch: Vec<quantykube_etcd_api::Event>,
    /// Rough size of the batch.
    pub batch_bytes: usize,
}

impl Watcher {
    /// Whether it wants a change of this kind.
    pub fn wants(&self, put: bool) -> bool {
        if put { !self.no_put } else { !self.no_delete }
    }
}

/// A stream.
#[derive(Default)]
pub struct Stream {
    /// The watches by id.
    pub ids: BTreeMap<i64, usize>,
    /// Ids of watches that ended by compaction: the client may still cancel them.
    pub compacted: BTreeSet<i64>,
    /// The next id to give out.
    pub next_id: i64,
    /// The watches that are behind.
    pub unsynced: BTreeSet<usize>,
    /// What waits to be sent.
    pub outbox: VecDeque<Outgoing>,
    /// Rough size of it.
    pub outbox_bytes: usize,
    /// Whether the client asked for progress while a watch was behind.
    pub progress_wanted: bool,
    /// Who to wake when there is something to send.
    pub waker: Option<Waker>,
}

impl Stream {
    /// Wakes the connection's task.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
