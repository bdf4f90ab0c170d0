//! How long the disk takes to make a small write durable. Measured on a file without a name: nothing is left behind, and
//! not even the folder's times change.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::facts::{Known, Root, attributes};

/// How many writes are timed.
const WRITES: usize = 24;
/// No measurement goes on for longer.
const AT_MOST: Duration = Duration::from_secs(3);
/// The size of one write, in bytes: an object of Kubernetes.
const WRITE_BYTES: usize = 2048;

/// Times synced writes on the file system of a folder, or of the nearest one above it that exists; shortest first.
pub fn times(root: &Root, folder: &Path) -> Known<Vec<Duration>> {
    let at = root.at(attributes::nearest(root, folder));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&at, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| format!("no file without a name can be made in {}: {error}", folder.display()))?;
    measure(&file).map_err(|error| format!("a synced write failed: {error}"))
}

fn measure(file: &OwnedFd) -> rustix::io::Result<Vec<Duration>> {
    let begun = Instant::now();
    let data = [0x5a; WRITE_BYTES];
    let mut times = Vec::with_capacity(WRITES);
    // Once without a clock: the first write also makes the file's place.
    rustix::io::write(file, &data)?;
    rustix::fs::fdatasync(file)?;
    while times.len() < WRITES && (times.is_empty() || begun.elapsed() < AT_MOST) {
        let started = Instant::now();
        rustix::io::write(file, &data)?;
        rustix::fs::fdatasync(file)?;
        times.push(started.elapsed());
    }
    times.sort();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let before = std::fs::metadata(folder.path()).unwrap().modified().unwrap();
        let times = times(&root, Path::new("/var/lib/none")).unwrap();
        assert!(!times.is_empty() && times.is_sorted());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(folder.path()).unwrap().modified().unwrap(), before);
    }
}
