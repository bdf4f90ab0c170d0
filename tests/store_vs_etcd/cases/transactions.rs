//! Transactions and their compares.

use quantykube_etcd_api::*;

use super::*;

pub fn transactions() -> Vec<(&'static str, Call)> {
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
