//! The store's leases in etcd.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use etcd_client::LeaseGrantOptions;
use quantykube_store_file::Lease;
use tokio::task::JoinSet;

use super::Closed;
use crate::connect::Connection;
use crate::copy::now_ms;
use crate::error::Error;
use crate::leases::{self, QUESTIONS_MAX};

/// What was done so that every lease of the store stands in etcd.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub granted: u64,
    pub renewed: u64,
    /// Leases whose deadline has passed: their keys are not copied.
    pub ended: HashSet<i64>,
}

/// What a lease needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Need {
    Grant(i64),
    Renew(i64),
}

/// Grants what etcd does not have, with what is left of it, and renews what would end there before its time. A lease
/// that lives on in etcd cannot be given less than the TTL it was granted: it may end later than in the store, never
/// earlier.
pub(super) async fn prepare(connection: &Connection, store: &Closed) -> Result<Prepared, Error> {
    let now = now_ms();
    let mut prepared = Prepared::default();
    let mut wanted: BTreeMap<i64, i64> = BTreeMap::new();
    for lease in store.frozen.leases() {
        match seconds_left(&lease, now) {
            Some(left) => {
                wanted.insert(lease.id, left);
            }
            None => {
                prepared.ended.insert(lease.id);
            }
        }
    }
    let there = leases::list(connection).await?;
    let both: BTreeSet<i64> = there.iter().copied().filter(|id| wanted.contains_key(id)).collect();
    let told: BTreeMap<i64, leases::Told> = leases::ask(connection, &both, false)
        .await?
        .into_iter()
        .map(|told| (told.id, told))
        .collect();
    let mut under_way = JoinSet::new();
    for (&id, &left) in &wanted {
        let Some(need) = need(left, told.get(&id)) else {
            continue;
        };
        if under_way.len() == QUESTIONS_MAX {
            count(connection, under_way.join_next().await, &mut prepared)?;
        }
        let client = connection.client.lease_client();
        under_way.spawn(meet(client, id, need));
    }
    while !under_way.is_empty() {
        count(connection, under_way.join_next().await, &mut prepared)?;
    }
    Ok(prepared)
}

/// Revokes the leases of etcd's that the store does not have (any more) and that hold no key.
pub(super) async fn revoke_empty(connection: &Connection, store: &Closed) -> Result<u64, Error> {
    let known: HashSet<i64> = store.frozen.leases().iter().map(|lease| lease.id).collect();
    let mut there = leases::list(connection).await?;
    there.retain(|id| !known.contains(id));
    let mut revoked = 0;
    for told in leases::ask(connection, &there, true).await? {
        if told.granted.is_none() || told.keys > 0 {
            continue;
        }
        match connection.client.lease_client().revoke(told.id).await {
            Ok(_) => revoked += 1,
            // It has ended by itself.
            Err(error) if crate::error::is_lease_gone(&error) => {}
            Err(error) => return Err(connection.failed("revoking a lease that holds nothing", error)),
        }
    }
    Ok(revoked)
}

/// Whole seconds until the deadline, never less than there are; None once it has passed.
fn seconds_left(lease: &Lease, now_ms: i64) -> Option<i64> {
    let left_ms = lease.deadline_ms.saturating_sub(now_ms);
    (left_ms > 0).then(|| left_ms.saturating_add(999) / 1000)
}

fn need(left: i64, told: Option<&leases::Told>) -> Option<Need> {
    match told {
        Some(told) if told.granted.is_some() => {
            // etcd tells whole seconds, rounded down.
            (told.left.saturating_add(1) < left).then_some(Need::Renew(left))
        }
        _ => Some(Need::Grant(left)),
    }
}

async fn meet(mut client: etcd_client::LeaseClient, id: i64, need: Need) -> Result<Need, etcd_client::Error> {
    let left = match need {
        Need::Grant(left) => left,
        Need::Renew(left) => {
            if renew(&mut client, id, left).await? {
                return Ok(need);
            }
            left
        }
    };
    match client.grant(left, Some(LeaseGrantOptions::new().with_id(id))).await {
        Ok(_) => Ok(Need::Grant(left)),
        // Granted by an earlier try whose answer was lost.
        Err(etcd_client::Error::GRpcStatus(status)) if status.message().contains("lease already exists") => Ok(need),
        Err(error) => Err(error),
    }
}

/// Starts a lease anew with the TTL it was granted. False if it is not there (any more), or if that TTL is shorter
/// than what is left in the store: then it was granted anew there under its old id, and etcd's own has nothing of it.
async fn renew(client: &mut etcd_client::LeaseClient, id: i64, left: i64) -> Result<bool, etcd_client::Error> {
    match client.keep_alive(id).await {
        Ok(_) => {}
        Err(etcd_client::Error::LeaseKeepAliveError(_)) => return Ok(false),
        Err(error) => return Err(error),
    }
    let told = client.time_to_live(id, None).await?;
    if told.granted_ttl() >= left {
        return Ok(true);
    }
    match client.revoke(id).await {
        Ok(_) => Ok(false),
        Err(error) if crate::error::is_lease_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn count(
    connection: &Connection,
    met: Option<Result<Result<Need, etcd_client::Error>, tokio::task::JoinError>>,
    prepared: &mut Prepared,
) -> Result<(), Error> {
    let met = met.expect("one lease is under way").expect("granting does not panic");
    match met.map_err(|error| connection.failed("granting a lease", error))? {
        Need::Grant(_) => prepared.granted += 1,
        Need::Renew(_) => prepared.renewed += 1,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_lease() {
        let lease = |deadline_ms| Lease {
            id: 7,
            granted_ttl: 60,
            deadline_ms,
        };
        assert_eq!(seconds_left(&lease(10_000), 10_000), None);
        assert_eq!(seconds_left(&lease(9_000), 10_000), None);
        assert_eq!(seconds_left(&lease(10_001), 10_000), Some(1));
        assert_eq!(seconds_left(&lease(11_000), 10_000), Some(1));
        assert_eq!(seconds_left(&lease(11_001), 10_000), Some(2));
    }

    #[test]
    fn a_lease_never_ends_before_its_time() {
        let told = |granted, left| leases::Told {
            id: 7,
            granted,
            left,
            keys: 0,
        };
        assert_eq!(need(30, None), Some(Need::Grant(30)));
        assert_eq!(need(30, Some(&told(None, 0))), Some(Need::Grant(30)));
        assert_eq!(need(30, Some(&told(Some(60), 10))), Some(Need::Renew(30)));
        assert_eq!(need(30, Some(&told(Some(60), 29))), None);
        assert_eq!(need(30, Some(&told(Some(60), 60))), None);
    }
}
