//! Every event since the move, through an etcd client: live and read again, they explain the whole new state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::raw;
use super::updates::Written;
use crate::etcd::{Dump, Etcd, Event, Follower, Kv, show};
use crate::note::Noted;
use crate::tally::Tally;

const REVISIONS: &str = "etcd watch from head+1: every revision, in order";
const BEFORE: &str = "events: the state before is what stood there";
const AGAIN: &str = "the same watch read again: the same events";
const ACKNOWLEDGED: &str = "acknowledged writes: each an event";
const END: &str = "keys at the end: as the events say";

/// How long a watch may lag behind a server to which nobody writes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the checks; the API server has stopped, so nothing is written. Returns the last state.
pub async fn run(etcd: &Etcd, live: Follower, noted: &Noted, written: &Written, tally: &mut Tally) -> Result<Dump> {
    tally.expect(&[REVISIONS, BEFORE, AGAIN, ACKNOWLEDGED, END]);
    let dump = etcd.dump().await?;
    let events = live.finish(dump.revision, PATIENCE).await?;
    let again = etcd
        .follow(noted.dump.revision + 1)
        .await?
        .finish(dump.revision, PATIENCE)
        .await?;

    tally.same(AGAIN, "number of events", again.len(), events.len());
    for (first, second) in events.iter().zip(&again) {
        tally.check(AGAIN, first == second, || {
            format!("revision {} on {} read again differs", first.revision, show(&first.key))
        });
    }
    revisions(&events, noted.dump.revision, dump.revision, tally);
    replay(&events, noted, &dump, tally);
    acknowledged(&events, written, tally);
    Ok(dump)
}

/// A revision is one change: each number from the head on has events, and within one revision no key comes twice.
fn revisions(events: &[Arc<Event>], head: i64, end: i64, tally: &mut Tally) {
    let found: BTreeSet<i64> = events.iter().map(|event| event.revision).collect();
    for revision in head + 1..=end {
        tally.check(REVISIONS, found.contains(&revision), || {
            format!("revision {revision} has no event")
        });
    }
    for pair in events.windows(2) {
        let in_order =
            pair[0].revision < pair[1].revision || pair[0].revision == pair[1].revision && pair[0].key != pair[1].key;
        if !in_order {
            let text = format!("revision {} came after {}", pair[1].revision, pair[0].revision);
            tally.check(REVISIONS, false, || text);
        }
    }
    if found.range(..=head).next().is_some() || found.range(end + 1..).next().is_some() {
        tally.check(REVISIONS, false, || {
            "an event from outside the asked revisions came".to_string()
        });
    }
}

fn replay(events: &[Arc<Event>], noted: &Noted, end: &Dump, tally: &mut Tally) {
    let mut keys: BTreeMap<Vec<u8>, Kv> = noted.dump.keys.clone();
    for event in events {
        let before = keys.get(&event.key);
        let consistent = match (&event.now, before) {
            (None, before) => before.is_some(),
            (Some(now), None) => now.version == 1 && now.create == event.revision && now.modified == event.revision,
            (Some(now), Some(before)) => {
                now.version == before.version + 1 && now.create == before.create && now.modified == event.revision
            }
        };
        let good = consistent && event.before.as_ref() == before;
        tally.check(BEFORE, good, || {
            let shape = |kv: Option<&Kv>| kv.map_or("nothing".to_string(), Kv::shape);
            format!(
                "{} at {}: {} after {}, where {} stood",
                show(&event.key),
                event.revision,
                shape(event.now.as_ref()),
                shape(event.before.as_ref()),
                shape(before)
            )
        });
        match &event.now {
            Some(now) => keys.insert(event.key.clone(), now.clone()),
            None => keys.remove(&event.key),
        };
    }
    let replayed = Dump {
        revision: end.revision,
        count: end.count,
        keys,
    };
    raw::keys(END, &replayed, end, tally);
}

fn acknowledged(events: &[Arc<Event>], written: &Written, tally: &mut Tally) {
    let named = |event: &Event, name: &str| event.key.rsplit(|byte| *byte == b'/').next() == Some(name.as_bytes());
    for (resource, name, version) in &written.puts {
        let there = events
            .iter()
            .any(|e| e.revision == *version && e.now.is_some() && named(e, name));
        tally.check(ACKNOWLEDGED, there, || {
            format!("the write {version} of {resource} {name} is no event")
        });
    }
    for (resource, name) in &written.deletions {
        let there = events.iter().any(|e| e.now.is_none() && named(e, name));
        tally.check(ACKNOWLEDGED, there, || {
            format!("the deletion of {resource} {name} is no event")
        });
    }
}
