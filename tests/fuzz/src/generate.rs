//! The seeded stream: which steps a slice has. The same seed and slice always give the same steps.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::names::Rev;
use crate::run::FUTURE;
use crate::step::*;

/// Few keys, so that requests meet; no more than 12, for beyond that the order of equal keys in a sorted answer is
/// etcd's accident.
const FEW: [&str; 12] = [
    "a",
    "aa",
    "ab",
    "abc",
    "b",
    "ba",
    "c",
    "ca",
    "d",
    "da",
    "z",
    "\u{ff}\u{ff}",
];

/// What a slice is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mood {
    /// A bit of everything on few keys.
    Mixed,
    /// Many keys, named as Kubernetes names them.
    Wide,
    /// Long histories, read at all revisions.
    Deep,
    /// Many watches.
    Watched,
}

struct Generator {
    rng: SmallRng,
    mood: Mood,
    /// Steps until the alarm that was raised is taken away.
    alarmed: u32,
}

/// The steps of a slice.
pub fn steps(seed: u64, slice: u64, count: usize) -> Vec<Step> {
    let mood = match slice % 4 {
        0 => Mood::Mixed,
        1 => Mood::Wide,
        2 => Mood::Deep,
        _ => Mood::Watched,
    };
    let mut generator = Generator {
        rng: SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(slice)),
        mood,
        alarmed: 0,
    };
    (0..count).map(|_| generator.step()).collect()
}

impl Generator {
    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn key(&mut self) -> String {
        if self.chance(80) {
            return String::new();
        }
        if self.mood == Mood::Wide {
            let (kind, place, name) = (
                self.rng.random_range(0..3),
                self.rng.random_range(0..4),
                self.rng.random_range(0..20),
            );
            return format!(
                "/registry/{}/ns{place}/n{name}",
                ["pods", "leases", "podtemplates"][kind]
            );
        }
        FEW[self.rng.random_range(0..FEW.len())].to_owned()
    }

    /// A range: its key and its end.
    fn span(&mut self) -> (String, String) {
        let mut key = self.key();
        if self.mood == Mood::Wide && self.chance(2) && !key.is_empty() {
            // A folder instead of a name.
            let parts = self.rng.random_range(2..5);
            key = key.split('/').take(parts).collect::<Vec<_>>().join("/") + "/";
            let end = after(&key);
            return (key, end);
        }
        let end = match self.rng.random_range(0..10) {
            0..=4 => String::new(),
            5..=6 => after(&key),
            7 => "\0".to_owned(),
            _ => self.key(),
        };
        if self.chance(40) {
            key = "\0".to_owned();
        }
        (key, end)
    }

    fn value(&mut self) -> String {
        match self.rng.random_range(0..1000) {
            0..=99 => String::new(),
            100..=249 => format!("v*{}", self.rng.random_range(20..300)),
            250 if self.mood == Mood::Watched => format!("w*{}", self.rng.random_range(20_000..200_000)),
            251 if self.chance(8) => format!("x*{}", self.rng.random_range(1_572_800..1_572_870)),
            252 => "\0".to_owned(),
            253..=260 => "\u{80}\u{ff}".to_owned(),
            _ => self.rng.random_range(0..5).to_string(),
        }
    }

    fn rev(&mut self) -> Rev {
        let far = if self.mood == Mood::Deep { 40 } else { 6 };
        match self.rng.random_range(0..14) {
            0..=5 => Rev::Zero,
            6 => Rev::Head(0),
            7 => Rev::Compacted(0),
            8 => Rev::Compacted(-1),
            9 => Rev::Head(1),
            10 if self.chance(4) => {
                [Rev::Raw(-1), Rev::Raw(i64::MAX), Rev::Raw(1), Rev::Raw(i64::MIN)][self.rng.random_range(0..4)].clone()
            }
            10..=11 => Rev::Head(-self.rng.random_range(1..far)),
            _ => Rev::Part(self.rng.random_range(0..=100)),
        }
    }

    fn lease(&mut self) -> i64 {
        if self.chance(40) {
            return [-7, i64::MAX, i64::MIN][self.rng.random_range(0..3)];
        }
        self.rng.random_range(1..6)
    }

    fn range(&mut self) -> Range {
        let (key, end) = self.span();
        let mut range = Range {
            key,
            end,
            rev: self.rev(),
            keys_only: self.chance(8),
            count_only: self.chance(8),
            serializable: self.chance(4),
            ..Default::default()
        };
        if self.chance(3) {
            range.limit = self.rng.random_range(-1..6);
        }
        if self.chance(4) {
            range.order = self.rng.random_range(0..3);
            // Among many keys only the order by key is not etcd's accident.
            range.by = if self.mood == Mood::Wide {
                0
            } else {
                self.rng.random_range(0..5)
            };
        }
        if self.chance(100) {
            (range.order, range.by) = (self.rng.random_range(-1..5), self.rng.random_range(-1..7));
            if self.mood == Mood::Wide && (0..5).contains(&range.by) {
                range.by = 0;
            }
        }
        for bound in [
            &mut range.min_mod,
            &mut range.max_mod,
            &mut range.min_create,
            &mut range.max_create,
        ] {
            if self.rng.random_range(0..14) == 0 {
                *bound = match self.rng.random_range(0..5) {
                    0 => Rev::Head(self.rng.random_range(-5..2)),
                    1 => Rev::Raw(self.rng.random_range(-2..20)),
                    _ => Rev::Part(self.rng.random_range(0..=100)),
                };
            }
        }
        range
    }

