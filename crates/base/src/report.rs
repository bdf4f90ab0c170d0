//! What a program says while it works: plain lines, a progress bar on a terminal, or JSON events.
//!
//! Results go to standard output, everything else to standard error. With `--json` every line on standard output is
//! one event: `{"event": "step" | "progress" | "warning" | "result" | "error", ...}`.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::{Exit, Failure};

/// Who reads the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// A program: one JSON event a line on standard output.
    Json,
    /// A person at a terminal: progress bars on standard error.
    Terminal,
    /// A log: plain lines on standard error, progress at most every few seconds.
    Plain,
    /// Another of our programs, which says it on for whoever reads it: [`crate::Relay`].
    Relay,
}

/// The one door for everything a program says.
#[derive(Clone, Copy, Debug)]
pub struct Reporter {
    mode: Mode,
}

/// How often plain lines and JSON events tell of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// How often progress is passed on that another program tells of.
const RELAYED_EVERY: Duration = Duration::from_millis(200);

impl Reporter {
    /// JSON where asked for; else by what standard error is.
    pub fn detect(json: bool) -> Reporter {
        let mode = match (json, std::io::stderr().is_terminal()) {
            (true, _) => Mode::Json,
            (false, true) => Mode::Terminal,
            (false, false) => Mode::Plain,
        };
        Reporter { mode }
    }

    /// A reporter of a given mode.
    pub fn new(mode: Mode) -> Reporter {
        Reporter { mode }
    }

    /// The mode in use.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A step that begins or ended: `name` is stable, `message` is for people.
    pub fn step(&self, name: &str, message: &str) {
        match self.mode {
            Mode::Json | Mode::Relay => self.event("step", json!({"name": name, "message": message})),
            _ => err_line(message),
        }
    }

    /// Something the user should know that stops nothing.
    pub fn warning(&self, name: &str, message: &str) {
        match self.mode {
            Mode::Json | Mode::Relay => self.event("warning", json!({"name": name, "message": message})),
            _ => err_line(&format!("warning: {message}")),
        }
    }

    /// The outcome: `text` for people, `value` (an object) for programs.
    pub fn result(&self, text: &str, value: Value) {
        match self.mode {
            Mode::Json => self.event("result", value),
            Mode::Relay => self.event("result", json!({"text": text, "value": value})),
            _ if text.is_empty() => {}
            _ => out_line(text),
        }
    }

    /// The end of a run that failed. Returns the exit code to end with.
    pub fn failure(&self, failure: &Failure) -> Exit {
        let hint = failure.hint.as_deref();
        self.failed(failure.exit, failure.name, &failure.message, &failure.chain(), hint);
        failure.exit
    }

    /// A failure by its parts.
    pub(crate) fn failed(&self, exit: Exit, name: &str, message: &str, causes: &[String], hint: Option<&str>) {
        match self.mode {
            Mode::Json | Mode::Relay => self.event(
                "error",
                json!({
                    "name": name,
                    "exit": exit.code(),
                    "exitName": exit.name(),
                    "message": message,
                    "causes": causes,
                    "hint": hint,
                }),
            ),
            Mode::Terminal | Mode::Plain => {
                err_line(&format!("error: {message}"));
                for cause in causes {
                    err_line(&format!("  caused by: {cause}"));
                }
                for line in hint.into_iter().flat_map(str::lines) {
                    err_line(&format!("hint: {line}"));
                }
            }
        }
    }

    /// Wrong usage, told as an event if `--json` is on the command line, which could not be read as a whole. The name of
    /// the event is `usage`. `None` where it was not asked for: the parser's own words then go to a person.
    pub fn usage(text: &str) -> Option<Exit> {
        if !std::env::args_os().any(|argument| argument == "--json") {
            return None;
        }
        let (message, rest) = text.split_once('\n').unwrap_or((text, ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let mut failure = Failure::new(Exit::Usage, "usage", message);
        if !rest.trim().is_empty() {
            failure = failure.hint(rest.trim());
        }
        Some(Reporter::new(Mode::Json).failure(&failure))
    }

    /// Starts the progress of one long piece of work. `total` is in `unit`s where it is known.
    pub fn progress(&self, what: &str, unit: Unit, total: Option<u64>) -> Progress {
        let bar = (self.mode == Mode::Terminal).then(|| {
            let bar = match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::new_spinner(),
            };
            let template = match (total.is_some(), unit) {
                (true, Unit::Bytes) => "{msg} [{bar:24}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
                (true, _) => "{msg} [{bar:24}] {human_pos}/{human_len} {per_sec} {eta}",
                (false, Unit::Bytes) => "{spinner} {msg} {bytes} {bytes_per_sec}",
                (false, _) => "{spinner} {msg} {human_pos} {per_sec}",
            };
            bar.set_style(ProgressStyle::with_template(template).expect("a fixed template is well formed"));
            bar.set_message(what.to_owned());
            bar
        });
        let now = Instant::now();
        Progress {
            reporter: *self,
            what: what.to_owned(),
            unit,
            total,
            done: 0,
            note: String::new(),
            started: now,
            told: now,
            bar,
        }
    }

    fn event(&self, kind: &str, value: Value) {
        let mut object = serde_json::Map::new();
        object.insert("event".into(), Value::String(kind.into()));
        if let Value::Object(fields) = value {
            object.extend(fields);
        }
        out_line(&Value::Object(object).to_string());
    }
}

/// A reader that went away (`| head`) is no reason to panic in the middle of work on a node. A place that takes no more, as
/// a full disk, is none either, but whoever counts on the output must hear of it: see [`output_was_lost`].
fn out_line(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        err_line(&format!(
            "error: what was said is lost, standard output takes nothing: {error}"
        ));
    }
}

