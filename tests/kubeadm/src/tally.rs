//! Counts what was compared.

use std::time::Instant;

/// What held and what did not.
pub struct Tally {
    begun: Instant,
    passed: u32,
    failed: Vec<String>,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new() -> Tally {
        Tally {
            begun: Instant::now(),
            passed: 0,
            failed: Vec::new(),
        }
    }

    /// Counts one comparison and prints it; `found` says what was found where it fails.
    pub fn check(&mut self, what: &str, good: bool, found: impl FnOnce() -> String) {
        let at = self.begun.elapsed().as_secs();
        if good {
            println!("  ok at {at} s: {what}");
            self.passed += 1;
        } else {
            let line = format!("{what}: {}", found());
            println!("  NOT at {at} s: {line}");
            self.failed.push(line.chars().take(400).collect());
        }
    }

    /// Counts one comparison for equality.
    pub fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, found: &T, expected: &T) {
        self.check(what, found == expected, || {
            format!("found {found:?}, expected {expected:?}")
        });
    }

    /// Prints the closing line; whether nothing failed.
    pub fn close(self) -> bool {
        for line in &self.failed {
            println!("FAILED: {line}");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        self.failed.is_empty() && self.passed > 0
    }
}
