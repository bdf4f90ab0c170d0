//! Compactions, the history behind an import, alarms and the quota.

use super::*;

#[test]
fn a_compaction_waits_for_what_watchers_are_owed() {
    let mut world = world();
    let stream = world.mvcc.watch_open().unwrap();
    world.watch(stream, everything());
    for value in ["1", "2", "3"] {
        world.put("k", value);
    }
    let request = CompactionRequest {
        revision: 4,
        physical: false,
    };
    assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Later(_))));
    world.sync();
    assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Done(_))));
    assert!(matches!(world.mvcc.compact(&request), Err(Error::Compacted)));
    let responses = world.drain(stream);
    assert_eq!(revisions(&responses), [2, 3, 4]);
    let events: Vec<&Event> = responses.iter().flat_map(|response| &response.events).collect();
    assert!(events[0].prev_kv.is_none());
    assert_eq!(&events[2].prev_kv.as_ref().unwrap().value[..], b"2");
}

/// The change at an import's head may have been a delete, which an import does not bring: a watch from there would wait
/// for it in silence.
#[test]
fn history_begins_behind_an_import() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let import = Import::create(&path, IDENTITY, 50).unwrap();
    import.finish().unwrap().publish().unwrap();
    let mut world = World {
        mvcc: reopen(&path, at(0)),
        path,
        _folder: folder,
    };
    let stream = world.mvcc.watch_open().unwrap();
    for start_revision in [1, 50, 51] {
        let create = WatchCreateRequest {
            start_revision,
            ..everything()
        };
        world.watch(stream, create);
    }
    world.put("k", "first");
    world.sync();
    let responses = world.drain(stream);
    let ended = responses.iter().filter(|response| response.canceled);
    let ended: Vec<_> = ended
        .map(|response| (response.watch_id, response.compact_revision))
        .collect();
    assert_eq!(
        ended,
        [(0, 50), (1, 51)],
        "as etcd says it, and where a client may begin again"
    );
    assert_eq!(revisions(&responses), [51]);
}

#[test]
fn alarms_and_the_quota_outlive_the_process() {
    let mut world = world();
    world.mvcc.limits.quota = 1;
    let request = PutRequest {
        key: Bytes::from_static(b"k"),
        ..Default::default()
    };
    assert!(matches!(world.mvcc.put(&request), Err(Error::NoSpace)));
    assert_eq!(world.mvcc.alarms().len(), 1);
    world.sync();
    let World { mvcc, path, _folder } = world;
    mvcc.into_store().close().unwrap();
    let mut mvcc = reopen(&path, at(0));
    assert!(
        matches!(mvcc.put(&request), Err(Error::NoSpace)),
        "the alarm stands, though the quota is gone"
    );
    let disarm = AlarmRequest {
        action: AlarmAction::Deactivate as i32,
        member_id: IDENTITY.member_id,
        alarm: AlarmType::NoSpace as i32,
    };
    assert_eq!(mvcc.alarm(&disarm).unwrap().response.len(), 1);
    assert!(mvcc.put(&request).is_ok());
}

/// Writers get in between the slices of a large compaction: with no time at all for a slice it goes leaf by leaf. How
/// long the longest slice of the server's own length took is printed.
#[test]
fn a_large_compaction_lets_writers_in() {
    for budget in [Duration::ZERO, Duration::from_millis(1)] {
        let mut world = world();
        let value = "v".repeat(500);
        for n in 0..5_000 {
            world.put(&format!("k{:04}", n % 1000), &value);
        }
        world.sync();
        let request = CompactionRequest {
            revision: 5_001,
            physical: true,
        };
        assert!(matches!(world.mvcc.compact(&request), Ok(Compaction::Done(_))));
        let (mut slices, mut longest) = (0, Duration::ZERO);
        loop {
            let begun = Instant::now();
            let more = world.mvcc.maintain(budget).unwrap();
            longest = longest.max(begun.elapsed());
            if !more {
                break;
            }
            slices += 1;
            world.put("between", "x");
            world.sync();
            assert_eq!(world.get("between").kvs[0].version, slices);
        }
        println!("a compaction of 5,000 versions in slices of {budget:?}: {slices} slices, the longest {longest:?}");
        if budget.is_zero() {
            assert!(slices >= 1000 / 64, "{slices} slices");
        }
        assert_eq!(world.mvcc.keys(), 1000 + u64::from(slices > 0));
    }
}
