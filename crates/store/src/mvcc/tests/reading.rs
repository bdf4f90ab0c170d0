//! What readers see and when, and ranges read in slices.

use super::*;

#[test]
fn nobody_sees_what_is_not_synced() {
    let mut world = world();
    let stream = world.mvcc.watch_open().unwrap();
    world.watch(stream, everything());
    assert!(world.next(stream).unwrap().created);
    let applied = world.put("k", "1");
    assert_eq!(applied.response.header.unwrap().revision, 2);
    assert!(applied.wait > world.mvcc.durable().seq, "the response must wait");
    let read = world.get("k");
    assert_eq!((read.count, read.header.unwrap().revision), (0, 1));
    assert!(world.next(stream).is_none());
    assert!(
        world
            .mvcc
            .range(&RangeRequest {
                revision: 2,
                ..range("k")
            })
            .is_err(),
        "a future revision to readers"
    );

    // A transaction that may write sees the head; refused or not, its answer waits.
    let compare = Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Mod as i32,
        key: Bytes::from_static(b"k"),
        target_union: Some(TargetUnion::ModRevision(0)),
        ..Default::default()
    };
    let write = RequestOp {
        request: Some(Request::Put(PutRequest {
            key: Bytes::from_static(b"k"),
            ..Default::default()
        })),
    };
    let request = TxnRequest {
        compare: vec![compare.clone()],
        success: vec![write],
        failure: vec![],
    };
    let refused = world.mvcc.txn(&request).unwrap();
    assert!(!refused.response.succeeded && refused.response.responses.is_empty());
    assert!(
        refused.wait >= applied.wait,
        "it tells of a write that may still be lost"
    );
    // One that only reads is answered at once, and as readers see it.
    let request = TxnRequest {
        compare: vec![compare],
        ..Default::default()
    };
    let read = world.mvcc.txn(&request).unwrap();
    assert!(read.response.succeeded && read.wait == 0);

    world.sync();
    assert_eq!(world.get("k").count, 1);
    assert_eq!(revisions(&world.drain(stream)), [2]);
}

#[test]
fn a_large_range_reads_on_at_its_revision_whatever_is_compacted_meanwhile() {
    let mut world = world();
    for n in 0..40 {
        world.put(&format!("large{n:02}"), &"v".repeat(100_000));
    }
    world.sync();
    let request = RangeRequest {
        key: Bytes::from_static(&[0]),
        range_end: Bytes::from_static(&[0]),
        ..Default::default()
    };
    let Ok(Range::Listed(mut listed, held)) = world.mvcc.range_begin(&request) else {
        panic!("4 MB in one slice")
    };
    for n in 0..40 {
        world.put(&format!("large{n:02}"), "short");
    }
    world.sync();
    let request = CompactionRequest {
        revision: 81,
        physical: false,
    };
    assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Done(_))));
    let (mut elements, mut slices) = (Vec::new(), 0);
    while !listed.is_done() {
        world.mvcc.list_read(&mut listed, 1_000_000, &mut elements).unwrap();
        while world.mvcc.maintain(Duration::from_millis(50)).unwrap() {
            world.sync();
        }
        slices += 1;
    }
    assert!(slices >= 4, "{slices} slices");
    assert_eq!(elements.len(), listed.elements_len());
    let frame = listed.frame();
    assert_eq!(
        (frame.count, frame.more, frame.header.unwrap().revision),
        (40, false, 41)
    );
    let response = RangeResponse::decode(&elements[..]).unwrap();
    assert_eq!(response.kvs.len(), 40);
    assert!(
        response
            .kvs
            .iter()
            .all(|kv| kv.value.len() == 100_000 && kv.mod_revision <= 41)
    );
    world.mvcc.list_end(held);
}

#[test]
fn a_range_of_more_keys_than_one_slice_is_found_as_in_one_go() {
    let mut world = world();
    for n in 0..4500 {
        world.put(&format!("many{:04}", n % 4400), "v");
    }
    world.sync();
    let requests = [
        (0, 0, 0),
        (3000, 0, 0),
        (0, 0, 2),
        (100, 4000, 1),
        (4399, 0, 0),
        (4400, 0, 0),
        (4401, 0, 0),
    ];
    for (limit, min_mod_revision, sort_order) in requests {
        let request = RangeRequest {
            key: Bytes::from_static(b"many"),
            range_end: Bytes::from_static(b"manz"),
            limit,
            min_mod_revision,
            sort_order,
            ..Default::default()
        };
        let expected = world.mvcc.range(&request).unwrap();
        let Ok(Range::Searching(mut search, held)) = world.mvcc.range_begin(&request) else {
            panic!("{request:?} in one slice")
        };
        while !world.mvcc.list_on(&mut search) {}
        let mut listed = world.mvcc.list_found(*search).unwrap();
        let mut bytes = Vec::new();
        while !listed.is_done() {
            world.mvcc.list_read(&mut listed, 10_000, &mut bytes).unwrap();
        }
        let mut response = RangeResponse::decode(&bytes[..]).unwrap();
        let frame = listed.frame();
        (response.header, response.more, response.count) = (frame.header, frame.more, frame.count);
        assert_eq!(response, expected, "{request:?}");
        world.mvcc.list_end(held);
    }
}
