//! A table of requests, in order, on fresh servers.

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

fn keys() -> Vec<(&'static str, Call)> {
    vec![
        ("an empty store has revision 1", all(|_| ())),
        ("a read without a key", get("")),
        ("a put without a key", set("", "x")),
        ("a delete without a key", delete_with("", "", false)),
        ("a delete of nothing keeps the revision", delete_with("a", "\0", true)),
        ("the first put", set("a", "1")),
        ("the second version", put_with("a", "2", |put| put.prev_kv = true)),
        ("an empty value", set("b", "")),
        ("more keys", set("ab", "3")),
        ("more keys", set("abc", "0")),
        ("more keys", set("c", "1")),
        ("one key", get("a")),
        ("a missing key", get("x")),
        ("a prefix", Call::Range(range("a", "b"))),
        ("all keys", all(|_| ())),
        ("an inverted range", Call::Range(range("b", "a"))),
        ("an empty range", Call::Range(range("b", "b"))),
        ("the count under a limit", all(|range| range.limit = 2)),
        ("a limit that is just enough", all(|range| range.limit = 5)),
        ("a limit below zero", all(|range| range.limit = -1)),
        ("keys only", all(|range| range.keys_only = true)),
        ("a count alone", all(|range| range.count_only = true)),
        (
            "a count with a limit",
            all(|range| (range.count_only, range.limit) = (true, 1)),
        ),
        (
            "a count at a revision",
            all(|range| (range.count_only, range.revision) = (true, 3)),
        ),
        ("a serializable read", all(|range| range.serializable = true)),
        ("a read at an old revision names the current one", get_at("a", 2)),
        ("a read before the first revision", get_at("a", 1)),
        ("a read at a revision below zero", get_at("a", -7)),
        ("a read of the future", get_at("a", 1000)),
        (
            "mod filters count what they hide",
            all(|range| (range.min_mod_revision, range.max_mod_revision) = (3, 5)),
        ),
        (
            "create filters with a limit",
            all(|range| (range.max_create_revision, range.limit) = (4, 1)),
        ),
        ("an unknown sort order", all(|range| range.sort_order = 9)),
        ("an unknown sort target", all(|range| range.sort_target = 9)),
        (
            "a put of what is ignored",
            put_with("a", "x", |put| put.ignore_value = true),
        ),
        (
            "a lease given and ignored",
            put_with("a", "x", |put| (put.ignore_lease, put.lease) = (true, 7)),
        ),
        (
            "an ignored value of a missing key",
            put_with("zz", "", |put| put.ignore_value = true),
        ),
        (
            "an ignored lease of a missing key",
            put_with("zz", "x", |put| put.ignore_lease = true),
        ),
        (
            "an ignored value",
            put_with("a", "", |put| (put.ignore_value, put.prev_kv) = (true, true)),
        ),
        ("an ignored lease", put_with("a", "9", |put| put.ignore_lease = true)),
        (
            "a put with a lease that is not there",
            put_with("a", "9", |put| put.lease = 77),
        ),
        ("a delete with what was there", delete_with("ab", "ac", true)),
        ("a delete of one key", delete_with("c", "", false)),
        ("a deleted key begins anew", set("c", "again")),
        ("it reads so", get("c")),
        ("and the past is as it was", get_at("c", 6)),
        ("a delete from a key on", delete_with("b", "\0", true)),
        ("what is left", all(|_| ())),
        ("the hash of it all", Call::HashKv(0)),
        ("the hash of the past", Call::HashKv(5)),
        ("the hash of the future", Call::HashKv(1000)),
    ]
}

fn sorting() -> Vec<(&'static str, Call)> {
    let mut cases = vec![
        ("fill", set("a", "3")),
        ("fill", set("b", "2")),
        ("fill", set("c", "2")),
        ("fill", set("d", "1")),
        ("fill", set("b", "2")),
        ("fill", set("a", "0")),
        ("fill", set("a", "2")),
    ];
    for sort_order in 0..3 {
        for sort_target in 0..5 {
            for limit in [0, 2] {
                cases.push((
                    "every sorting",
                    all(|range| (range.sort_order, range.sort_target, range.limit) = (sort_order, sort_target, limit)),
                ));
            }
        }
    }
    cases
}

