//! The verbs on a file that no server holds, one file each.

pub mod check;
pub mod compact;
pub mod dump;
pub mod extract;
pub mod hashkv;
mod objects;
pub mod status;

use std::path::Path;

use clap::Subcommand;
use quantykube_base::{Exit, Failure, Reporter};
use quantykube_store_file::{Error, Store};

use crate::mvcc::{self, Limits, Mvcc};
use crate::{clock, restore};

/// What to do instead of serving. What each is stands at its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    Restore(restore::Args),
    Check(check::Args),
    Status(status::Args),
    Hashkv(hashkv::Args),
    Dump(dump::Args),
    Compact(compact::Args),
    Extract(extract::Args),
}

impl Command {
    /// Whether events are wanted as JSON.
    pub fn json(&self) -> bool {
        match self {
            Command::Restore(args) => args.json,
            Command::Check(args) => args.json,
            Command::Status(args) => args.json,
            Command::Hashkv(args) => args.json,
            Command::Compact(args) => args.json,
            // What they print is data already.
            Command::Dump(_) | Command::Extract(_) => false,
        }
    }

    /// Runs it.
    pub fn run(&self, reporter: &Reporter) -> Result<(), Failure> {
        match self {
            Command::Restore(args) => restore::run(args, reporter),
            Command::Check(args) => check::run(args, reporter),
            Command::Status(args) => status::run(args, reporter),
            Command::Hashkv(args) => hashkv::run(args, reporter),
            Command::Dump(args) => dump::run(args),
            Command::Compact(args) => compact::run(args, reporter),
            Command::Extract(args) => extract::run(args, reporter),
        }
    }
}

/// Opens a file to look at it; nothing in it changes.
fn look(path: &Path) -> Result<Store, Failure> {
    Store::look(path).map_err(|error| failure(path, error))
}

/// etcd's semantics over a file that is only looked at.
fn over(store: Store) -> Mvcc {
    let limits = Limits {
        request_bytes: usize::MAX,
        quota: 0,
        ..Limits::default()
    };
    Mvcc::new(store, limits, clock::now())
}

/// Why a file cannot be used.
fn failure(path: &Path, error: Error) -> Failure {
    let (exit, name, hint) = match &error {
        Error::Missing { .. } => (Exit::Refused, "missing", "give the file that --data names"),
        Error::Locked { .. } => (
            Exit::Refused,
            "file-locked",
            "a quantykube-store serves it: stop that, or ask it with etcdctl",
        ),
        Error::Foreign { .. } => (Exit::NotVerified, "not-a-store", "give the file that --data names"),
        Error::Newer { .. } => (Exit::NeedsNewer, "file-newer", "use the quantykube-store that wrote it"),
        Error::NoSpace { .. } => (Exit::NoSpace, "no-space", "make room on the disk"),
        Error::Damaged { .. } => (
            Exit::NotVerified,
            "damaged",
            "keep the file as it is, and restore the last snapshot elsewhere",
        ),
        _ => (Exit::Failed, "file-failed", "check the path and its permissions"),
    };
    Failure::new(exit, name, format!("{} cannot be used", path.display()))
        .because(error)
        .hint(hint)
}

/// The same for errors that come from above the file.
fn mvcc_failure(path: &Path, error: mvcc::Error) -> Failure {
    match error {
        mvcc::Error::File(error) => failure(path, error),
        error => Failure::new(Exit::Refused, "revision", format!("{}: {error}", path.display())),
    }
}

/// Standard output went away (a pipe to `head`): that is no failure of ours.
fn printed(outcome: std::io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, "output", "cannot write to standard output").because(error))
        }
        _ => Ok(()),
    }
}
