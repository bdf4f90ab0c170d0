//! Streams that fall behind, are compacted away, or close.

use super::*;

#[test]
fn a_stream_that_does_not_read_falls_behind_and_catches_up() {
    let mut world = world();
    let (slow, quick) = (world.mvcc.watch_open().unwrap(), world.mvcc.watch_open().unwrap());
    world.watch(slow, everything());
    world.watch(quick, everything());
    let writes = 3000;
    let mut quickly = Vec::new();
    for n in 0..writes {
        world.put(&format!("k{}", n % 7), "x");
        world.sync();
        quickly.extend(world.drain(quick));
    }
    assert!(
        revisions(&quickly).into_iter().eq(2..writes + 2),
        "every revision, in order"
    );
    let figures = world.mvcc.watch_figures();
    assert_eq!(figures.slow, 1, "the slow one is behind");
    assert!(figures.pending <= 1025, "{} responses wait", figures.pending);

    // Progress is asked for while it is behind: the answer comes after everything.
    let progress = WatchRequest {
        request_union: Some(WatchRequestUnion::Progress(WatchProgressRequest {})),
    };
    world.mvcc.watch_request(slow, progress);
    let slowly = world.drain(slow);
    assert!(
        revisions(&slowly).into_iter().eq(2..writes + 2),
        "every revision, in order"
    );
    let last = slowly.last().unwrap();
    assert_eq!(
        (last.watch_id, last.events.len(), last.header.as_ref().unwrap().revision),
        (-1, 0, writes + 1)
    );
    assert_eq!(world.mvcc.watch_figures().slow, 0);
    let missing = slowly
        .iter()
        .flat_map(|response| &response.events)
        .filter(|event| event.prev_kv.is_none());
    assert_eq!(missing.count(), 7, "only creations have nothing before them");
    for response in &slowly {
        let header = response.header.as_ref().unwrap().revision;
        assert!(
            revisions(std::slice::from_ref(response))
                .iter()
                .all(|revision| *revision <= header)
        );
    }
}

#[test]
fn a_stream_behind_the_compaction_is_told_so() {
    let mut world = world();
    for n in 0..10 {
        world.put("k", &n.to_string());
    }
    world.sync();
    let stream = world.mvcc.watch_open().unwrap();
    for start_revision in [2, 5, 6] {
        world.watch(
            stream,
            WatchCreateRequest {
                start_revision,
                ..everything()
            },
        );
    }
    for _ in 0..3 {
        assert!(world.next(stream).unwrap().created);
    }
    let request = CompactionRequest {
        revision: 6,
        physical: false,
    };
    world.mvcc.compact(&request).unwrap();
    let responses = world.drain(stream);
    let ended: Vec<_> = responses.iter().filter(|response| response.canceled).collect();
    assert_eq!(
        ended.iter().map(|response| response.watch_id).collect::<Vec<_>>(),
        [0, 1]
    );
    assert!(ended.iter().all(|response| response.compact_revision == 6));
    assert_eq!(
        revisions(&responses),
        [6, 7, 8, 9, 10, 11],
        "the third gets all from the compacted revision on"
    );
    assert_eq!(world.mvcc.watch_figures().watchers, 1);
}

#[test]
fn closing_a_stream_leaves_nothing_behind() {
    let mut world = world();
    for round in 0..3 {
        let stream = world.mvcc.watch_open().unwrap();
        for n in 0..50 {
            let key = Bytes::from(format!("k{n}"));
            world.watch(
                stream,
                WatchCreateRequest {
                    key,
                    start_revision: round,
                    ..Default::default()
                },
            );
        }
        world.put("k7", "x");
        world.sync();
        world.mvcc.watch_close(stream);
        let figures = world.mvcc.watch_figures();
        assert_eq!(
            (figures.streams, figures.watchers, figures.slow, figures.pending),
            (0, 0, 0, 0)
        );
    }
}
