//! Flipped bits: inside what was synced they are refused with their offset, in a torn tail they are cut.

use super::world::{World, check, open};
use crate::layout::SLOTS_AT;
use crate::*;

#[test]
fn a_flipped_bit_in_synced_data_never_passes_unseen() {
    let mut world = World::new(3);
    for _ in 0..40 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    let bytes = world.disk.bytes();
    let mut random = Seeded::new(3);
    let (mut refused, mut harmless) = (0, 0);
    // Every byte of what has a structure of its own, some of the rest.
    let chosen =
        |at: &usize| bytes[*at] != 0 && (*at < SLOTS_AT as usize + 1024 || *at % 8192 < 96 || at.is_multiple_of(5));
    for at in (0..bytes.len()).filter(chosen) {
        let disk = SimDisk::with_bytes(bytes.clone());
        disk.flip(at as u64, random.below(8) as u8);
        let outcome = open(&disk).and_then(|store| check(&store, &world.state, &mut random));
        match outcome {
            Ok(()) => harmless += 1,
            Err(Error::Damaged { offset, what }) => {
                refused += 1;
                assert!(
                    offset <= at as u64 && at as u64 - offset < 8192,
                    "byte {at} was flipped, {offset} is named: {what}"
                );
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
        // The header has two copies, and the mark is only evidence: there one flip does no harm.
        if at < SLOTS_AT as usize {
            assert!(open(&disk).is_ok(), "byte {at}");
        }
    }
    println!("{refused} flips refused, {harmless} harmless");
    assert!(refused > 2000);
}

#[test]
fn a_flipped_bit_in_the_last_synced_frame_is_refused_thanks_to_the_mark() {
    let mut world = World::new(4);
    for _ in 0..10 {
        world.step().unwrap();
    }
    world.store.sync().unwrap();
    let tail = world.store.space.offset(world.store.tail - 1).unwrap();
    world.store.close().unwrap();
    let disk = SimDisk::with_bytes(world.disk.bytes());
    disk.flip(tail - 8, 0);
    let error = open(&disk).err().unwrap();
    assert!(
        matches!(&error, Error::Damaged { what, .. } if what.contains("the mark")),
        "{error}"
    );
}

#[test]
fn a_flipped_bit_in_a_tail_that_was_never_synced_is_cut() {
    let mut cut = 0;
    for seed in 0..30 {
        let mut world = World::new(seed);
        for _ in 0..30 {
            world.step().unwrap();
        }
        let durable = world.store.sync().unwrap();
        let from = world.store.tail;
        while world.store.seq < durable.seq + 3 {
            let op = super::world::next_op(&mut world.random, &world.state);
            let seq = super::world::perform(&mut world.store, &op, false).unwrap();
            world.done.push((seq, op.clone()));
            world.state.apply(&op);
        }
        let last = world.store.seq;
        // Written, as by a process that was killed before its sync.
        world.disk.crash_at(world.disk.ops() + 1, false);
        let _ = world.store.sync();
        let Some(offset) = world.store.space.offset(from) else {
            continue;
        };
        let disk = SimDisk::with_bytes(world.disk.after_crash(CrashKind::KeepAll));
        disk.flip(offset + 40, 1);
        let store = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(store.seq >= durable.seq, "seed {seed}");
        check(&store, &world.state_at(store.seq), &mut Seeded::new(seed)).unwrap();
        cut += u64::from(store.seq < last);
    }
    assert!(cut > 15, "only {cut} tails were cut");
}

#[test]
fn a_file_cut_anywhere_or_full_of_noise_is_refused_or_read_but_never_a_panic() {
    let mut world = World::new(9);
    for _ in 0..200 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    let bytes = world.disk.bytes();
    let mut refused = 0;
    for len in (0..bytes.len()).step_by(509) {
        let disk = SimDisk::with_bytes(bytes[..len].to_vec());
        match open(&disk) {
            Ok(store) => check(&store, &world.state, &mut Seeded::new(1)).unwrap(),
            Err(Error::Damaged { .. }) => refused += 1,
            Err(Error::Foreign { bytes: 0 }) if len == 0 => refused += 1,
            Err(error) => panic!("cut at {len}: {error}"),
        }
    }
    let mut random = Seeded::new(9);
    for _ in 0..300 {
        let mut noisy = bytes.clone();
        let at = random.below(noisy.len() as u64) as usize;
        let len = (1 + random.below(3000) as usize).min(noisy.len() - at);
        noisy[at..at + len].fill_with(|| random.bits() as u8);
        match open(&SimDisk::with_bytes(noisy)) {
            Ok(store) => match check(&store, &world.state, &mut Seeded::new(1)) {
                Ok(()) => {}
                Err(Error::Damaged { .. }) => refused += 1,
                Err(error) => panic!("noise at {at}: {error}"),
            },
            Err(Error::Damaged { .. }) => refused += 1,
            Err(error) => panic!("noise at {at}: {error}"),
        }
    }
    println!("{refused} refused");
    assert!(refused > 200);
}

/// What never was a store file is told as such; a store file without its headers is a damaged one.
#[test]
fn another_kind_of_file_is_no_damage() {
    for bytes in [
        Vec::new(),
        b"Dear reader".to_vec(),
        vec![0; 100_000],
        vec![0xa5; 100_000],
    ] {
        let disk = SimDisk::with_bytes(bytes.clone());
        match open(&disk).map(|_| ()).unwrap_err() {
            Error::Foreign { bytes: found } => assert_eq!(found, bytes.len() as u64),
            error => panic!("{error}"),
        }
        assert_eq!((disk.ops(), disk.bytes()), (0, bytes), "it was not touched");
    }
    let mut world = World::new(11);
    world.step().unwrap();
    world.store.close().unwrap();
    let mut bytes = world.disk.bytes();
    for at in crate::layout::HEADER_AT {
        bytes[at as usize..at as usize + crate::layout::HEADER_LEN].fill(0);
    }
    let error = open(&SimDisk::with_bytes(bytes)).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn a_torn_tail_is_not_read_and_not_touched_by_a_reader() {
    let mut world = World::new(5);
    for _ in 0..50 {
        world.step().unwrap();
    }
    let durable = world.store.sync().unwrap();
    let seq = world.store.seq;
    while world.store.seq < seq + 5 {
        world.step().unwrap();
    }
    let bytes = world.disk.after_crash(CrashKind::Torn { seed: 77 });
    let disk = SimDisk::with_bytes(bytes.clone());
    let frozen = Frozen::open_on(std::sync::Arc::new(disk.clone())).unwrap();
    assert!(frozen.revision() >= durable.revision);
    let expected = frozen.summary().unwrap();
    assert_eq!((disk.ops(), disk.bytes()), (0, bytes));
    drop(open(&disk).unwrap());
    let cut = Frozen::open_on(std::sync::Arc::new(disk)).unwrap();
    assert_eq!(cut.summary().unwrap(), expected);
}

#[test]
fn a_header_copy_that_is_damaged_or_old_is_made_new_at_the_next_start() {
    let mut world = World::new(6);
    let first = world.disk.bytes()[..4096].to_vec();
    for _ in 0..300 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    // The world may have ended between the two copies of a checkpoint's header.
    drop(open(&world.disk).unwrap());
    let bytes = world.disk.bytes();
    assert!(bytes[..4096] == bytes[4096..8192], "both copies are the same at rest");
    assert!(bytes[..4096] != first, "there was a checkpoint");
    for (copy, page) in [(0, &first), (4096, &first), (0, &vec![7; 4096]), (4096, &vec![0; 4096])] {
        let mut damaged = bytes.clone();
        damaged[copy..copy + 4096].copy_from_slice(page);
        let disk = SimDisk::with_bytes(damaged);
        let store = open(&disk).unwrap();
        check(&store, &world.state, &mut Seeded::new(1)).unwrap();
        drop(store);
        assert!(
            disk.after_crash(CrashKind::LoseAll)[..8192] == bytes[..8192],
            "not made new"
        );
    }
}
