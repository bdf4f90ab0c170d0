//! The leases of an etcd.

use std::collections::BTreeSet;

use etcd_client::LeaseTimeToLiveOptions;
use tokio::task::JoinSet;

use crate::connect::Connection;
use crate::error::Error;

/// How many questions about leases are under way at once.
pub(crate) const QUESTIONS_MAX: usize = 64;

/// A lease as etcd tells of it now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Told {
    pub id: i64,
    /// The TTL it was granted, in seconds; None if there is no such lease.
    pub granted: Option<i64>,
    /// What is left of it, in seconds; 0 if there is no such lease.
    pub left: i64,
    /// Keys attached to it; 0 where not asked for.
    pub keys: usize,
}

/// The ids of all leases that have not ended.
pub(crate) async fn list(connection: &Connection) -> Result<BTreeSet<i64>, Error> {
    let answer = connection
        .client
        .lease_client()
        .leases()
        .await
        .map_err(|error| connection.failed("listing its leases", error))?;
    Ok(answer.leases().iter().map(etcd_client::LeaseStatus::id).collect())
}

/// Asks for each of `ids`, many at once; the answers come in the order of the ids.
pub(crate) async fn ask(connection: &Connection, ids: &BTreeSet<i64>, keys: bool) -> Result<Vec<Told>, Error> {
    let mut told = Vec::with_capacity(ids.len());
    let mut under_way = JoinSet::new();
    for id in ids.iter().copied() {
        if under_way.len() == QUESTIONS_MAX {
            told.push(joined(connection, under_way.join_next().await)?);
        }
        let mut client = connection.client.lease_client();
        under_way.spawn(async move {
            let options = keys.then(|| LeaseTimeToLiveOptions::new().with_keys());
            client.time_to_live(id, options).await.map(|answer| Told {
                id,
                // etcd answers -1 for a lease it does not have, and 0 in the instant in which one ends.
                granted: (answer.ttl() >= 0 && answer.granted_ttl() > 0).then(|| answer.granted_ttl()),
                left: answer.ttl().max(0),
                keys: answer.keys().len(),
            })
        });
    }
    while !under_way.is_empty() {
        told.push(joined(connection, under_way.join_next().await)?);
    }
    told.sort_unstable_by_key(|told| told.id);
    Ok(told)
}

fn joined(
    connection: &Connection,
    answer: Option<Result<Result<Told, etcd_client::Error>, tokio::task::JoinError>>,
) -> Result<Told, Error> {
    answer
        .expect("one question is under way")
        .expect("a question does not panic")
        .map_err(|error| connection.failed("asking for a lease", error))
}