/// Whether a line for standard output could not be written.
static LOST: AtomicBool = AtomicBool::new(false);

/// Whether something that was said did not reach standard output, though its reader is still there. A program that ends
/// with [`Exit::Done`] then ends with [`Exit::Failed`]: what it did is done, and what it said is not known.
pub(crate) fn output_was_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// A terminal that went away is no reason either.
fn err_line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// What progress counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Bytes, shown with binary prefixes.
    Bytes,
    /// Keys of a store.
    Keys,
    /// Files.
    Files,
    /// Revisions written.
    Revisions,
}

impl Unit {
    /// Every unit.
    pub(crate) const ALL: [Unit; 4] = [Unit::Bytes, Unit::Keys, Unit::Files, Unit::Revisions];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Keys => "keys",
            Unit::Files => "files",
            Unit::Revisions => "revisions",
        }
    }
}

/// The progress of one piece of work.
#[derive(Debug)]
pub struct Progress {
    reporter: Reporter,
    what: String,
    unit: Unit,
    total: Option<u64>,
    done: u64,
    note: String,
    started: Instant,
    told: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `done` units are done in all; `note` is shown beside (such as bytes beside keys).
    pub fn set(&mut self, done: u64, note: &str) {
        self.done = done;
        if self.note != note {
            self.note = note.to_owned();
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(if note.is_empty() {
                self.what.clone()
            } else {
                format!("{} ({note})", self.what)
            });
        } else if self.told.elapsed() >= self.every() {
            self.told = Instant::now();
            self.tell(false);
        }
    }

    /// Adds to what is done.
    pub fn add(&mut self, more: u64) {
        let note = std::mem::take(&mut self.note);
        self.set(self.done + more, &note);
    }

    /// Ends it and says the sum.
    pub fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            err_line(&self.line());
        } else {
            self.tell(true);
        }
    }

    fn every(&self) -> Duration {
        match self.reporter.mode {
            Mode::Relay => RELAYED_EVERY,
            _ => PROGRESS_EVERY,
        }
    }

    fn tell(&self, last: bool) {
        match self.reporter.mode {
            Mode::Relay => self.reporter.event(
                "progress",
                json!({
                    "what": self.what,
                    "unit": self.unit.name(),
                    "done": self.done,
                    "total": self.total,
                    "note": self.note,
                    "last": last,
                }),
            ),
            Mode::Json => self.reporter.event(
                "progress",
                json!({
                    "what": self.what,
                    "unit": self.unit.name(),
                    "done": self.done,
                    "total": self.total,
                    "note": self.note,
                    "seconds": self.started.elapsed().as_secs_f64(),
                }),
            ),
            _ => err_line(&self.line()),
        }
    }

    fn line(&self) -> String {
        let rate = self.done as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let amount = |n: u64| match self.unit {
            Unit::Bytes => human_bytes(n),
            _ => format!("{n} {}", self.unit.name()),
        };
        let of = self
            .total
            .map(|total| format!(" of {}", amount(total)))
            .unwrap_or_default();
        let note = if self.note.is_empty() {
            String::new()
        } else {
            format!(", {}", self.note)
        };
        format!(
            "{}: {}{of}{note}, {}/s",
            self.what,
            amount(self.done),
            amount(rate as u64)
        )
    }
}

/// Bytes with a binary prefix, as `1.5 MiB`.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::human_bytes;

    #[test]
    fn bytes_read_well() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(3 << 30), "3.0 GiB");
    }
}
