//! What was typed, where and in which environment, from the follower to the unit.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use quantykube_base::{Exit, Failure, Mode, Reporter};
use serde::{Deserialize, Serialize};

use super::{RUN, Shared, typed};

/// All of it as bytes: neither paths nor arguments need be UTF-8.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Request {
    folder: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Request {
    /// Of this process.
    pub(super) fn of_this_process() -> io::Result<Request> {
        Ok(Request {
            folder: std::env::current_dir()?.into_os_string().into_vec(),
            arguments: typed().into_iter().map(OsString::into_vec).collect(),
            environment: std::env::vars_os()
                .map(|(name, value)| (name.into_vec(), value.into_vec()))
                .collect(),
        })
    }

    /// Puts it into a new folder that only root can look into. The environment may hold what is nobody else's business.
    pub(super) fn put(&self) -> io::Result<Shared> {
        let mut make = fs::DirBuilder::new();
        make.mode(0o700).recursive(true).create(RUN)?;
        let stamp = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let shared = Shared::at(Path::new(RUN).join(format!("move-{}-{stamp}", std::process::id())));
        fs::DirBuilder::new().mode(0o700).create(shared.path())?;
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        private(&shared.request())?.write_all(&text)?;
        private(&shared.events())?;
        private(&shared.errors())?;
        Ok(shared)
    }

    fn read(shared: &Shared) -> io::Result<Request> {
        serde_json::from_slice(&fs::read(shared.request())?).map_err(io::Error::other)
    }
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Turns the process that systemd has started into the one that was typed. Returns only where that fails.
pub fn become_what_was_typed(shared: &Shared) -> Failure {
    let failed = |error: io::Error| {
        Failure::new(
            Exit::Failed,
            "in-unit",
            "the move cannot be begun in its unit; nothing was touched",
        )
        .because(error)
    };
    let become_it = || -> io::Result<std::convert::Infallible> {
        let request = Request::read(shared)?;
        let os = |bytes: Vec<u8>| OsString::from_vec(bytes);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--inside")
            .arg(shared.path())
            .args(request.arguments.into_iter().map(os))
            .current_dir(PathBuf::from(os(request.folder)))
            .env_clear()
            .envs(
                request
                    .environment
                    .into_iter()
                    .map(|(name, value)| (os(name), os(value))),
            )
            .stdout(private(&shared.events())?)
            .stderr(private(&shared.errors())?);
        Err(command.exec())
    };
    let Err(error) = become_it();
    let failure = failed(error);
    // The follower reads it from the file; it is no event of the move's.
    if let Ok(mut events) = private(&shared.events()) {
        let event = serde_json::json!({
            "event": "error", "name": failure.name, "exit": failure.exit.code(),
            "message": failure.message, "causes": failure.chain(),
        });
        let _ = writeln!(events, "{event}");
    }
    shared.end(failure.exit);
    failure
}

/// How the move's process in the unit speaks.
pub fn reporter() -> Reporter {
    Reporter::new(Mode::Relay)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_request_holds_bytes_that_are_no_text() {
        let request = Request {
            folder: b"/tmp/\xff".to_vec(),
            arguments: vec![b"install".to_vec(), b"\xfe".to_vec()],
            environment: vec![(b"A".to_vec(), b"\xfd\n".to_vec())],
        };
        let text = serde_json::to_vec(&request).unwrap();
        assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
        let own = Request::of_this_process().unwrap();
        assert_eq!(own.folder, std::env::current_dir().unwrap().as_os_str().as_bytes());
        assert_eq!(own.environment.len(), std::env::vars_os().count());
    }

    #[test]
    fn the_second_beginning_is_known_as_one_and_an_end_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let shared = Shared::at(folder.path());
        assert!(!shared.begin());
        assert!(shared.begin());
        assert_eq!(shared.ended(), None);
        shared.end(Exit::Interrupted);
        assert_eq!(shared.ended(), Some(Exit::Interrupted));
    }
}
