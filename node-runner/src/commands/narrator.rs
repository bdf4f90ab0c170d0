//! Tells the user how a move goes.

use std::time::{Duration, Instant};

use quantykube_base::Reporter;
use quantykube_journal::{Observer, Op, Step, Way};

/// Prints one line per step, and what its programs say. A line that a program says again and again is printed once, and a
/// step that does nothing on this way is passed over.
pub struct Narrator {
    reporter: Reporter,
    said: String,
    left: Option<Instant>,
    away: Option<Duration>,
}

impl Narrator {
    /// One that says nothing yet.
    pub fn new(reporter: Reporter) -> Narrator {
        Narrator {
            reporter,
            said: String::new(),
            left: None,
            away: None,
        }
    }

    /// How long the API server was away, where it left and came back while this one listened.
    pub fn away(&self) -> Option<Duration> {
        self.away
    }
}

impl Observer for Narrator {
    fn begin(&mut self, forward: bool, number: usize, of: usize, step: &Step) {
        self.said.clear();
        if step.name == "retire" && forward {
            self.left = Some(Instant::now());
        }
        if !acts(&step.op, forward) {
            return;
        }
        let width = of.to_string().len();
        let way = if forward { "" } else { "back: " };
        self.reporter
            .step(&step.name, &format!("[{number:>width$}/{of}] {way}{}", step.text));
    }

    fn end(&mut self, forward: bool, step: &Step, result: Result<(), &str>) {
        match result {
            Err(why) => self
                .reporter
                .warning(&step.name, &format!("{} failed: {why}", step.name)),
            Ok(()) if step.name == "ready" && forward => self.away = self.left.map(|left| left.elapsed()),
            Ok(()) => {}
        }
    }

    fn line(&mut self, step: &Step, line: &str) {
        if self.said != line {
            self.reporter.step(&step.name, &format!("    {line}"));
            line.clone_into(&mut self.said);
        }
    }

    fn turn(&mut self, why: &str) {
        self.reporter.warning("turn", why);
    }
}

/// Whether an operation does anything on this way.
fn acts(op: &Op, forward: bool) -> bool {
    let on = |way: &Way| if forward { way.forward() } else { way.back() };
    match op {
        Op::ReloadUnits { way } | Op::WaitGone { way, .. } | Op::Probe { way, .. } => on(way),
        Op::Gate { .. } => !forward,
        Op::Run { back, .. } => forward || back.is_some(),
        _ => true,
    }
}
