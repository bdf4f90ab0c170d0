//! Keys and ranges.

use super::*;

pub fn keys() -> Vec<(&'static str, Call)> {
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

pub fn sorting() -> Vec<(&'static str, Call)> {
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
