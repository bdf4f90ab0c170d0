//! etcd's semantics over the store's file: what a request means, and what it may see.
//!
//! Knows no gRPC, no connections and no clock: requests come as messages, moments are handed in. Two revisions matter:
//! - `head`: the last applied one. Writes, and transactions that may write, see it.
//! - `visible`: the last one that is synced and published to watchers. Everything else reads at it, so that nobody is
//!   shown what a power cut could still take back.
//!
//! A call that wrote, or looked at what is not yet synced, answers with the sequence number that must be synced before
//! its response may leave ([`Applied::wait`]).

mod alarm;
mod check;
mod error;
mod hash;
mod lease;
mod leases;
mod list;
mod range;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod txn;
pub mod watch;

use std::task::{Context, Poll};

use quantykube_etcd_api::{
    AlarmAction, AlarmMember, AlarmRequest, AlarmType, CompactionRequest, DeleteRangeRequest, DeleteRangeResponse,
    PutRequest, PutResponse, RangeRequest, RangeResponse, Request, RequestOp, TxnRequest, TxnResponse, WatchRequest,
};
use quantykube_store_file::{self as store_file, Durable, Sizes, Stats, Store};

pub use self::error::Error;
pub use self::lease::{Now, TTL_MAX_S, TTL_MIN_S};
pub use self::list::{Listed, Range};
pub use self::range::Search;
use self::range::View;
pub(crate) use self::range::{is_filtered, key_range};
pub(crate) use self::txn::header;
use self::txn::{Bounds, Path, Writer};
use self::watch::{Hub, Outgoing, Pending, StreamId};

/// What etcd reckons for a key's metadata when it compares a write with the quota.
const QUOTA_KEY_BYTES: u64 = 256;

/// The note in the file that says that the first compaction was one at 0.
const COMPACTED_AT_ZERO: &str = "compacted at 0";

/// What etcd reckons for a lease.
const QUOTA_LEASE_BYTES: u64 = 64;

/// A response, and the sequence number that must be synced before it may leave.
#[derive(Debug)]
pub struct Applied<T> {
    /// The response.
    pub response: T,
    /// The sequence number.
    pub wait: u64,
}

/// The limits a server sets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a write.
    pub request_bytes: usize,
    /// The quota in bytes, 0 for none.
    pub quota: u64,
    /// Most watch streams at once, of all connections together.
    pub watch_streams: usize,
    /// Most watches at once, of all streams together.
    pub watches: usize,
}

impl Default for Limits {
    /// etcd's defaults, and for watches, which etcd does not count, far more than a cluster's API servers need.
    fn default() -> Limits {
        Limits {
            request_bytes: 1_572_864,
            quota: 2 << 30,
            watch_streams: 100_000,
            watches: 1_000_000,
        }
    }
}

/// What compaction can be done to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compaction {
    /// The revision is not published yet: try again when this sequence number is synced.
    Later(u64),
    /// Done; durable with this sequence number.
    Done(u64),
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Puts.
    pub puts: u64,
    /// Bytes of keys and values put.
    pub put_bytes: u64,
    /// Ranges.
    pub ranges: u64,
    /// Deletes.
    pub deletes: u64,
    /// Transactions.
    pub txns: u64,
    /// Leases granted, revoked, renewed and expired.
    pub leases: [u64; 4],
}

/// The state of the server.
pub struct Mvcc {
    store: Store,
    limits: Limits,
    /// The published revision.
    visible: i64,
    /// What is synced, as far as it was taken note of here.
    durable: Durable,
    /// The last queued sequence number.
    queued: u64,
    /// Applied changes that are not published, in order.
    pending: Vec<Pending>,
    hub: Hub,
    deadlines: lease::Deadlines,
    alarms: alarm::Alarms,
    /// etcd tells "never compacted" from "compacted at 0", also after a restart.
    compacted_at_zero: bool,
    counts: Counts,
}

