//! A plain map of all history as the judge, and a client that does random things to it and to a store alike.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::*;

pub(super) const KEYS: u64 = 120;

pub(super) fn options() -> Options {
    Options {
        quota: 0,
        identity: Identity {
            cluster_id: 11,
            member_id: 12,
            raft_term: 13,
        },
    }
}

/// One thing a client did.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Transaction {
        /// Keys with a value and a lease, or a delete.
        changes: Vec<(Bytes, Option<(Bytes, i64)>)>,
        ended: Vec<i64>,
    },
    Lease(Lease),
    Compact(i64),
    Note(String, Bytes),
}

/// A put as the judge remembers it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Kept {
    value: Bytes,
    create: i64,
    version: i64,
    lease: i64,
}

/// One change of one key: its revision, and the put, or None for a delete.
type Moment = (Revision, Option<Kept>);

/// Everything that ever happened, without any compaction.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) head: i64,
    pub(super) compacted: i64,
    keys: BTreeMap<Bytes, Vec<Moment>>,
    leases: BTreeMap<i64, Lease>,
    notes: BTreeMap<String, Bytes>,
    history: Vec<(Revision, Bytes, Option<Kept>)>,
}

impl State {
    pub(super) fn new() -> State {
        State {
            head: 1,
            ..State::default()
        }
    }

    pub(super) fn at(&self, key: &[u8], at: i64) -> Option<(Revision, &Kept)> {
        let moments = self.keys.get(key)?;
        let (revision, kept) = moments.iter().rev().find(|(revision, _)| revision.main <= at)?;
        Some((*revision, kept.as_ref()?))
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Lease(lease) => drop(self.leases.insert(lease.id, *lease)),
            Op::Compact(revision) => self.compacted = *revision,
            Op::Note(name, value) if value.is_empty() => drop(self.notes.remove(name)),
            Op::Note(name, value) => drop(self.notes.insert(name.clone(), value.clone())),
            Op::Transaction { changes, ended } => {
                self.leases.retain(|id, _| !ended.contains(id));
                let main = self.head + 1;
                let mut sub = 0;
                for (key, what) in changes {
                    let live = self.at(key, main).map(|(_, kept)| kept.clone());
                    let kept = match (what, live) {
                        (None, None) => continue,
                        (None, Some(_)) => None,
                        (Some((value, lease)), live) => Some(Kept {
                            value: value.clone(),
                            create: live.as_ref().map_or(main, |live| live.create),
                            version: live.map_or(1, |live| live.version + 1),
                            lease: *lease,
                        }),
                    };
                    let revision = Revision { main, sub };
                    sub += 1;
                    self.history.push((revision, key.clone(), kept.clone()));
                    self.keys.entry(key.clone()).or_default().push((revision, kept));
                }
                if sub > 0 {
                    self.head = main;
                }
            }
        }
    }

    fn live(&self, range: &KeyRange, at: i64) -> Vec<(Bytes, Revision, Kept)> {
        let inside = self.keys.keys().filter(|key| range.contains(key));
        inside
            .filter_map(|key| {
                let (revision, kept) = self.at(key, at)?;
                Some((key.clone(), revision, kept.clone()))
            })
            .collect()
    }
}

fn everything() -> KeyRange {
    KeyRange {
        start: Bytes::new(),
        end: RangeEnd::Unbounded,
    }
}

fn kept(store: &Store, version: &Version) -> Result<Kept, Error> {
    Ok(Kept {
        value: store.value(version)?,
        create: version.create,
        version: version.version,
        lease: version.lease,
    })
}

/// Compares all that can be read with what the judge knows. An error is the store's own (a damaged value).
pub(super) fn check(store: &Store, state: &State, random: &mut Seeded) -> Result<(), Error> {
    assert_eq!((store.revision(), store.compacted()), (state.head, state.compacted));
    assert_eq!(store.leases(), state.leases.values().copied().collect::<Vec<_>>());
    for (name, value) in &state.notes {
        assert_eq!(store.note(name).as_ref(), Some(value), "note {name}");
    }
    let mut by_lease: BTreeMap<i64, Vec<Bytes>> = BTreeMap::new();
    for (key, _, kept) in state.live(&everything(), state.head) {
        by_lease.entry(kept.lease).or_default().push(key);
    }
    by_lease.remove(&0);
    for id in 1..10 {
        assert_eq!(
            store.lease_keys(id),
            by_lease.remove(&id).unwrap_or_default(),
            "lease {id}"
        );
    }
    check_range(store, state, &everything(), state.head)?;
    let span = (state.head - state.compacted) as u64 + 1;
    let past = state.compacted + random.below(span) as i64;
    let range = KeyRange {
        start: key(random),
        end: match random.below(3) {
            0 => RangeEnd::Single,
            1 => RangeEnd::Before(key(random)),
            _ => RangeEnd::Unbounded,
        },
    };
    check_range(store, state, &range, past)?;
    check_range(store, state, &everything(), state.compacted)?;
    check_history(store, state, state.compacted)
}

fn check_range(store: &Store, state: &State, range: &KeyRange, at: i64) -> Result<(), Error> {
    let expected = state.live(range, at);
    let mut versions = Vec::new();
    store.scan(range, at, &mut |key, version| {
        versions.push((key.clone(), *version));
        ControlFlow::Continue(())
    });
    let mut got = Vec::new();
    for (key, version) in versions {
        assert_eq!(store.get(&key, at), Some(version));
        got.push((key, version.modified, kept(store, &version)?));
    }
    assert_eq!(got, expected, "range {range:?} at {at}");
    assert_eq!(
        store.count(range, at),
        expected.len() as u64,
        "count of {range:?} at {at}"
    );
    Ok(())
}

