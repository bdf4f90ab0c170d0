//! Changes to etcd, many in one transaction, several transactions under way.

use etcd_client::{KvClient, PutOptions, Txn, TxnOp};
use tokio::task::JoinSet;

use super::compare::Change;
use crate::connect::Connection;
use crate::error::{Error, is_lease_gone, is_passing, is_too_much};

/// etcd takes at most 128 operations in one transaction, unless it was set to take fewer.
const OPERATIONS_MAX: usize = 128;
/// etcd takes requests of 1.5 MiB, unless it was set otherwise; a single change may be larger than this and goes alone.
const BYTES_MAX: usize = 1 << 20;
/// Transactions under way at once.
const UNDER_WAY: usize = 8;
/// How often a transaction is tried where etcd asks to come back later.
const TRIES_MAX: u32 = 20;
const TRY_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(200);

/// Gathers changes of different keys and writes them in no particular order.
pub(super) struct Writer<'a> {
    connection: &'a Connection,
    gathered: Vec<Change>,
    bytes: usize,
    under_way: JoinSet<Result<(), etcd_client::Error>>,
}

impl<'a> Writer<'a> {
    pub fn new(connection: &'a Connection) -> Writer<'a> {
        Writer {
            connection,
            gathered: Vec::new(),
            bytes: 0,
            under_way: JoinSet::new(),
        }
    }

    pub async fn push(&mut self, change: Change) -> Result<(), Error> {
        let size = size(&change);
        if self.gathered.len() == OPERATIONS_MAX || (self.bytes + size > BYTES_MAX && !self.gathered.is_empty()) {
            self.send().await?;
        }
        self.bytes += size;
        self.gathered.push(change);
        Ok(())
    }

    /// Writes the rest and waits for all.
    pub async fn finish(mut self) -> Result<(), Error> {
        if !self.gathered.is_empty() {
            self.send().await?;
        }
        while !self.under_way.is_empty() {
            self.wait_for_one().await?;
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Error> {
        if self.under_way.len() == UNDER_WAY {
            self.wait_for_one().await?;
        }
        let changes = std::mem::take(&mut self.gathered);
        self.bytes = 0;
        let client = self.connection.client.kv_client();
        self.under_way.spawn(write(client, changes));
        Ok(())
    }

    async fn wait_for_one(&mut self) -> Result<(), Error> {
        let ended = self.under_way.join_next().await.expect("one transaction is under way");
        ended
            .expect("writing does not panic")
            .map_err(|error| self.connection.failed("writing keys", error))
    }
}

fn size(change: &Change) -> usize {
    // Tags, lengths and the lease around a key and its value.
    const OVERHEAD: usize = 48;
    OVERHEAD
        + match change {
            Change::Put { key, value, .. } => key.len() + value.len(),
            Change::Delete { key } => key.len(),
        }
}

/// Writes the changes: all at once, in halves where etcd was set to take less at once, or one by one where a lease among
/// them has ended in the meantime: its keys are left out, and the next pass sees them as ended.
async fn write(mut client: KvClient, changes: Vec<Change>) -> Result<(), etcd_client::Error> {
    let mut waiting = vec![&changes[..]];
    while let Some(part) = waiting.pop() {
        match send(&mut client, part).await {
            Ok(()) => {}
            Err(error) if is_lease_gone(&error) => {
                if part.len() > 1 {
                    waiting.extend(part.chunks(1));
                }
            }
            Err(error) if is_too_much(&error) && part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                waiting.extend([second, first]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn send(client: &mut KvClient, changes: &[Change]) -> Result<(), etcd_client::Error> {
    let mut tries = 0;
    loop {
        match send_once(client, changes).await {
            Err(error) if is_passing(&error) && tries < TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
            ended => return ended,
        }
    }
}

/// A change that is alone goes without a transaction around it: the largest value that a server takes from a client fits
/// into nothing else.
async fn send_once(client: &mut KvClient, changes: &[Change]) -> Result<(), etcd_client::Error> {
    match changes {
        [Change::Put { key, value, lease }] => {
            let options = PutOptions::new().with_lease(*lease);
            client.put(&key[..], &value[..], Some(options)).await.map(|_| ())
        }
        [Change::Delete { key }] => client.delete(&key[..], None).await.map(|_| ()),
        several => {
            let operations: Vec<TxnOp> = several.iter().map(operation).collect();
            client.txn(Txn::new().and_then(operations)).await.map(|_| ())
        }
    }
}

fn operation(change: &Change) -> TxnOp {
    match change {
        Change::Put { key, value, lease } => {
            let options = PutOptions::new().with_lease(*lease);
            TxnOp::put(&key[..], &value[..], Some(options))
        }
        Change::Delete { key } => TxnOp::delete(&key[..], None),
    }
}
