//! `quantykube migrate` as a program.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use quantykube_migrate::Source;
use quantykube_tests::program;

/// How a run ended and what it said last.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; None after a signal.
    pub code: Option<i32>,
    /// The last event, `result` or `error`.
    pub last: serde_json::Value,
    /// Every event.
    pub events: Vec<serde_json::Value>,
}

impl Ended {
    /// Asserts a failure: its exit code, its stable name, and that it says what to do.
    pub fn failed(&self, code: i32, name: &str) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert_eq!(self.last["event"], "error", "{self:#?}");
        assert_eq!(self.last["name"], name, "{self:#?}");
        assert!(
            self.last["hint"].as_str().is_some_and(|hint| !hint.is_empty()),
            "{self:#?}"
        );
    }

    /// Asserts success.
    pub fn done(&self) -> &serde_json::Value {
        assert_eq!(self.code, Some(0), "{self:#?}");
        assert_eq!(self.last["event"], "result", "{self:#?}");
        &self.last
    }
}

/// Starts `quantykube --json migrate`.
pub fn start(source: &Source, to: &Path, extra: &[&str]) -> Child {
    let mut command = Command::new(program("quantykube"));
    command
        .args(["--json", "migrate", "--endpoints", &source.endpoints.join(",")])
        .arg("--to")
        .arg(to);
    for (flag, path) in [
        ("--cert", &source.cert),
        ("--key", &source.key),
        ("--cacert", &source.cacert),
    ] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    command
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Waits for its end.
pub fn wait(child: Child) -> Ended {
    let output = child.wait_with_output().unwrap();
    let events: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    Ended {
        code: output.status.code(),
        last: events.last().cloned().unwrap_or_default(),
        events,
    }
}

/// Runs it to its end, off the test's own runtime.
pub async fn run(source: &Source, to: &Path, extra: &[&str]) -> Ended {
    let child = start(source, to, extra);
    tokio::task::spawn_blocking(|| wait(child)).await.unwrap()
}
