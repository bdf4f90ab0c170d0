//! Crashes at every operation on the medium.
//!
//! A workload of puts, deletes, leases, compactions, notes, checkpoints and copies is run once to count its operations
//! (writes, syncs, allocations, holes, cuts). Then it is run again for each of them, crashes just before or just after
//! it, and what the medium then holds is opened: everything acknowledged is there, nothing is half there, and the store
//! goes on from it, through another reopening.

use std::sync::Arc;

use super::world::{State, World, check, open};
use crate::*;

/// Runs a world until it fails or `steps` are over.
fn run(world: &mut World, steps: u64) -> Result<(), Error> {
    for _ in 0..steps {
        world.step()?;
    }
    world.store.sync()?;
    Ok(())
}

/// Opens what a crash left and compares; gives the store and the state it must have.
fn reopen(world: &World, bytes: Vec<u8>, durable: Durable, what: &str) -> (SimDisk, Store, State) {
    let disk = SimDisk::with_bytes(bytes);
    // Full verification takes no crash for damage.
    let checked = check_on(Arc::new(disk.clone())).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(checked.problems.is_empty(), "{what}: {:?}", checked.problems);
    let store = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(store.seq >= durable.seq, "{what}: acknowledged frames are lost");
    assert!(store.revision() >= durable.revision, "{what}: the revision went back");
    let state = world.state_at(store.seq);
    check(&store, &state, &mut Seeded::new(1)).unwrap_or_else(|error| panic!("{what}: {error}"));
    (disk, store, state)
}

/// Goes on from what a crash left, crashes a second time, and looks again: what was cut must not come back, and what the
/// first start took for granted must be on the medium.
fn go_on(world: &World, disk: SimDisk, store: Store, state: State, seed: u64, what: &str) {
    let mut random = Seeded::new(seed);
    disk.crash_at(disk.ops() + random.below(40), random.one_in(2));
    let mut after = World {
        disk,
        done: world
            .done
            .iter()
            .filter(|(seq, _)| *seq <= store.seq)
            .cloned()
            .collect(),
        store,
        state,
        random,
    };
    let _ = run(&mut after, 40);
    let durable = after.store.durable();
    let bytes = after.disk.after_crash(CrashKind::Torn { seed });
    reopen(&after, bytes, durable, &format!("{what}, then again"));
}

fn crash_everywhere(seed: u64, steps: u64) -> u64 {
    let mut world = World::new(seed);
    let first = world.disk.ops();
    run(&mut world, steps).unwrap();
    let (ops, checkpoints, copied) = (
        world.disk.ops(),
        world.store.stats().checkpoints,
        world.store.upkeep.copied,
    );
    assert!(
        checkpoints >= 2 && copied > 0,
        "seed {seed}: {checkpoints} checkpoints, {copied} copies"
    );
    println!(
        "seed {seed}: {} operations, {} writes, {} syncs, {checkpoints} checkpoints, {copied} versions copied",
        ops - first,
        world.disk.writes(),
        world.disk.syncs()
    );
    let mut points = 0;
    for op in first..ops {
        for after in [false, true] {
            let mut world = World::new(seed);
            world.disk.crash_at(op, after);
            run(&mut world, steps).unwrap_err();
            assert!(world.disk.fired(), "the crash at operation {op} did not come");
            let durable = world.store.durable();
            let torn = |n: u64| CrashKind::Torn {
                seed: op * 16 + u64::from(after) * 8 + n,
            };
            for kind in [CrashKind::KeepAll, CrashKind::LoseAll, torn(0), torn(1), torn(2)] {
                let what = format!("seed {seed}, operation {op}, after {after}, {kind:?}");
                let (disk, store, state) = reopen(&world, world.disk.after_crash(kind), durable, &what);
                // Going on takes longer than opening: every third time is enough.
                if points % 3 == 0 {
                    go_on(&world, disk, store, state, points, &what);
                }
                points += 1;
            }
        }
    }
    points
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let mut points = 0;
    for seed in 0..3 {
        points += crash_everywhere(seed, 300);
    }
    println!("{points} crash points");
    assert!(points > 3000, "only {points} crash points");
}

