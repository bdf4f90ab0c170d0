//! `Maintenance.Snapshot`: a bbolt file with its SHA-256 behind it, as etcd streams one.
//!
//! ```text
//! serving thread: slices of the store, one at a time --(2 at most)--> a thread: pages, sum --(4 at most)--> the client
//! ```
//!
//! The store is walked twice, for the file begins with its length. What waits is bounded on both sides of the thread, so
//! a slow client slows the walk and nothing else; one that takes nothing for a while is let go, for the moment it reads
//! holds space in the file.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quantykube_etcd_api::{AlarmType, SnapshotResponse};
use quantykube_etcd_files::WriteError;
use quantykube_etcd_files::etcd::{
    Alarm, AlarmKind, Hashing, Head, Lease, Measure, Measured, Member, Revision, SnapshotWriter,
};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::status;
use crate::engine::{Engine, chain};
use crate::log::log;
use crate::mvcc::snapshot::{Entry, Moment, Walk};
use crate::version::ETCD_STORAGE_VERSION;

/// The bytes of one message; etcd sends half as many.
const MESSAGE_BYTES: usize = 64 << 10;

/// Messages that wait for the client.
const MESSAGES: usize = 4;

/// Slices that wait for the thread.
const SLICES: usize = 2;

/// How long a client may take nothing.
const STALLED_MAX: Duration = Duration::from_secs(120);

/// What goes to the client.
pub type Stream = ReceiverStream<Result<SnapshotResponse, Status>>;

/// Begins a snapshot: what does not depend on the client is done, or has failed, when this returns.
pub async fn begin(engine: &Arc<Engine>) -> Result<Stream, Status> {
    begin_with(engine, STALLED_MAX).await
}

async fn begin_with(engine: &Arc<Engine>, stalled_max: Duration) -> Result<Stream, Status> {
    let applied = engine.lock().map_err(status)?.snapshot_begin();
    let held = Held {
        engine: Arc::clone(engine),
        moment: applied.response,
    };
    engine.synced(applied.wait).await.map_err(status)?;
    let head = head(engine, &held.moment);
    let measured = measure(&held, &head).await?;
    let (messages, stream) = mpsc::channel(MESSAGES);
    tokio::spawn(send(held, head, measured, messages, stalled_max));
    Ok(ReceiverStream::new(stream))
}

/// A moment of the store that is let go also when the client goes away.
struct Held {
    engine: Arc<Engine>,
    moment: Moment,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Ok(mut state) = self.engine.lock() {
            state.snapshot_end(self.moment.compacted);
        }
    }
}

impl Held {
    fn walk(&self, values: bool) -> Result<Walk, Status> {
        Ok(self.engine.lock().map_err(status)?.snapshot_walk(&self.moment, values))
    }

    /// The next slice, after others had their turn; None at the end.
    async fn next(&self, walk: &mut Walk) -> Result<Option<Vec<Entry>>, Status> {
        tokio::task::yield_now().await;
        let state = self.engine.lock().map_err(status)?;
        state.snapshot_step(&self.moment, walk).map_err(status)
    }
}

/// Everything in the file but the records. `etcdutl snapshot restore` gives it a member and a raft log of its own.
fn head(engine: &Engine, moment: &Moment) -> Head {
    let identity = engine.identity();
    let member = Member {
        id: identity.member_id,
        name: "quantykube-store".to_owned(),
        ..Member::default()
    };
    let compacted = Some(moment.compacted).filter(|revision| *revision > 0);
    let mut head = Head::new(moment.revision, compacted).with_member(&member, moment.seq.max(1), identity.raft_term);
    for lease in &moment.leases {
        head.lease(&Lease {
            id: lease.id,
            ttl: lease.granted_ttl,
            remaining_ttl: 0,
        });
    }
    // What ran out here need not run out there.
    let corrupt = |alarm: &&_| alarm_is(alarm, AlarmType::Corrupt);
    for alarm in moment.alarms.iter().filter(corrupt) {
        head.alarm(Alarm {
            member: alarm.member_id,
            kind: AlarmKind::Corrupt,
        });
    }
    head
}

