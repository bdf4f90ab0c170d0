//! Turns the end of a move into what the user reads and the exit code.

use std::time::Duration;

use quantykube_base::{Exit, Failure};
use quantykube_journal::{Ending, Outcome};
use serde_json::{Value, json};

/// How the end of a move is told.
pub struct Telling<'a> {
    /// What was asked for, as `install store`.
    pub what: &'a str,
    /// What holds where all steps are done.
    pub moved: &'a str,
    /// What holds where everything was put back.
    pub as_before: &'a str,
}

impl Telling<'_> {
    /// The failure behind an outcome that is not the one asked for.
    pub fn failure(&self, outcome: &Outcome) -> Failure {
        let what = self.what;
        let (name, message, hint) = match outcome.ending {
            Ending::Moved => (
                "moved",
                format!("{what}: {}, but a step failed on the way", self.moved),
                None,
            ),
            Ending::AsBefore => (
                "put-back",
                format!("{what} failed and everything was put back: {}", self.as_before),
                None,
            ),
            Ending::Open => (
                "open",
                format!("{what} was interrupted; the move {} is open", outcome.id),
                Some("go on with `quantykube resume`, or put everything back with `quantykube undo store`"),
            ),
            Ending::Stuck => (
                "stuck",
                format!("{what} is stuck; the move {} is open", outcome.id),
                Some(
                    "cure what the failed step names, then `quantykube resume` or `quantykube undo store` tries again",
                ),
            ),
        };
        let mut failure = Failure::new(outcome.exit, name, message);
        if !outcome.trouble.is_empty() {
            failure = failure.because(troubles(outcome));
        }
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// The result of a move that ended as asked.
    pub fn value(&self, outcome: &Outcome, away: Option<Duration>) -> Value {
        json!({
            "what": self.what,
            "changed": true,
            "journal": outcome.id,
            "state": self.moved,
            "awaySeconds": away.map(|away| away.as_secs_f64()),
        })
    }
}

/// Every failed step in one text.
fn troubles(outcome: &Outcome) -> String {
    let lines: Vec<String> = outcome
        .trouble
        .iter()
        .map(|trouble| {
            format!(
                "step {}{}: {}",
                trouble.step,
                if trouble.back { " on the way back" } else { "" },
                trouble.message
            )
        })
        .collect();
    lines.join("; ")
}

/// Whether the outcome is what was asked for when a move goes forward.
pub fn is_done(outcome: &Outcome) -> bool {
    outcome.ending == Ending::Moved && outcome.exit == Exit::Done
}
