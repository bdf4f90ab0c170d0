//! A table of requests, in order, on fresh servers.

mod history;
mod keys;
mod transactions;
mod upkeep;

use std::time::Duration;

use quantykube_etcd_api::*;

use crate::calls::make::*;
use crate::calls::{Call, both};
use crate::servers::{block_on, pair};

fn get(key: &str) -> Call {
    Call::Range(range(key, ""))
}

fn get_at(key: &str, revision: i64) -> Call {
    Call::Range(RangeRequest {
        revision,
        ..range(key, "")
    })
}

fn all(change: impl FnOnce(&mut RangeRequest)) -> Call {
    let mut request = range("\0", "\0");
    change(&mut request);
    Call::Range(request)
}

fn set(key: &str, value: &str) -> Call {
    Call::Put(put(key, value))
}

fn put_with(key: &str, value: &str, change: impl FnOnce(&mut PutRequest)) -> Call {
    let mut request = put(key, value);
    change(&mut request);
    Call::Put(request)
}

fn delete_with(key: &str, end: &str, prev_kv: bool) -> Call {
    Call::Delete(DeleteRangeRequest {
        prev_kv,
        ..delete(key, end)
    })
}

fn tx(compare: Vec<Compare>, success: Vec<Request>, failure: Vec<Request>) -> Call {
    Call::Txn(txn(compare, success, failure))
}

fn read(key: &str, end: &str) -> Request {
    Request::Range(range(key, end))
}

fn read_at(key: &str, revision: i64) -> Request {
    Request::Range(RangeRequest {
        revision,
        ..range(key, "")
    })
}

fn write(key: &str, value: &str) -> Request {
    Request::Put(put(key, value))
}

fn remove(key: &str, end: &str) -> Request {
    Request::DeleteRange(delete(key, end))
}

fn nested(compare: Vec<Compare>, success: Vec<Request>, failure: Vec<Request>) -> Request {
    Request::Txn(txn(compare, success, failure))
}

fn compact(revision: i64) -> Call {
    Call::Compact(CompactionRequest {
        revision,
        physical: false,
    })
}

fn alarm(action: AlarmAction, member_id: u64, alarm: AlarmType) -> Call {
    Call::Alarm(AlarmRequest {
        action: action as i32,
        member_id,
        alarm: alarm as i32,
    })
}

fn downgrade(action: DowngradeAction, version: &str) -> Call {
    Call::Downgrade(DowngradeRequest {
        action: action as i32,
        version: version.to_owned(),
    })
}

fn run(name: &str, cases: Vec<(&'static str, Call)>) {
    let (etcd, store) = pair(&[]);
    block_on(async {
        let (mut etcd, mut store) = (etcd.clients().await, store.clients().await);
        for (number, (case, call)) in cases.into_iter().enumerate() {
            let _ = both(&mut etcd, &mut store, &format!("{name} {number}: {case}"), call).await;
        }
    });
}

#[test]
fn keys_and_ranges() {
    run("keys", keys::keys());
}

#[test]
fn sorted_ranges() {
    run("sorting", keys::sorting());
}

#[test]
fn transactions_and_compares() {
    run("transactions", transactions::transactions());
}

#[test]
fn compactions() {
    run("compaction", history::compaction());
    run("compaction at zero", history::compaction_at_zero());
}

/// What a compaction at 0 has changed outlives the server, which here ends in order: etcd notes the end of a compaction a
/// little later. Its cache of hashes does not outlive it: here the hash of now is the same too.
#[test]
fn a_compaction_at_zero_outlives_the_server() {
    let (mut etcd, mut store) = pair(&[]);
    let mut before = None;
    for restarted in [false, true] {
        block_on(async {
            let (mut etcd, mut store) = (etcd.clients().await, store.clients().await);
            let calls = match restarted {
                false => vec![set("a", "1"), compact(0), set("a", "2"), Call::HashKv(3)],
                true => vec![Call::HashKv(0), Call::HashKv(2), compact(0), Call::HashKv(3)],
            };
            let mut last = None;
            for (number, call) in calls.into_iter().enumerate() {
                let name = format!("restarted: {restarted}, {number}");
                last = Some(both(&mut etcd, &mut store, &name, call).await);
            }
            let last = format!("{last:?}");
            assert!(last.contains("compact_revision: 0"), "{last}");
            assert_eq!(
                *before.get_or_insert_with(|| last.clone()),
                last,
                "restarted: {restarted}"
            );
        });
        if !restarted {
            for running in [&mut etcd, &mut store] {
                running.server.stop(Duration::from_secs(20));
                running.restart();
            }
        }
    }
}

#[test]
fn leases_and_their_keys() {
    run("leases", upkeep::leases());
}

#[test]
fn alarms_members_and_downgrades() {
    run("upkeep", upkeep::upkeep());
}

#[test]
fn sizes_of_requests() {
    run("sizes", upkeep::sizes());
}
