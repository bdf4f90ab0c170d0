//! `etcdserverpb.Watch`.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message;
use quantykube_etcd_api::watch_server::Watch;
use quantykube_etcd_api::{WatchRequest, WatchRequestUnion, WatchResponse};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::status;
use crate::engine::Engine;
use crate::mvcc::watch::{Outgoing, StreamId};

/// Requests taken in one go before responses are sent.
const REQUESTS_AT_ONCE: usize = 64;

/// The service.
pub struct WatchService {
    /// The store.
    pub engine: Arc<Engine>,
    /// How often watches that want it are told of progress; up to a tenth longer by chance.
    pub progress_every: Duration,
    /// Responses of watches that want it are cut at this size.
    pub fragment_bytes: usize,
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Answers;

    async fn watch(&self, request: Request<Streaming<WatchRequest>>) -> Result<Response<Answers>, Status> {
        let stream = self.engine.lock().map_err(status)?.watch_open().map_err(status)?;
        Ok(Response::new(Answers {
            engine: Arc::clone(&self.engine),
            stream,
            requests: Some(request.into_inner()),
            progress_every: self.progress_every,
            progress: None,
            fragment_bytes: self.fragment_bytes,
            pieces: VecDeque::new(),
        }))
    }
}

/// The answers of one watch stream. Being polled for the next answer also takes in the client's requests: who does not
/// read answers is not heard either.
pub struct Answers {
    engine: Arc<Engine>,
    stream: StreamId,
    /// None once the client has said its last.
    requests: Option<Streaming<WatchRequest>>,
    progress_every: Duration,
    /// Set with the first watch that wants progress.
    progress: Option<Pin<Box<Sleep>>>,
    fragment_bytes: usize,
    /// Pieces of a response that was cut.
    pieces: VecDeque<WatchResponse>,
}

impl Answers {
    fn take_requests(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..REQUESTS_AT_ONCE {
            let Some(requests) = &mut self.requests else {
                return Ok(());
            };
            let request = match Pin::new(requests).poll_next(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => {
                    self.requests = None;
                    return Ok(());
                }
                Poll::Ready(Some(request)) => request?,
            };
            if let Some(WatchRequestUnion::Create(create)) = &request.request_union
                && create.progress_notify
                && self.progress.is_none()
            {
                self.progress = Some(Box::pin(tokio::time::sleep_until(self.next_progress())));
            }
            self.engine.lock().map_err(status)?.watch_request(self.stream, request);
        }
        // More may be waiting: come back after the answers to these.
        context.waker().wake_by_ref();
        Ok(())
    }

    fn next_progress(&self) -> Instant {
        let jitter = self.progress_every.mul_f64(rand::random_range(0.0..0.1));
        Instant::now() + self.progress_every + jitter
    }

    fn tick(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        let next = self.next_progress();
        let Some(sleep) = &mut self.progress else { return Ok(()) };
        while sleep.as_mut().poll(context).is_ready() {
            sleep.as_mut().reset(next);
            self.engine.lock().map_err(status)?.watch_tick(self.stream);
        }
        Ok(())
    }

    fn send(&mut self, outgoing: Outgoing) -> WatchResponse {
        let mut response = outgoing.response;
        // Cancelled by compaction: etcd names no revision there, and neither ids nor term are missing.
        self.engine.header(&mut response.header);
        if !outgoing.fragment || response.events.len() < 2 || response.encoded_len() < self.fragment_bytes {
            return response;
        }
        self.pieces = fragments(response, self.fragment_bytes);
        self.pieces
            .pop_front()
            .expect("a response is cut into one piece at least")
    }
}

/// Cuts a response into pieces below `limit`, one event each at least. All but the last are marked.
fn fragments(mut response: WatchResponse, limit: usize) -> VecDeque<WatchResponse> {
    let events = std::mem::take(&mut response.events);
    let frame = response.encoded_len() + 2;
    let mut pieces = VecDeque::new();
    let mut piece = response.clone();
    let mut bytes = frame;
    for event in events {
        let size = event.encoded_len();
        let size = 1 + prost::length_delimiter_len(size) + size;
        if !piece.events.is_empty() && bytes + size >= limit {
            piece.fragment = true;
            pieces.push_back(std::mem::replace(&mut piece, response.clone()));
            bytes = frame;
        }
        bytes += size;
        piece.events.push(event);
    }
    pieces.push_back(piece);
    pieces
}

impl Stream for Answers {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(piece) = this.pieces.pop_front() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if let Err(error) = this.take_requests(context).and_then(|()| this.tick(context)) {
            return Poll::Ready(Some(Err(error)));
        }
        let engine = Arc::clone(&this.engine);
        let next = match engine.lock() {
            Ok(mut state) => state.watch_next(this.stream, context),
            Err(error) => Poll::Ready(Err(error)),
        };
        next.map(|next| match next {
            Ok(outgoing) => outgoing.map(|outgoing| Ok(this.send(outgoing))),
            Err(error) => Some(Err(status(error))),
        })
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if let Ok(mut state) = self.engine.lock() {
            state.watch_close(self.stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use quantykube_etcd_api::{Event, KeyValue};

    #[test]
    fn pieces_hold_all_events_in_order_and_only_the_last_is_not_marked() {
        let event = |number: u8| Event {
            kv: Some(KeyValue {
                key: Bytes::from(vec![number; 10]),
                value: Bytes::from(vec![number; 300]),
                ..Default::default()
            }),
            ..Default::default()
        };
        let response = WatchResponse {
            watch_id: 5,
            events: (0..10).map(event).collect(),
            ..Default::default()
        };
        let pieces = fragments(response.clone(), 1000);
        assert!(pieces.len() > 2);
        assert!(
            pieces
                .iter()
                .all(|piece| piece.encoded_len() < 1000 && piece.watch_id == 5)
        );
        let marked: Vec<bool> = pieces.iter().map(|piece| piece.fragment).collect();
        assert_eq!(marked.iter().filter(|fragment| !**fragment).count(), 1);
        assert_eq!(marked.last(), Some(&false));
        let events: Vec<Event> = pieces.into_iter().flat_map(|piece| piece.events).collect();
        assert_eq!(events, response.events);
    }
}