fn transactions() -> Vec<(&'static str, Call)> {
    let version = |key, result, value| compare(key, "", result, CompareTarget::Version, TargetUnion::Version(value));
    let value =
        |key, end, result, text| compare(key, end, result, CompareTarget::Value, TargetUnion::Value(bytes(text)));
    use CompareResult::{Equal, Greater, Less, NotEqual};
    let many = |count: usize| -> Vec<Request> { (0..count).map(|n| write(&format!("k{n}"), "x")).collect() };
    vec![
        ("an empty txn", tx(vec![], vec![], vec![])),
        ("create", tx(vec![mod_is("a", 0)], vec![write("a", "1")], vec![])),
        (
            "create what is there: nothing comes back",
            tx(vec![mod_is("a", 0)], vec![write("a", "2")], vec![]),
        ),
        (
            "update",
            tx(vec![mod_is("a", 2)], vec![write("a", "2")], vec![read("a", "")]),
        ),
        (
            "update what changed",
            tx(vec![mod_is("a", 2)], vec![write("a", "3")], vec![read("a", "")]),
        ),
        (
            "delete what changed",
            tx(vec![mod_is("a", 2)], vec![remove("a", "")], vec![read("a", "")]),
        ),
        (
            "delete",
            tx(vec![mod_is("a", 3)], vec![remove("a", "")], vec![read("a", "")]),
        ),
        (
            "delete of nothing keeps the revision",
            tx(vec![], vec![remove("a", "")], vec![]),
        ),
        (
            "several writes are one revision",
            tx(vec![], vec![write("a", "1"), write("b", "2"), remove("c", "")], vec![]),
        ),
        (
            "reads see writes before them",
            tx(
                vec![],
                vec![read("a", ""), write("a", "7"), read("a", ""), read("\0", "\0")],
                vec![],
            ),
        ),
        (
            "only reads",
            tx(vec![mod_is("b", 5)], vec![read("a", ""), read("b", "")], vec![]),
        ),
        (
            "only reads, the other way",
            tx(
                vec![mod_is("b", 1)],
                vec![read("a", "")],
                vec![read("b", ""), read("a", "")],
            ),
        ),
        (
            "a read of the past in a write",
            tx(vec![], vec![read_at("a", 2), write("x", "1")], vec![]),
        ),
        (
            "a read of the future stops all of it",
            tx(vec![], vec![write("x", "2"), read_at("x", 8)], vec![]),
        ),
        (
            "a read of the future alone",
            tx(vec![], vec![read_at("x", 800)], vec![]),
        ),
        ("nothing was half applied", get("x")),
        (
            "a missing lease stops all of it",
            tx(
                vec![],
                vec![
                    write("x", "3"),
                    Request::Put(PutRequest {
                        lease: 9,
                        ..put("y", "1")
                    }),
                ],
                vec![],
            ),
        ),
        (
            "a missing key stops all of it",
            tx(
                vec![],
                vec![
                    write("x", "3"),
                    Request::Put(PutRequest {
                        ignore_value: true,
                        ..put("no", "")
                    }),
                ],
                vec![],
            ),
        ),
        (
            "in the branch not taken it does not matter",
            tx(
                vec![],
                vec![write("x", "3")],
                vec![Request::Put(PutRequest {
                    lease: 9,
                    ..put("y", "1")
                })],
            ),
        ),
        (
            "compare a version",
            tx(vec![version("a", Greater, 1)], vec![read("a", "")], vec![]),
        ),
        (
            "compare a version",
            tx(vec![version("a", NotEqual, 2)], vec![], vec![read("a", "")]),
        ),
        (
            "compare a value",
            tx(vec![value("a", "", Equal, "7")], vec![read("a", "")], vec![]),
        ),
        (
            "compare a value",
            tx(vec![value("a", "", Less, "7")], vec![], vec![read("a", "")]),
        ),
        (
            "compare the value of a missing key",
            tx(vec![value("no", "", NotEqual, "7")], vec![], vec![read("a", "")]),
        ),
        (
            "compare a missing key",
            tx(vec![version("no", Equal, 0)], vec![read("a", "")], vec![]),
        ),
        (
            "compare a range",
            tx(
                vec![value("a", "c", Greater, "1")],
                vec![read("a", "")],
                vec![read("b", "")],
            ),
        ),
        (
            "compare all keys",
            tx(
                vec![value("\0", "\0", Greater, "2")],
                vec![read("a", "")],
                vec![read("b", "")],
            ),
        ),
        (
            "compare create",
            tx(
                vec![compare(
                    "a",
                    "",
                    Equal,
                    CompareTarget::Create,
                    TargetUnion::CreateRevision(5),
                )],
                vec![read("a", "")],
                vec![],
            ),
        ),
        (
            "compare a lease",
            tx(
                vec![compare("a", "", Equal, CompareTarget::Lease, TargetUnion::Lease(0))],
                vec![read("a", "")],
                vec![],
            ),
        ),
        (
            "a target without its union",
            tx(
                vec![compare("a", "", Greater, CompareTarget::Mod, TargetUnion::Version(99))],
                vec![read("a", "")],
                vec![],
            ),
        ),
        ("a compare without a key", tx(vec![mod_is("", 0)], vec![], vec![])),
        ("an operation without a key", tx(vec![], vec![write("", "x")], vec![])),
        (
            "an operation that holds nothing",
            Call::Txn(TxnRequest {
                success: vec![RequestOp { request: None }],
                ..Default::default()
            }),
        ),
        (
            "a key put twice",
            tx(vec![], vec![write("a", "1"), write("a", "2")], vec![]),
        ),
        (
            "a key put and deleted",
            tx(vec![], vec![write("a", "1"), remove("a", "")], vec![]),
        ),
        (
            "a key put and deleted by range",
            tx(vec![], vec![write("b", "1"), remove("a", "c")], vec![]),
        ),
        (
            "deleted from a key on and put: etcd allows it",
            tx(vec![], vec![remove("b", "\0"), write("bb", "1")], vec![]),
        ),
        (
            "put and then deleted from a key on",
            tx(
                vec![],
                vec![write("bc", "1"), remove("b", "\0"), read("\0", "\0")],
                vec![],
            ),
        ),
        (
            "deleted twice is no matter",
            tx(vec![], vec![remove("a", ""), remove("a", "b")], vec![]),
        ),
        (
            "twice in the branches of one txn",
            tx(vec![], vec![write("a", "1")], vec![write("a", "2")]),
        ),
        (
            "twice, nested",
            tx(
                vec![],
                vec![write("a", "1"), nested(vec![], vec![write("a", "2")], vec![])],
                vec![],
            ),
        ),
        (
            "twice, in two nested",
            tx(
                vec![],
                vec![
                    nested(vec![], vec![write("a", "2")], vec![]),
                    nested(vec![], vec![], vec![write("a", "2")]),
                ],
                vec![],
            ),
        ),
        (
            "twice in the branches of a nested one",
            tx(
                vec![],
                vec![nested(vec![], vec![write("a", "2")], vec![write("a", "3")])],
                vec![],
            ),
        ),
        (
            "put nested, deleted outside",
            tx(
                vec![],
                vec![remove("a", "b"), nested(vec![], vec![write("a", "2")], vec![])],
                vec![],
            ),
        ),
        (
            "put in one, deleted in the next",
            tx(
                vec![],
                vec![
                    nested(vec![], vec![write("n", "2")], vec![]),
                    nested(vec![], vec![remove("n", "")], vec![]),
                ],
                vec![],
            ),
        ),
        (
            "and the other way round",
            tx(
                vec![],
                vec![
                    nested(vec![], vec![remove("n", "")], vec![]),
                    nested(vec![], vec![write("n", "2")], vec![]),
                ],
                vec![],
            ),
        ),
        (
            "nested compares see what was before all of it",
            tx(
                vec![],
                vec![
                    write("m", "1"),
                    nested(vec![mod_is("m", 0)], vec![read("m", "")], vec![read("a", "")]),
                ],
                vec![],
            ),
        ),
        (
            "nested in nested",
            tx(
                vec![],
                vec![nested(
                    vec![mod_is("no", 0)],
                    vec![nested(
                        vec![mod_is("no", 1)],
                        vec![],
                        vec![write("deep", "1"), read("deep", "")],
                    )],
                    vec![],
                )],
                vec![],
            ),
        ),
        (
            "a nested one that only reads",
            tx(vec![], vec![nested(vec![], vec![read("a", "")], vec![])], vec![]),
        ),
        ("128 operations", tx(vec![], many(128), vec![])),
        ("129 operations", tx(vec![], many(129), vec![])),
        (
            "operations count along the path",
            tx(
                vec![],
                many(100)
                    .into_iter()
                    .chain([nested(
                        vec![],
                        (0..28).map(|n| write(&format!("l{n}"), "x")).collect(),
                        vec![],
                    )])
                    .collect(),
                vec![],
            ),
        ),
        ("all of it", all(|range| range.keys_only = true)),
        ("the hash of it all", Call::HashKv(0)),
    ]
}

