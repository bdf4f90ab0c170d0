//! The follower: starts the unit, says on what the move says, passes INT and TERM on, and ends with the move's exit code.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use quantykube_base::{Exit, Failure, Relay};
use quantykube_journal::system::transient::{self, Begun, Transient};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::request::Request;
use super::{NAME, RUN, Shared, VERB, under_way};
use crate::commands::Context;

/// How often a move's process may be started within [`WITHIN`]. A kill now and then is gone on from; what kills it again
/// and again is for a person to see.
const STARTS: u32 = 6;
const WITHIN: Duration = Duration::from_secs(600);
/// How long putting everything back may take when the unit is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(900);
const POLL: Duration = Duration::from_millis(50);
/// How often systemd is asked whether the unit is still there.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// TERM that comes with HUP is the end of a session, which ends no move.
const TOGETHER: Duration = Duration::from_millis(300);

/// Runs what was typed in the unit and follows it to its end.
pub fn follow(context: &Context) -> Result<Exit, Failure> {
    context.must_be_root()?;
    let failed = |error: io::Error| {
        Failure::new(
            Exit::Failed,
            "unit",
            "the move's unit cannot be prepared; nothing was touched",
        )
        .because(error)
    };
    let asked = Asked::listen().map_err(failed)?;
    // Before anything is written: a move needs systemd for its units, too.
    if super::is_under_way().map_err(no_systemd)? {
        return Err(under_way());
    }
    let program = std::env::current_exe().map_err(failed)?;
    let shared = Request::of_this_process()
        .and_then(|request| request.put())
        .map_err(failed)?;
    let argv = [
        program.display().to_string(),
        VERB.to_owned(),
        shared.path().display().to_string(),
    ];
    let unit = Transient {
        name: NAME,
        description: "QuantyKube, a move",
        argv: &argv,
        starts: STARTS,
        within: WITHIN,
        stop_timeout: STOP_TIMEOUT,
    };
    match started(&unit) {
        Ok(Begun::Started) => {}
        Ok(Begun::Exists) => {
            let _ = fs::remove_dir_all(shared.path());
            return Err(under_way());
        }
        // It may have ended before its start was told: then it has said why.
        Err(_) if shared.ended().is_some() => {}
        Err(error) => {
            let _ = fs::remove_dir_all(shared.path());
            return Err(no_systemd(error));
        }
    }
    drop_stale(&shared);
    let exit = to_the_end(context, &shared, &asked);
    let _ = fs::remove_dir_all(shared.path());
    exit
}

/// Starts the unit. One that has just ended may be known to systemd for a moment longer.
fn started(unit: &Transient<'_>) -> io::Result<Begun> {
    let begun = Instant::now();
    loop {
        match transient::start(unit)? {
            Begun::Exists if begun.elapsed() < Duration::from_secs(3) && !super::is_under_way()? => {
                std::thread::sleep(POLL);
            }
            other => return Ok(other),
        }
    }
}

fn no_systemd(error: io::Error) -> Failure {
    Failure::new(
        Exit::Refused,
        "systemd",
        "systemd cannot start the move over D-Bus; nothing was touched",
    )
    .because(error)
    .hint(
        "a move runs in a unit of systemd, so that it survives the loss of its terminal: see that dbus.service runs and \
         that this program may be executed by systemd, then try again",
    )
}

