//! Saying on what another of our programs said in [`Mode::Relay`](crate::Mode::Relay): as this one's reader wants it.

use serde_json::Value;

use crate::Exit;
use crate::report::{Progress, Reporter, Unit};

/// Says events on, one line at a time. A person then reads, and a program gets, what the other program would have said
/// itself.
#[derive(Debug)]
pub struct Relay {
    reporter: Reporter,
    progress: Option<(String, Progress)>,
}

impl Relay {
    /// One that speaks through a reporter.
    pub fn new(reporter: Reporter) -> Relay {
        Relay {
            reporter,
            progress: None,
        }
    }

    /// Says one line on. A line that is no event, as a broken one is, is said as it stands.
    pub fn line(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return self.reporter.step("said", line);
        };
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        match text("event") {
            "step" => self.reporter.step(text("name"), text("message")),
            "warning" => self.reporter.warning(text("name"), text("message")),
            "result" => self.reporter.result(text("text"), event["value"].clone()),
            "error" => {
                let causes = event["causes"].as_array().into_iter().flatten();
                let causes: Vec<String> = causes.filter_map(|cause| cause.as_str().map(str::to_owned)).collect();
                let exit = event["exit"].as_u64().unwrap_or(1);
                let exit = Exit::ALL.into_iter().find(|known| u64::from(known.code()) == exit);
                let exit = exit.unwrap_or(Exit::Failed);
                self.reporter
                    .failed(exit, text("name"), text("message"), &causes, event["hint"].as_str());
            }
            "progress" => self.progress(&event),
            _ => self.reporter.step("said", line),
        }
    }

    fn progress(&mut self, event: &Value) {
        let what = event["what"].as_str().unwrap_or_default();
        if self.progress.as_ref().is_none_or(|(running, _)| running != what) {
            let unit = Unit::ALL.into_iter().find(|unit| event["unit"] == unit.name());
            let progress = self
                .reporter
                .progress(what, unit.unwrap_or(Unit::Bytes), event["total"].as_u64());
            self.progress = Some((what.to_owned(), progress));
        }
        if let Some((_, progress)) = &mut self.progress {
            progress.set(
                event["done"].as_u64().unwrap_or(0),
                event["note"].as_str().unwrap_or_default(),
            );
        }
        if event["last"] == true
            && let Some((_, progress)) = self.progress.take()
        {
            progress.finish();
        }
    }
}