fn compaction() -> Vec<(&'static str, Call)> {
    vec![
        ("a hash before any compaction", Call::HashKv(0)),
        ("compact below zero", compact(-1)),
        ("compact the future", compact(2)),
        ("fill", set("a", "1")),
        ("fill", set("a", "2")),
        ("fill", set("b", "1")),
        ("fill", delete_with("a", "", false)),
        ("fill", set("a", "3")),
        ("fill", set("b", "2")),
        ("compact at a delete", compact(5)),
        ("compact again", compact(5)),
        ("compact the past", compact(3)),
        ("a read at the compacted revision", get_at("b", 5)),
        ("a read at the compacted revision of the deleted key", get_at("a", 5)),
        ("a read before it", get_at("a", 4)),
        (
            "a count before it",
            all(|range| (range.count_only, range.revision) = (true, 4)),
        ),
        (
            "a read before it in a txn",
            tx(vec![], vec![read_at("a", 4), write("a", "9")], vec![]),
        ),
        ("a read below zero in a txn", tx(vec![], vec![read_at("a", -4)], vec![])),
        ("a read below zero", get_at("a", -4)),
        ("what is left", all(|_| ())),
        ("the hash", Call::HashKv(0)),
        ("the hash between", Call::HashKv(6)),
        ("the hash before it", Call::HashKv(4)),
        ("delete all", delete_with("\0", "\0", true)),
        ("compact at the head", compact(8)),
        ("nothing is left", all(|_| ())),
        ("the hash of nothing", Call::HashKv(0)),
        ("after it", set("c", "1")),
        ("the hash", Call::HashKv(0)),
    ]
}

