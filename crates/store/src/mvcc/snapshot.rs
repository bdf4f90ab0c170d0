//! Everything the store still has, in the order of revisions: what a snapshot is made of.
//!
//! etcd keeps of a key what it was at the compacted revision (also a delete of exactly that revision), and every change
//! after it. The same is walked here, twice for each snapshot: for lengths, then for bytes. A hold keeps it readable,
//! so that compactions and writes go on meanwhile. Works in slices, so that other requests are served in between.
//!
//! Older records are found by keys but wanted by revisions: the lowest ones are picked in a scan of all keys, as many as
//! a bounded heap takes, again and again. Memory stays at a small part of the index's own, whatever the size.

use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use bytes::Bytes;
use quantykube_etcd_api::AlarmMember;
use quantykube_store_file::{
    self as store_file, Change, ChangeKind, KeyRange, Lease, RangeEnd, Revision, Store, Version,
};

use super::{Applied, Error, Mvcc};

/// Keys looked at in one slice.
const SLICE_KEYS: usize = 2000;

/// Bytes read in one slice.
const SLICE_BYTES: usize = 512 << 10;

/// What a record costs however short it is, in the currency of [`SLICE_BYTES`].
const RECORD_OVERHEAD: usize = 512;

/// Records picked in one scan of all keys, or a sixteenth of the keys if that is more.
const PICKED_MIN: usize = 100_000;

/// A moment of the store, held until [`Mvcc::snapshot_end`].
#[derive(Debug)]
pub struct Moment {
    /// The head revision.
    pub revision: i64,
    /// The compacted revision, 0 if there never was a compaction.
    pub compacted: i64,
    /// All leases.
    pub leases: Vec<Lease>,
    /// The raised alarms.
    pub alarms: Vec<AlarmMember>,
    /// The last frame's number.
    pub seq: u64,
    keys: u64,
}

/// One record of a snapshot.
#[derive(Debug)]
pub struct Entry {
    /// Its revision.
    pub revision: Revision,
    /// The key.
    pub key: Bytes,
    /// The version of a put; None for a delete.
    pub put: Option<Version>,
    /// The value of a put, if values are read; else nothing.
    pub value: Bytes,
}

/// How far a walk has come.
#[derive(Debug)]
pub struct Walk {
    /// Whether values are read.
    values: bool,
    /// Where the changes in the log begin.
    first: i64,
    /// How many records are picked in one scan.
    most: usize,
    stage: Stage,
    /// The last record that was picked.
    after: Revision,
}

#[derive(Debug)]
enum Stage {
    /// Picks the lowest records above the last from all keys, from this key on.
    Pick {
        from: Bytes,
        picked: BinaryHeap<Picked>,
        more: bool,
    },
    /// Gives out what was picked, the lowest last.
    Give { picked: Vec<Picked>, more: bool },
    /// Gives out the changes from here on.
    Changes { next: Revision },
}

/// A record that is older than the log. The key is a copy: the index gives keys as slices of larger blocks.
#[derive(Debug)]
struct Picked {
    key: Box<[u8]>,
    version: Version,
}

impl Ord for Picked {
    fn cmp(&self, other: &Picked) -> std::cmp::Ordering {
        self.version.modified.cmp(&other.version.modified)
    }
}

