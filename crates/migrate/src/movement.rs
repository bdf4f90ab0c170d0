//! Whether an etcd moved while it was read, and by what.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{EventType, WatchOptions};

use crate::connect::Connection;
use crate::error::Error;
use crate::leases;

/// How far etcd's revision went while it was copied.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Movement {
    /// The revision after the copy.
    pub head_after: i64,
    /// Keys that went because their lease ended.
    pub lease_ends: u64,
    /// Other changes: another client writes to this etcd, and the copy does not hold what it wrote.
    pub writes: u64,
    /// There were changes whose kind cannot be told any more (compacted, or too many).
    pub unknown: bool,
}

impl Movement {
    /// Whether something other than a lease's end may have changed etcd.
    pub fn written_to(&self) -> bool {
        self.writes > 0 || self.unknown
    }
}

/// More revisions than this are not looked at one by one.
const REVISIONS_MAX: i64 = 10_000;
/// How long the events that are known to exist may take to come.
const EVENTS_AT_MOST: Duration = Duration::from_secs(10);

/// Looks at what happened after revision `head`.
pub(crate) async fn since(connection: &Connection, head: i64) -> Result<Movement, Error> {
    let mut movement = Movement {
        head_after: connection.revision().await?,
        ..Movement::default()
    };
    if movement.head_after == head {
        return Ok(movement);
    }
    if movement.head_after < head || movement.head_after - head > REVISIONS_MAX {
        movement.unknown = true;
        return Ok(movement);
    }
    match tokio::time::timeout(EVENTS_AT_MOST, events(connection, head, movement.head_after)).await {
        Ok(Ok(Some((writes, by_lease)))) => {
            // A client may delete a key that has a lease. Where the lease still stands it was not the lease.
            let ids: BTreeSet<i64> = by_lease.iter().copied().collect();
            let standing: BTreeSet<i64> = leases::ask(connection, &ids, false)
                .await?
                .into_iter()
                .filter(|told| told.granted.is_some())
                .map(|told| told.id)
                .collect();
            let by_client = by_lease.iter().filter(|id| standing.contains(id)).count() as u64;
            movement.writes = writes + by_client;
            movement.lease_ends = by_lease.len() as u64 - by_client;
        }
        Ok(Ok(None)) | Err(_) => movement.unknown = true,
        Ok(Err(error)) => return Err(error),
    }
    Ok(movement)
}

/// The number of writes in `(head, after]`, and for each deleted key that had a lease the lease. None if they are gone.
async fn events(connection: &Connection, head: i64, after: i64) -> Result<Option<(u64, Vec<i64>)>, Error> {
    let failed = |error| connection.failed("looking at what changed meanwhile", error);
    let options = WatchOptions::new()
        .with_all_keys()
        .with_start_revision(head + 1)
        .with_prev_key()
        .with_fragment();
    let mut stream = connection
        .client
        .watch_client()
        .max_decoding_message_size(i32::MAX as usize)
        .watch("", Some(options))
        .await
        .map_err(failed)?;
    let (mut writes, mut by_lease) = (0, Vec::new());
    while let Some(answer) = stream.message().await.map_err(failed)? {
        if answer.canceled() {
            return Ok(None);
        }
        let mut seen = 0;
        for event in answer.events() {
            seen = event.kv().map_or(0, etcd_client::KeyValue::mod_revision);
            if seen > after {
                break;
            }
            match (
                event.event_type(),
                event.prev_kv().map_or(0, etcd_client::KeyValue::lease),
            ) {
                (EventType::Delete, lease) if lease != 0 => by_lease.push(lease),
                _ => writes += 1,
            }
        }
        // Fragments of one revision follow each other; the last event of `after` may be in a later answer.
        if seen > after || (seen == after && !answer.0.fragment) {
            return Ok(Some((writes, by_lease)));
        }
    }
    Ok(None)
}
