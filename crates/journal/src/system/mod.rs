//! The one door to a node: every read and every effect of a move passes it.
//!
//! Two implementations: [`host`] is the machine, [`sim`] a simulated one that counts effects and crashes at any of
//! them. Nothing here decides anything. A method that takes `&mut self` changes the node, or waits.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::{Pid, Process};

pub mod host;
pub mod sim;
mod systemd;
pub mod transient;

/// Every read and every effect.
///
/// Effects on files are not durable before the file and its folder are synced. A rename within one file system is
/// atomic, also between folders, also when power is lost.
pub trait System {
    /// What stands at a path, links not followed; `None` where nothing does.
    fn look(&self, path: &Path) -> Result<Option<Entry>, SystemError>;
    /// The whole content of a file.
    fn read(&self, path: &Path) -> Result<Vec<u8>, SystemError>;
    /// Lower-case hexadecimal SHA-256 of a file's content.
    fn digest(&self, path: &Path) -> Result<String, SystemError>;
    /// The names in a folder, sorted.
    fn list(&self, path: &Path) -> Result<Vec<String>, SystemError>;

    /// Makes a new file with exactly this content and metadata. Fails where anything stands there.
    fn create(&mut self, path: &Path, content: &[u8], meta: &Meta) -> Result<(), SystemError>;
    /// Makes a new file with another file's bytes. Fails where anything stands there.
    fn copy(&mut self, from: &Path, to: &Path, meta: &Meta) -> Result<(), SystemError>;
    /// Appends to a file.
    fn append(&mut self, path: &Path, content: &[u8]) -> Result<(), SystemError>;
    /// Cuts a file to a length.
    fn truncate(&mut self, path: &Path, length: u64) -> Result<(), SystemError>;
    /// Makes a symbolic link. Fails where anything stands there.
    fn symlink(&mut self, path: &Path, target: &Path) -> Result<(), SystemError>;
    /// Makes one folder, owned by the caller.
    fn make_dir(&mut self, path: &Path, mode: u32) -> Result<(), SystemError>;
    /// Renames, over whatever file is at `to`.
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), SystemError>;
    /// Renames; fails where anything stands at `to`.
    fn rename_new(&mut self, from: &Path, to: &Path) -> Result<(), SystemError>;
    /// Removes a file or a link.
    fn remove(&mut self, path: &Path) -> Result<(), SystemError>;
    /// Removes an empty folder.
    fn remove_dir(&mut self, path: &Path) -> Result<(), SystemError>;
    /// Makes a file's content and length durable.
    fn sync(&mut self, path: &Path) -> Result<(), SystemError>;
    /// Makes a folder's names durable.
    fn sync_dir(&mut self, path: &Path) -> Result<(), SystemError>;
    /// Takes an exclusive lock on a file, made where it is missing; held until the value is dropped or the process
    /// ends. `None` where another process holds it.
    fn lock(&mut self, path: &Path) -> Result<Option<Lock>, SystemError>;

    /// How a unit stands.
    fn unit(&self, name: &str) -> Result<UnitState, SystemError>;
    /// Has a unit started at boot, or no more; durable when it returns.
    fn set_enabled(&mut self, name: &str, enabled: bool) -> Result<(), SystemError>;
    /// Starts or stops a unit and waits for the job's result.
    fn set_active(&mut self, name: &str, active: bool) -> Result<(), SystemError>;
    /// Lets systemd read its unit files again.
    fn reload_units(&mut self) -> Result<(), SystemError>;

    /// The processes of a kind that live now, zombies not counted.
    fn processes(&self, process: &Process) -> Result<Vec<Pid>, SystemError>;
    /// Whether the group of the process is still there, in the boot in which it was seen.
    fn group_stands(&self, process: &Process) -> Result<bool, SystemError>;
    /// Takes hold of the process that `pid` names, if it lives: from now on no other one can pass for it. Changes nothing.
    fn hold(&mut self, process: &Process) -> Result<(), SystemError>;
    /// Sends TERM to one process; one that is gone already is no error.
    fn terminate(&mut self, pid: Pid) -> Result<(), SystemError>;

    /// Runs a program to its end, with nothing on its standard input. What it says is appended to `call.log` and passed
    /// on line by line.
    fn run(&mut self, call: &Call<'_>, line: &mut dyn FnMut(&str)) -> Result<Ended, SystemError>;

    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;
    /// Wall clock, in seconds since 1970.
    fn wall_clock(&self) -> u64;
    /// Waits, shorter where an interrupt comes.
    fn sleep(&mut self, time: Duration);
    /// Whether someone has asked the move to end early.
    fn interrupt(&self) -> Option<Interrupt>;
}