    fn put(&mut self) -> Put {
        let mut put = Put {
            key: self.key(),
            value: self.value(),
            prev_kv: self.chance(3),
            ..Default::default()
        };
        if self.chance(5) {
            put.lease = self.lease();
        }
        if self.chance(12) {
            put.ignore_value = true;
            if !self.chance(5) {
                put.value.clear();
            }
        }
        if self.chance(12) {
            put.ignore_lease = true;
            if !self.chance(5) {
                put.lease = 0;
            }
        }
        put
    }

    fn delete(&mut self) -> Delete {
        let (key, end) = self.span();
        Delete {
            key,
            end,
            prev_kv: self.chance(2),
        }
    }

    fn compare(&mut self) -> Compare {
        let (key, end) = self.span();
        let end = if self.chance(4) { end } else { String::new() };
        let mut compare = Compare {
            target: self.rng.random_range(0..5),
            result: self.rng.random_range(0..4),
            end,
            ..Default::default()
        };
        let mut union = compare.target;
        if self.chance(60) {
            // What is compared and with what need not fit together.
            union = self.rng.random_range(0..6);
        }
        if self.chance(200) {
            compare.target = self.rng.random_range(-1..7);
            compare.result = self.rng.random_range(-1..6);
        }
        match union {
            0 => compare.version = Some(self.rng.random_range(0..4)),
            1 => compare.create = Some(self.rev()),
            2 if self.chance(2) => compare.modified = Some(Rev::Of(key.clone())),
            2 => compare.modified = Some(self.rev()),
            3 => compare.value = Some(self.value()),
            4 => compare.lease = Some(self.rng.random_range(0..4)),
            _ => {}
        }
        compare.key = key;
        compare
    }

    fn ops(&mut self, depth: u32) -> Vec<Op> {
        let most = if self.chance(30) { 12 } else { 4 };
        let count = self.rng.random_range(0..most);
        let mut ops = Vec::new();
        for _ in 0..count {
            ops.push(match self.rng.random_range(0..12) {
                0..=3 => Op::Range(self.range()),
                4..=7 => Op::Put(self.put()),
                8..=9 => {
                    let mut delete = self.delete();
                    // Followed by a put that ignores its value, such a delete ends an etcd 3.6 (it panics): not here.
                    if delete.end == "\0" {
                        delete.end.clear();
                    }
                    Op::Delete(delete)
                }
                10 if self.chance(20) => Op::Nothing,
                _ if depth > 0 => Op::Txn(self.txn(depth - 1)),
                _ => Op::Range(self.range()),
            });
        }
        ops
    }

    fn txn(&mut self, depth: u32) -> Txn {
        let compares = self.rng.random_range(0..3);
        Txn {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: self.ops(depth),
            failure: self.ops(depth),
        }
    }

    /// The transactions that an API server makes.
    fn kubernetes(&mut self) -> Txn {
        let key = self.key();
        let absent = self.chance(3);
        let compare = Compare {
            key: key.clone(),
            target: 2,
            modified: Some(if absent { Rev::Zero } else { Rev::Of(key.clone()) }),
            ..Default::default()
        };
        let change = match self.rng.random_range(0..3) {
            0 => Op::Delete(Delete {
                key: key.clone(),
                ..Default::default()
            }),
            _ => Op::Put(Put {
                key: key.clone(),
                value: self.value(),
                lease: if self.chance(8) { self.lease() } else { 0 },
                ..Default::default()
            }),
        };
        let read = Op::Range(Range {
            key,
            ..Default::default()
        });
        Txn {
            compare: vec![compare],
            success: vec![change],
            failure: if absent { Vec::new() } else { vec![read] },
        }
    }

    /// More operations than are allowed, or just as many.
    fn many(&mut self) -> Txn {
        let count = self.rng.random_range(126..131);
        let op = |n: i32| match n % 3 {
            0 => Op::Range(Range {
                key: "a".to_owned(),
                ..Default::default()
            }),
            _ => Op::Delete(Delete {
                key: format!("q{n}"),
                ..Default::default()
            }),
        };
        Txn {
            success: (0..count).map(op).collect(),
            ..Default::default()
        }
    }

