//! Large answers to `KV.Range`, sent while their values are read, and `KV.RangeStream`.
//!
//! ```text
//! KV.Range: Listed --Pieces, an extension of an empty response--> the front puts a ListBody in the response's place
//! ```
//!
//! A gRPC message begins with its length: that is known from the index. So a list of many megabytes is never in memory,
//! and whoever waits for the store waits for one piece at most. A client that takes nothing for a while is let go, for
//! what it reads holds space in the file.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body, Frame};
use prost::Message;
use quantykube_etcd_api::{RangeRequest, RangeResponse, RangeStreamResponse};
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::{Code, Status};

use super::status;
use crate::engine::Engine;
use crate::mvcc::{Error, Listed, Search};

/// The bytes of one piece.
const PIECE_BYTES: usize = 64 << 10;

/// Keys of the first part of a streamed range; later ones have more or fewer, as their size asks for.
const FIRST_KEYS: usize = 10;

/// The bytes a part of a streamed range should have.
const PART_BYTES: usize = 256 << 10;

/// How long a client may take nothing.
const STALLED_MAX: Duration = Duration::from_secs(120);

/// What is held for a range that is being read; let go when it is dropped, or when its client has stalled.
pub struct Held {
    engine: Arc<Engine>,
    hold: Mutex<Option<i64>>,
}

impl Held {
    /// Takes over a hold.
    pub fn new(engine: &Arc<Engine>, hold: i64) -> Arc<Held> {
        Arc::new(Held {
            engine: Arc::clone(engine),
            hold: Mutex::new(Some(hold)),
        })
    }

