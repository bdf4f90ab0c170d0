//! The machine itself: who it is, what it has room for, which ports are free.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use crate::facts::Root;

/// The first line of a small file, without white space around it; `None` where there is none.
pub fn line_of(root: &Root, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.at(path)).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Bytes free for root on the file system of `path`, or of the nearest folder above it that exists.
pub fn free_bytes(root: &Root, path: &Path) -> Option<u64> {
    let mut at = path;
    loop {
        match rustix::fs::statvfs(root.at(at)) {
            Ok(stat) => return Some(stat.f_bfree.saturating_mul(stat.f_frsize)),
            Err(rustix::io::Errno::NOENT) => at = at.parent()?,
            Err(_) => return None,
        }
    }
}

/// Why nobody could listen there now; `None` where the port is free.
pub fn port_taken(address: SocketAddr) -> Option<String> {
    TcpListener::bind(address).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(port_taken(address).is_some());
        drop(listener);
        assert_eq!(port_taken(address), None);
    }

    #[test]
    fn space_is_asked_of_the_nearest_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(free_bytes(&root, Path::new("/var/lib/none")).unwrap() > 0);
    }
}