#[test]
fn a_crash_inside_recovery_changes_nothing() {
    let mut points = 0;
    for seed in 100..140 {
        let mut world = World::new(seed);
        run(&mut world, 120).unwrap();
        for _ in 0..4 {
            world.step().unwrap();
        }
        let durable = world.store.durable();
        let bytes = world.disk.after_crash(CrashKind::Torn { seed });
        let disk = SimDisk::with_bytes(bytes.clone());
        drop(open(&disk).unwrap());
        for op in 0..disk.ops() {
            for after in [false, true] {
                let disk = SimDisk::with_bytes(bytes.clone());
                disk.crash_at(op, after);
                assert!(open(&disk).is_err(), "seed {seed}, operation {op}");
                assert!(disk.fired());
                for kind in [CrashKind::KeepAll, CrashKind::LoseAll, CrashKind::Torn { seed: op }] {
                    let what = format!("seed {seed}, recovery's operation {op}, {kind:?}");
                    reopen(&world, disk.after_crash(kind), durable, &what);
                    points += 1;
                }
            }
        }
    }
    println!("{points} crash points in recovery");
    assert!(points >= 240, "only {points} crash points");
}

#[test]
fn after_an_error_of_the_medium_nothing_more_is_acknowledged() {
    let (seed, steps) = (7, 120);
    let mut world = World::new(seed);
    let first = world.disk.ops();
    run(&mut world, steps).unwrap();
    let (mut stopped, mut told) = (0, 0);
    for op in first..world.disk.ops() {
        let mut world = World::new(seed);
        world.disk.fail_at(op, 5);
        let error = run(&mut world, steps).unwrap_err();
        assert!(world.disk.fired());
        let Error::Io { what, source } = &error else {
            panic!("operation {op}: {error}")
        };
        assert_eq!(source.raw_os_error(), Some(5), "{what}");
        let durable = world.store.durable();
        if what.contains("writing") || what.contains("syncing") {
            stopped += 1;
            assert!(world.store.begin(1, 1, true).is_err(), "stopped for good");
            assert!(world.store.maintain(std::time::Duration::ZERO).is_err());
            assert!(world.store.sync().is_err());
            assert_eq!(world.store.durable(), durable);
        } else {
            told += 1;
        }
        for kind in [CrashKind::KeepAll, CrashKind::LoseAll, CrashKind::Torn { seed: op }] {
            let what = format!("operation {op} failed, {kind:?}");
            reopen(&world, world.disk.after_crash(kind), durable, &what);
        }
    }
    println!("{stopped} failed writes and syncs, {told} other failures");
    assert!(stopped > 100 && told > 2, "{stopped} {told}");
}

/// A disk that is full at one operation, whichever: either nothing has changed and the store goes on, or it stops for good
/// and what is on the medium is all that was acknowledged.
#[test]
fn a_full_disk_at_any_operation_loses_nothing_acknowledged() {
    const ENOSPC: i32 = 28;
    let (seed, steps) = (8, 200);
    let mut world = World::new(seed);
    let first = world.disk.ops();
    run(&mut world, steps).unwrap();
    let (mut refused, mut stopped, mut points) = (0, 0, 0);
    for op in first..world.disk.ops() {
        let mut world = World::new(seed);
        world.disk.fail_at(op, ENOSPC);
        let mut failed = None;
        for _ in 0..steps {
            match world.step() {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => {
                    // Refused before anything changed; upkeep may be refused after the operation was done.
                    if world.done.last().is_some_and(|(seq, _)| *seq == u64::MAX) {
                        world.done.pop();
                    }
                    refused += 1;
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let failed = failed.or_else(|| world.store.sync().err());
        assert!(world.disk.fired(), "operation {op} did not come");
        match failed {
            None => check(&world.store, &world.state, &mut Seeded::new(op)).unwrap(),
            Some(_) => stopped += 1,
        }
        let durable = world.store.durable();
        for kind in [CrashKind::KeepAll, CrashKind::LoseAll, CrashKind::Torn { seed: op }] {
            let what = format!("no space for operation {op}, {kind:?}");
            reopen(&world, world.disk.after_crash(kind), durable, &what);
            points += 1;
        }
    }
    println!("{points} crash points after ENOSPC: {refused} times refused, {stopped} times stopped");
    assert!(
        points > 500 && refused > 0 && stopped > 50,
        "{points} {refused} {stopped}"
    );
}