fn alarm_is(alarm: &quantykube_etcd_api::AlarmMember, kind: AlarmType) -> bool {
    alarm.alarm == kind as i32
}

async fn measure(held: &Held, head: &Head) -> Result<Measured, Status> {
    let mut measure = Measure::new(head).map_err(|error| failed(&error))?;
    let mut walk = held.walk(false)?;
    while let Some(entries) = held.next(&mut walk).await? {
        for entry in entries {
            let (revision, key) = (place(&entry), entry.key.len());
            match entry.put {
                Some(put) => {
                    let value = put.value.len as usize;
                    measure.put(revision, key, value, put.create, put.version, put.lease)
                }
                None => measure.delete(revision, key),
            }
            .map_err(|error| failed(&error))?;
        }
    }
    measure.finish().map_err(|error| failed(&error))
}

fn place(entry: &Entry) -> Revision {
    Revision {
        main: entry.revision.main,
        sub: i64::from(entry.revision.sub),
    }
}

/// Walks again, and ends the stream with the sum or with an error.
async fn send(
    held: Held,
    head: Head,
    measured: Measured,
    messages: Sender<Result<SnapshotResponse, Status>>,
    stalled_max: Duration,
) {
    let (slices, received) = mpsc::channel(SLICES);
    let (out, revision) = (messages.clone(), held.moment.revision);
    let writing = tokio::task::spawn_blocking(move || write(&head, measured, received, out));
    let walked = tokio::select! {
        walked = walk(&held, slices, stalled_max) => walked,
        () = messages.closed() => return,
        () = held.engine.stopping() => Err(Status::unavailable("quantykube-store: the server stops")),
    };
    drop(held);
    // The thread ends with what it was given; an error comes behind that.
    let written = writing
        .await
        .unwrap_or_else(|_| Err(Status::internal("quantykube-store: writing the snapshot ended early")));
    match walked.and(written) {
        Ok(bytes) => log!(info, "a snapshot of {bytes} bytes at revision {revision} was sent"),
        Err(status) => {
            if !messages.is_closed() {
                log!(
                    warn,
                    "a snapshot at revision {revision} was not finished: {}",
                    status.message()
                );
                let _ = messages.send(Err(status)).await;
            }
        }
    }
}

/// Gives all slices to the thread. An end before the last one is an end without a sum.
async fn walk(held: &Held, slices: Sender<Option<Vec<Entry>>>, stalled_max: Duration) -> Result<(), Status> {
    let mut walk = held.walk(true)?;
    loop {
        let next = held.next(&mut walk).await?;
        let last = next.is_none();
        match tokio::time::timeout(stalled_max, slices.send(next)).await {
            Ok(Ok(())) if last => return Ok(()),
            Ok(Ok(())) => {}
            // The thread has ended early: it says why.
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                let text = format!(
                    "quantykube-store: the client took nothing for {} s",
                    stalled_max.as_secs()
                );
                return Err(Status::deadline_exceeded(text));
            }
        }
    }
}

/// Makes the file of what comes, and gives the bytes of it.
fn write(
    head: &Head,
    measured: Measured,
    mut slices: Receiver<Option<Vec<Entry>>>,
    messages: Sender<Result<SnapshotResponse, Status>>,
) -> Result<u64, Status> {
    let out = Messages {
        messages,
        left: measured.bytes(),
        buffer: BytesMut::with_capacity(MESSAGE_BYTES),
    };
    let wrong = |error| failed(&error);
    let mut out = SnapshotWriter::new(Hashing::new(out), head, measured).map_err(wrong)?;
    let mut whole = false;
    while let Some(slice) = slices.blocking_recv() {
        let Some(entries) = slice else {
            whole = true;
            break;
        };
        for entry in entries {
            let revision = place(&entry);
            match entry.put {
                Some(put) => out.put(revision, &entry.key, &entry.value, put.create, put.version, put.lease),
                None => out.delete(revision, &entry.key),
            }
            .map_err(wrong)?;
        }
    }
    if !whole {
        return Err(Status::aborted("quantykube-store: the snapshot was given up"));
    }
    let (out, finished) = out.finish().map_err(wrong)?;
    let (mut out, sum) = out.finish();
    let gone = |_| Status::cancelled("quantykube-store: the client is gone");
    out.flush().map_err(gone)?;
    out.message(Bytes::copy_from_slice(&sum)).map_err(gone)?;
    Ok(finished.size)
}