impl PartialOrd for Picked {
    fn partial_cmp(&self, other: &Picked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Picked {}

impl PartialEq for Picked {
    fn eq(&self, other: &Picked) -> bool {
        self.version.modified == other.version.modified
    }
}

impl Mvcc {
    /// Holds this moment. Nothing of it may be shown before it is synced. Leases have no history: so it is the head's
    /// moment, not the published one's.
    pub fn snapshot_begin(&mut self) -> Applied<Moment> {
        let compacted = self.store.hold();
        let moment = Moment {
            revision: self.store.revision(),
            compacted,
            leases: self.store.leases(),
            alarms: self.alarms(),
            seq: self.queued,
            keys: self.store.count(&super::all_keys(), self.store.revision()),
        };
        self.applied(self.queued, moment)
    }

    /// Lets a moment go.
    pub fn snapshot_end(&mut self, compacted: i64) {
        self.store.release(compacted);
    }

    /// Begins a walk through a moment.
    pub fn snapshot_walk(&self, moment: &Moment, values: bool) -> Walk {
        let Moment { compacted, .. } = *moment;
        // The changes of the compacted revision itself are told from the log, for the deletes among them; an import's
        // are not in the log, and have none.
        let first = match self.store.in_log(compacted) {
            true => compacted,
            // The store's first change has 2.
            false => (compacted + 1).max(2),
        };
        Walk {
            values,
            first,
            most: PICKED_MIN.max(usize::try_from(moment.keys).unwrap_or(0) / 16),
            after: Revision::default(),
            stage: match compacted {
                0 => Stage::changes(first),
                _ => Stage::pick(),
            },
        }
    }

    /// Walks a slice further; None once all was given out.
    pub fn snapshot_step(&self, moment: &Moment, walk: &mut Walk) -> Result<Option<Vec<Entry>>, Error> {
        let mut entries = Vec::new();
        walk.stage = match std::mem::replace(&mut walk.stage, Stage::changes(0)) {
            Stage::Pick { from, picked, more } => walk.pick(&self.store, moment, from, picked, more),
            Stage::Give { picked, more } => walk.give(&self.store, moment, picked, more, &mut entries)?,
            Stage::Changes { next } if next.main > moment.revision => return Ok(None),
            Stage::Changes { next } => walk.changes(&self.store, moment, next, &mut entries)?,
        };
        Ok(Some(entries))
    }
}

impl Stage {
    fn pick() -> Stage {
        Stage::Pick {
            from: Bytes::from_static(&[0]),
            picked: BinaryHeap::new(),
            more: false,
        }
    }

    fn changes(main: i64) -> Stage {
        Stage::Changes {
            next: Revision { main, sub: 0 },
        }
    }
}

impl Walk {
    fn pick(
        &self,
        store: &Store,
        moment: &Moment,
        from: Bytes,
        mut picked: BinaryHeap<Picked>,
        mut more: bool,
    ) -> Stage {
        let range = KeyRange {
            start: from,
            end: RangeEnd::Unbounded,
        };
        let (mut seen, mut next) = (0, None);
        store.scan(&range, moment.compacted, &mut |key, version| {
            if seen == SLICE_KEYS {
                next = Some(Bytes::copy_from_slice(key));
                return ControlFlow::Break(());
            }
            seen += 1;
            if version.modified.main < self.first && version.modified > self.after {
                if picked.len() == self.most {
                    more = true;
                    if picked.peek().is_some_and(|top| top.version.modified < version.modified) {
                        return ControlFlow::Continue(());
                    }
                    picked.pop();
                }
                picked.push(Picked {
                    key: Box::from(&key[..]),
                    version: *version,
                });
            }
            ControlFlow::Continue(())
        });
        match next {
            Some(from) => Stage::Pick { from, picked, more },
            None => {
                let mut picked = picked.into_sorted_vec();
                picked.reverse();
                Stage::Give { picked, more }
            }
        }
    }

    fn give(
        &mut self,
        store: &Store,
        moment: &Moment,
        mut picked: Vec<Picked>,
        more: bool,
        entries: &mut Vec<Entry>,
    ) -> Result<Stage, Error> {
        let mut cost = 0;
        while cost < SLICE_BYTES
            && let Some(Picked { key, version }) = picked.pop()
        {
            self.after = version.modified;
            cost += cost_of(&key, Some(&version));
            let value = match self.values {
                true => value_at(store, &key, &version, moment.compacted)?,
                false => Bytes::new(),
            };
            entries.push(Entry {
                revision: version.modified,
                key: Bytes::from(key),
                put: Some(version),
                value,
            });
        }
        Ok(match (picked.is_empty(), more) {
            (false, _) => Stage::Give { picked, more },
            (true, true) => Stage::pick(),
            (true, false) => Stage::changes(self.first),
        })
    }

    fn changes(
        &self,
        store: &Store,
        moment: &Moment,
        next: Revision,
        entries: &mut Vec<Entry>,
    ) -> Result<Stage, Error> {
        let (mut cost, mut stopped, mut failed) = (0, None, None);
        store.changes(next.main, moment.revision, &mut |change| {
            if change.revision < next || !kept(store, moment, &change) {
                return ControlFlow::Continue(());
            }
            if cost >= SLICE_BYTES {
                stopped = Some(change.revision);
                return ControlFlow::Break(());
            }
            let put = match change.what {
                ChangeKind::Put(version) => Some(version),
                ChangeKind::Delete => None,
            };
            cost += cost_of(&change.key, put.as_ref());
            let value = match &put {
                Some(version) if self.values => store.value(version),
                _ => Ok(Bytes::new()),
            };
            match value {
                Ok(value) => entries.push(Entry {
                    revision: change.revision,
                    key: change.key,
                    put,
                    value,
                }),
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        Ok(match stopped {
            Some(next) => Stage::Changes { next },
            None => Stage::changes(moment.revision + 1),
        })
    }
}

/// Whether a change outlives compaction: of the compacted revision only what each key was at its end.
fn kept(store: &Store, moment: &Moment, change: &Change) -> bool {
    if change.revision.main > moment.compacted {
        return true;
    }
    let latest = store.get(&change.key, moment.compacted);
    match change.what {
        ChangeKind::Put(_) => latest.is_some_and(|latest| latest.modified == change.revision),
        ChangeKind::Delete => latest.is_none(),
    }
}

fn cost_of(key: &[u8], put: Option<&Version>) -> usize {
    RECORD_OVERHEAD + key.len() + put.map_or(0, |version| version.value.len as usize)
}

/// A value that was found some time ago: it may have been moved since.
fn value_at(store: &Store, key: &[u8], version: &Version, at: i64) -> Result<Bytes, Error> {
    match store.value(version) {
        Err(store_file::Error::Gone) => match store.get(key, at) {
            Some(moved) => Ok(store.value(&moved)?),
            None => Err(store_file::Error::Gone.into()),
        },
        value => Ok(value?),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use quantykube_etcd_api::{CompactionRequest, DeleteRangeRequest, PutRequest};
    use quantykube_store_file::{Identity, Options, Seeded, SimDisk, Tuning};

    use super::*;
    use crate::mvcc::{Limits, Now};

    /// A record as it is expected: revision, key, value of a put.
    type Expected = (i64, Bytes, Option<Bytes>);

    struct World {
        mvcc: Mvcc,
        random: Seeded,
        written: Vec<Expected>,
    }

    impl World {
        fn new(seed: u64) -> World {
            let identity = Identity {
                cluster_id: 1,
                member_id: 2,
                raft_term: 3,
            };
            let options = Options { quota: 0, identity };
            // No grace: a value that was moved is gone from its old place with the next checkpoint.
            let store = Store::create_on(Arc::new(SimDisk::new()), options, Tuning::small()).unwrap();
            let limits = Limits {
                request_bytes: 1 << 20,
                quota: 0,
                ..Limits::default()
            };
            World {
                mvcc: Mvcc::new(store, limits, Now::default()),
                random: Seeded::new(seed),
                written: Vec::new(),
            }
        }

        fn write(&mut self, count: usize) {
            for _ in 0..count {
                let key = Bytes::from(format!("{:03}", self.random.below(150)));
                if self.random.below(6) == 0 {
                    let request = DeleteRangeRequest {
                        key: key.clone(),
                        ..Default::default()
                    };
                    if self.mvcc.delete_range(&request).unwrap().response.deleted > 0 {
                        self.written.push((self.mvcc.store.revision(), key, None));
                    }
                    continue;
                }
                let value = Bytes::from(vec![self.random.below(256) as u8; self.random.below(300) as usize]);
                let request = PutRequest {
                    key: key.clone(),
                    value: value.clone(),
                    ..Default::default()
                };
                self.mvcc.put(&request).unwrap();
                self.written.push((self.mvcc.store.revision(), key, Some(value)));
            }
            self.settle();
        }

        fn compact(&mut self, revision: i64) {
            let request = CompactionRequest {
                revision,
                physical: false,
            };
            self.mvcc.compact(&request).unwrap();
            self.settle();
        }

        fn settle(&mut self) {
            for _ in 0..100 {
                let durable = self.mvcc.store.sync().unwrap();
                self.mvcc.advance(durable).unwrap();
                self.mvcc.maintain(Duration::ZERO).unwrap();
            }
        }

        /// What etcd keeps of what was written.
        fn kept(&self, compacted: i64, head: i64) -> Vec<Expected> {
            let mut old: BTreeMap<&Bytes, &Expected> = BTreeMap::new();
            let mut kept = Vec::new();
            for record in self.written.iter().filter(|(revision, ..)| *revision <= head) {
                match record.0 <= compacted {
                    true => drop(old.insert(&record.1, record)),
                    false => kept.push(record.clone()),
                }
            }
            let stays = |record: &&&Expected| record.2.is_some() || record.0 == compacted;
            kept.extend(old.values().filter(stays).map(|record| (*record).clone()));
            kept.sort();
            kept
        }
    }

    /// However few records are picked at once, and whatever is written, moved and compacted between the slices.
    #[test]
    fn a_walk_gives_what_etcd_keeps() {
        let seed = 20_261_130;
        for most in [1, 7, 1000] {
            let mut world = World::new(seed + most as u64);
            world.write(600);
            for never in [true, false] {
                if !never {
                    world.write(600);
                    let middle = world.mvcc.visible() - 100;
                    world.compact(middle);
                    // A delete of exactly the compacted revision.
                    let last = world.written.iter().rfind(|(_, _, value)| value.is_none()).unwrap().0;
                    world.compact(last.max(middle + 1));
                }
                let moment = world.mvcc.snapshot_begin().response;
                let expected = world.kept(moment.compacted, moment.revision);
                assert_eq!(moment.compacted == 0, never);
                let (mut scans, mut found, mut busy) = (0, Vec::new(), 0);
                let mut walk = world.mvcc.snapshot_walk(&moment, true);
                walk.most = most;
                loop {
                    scans += u32::from(matches!(walk.stage, Stage::Pick { .. }));
                    let Some(entries) = world.mvcc.snapshot_step(&moment, &mut walk).unwrap() else {
                        break;
                    };
                    for entry in entries {
                        let value = entry.put.is_some().then_some(entry.value);
                        found.push((entry.revision.main, entry.key, value));
                    }
                    if busy < 10 {
                        busy += 1;
                        world.write(60);
                        let head = world.mvcc.visible();
                        world.compact(head);
                    }
                }
                assert_eq!(found, expected, "{most} at once, seed {seed}");
                assert!(
                    world.mvcc.compacted() > moment.revision,
                    "nothing was compacted meanwhile"
                );
                let old = expected.iter().filter(|(revision, ..)| *revision < walk.first).count();
                if !never {
                    assert!(old > 20 && scans as usize >= old / most, "{scans} scans for {old}");
                }
                world.mvcc.snapshot_end(moment.compacted);
            }
        }
    }
}
