//! Random operations against the judge, with reopenings in between.

use std::time::Duration;

use super::world::{World, check, open};
use crate::*;

fn run(seed: u64, steps: u64) -> (u64, Sizes) {
    println!("seed {seed}");
    let mut world = World::new(seed);
    let mut checkpoints = 0;
    for step in 0..steps {
        world.step().unwrap();
        if step % 16 == 0 {
            check(&world.store, &world.state, &mut world.random).unwrap();
        }
        if world.random.one_in(60) {
            checkpoints += world.store.stats().checkpoints;
            world.store.close().unwrap();
            world.store = open(&world.disk).unwrap();
            check(&world.store, &world.state, &mut world.random).unwrap();
        }
    }
    // At rest, with everything compacted, little more than the live data stays.
    let head = world.state.head;
    if world.state.compacted < head {
        world.store.compact(head).unwrap();
        world.state.compacted = head;
    }
    for _ in 0..10_000 {
        let more = world.store.maintain(Duration::from_millis(1)).unwrap();
        world.store.sync().unwrap();
        if !more {
            break;
        }
    }
    assert!(!world.store.maintain(Duration::ZERO).unwrap(), "upkeep ends");
    check(&world.store, &world.state, &mut world.random).unwrap();
    checkpoints += world.store.stats().checkpoints;
    (checkpoints, world.store.sizes())
}

#[test]
fn random_operations_agree_with_a_map_of_all_history() {
    for seed in 0..12 {
        let (checkpoints, sizes) = run(seed, 1500);
        println!("seed {seed}: {checkpoints} checkpoints, {sizes:?}");
        assert!(checkpoints > 5, "the test never made a checkpoint");
        // Twelve small segments of slack: spare, checkpoints and the garbage that is not worth copying.
        assert!(
            sizes.allocated < sizes.in_use * 16 / 10 + 65536 + 14 * 8192,
            "{sizes:?} is too much for what is live"
        );
    }
}