    fn release(&self) {
        let hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hold) = hold
            && let Ok(mut state) = self.engine.lock()
        {
            state.list_end(hold);
        }
    }

    fn is_held(&self) -> bool {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// Lets go of what is held when it was not reset for [`STALLED_MAX`]: a task, for a client that takes nothing has
/// nobody ask for the next piece.
struct Watchdog {
    held: Arc<Held>,
    last: Arc<Mutex<Instant>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watchdog {
    fn start(held: Arc<Held>, stalled_max: Duration) -> Watchdog {
        let last = Arc::new(Mutex::new(Instant::now()));
        let (watched, seen) = (Arc::clone(&held), Arc::clone(&last));
        let task = tokio::spawn(async move {
            loop {
                let until = *seen.lock().unwrap_or_else(PoisonError::into_inner) + stalled_max;
                if until <= Instant::now() {
                    return watched.release();
                }
                tokio::time::sleep_until(until).await;
            }
        });
        Watchdog { held, last, task }
    }

    /// The client took something. An error once it was let go.
    fn alive(&self) -> Result<(), Status> {
        if !self.held.is_held() {
            return Err(Status::deadline_exceeded(
                "quantykube-store: the client took nothing for too long",
            ));
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A large range whose values are still to be read: handed to the front with an empty response.
#[derive(Clone)]
pub struct Pieces(Arc<Mutex<Option<ListBody>>>);

impl Pieces {
    /// For a range of which all keys are found.
    pub fn new(engine: &Arc<Engine>, held: Arc<Held>, listed: Listed) -> Pieces {
        Pieces(Arc::new(Mutex::new(Some(ListBody::new(
            engine,
            held,
            listed,
            STALLED_MAX,
        )))))
    }

    /// The body; once.
    pub fn into_body(self) -> Option<ListBody> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The body of a response: one gRPC message in pieces, then its trailers.
pub struct ListBody {
    engine: Arc<Engine>,
    watchdog: Watchdog,
    listed: Listed,
    /// What stands before and behind the elements.
    head: Bytes,
    tail: Bytes,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Head,
    Elements,
    Trailers,
    Done,
}

impl ListBody {
    fn new(engine: &Arc<Engine>, held: Arc<Held>, listed: Listed, stalled_max: Duration) -> ListBody {
        let mut frame = listed.frame();
        engine.header(&mut frame.header);
        // In the order of their numbers: the header, the elements, `more` and `count`.
        let header = RangeResponse {
            header: frame.header.take(),
            ..Default::default()
        };
        let tail = Bytes::from(frame.encode_to_vec());
        let len = header.encoded_len() + listed.elements_len() + tail.len();
        let mut head = Vec::with_capacity(64);
        // gRPC's prefix: not compressed, the length. Beyond 4 GiB it has no place: the client is told in the trailers.
        head.put_u8(0);
        head.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
        header.encode_raw(&mut head);
        ListBody {
            engine: Arc::clone(engine),
            watchdog: Watchdog::start(held, stalled_max),
            listed,
            head: Bytes::from(head),
            tail,
            state: if u32::try_from(len).is_ok() {
                State::Head
            } else {
                State::Trailers
            },
        }
    }

    fn piece(&mut self) -> Result<Bytes, Status> {
        self.watchdog.alive()?;
        let mut piece = BytesMut::with_capacity(PIECE_BYTES + 4096);
        if self.state == State::Head {
            piece.extend_from_slice(&self.head);
            self.state = State::Elements;
        }
        let state = self.engine.lock().map_err(status)?;
        state
            .list_read(&mut self.listed, PIECE_BYTES, &mut piece)
            .map_err(status)?;
        drop(state);
        if self.listed.is_done() {
            piece.extend_from_slice(&self.tail);
            self.state = State::Trailers;
        }
        Ok(piece.freeze())
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let outcome = match this.state {
            State::Head | State::Elements => this.piece(),
            State::Trailers if this.listed.is_done() => {
                this.state = State::Done;
                return Poll::Ready(Some(trailers(&Status::new(Code::Ok, ""))));
            }
            State::Trailers => Err(Status::resource_exhausted(
                "quantykube-store: the response is larger than 4 GiB; ask for it in pages",
            )),
            State::Done => return Poll::Ready(None),
        };
        match outcome {
            Ok(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            Err(status) => {
                this.state = State::Done;
                Poll::Ready(Some(trailers(&status)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Done
    }
}

fn trailers(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}

/// Finds the keys of a large range, letting others run between slices.
pub async fn find(engine: &Engine, mut search: Search) -> Result<Listed, Error> {
    loop {
        tokio::task::yield_now().await;
        let state = engine.lock()?;
        if state.list_on(&mut search) {
            return state.list_found(search);
        }
    }
}

/// The answers of `RangeStream`.
pub struct Parts {
    engine: Arc<Engine>,
    watchdog: Watchdog,
    request: RangeRequest,
    /// The revision it reads at, and the one for the header.
    at: i64,
    current: i64,
    /// How many keys may still be sent.
    left: usize,
    sent: u64,
    /// How many keys the next part has.
    keys: usize,
    done: bool,
}

impl Parts {
    /// Begins.
    pub fn begin(engine: &Arc<Engine>, request: RangeRequest) -> Result<Parts, Error> {
        let (at, current, hold) = engine.lock()?.stream_begin(&request)?;
        Ok(Parts {
            watchdog: Watchdog::start(Held::new(engine, hold), STALLED_MAX),
            engine: Arc::clone(engine),
            at,
            current,
            left: match usize::try_from(request.limit) {
                Ok(0) | Err(_) => usize::MAX - 1,
                Ok(limit) => limit,
            },
            request,
            sent: 0,
            keys: FIRST_KEYS,
            done: false,
        })
    }

    fn part(&mut self) -> Result<RangeStreamResponse, Status> {
        self.watchdog.alive()?;
        let mut response = RangeResponse::default();
        let state = self.engine.lock().map_err(status)?;
        let mut more = false;
        if self.request.count_only {
            self.done = true;
        } else {
            let keys = self.keys.min(self.left);
            let part = state.stream_read(&mut self.request, self.at, keys).map_err(status)?;
            more = part.more;
            self.sent += part.kvs.len() as u64;
            self.left -= part.kvs.len();
            self.done = !more || self.left == 0;
            self.keys = match part.bytes {
                bytes if bytes < PART_BYTES / 2 => self.keys * 2,
                bytes if bytes > PART_BYTES * 2 => (self.keys / 2).max(1),
                _ => self.keys,
            };
            response.kvs = part.kvs;
        }
        if self.done {
            let left = match more || self.request.count_only {
                true => state.stream_left(&self.request, self.at),
                false => 0,
            };
            response.more = more;
            response.count = (self.sent + left) as i64;
            response.header = crate::mvcc::header(self.current);
            self.engine.header(&mut response.header);
        }
        Ok(RangeStreamResponse {
            range_response: Some(response),
        })
    }
}

impl Stream for Parts {
    type Item = Result<RangeStreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        let part = self.part();
        self.done |= part.is_err();
        Poll::Ready(Some(part))
    }
}