/// A lock; dropping it gives it back.
pub type Lock = Box<dyn std::any::Any + Send>;

/// How a move is asked to end early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interrupt {
    /// INT or TERM: put everything back while files alone suffice, else stop after the current step.
    PutBack,
    /// The system is shutting down: stop after the current step, leave the move open.
    Stop,
}

/// Which interrupts end a wait or a program early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heed {
    /// Every one.
    All,
    /// Only that the system is shutting down.
    Stop,
}

impl Heed {
    /// Whether this interrupt counts.
    pub fn heeds(self, interrupt: Option<Interrupt>) -> bool {
        match interrupt {
            None => false,
            Some(Interrupt::Stop) => true,
            Some(Interrupt::PutBack) => self == Heed::All,
        }
    }
}

/// One call of a program.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Program (absolute) and arguments.
    pub argv: &'a [String],
    /// Where its standard output and error are appended to.
    pub log: &'a Path,
    /// The journal's folder, passed on in [`MOVE_DIR`]. The program gets no other environment but a fixed PATH.
    pub move_dir: &'a Path,
    /// After this time it is ended, first by TERM.
    pub timeout: Option<Duration>,
    /// After this time without a word it is ended in the same way.
    pub silence: Option<Duration>,
    /// Which interrupts end it too.
    pub heed: Heed,
}

/// The variable that names the move's journal folder to the programs it runs.
pub const MOVE_DIR: &str = "QUANTYKUBE_MOVE_DIR";

/// How a program ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal that we did not send.
    Signal(i32),
    /// It was ended because its time was over.
    TimedOut,
    /// It was ended because it had said nothing for too long.
    Silent,
    /// It was ended because of an interrupt.
    Interrupted,
}

/// What stands at a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Entry {
    /// A file with its length in bytes.
    File(u64, Meta),
    /// A folder.
    Dir(Meta),
    /// A symbolic link with its text.
    Link(std::path::PathBuf),
    /// A device, a socket or the like.
    Other,
}

/// What a file has beside its content.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Meta {
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes by name, values in lower-case hexadecimal. Those that sign the content are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub xattrs: BTreeMap<String, String>,
}

impl Meta {
    /// Owned by root, with a mode and nothing else.
    pub fn mode(mode: u32) -> Meta {
        Meta {
            mode,
            ..Meta::default()
        }
    }
}

/// How a unit stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitState {
    /// Its file was found.
    pub known: bool,
    /// Started at boot.
    pub enabled: bool,
    /// Running, starting or waiting for a restart.
    pub active: bool,
    /// Running, its start finished.
    pub ready: bool,
}

/// A read or an effect that failed.
#[derive(Debug, Error)]
#[error("cannot {act} {on}")]
pub struct SystemError {
    /// What was tried, such as `rename`.
    pub act: &'static str,
    /// On which path, unit or program.
    pub on: String,
    /// Why not.
    pub source: io::Error,
}

impl SystemError {
    /// An error of an act on a path.
    pub fn at(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SystemError + use<> {
        let on = path.display().to_string();
        move |source| SystemError { act, on, source }
    }

    /// An error of an act on something that is not a path.
    pub fn on(act: &'static str, on: &str) -> impl FnOnce(io::Error) -> SystemError + use<> {
        let on = on.to_owned();
        move |source| SystemError { act, on, source }
    }

    /// Whether the disk or a quota is full.
    pub fn no_space(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// The message with its cause, for a record of the journal.
    pub fn full(&self) -> String {
        format!("{self}: {}", self.source)
    }
}