/// Apart from the others: after it, etcd answers a hash at revision 0 from a cache, with a hash of nothing.
fn compaction_at_zero() -> Vec<(&'static str, Call)> {
    vec![
        ("fill", set("a", "1")),
        ("compact at zero", compact(0)),
        ("compact at zero again", compact(0)),
        ("compact below zero", compact(-1)),
        ("a read below zero in a txn", tx(vec![], vec![read_at("a", -4)], vec![])),
        ("compact", compact(2)),
        ("a read", get("a")),
    ]
}

fn leases() -> Vec<(&'static str, Call)> {
    let attached = |key, value, lease| put_with(key, value, |put| put.lease = lease);
    let time = |id| Call::TimeToLive(LeaseTimeToLiveRequest { id, keys: true });
    vec![
        ("none", Call::Leases),
        ("grant", Call::Grant(grant(7, 100))),
        ("grant it again", Call::Grant(grant(7, 200))),
        ("less than the shortest", Call::Grant(grant(8, 1))),
        ("a TTL below zero", Call::Grant(grant(9, -5))),
        ("an id below zero", Call::Grant(grant(-10, 300))),
        ("the longest", Call::Grant(grant(11, 9_000_000_000))),
        ("more than the longest", Call::Grant(grant(12, 9_000_000_001))),
        ("attach", attached("b", "1", 7)),
        ("attach", attached("a", "1", 7)),
        ("attach elsewhere", attached("c", "1", 11)),
        ("time and keys", time(7)),
        ("of one that is not there", time(999)),
        ("keep the lease", put_with("a", "2", |put| put.ignore_lease = true)),
        ("it is still there", get("a")),
        ("detach", set("b", "2")),
        ("attach to another", attached("a", "3", 11)),
        ("time and keys", time(7)),
        ("time and keys", time(11)),
        (
            "revoke one that is not there",
            Call::Revoke(LeaseRevokeRequest { id: 999 }),
        ),
        ("revoke one without keys", Call::Revoke(LeaseRevokeRequest { id: 7 })),
        ("the revision is the same", all(|_| ())),
        ("revoke one with keys", Call::Revoke(LeaseRevokeRequest { id: 11 })),
        ("its keys are gone in one revision", all(|_| ())),
        (
            "all leases but the shortest, which may have ended",
            Call::Revoke(LeaseRevokeRequest { id: -10 }),
        ),
        ("the hash", Call::HashKv(0)),
    ]
}

