//! The folder of all journals: list them, begin a move, go on with the open one.

use std::path::PathBuf;

use quantykube_base::{Exit, Failure};
use thiserror::Error;

use crate::plan::{Plan, Step};
use crate::system::{Lock, System};

/// All journals of a node, under one folder.
#[derive(Clone, Debug)]
pub struct Journals {
    root: PathBuf,
}

impl Journals {
    /// Where the journals of a node are.
    pub const ROOT: &str = "/var/lib/quantykube/install";

    /// The journals under a folder, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Journals {
        Journals { root: root.into() }
    }

    /// All journals, oldest first. Takes no lock: a move may be under way.
    pub fn list(&self, _system: &dyn System) -> Result<Vec<Summary>, Error> {
        unimplemented!()
    }

    /// The move that is neither done nor put back, if there is one.
    pub fn open_move(&self, _system: &dyn System) -> Result<Option<Summary>, Error> {
        unimplemented!()
    }

    /// The newest install of a move that is in force: done, and not undone by a later plan.
    pub fn in_force(&self, _system: &dyn System, _move_name: &str) -> Result<Option<Summary>, Error> {
        unimplemented!()
    }

    /// The number that the next journal gets.
    pub fn next_number(&self, _system: &dyn System) -> Result<u32, Error> {
        unimplemented!()
    }

    /// Takes the lock. [`Error::Locked`] where another process has it.
    pub fn lock(&self, _system: &mut dyn System) -> Result<Session, Error> {
        unimplemented!()
    }
}

/// The journals while this process holds their lock. Only here moves are run.
pub struct Session {
    journals: Journals,
    _lock: Lock,
}

impl Session {
    /// The journals, to read.
    pub fn journals(&self) -> &Journals {
        &self.journals
    }

    /// Begins a move and runs it to its end: moved, as before, open or stuck.
    /// An error means that nothing was begun, or that the journal itself cannot be used.
    pub fn run(&self, _plan: &Plan, _system: &mut dyn System, _observer: &mut dyn Observer) -> Result<Outcome, Error> {
        unimplemented!()
    }

    /// Goes on with the open move in the direction it has. [`Error::NoOpenMove`] where there is none.
    pub fn resume(&self, _system: &mut dyn System, _observer: &mut dyn Observer) -> Result<Outcome, Error> {
        unimplemented!()
    }

    /// Walks the open move back. Where there is no way back any more the move is finished instead, and the outcome says
    /// so. [`Error::NoOpenMove`] where there is none: what is done is undone by a plan of its own.
    pub fn undo(&self, _system: &mut dyn System, _observer: &mut dyn Observer) -> Result<Outcome, Error> {
        unimplemented!()
    }

    /// Closes a stuck move as moved whose way back is barred and of which only probes are missing, so that a plan of
    /// its own can undo it. Fails on any other.
    pub fn accept(&self, _system: &mut dyn System) -> Result<Outcome, Error> {
        unimplemented!()
    }
}

/// Told of progress while a move runs. Decides nothing.
pub trait Observer {
    /// A step begins. `forward` is false on the way back. `number` counts from 1.
    fn begin(&mut self, forward: bool, number: usize, of: usize, step: &Step);
    /// A step ended; `Err` is why it failed.
    fn end(&mut self, forward: bool, step: &Step, result: Result<(), &str>);
    /// A line that a program of a step said.
    fn line(&mut self, step: &Step, line: &str);
    /// The direction changes: a sentence that says why.
    fn turn(&mut self, why: &str);
}

/// How a move ended for now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// The journal's id, such as `1-store`.
    pub id: String,
    /// Where the node stands.
    pub ending: Ending,
    /// The exit code that goes with it.
    pub exit: Exit,
    /// The gate said no: what was moved holds acknowledged writes.
    pub gate_refused: bool,
    /// Every step that failed, in order, also on the way back.
    pub trouble: Vec<Trouble>,
}

/// Where a move leaves the node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// All steps are done.
    Moved,
    /// Everything was put back.
    AsBefore,
    /// Stopped between two steps; resume or undo goes on.
    Open,
    /// A person must look; resume or undo tries again.
    Stuck,
}

/// A step that failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trouble {
    /// The step's name.
    pub step: String,
    /// Whether it failed on the way back.
    pub back: bool,
    /// What went wrong, with its causes.
    pub message: String,
}

/// One journal as it stands.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Its number.
    pub number: u32,
    /// Its folder's name, such as `1-store`.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// What was planned.
    pub plan: Plan,
    /// Where it stands.
    pub status: Status,
    /// How many steps are done now.
    pub done: usize,
    /// Every failure noted.
    pub trouble: Vec<Trouble>,
    /// Wall clock of the begin, seconds since 1970.
    pub began: u64,
    /// Wall clock of the last record.
    pub last: u64,
}

/// Where a journal stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// Neither done nor put back: blocks every other move. `way_back` says whether undo can still walk back.
    Open {
        /// False behind the point of no return or a gate that said no.
        way_back: bool,
    },
    /// Done.
    Moved,
    /// Put back.
    AsBefore,
}

/// Why nothing was begun, or why a journal cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process runs a move.
    #[error("another run holds the lock {path}")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
}

impl Error {
    /// The exit code that goes with it.
    pub fn exit(&self) -> Exit {
        Exit::Refused
    }

    /// As the program's user sees it.
    pub fn failure(self) -> Failure {
        unimplemented!()
    }
}