impl Mvcc {
    /// Takes over an open store.
    pub fn new(store: Store, limits: Limits, now: Now) -> Mvcc {
        let durable = store.durable();
        Mvcc {
            visible: store.revision(),
            queued: durable.seq,
            deadlines: lease::Deadlines::recover(&store.leases(), now),
            alarms: alarm::Alarms::decode(&store.note(alarm::NOTE).unwrap_or_default()),
            compacted_at_zero: store.note(COMPACTED_AT_ZERO).is_some(),
            durable,
            pending: Vec::new(),
            hub: Hub::new(limits.watch_streams, limits.watches),
            counts: Counts::default(),
            limits,
            store,
        }
    }

    /// The published revision.
    pub fn visible(&self) -> i64 {
        self.visible
    }

    /// What is synced and published.
    pub fn durable(&self) -> Durable {
        self.durable
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Sizes of the file.
    pub fn sizes(&self) -> Sizes {
        self.store.sizes()
    }

    /// The file's own counts.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// Counts of requests.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The compacted revision, 0 if there never was a compaction.
    pub fn compacted(&self) -> i64 {
        self.store.compacted()
    }

    /// The number of live keys at the published revision.
    pub fn keys(&self) -> u64 {
        self.store.count(&all_keys(), self.visible)
    }

    /// The number of leases.
    pub fn lease_count(&self) -> usize {
        self.deadlines.len()
    }

    /// Figures of the watches.
    pub fn watch_figures(&self) -> watch::Figures {
        self.hub.figures()
    }

    /// Ends every watch stream and gives the store back to be closed.
    pub fn into_store(self) -> Store {
        self.store
    }

    /// A note of the server's own.
    pub fn note(&self, name: &str) -> Option<bytes::Bytes> {
        self.store.note(name)
    }

    /// Keeps a note of the server's own.
    pub fn put_note(&mut self, name: &str, value: &[u8]) -> Result<Applied<()>, Error> {
        let queued = self.store.put_note(name, value)?;
        Ok(self.applied(queued.seq, ()))
    }

    /// Takes note of what is synced: publishes it to the watchers, and from now on reads see it.
    pub fn advance(&mut self, durable: Durable) -> Result<(), Error> {
        if durable.seq <= self.durable.seq && durable.revision <= self.visible {
            return Ok(());
        }
        let published = self
            .pending
            .partition_point(|change| change.revision.main <= durable.revision);
        self.hub
            .publish(&self.store, &self.pending[..published], durable.revision)?;
        self.pending.drain(..published);
        self.visible = self.visible.max(durable.revision);
        self.durable = durable;
        Ok(())
    }

    /// Does some of the file's background work; true while more is waiting.
    pub fn maintain(&mut self, budget: std::time::Duration) -> Result<bool, Error> {
        Ok(self.store.maintain(budget)?)
    }

    /// Serves a range request in one go.
    pub fn range(&mut self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        check::range(request)?;
        self.counts.ranges += 1;
        self.view().range(request)
    }

    /// Serves a put.
    pub fn put(&mut self, request: &PutRequest) -> Result<Applied<PutResponse>, Error> {
        self.check_quota(put_cost(request))?;
        check::put(request)?;
        check::size(request, self.limits.request_bytes)?;
        self.check_alarms(true)?;
        // A put by itself is asked for its lease first, one in a transaction for its key: so etcd does it.
        if request.lease != 0 && self.store.lease(request.lease).is_none() {
            return Err(Error::LeaseNotFound);
        }
        txn::check_put(self.head_view(), request)?;
        let kept = match request.ignore_value {
            true => self
                .store
                .get(&request.key, self.store.revision())
                .map_or(0, |version| version.value.len as usize),
            false => request.value.len(),
        };
        let bytes = request.key.len() + kept;
        self.counts.puts += 1;
        self.counts.put_bytes += (request.key.len() + request.value.len()) as u64;
        let (response, wait) = self.write(1, bytes, false, |writer| writer.put(request))?;
        Ok(self.applied(wait, response))
    }

    /// Serves a delete.
    pub fn delete_range(&mut self, request: &DeleteRangeRequest) -> Result<Applied<DeleteRangeResponse>, Error> {
        check::delete_range(request)?;
        check::size(request, self.limits.request_bytes)?;
        self.check_alarms(false)?;
        let range = key_range(&request.key, &request.range_end);
        let found = self.head_view().versions(&range, self.store.revision(), 0);
        let bytes = found.iter().map(|(key, _)| key.len()).sum();
        self.counts.deletes += 1;
        let (response, wait) = self.write(found.len(), bytes, true, |writer| writer.delete_range(request))?;
        Ok(self.applied(wait, response))
    }

    /// Serves a transaction.
    pub fn txn(&mut self, request: &TxnRequest) -> Result<Applied<TxnResponse>, Error> {
        let cost = txn_cost(request);
        self.check_quota(cost)?;
        check::txn(request)?;
        self.counts.txns += 1;
        if txn::is_read_only(request) {
            let view = self.view();
            let path = Path::of(view, request)?;
            txn::check(view, self.first(), request, &path)?;
            let response = txn::read(view, request, &path)?;
            return Ok(Applied { response, wait: 0 });
        }
        check::size(request, self.limits.request_bytes)?;
        self.check_alarms(cost > 0)?;
        let view = self.head_view();
        let path = Path::of(view, request)?;
        let bounds = txn::check(view, self.first(), request, &path)?;
        let Bounds { changes, bytes, puts } = bounds;
        let (response, wait) = self.write(changes, bytes, !puts, |writer| writer.txn(request, &path))?;
        Ok(self.applied(wait, response))
    }

    /// Compacts; see [`Compaction`].
    pub fn compact(&mut self, request: &CompactionRequest) -> Result<Compaction, Error> {
        self.check_alarms(false)?;
        if request.revision < self.first() + 1 {
            return Err(Error::Compacted);
        }
        if request.revision > self.store.revision() {
            return Err(Error::FutureRevision);
        }
        if request.revision == 0 {
            self.compacted_at_zero = true;
            self.keep_note(COMPACTED_AT_ZERO, b"1")?;
            return Ok(Compaction::Done(self.queued));
        }
        // Watchers are owed every event up to here, with what was there before: they get it first.
        if request.revision > self.visible {
            return Ok(Compaction::Later(self.queued));
        }
        let queued = self.store.compact(request.revision)?;
        self.queued = self.queued.max(queued.seq);
        Ok(Compaction::Done(queued.seq))
    }

    /// Serves an alarm request: the alarms it names.
    pub fn alarm(&mut self, request: &AlarmRequest) -> Result<Applied<Vec<AlarmMember>>, Error> {
        let kind = AlarmType::try_from(request.alarm).unwrap_or(AlarmType::None);
        let member = |alarm: AlarmType| AlarmMember {
            member_id: request.member_id,
            alarm: alarm as i32,
        };
        let mut response = Vec::new();
        match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => response = self.alarms.list(kind),
            Ok(AlarmAction::Activate) if kind != AlarmType::None => {
                self.alarms.raise(request.member_id, kind);
                response.push(member(kind));
                self.keep_alarms()?;
            }
            Ok(AlarmAction::Deactivate) if self.alarms.disarm(request.member_id, kind) => {
                response.push(member(kind));
                self.keep_alarms()?;
            }
            _ => {}
        }
        Ok(self.applied(self.queued, response))
    }

