//! When leases end.

use super::*;

fn grant(world: &mut World, id: i64, ttl: i64, now: Now) {
    let request = LeaseGrantRequest { id, ttl };
    world.mvcc.lease_grant(&request, 0, now).unwrap();
}

fn put_on(key: &str, lease: i64) -> PutRequest {
    PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        lease,
        ..Default::default()
    }
}

fn attach(world: &mut World, key: &str, lease: i64) {
    world.mvcc.put(&put_on(key, lease)).unwrap();
}

fn attach_error(world: &mut World, key: &str, lease: i64) -> Error {
    world.mvcc.put(&put_on(key, lease)).unwrap_err()
}

#[test]
fn a_lease_ends_by_the_steady_clock_alone() {
    let mut world = world();
    grant(&mut world, 7, 10, at(0));
    attach(&mut world, "k", 7);
    let jumped = Now {
        wall: at(100_000).wall,
        ..at(9)
    };
    assert!(!world.mvcc.expire_leases(jumped).unwrap());
    world.sync();
    assert_eq!(world.get("k").count, 1, "the wall clock jumped, no time has passed");
    assert_eq!(world.mvcc.lease_renew(7, at(9)).unwrap().response, 10);
    world.mvcc.expire_leases(at(18)).unwrap();
    world.sync();
    assert_eq!(world.get("k").count, 1, "it was renewed");
    assert_eq!(
        world.mvcc.lease_renew(7, at(19)).unwrap().response,
        0,
        "due, if not yet ended"
    );
    world.mvcc.expire_leases(at(19)).unwrap();
    world.sync();
    let read = world.get("k");
    assert_eq!((read.count, read.header.unwrap().revision), (0, 3));
    assert_eq!(world.mvcc.lease_count(), 0);
}

#[test]
fn a_deadline_outlives_the_process() {
    let mut world = world();
    grant(&mut world, 7, 10, at(0));
    attach(&mut world, "k", 7);
    world.sync();
    let World { mvcc, path, _folder } = world;
    mvcc.into_store().close().unwrap();
    let mut mvcc = reopen(&path, at(4));
    let request = LeaseTimeToLiveRequest { id: 7, keys: true };
    let found = mvcc.lease_time_to_live(&request, at(4)).unwrap().response.unwrap();
    assert_eq!((found.ttl, found.granted_ttl, found.keys.len()), (6, 10, 1));
    mvcc.expire_leases(at(9)).unwrap();
    assert!(mvcc.store.lease(7).is_some());
    mvcc.expire_leases(at(10)).unwrap();
    assert!(mvcc.store.lease(7).is_none());
}

#[test]
fn many_leases_end_a_few_at_a_time() {
    let mut world = world();
    for id in 1..=100 {
        grant(&mut world, id, 10, at(0));
    }
    let mut rounds = 0;
    while world.mvcc.expire_leases(at(10)).unwrap() {
        rounds += 1;
    }
    assert!(rounds >= 6, "{rounds} rounds for 100 leases");
    assert_eq!(world.mvcc.lease_count(), 0);
    assert_eq!(world.mvcc.store.revision(), 1, "leases without keys make no revision");
}

#[test]
fn after_an_import_no_lease_ends_before_the_first_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let mut import = Import::create(&path, IDENTITY, 50).unwrap();
    let record = Record {
        key: Bytes::from_static(b"event"),
        value: Bytes::from_static(b"x"),
        create: 20,
        modified: 40,
        version: 2,
        lease: 7,
    };
    import.push(&record).unwrap();
    let lease = Lease {
        id: 7,
        granted_ttl: 10,
        deadline_ms: at(10).wall,
    };
    import.lease(lease).unwrap();
    import.finish().unwrap().publish().unwrap();
    let mut world = World {
        mvcc: reopen(&path, at(5)),
        path,
        _folder: folder,
    };
    world.mvcc.expire_leases(at(1000)).unwrap();
    assert_eq!(
        world.mvcc.store.revision(),
        50,
        "no revision without a write of a client"
    );
    let read = world.get("event");
    assert_eq!((read.count, read.kvs[0].mod_revision, read.kvs[0].version), (1, 40, 2));
    assert!(matches!(
        world.mvcc.range(&RangeRequest {
            revision: 49,
            ..range("event")
        }),
        Err(Error::Compacted)
    ));
    world.put("first", "write");
    world.mvcc.expire_leases(at(1000)).unwrap();
    world.sync();
    assert_eq!(world.get("event").count, 0, "now it ends");
    assert_eq!(world.mvcc.store.revision(), 52);
    assert!(world.path.exists());
}

/// A lease with very many keys ends in one revision, in the order of its keys, and nothing of it is left. How long that
/// holds others up is printed: a client waits for both pieces, for no other request runs meanwhile.
#[test]
fn a_huge_lease_ends_in_one_revision() {
    let keys = 5_000;
    let mut world = world();
    let stream = world.mvcc.watch_open().unwrap();
    grant(&mut world, 7, 10, at(0));
    attach(&mut world, "other", 0);
    for n in 0..keys {
        attach(&mut world, &format!("/registry/events/default/{n:08}"), 7);
    }
    world.sync();
    world.watch(stream, everything());
    assert!(world.next(stream).unwrap().created);
    let begun = Instant::now();
    let applied = world.mvcc.lease_revoke(7).unwrap();
    let ended = begun.elapsed();
    assert_eq!(applied.response, keys + 3);
    while world.mvcc.store.durable().revision < applied.response {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    world.mvcc.advance(world.mvcc.store.durable()).unwrap();
    println!(
        "{keys} keys of one lease: ended in {ended:?}, told to a watch in {:?}",
        begun.elapsed()
    );
    let response = world.next(stream).unwrap();
    assert!(
        revisions(std::slice::from_ref(&response))
            .iter()
            .all(|revision| *revision == keys + 3)
    );
    let names: Vec<&Bytes> = response
        .events
        .iter()
        .map(|event| &event.kv.as_ref().unwrap().key)
        .collect();
    assert!(names.len() == keys as usize && names.is_sorted());
    assert!(
        response
            .events
            .iter()
            .all(|event| event.prev_kv.as_ref().unwrap().lease == 7)
    );
    assert_eq!(world.mvcc.keys(), 1);
    let again = attach_error(&mut world, "late", 7);
    assert!(matches!(again, Error::LeaseNotFound), "{again:?}");

    // After a restart it has still ended, and the same id may be granted again without its old keys.
    world.sync();
    let World { mvcc, path, _folder } = world;
    mvcc.into_store().close().unwrap();
    let mut mvcc = reopen(&path, at(1));
    assert_eq!(mvcc.lease_count(), 0);
    mvcc.lease_grant(&LeaseGrantRequest { id: 7, ttl: 10 }, 0, at(1))
        .unwrap();
    let request = LeaseTimeToLiveRequest { id: 7, keys: true };
    let found = mvcc.lease_time_to_live(&request, at(1)).unwrap().response.unwrap();
    assert!(found.keys.is_empty());
}