fn check_history(store: &Store, state: &State, from: i64) -> Result<(), Error> {
    let mut seen = Vec::new();
    store.changes(from, state.head, &mut |change| {
        seen.push(change);
        ControlFlow::Continue(())
    })?;
    let mut got = Vec::new();
    for change in seen {
        let what = match change.what {
            ChangeKind::Delete => None,
            ChangeKind::Put(version) => {
                assert_eq!(version.modified, change.revision);
                Some(kept(store, &version)?)
            }
        };
        got.push((change.revision, change.key, what));
    }
    let first = state.history.partition_point(|(revision, ..)| revision.main < from);
    assert_eq!(got, state.history[first..], "changes from {from}");
    Ok(())
}

pub(super) fn key(random: &mut Seeded) -> Bytes {
    Bytes::from(format!("/registry/{:03}", random.below(KEYS)))
}

fn value(random: &mut Seeded) -> Bytes {
    let len = match random.below(10) {
        0 => 1000 + random.below(2000),
        1 => 0,
        _ => random.below(120),
    };
    let byte = random.bits() as u8;
    Bytes::from(vec![byte; len as usize])
}

fn transaction(random: &mut Seeded, state: &State) -> Op {
    // One in forty takes several segments.
    let count = match random.below(40) {
        0 => 60,
        1..8 => 1 + random.below(6),
        _ => 1,
    };
    let mut taken = BTreeSet::new();
    let mut changes = Vec::new();
    for _ in 0..count {
        let key = key(random);
        if !taken.insert(key.clone()) {
            continue;
        }
        let lease = if random.one_in(4) {
            1 + random.below(9) as i64
        } else {
            0
        };
        let put = !random.one_in(4);
        changes.push((key, put.then(|| (value(random), lease))));
    }
    let ended = match state.leases.keys().next() {
        Some(id) if random.one_in(10) => vec![*id],
        _ => vec![],
    };
    if random.one_in(20) {
        changes.clear();
    }
    Op::Transaction { changes, ended }
}

/// What a client does next.
pub(super) fn next_op(random: &mut Seeded, state: &State) -> Op {
    match random.below(20) {
        0 => Op::Lease(Lease {
            id: 1 + random.below(9) as i64,
            granted_ttl: random.below(100) as i64,
            deadline_ms: random.below(1 << 40) as i64,
        }),
        1 if state.compacted < state.head => {
            let span = (state.head - state.compacted) as u64;
            Op::Compact(state.head - random.below(span) as i64)
        }
        2 => {
            let value = if random.one_in(3) { Bytes::new() } else { value(random) };
            Op::Note(format!("note {}", random.below(4)), value)
        }
        _ => transaction(random, state),
    }
}

/// Does an operation to the store; gives its frame's number.
pub(super) fn perform(store: &mut Store, op: &Op, spare: bool) -> Result<u64, Error> {
    let queued = match op {
        Op::Lease(lease) => store.put_lease(*lease)?,
        Op::Compact(revision) => store.compact(*revision)?,
        Op::Note(name, value) => store.put_note(name, value)?,
        Op::Transaction { changes, ended } => {
            let bytes = |(key, what): &(Bytes, Option<(Bytes, i64)>)| {
                key.len() + what.as_ref().map_or(0, |(value, _)| value.len())
            };
            let mut transaction = store.begin(changes.len() + ended.len(), changes.iter().map(bytes).sum(), spare)?;
            ended.iter().for_each(|id| transaction.end_lease(*id));
            for (key, what) in changes {
                match what {
                    Some((value, lease)) => {
                        let version = transaction.put(key.clone(), value.clone(), *lease);
                        let seen = transaction.store().get(key, transaction.revision());
                        assert_eq!(seen, Some(version), "own changes are seen");
                        assert_eq!(transaction.store().value(&version).unwrap(), value);
                    }
                    None => drop(transaction.delete(key)),
                }
            }
            transaction.commit()?
        }
    };
    Ok(queued.seq)
}

/// A store on a simulated medium, and what was done to it.
pub(super) struct World {
    pub(super) disk: SimDisk,
    pub(super) store: Store,
    pub(super) state: State,
    /// Every operation with its frame's number; the store may have lost those behind what is durable.
    pub(super) done: Vec<(u64, Op)>,
    pub(super) random: Seeded,
}

pub(super) fn open(disk: &SimDisk) -> Result<Store, Error> {
    Store::open_on(Arc::new(disk.clone()), options(), Tuning::small())
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let disk = SimDisk::new();
        let store = Store::create_on(Arc::new(disk.clone()), options(), Tuning::small()).unwrap();
        World {
            disk,
            store,
            state: State::new(),
            done: Vec::new(),
            random: Seeded::new(seed),
        }
    }

    /// One operation, and now and then a sync or some upkeep.
    pub(super) fn step(&mut self) -> Result<(), Error> {
        let op = next_op(&mut self.random, &self.state);
        // Noted before: a failure may come after the frame was queued.
        self.done.push((u64::MAX, op.clone()));
        let seq = perform(&mut self.store, &op, false)?;
        if let Some(last) = self.done.last_mut() {
            last.0 = seq;
        }
        self.state.apply(&op);
        if self.random.one_in(3) {
            self.store.sync()?;
        }
        for _ in 0..self.random.below(4) {
            self.store.maintain(Duration::ZERO)?;
        }
        Ok(())
    }

    /// The state after every operation up to a frame.
    pub(super) fn state_at(&self, seq: u64) -> State {
        let mut state = State::new();
        for (_, op) in self.done.iter().take_while(|(at, _)| *at <= seq) {
            state.apply(op);
        }
        state
    }
}
