//! store file -> etcd.
//!
//! The steps, each of which may be stopped and made again:
//! 1. etcd numbers writes itself, so it is written to until its revision is past the store's last one.
//! 2. Passes: both sides are read in key order at one revision of etcd, and what differs is written. A pass that finds
//!    nothing to write is the proof that both hold the same.
//! 3. The filler key goes, leases that hold nothing go, and etcd is compacted, so that a watch from a revision of the
//!    store's is told so and lists again.
//!
//! A key that was not touched since the move keeps its revisions: etcd still has it as the store does.

mod compare;
mod fill;
mod grants;
mod pass;
mod space;
mod write;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use etcd_client::GetOptions;
use quantykube_base::Reporter;
use quantykube_store_file::Frozen;

pub use fill::{Filled, raise_revision};

use crate::FILLER_KEY;
use crate::connect::{Connection, Source};
use crate::copy::{file_error, joined};
use crate::error::{Error, is_compacted};
use crate::status::Foreign;

/// What was copied back.
#[derive(Clone, Debug, Default)]
pub struct BackOutcome {
    /// The endpoint that was written to.
    pub endpoint: String,
    /// The store's last revision.
    pub store_revision: i64,
    /// etcd's revision before.
    pub etcd_revision_before: i64,
    /// etcd's revision now: higher than any the store has given out.
    pub etcd_revision: i64,
    /// Writes made only to lift etcd's revision, and the room made for them.
    pub filled: Filled,
    /// Keys that were not as the move had left them in etcd, and not as the store has them: somebody else wrote or deleted
    /// them there. They are as the store has them now.
    pub others: Foreign,
    /// Keys that both sides hold.
    pub keys: u64,
    /// Of those the keys that were left alone.
    pub untouched: u64,
    /// Keys written.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// Leases granted anew.
    pub leases_granted: u64,
    /// Leases of etcd's that had less left than the store's and were renewed.
    pub leases_renewed: u64,
    /// Leases of etcd's that the store does not have and that held nothing.
    pub leases_revoked: u64,
    /// Keys not written because their lease has ended.
    pub keys_ended: u64,
    /// The revision etcd was compacted at, where that was needed.
    pub compacted: Option<i64>,
    /// Passes made, the proving one included.
    pub passes: u32,
    /// How long it took.
    pub took: Duration,
}

/// Leases may end between two passes, so that the second finds something too; more than a few passes mean that
/// someone else writes.
const PASSES_MAX: u32 = 8;

/// Makes the etcd hold what the closed store file holds. Neither an API server nor the store may run meanwhile.
///
/// Interrupted or failed, it is called again and goes on. The file is not changed.
pub async fn copy_back(file: &Path, target: &Source, reporter: &Reporter) -> Result<BackOutcome, Error> {
    let begun = Instant::now();
    let store = Closed::open(file).await?;
    let connection = Connection::open_known(target).await?;
    if store.cluster_id != connection.opened.cluster_id {
        return Err(Error::OtherCluster {
            endpoint: connection.endpoint,
            file: store.cluster_id,
            etcd: connection.opened.cluster_id,
        });
    }
    let mut outcome = BackOutcome {
        endpoint: connection.endpoint.clone(),
        store_revision: store.revision,
        etcd_revision_before: connection.revision().await?,
        ..BackOutcome::default()
    };
    reporter.step(
        "connected",
        &format!(
            "the store is at revision {}, etcd at {} at {}",
            store.revision, connection.endpoint, outcome.etcd_revision_before
        ),
    );
    outcome.filled = fill::fill(&connection, store.floor(), reporter).await?;
    passes(&connection, &store, &mut outcome, reporter).await?;
    outcome.leases_revoked = grants::revoke_empty(&connection, &store).await?;
    outcome.etcd_revision = remove_filler(&connection).await?;
    if store.written_to() {
        space::compact(&connection, outcome.etcd_revision, false).await?;
        outcome.compacted = Some(outcome.etcd_revision);
        prove_compacted(&connection, store.revision).await?;
    }
    outcome.took = begun.elapsed();
    Ok(outcome)
}

/// A store file that no server holds.
pub(crate) struct Closed {
    pub path: PathBuf,
    pub frozen: std::sync::Arc<Frozen>,
    pub cluster_id: u64,
    pub revision: i64,
    /// Up to this revision the store's history is etcd's own; 0 where the file does not come from an etcd.
    pub imported: i64,
}

impl Closed {
    async fn open(path: &Path) -> Result<Closed, Error> {
        let file = path.to_owned();
        let frozen = joined(tokio::task::spawn_blocking(move || Frozen::open(&file)))
            .await
            .map_err(|source| file_error(path, source))?;
        Ok(Closed {
            path: path.to_owned(),
            cluster_id: frozen.identity().cluster_id,
            revision: frozen.revision(),
            imported: frozen.imported().unwrap_or(0),
            frozen: std::sync::Arc::new(frozen),
        })
    }

    /// Whether the store has revisions that mean something else in etcd.
    fn written_to(&self) -> bool {
        self.revision > self.imported
    }

    /// The revision that etcd must have reached before the first key is written: the next one is past the store's
    /// last, and after a compaction there even a watch from the store's last revision misses nothing.
    fn floor(&self) -> i64 {
        match self.written_to() {
            true => self.revision + 1,
            false => self.revision,
        }
    }
}

async fn passes(
    connection: &Connection,
    store: &Closed,
    outcome: &mut BackOutcome,
    reporter: &Reporter,
) -> Result<(), Error> {
    let began = fill::began(connection).await?;
    loop {
        outcome.passes += 1;
        let leases = grants::prepare(connection, store).await?;
        outcome.leases_granted += leases.granted;
        outcome.leases_renewed += leases.renewed;
        let what = match outcome.passes {
            1 => "copying back",
            _ => "comparing",
        };
        let mut found = pass::pass(connection, store, &leases.ended, began, what, reporter).await?;
        outcome.puts += found.puts;
        outcome.deletes += found.deletes;
        if outcome.passes == 1 {
            outcome.untouched = found.same;
            outcome.others = std::mem::take(&mut found.others);
        }
        if found.puts == 0 && found.deletes == 0 {
            outcome.keys = found.same;
            outcome.keys_ended = found.ended;
            return Ok(());
        }
        if outcome.passes == PASSES_MAX {
            return Err(Error::StillDiffers {
                endpoint: connection.endpoint.clone(),
                passes: PASSES_MAX,
                what: format!("{} keys to write and {} to delete", found.puts, found.deletes),
            });
        }
    }
}

/// Deletes the filler key, if it is there, and gives etcd's revision after that.
async fn remove_filler(connection: &Connection) -> Result<i64, Error> {
    let answer = connection
        .client
        .kv_client()
        .delete(FILLER_KEY, None)
        .await
        .map_err(|error| connection.failed("deleting the filler key", error))?;
    answer
        .header()
        .map(etcd_client::ResponseHeader::revision)
        .ok_or_else(|| connection.impossible("an answer without a header"))
}

/// A read at the store's last revision must be told that it is gone.
async fn prove_compacted(connection: &Connection, revision: i64) -> Result<(), Error> {
    let options = GetOptions::new().with_revision(revision).with_limit(1).with_keys_only();
    match connection.client.kv_client().get(FILLER_KEY, Some(options)).await {
        Err(etcd_client::Error::GRpcStatus(status)) if is_compacted(&status) => Ok(()),
        Ok(_) => Err(connection.impossible(format!("revision {revision} can be read after the compaction"))),
        Err(error) => Err(connection.failed("reading at the store's last revision", error)),
    }
}
