//! Reading what a person wrote, and making files that a person keeps.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use quantykube_base::{Exit, Failure, open_regular};

/// A text file, whole, with a bound on its length.
pub fn read_text(path: &Path, most: u64) -> Result<String, Failure> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
                Exit::Usage
            }
            _ => Exit::Failed,
        };
        Failure::new(exit, "read", format!("cannot read {name}")).because(error)
    };
    let mut text = String::new();
    open_regular(path)
        .map_err(cannot)?
        .take(most + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    match text.len() as u64 > most {
        true => Err(Failure::new(
            Exit::Usage,
            "read",
            format!("{name} is longer than {most} bytes"),
        )),
        false => Ok(text),
    }
}

/// Makes a new file with exactly `mode`, never in place of another.
pub fn make(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let shown = path.display();
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = made.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(
            Exit::Refused,
            "exists",
            format!("{shown} is there already, and is not written over"),
        )
        .hint("give another name"),
        _ => Failure::new(Exit::Failed, "write", format!("cannot make {shown}")).because(error),
    })?;
    let written = file
        .set_permissions(PermissionsExt::from_mode(mode))
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = std::fs::remove_file(path);
        let exit = match error.kind() {
            std::io::ErrorKind::StorageFull => Exit::NoSpace,
            _ => Exit::Failed,
        };
        Failure::new(exit, "write", format!("cannot write {shown}")).because(error)
    })
}
