//! All watch streams: creating and ending watches, publishing, catching up.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::task::{Context, Poll};

use bytes::Bytes;
use quantykube_etcd_api::{Event, FilterType, WatchCreateRequest, WatchRequest, WatchRequestUnion, WatchResponse};
use quantykube_store_file::{ChangeKind, KeyRange, RangeEnd, Store};

use super::index::Index;
use super::stream::{OUTBOX_BYTES_FEW, OUTBOX_BYTES_MAX, OUTBOX_RESPONSES_MAX, Outgoing, Stream, StreamId, Watcher};
use super::{Pending, What};
use crate::mvcc::{Error, header};

/// Most bytes that wait for all streams together before those that hold more than a little count as slow.
pub const ALL_BYTES_MAX: usize = 256 << 20;

/// Events of one response that spans revisions are cut at about this size.
const RESPONSE_BYTES: usize = 1 << 20;

/// Revisions of history read in one go, so that nobody waits long behind a watcher that is far behind.
const HISTORY_SLICE: i64 = 2000;

/// From this many watches behind on one stream on, history is matched through an index.
const INDEXED_FROM: usize = 8;

/// The id in replies that speak of no watch.
const NO_ID: i64 = -1;

/// Why a watch beyond the limit is refused. etcd has no such limit and no words for it.
const TOO_MANY_WATCHES: &str = "quantykube-store: too many watches: end some, or raise --max-watches";

/// All watch streams.
#[derive(Default)]
pub struct Hub {
    streams: HashMap<StreamId, Stream>,
    watchers: Vec<Option<Watcher>>,
    free: Vec<usize>,
    /// The synced watchers.
    index: Index,
    next_stream: StreamId,
    all_bytes: usize,
    streams_max: usize,
    watches_max: usize,
    /// Set when the server ends: every stream ends.
    closed: bool,
    /// Scratch space of [`Hub::publish`].
    found: Vec<usize>,
    touched: Vec<usize>,
    events_sent: u64,
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Open streams.
    pub streams: usize,
    /// Watches.
    pub watchers: usize,
    /// Watches that are behind.
    pub slow: usize,
    /// Events sent since the start.
    pub events: u64,
    /// Responses that wait.
    pub pending: usize,
}

impl Hub {
    /// No stream yet; at most so many streams and watches at once.
    pub fn new(streams_max: usize, watches_max: usize) -> Hub {
        Hub {
            streams_max,
            watches_max,
            ..Hub::default()
        }
    }

    /// Opens a stream, if there may be one more.
    pub fn open(&mut self) -> Result<StreamId, Error> {
        if self.streams.len() >= self.streams_max {
            return Err(Error::TooManyStreams);
        }
        self.next_stream += 1;
        self.streams.insert(self.next_stream, Stream::default());
        Ok(self.next_stream)
    }

    /// Ends a stream and all its watches.
    pub fn close(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.all_bytes -= stream.outbox_bytes;
        for watcher in stream.ids.into_values() {
            self.forget(watcher);
        }
    }

    /// Ends all streams: the server stops.
    pub fn close_all(&mut self) {
        self.closed = true;
        for stream in self.streams.values_mut() {
            stream.wake();
        }
    }

    /// Figures for metrics.
    pub fn figures(&self) -> Figures {
        Figures {
            streams: self.streams.len(),
            watchers: self.watchers.len() - self.free.len(),
            slow: self.streams.values().map(|stream| stream.unsynced.len()).sum(),
            events: self.events_sent,
            pending: self.streams.values().map(|stream| stream.outbox.len()).sum(),
        }
    }

    /// Whether someone watches.
    pub fn is_watched(&self) -> bool {
        self.watchers.len() > self.free.len()
    }

