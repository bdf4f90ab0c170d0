//! The one owner of the store: what runs between a request and the synced file.
//!
//! One thread serves all requests; beside it the file's writer thread syncs groups of frames and calls back once per
//! group. The callback notes how far the file is synced and wakes the serving thread once; whoever takes the lock next
//! publishes that (watchers, readers) and opens the gate for every response that waited for it.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};

use quantykube_etcd_api::ResponseHeader;
use quantykube_store_file::{Durable, Identity, Store};
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::mvcc::{Error, Limits, Mvcc};

/// The owner of the store.
pub struct Engine {
    state: Mutex<Option<Mvcc>>,
    gate: Gate,
    synced: Arc<Synced>,
    identity: Identity,
    stopping: watch::Sender<bool>,
}

/// What the writer thread tells.
#[derive(Default)]
struct Synced {
    seq: AtomicU64,
    revision: AtomicI64,
    /// Told once per group of frames.
    wake: Notify,
    /// Why the server must end.
    failure: OnceLock<String>,
    failed: Notify,
}

impl Synced {
    fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.failed.notify_one();
        self.wake.notify_one();
    }
}

/// Responses that wait for their frame to be synced.
#[derive(Default)]
struct Gate {
    open: AtomicU64,
    waiting: Mutex<VecDeque<(u64, Waker)>>,
}

/// The locked state.
pub struct Guard<'a>(MutexGuard<'a, Option<Mvcc>>);

impl Deref for Guard<'_> {
    type Target = Mvcc;
    fn deref(&self) -> &Mvcc {
        self.0
            .as_ref()
            .expect("a guard is given out only while the store is open")
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Mvcc {
        self.0
            .as_mut()
            .expect("a guard is given out only while the store is open")
    }
}

impl Engine {
    /// Takes over an open store.
    pub fn new(mut store: Store, limits: Limits) -> Arc<Engine> {
        let synced = Arc::new(Synced::default());
        let durable = store.durable();
        synced.seq.store(durable.seq, Ordering::Relaxed);
        synced.revision.store(durable.revision, Ordering::Relaxed);
        let hook = Arc::clone(&synced);
        store.on_durable(Box::new(move |outcome| match outcome {
            Ok(durable) => {
                // The revision first: whoever sees the sequence number also sees its revision, or a later one.
                hook.revision.store(durable.revision, Ordering::Release);
                hook.seq.store(durable.seq, Ordering::Release);
                hook.wake.notify_one();
            }
            Err(error) => hook.fail(chain(error)),
        }));
        let identity = store.identity();
        let state = Mvcc::new(store, limits, clock::now());
        let gate = Gate::default();
        gate.open.store(state.durable().seq, Ordering::Relaxed);
        Arc::new(Engine {
            state: Mutex::new(Some(state)),
            gate,
            synced,
            identity,
            stopping: watch::Sender::new(false),
        })
    }

    /// Tells streams that end only with the server to end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        if let Ok(mut state) = self.lock() {
            state.watch_close_all();
        }
    }

    /// Waits until the server stops.
    pub async fn stopping(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// The state, with everything published that is synced by now.
    pub fn lock(&self) -> Result<Guard<'_>, Error> {
        let state = match self.state.lock() {
            Ok(state) => state,
            Err(_) => {
                self.synced.fail("a request ended in the middle of a change".to_owned());
                return Err(Error::Stopped);
            }
        };
        if state.is_none() || self.synced.failure.get().is_some() {
            return Err(Error::Stopped);
        }
        let mut guard = Guard(state);
        let seq = self.synced.seq.load(Ordering::Acquire);
        if seq > guard.durable().seq {
            let revision = self.synced.revision.load(Ordering::Acquire);
            if let Err(error) = guard.advance(Durable { seq, revision }) {
                self.synced.fail(chain(&error));
                return Err(Error::Stopped);
            }
            self.gate.open(seq);
        }
        Ok(guard)
    }

    /// Waits until a sequence number is synced and published.
    pub fn synced(&self, seq: u64) -> Wait<'_> {
        Wait { engine: self, seq }
    }

    /// Publishes whatever gets synced, for ever.
    pub async fn publish(&self) {
        loop {
            self.synced.wake.notified().await;
            if self.lock().is_err() {
                self.gate.open_all();
            }
        }
    }

    /// Waits until the server must end, and says why.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(why) = self.synced.failure.get() {
                return why.clone();
            }
            self.synced.failed.notified().await;
        }
    }

    /// Ends the server because of an error that leaves no other way.
    pub fn fail(&self, error: &Error) {
        self.synced.fail(chain(error));
    }

    /// Fills what is the same in every response header.
    pub fn header(&self, header: &mut Option<ResponseHeader>) {
        let header = header.get_or_insert_default();
        header.cluster_id = self.identity.cluster_id;
        header.member_id = self.identity.member_id;
        header.raft_term = self.identity.raft_term;
    }

    /// A header with a revision.
    pub fn header_at(&self, revision: i64) -> Option<ResponseHeader> {
        let mut header = crate::mvcc::header(revision);
        self.header(&mut header);
        header
    }

    /// Who the store says it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Ends: every later call answers that the server has stopped.
    pub fn take(&self) -> Option<Mvcc> {
        self.state.lock().ok()?.take()
    }
}

