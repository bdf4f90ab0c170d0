//! What `undo store` will cost, told before it is made: revisions, time, room, and what of others it will overwrite.

use quantykube_base::human_bytes;
use quantykube_migrate::{Foreign, imported_at, written_since};
use serde::{Serialize, Serializer};

use crate::facts::etcd::{runtime, source};
use crate::facts::{Known, Root, UndoStore, chain};
use crate::moves::places;

/// Revisions that etcd takes in a second: an estimate, from docs/benchmarks.md. The real rate shows while it runs.
const RATE: u64 = 10_000;
/// Bytes that one of them takes in etcd's database until it is compacted: an estimate, from the same place.
const REVISION_BYTES: u64 = 70;
/// etcd is compacted after so many.
const COMPACT_EVERY: u64 = 100_000;
/// How many keys of others are named.
const NAMED_MAX: usize = 10;

/// What can be told before.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// The store's revision.
    #[serde(serialize_with = "known")]
    pub store_revision: Known<i64>,
    /// etcd's.
    #[serde(serialize_with = "known")]
    pub etcd_revision: Known<i64>,
    /// Writes that lift etcd's past the store's, while the API server still runs.
    pub revisions: Option<u64>,
    /// How long they take, in seconds: an estimate.
    pub seconds: Option<f64>,
    /// Size of etcd's database, in bytes.
    pub db_bytes: Option<u64>,
    /// etcd's quota, in bytes, where it tells it.
    pub quota_bytes: Option<u64>,
    /// What the database may grow by, in bytes, before it is compacted: an estimate.
    pub grows_by_bytes: Option<u64>,
    /// Keys that others wrote into etcd since the move.
    #[serde(serialize_with = "foreign")]
    pub written_by_others: Known<Foreign>,
}

/// Asks both servers; writes nothing.
pub fn of(root: &Root, facts: &UndoStore) -> Outlook {
    let client = facts
        .api_server
        .clone()
        .and_then(|api| api.ok_or_else(|| "there is no API server manifest".to_owned())?.client);
    let installed = facts
        .node
        .installed
        .clone()
        .and_then(|found| found.ok_or_else(|| "no install of the store is in force".to_owned()));
    let store_revision = installed.clone().and_then(|installed| {
        runtime()?
            .block_on(quantykube_migrate::store_revision(&source(
                root,
                &installed.store,
                &client.clone()?,
            )))
            .map_err(|error| chain(&error))
    });
    let status = facts.etcd.as_ref().ok().map(|etcd| &etcd.status);
    let etcd_revision = facts
        .etcd
        .as_ref()
        .map(|etcd| etcd.status.revision)
        .map_err(String::clone);
    let written_by_others = installed.and_then(|installed| {
        let imported = imported_at(&root.at(places::STORE_FILE))
            .map_err(|error| chain(&error))?
            .ok_or_else(|| "the store's file was not copied from an etcd".to_owned())?;
        runtime()?
            .block_on(written_since(
                &source(root, &installed.etcd, &client?),
                imported,
                NAMED_MAX,
            ))
            .map_err(|error| chain(&error))
    });
    let revisions = match (&store_revision, &etcd_revision) {
        (Ok(store), Ok(etcd)) => Some(u64::try_from(store + 1 - etcd).unwrap_or(0)),
        _ => None,
    };
    Outlook {
        revisions,
        seconds: revisions.map(|revisions| revisions as f64 / RATE as f64),
        db_bytes: status.map(|status| status.db_size),
        quota_bytes: status.and_then(|status| status.quota),
        grows_by_bytes: revisions.map(|revisions| revisions.min(2 * COMPACT_EVERY) * REVISION_BYTES),
        store_revision,
        etcd_revision,
        written_by_others,
    }
}

impl Outlook {
    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.push(match (&self.store_revision, &self.etcd_revision, self.revisions, self.seconds) {
            (Ok(store), Ok(etcd), Some(0), _) => {
                format!("revisions: the store is at {store}, etcd at {etcd}: it is past the store's already")
            }
            (Ok(store), Ok(etcd), Some(revisions), Some(seconds)) => format!(
                "revisions: the store is at {store}, etcd at {etcd}: {revisions} writes lift it, one by one, while the API server runs on\n\
                 time: about {} for them, at an estimated {RATE} a second; then the API server is away while both sides are compared",
                duration(seconds)
            ),
            (Err(why), _, _, _) => format!("revisions: the store does not tell its own: {why}"),
            (_, Err(why), _, _) => format!("revisions: etcd does not tell its own: {why}"),
            (Ok(_), Ok(_), _, _) => "revisions: unknown".to_owned(),
        });
        if let (Some(db), Some(grows)) = (self.db_bytes, self.grows_by_bytes) {
            let quota = match self.quota_bytes {
                Some(quota) => format!("its quota is {}", human_bytes(quota)),
                None => "it does not tell its quota".to_owned(),
            };
            lines.push(format!(
                "space: etcd's database has {}, {quota}; it grows by about {} at most and is compacted on the way, and defragmented before the quota is reached",
                human_bytes(db),
                human_bytes(grows)
            ));
        }
        lines.push(match &self.written_by_others {
            Ok(found) if found.count == 0 => "others: nobody else has written into etcd since the move".to_owned(),
            Ok(found) => format!("others: {}", others(found, "will be overwritten")),
            Err(why) => format!("others: whether somebody else wrote into etcd cannot be told: {why}"),
        });
        lines
    }
}

/// What others wrote, with the first names.
pub fn others(found: &Foreign, what: &str) -> String {
    let more = match found.count as usize > found.first.len() {
        true => ", ...",
        false => "",
    };
    format!(
        "{} keys were written into etcd since the move, not through the API server (or by an undo that was put back), and {what}: {}{more}",
        found.count,
        found.first.join(", ")
    )
}

/// Seconds, as people say them.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{:.0} s", s.ceil()),
        s if s < 5400.0 => format!("{:.0} minutes", (s / 60.0).ceil()),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

fn known<S: Serializer>(fact: &Known<i64>, out: S) -> Result<S::Ok, S::Error> {
    fact.as_ref().ok().serialize(out)
}

fn foreign<S: Serializer>(fact: &Known<Foreign>, out: S) -> Result<S::Ok, S::Error> {
    match fact {
        Ok(found) => serde_json::json!({"count": found.count, "first": found.first}).serialize(out),
        Err(_) => out.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_times_and_names() {
        assert_eq!(duration(0.2), "1 s");
        assert_eq!(duration(89.0), "89 s");
        assert_eq!(duration(100.0), "2 minutes");
        assert_eq!(duration(10_000.0), "2.8 hours");
        let found = Foreign {
            count: 3,
            first: vec!["/a".to_owned(), "/b".to_owned()],
        };
        let text = others(&found, "will be overwritten");
        assert!(
            text.starts_with("3 keys ") && text.ends_with("will be overwritten: /a, /b, ..."),
            "{text}"
        );
    }
}
