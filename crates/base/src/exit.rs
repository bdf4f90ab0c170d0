//! The exit codes of every program.

use std::process::ExitCode;

/// How a program ended. The numbers are part of the product's interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or already so.
    Done = 0,
    /// Failed: nothing was changed, or everything was put back.
    Failed = 1,
    /// The command line or a spec is wrong.
    Usage = 2,
    /// A checksum, a signature or the set of files is not what it must be.
    NotVerified = 3,
    /// A check before the start says no; nothing was touched.
    Refused = 4,
    /// There is not enough space.
    NoSpace = 5,
    /// Interrupted; `resume` or `undo` goes on from here.
    Interrupted = 6,
    /// A format or a peer is newer than this program understands.
    NeedsNewer = 7,
    /// A person must look; the message names what at.
    Stuck = 8,
}

impl Exit {
    /// Every exit code, in numeric order.
    pub const ALL: [Exit; 9] = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::NotVerified,
        Exit::Refused,
        Exit::NoSpace,
        Exit::Interrupted,
        Exit::NeedsNewer,
        Exit::Stuck,
    ];

    /// The number the process exits with.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The stable name used in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::NotVerified => "not-verified",
            Exit::Refused => "refused",
            Exit::NoSpace => "no-space",
            Exit::Interrupted => "interrupted",
            Exit::NeedsNewer => "needs-newer",
            Exit::Stuck => "stuck",
        }
    }

    /// One line for `--help` and the man page.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done, or already so",
            Exit::Failed => "failed; nothing changed, or everything was put back",
            Exit::Usage => "wrong usage",
            Exit::NotVerified => "not verified: checksum, signature or set of files",
            Exit::Refused => "a check before the start says no",
            Exit::NoSpace => "no space",
            Exit::Interrupted => "interrupted, can be resumed",
            Exit::NeedsNewer => "needs a newer version",
            Exit::Stuck => "stuck: a person must look, the message names what at",
        }
    }
}

impl From<Exit> for ExitCode {
    /// A result that nobody could read is no success.
    fn from(exit: Exit) -> ExitCode {
        let exit = match exit {
            Exit::Done if crate::report::output_was_lost() => Exit::Failed,
            exit => exit,
        };
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn codes_are_the_published_numbers() {
        for (number, exit) in Exit::ALL.iter().enumerate() {
            assert_eq!(usize::from(exit.code()), number, "{}", exit.name());
        }
    }
}