impl Gate {
    fn open(&self, seq: u64) {
        self.open.store(seq, Ordering::Release);
        let mut waiting = self.waiting.lock().expect("no code panics while it holds this lock");
        // Sequence numbers wait in nearly ascending order; a lower one behind a higher one leaves with it.
        while waiting.front().is_some_and(|(wanted, _)| *wanted <= seq) {
            let (_, waker) = waiting.pop_front().expect("there is a front");
            waker.wake();
        }
    }

    fn open_all(&self) {
        let mut waiting = self.waiting.lock().expect("no code panics while it holds this lock");
        for (_, waker) in waiting.drain(..) {
            waker.wake();
        }
    }
}

/// See [`Engine::synced`].
pub struct Wait<'a> {
    engine: &'a Engine,
    seq: u64,
}

impl Future for Wait<'_> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let gate = &self.engine.gate;
        if gate.open.load(Ordering::Acquire) >= self.seq {
            return Poll::Ready(Ok(()));
        }
        if self.engine.synced.failure.get().is_some() {
            return Poll::Ready(Err(Error::Stopped));
        }
        let mut waiting = gate.waiting.lock().expect("no code panics while it holds this lock");
        waiting.push_back((self.seq, context.waker().clone()));
        Poll::Pending
    }
}

/// An error with everything behind it, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use quantykube_etcd_api::PutRequest;
    use quantykube_store_file::{Options, SimDisk, Tuning};

    use super::*;

    const EIO: i32 = 5;

    fn engine(disk: &SimDisk) -> Arc<Engine> {
        let identity = Identity {
            cluster_id: 1,
            member_id: 2,
            raft_term: 3,
        };
        let options = Options { quota: 0, identity };
        let store = Store::create_on(Arc::new(disk.clone()), options, Tuning::default()).unwrap();
        let limits = Limits {
            request_bytes: 1 << 20,
            quota: 0,
            ..Limits::default()
        };
        Engine::new(store, limits)
    }

    fn put(engine: &Engine, key: &'static str) -> Result<u64, Error> {
        let request = PutRequest {
            key: Bytes::from_static(key.as_bytes()),
            ..Default::default()
        };
        Ok(engine.lock()?.put(&request)?.wait)
    }

    fn block_on(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let limited = async {
            tokio::time::timeout(Duration::from_secs(20), future)
                .await
                .expect("in time")
        };
        runtime.block_on(limited);
    }

    #[test]
    fn a_response_waits_for_its_sync_and_readers_see_it_then() {
        block_on(async {
            let engine = engine(&SimDisk::new());
            let publisher = Arc::clone(&engine);
            tokio::spawn(async move { publisher.publish().await });
            for round in 0..50 {
                let seq = put(&engine, "k").unwrap();
                engine.synced(seq).await.unwrap();
                assert_eq!(engine.lock().unwrap().visible(), 2 + round);
            }
            // Many at once, waited for in the wrong order.
            let seqs: Vec<u64> = (0..100).map(|_| put(&engine, "k").unwrap()).collect();
            for seq in seqs.into_iter().rev() {
                engine.synced(seq).await.unwrap();
            }
            assert!(engine.gate.waiting.lock().unwrap().is_empty());
        });
    }

    /// A failed sync ends it all: what waited is not acknowledged, nothing is taken any more, and it is said why.
    #[test]
    fn after_a_failed_sync_nothing_is_acknowledged() {
        for later in 0..4 {
            block_on(async {
                let disk = SimDisk::new();
                let engine = engine(&disk);
                let publisher = Arc::clone(&engine);
                tokio::spawn(async move { publisher.publish().await });
                let seq = put(&engine, "before").unwrap();
                engine.synced(seq).await.unwrap();
                disk.fail_at(disk.ops() + later, EIO);
                let mut refused = false;
                for _ in 0..10 {
                    let outcome = match put(&engine, "after") {
                        Ok(seq) => engine.synced(seq).await,
                        Err(error) => Err(error),
                    };
                    assert!(!refused || outcome.is_err(), "acknowledged after a failure");
                    refused |= outcome.is_err();
                }
                assert!(disk.fired() && refused, "operation {later} after the first put");
                assert!(engine.failed().await.contains("os error 5"));
                assert!(matches!(engine.lock().map(|_| ()), Err(Error::Stopped)));
            });
        }
    }
}
