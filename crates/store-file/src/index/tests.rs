//! The index against a plain map of all changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;

use super::*;
use crate::Seeded;

fn put(main: i64, sub: u32, version: i64) -> Ver {
    Ver {
        create: main,
        main,
        version,
        lease: 0,
        address: main as u64 * 100 + u64::from(sub),
        sub,
        len: 1,
    }
}

/// Every change of every key, never compacted.
type Model = BTreeMap<Vec<u8>, Vec<Ver>>;

fn seen(versions: &[Ver], at: i64) -> Option<Ver> {
    let last = versions.iter().rev().find(|ver| ver.main <= at)?;
    (!last.is_tombstone()).then_some(*last)
}

fn check(index: &Index, model: &Model, range: &KeyRange, at: i64, head: i64) {
    let expected: Vec<(Vec<u8>, Version)> = model
        .iter()
        .filter(|(key, _)| range.contains(key))
        .filter_map(|(key, versions)| Some((key.clone(), seen(versions, at)?.public())))
        .collect();
    let mut got = Vec::new();
    index.scan(range, at, &mut |key, version| {
        got.push((key.to_vec(), *version));
        ControlFlow::Continue(())
    });
    assert_eq!(got, expected, "scan {range:?} at {at}");
    assert_eq!(index.count_at(range, at), expected.len() as u64);
    if at == head {
        assert_eq!(index.count_latest(range), expected.len() as u64, "count {range:?}");
    }
}

fn random_key(random: &mut Seeded) -> Vec<u8> {
    format!("/k/{:03}", random.below(400)).into_bytes()
}

fn random_range(random: &mut Seeded) -> KeyRange {
    KeyRange {
        start: Bytes::from(random_key(random)),
        end: match random.below(3) {
            0 => RangeEnd::Single,
            1 => RangeEnd::Before(Bytes::from(random_key(random))),
            _ => RangeEnd::Unbounded,
        },
    }
}

#[test]
fn random_changes_and_compactions_agree_with_a_map() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut random = Seeded::new(seed);
        let (mut index, mut model) = (Index::default(), Model::new());
        let (mut compacted, mut head) = (0, 1);
        for _ in 0..3000 {
            head += 1;
            let key = random_key(&mut random);
            let versions = model.entry(key.clone()).or_default();
            let live = seen(versions, head);
            let ver = match live {
                Some(_) if random.one_in(3) => Ver::tombstone(Revision { main: head, sub: 0 }),
                Some(live) => put(head, 0, live.version + 1),
                None => put(head, 0, 1),
            };
            assert_eq!(
                index.append(&key, ver).filter(|before| !before.is_tombstone()),
                live,
                "the version before"
            );
            versions.push(ver);
            if random.one_in(50) {
                let range = random_range(&mut random);
                let at = compacted + random.below((head - compacted) as u64 + 1) as i64;
                check(&index, &model, &range, at, head);
                check(&index, &model, &range, head, head);
            }
            if random.one_in(300) {
                compacted += random.below((head - compacted) as u64 + 1) as i64;
                let mut cursor = Some(Box::from(&b""[..]));
                while let Some(from) = cursor {
                    cursor = index.compact(&from, compacted, &mut |_, _| {}, &mut || random.one_in(2));
                }
                check(&index, &model, &random_range(&mut random), compacted, head);
            }
        }
        // What is left is what a compaction keeps, and no more.
        for entry in index.entries() {
            let before: Vec<&Ver> = entry.versions().filter(|ver| ver.main <= compacted).collect();
            assert!(before.len() <= 1, "{before:?}");
            assert!(before.iter().all(|ver| !ver.is_tombstone() || ver.main == compacted));
        }
        assert_eq!(index.entries().count(), index.keys());
    }
}

