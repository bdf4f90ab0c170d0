//! Full verification: a sound file is sound, and no flipped bit of what the store needs passes.

use std::ops::Range;
use std::sync::Arc;

use super::world::{World, open};
use crate::layout::SLOTS_AT;
use crate::recovery::recover;
use crate::*;

fn verify(bytes: &[u8]) -> Result<Checked, Error> {
    check_on(Arc::new(SimDisk::with_bytes(bytes.to_vec())))
}

/// The parts of the file that hold the log.
fn log_of(bytes: &[u8]) -> Vec<Range<usize>> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::with_bytes(bytes.to_vec()));
    let state = recover(&disk, 0).unwrap();
    let log = state.space.log().values();
    log.map(|segment| {
        let base = state.space.slot_at(segment.slot) as usize;
        base..base + segment.used as usize
    })
    .collect()
}

#[test]
fn a_sound_file_is_sound_whatever_was_done_to_it() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        for step in 0..200 {
            world.step().unwrap();
            if step % 40 == 39 {
                world.store.sync().unwrap();
                let checked = verify(&world.disk.bytes()).unwrap();
                assert_eq!(checked.problems, [], "seed {seed}, step {step}");
                assert_eq!(
                    (checked.revision, checked.compacted),
                    (world.state.head, world.state.compacted)
                );
                let all = KeyRange {
                    start: Default::default(),
                    end: RangeEnd::Unbounded,
                };
                assert_eq!(checked.keys, world.store.count(&all, checked.revision));
                assert!(checked.frames > 20 && checked.versions >= checked.keys);
            }
        }
    }
}

#[test]
fn no_flipped_bit_of_the_log_passes_and_its_place_is_told() {
    let mut world = World::new(5);
    for _ in 0..250 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    let bytes = world.disk.bytes();
    let log = log_of(&bytes);
    let mut random = Seeded::new(5);
    let (mut by_recovery, mut by_check, mut padding) = (0, 0, 0);
    for at in log.iter().flat_map(Clone::clone).step_by(7) {
        let disk = SimDisk::with_bytes(bytes.clone());
        disk.flip(at as u64, random.below(8) as u8);
        match verify(&disk.bytes()) {
            Err(Error::Damaged { offset, what }) => {
                assert!(
                    offset <= at as u64 && at as u64 - offset < 8192,
                    "byte {at}: {offset}: {what}"
                );
                by_recovery += 1;
            }
            Err(error) => panic!("byte {at}: {error}"),
            // The bytes between the end of a payload and the next multiple of eight say nothing.
            Ok(checked) if checked.problems.is_empty() && bytes[at] == 0 => padding += 1,
            Ok(checked) => {
                let named = |problem: &Problem| problem.offset <= at as u64 && at as u64 - problem.offset < 8192;
                assert!(checked.problems.iter().any(named), "byte {at}: {:?}", checked.problems);
                by_check += 1;
            }
        }
    }
    println!("{by_recovery} flips refused by recovery, {by_check} found by the check, {padding} in padding");
    assert!(
        by_recovery > 100 && by_check > 300 && padding < 500,
        "{by_recovery} {by_check} {padding}"
    );
}

#[test]
fn several_damages_are_all_told() {
    let mut world = World::new(6);
    for _ in 0..250 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    let bytes = world.disk.bytes();
    let log = log_of(&bytes);
    let disk = SimDisk::with_bytes(bytes.clone());
    // In the middle of each segment before the last, which only the check reads.
    let places: Vec<usize> = log[..log.len() - 1]
        .iter()
        .map(|part| (part.start + part.end) / 2)
        .collect();
    let found = |at: usize| {
        let one = SimDisk::with_bytes(bytes.clone());
        one.flip(at as u64, 3);
        verify(&one.bytes()).is_ok_and(|checked| !checked.problems.is_empty())
    };
    let places: Vec<usize> = places.into_iter().filter(|at| found(*at)).collect();
    assert!(places.len() > 1, "only {} places", places.len());
    places.iter().for_each(|at| disk.flip(*at as u64, 3));
    let checked = verify(&disk.bytes()).unwrap();
    assert!(checked.problems.len() >= places.len(), "{:?}", checked.problems);
    let mut sorted = checked.problems.clone();
    sorted.sort_by_key(|problem| problem.offset);
    assert_eq!(sorted, checked.problems);
}

#[test]
fn an_older_header_copy_is_told_and_is_no_damage() {
    let mut world = World::new(7);
    for _ in 0..50 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    let disk = SimDisk::with_bytes(world.disk.bytes());
    disk.flip(30, 1);
    let checked = verify(&disk.bytes()).unwrap();
    assert!(checked.problems.is_empty());
    assert_eq!(checked.notices[0].offset, 0);
    assert!(SLOTS_AT > 0 && open(&disk).is_ok());
}

#[test]
fn looking_at_a_file_changes_nothing_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.qks");
    let options = super::world::options;
    let mut store = Store::create(&path, options()).unwrap();
    for n in 0..50 {
        let mut transaction = store.begin(1, 200, false).unwrap();
        transaction.put(format!("k{n}").into(), vec![n; 100].into(), 0);
        transaction.commit().unwrap();
    }
    store.compact(20).unwrap();
    store.sync().unwrap();
    assert!(matches!(Store::look(&path), Err(Error::Locked { .. })), "it is served");
    store.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut looked = Store::look(&path).unwrap();
    assert!(
        matches!(Store::open(&path, options()), Err(Error::Locked { .. })),
        "it is looked at"
    );
    let version = looked.get(b"k7", 51).unwrap();
    assert_eq!(&looked.value(&version).unwrap()[..], &[7; 100]);
    let mut transaction = looked.begin(1, 200, false).unwrap();
    transaction.put("new".into(), "value".into(), 0);
    transaction.commit().unwrap();
    looked.sync().unwrap();
    assert!(looked.get(b"new", looked.revision()).is_some());
    looked.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(check(&path).unwrap().problems, []);
}