fn failed(error: &WriteError) -> Status {
    Status::internal(format!("quantykube-store: {}", chain(error)))
}

/// Cuts what is written into messages.
struct Messages {
    messages: Sender<Result<SnapshotResponse, Status>>,
    /// Bytes of the file that are still to come.
    left: u64,
    buffer: BytesMut,
}

impl Messages {
    fn message(&mut self, blob: Bytes) -> io::Result<()> {
        let response = SnapshotResponse {
            // etcd sends none here.
            header: None,
            remaining_bytes: self.left,
            blob,
            version: ETCD_STORAGE_VERSION.to_owned(),
        };
        let sent = self.messages.blocking_send(Ok(response));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MESSAGE_BYTES - self.buffer.len();
        let now = &bytes[..room.min(bytes.len())];
        self.buffer.extend_from_slice(now);
        if self.buffer.len() == MESSAGE_BYTES {
            self.flush()?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(MESSAGE_BYTES));
        // The writer was told the length before; more than that is an error at its end, and no sum is sent.
        self.left = self.left.saturating_sub(full.len() as u64);
        self.message(full.freeze())
    }
}

#[cfg(test)]
mod tests {
    use quantykube_etcd_api::{CompactionRequest, PutRequest};
    use quantykube_store_file::{Identity, Options, SimDisk, Store, Tuning};
    use tokio_stream::StreamExt;
    use tonic::Code;

    use super::*;
    use crate::mvcc::Limits;

    fn engine() -> Arc<Engine> {
        let identity = Identity {
            cluster_id: 1,
            member_id: 2,
            raft_term: 3,
        };
        let options = Options { quota: 0, identity };
        let store = Store::create_on(Arc::new(SimDisk::new()), options, Tuning::default()).unwrap();
        let limits = Limits {
            request_bytes: 1 << 20,
            quota: 0,
            ..Limits::default()
        };
        Engine::new(store, limits)
    }

    async fn fill(engine: &Engine) -> i64 {
        let mut wait = 0;
        for number in 0..80 {
            let request = PutRequest {
                key: Bytes::from(format!("{}", number % 2)),
                value: Bytes::from(vec![number; 100_000]),
                ..Default::default()
            };
            wait = engine.lock().unwrap().put(&request).unwrap().wait;
        }
        engine.synced(wait).await.unwrap();
        engine.lock().unwrap().visible()
    }

    /// It holds space in the file: it must not do so for ever, and the client must not take a part for the whole.
    #[tokio::test]
    async fn a_client_that_takes_nothing_is_let_go() {
        let engine = engine();
        let publisher = Arc::clone(&engine);
        tokio::spawn(async move { publisher.publish().await });
        let revision = fill(&engine).await;
        let mut stream = begin_with(&engine, Duration::from_millis(300)).await.unwrap();
        let compact = CompactionRequest {
            revision,
            physical: true,
        };
        engine.lock().unwrap().compact(&compact).unwrap();
        let mut in_use = Vec::new();
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut state = engine.lock().unwrap();
            state.maintain(Duration::from_millis(50)).unwrap();
            in_use.push(state.sizes().in_use);
        }
        assert!(in_use[0] > 7_000_000, "not held: {in_use:?}");
        assert!(*in_use.last().unwrap() < 1_000_000, "held for ever: {in_use:?}");
        let mut bytes = 0;
        let end = loop {
            match stream.next().await {
                Some(Ok(message)) => bytes += message.blob.len(),
                Some(Err(status)) => break status,
                None => panic!("the stream ended as if {bytes} bytes were all"),
            }
        };
        assert_eq!(end.code(), Code::DeadlineExceeded);
        assert!(bytes > 0 && bytes < 7_000_000 && stream.next().await.is_none());
    }
}
