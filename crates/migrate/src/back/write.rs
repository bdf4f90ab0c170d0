//! Changes to etcd, many in one transaction, several transactions under way.

use etcd_client::{KvClient, PutOptions, Txn, TxnOp};
use tokio::task::JoinSet;

use super::compare::Change;
use crate::connect::Connection;
use crate::error::{Error, is_lease_gone, is_passing};

/// etcd takes at most 128 operations in one transaction.
const OPERATIONS_MAX: usize = 128;
/// etcd takes requests of 1.5 MiB; a single change may be larger than this and goes alone.
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

/// Writes the changes, all at once, or one by one where a lease among them has ended in the meantime: its keys are left
/// out, and the next pass sees them as ended.
async fn write(mut client: KvClient, changes: Vec<Change>) -> Result<(), etcd_client::Error> {
    match transaction(&mut client, &changes).await {
        Err(error) if is_lease_gone(&error) => {}
        other => return other,
    }
    for change in &changes {
        match transaction(&mut client, std::slice::from_ref(change)).await {
            Err(error) if is_lease_gone(&error) => {}
            other => other?,
        }
    }
    Ok(())
}

async fn transaction(client: &mut KvClient, changes: &[Change]) -> Result<(), etcd_client::Error> {
    let mut tries = 0;
    loop {
        let operations: Vec<TxnOp> = changes.iter().map(operation).collect();
        match client.txn(Txn::new().and_then(operations)).await {
            Ok(_) => return Ok(()),
            Err(error) if is_passing(&error) && tries < TRIES_MAX => {
                tries += 1;
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
            Err(error) => return Err(error),
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