#[test]
fn a_tombstone_at_the_compacted_revision_stays_until_the_next_compaction() {
    let mut index = Index::default();
    index.append(b"a", put(2, 0, 1));
    index.append(b"a", Ver::tombstone(Revision { main: 3, sub: 0 }));
    let mut dropped = Vec::new();
    let mut compact = |index: &mut Index, revision| {
        index.compact(b"", revision, &mut |_, ver| dropped.push(ver.main), &mut || true);
    };
    compact(&mut index, 3);
    assert_eq!(index.get(b"a").unwrap().versions().count(), 1);
    compact(&mut index, 4);
    assert!(index.get(b"a").is_none());
    assert_eq!(dropped, [2, 3]);
}

#[test]
fn walking_in_slices_sees_every_key_once_and_relocation_is_exact() {
    let mut index = Index::default();
    for n in 0..1000u32 {
        assert!(index.push(format!("{n:04}").as_bytes(), &[put(2, n, 1), put(3, n, 2)]));
    }
    assert!(!index.push(b"0000", &[put(9, 0, 1)]), "out of order");
    let mut seen = BTreeSet::new();
    let mut cursor: Option<Box<[u8]>> = None;
    loop {
        cursor = index.walk(cursor.as_deref(), &mut |entry| {
            assert!(seen.insert(entry.key().to_vec()), "twice");
            if seen.len() % 7 == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    let at = |main, sub| Revision { main, sub };
    assert_eq!(index.relocate(b"0005", at(2, 5), 7), Some(205));
    assert_eq!(index.relocate(b"0005", at(2, 6), 7), None);
    assert_eq!(index.relocate(b"nope", at(2, 5), 7), None);
    assert_eq!(index.get(b"0005").unwrap().at(2).unwrap().address, 7);
}

#[test]
fn an_entry_stays_small() {
    assert_eq!(size_of::<Versions>() + size_of::<u32>(), 60);
    assert_eq!(size_of::<Ver>(), 48);
}

/// Enough keys for several branches, put in a random order, some of them removed again, and counted in random ranges.
#[test]
fn many_keys_in_any_order_agree_with_a_map() {
    let mut random = Seeded::new(5);
    let (mut index, mut model) = (Index::default(), Model::new());
    let name = |n: u64| format!("/registry/{:06}", n).into_bytes();
    for n in 0..60_000u64 {
        // The first third in order, as a checkpoint brings them; the rest anywhere.
        let n = if n < 20_000 { n + 30_000 } else { random.below(90_000) };
        let head = 2 + model.len() as i64;
        let key = name(n);
        if model.contains_key(&key) {
            continue;
        }
        index.append(&key, put(head, 0, 1));
        model.insert(key, vec![put(head, 0, 1)]);
    }
    let head = 1_000_000;
    for n in 40_000..70_000 {
        if let Some(versions) = model.remove(&name(n)) {
            assert_eq!(
                index.append(&name(n), Ver::tombstone(Revision { main: head, sub: 0 })),
                versions.last().copied()
            );
        }
    }
    let mut cursor = Some(Box::from(&b""[..]));
    while let Some(from) = cursor {
        cursor = index.compact(&from, head + 1, &mut |_, _| {}, &mut || random.one_in(2));
    }
    let keys: Vec<Vec<u8>> = index.entries().map(|entry| entry.key().to_vec()).collect();
    assert!(keys.len() > 20_000 && keys.is_sorted());
    assert!(keys.iter().eq(model.keys()));
    assert!(index.branches.len() > 2, "{} branches", index.branches.len());
    for _ in 0..200 {
        let (from, to) = (name(random.below(90_000)), name(random.below(90_000)));
        let range = KeyRange {
            start: Bytes::from(from.clone()),
            end: RangeEnd::Before(Bytes::from(to.clone())),
        };
        let expected = if from <= to {
            model.range(from..to).count() as u64
        } else {
            0
        };
        assert_eq!(
            (index.count_latest(&range), index.count_at(&range, head)),
            (expected, expected)
        );
    }
    for n in (0..90_000).step_by(7) {
        assert_eq!(
            index.get(&name(n)).map(|entry| *entry.latest()),
            model.get(&name(n)).map(|versions| versions[0])
        );
    }
}