fn upkeep() -> Vec<(&'static str, Call)> {
    use AlarmAction::{Activate, Deactivate, Get};
    vec![
        ("the members", Call::MemberList),
        (
            "add without URLs that are any",
            Call::MemberAdd(MemberAddRequest {
                peer_urls: vec!["nonsense".to_owned()],
                is_learner: false,
            }),
        ),
        ("remove an unknown member", Call::MemberRemove(4711)),
        ("remove the only member", Call::MemberRemove(1)),
        ("promote an unknown member", Call::MemberPromote(4711)),
        ("promote the only member", Call::MemberPromote(1)),
        ("move the leader to nobody", Call::MoveLeader(4711)),
        ("move the leader to itself", Call::MoveLeader(1)),
        ("defragment", Call::Defragment),
        ("no alarms", alarm(Get, 0, AlarmType::None)),
        ("disarm none", alarm(Deactivate, 1, AlarmType::NoSpace)),
        ("raise nothing", alarm(Activate, 1, AlarmType::None)),
        ("raise one", alarm(Activate, 1, AlarmType::NoSpace)),
        ("raise it again", alarm(Activate, 1, AlarmType::NoSpace)),
        ("list it", alarm(Get, 0, AlarmType::None)),
        ("list it by its type", alarm(Get, 0, AlarmType::NoSpace)),
        ("list others", alarm(Get, 0, AlarmType::Corrupt)),
        ("no put", set("a", "1")),
        ("no lease", Call::Grant(grant(1, 10))),
        ("no txn with a put", tx(vec![], vec![write("a", "1")], vec![])),
        (
            "no txn with a put on the path not taken",
            tx(vec![], vec![remove("a", "")], vec![write("a", "1")]),
        ),
        ("reads", get("a")),
        ("deletes", delete_with("a", "", false)),
        ("txns that delete", tx(vec![], vec![remove("a", "")], vec![])),
        ("disarm", alarm(Deactivate, 1, AlarmType::NoSpace)),
        ("puts again", set("a", "1")),
        ("someone else's alarm", alarm(Activate, 42, AlarmType::NoSpace)),
        ("stops puts too", set("a", "2")),
        ("disarm the wrong one", alarm(Deactivate, 1, AlarmType::NoSpace)),
        ("disarm", alarm(Deactivate, 42, AlarmType::NoSpace)),
        ("puts again", set("a", "3")),
        ("downgrade to nonsense", downgrade(DowngradeAction::Validate, "x.y")),
        ("downgrade too far", downgrade(DowngradeAction::Validate, "3.4.0")),
        ("downgrade to itself", downgrade(DowngradeAction::Validate, "3.6")),
        (
            "a downgrade that would be possible",
            downgrade(DowngradeAction::Validate, "3.5.0"),
        ),
        ("no downgrade to cancel", downgrade(DowngradeAction::Cancel, "")),
        ("corrupt", alarm(Activate, 1, AlarmType::Corrupt)),
        ("no put", set("a", "1")),
        ("no delete", delete_with("a", "", false)),
        ("no txn", tx(vec![], vec![remove("a", "")], vec![])),
        ("no compaction", compact(2)),
        ("no lease", Call::Grant(grant(1, 10))),
        ("no revocation", Call::Revoke(LeaseRevokeRequest { id: 1 })),
        ("reads", get("a")),
        ("disarm", alarm(Deactivate, 1, AlarmType::Corrupt)),
        ("puts again", set("a", "4")),
    ]
}

fn sizes() -> Vec<(&'static str, Call)> {
    let value = |length: usize| "v".repeat(length);
    vec![
        ("just small enough", set("a", &value(1_572_800))),
        ("too large by a little", set("a", &value(1_572_865))),
        ("too large", set("a", &value(1_600_000))),
        ("too large for a message", set("a", &value(2_200_000))),
        (
            "a txn that is too large",
            tx(
                vec![],
                vec![write("a", &value(900_000)), write("b", &value(900_000))],
                vec![],
            ),
        ),
        (
            "the branch not taken counts",
            tx(
                vec![],
                vec![write("a", &value(900_000))],
                vec![write("b", &value(900_000))],
            ),
        ),
        ("a large key", set(&value(300_000), "x")),
        ("a delete that is too large", delete_with(&value(1_600_000), "", false)),
    ]
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
    run("keys", keys());
}

#[test]
fn sorted_ranges() {
    run("sorting", sorting());
}

#[test]
fn transactions_and_compares() {
    run("transactions", transactions());
}

#[test]
fn compactions() {
    run("compaction", compaction());
    run("compaction at zero", compaction_at_zero());
}

#[test]
fn leases_and_their_keys() {
    run("leases", leases());
}

#[test]
fn alarms_members_and_downgrades() {
    run("upkeep", upkeep());
}

#[test]
fn sizes_of_requests() {
    run("sizes", sizes());
}
