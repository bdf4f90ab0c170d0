//! Why nothing was begun, or why a journal cannot be used, with the exit code and the hint for each.

use std::path::PathBuf;

use quantykube_base::{Exit, Failure};
use thiserror::Error;

use crate::log::LogError;
use crate::plan::{self, Unsound};
use crate::state::IllegalEvent;
use crate::system::SystemError;

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
    /// A move is open and blocks the next one.
    #[error("the move {id} is open")]
    OpenMove {
        /// Its journal.
        id: String,
    },
    /// There is nothing to resume or to walk back.
    #[error("no move is open")]
    NoOpenMove,
    /// More than probes is missing, or there is a way back.
    #[error("the move {id} cannot be closed as it stands")]
    NotAcceptable {
        /// Its journal.
        id: String,
    },
    /// The journal or the plan was made for another machine.
    #[error("this machine has the id {found:?}, the plan is for {expected:?}")]
    OtherMachine {
        /// Of this machine.
        found: String,
        /// Of the plan.
        expected: String,
    },
    /// The plan cannot be run as it is.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// `plan.json` was written by a newer program.
    #[error("{path} has format {found}, this program knows up to {known}", known = plan::FORMAT)]
    NewerPlan {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// `plan.json` is not what this program wrote.
    #[error("{path} cannot be understood")]
    Plan {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The log cannot be used.
    #[error("{path} cannot be used")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: LogError,
    },
    /// A record of the log may not follow the ones before it.
    #[error("{path} is damaged at byte {at}: a record is out of order")]
    OutOfOrder {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        at: usize,
        /// Why.
        source: IllegalEvent,
    },
    /// No journal could be made: nothing was begun.
    #[error("no journal can be begun, nothing was changed")]
    Begin(#[source] SystemError),
    /// The journal cannot be read or written.
    #[error("the journal cannot be used")]
    System(#[from] SystemError),
}

impl Error {
    /// The exit code that goes with it.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Locked { .. } | Error::OpenMove { .. } | Error::NoOpenMove | Error::OtherMachine { .. } => {
                Exit::Refused
            }
            Error::NewerPlan { .. }
            | Error::Log {
                source: LogError::Newer { .. },
                ..
            } => Exit::NeedsNewer,
            Error::Unsound(_) => Exit::Failed,
            Error::Begin(error) if error.no_space() => Exit::NoSpace,
            Error::Begin(_) => Exit::Failed,
            Error::NotAcceptable { .. }
            | Error::Plan { .. }
            | Error::Log { .. }
            | Error::OutOfOrder { .. }
            | Error::System(_) => Exit::Stuck,
        }
    }

    /// As the program's user sees it.
    pub fn failure(self) -> Failure {
        let (name, hint) = match &self {
            Error::Locked { .. } => ("journal-locked", "wait for the other run to end"),
            Error::OpenMove { .. } => (
                "move-open",
                "finish it with `quantykube resume` or put it back with `undo`",
            ),
            Error::NoOpenMove => ("no-move-open", ""),
            Error::NotAcceptable { .. } => ("not-acceptable", "finish it with `quantykube resume`"),
            Error::OtherMachine { .. } => (
                "other-machine",
                "a journal is of use only on the machine it was made on",
            ),
            Error::Unsound(_) => ("plan-unsound", ""),
            Error::NewerPlan { .. }
            | Error::Log {
                source: LogError::Newer { .. },
                ..
            } => ("journal-newer", "use the program that wrote it, or a newer one"),
            Error::Plan { .. } | Error::Log { .. } | Error::OutOfOrder { .. } => (
                "journal-damaged",
                "keep the journal's folder as it is: it says what was done, and must be read by a person",
            ),
            Error::Begin(_) => (
                "journal-not-begun",
                "see that the disk of the journal works and has space",
            ),
            Error::System(_) => (
                "journal-unusable",
                "see that the disk of the journal works and has space, then resume",
            ),
        };
        let failure = Failure::new(self.exit(), name, self.to_string());
        let failure = if hint.is_empty() { failure } else { failure.hint(hint) };
        match self {
            Error::Plan { source, .. } => failure.because(source),
            Error::Log { source, .. } => failure.because(source),
            Error::OutOfOrder { source, .. } => failure.because(source),
            Error::Begin(source) | Error::System(source) => failure.because(source),
            _ => failure,
        }
    }
}
