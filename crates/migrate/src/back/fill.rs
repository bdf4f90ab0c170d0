//! The filler: writes to one key of ours until etcd's revision has come far enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use quantykube_base::{Reporter, Unit};
use tokio::task::JoinSet;

use crate::FILLER_KEY;
use crate::connect::{Connection, Source};
use crate::error::{Error, is_passing};

/// Writes under way at once. etcd takes what waits into one sync of its log; more of them only wait longer.
const UNDER_WAY: usize = 128;
/// etcd's database keeps every revision until it is compacted.
const COMPACT_EVERY: i64 = 100_000;
/// How often progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often one write is tried where etcd asks to come back later.
const TRIES_MAX: u32 = 20;

/// Lifts etcd's revision to at least `revision`; gives the number of writes made. May run long before a copy, while
/// the store serves, so that the copy finds little left to do. Old history is compacted on the way; the filler key
/// stays until the copy back ends.
pub async fn raise_revision(target: &Source, revision: i64, reporter: &Reporter) -> Result<u64, Error> {
    let connection = Connection::open_known(target).await?;
    fill(&connection, revision, reporter).await
}

pub(super) async fn fill(connection: &Connection, floor: i64, reporter: &Reporter) -> Result<u64, Error> {
    let begun_at = connection.revision().await?;
    let mut now = begun_at;
    let mut written = 0;
    if now >= floor {
        return Ok(0);
    }
    let mut progress = reporter.progress("lifting etcd's revision", Unit::Revisions, Some((floor - now) as u64));
    // Each write is one revision. A lease that ends meanwhile makes one more, so a round never falls short for long.
    while now < floor {
        let missing = floor - now;
        round(connection, missing, |done| {
            progress.set((now - begun_at + done) as u64, "");
        })
        .await?;
        written += missing as u64;
        now = connection.revision().await?;
        progress.set((now - begun_at) as u64, "");
    }
    progress.finish();
    Ok(written)
}

/// Makes `count` writes.
async fn round(connection: &Connection, count: i64, mut told: impl FnMut(i64)) -> Result<(), Error> {
    let tickets = Arc::new(AtomicI64::new(count));
    let highest = Arc::new(AtomicI64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for _ in 0..UNDER_WAY.min(usize::try_from(count).unwrap_or(usize::MAX)) {
        let mut client = connection.client.kv_client();
        let (tickets, highest, stop) = (tickets.clone(), highest.clone(), stop.clone());
        writers.spawn(async move {
            while !stop.load(Ordering::Relaxed) && tickets.fetch_sub(1, Ordering::Relaxed) > 0 {
                let revision = put(&mut client).await?;
                highest.fetch_max(revision, Ordering::Relaxed);
            }
            Ok::<(), etcd_client::Error>(())
        });
    }
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut compacted = highest.load(Ordering::Relaxed);
    let mut compacting: Option<tokio::task::JoinHandle<()>> = None;
    let mut failed = None;
    loop {
        tokio::select! {
            ended = writers.join_next() => match ended {
                None => break,
                Some(result) => if let Err(error) = result.expect("a writer does not panic") {
                    // The others end with the write they have under way.
                    stop.store(true, Ordering::Relaxed);
                    failed = Some(error);
                },
            },
            _ = look.tick() => {
                let left = tickets.load(Ordering::Relaxed).max(0);
                told(count - left);
                let reached = highest.load(Ordering::Relaxed);
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
        None => Ok(()),
        Some(error) => Err(connection.failed("lifting its revision", error)),
    }
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
