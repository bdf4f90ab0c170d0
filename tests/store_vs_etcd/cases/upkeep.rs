//! Leases, alarms, members, downgrades, sizes.

use quantykube_etcd_api::*;

use super::*;

pub fn leases() -> Vec<(&'static str, Call)> {
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

pub fn upkeep() -> Vec<(&'static str, Call)> {
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

pub fn sizes() -> Vec<(&'static str, Call)> {
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
