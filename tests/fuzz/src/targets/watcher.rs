//! The outside process: sees how the inside one ends.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{Plant, Target, TargetArgs};

/// An input that takes longer never ends: the largest takes some 100 ms.
const INPUT_MAX: Duration = Duration::from_secs(60);

/// Runs the target in a process of its own. True if nothing was found; what was found is printed.
///
/// # Errors
/// What keeps the process from starting.
pub fn watch(target: Target, seed: u64, first: u64, args: &TargetArgs) -> Result<bool, String> {
    let name = format!("{target:?}").to_lowercase();
    println!("{name}: seed {seed} (--target {name} --seed {seed} repeats this run)");
    let folder = tempfile::tempdir().map_err(told("a folder"))?;
    let note = folder.path().join("input");
    let mut command = Command::new(std::env::current_exe().map_err(told("this program"))?);
    command.args([
        "--target",
        &name,
        "--seed",
        &seed.to_string(),
        "--first",
        &first.to_string(),
    ]);
    command
        .args(["--seconds", &args.seconds.to_string()])
        .arg("--inside")
        .arg(&note);
    if let Some(inputs) = args.inputs {
        command.args(["--inputs", &inputs.to_string()]);
    }
    if let Some(plant) = args.plant {
        command.args(["--plant", &format!("{plant:?}").to_lowercase()]);
    }
    // With a group of its own, so that all of it can be ended.
    command.process_group(0);
    let mut child = command.spawn().map_err(told("the process that takes the inputs"))?;
    let group = Pid::from_child(&child);
    // Nothing is left of it, mostly.
    let end_group = || {
        let _ = kill_process_group(group, Signal::KILL);
    };
    let limit = match args.plant {
        Some(Plant::Hang) => Duration::from_secs(8),
        _ => INPUT_MAX,
    };
    let mut last = (String::new(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().map_err(told("waiting for the inputs"))? {
            break status;
        }
        let number = last_number(&note);
        if number != last.0 {
            last = (number, Instant::now());
        } else if !last.0.is_empty() && last.1.elapsed() > limit {
            println!(
                "{name}, seed {seed}, input {}: no end after {} s",
                last.0,
                limit.as_secs()
            );
            end_group();
            child.wait().map_err(told("waiting for the process"))?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    end_group();
    ended(&name, seed, status, &note)
}

fn told(what: &str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn ended(name: &str, seed: u64, status: ExitStatus, note: &Path) -> Result<bool, String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(true),
        (Some(1), _) => Ok(false),
        (_, Some(signal)) => {
            let number = last_number(note);
            println!(
                "{name}, seed {seed}, input {number}: the process was ended by signal {signal} (a panic or an allocation \
                 beyond all bounds, above)"
            );
            Ok(false)
        }
        (code, None) => Err(format!("the process that takes the inputs ended with {code:?}")),
    }
}

/// The number of the input that is being judged; nothing before the first.
fn last_number(note: &Path) -> String {
    let text = std::fs::read_to_string(note).unwrap_or_default();
    let number = text.trim_start_matches('0');
    match (text.is_empty(), number) {
        (false, "") => "0".to_owned(),
        _ => number.to_owned(),
    }
}
