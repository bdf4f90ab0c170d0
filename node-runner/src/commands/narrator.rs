//! Tells the user how a move goes.

use quantykube_base::Reporter;
use quantykube_journal::{Observer, Step};

/// Prints one line per step, and what its programs say. A line that a program says again and again is printed once.
pub struct Narrator {
    reporter: Reporter,
    said: String,
}

impl Narrator {
    /// One that says nothing yet.
    pub fn new(reporter: Reporter) -> Narrator {
        Narrator {
            reporter,
            said: String::new(),
        }
    }
}

impl Observer for Narrator {
    fn begin(&mut self, forward: bool, number: usize, of: usize, step: &Step) {
        self.said.clear();
        let width = of.to_string().len();
        let way = if forward { "" } else { "back: " };
        self.reporter
            .step(&step.name, &format!("[{number:>width$}/{of}] {way}{}", step.text));
    }

    fn end(&mut self, _forward: bool, step: &Step, result: Result<(), &str>) {
        if let Err(why) = result {
            self.reporter
                .warning(&step.name, &format!("{} failed: {why}", step.name));
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
