//! Holds keep what a long read needs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::world::options;
use crate::*;

/// What a reader sees from a held revision up to a head: the keys at the one, and the changes after it.
type Seen = (
    BTreeMap<Bytes, (Revision, Bytes)>,
    Vec<(Revision, Bytes, Option<Bytes>)>,
);

fn see(store: &Store, from: i64, to: i64) -> Seen {
    let all = KeyRange {
        start: Bytes::from_static(&[0]),
        end: RangeEnd::Unbounded,
    };
    let (mut keys, mut changes) = (BTreeMap::new(), Vec::new());
    store.scan(&all, from, &mut |key, version| {
        keys.insert(key.clone(), (version.modified, store.value(version).unwrap()));
        ControlFlow::Continue(())
    });
    store
        .changes(from + 1, to, &mut |change| {
            let value = match change.what {
                ChangeKind::Put(version) => Some(store.value(&version).unwrap()),
                ChangeKind::Delete => None,
            };
            changes.push((change.revision, change.key, value));
            ControlFlow::Continue(())
        })
        .unwrap();
    (keys, changes)
}

fn round(store: &mut Store, number: u8) {
    for key in 0..20u8 {
        let mut transaction = store.begin(1, 500, false).unwrap();
        let name = Bytes::from(format!("{key:03}"));
        if (key + number).is_multiple_of(5) {
            transaction.delete(&name);
        } else {
            transaction.put(name, Bytes::from(vec![number; 300]), 0);
        }
        transaction.commit().unwrap();
    }
}

fn settle(store: &mut Store) {
    for _ in 0..500 {
        store.sync().unwrap();
        store.maintain(Duration::ZERO).unwrap();
    }
}

#[test]
fn what_is_held_stays_through_compactions_and_goes_after_them() {
    let disk = SimDisk::new();
    let mut store = Store::create_on(Arc::new(disk.clone()), options(), Tuning::small()).unwrap();
    (0..3).for_each(|number| round(&mut store, number));
    let middle = store.revision() - 20;
    store.compact(middle).unwrap();
    settle(&mut store);
    let (held, head) = (store.hold(), store.revision());
    assert_eq!(held, middle);
    assert!(store.in_log(held) && !store.in_log(held - 1));
    let expected = see(&store, held, head);
    assert!(expected.0.len() > 10 && expected.1.len() > 10);

    for number in 3..40 {
        round(&mut store, number);
        store.compact(store.revision()).unwrap();
        settle(&mut store);
        if number % 6 == 0 {
            assert_eq!(see(&store, held, head), expected, "after round {number}");
        }
    }
    assert!(
        store.stats().checkpoints > 2,
        "no checkpoint that could have freed space"
    );
    // A second hold, of what is compacted now, does not end the first.
    let second = store.hold();
    assert!(second > head);
    store.release(second);
    settle(&mut store);
    assert_eq!(see(&store, held, head), expected);

    // A crash ends the hold and harms nothing.
    let now = see(&store, store.compacted(), store.revision());
    store.sync().unwrap();
    let again = Store::open_on(Arc::new(disk.clone()), options(), Tuning::small()).unwrap();
    assert!(!again.in_log(held));
    assert_eq!(see(&again, again.compacted(), again.revision()), now);
    drop(again);

    let before = store.sizes();
    store.release(held);
    (40..60).for_each(|number| round(&mut store, number));
    store.compact(store.revision()).unwrap();
    settle(&mut store);
    assert!(!store.in_log(held) && !store.in_log(head));
    let after = store.sizes();
    assert!(
        after.in_use < before.in_use && after.allocated < before.allocated / 2,
        "{after:?} after, {before:?} before: the space was not given back"
    );
}
