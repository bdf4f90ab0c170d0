//! The filler: writes to one key of ours until etcd's revision has come far enough.
//!
//! One write is one revision, and a transaction is one too, however much it holds: so many writes are under way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use quantykube_base::{Reporter, Unit};
use tokio::task::JoinSet;

use super::space::{self, Space};
use crate::FILLER_KEY;
use crate::connect::{Connection, Source};
use crate::error::{Error, is_full, is_passing};

/// Writes under way at once. etcd takes what waits into one sync of its log; more of them only wait longer.
const UNDER_WAY: usize = 128;
/// etcd's database keeps every revision until it is compacted.
const COMPACT_EVERY: i64 = 100_000;
/// How often progress and etcd's room are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often one write is tried where etcd asks to come back later.
const TRIES_MAX: u32 = 20;

/// What the filler did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Filled {
    /// Writes made, each of them a revision.
    pub writes: u64,
    /// How often etcd was compacted with all writers at rest.
    pub compactions: u64,
    /// How often it was defragmented.
    pub defragmentations: u64,
    /// How often its alarm NOSPACE, caused by the filler, was disarmed.
    pub disarmed: u64,
}

/// Lifts etcd's revision to at least `revision`. May run long before a copy, while the store serves, so that the copy
/// finds little left to do. Old history is compacted on the way and etcd's room under its quota is watched; the filler
/// key stays until the copy back ends.
///
/// # Errors
/// [`Error::NoRoom`] where etcd's quota is used up by others than the filler; otherwise what etcd answers. It may be
/// called again after any of them.
pub async fn raise_revision(target: &Source, revision: i64, reporter: &Reporter) -> Result<Filled, Error> {
    let connection = Connection::open_known(target).await?;
    fill(&connection, revision, reporter).await
}

pub(super) async fn fill(connection: &Connection, floor: i64, reporter: &Reporter) -> Result<Filled, Error> {
    let begun_at = connection.revision().await?;
    let mut now = begun_at;
    let mut writes = 0;
    if now >= floor {
        return Ok(Filled::default());
    }
    let mut space = Space::begin(connection).await?;
    let mut progress = reporter.progress("lifting etcd's revision", Unit::Revisions, Some((floor - now) as u64));
    // A lease that ends meanwhile makes one revision more, so a round never falls short for long.
    while now < floor {
        let from = now;
        let (made, end) = round(connection, floor - now, &space, |done| {
            progress.set((from - begun_at + done) as u64, "");
        })
        .await?;
        writes += made;
        now = connection.revision().await?;
        progress.set((now - begun_at) as u64, "");
        match end {
            End::Done => {}
            End::Short => {
                space.make_room(connection, now, reporter).await?;
            }
            End::Full => space.full(connection, now, reporter).await?,
        }
    }
    // The copy that follows finds room.
    if space.is_short(space::size(connection).await?) {
        space.make_room(connection, now, reporter).await?;
    }
    progress.finish();
    Ok(Filled {
        writes,
        compactions: space.compactions,
        defragmentations: space.defragmentations,
        disarmed: space.disarmed,
    })
}

/// Why a round ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// All writes are made.
    Done,
    /// etcd's database has come near its quota.
    Short,
    /// etcd takes no writes any more.
    Full,
}

/// What the writers of a round share.
struct Shared {
    tickets: AtomicI64,
    written: AtomicI64,
    highest: AtomicI64,
    stop: AtomicBool,
}

/// Makes at most `count` writes; gives their number. When it ends, no write is under way.
async fn round(
    connection: &Connection,
    count: i64,
    space: &Space,
    mut told: impl FnMut(i64),
) -> Result<(u64, End), Error> {
    let shared = Arc::new(Shared {
        tickets: AtomicI64::new(count),
        written: AtomicI64::new(0),
        highest: AtomicI64::new(0),
        stop: AtomicBool::new(false),
    });
    let mut writers = JoinSet::new();
    for _ in 0..UNDER_WAY.min(usize::try_from(count).unwrap_or(usize::MAX)) {
        writers.spawn(write(connection.client.kv_client(), shared.clone()));
    }
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut compacted = 0;
    let mut compacting: Option<tokio::task::JoinHandle<()>> = None;
    let (mut failed, mut end) = (None, End::Done);
    loop {
        tokio::select! {
            ended = writers.join_next() => match ended {
                None => break,
                Some(result) => if let Err(error) = result.expect("a writer does not panic") {
                    // The others end with the write they have under way.
                    shared.stop.store(true, Ordering::Relaxed);
                    match is_full(&error) {
                        true => end = End::Full,
                        false => failed = Some(connection.failed("lifting its revision", error)),
                    }
                },
            },
            _ = look.tick() => {
                told(shared.written.load(Ordering::Relaxed));
                match space::size(connection).await {
                    Ok(size) if space.is_short(size) && end == End::Done => {
                        shared.stop.store(true, Ordering::Relaxed);
                        end = End::Short;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        shared.stop.store(true, Ordering::Relaxed);
                        failed = Some(error);
                    }
                }
                let reached = shared.highest.load(Ordering::Relaxed);
                if compacted == 0 {
                    compacted = reached;
                }
                let idle = compacting.as_ref().is_none_or(tokio::task::JoinHandle::is_finished);
                if idle && reached - compacted >= COMPACT_EVERY {
                    compacted = reached;
                    let mut client = connection.client.kv_client();
                    compacting = Some(tokio::spawn(async move {
                        // What could not be compacted now is compacted with the next part, or at the end.
                        let _ = client.compact(reached, None).await;
                    }));
                }
            }
        }
    }
    if let Some(compacting) = compacting {
        let _ = compacting.await;
    }
    match failed {
        None => Ok((shared.written.load(Ordering::Relaxed).unsigned_abs(), end)),
        Some(error) => Err(error),
    }
}

/// One writer: one write after the other, while there are tickets.
async fn write(mut client: etcd_client::KvClient, shared: Arc<Shared>) -> Result<(), etcd_client::Error> {
    while !shared.stop.load(Ordering::Relaxed) && shared.tickets.fetch_sub(1, Ordering::Relaxed) > 0 {
        let revision = put(&mut client).await?;
        shared.written.fetch_add(1, Ordering::Relaxed);
        shared.highest.fetch_max(revision, Ordering::Relaxed);
    }
    Ok(())
}

/// One write; twice is no harm. Gives its revision.
async fn put(client: &mut etcd_client::KvClient) -> Result<i64, etcd_client::Error> {
    let mut tries = 0;
    loop {
        match client.put(FILLER_KEY, Vec::new(), None).await {
            Ok(answer) => return Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision)),
            Err(error) if is_passing(&error) && tries < TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The revision at which this copy back, or an interrupted one before it, began to write into etcd. What etcd holds from
/// before that and since the move, somebody else has written.
pub(super) async fn began(connection: &Connection) -> Result<i64, Error> {
    match space::filler(connection).await? {
        Some((key, _)) => Ok(key.create),
        None => Ok(connection.revision().await? + 1),
    }
}
