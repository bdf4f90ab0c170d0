//! The end of the events' leases: each lease's keys go together, in time, and not before their time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::api::Api;
use crate::etcd::{Follower, show};
use crate::note::{Noted, get_all};
use crate::tally::Tally;

const TOGETHER: &str = "ended leases: all their keys, in one revision";
const IN_TIME: &str = "ended leases: in time, not early";
const GONE: &str = "events after their lease: not found";

/// How much later than its TTL a lease may end: the machine is shared, and etcd looks every half second.
const LATE: Duration = Duration::from_secs(12);

/// Waits for the end of every noted lease. `served` is when the server started, `ready` when the API server on it
/// was ready: its first write lies between the two, and a store that was imported ends no lease before that.
pub async fn run(
    api: &Api,
    follower: &Follower,
    noted: &Noted,
    served: Instant,
    ready: Instant,
    tally: &mut Tally,
) -> Result<()> {
    tally.expect(&[TOGETHER, IN_TIME, GONE]);
    let longest = noted.leases.values().map(|lease| lease.granted).max().unwrap_or(0);
    let give_up = ready + Duration::from_secs(longest.unsigned_abs()) + LATE;
    let total: usize = noted.leases.values().map(|lease| lease.keys.len()).sum();
    let mut ended: BTreeMap<i64, Vec<(Instant, i64, Vec<u8>)>> = BTreeMap::new();
    while Instant::now() < give_up {
        ended.clear();
        for (at, event) in follower.so_far() {
            let lease = event.before.as_ref().map_or(0, |before| before.lease);
            if event.now.is_none() && noted.leases.contains_key(&lease) {
                ended
                    .entry(lease)
                    .or_default()
                    .push((at, event.revision, event.key.clone()));
            }
        }
        if ended.values().map(Vec::len).sum::<usize>() >= total {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for (id, lease) in &noted.leases {
        let deletions = ended.remove(id).unwrap_or_default();
        let mut keys: Vec<Vec<u8>> = deletions.iter().map(|(_, _, key)| key.clone()).collect();
        keys.sort();
        let one_revision = deletions.windows(2).all(|pair| pair[0].1 == pair[1].1);
        tally.check(TOGETHER, keys == lease.keys && one_revision, || {
            let first = lease.keys.first().map(|key| show(key)).unwrap_or_default();
            format!(
                "lease {id:x} ({first} ..): {} of {} keys went, in one revision: {one_revision}",
                keys.len(),
                lease.keys.len()
            )
        });
        let ttl = Duration::from_secs(lease.granted.unsigned_abs());
        for (at, _, key) in deletions {
            let early = at + Duration::from_millis(1500) < served + ttl;
            let late = at > ready + ttl + LATE;
            tally.check(IN_TIME, !early && !late, || {
                format!(
                    "{} went {:?} after the start, its TTL is {ttl:?}",
                    show(&key),
                    at - served
                )
            });
        }
    }
    let events: Vec<String> = noted
        .ours
        .iter()
        .filter(|(_, object)| object.kind.resource == "events")
        .map(|(path, _)| path.clone())
        .collect();
    for (path, (status, _)) in get_all(api, events).await? {
        tally.same(GONE, &path, status, 404);
    }
    Ok(())
}
