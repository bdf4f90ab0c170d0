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
    for at in (0..bytes.len()).filter(|at| bytes[*at] != 0) {
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
