//! Compactions and what they leave.

use super::*;

pub fn compaction() -> Vec<(&'static str, Call)> {
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

/// Apart from the others: after it, etcd answers a hash at revision 0 from a cache, with a hash of nothing. So hashes are
/// asked for at revisions that are named.
pub fn compaction_at_zero() -> Vec<(&'static str, Call)> {
    vec![
        ("fill", set("a", "1")),
        ("a hash before", Call::HashKv(2)),
        ("compact at zero", compact(0)),
        ("a hash after", Call::HashKv(2)),
        ("a hash of the past", Call::HashKv(1)),
        ("compact at zero again", compact(0)),
        ("compact below zero", compact(-1)),
        ("a read below zero in a txn", tx(vec![], vec![read_at("a", -4)], vec![])),
        ("compact", compact(2)),
        ("a read", get("a")),
    ]
}
