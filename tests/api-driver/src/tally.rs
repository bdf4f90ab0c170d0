//! Counts what was compared, and keeps the first differences of each kind of comparison.

use std::collections::BTreeMap;

/// How many differences of one row are kept for the end.
const KEPT: usize = 5;

/// One kind of comparison.
#[derive(Default)]
struct Row {
    passed: u64,
    failed: u64,
    notes: Vec<String>,
}

/// The comparisons of one target.
#[derive(Default)]
pub struct Tally {
    order: Vec<&'static str>,
    rows: BTreeMap<&'static str, Row>,
    /// Answers that must be the same on every target, by question.
    pub answers: BTreeMap<String, String>,
    /// What an etcd watch from the head itself says first.
    pub at_head: String,
}

impl Tally {
    /// Counts one comparison; `note` says what was found where it failed.
    pub fn check(&mut self, row: &'static str, good: bool, note: impl FnOnce() -> String) {
        let entry = self.row(row);
        if good {
            entry.passed += 1;
        } else {
            entry.failed += 1;
            if entry.notes.len() < KEPT {
                entry.notes.push(note());
            }
        }
    }

    /// Counts one comparison for equality.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, row: &'static str, what: &str, found: T, expected: T) {
        let good = found == expected;
        self.check(row, good, || format!("{what}: found {found:?}, expected {expected:?}"));
    }

    /// Records an answer that must be the same on every target.
    pub fn answer(&mut self, question: impl Into<String>, answer: impl Into<String>) {
        self.answers.insert(question.into(), answer.into());
    }

    /// Names a row early, so that it fails when nothing is compared in it.
    pub fn expect(&mut self, rows: &[&'static str]) {
        for row in rows {
            self.row(row);
        }
    }

    fn row(&mut self, row: &'static str) -> &mut Row {
        if !self.rows.contains_key(row) {
            self.order.push(row);
        }
        self.rows.entry(row).or_default()
    }

    /// Takes over the rows of another tally.
    pub fn absorb(&mut self, other: Tally) {
        for (name, row) in other.rows {
            let mine = self.row(name);
            mine.passed += row.passed;
            mine.failed += row.failed;
            mine.notes.extend(row.notes);
        }
    }

    /// How many passed and failed in a row; `None` where the row is none of this target's.
    fn cell(&self, row: &str) -> Option<(u64, u64)> {
        self.rows.get(row).map(|row| match (row.passed, row.failed) {
            // A comparison that never took place proves nothing.
            (0, 0) => (0, 1),
            counts => counts,
        })
    }
}

/// Prints the table of all targets and returns how many comparisons passed and failed.
pub fn print(targets: &[(&str, &Tally)]) -> (u64, u64) {
    let mut order: Vec<&'static str> = Vec::new();
    for (_, tally) in targets {
        for row in &tally.order {
            if !order.contains(row) {
                order.push(row);
            }
        }
    }
    let (mut passed, mut failed) = (0, 0);
    let header: String = targets.iter().map(|(name, _)| format!("{name:>22}")).collect();
    println!("{:<58}{header}", "compared");
    for row in order {
        let mut line = format!("{row:<58}");
        for (_, tally) in targets {
            let cell = match tally.cell(row) {
                None => "-".to_string(),
                Some((good, bad)) => {
                    passed += good;
                    failed += bad;
                    match bad {
                        0 => format!("{good} same"),
                        _ => format!("{good} same, {bad} NOT"),
                    }
                }
            };
            line.push_str(&format!("{cell:>22}"));
        }
        println!("{line}");
    }
    for (name, tally) in targets {
        for row in &tally.order {
            for note in &tally.rows[row].notes {
                println!("  {name}: {row}: {note}");
            }
        }
    }
    (passed, failed)
}

/// Compares the answers of two targets word by word, as one more row of the second.
pub fn compare_answers(row: &'static str, reference: &Tally, judged: &mut Tally) {
    let mut questions: Vec<String> = reference.answers.keys().cloned().collect();
    questions.extend(
        judged
            .answers
            .keys()
            .filter(|q| !reference.answers.contains_key(*q))
            .cloned(),
    );
    for question in questions {
        let expected = reference.answers.get(&question).cloned();
        let found = judged.answers.get(&question).cloned();
        judged.same(row, &question, found, expected);
    }
}