    /// Takes a client's request; the replies are queued on its stream. `visible` is the published revision.
    pub fn request(&mut self, id: StreamId, request: WatchRequest, visible: i64) {
        if !self.streams.contains_key(&id) {
            return;
        }
        match request.request_union {
            Some(WatchRequestUnion::Create(create)) => {
                let reply = match self.create(id, create, visible) {
                    Ok(watch_id) => WatchResponse {
                        header: header(visible),
                        watch_id,
                        created: true,
                        ..Default::default()
                    },
                    Err(reason) => WatchResponse {
                        header: header(visible),
                        watch_id: NO_ID,
                        created: true,
                        canceled: true,
                        cancel_reason: reason.to_string(),
                        ..Default::default()
                    },
                };
                self.push(id, reply, false, 0);
            }
            Some(WatchRequestUnion::Cancel(cancel)) => {
                let stream = self.streams.get_mut(&id).expect("looked up above");
                let known = match stream.ids.remove(&cancel.watch_id) {
                    Some(watcher) => {
                        stream.unsynced.remove(&watcher);
                        self.forget(watcher);
                        true
                    }
                    None => stream.compacted.remove(&cancel.watch_id),
                };
                if known {
                    let reply = WatchResponse {
                        header: header(visible),
                        watch_id: cancel.watch_id,
                        canceled: true,
                        ..Default::default()
                    };
                    self.push(id, reply, false, 0);
                }
            }
            Some(WatchRequestUnion::Progress(_)) => {
                self.streams.get_mut(&id).expect("looked up above").progress_wanted = true;
                self.answer_progress(id, visible);
            }
            None => {}
        }
    }