fn to_the_end(context: &Context, shared: &Shared, asked: &Asked) -> Result<Exit, Failure> {
    let unreadable = |error: io::Error| {
        Failure::new(
            Exit::Interrupted,
            "follow",
            "the move goes on, but cannot be followed any more",
        )
        .because(error)
        .hint("quantykube status tells where it stands")
    };
    let mut events = File::open(shared.events()).map_err(unreadable)?;
    let mut errors = File::open(shared.errors()).map_err(unreadable)?;
    let mut relay = Relay::new(context.reporter);
    let mut rest = Vec::new();
    let mut next_ask = Instant::now() + ASK_EVERY;
    let mut passed_on = false;
    loop {
        // Looked at before the files: what was written before the end is read then.
        let ended = shared.ended();
        let gone = ended.is_none() && Instant::now() >= next_ask && {
            next_ask = Instant::now() + ASK_EVERY;
            // Where systemd does not answer, the move may well go on.
            matches!(super::is_under_way(), Ok(false))
        };
        // Once more: it may have come to its end between the two looks.
        let ended = ended.or_else(|| shared.ended());
        events.read_to_end(&mut rest).map_err(unreadable)?;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            relay.line(&String::from_utf8_lossy(&rest[..end]));
            rest.drain(..=end);
        }
        pass_on_errors(&mut errors);
        if let Some(exit) = ended {
            wait_until_gone();
            return Ok(exit);
        }
        if gone {
            return Err(without_a_word(context, passed_on));
        }
        if let Some(signal) = asked.take() {
            passed_on = true;
            if let Err(error) = transient::signal(NAME, signal) {
                context.reporter.warning(
                    "signal",
                    &format!("the signal cannot be passed on to the move: {error}"),
                );
            }
        }
        std::thread::sleep(POLL);
    }
}

/// What the move's process says beside its events, such as the last words of a crash.
fn pass_on_errors(errors: &mut File) {
    let mut text = Vec::new();
    if errors.read_to_end(&mut text).is_ok() && !text.is_empty() {
        let _ = io::stderr().lock().write_all(&text);
    }
}

/// The next move must not find the unit of this one.
fn wait_until_gone() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) && matches!(super::is_under_way(), Ok(true)) {
        std::thread::sleep(POLL);
    }
}

/// The unit is gone and has left no exit code.
fn without_a_word(context: &Context, passed_on: bool) -> Failure {
    let system = &context.machine();
    match context.root.journals().open_move(system) {
        Ok(None) if passed_on => Failure::new(
            Exit::Failed,
            "interrupted",
            "interrupted before anything was begun; no move is open",
        ),
        Ok(None) => Failure::new(
            Exit::Failed,
            "unit-ended",
            "the move's process was ended from outside; no move is open",
        )
        .hint(format!(
            "journalctl -u {NAME} tells more; quantykube status tells where the data lives"
        )),
        Ok(Some(open)) => Failure::new(
            Exit::Interrupted,
            "unit-ended",
            format!(
                "the move's process was ended from outside, too often to be started again; the move {} is open",
                open.id
            ),
        )
        .hint(format!(
            "see with journalctl -u {NAME} what ends it, then go on with quantykube resume"
        )),
        Err(error) => error.failure(),
    }
}

/// Folders of followers that are gone: only one unit runs at a time, and it is ours.
fn drop_stale(ours: &Shared) {
    for entry in fs::read_dir(Path::new(RUN)).into_iter().flatten().flatten() {
        let stale = entry.file_name().to_string_lossy().starts_with("move-") && entry.path() != ours.path();
        if stale {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// What the follower was asked by signals.
struct Asked {
    signal: Arc<AtomicI32>,
}

impl Asked {
    /// From now on INT and TERM are for the move. HUP says that the terminal is gone, which means nothing.
    fn listen() -> io::Result<Asked> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let signal = Arc::new(AtomicI32::new(0));
        let to = Arc::clone(&signal);
        std::thread::spawn(move || {
            loop {
                let mut came: Vec<i32> = signals.wait().collect();
                if came.contains(&SIGTERM) && !came.contains(&SIGHUP) {
                    std::thread::sleep(TOGETHER);
                    came.extend(signals.pending());
                }
                if came.contains(&SIGINT) {
                    to.store(SIGINT, Ordering::SeqCst);
                } else if came.contains(&SIGTERM) && !came.contains(&SIGHUP) {
                    to.store(SIGTERM, Ordering::SeqCst);
                }
            }
        });
        Ok(Asked { signal })
    }

    fn take(&self) -> Option<i32> {
        match self.signal.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }
}
