//! Steps that run programs: build one path, run, ask the gate.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quantykube_base::Exit;

use super::{Context, Trouble, failed, parent, seconds};
use crate::state::Before;
use crate::system::{Call, Ended, Entry, Heed};

/// A program of a step tells of its progress every few seconds. One that has said nothing for so long hangs, as on a server
/// that has stopped answering; without an end the API server would stay away until somebody looks.
const SILENCE: Duration = Duration::from_secs(600);

/// What ends a program that does not end by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// Its time is over.
    Within(Duration),
    /// It has said nothing for [`SILENCE`].
    Silence,
}

/// How many of a program's last lines go into the message of its failure.
const LAST_LINES: usize = 4;

pub(super) fn observe_build(
    context: &mut Context<'_>,
    creates: &Path,
    aside: Option<&Path>,
) -> Result<Before, Trouble> {
    for path in aside.into_iter().chain([creates]) {
        if context.system.look(path)?.is_some() {
            return failed(format!("{} is there already", path.display()));
        }
    }
    Ok(Before::Absent)
}

pub(super) fn build(
    context: &mut Context<'_>,
    argv: &[String],
    creates: &Path,
    partial: &[PathBuf],
) -> Result<(), Trouble> {
    if context.system.look(creates)?.is_none() {
        drop_partial(context, partial)?;
        run(context, argv)?;
        if context.system.look(creates)?.is_none() {
            return failed(format!(
                "{} ended well, but {} is not there",
                argv[0],
                creates.display()
            ));
        }
    }
    // The program has synced it; a build that was whole before a crash may not have come that far with its folder.
    Ok(context.system.sync_dir(parent(creates))?)
}

pub(super) fn undo_build(
    context: &mut Context<'_>,
    creates: &Path,
    partial: &[PathBuf],
    aside: Option<&Path>,
) -> Result<(), Trouble> {
    drop_partial(context, partial)?;
    if context.system.look(creates)?.is_some() {
        match aside {
            Some(aside) => context.system.rename_new(creates, aside)?,
            None => context.system.remove(creates)?,
        }
    }
    if let Some(aside) = aside {
        context.system.sync_dir(parent(aside))?;
    }
    Ok(context.system.sync_dir(parent(creates))?)
}

pub(super) fn drop_partial(context: &mut Context<'_>, partial: &[PathBuf]) -> Result<(), Trouble> {
    for path in partial {
        match context.system.look(path)? {
            None => {}
            Some(Entry::Dir(_)) => return failed(format!("{} is in the way: it is a folder", path.display())),
            Some(_) => context.system.remove(path)?,
        }
    }
    Ok(())
}

pub(super) fn run(context: &mut Context<'_>, argv: &[String]) -> Result<(), Trouble> {
    let heed = context.heed;
    match call(context, argv, Limit::Silence, heed)? {
        Ok(()) => Ok(()),
        Err((message, exit)) => Err(Trouble::Failed { message, exit }),
    }
}

pub(super) fn ask_gate(context: &mut Context<'_>, argv: &[String], timeout_s: u32) -> Result<(), Trouble> {
    match call(context, argv, Limit::Within(seconds(timeout_s)), Heed::Stop)? {
        Ok(()) => Ok(()),
        Err((message, _)) => Err(Trouble::Barred(message)),
    }
}

/// Runs a program once. The inner error is its failure with the exit code that it asks for.
pub(super) fn call(
    context: &mut Context<'_>,
    argv: &[String],
    limit: Limit,
    heed: Heed,
) -> Result<Result<(), (String, Exit)>, Trouble> {
    let log = context
        .folder
        .join("out")
        .join(format!("{:02}-{}.log", context.index + 1, context.step.name));
    let call = Call {
        argv,
        log: &log,
        move_dir: context.folder,
        timeout: match limit {
            Limit::Within(time) => Some(time),
            Limit::Silence => None,
        },
        silence: match limit {
            Limit::Within(_) => None,
            Limit::Silence => Some(SILENCE),
        },
        heed,
    };
    let mut last: VecDeque<String> = VecDeque::new();
    let (observer, step) = (&mut *context.observer, context.step);
    let ended = context.system.run(&call, &mut |line| {
        observer.line(step, line);
        if !line.trim().is_empty() {
            last.push_back(line.trim_end().to_owned());
            if last.len() > LAST_LINES {
                last.pop_front();
            }
        }
    })?;
    let how = match ended {
        Ended::Code(0) => return Ok(Ok(())),
        Ended::Interrupted => return Err(Trouble::Interrupted),
        Ended::Code(code) => format!("ended with exit code {code}"),
        Ended::Signal(signal) => format!("was ended by signal {signal}"),
        Ended::TimedOut => "did not end in its time".to_owned(),
        Ended::Silent => format!("said nothing for {} s and was ended: it hangs", SILENCE.as_secs()),
    };
    let mut message = format!("{} {how}", argv[0]);
    for line in last {
        message.push_str("\n  ");
        message.push_str(&line);
    }
    // Only what says more than "failed" is worth passing on.
    let exit = match ended {
        Ended::Code(3) => Exit::NotVerified,
        Ended::Code(4) => Exit::Refused,
        Ended::Code(5) => Exit::NoSpace,
        Ended::Code(7) => Exit::NeedsNewer,
        _ => Exit::Failed,
    };
    Ok(Err((message, exit)))
}
