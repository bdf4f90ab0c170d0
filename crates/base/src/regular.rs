//! Opening what a person named.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, links followed. Anything else is an error at once: a pipe with nobody at its other
/// end would be waited for without end, and a signal would not help.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::open_regular;

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe, link) = (
            folder.path().join("f"),
            folder.path().join("p"),
            folder.path().join("l"),
        );
        std::fs::write(&file, b"x").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open_regular(&file).is_ok());
        assert!(open_regular(&link).is_ok());
        for other in [pipe.as_path(), folder.path()] {
            assert_eq!(open_regular(other).unwrap_err().to_string(), "it is no regular file");
        }
    }
}
