//! Numbers under right checksums that make no sense: refused, without overflow and without memory for them.

use std::sync::Arc;

use super::world::World;
use crate::checkpoint::End;
use crate::frame::{FRAME_HEADER_LEN, Kind, parse, seal};
use crate::layout::{HEADER_AT, HEADER_LEN, SEGMENT_HEADER_LEN, SLOTS_AT};
use crate::*;

/// A closed file with a checkpoint in it.
fn written() -> Vec<u8> {
    let mut world = World::new(9);
    while world.store.stats().checkpoints < 2 {
        world.step().unwrap();
    }
    world.store.close().unwrap();
    world.disk.bytes()
}

fn refused(what: &str, bytes: Vec<u8>) {
    let outcome = check_on(Arc::new(SimDisk::with_bytes(bytes)));
    assert!(
        matches!(outcome, Err(Error::Damaged { .. })),
        "{what}: {:?}",
        outcome.map(|checked| checked.problems)
    );
}

fn fix(bytes: &mut [u8], at: usize, len: usize) {
    let sum = crc32c::crc32c(&bytes[at..at + len - 4]);
    bytes[at + len - 4..at + len].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn numbers_of_the_header_that_make_no_sense_are_refused() {
    let bytes = written();
    for (what, at, number) in [
        ("segments of 2 GiB", 20, (1u32 << 31).to_le_bytes().to_vec()),
        ("an import ahead of the head", 56, i64::MAX.to_le_bytes().to_vec()),
        ("no such checkpoint", 64, u64::MAX.to_le_bytes().to_vec()),
        (
            "more segments than a checkpoint has",
            72,
            u32::MAX.to_le_bytes().to_vec(),
        ),
    ] {
        let mut forged = bytes.clone();
        for copy in HEADER_AT {
            let copy = copy as usize;
            forged[copy + at..copy + at + number.len()].copy_from_slice(&number);
            fix(&mut forged, copy, HEADER_LEN);
        }
        refused(what, forged);
    }
}

#[test]
fn the_last_possible_segment_is_none_of_the_log() {
    let disk = SimDisk::new();
    let identity = Identity {
        cluster_id: 1,
        member_id: 2,
        raft_term: 3,
    };
    let options = Options { quota: 0, identity };
    let store = Store::create_on(Arc::new(disk.clone()), options, Tuning::small()).unwrap();
    store.close().unwrap();
    let mut forged = disk.bytes();
    let slot = SLOTS_AT as usize;
    for number in [0, u64::MAX, u64::MAX / 8192] {
        forged[slot + 16..slot + 24].copy_from_slice(&number.to_le_bytes());
        fix(&mut forged, slot, SEGMENT_HEADER_LEN);
        refused("its only segment has an impossible place", forged.clone());
    }
}

#[test]
fn the_end_of_a_checkpoint_that_makes_no_sense_is_refused() {
    let bytes = written();
    let mut ends = Vec::new();
    for slot in (SLOTS_AT as usize..bytes.len()).step_by(8192) {
        for at in (slot + SEGMENT_HEADER_LEN..slot + 8192).step_by(8) {
            if let Some((header, payload)) = parse(&bytes[..slot + 8192], at)
                && header.kind == Kind::End
            {
                ends.push((at, header, End::decode(payload).unwrap()));
            }
        }
    }
    assert!(!ends.is_empty(), "a checkpoint stands in the file");
    let forge = |what: &str, change: &dyn Fn(&mut End)| {
        let mut forged = bytes.clone();
        for (at, header, end) in &ends {
            let mut end = *end;
            change(&mut end);
            let mut frame = vec![0; FRAME_HEADER_LEN];
            frame.extend_from_slice(&end.encode());
            seal(
                &mut frame,
                0,
                Kind::End,
                header.part,
                header.seq,
                header.durable,
                header.tag,
            );
            forged[*at..*at + frame.len()].copy_from_slice(&frame);
        }
        refused(what, forged);
    };
    forge("the frame before the first", &|end| end.replay_seq = 0);
    forge("a frame beyond all numbers", &|end| end.replay_seq = u64::MAX);
    forge("no segment", &|end| end.replay_at = 0);
    forge("a segment's header", &|end| {
        end.replay_at = end.replay_at / 8192 * 8192 + 8
    });
    forge("within a frame", &|end| end.replay_at += 3);
    forge("the last number as head", &|end| end.head = i64::MAX);
    forge("compacted beyond the head", &|end| end.compacted = end.head + 1);
}
