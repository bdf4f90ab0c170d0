//! The operations: observe what stands there, act, undo.
//!
//! `act` and `undo` look first and do only what is missing, so that each may be called again after a crash at any
//! point. Each ends with the syncs that make it durable, even where there was nothing left to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use quantykube_base::Exit;

use crate::journals::Observer;
use crate::plan::{Op, Step};
use crate::state::Before;
use crate::system::{Heed, System, SystemError};

mod files;
mod programs;
mod renames;
#[cfg(test)]
mod tests;
mod units;
mod waits;

/// What an operation works with.
pub(crate) struct Context<'a> {
    pub system: &'a mut dyn System,
    pub observer: &'a mut dyn Observer,
    /// The journal's folder.
    pub folder: &'a Path,
    /// Index of the step.
    pub index: usize,
    pub step: &'a Step,
    pub heed: Heed,
}

/// Why an operation did not end well.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It failed.
    Failed {
        message: String,
        /// The exit code that the cause asks for.
        exit: Exit,
    },
    /// An interrupt ended it before it was whole.
    Interrupted,
    /// The program of a gate said no, or what must hold before it is asked does not.
    Barred(String),
}

impl From<SystemError> for Trouble {
    fn from(error: SystemError) -> Trouble {
        let exit = if error.no_space() { Exit::NoSpace } else { Exit::Failed };
        Trouble::Failed {
            message: error.full(),
            exit,
        }
    }
}

pub(crate) fn failed<T>(message: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Failed {
        message: message.into(),
        exit: Exit::Failed,
    })
}

/// Looks at what stands there before the step and keeps what the undo needs. Changes nothing outside the journal.
pub(crate) fn observe(context: &mut Context<'_>) -> Result<Before, Trouble> {
    match &context.step.op {
        Op::MakeDir { path, .. } => files::observe_dir(context, path),
        Op::PutFile { path, mode, content } => files::observe_file(context, path, *mode, content),
        Op::PutLink { path, target } => files::observe_link(context, path, target),
        Op::EditString { path, from, to } => files::observe_edit(context, path, from, to),
        Op::Retire { path: from, to, .. } | Op::Return { from, to } => renames::observe(context, from, to),
        Op::Build { creates, aside, .. } => programs::observe_build(context, creates, aside.as_deref()),
        Op::Unit { name, .. } => Ok(Before::Unit {
            state: context.system.unit(name)?,
        }),
        Op::Run { .. } | Op::ReloadUnits { .. } | Op::WaitGone { .. } | Op::Probe { .. } | Op::Gate { .. } => {
            Ok(Before::Nothing)
        }
    }
}

/// Does what of the step is not done yet.
pub(crate) fn act(context: &mut Context<'_>, before: &Before) -> Result<(), Trouble> {
    match &context.step.op {
        Op::MakeDir { path, mode } => files::make_dir(context, path, *mode),
        Op::PutFile { path, mode, content } => files::put_file(context, path, *mode, content, before),
        Op::PutLink { path, target } => files::put_link(context, path, target, before),
        Op::EditString { path, from, to } => files::edit(context, path, from, to, before),
        Op::Retire { path: from, to, .. } | Op::Return { from, to } => renames::rename(context, from, to),
        Op::Build {
            argv, creates, partial, ..
        } => programs::build(context, argv, creates, partial),
        Op::Run { argv, .. } => programs::run(context, argv),
        Op::Unit { name, enabled, active } => units::bring(context, name, *enabled, *active),
        Op::ReloadUnits { way } if way.forward() => Ok(context.system.reload_units()?),
        Op::WaitGone {
            process,
            timeout_s,
            term_after_s,
            quiet_ms,
            way,
        } if way.forward() => waits::gone(context, process, *timeout_s, *term_after_s, *quiet_ms),
        Op::Probe { argv, timeout_s, way } if way.forward() => waits::probe(context, argv, *timeout_s),
        Op::ReloadUnits { .. } | Op::WaitGone { .. } | Op::Probe { .. } | Op::Gate { .. } => Ok(()),
    }
}

/// Restores what of the step's effect is still there. `ask` is whether a gate must be asked.
pub(crate) fn undo(context: &mut Context<'_>, before: &Before, ask: bool) -> Result<(), Trouble> {
    match &context.step.op {
        Op::MakeDir { path, .. } => files::undo_dir(context, path, before),
        Op::PutFile { path, mode, content } => files::undo_file(context, path, *mode, content, before),
        Op::PutLink { path, target } => files::undo_link(context, path, target, before),
        Op::EditString { path, from, to } => files::undo_edit(context, path, from, to, before),
        Op::Retire { path: from, to, runs } => {
            if let (Some(process), true) = (runs, context.system.look(to)?.is_some()) {
                waits::settle(context, process)?;
            }
            renames::undo(context, from, to)
        }
        Op::Return { from, to } => renames::undo(context, from, to),
        Op::Build {
            creates,
            partial,
            aside,
            ..
        } => programs::undo_build(context, creates, partial, aside.as_deref()),
        Op::Run { back: Some(argv), .. } => programs::run(context, argv),
        Op::Unit { name, .. } => units::restore(context, name, before),
        Op::ReloadUnits { way } if way.back() => Ok(context.system.reload_units()?),
        Op::WaitGone {
            process,
            timeout_s,
            term_after_s,
            quiet_ms,
            way,
        } if way.back() => {
            match waits::gone(context, process, *timeout_s, *term_after_s, *quiet_ms) {
                // Behind the gate: who could still write is still there, so the gate cannot be asked.
                Err(Trouble::Failed { message, .. }) if ask => Err(Trouble::Barred(message)),
                other => other,
            }
        }
        Op::Probe { argv, timeout_s, way } if way.back() => waits::probe(context, argv, *timeout_s),
        Op::Gate { argv, timeout_s } if ask => programs::ask_gate(context, argv, *timeout_s),
        Op::Run { .. } | Op::ReloadUnits { .. } | Op::WaitGone { .. } | Op::Probe { .. } | Op::Gate { .. } => Ok(()),
    }
}

/// Takes away what a half-made step left under our own temporary names.
pub(crate) fn sweep(context: &mut Context<'_>) -> Result<(), Trouble> {
    match &context.step.op {
        Op::PutFile { path, .. } | Op::PutLink { path, .. } | Op::EditString { path, .. } => {
            files::drop_temporary(context, path)?;
            sync_parent(context, path)
        }
        Op::Build { partial, .. } => {
            programs::drop_partial(context, partial)?;
            partial.iter().try_for_each(|path| sync_parent(context, path))
        }
        _ => Ok(()),
    }
}

/// Also where nothing was removed now: a kill may have come before it was durable. What stands in no folder is gone.
fn sync_parent(context: &mut Context<'_>, path: &Path) -> Result<(), Trouble> {
    match context.system.look(parent(path))? {
        Some(_) => Ok(context.system.sync_dir(parent(path))?),
        None => Ok(()),
    }
}

/// The folder that names a path.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// The temporary name beside a path. It begins with a dot: the kubelet reads every other file of its folder.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".quantykube-new");
    path.with_file_name(name)
}

pub(crate) fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}