    /// The raised alarms.
    pub fn alarms(&self) -> Vec<AlarmMember> {
        self.alarms.list(AlarmType::None)
    }

    /// Opens a watch stream, if there may be one more.
    pub fn watch_open(&mut self) -> Result<StreamId, Error> {
        self.hub.open()
    }

    /// Takes a request of a watch stream.
    pub fn watch_request(&mut self, stream: StreamId, request: WatchRequest) {
        self.hub.request(stream, request, self.visible);
    }

    /// The periodic progress of a watch stream.
    pub fn watch_tick(&mut self, stream: StreamId) {
        self.hub.tick(stream, self.visible);
    }

    /// The next response of a watch stream.
    pub fn watch_next(&mut self, stream: StreamId, context: &mut Context<'_>) -> Poll<Result<Option<Outgoing>, Error>> {
        self.hub.poll_next(stream, &self.store, self.visible, context)
    }

    /// Ends a watch stream.
    pub fn watch_close(&mut self, stream: StreamId) {
        self.hub.close(stream);
    }

    /// Ends all watch streams: the server stops.
    pub fn watch_close_all(&mut self) {
        self.hub.close_all();
    }

    /// What readers see.
    fn view(&self) -> View<'_> {
        View {
            store: &self.store,
            current: self.visible,
        }
    }

    /// What writers see.
    fn head_view(&self) -> View<'_> {
        View {
            store: &self.store,
            current: self.store.revision(),
        }
    }

    /// The compacted revision in etcd's count, the first that can be read: -1 before any compaction.
    pub fn first(&self) -> i64 {
        match self.store.compacted() {
            0 if !self.compacted_at_zero => -1,
            compacted => compacted,
        }
    }

    fn applied<T>(&mut self, wait: u64, response: T) -> Applied<T> {
        self.queued = self.queued.max(wait);
        // What is synced already needs no waiting, and 0 never does.
        Applied { response, wait }
    }

    /// Runs one transaction of the file. Raises the alarm when there is no space; nothing has changed then.
    fn write<T>(
        &mut self,
        changes: usize,
        bytes: usize,
        spare: bool,
        apply: impl FnOnce(&mut Writer<'_, '_>) -> Result<T, Error>,
    ) -> Result<(T, u64), Error> {
        match self.try_write(changes, bytes, spare, apply) {
            Err(Error::NoSpace) => {
                self.raise_no_space()?;
                Err(Error::NoSpace)
            }
            written => written,
        }
    }

    fn try_write<T>(
        &mut self,
        changes: usize,
        bytes: usize,
        spare: bool,
        apply: impl FnOnce(&mut Writer<'_, '_>) -> Result<T, Error>,
    ) -> Result<(T, u64), Error> {
        let mut writer = Writer::begin(&mut self.store, changes, bytes, spare, &mut self.pending)?;
        match apply(&mut writer) {
            Ok(response) => {
                let queued = writer.commit()?;
                self.queued = self.queued.max(queued.seq);
                Ok((response, queued.seq))
            }
            Err(error) => {
                // Everything that can be refused was refused before the first change. What is left is a value that
                // cannot be read back: half of a transaction must not be seen, so this ends the server.
                assert!(
                    !writer.changed(),
                    "a transaction failed after its first change: {error:?}"
                );
                Err(error)
            }
        }
    }

    fn check_alarms(&self, puts: bool) -> Result<(), Error> {
        if self.alarms.has(AlarmType::Corrupt) {
            return Err(Error::Corrupt);
        }
        if puts && self.alarms.has(AlarmType::NoSpace) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Refuses a write that does not fit into the quota, and raises the alarm. A cost of 0 always fits.
    fn check_quota(&mut self, cost: u64) -> Result<(), Error> {
        if cost == 0 || self.limits.quota == 0 || self.store.sizes().in_use + cost < self.limits.quota {
            return Ok(());
        }
        self.raise_no_space()?;
        Err(Error::NoSpace)
    }

    fn raise_no_space(&mut self) -> Result<(), Error> {
        if self.alarms.raise(self.store.identity().member_id, AlarmType::NoSpace) {
            self.keep_alarms()?;
        }
        Ok(())
    }

    fn keep_alarms(&mut self) -> Result<(), Error> {
        self.keep_note(alarm::NOTE, &self.alarms.encode())
    }

    /// Writes down what stands in memory. On a disk that is full to the last byte it stands in memory alone.
    fn keep_note(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        match self.store.put_note(name, value) {
            Ok(queued) => {
                self.queued = self.queued.max(queued.seq);
                Ok(())
            }
            Err(store_file::Error::NoSpace { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn all_keys() -> store_file::KeyRange {
    store_file::KeyRange {
        start: bytes::Bytes::from_static(&[0]),
        end: store_file::RangeEnd::Unbounded,
    }
}

fn put_cost(request: &PutRequest) -> u64 {
    QUOTA_KEY_BYTES + (request.key.len() + request.value.len()) as u64
}

/// etcd reckons the dearer branch, since 3.6.14 with the transactions nested in it.
fn txn_cost(request: &TxnRequest) -> u64 {
    let branch = |ops: &[RequestOp]| -> u64 {
        let cost = |op: &RequestOp| match &op.request {
            Some(Request::Put(put)) => put_cost(put),
            Some(Request::Txn(nested)) => txn_cost(nested),
            _ => 0,
        };
        ops.iter().map(cost).sum()
    };
    branch(&request.success).max(branch(&request.failure))
}
