//! Every key, revision and lease, before anything writes.

use anyhow::Result;

use crate::etcd::{Dump, Etcd, show};
use crate::note::Noted;
use crate::tally::Tally;

const KEYS: &str = "keys: bytes, create, mod, version, lease";
const HEAD: &str = "revision and number of keys";
const LEASES: &str = "leases: id, TTL as granted, keys";
const BEFORE: &str = "reads before the head: compacted; after it: future";
const WATCHES: &str = "etcd watches from before the head: compacted";

/// Runs the checks.
pub async fn run(etcd: &Etcd, noted: &Noted, tally: &mut Tally) -> Result<()> {
    tally.expect(&[KEYS, HEAD, LEASES, BEFORE, WATCHES]);
    let head = noted.dump.revision;
    let dump = etcd.dump().await?;
    tally.same(HEAD, "revision", dump.revision, head);
    tally.same(HEAD, "count", dump.count, noted.dump.count);
    keys(KEYS, &noted.dump, &dump, tally);
    leases(etcd, noted, tally).await?;

    let compacted = "OutOfRange: etcdserver: mvcc: required revision has been compacted";
    let future = "OutOfRange: etcdserver: mvcc: required revision is a future revision";
    let step = noted.dump.keys.len().div_ceil(20).max(1);
    for (key, pair) in noted.dump.keys.iter().step_by(step) {
        for (revision, expected) in [
            (1, compacted),
            (head - 1, compacted),
            (head, "found"),
            (0, "found"),
            (head + 1, future),
            (head + 1_000_000, future),
        ] {
            let found = etcd.read_at(key, revision).await;
            let what = format!("{} (mod {}) at {revision}, head {head}", show(key), pair.modified);
            tally.same(BEFORE, &what, found.as_str(), expected);
        }
    }
    for from in [1, noted.compacted + 1, head - 1] {
        let found = etcd.first_word(from).await?;
        let expected = format!("canceled, compacted at {head}, ");
        tally.check(WATCHES, found.starts_with(&expected), || {
            format!("from {from}: {found}, expected {expected}")
        });
        tally.answer(format!("etcd watch from {from}"), found);
    }
    // The change at the head itself: etcd keeps it, and the store knows nothing but what is live there.
    tally.at_head = etcd.first_word(head).await?;
    Ok(())
}

/// Compares two dumps key by key.
pub fn keys(row: &'static str, expected: &Dump, found: &Dump, tally: &mut Tally) {
    for (key, pair) in &expected.keys {
        match found.keys.get(key) {
            None => tally.check(row, false, || format!("{} is missing", show(key))),
            Some(other) => tally.check(row, other == pair, || {
                format!("{}: found {}, expected {}", show(key), other.shape(), pair.shape())
            }),
        }
    }
    for key in found.keys.keys().filter(|key| !expected.keys.contains_key(*key)) {
        tally.check(row, false, || format!("{} should not be there", show(key)));
    }
}

async fn leases(etcd: &Etcd, noted: &Noted, tally: &mut Tally) -> Result<()> {
    let mut found = etcd.leases().await?;
    found.retain(|_, lease| !lease.keys.is_empty());
    for (id, lease) in &noted.leases {
        match found.remove(id) {
            None => tally.check(LEASES, false, || format!("lease {id:x} is missing")),
            Some(other) => {
                let full = other.left <= lease.granted && other.left + 15 >= lease.granted;
                tally.check(
                    LEASES,
                    other.granted == lease.granted && other.keys == lease.keys && full,
                    || {
                        format!(
                            "lease {id:x}: granted {} with {} s left and {} keys, expected {} and {}",
                            other.granted,
                            other.left,
                            other.keys.len(),
                            lease.granted,
                            lease.keys.len()
                        )
                    },
                );
            }
        }
    }
    for id in found.keys() {
        tally.check(LEASES, false, || format!("lease {id:x} should not be there"));
    }
    Ok(())
}