    fn grant(&mut self) -> Grant {
        if self.chance(6) {
            let ttl = [0, -1, 1, 2, 9_000_000_000, 9_000_000_001, i64::MAX, i64::MIN, 60][self.rng.random_range(0..9)];
            let id = if self.chance(2) {
                0
            } else {
                self.rng.random_range(10..13)
            };
            return Grant { id, ttl, revoke: true };
        }
        Grant {
            id: self.lease(),
            ttl: self.rng.random_range(10_000..20_000),
            revoke: false,
        }
    }

    fn watch(&mut self) -> Watch {
        let stream = self.rng.random_range(0..6);
        let (key, end) = self.span();
        let start = match (stream, self.rng.random_range(0..8)) {
            (FUTURE, 0..=3) => Rev::Head(self.rng.random_range(1..30)),
            (FUTURE, _) => Rev::Zero,
            (_, 0..=1) => Rev::Zero,
            (_, 2) => Rev::Compacted(self.rng.random_range(-1..3)),
            (_, 3) => Rev::Head(-self.rng.random_range(0..20)),
            (_, 4) if self.chance(8) => Rev::Raw(self.rng.random_range(-2..3)),
            (_, 4) => Rev::Head(0),
            _ => Rev::Part(self.rng.random_range(0..=100)),
        };
        let mut filters = Vec::new();
        for filter in 0..2 {
            if self.chance(5) {
                filters.push(filter);
            }
        }
        if self.chance(40) {
            filters.push(self.rng.random_range(0..3));
        }
        Watch {
            stream,
            key,
            end,
            start,
            id: if self.chance(5) {
                self.rng.random_range(0..12)
            } else {
                0
            },
            filters,
            prev_kv: !self.chance(3),
            fragment: self.chance(2),
            progress: self.chance(4),
        }
    }

    fn compact(&mut self) -> Compact {
        let rev = match self.rng.random_range(0..8) {
            // Not at 0 and not of what never was: after that, etcd answers hashes at 0 from a cache, of nothing.
            0 => Rev::Compacted(0),
            1 => Rev::Head(1),
            2 => Rev::Head(0),
            3 => Rev::Head(-self.rng.random_range(1..5)),
            _ => Rev::Part(self.rng.random_range(1..=100)),
        };
        Compact {
            rev,
            physical: self.chance(2),
        }
    }

    fn step(&mut self) -> Step {
        if self.alarmed > 0 {
            self.alarmed -= 1;
            if self.alarmed == 0 {
                return Step::Alarm(2);
            }
        }
        let (watch, compact) = match self.mood {
            Mood::Mixed => (250, 300),
            Mood::Wide => (300, 500),
            Mood::Deep => (600, 2500),
            Mood::Watched => (50, 350),
        };
        if self.chance(watch) {
            return Step::Watch(self.watch());
        }
        if self.chance(watch * 2) {
            return Step::Cancel(Cancel {
                stream: self.rng.random_range(0..6),
                id: self.rng.random_range(0..8),
            });
        }
        if self.chance(compact) {
            return Step::Compact(self.compact());
        }
        match self.rng.random_range(0..20_000) {
            0 => return Step::Restart,
            1..=3 => return Step::Defragment,
            4..=7 if self.alarmed == 0 => {
                self.alarmed = self.rng.random_range(5..30);
                return Step::Alarm(1);
            }
            8..=19 => return Step::Alarm(0),
            20..=39 => return Step::Txn(self.many()),
            _ => {}
        }
        match self.rng.random_range(0..100) {
            0..=26 => Step::Range(self.range()),
            27..=49 => Step::Put(self.put()),
            50..=57 => Step::Delete(self.delete()),
            58..=77 => Step::Txn(self.txn(2)),
            78..=88 => Step::Txn(self.kubernetes()),
            89..=91 => Step::Grant(self.grant()),
            92 => Step::Revoke(self.lease()),
            93 => Step::KeepAlive(self.lease()),
            94..=95 => Step::TimeToLive(TimeToLive {
                id: self.lease(),
                keys: self.chance(2),
            }),
            96 => Step::Leases,
            97 => Step::Hash(match self.rng.random_range(0..4) {
                0 => Rev::Zero,
                1 => Rev::Head(1),
                2 => Rev::Head(-self.rng.random_range(0..5)),
                _ => Rev::Part(self.rng.random_range(0..=100)),
            }),
            _ => Step::Range(self.range()),
        }
    }
}

/// The end of the range of all keys that begin so.
fn after(key: &str) -> String {
    let mut chars: Vec<char> = key.chars().collect();
    match chars.pop() {
        // A key that ends with the highest byte: no such end is needed here.
        None | Some('\u{ff}') => String::new(),
        Some(last) => {
            chars.push(char::from_u32(u32::from(last) + 1).expect("below 256"));
            chars.into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_the_same_every_time_and_survives_as_text() {
        for slice in 0..4 {
            let list = steps(7, slice, 3000);
            assert_eq!(list, steps(7, slice, 3000));
            assert_eq!(read(&write(&list)).unwrap(), list);
        }
        assert_ne!(steps(7, 0, 100), steps(7, 4, 100));
        assert_ne!(steps(7, 0, 100), steps(8, 0, 100));
    }
}