    fn create(&mut self, id: StreamId, request: WatchCreateRequest, visible: i64) -> Result<i64, &'static str> {
        if request.start_revision < 0 {
            return Err("etcdserver: mvcc: required revision has been compacted");
        }
        let start = if request.key.is_empty() {
            Bytes::from_static(&[0])
        } else {
            request.key
        };
        let range = crate::mvcc::key_range(&start, &request.range_end);
        if matches!(&range.end, RangeEnd::Before(end) if *end <= start) {
            return Err("mvcc: watcher range is empty");
        }
        if self.watchers.len() - self.free.len() >= self.watches_max {
            return Err(TOO_MANY_WATCHES);
        }
        let stream = self.streams.get_mut(&id).expect("the caller looked it up");
        let taken = |stream: &Stream, id: i64| stream.ids.contains_key(&id) || stream.compacted.contains(&id);
        let watch_id = match request.watch_id {
            0 => {
                while taken(stream, stream.next_id) {
                    stream.next_id += 1;
                }
                stream.next_id += 1;
                stream.next_id - 1
            }
            asked if taken(stream, asked) => return Err("mvcc: duplicate watch ID provided on the WatchStream"),
            asked => asked,
        };
        let synced = request.start_revision == 0 || request.start_revision > visible;
        let watcher = Watcher {
            stream: id,
            id: watch_id,
            range,
            no_put: request.filters.contains(&(FilterType::NoPut as i32)),
            no_delete: request.filters.contains(&(FilterType::NoDelete as i32)),
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress: request.progress_notify,
            heard: false,
            start: request.start_revision,
            next: if synced {
                request.start_revision.max(visible + 1)
            } else {
                request.start_revision
            },
            synced,
            batch: Vec::new(),
            batch_bytes: 0,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.watchers.push(None);
            self.watchers.len() - 1
        });
        if synced {
            self.index.add(&watcher.range, number);
        } else {
            stream.unsynced.insert(number);
        }
        stream.ids.insert(watch_id, number);
        self.watchers[number] = Some(watcher);
        Ok(watch_id)
    }

    /// Removes a watcher that its stream does not know any more.
    fn forget(&mut self, number: usize) {
        let Some(watcher) = self.watchers[number].take() else {
            return;
        };
        if watcher.synced {
            self.index.remove(&watcher.range, number);
        }
        self.free.push(number);
    }

    /// Answers a wanted progress request once every watch of the stream is synced. A watch of the future has no
    /// progress to tell of: the request is dropped, as in etcd.
    fn answer_progress(&mut self, id: StreamId, visible: i64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.progress_wanted || !stream.unsynced.is_empty() {
            return;
        }
        stream.progress_wanted = false;
        let future = |number: &usize| {
            self.watchers[*number]
                .as_ref()
                .is_some_and(|watcher| watcher.start > visible)
        };
        if stream.ids.is_empty() || stream.ids.values().any(future) {
            return;
        }
        let reply = WatchResponse {
            header: header(visible),
            watch_id: NO_ID,
            ..Default::default()
        };
        self.push(id, reply, false, 0);
    }

    /// Tells the watches of a stream that asked for it, and heard nothing since the last time, how far they are.
    pub fn tick(&mut self, id: StreamId, visible: i64) {
        let Some(stream) = self.streams.get(&id) else { return };
        let numbers: Vec<usize> = stream.ids.values().copied().collect();
        for number in numbers {
            let Some(watcher) = &mut self.watchers[number] else {
                continue;
            };
            if !watcher.progress {
                continue;
            }
            let heard = std::mem::replace(&mut watcher.heard, false);
            if !heard && watcher.synced && watcher.start <= visible {
                let reply = WatchResponse {
                    header: header(visible),
                    watch_id: watcher.id,
                    ..Default::default()
                };
                self.push(id, reply, false, 0);
            }
        }
    }

    fn push(&mut self, id: StreamId, response: WatchResponse, fragment: bool, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.outbox_bytes += bytes;
        self.all_bytes += bytes;
        self.events_sent += response.events.len() as u64;
        stream.outbox.push_back(Outgoing {
            response,
            fragment,
            bytes,
        });
        stream.wake();
    }

    fn is_full(&self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return true;
        };
        stream.outbox_bytes >= OUTBOX_BYTES_MAX
            || stream.outbox.len() >= OUTBOX_RESPONSES_MAX
            || (self.all_bytes >= ALL_BYTES_MAX && stream.outbox_bytes >= OUTBOX_BYTES_FEW)
    }

    /// Gives durable changes, in order and up to revision `visible`, to the synced watchers.
    pub fn publish(&mut self, store: &Store, changes: &[Pending], visible: i64) -> Result<(), Error> {
        if !self.is_watched() {
            return Ok(());
        }
        let mut touched = std::mem::take(&mut self.touched);
        let mut found = std::mem::take(&mut self.found);
        for change in changes {
            found.clear();
            self.index.find(&change.key, &mut found);
            let mut forms = Forms::default();
            for number in &found {
                let watcher = self.watchers[*number].as_mut().expect("an indexed watcher is there");
                if change.revision.main < watcher.next || !watcher.wants(matches!(change.what, What::Put { .. })) {
                    continue;
                }
                // A batch of this size goes out at the next border between revisions.
                let last = watcher
                    .batch
                    .last()
                    .and_then(|event| event.kv.as_ref())
                    .map(|kv| kv.mod_revision);
                if watcher.batch_bytes >= RESPONSE_BYTES && last.is_some_and(|last| last < change.revision.main) {
                    self.hand_over(*number, change.revision.main - 1);
                }
                let watcher = self.watchers[*number].as_mut().expect("an indexed watcher is there");
                if change.revision.main < watcher.next || !watcher.synced {
                    continue;
                }
                if watcher.batch.is_empty() {
                    touched.push(*number);
                }
                let event = forms.event(change, watcher.prev_kv, store)?;
                watcher.batch_bytes += change.bytes() + event.prev_kv.as_ref().map_or(0, |kv| kv.value.len());
                watcher.batch.push(event);
            }
        }
        for number in touched.drain(..) {
            self.hand_over(number, visible);
        }
        self.touched = touched;
        self.found = found;
        Ok(())
    }

    /// Queues a synced watcher's batch, which holds all its events up to revision `upto`; if its stream has no room,
    /// the watcher falls behind instead.
    fn hand_over(&mut self, number: usize, upto: i64) {
        let Some(watcher) = self.watchers[number].as_mut() else {
            return;
        };
        let events = std::mem::take(&mut watcher.batch);
        let bytes = std::mem::take(&mut watcher.batch_bytes);
        let Some(first) = events.first().and_then(|event| event.kv.as_ref()) else {
            return;
        };
        let (stream, first) = (watcher.stream, first.mod_revision);
        if self.is_full(stream) {
            let watcher = self.watchers[number].as_mut().expect("looked up above");
            watcher.synced = false;
            watcher.next = first;
            self.index.remove(&watcher.range, number);
            if let Some(stream) = self.streams.get_mut(&stream) {
                stream.unsynced.insert(number);
            }
            return;
        }
        self.send(number, events, bytes, upto);
    }

    fn send(&mut self, number: usize, events: Vec<Event>, bytes: usize, upto: i64) {
        let Some(watcher) = self.watchers[number].as_mut() else {
            return;
        };
        watcher.next = watcher.next.max(upto + 1);
        watcher.heard = true;
        let (stream, fragment) = (watcher.stream, watcher.fragment);
        let response = WatchResponse {
            header: header(upto),
            watch_id: watcher.id,
            events,
            ..Default::default()
        };
        self.push(stream, response, fragment, bytes);
    }

    /// The next response of a stream. Reads history for the watches that are behind when nothing else waits.
    pub fn poll_next(
        &mut self,
        id: StreamId,
        store: &Store,
        visible: i64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Outgoing>, Error>> {
        loop {
            let closed = self.closed;
            let Some(stream) = self.streams.get_mut(&id) else {
                return Poll::Ready(Ok(None));
            };
            if closed {
                return Poll::Ready(Err(Error::Stopped));
            }
            if let Some(outgoing) = stream.outbox.pop_front() {
                stream.outbox_bytes -= outgoing.bytes;
                self.all_bytes -= outgoing.bytes;
                return Poll::Ready(Ok(Some(outgoing)));
            }
            if stream.unsynced.is_empty() {
                stream.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            if let Err(error) = self.catch_up(id, store, visible) {
                return Poll::Ready(Err(error));
            }
            self.answer_progress(id, visible);
            let stream = &self.streams[&id];
            if stream.outbox.is_empty() && !stream.unsynced.is_empty() {
                // A slice of history without an event for this stream: let others run before the next.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Reads one slice of history for all watches of a stream that are behind.
    fn catch_up(&mut self, id: StreamId, store: &Store, visible: i64) -> Result<(), Error> {
        let (compacted, begins) = (store.compacted(), store.history_begins());
        let stream = self.streams.get_mut(&id).expect("the caller looked it up");
        let behind: Vec<usize> = stream.unsynced.iter().copied().collect();
        let mut readers = Vec::with_capacity(behind.len());
        for number in behind {
            let watcher = self.watchers[number].as_ref().expect("an unsynced watcher is there");
            if watcher.next >= begins {
                readers.push(number);
                continue;
            }
            let watch_id = watcher.id;
            // Behind an import, who begins again at the compacted revision is sent one further.
            let compact_revision = if watcher.next < compacted { compacted } else { begins };
            let stream = self.streams.get_mut(&id).expect("looked up above");
            stream.ids.remove(&watch_id);
            stream.unsynced.remove(&number);
            stream.compacted.insert(watch_id);
            self.forget(number);
            let reply = WatchResponse {
                header: header(0),
                watch_id,
                canceled: true,
                compact_revision,
                ..Default::default()
            };
            self.push(id, reply, false, 0);
        }
        let next = |hub: &Hub, number: usize| hub.watchers[number].as_ref().map_or(i64::MAX, |watcher| watcher.next);
        let Some(from) = readers.iter().map(|number| next(self, *number)).min() else {
            return Ok(());
        };
        let mut done = visible.min(from.saturating_add(HISTORY_SLICE - 1));
        if from <= visible {
            done = self.read_history(&readers, store, from, done)?;
        }
        for number in readers {
            let watcher = self.watchers[number].as_mut().expect("a reader is there");
            let events = std::mem::take(&mut watcher.batch);
            let bytes = std::mem::take(&mut watcher.batch_bytes);
            watcher.next = watcher.next.max(done + 1);
            let caught_up = watcher.next > visible;
            if caught_up {
                watcher.synced = true;
                self.index.add(&watcher.range, number);
                self.streams
                    .get_mut(&id)
                    .expect("looked up above")
                    .unsynced
                    .remove(&number);
            }
            if !events.is_empty() {
                self.send(number, events, bytes, done);
            }
        }
        Ok(())
    }

    /// Collects the events of revisions `from..=to` for the readers; gives the last revision that is complete.
    fn read_history(&mut self, readers: &[usize], store: &Store, from: i64, to: i64) -> Result<i64, Error> {
        let indexed = readers.len() >= INDEXED_FROM;
        let mut index = Index::default();
        if indexed {
            for number in readers {
                let watcher = self.watchers[*number].as_ref().expect("a reader is there");
                index.add(&watcher.range, *number);
            }
        }
        let watchers = &mut self.watchers;
        let mut found = Vec::new();
        let (mut bytes, mut last, mut done, mut failed) = (0, from - 1, to, None);
        store.changes(from, to, &mut |change| {
            if change.revision.main > last && bytes >= RESPONSE_BYTES {
                done = change.revision.main - 1;
                return ControlFlow::Break(());
            }
            last = change.revision.main;
            found.clear();
            match indexed {
                true => index.find(&change.key, &mut found),
                false => found.extend(readers.iter().filter(|number| holds(watchers, **number, &change.key))),
            }
            let put = matches!(change.what, ChangeKind::Put(_));
            found.retain(|number| {
                let watcher = watchers[*number].as_ref().expect("a reader is there");
                watcher.next <= change.revision.main && watcher.wants(put)
            });
            if found.is_empty() {
                return ControlFlow::Continue(());
            }
            let what = match change.what {
                ChangeKind::Delete => What::Delete,
                ChangeKind::Put(version) => match store.value(&version) {
                    Ok(value) => What::Put { value, version },
                    Err(error) => {
                        failed = Some(Error::File(error));
                        return ControlFlow::Break(());
                    }
                },
            };
            let change = Pending {
                key: change.key,
                revision: change.revision,
                what,
            };
            let mut forms = Forms::default();
            for number in &found {
                let watcher = watchers[*number].as_mut().expect("a reader is there");
                match forms.event(&change, watcher.prev_kv, store) {
                    Ok(event) => {
                        let size = change.bytes() + event.prev_kv.as_ref().map_or(0, |kv| kv.value.len());
                        bytes += size;
                        watcher.batch_bytes += size;
                        watcher.batch.push(event);
                    }
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        match failed {
            Some(error) => Err(error),
            None => Ok(done),
        }
    }
}

fn holds(watchers: &[Option<Watcher>], number: usize, key: &[u8]) -> bool {
    let range: Option<&KeyRange> = watchers[number].as_ref().map(|watcher| &watcher.range);
    range.is_some_and(|range| range.contains(key))
}

/// The two forms of one event, each made once for all watchers.
#[derive(Default)]
struct Forms {
    plain: Option<Event>,
    with_previous: Option<Event>,
}

impl Forms {
    fn event(&mut self, change: &Pending, prev_kv: bool, store: &Store) -> Result<Event, Error> {
        let plain = self.plain.get_or_insert_with(|| change.event());
        if !prev_kv {
            return Ok(plain.clone());
        }
        if let Some(event) = &self.with_previous {
            return Ok(event.clone());
        }
        let mut event = plain.clone();
        event.prev_kv = change.previous(store)?;
        self.with_previous = Some(event.clone());
        Ok(event)
    }
}
