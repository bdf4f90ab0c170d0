//! One pass over both sides, in key order.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use quantykube_base::{Reporter, Unit};
use quantykube_store_file::Record;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Closed;
use super::compare::{Since, Verdict, verdict};
use super::write::Writer;
use crate::connect::Connection;
use crate::copy::{file_error, joined, record};
use crate::error::Error;
use crate::pages::Pager;
use crate::status::Foreign;
use crate::{COMPACT_KEY, FILLER_KEY};

/// What a pass found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub same: u64,
    pub puts: u64,
    pub deletes: u64,
    pub ended: u64,
    /// Keys that somebody else wrote into etcd since the move, or deleted from it.
    pub others: Foreign,
}

/// How many of the keys that others wrote are named.
const NAMED_MAX: usize = 10;

/// Of a key that is different: whether neither the API server (before the move) nor a copy back (since `began`) has left
/// it in etcd as it is there, so that somebody else wrote or deleted it. A key with a lease may have gone by itself. Of a store that was not copied
/// from an etcd (`imported` is 0) nothing can be told.
fn by_others(store: Option<&Record>, etcd: Option<&Record>, imported: i64, began: i64) -> bool {
    match (store, etcd) {
        _ if imported == 0 => false,
        (_, Some(etcd)) => etcd.modified > imported && etcd.modified < began && etcd.key != COMPACT_KEY.as_bytes(),
        (Some(store), None) => store.modified <= imported && store.lease == 0,
        (None, None) => false,
    }
}

/// Compares every key of both sides and writes what differs. What is written meanwhile is not seen by this pass: it
/// reads etcd at one revision. `began` is the revision at which the copy back began to write into etcd.
pub(super) async fn pass(
    connection: &Connection,
    store: &Closed,
    ended: &HashSet<i64>,
    began: i64,
    what: &str,
    reporter: &Reporter,
) -> Result<Found, Error> {
    let since = Since {
        imported: store.imported,
        revision: store.revision,
        ended,
    };
    let mut store_side = StoreSide::begin(store);
    let mut etcd_side = EtcdSide::begin(connection);
    let mut writer = Writer::new(connection);
    let mut found = Found::default();
    let mut etcd_next = etcd_side.next().await?;
    let mut store_next = store_side.next().await?;
    let mut progress = reporter.progress(what, Unit::Keys, None);
    loop {
        let (of_store, of_etcd) = match (&store_next, &etcd_next) {
            (None, None) => break,
            (Some(_), None) => (store_next.take(), None),
            (None, Some(_)) => (None, etcd_next.take()),
            (Some(ours), Some(theirs)) => match ours.key.cmp(&theirs.key) {
                std::cmp::Ordering::Less => (store_next.take(), None),
                std::cmp::Ordering::Greater => (None, etcd_next.take()),
                std::cmp::Ordering::Equal => (store_next.take(), etcd_next.take()),
            },
        };
        match verdict(of_store.as_ref(), of_etcd.as_ref(), &since) {
            Verdict::Same => found.same += 1,
            Verdict::Ended => found.ended += 1,
            Verdict::Change(change) => {
                if by_others(of_store.as_ref(), of_etcd.as_ref(), store.imported, began) {
                    found.others.add(change.key(), NAMED_MAX);
                }
                match &change {
                    super::compare::Change::Put { .. } => found.puts += 1,
                    super::compare::Change::Delete { .. } => found.deletes += 1,
                }
                writer.push(change).await?;
            }
        }
        let seen = found.same + found.ended + found.puts + found.deletes;
        if seen.is_multiple_of(1024) {
            progress.set(seen, &note(&found));
        }
        if store_next.is_none() {
            store_next = store_side.next().await?;
        }
        if etcd_next.is_none() {
            etcd_next = etcd_side.next().await?;
        }
    }
    writer.finish().await?;
    progress.set(found.same + found.ended + found.puts + found.deletes, &note(&found));
    progress.finish();
    Ok(found)
}

fn note(found: &Found) -> String {
    format!("{} written, {} deleted", found.puts, found.deletes)
}

/// etcd's keys at one revision, without the filler's.
struct EtcdSide {
    pager: Pager,
    page: std::vec::IntoIter<etcd_client::KeyValue>,
}

impl EtcdSide {
    fn begin(connection: &Connection) -> EtcdSide {
        EtcdSide {
            pager: Pager::at_head(connection),
            page: Vec::new().into_iter(),
        }
    }

    async fn next(&mut self) -> Result<Option<Record>, Error> {
        loop {
            match self.page.next() {
                Some(found) if found.key() == FILLER_KEY.as_bytes() => {}
                Some(found) => return Ok(Some(record(found))),
                None => match self.pager.next().await? {
                    Some(page) => self.page = page.records.into_iter(),
                    None => return Ok(None),
                },
            }
        }
    }
}

/// Records handed over at once.
const BATCH_RECORDS: usize = 512;
/// Bytes handed over at once; a single record may be larger.
const BATCH_BYTES: usize = 1 << 20;

/// The store's keys, read by a thread of its own, without the filler's: a leftover in etcd is copied like every key.
struct StoreSide {
    batches: mpsc::Receiver<Vec<Record>>,
    batch: std::vec::IntoIter<Record>,
    /// None once it has ended well.
    reader: Option<JoinHandle<Result<(), quantykube_store_file::Error>>>,
    path: PathBuf,
}

impl StoreSide {
    fn begin(store: &Closed) -> StoreSide {
        let (sender, batches) = mpsc::channel(2);
        let frozen = store.frozen.clone();
        let reader = tokio::task::spawn_blocking(move || {
            let mut batch = Vec::new();
            let mut bytes = 0;
            frozen.records(&mut |record| {
                bytes += record.key.len() + record.value.len();
                batch.push(record);
                if batch.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
                    return ControlFlow::Continue(());
                }
                bytes = 0;
                match sender.blocking_send(std::mem::take(&mut batch)) {
                    Ok(()) => ControlFlow::Continue(()),
                    // The pass was given up.
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            if !batch.is_empty() {
                let _ = sender.blocking_send(batch);
            }
            Ok(())
        });
        StoreSide {
            batches,
            batch: Vec::new().into_iter(),
            reader: Some(reader),
            path: store.path.clone(),
        }
    }

    /// The next record. None only after the last one was read well: a missing record would be deleted from etcd.
    async fn next(&mut self) -> Result<Option<Record>, Error> {
        loop {
            match self.batch.next() {
                Some(found) if found.key == FILLER_KEY.as_bytes() => {}
                Some(found) => return Ok(Some(found)),
                None => match self.batches.recv().await {
                    Some(batch) => self.batch = batch.into_iter(),
                    None => {
                        if let Some(reader) = self.reader.take() {
                            joined(reader).await.map_err(|source| file_error(&self.path, source))?;
                        }
                        return Ok(None);
                    }
                },
            }
        }
    }
}
