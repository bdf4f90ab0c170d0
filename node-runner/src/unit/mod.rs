//! A move runs in a transient unit of systemd, and whoever typed it only follows.
//!
//! ```text
//! quantykube install store          the follower: makes FOLDER, starts the unit, says on what FOLDER/events says
//!   systemd: quantykube in-unit FOLDER     reads FOLDER/request, becomes what was typed, with --inside FOLDER
//!     quantykube --inside FOLDER install store     makes the move; writes FOLDER/exit at its end
//! ```
//! What was typed, where, and in which environment is in a file that root alone can read, not on the unit's command line.
//! The follower may go at any time. A move's process that is killed is started anew by systemd and goes on.

mod follow;
mod request;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure};
use quantykube_journal::system::transient;

pub use follow::follow;
pub use request::{become_what_was_typed, reporter};

/// The unit's name.
pub const NAME: &str = "quantykube-move.service";
/// Where the folders of requests are. It does not outlive a boot, and neither does the unit.
const RUN: &str = "/run/quantykube";
/// What the verb is called that systemd starts.
pub const VERB: &str = "in-unit";

/// The folder that a follower shares with the unit it has started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shared(PathBuf);

impl Shared {
    /// By its path, as it stands on a command line.
    pub fn at(path: impl Into<PathBuf>) -> Shared {
        Shared(path.into())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn request(&self) -> PathBuf {
        self.0.join("request")
    }

    fn events(&self) -> PathBuf {
        self.0.join("events")
    }

    fn errors(&self) -> PathBuf {
        self.0.join("errors")
    }

    fn exit(&self) -> PathBuf {
        self.0.join("exit")
    }

    /// Notes that the move's process has begun; true where one had begun before it: this one was started anew after a kill.
    pub fn begin(&self) -> bool {
        let begun = self.0.join("begun");
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(begun)
            .is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Leaves the exit code for the follower. That it cannot be left changes nothing about the move.
    pub fn end(&self, exit: Exit) {
        let temporary = self.0.join(".exit");
        let _ = std::fs::write(&temporary, exit.code().to_string());
        let _ = std::fs::rename(temporary, self.exit());
    }

    /// The exit code that was left.
    fn ended(&self) -> Option<Exit> {
        let text = std::fs::read_to_string(self.exit()).ok()?;
        let code: u8 = text.trim().parse().ok()?;
        Exit::ALL.into_iter().find(|exit| exit.code() == code)
    }
}

/// Whether a move's unit runs now.
///
/// # Errors
/// If systemd cannot be asked.
pub fn is_under_way() -> io::Result<bool> {
    transient::is_active(NAME)
}

/// The failure of a second move while one runs.
pub fn under_way() -> Failure {
    Failure::new(
        Exit::Refused,
        "under-way",
        "a move is under way on this node; nothing was touched",
    )
    .hint("wait for its end: quantykube status tells where it stands")
}

/// The arguments that were typed, without the program's name.
fn typed() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}
