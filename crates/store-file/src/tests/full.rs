//! No space: nothing changes, and deleting and compacting get out of it.

use std::time::Duration;

use bytes::Bytes;

use super::world::{Op, World, check, perform};
use crate::layout::SLOTS_AT;
use crate::*;

fn put(n: u64) -> Op {
    Op::Transaction {
        changes: vec![(
            Bytes::from(format!("/registry/{n:03}")),
            Some((Bytes::from(vec![n as u8; 700]), 0)),
        )],
        ended: vec![],
    }
}

fn act(world: &mut World, op: Op, spare: bool) -> Result<(), Error> {
    let seq = perform(&mut world.store, &op, spare)?;
    world.state.apply(&op);
    world.done.push((seq, op));
    Ok(())
}

fn upkeep(world: &mut World) {
    for _ in 0..1000 {
        let more = world.store.maintain(Duration::from_millis(1)).unwrap();
        world.store.sync().unwrap();
        if !more {
            return;
        }
    }
    panic!("upkeep does not end");
}

/// Fills until there is no space, then deletes, compacts and goes on, several times over.
fn fill_and_recover(world: &mut World) {
    for round in 0..5 {
        let mut n = 0;
        loop {
            match act(world, put(n % 100), false) {
                Ok(()) => n += 1,
                Err(Error::NoSpace { needed }) => {
                    assert!(needed > 700);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            if n % 7 == 0 {
                world.store.sync().unwrap();
                world.store.maintain(Duration::ZERO).unwrap();
            }
            assert!(n < 100_000, "the limit is never reached");
        }
        println!("round {round}: {n} puts");
        assert!(n > 5, "round {round}: only {n} puts until there was no space again");
        check(&world.store, &world.state, &mut world.random).unwrap();
        let before = world.store.seq;
        assert!(act(world, put(0), false).is_err());
        assert_eq!(world.store.seq, before, "nothing was written");
        act(world, Op::Note("alarm".into(), Bytes::from_static(b"nospace")), false).unwrap();
        for n in 0..90 {
            let delete = Op::Transaction {
                changes: vec![(Bytes::from(format!("/registry/{n:03}")), None)],
                ended: vec![],
            };
            act(world, delete, true).unwrap();
        }
        let head = world.state.head;
        act(world, Op::Compact(head), true).unwrap();
        upkeep(world);
        check(&world.store, &world.state, &mut world.random).unwrap();
    }
}

#[test]
fn a_full_medium_is_left_by_deleting_and_compacting() {
    let mut world = World::new(1);
    world.disk.set_capacity(Some((SLOTS_AT + 40 * 8192) as usize));
    fill_and_recover(&mut world);
}

#[test]
fn a_reached_quota_is_left_by_deleting_and_compacting() {
    let mut world = World::new(2);
    world.store.close().unwrap();
    let options = Options {
        quota: 300_000,
        ..super::world::options()
    };
    world.store = Store::open_on(std::sync::Arc::new(world.disk.clone()), options, Tuning::small()).unwrap();
    fill_and_recover(&mut world);
    assert!(world.store.sizes().allocated < 600_000, "{:?}", world.store.sizes());
}
