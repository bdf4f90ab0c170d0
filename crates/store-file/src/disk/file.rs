//! A file as the medium.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, CWD, FallocateFlags, FlockOperation, RenameFlags};
use rustix::io::Errno;

use super::Disk;
use crate::Error;

/// One file, locked with flock: exclusively by a server, shared by readers of a closed file.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
}

impl FileDisk {
    /// Opens an existing file for a server: exclusively.
    pub fn open(path: &Path) -> Result<FileDisk, Error> {
        let file = open(path, OpenOptions::new().read(true).write(true))?;
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
        Ok(FileDisk { file })
    }

    /// Opens an existing file for reading; refuses one that a server holds.
    pub fn open_frozen(path: &Path) -> Result<FileDisk, Error> {
        let file = open(path, OpenOptions::new().read(true))?;
        lock(&file, path, FlockOperation::NonBlockingLockShared)?;
        Ok(FileDisk { file })
    }
}

/// How long a thread that asked for it runs before others get their turn, while they want one.
const SLICE_NS: u64 = 100_000;

/// The kernel's `struct sched_attr`, as of its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks the kernel for short slices for this thread and those it starts: it then gets a processor soon after it wakes
/// instead of at the next tick (4 ms) when others compute, and never more of it than before. Each commit wakes three
/// threads. Needs no right; a kernel before 6.12 takes it without doing it.
#[allow(unsafe_code)]
pub fn short_slices() -> io::Result<()> {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        runtime: SLICE_NS,
        ..SchedAttr::default()
    };
    // SAFETY: the kernel reads `attr.size` bytes, which is all of `attr`, and keeps no pointer to it. 0 is this thread.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> Result<File, Error> {
    options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::Missing {
            path: path.to_path_buf(),
        },
        _ => Error::Io {
            what: "opening the store file",
            source,
        },
    })
}

fn lock(file: &File, path: &Path, operation: FlockOperation) -> Result<(), Error> {
    rustix::fs::flock(file, operation).map_err(|errno| match errno {
        Errno::WOULDBLOCK => Error::Locked {
            path: path.to_path_buf(),
        },
        errno => Error::Io {
            what: "locking the store file",
            source: errno.into(),
        },
    })
}

/// Makes an empty, locked file with mode 0600 under a temporary name beside `path`, which must not exist. The name
/// begins with a dot; one left by an earlier try that no process holds is replaced.
pub(crate) fn create_temporary(path: &Path) -> Result<(FileDisk, PathBuf), Error> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(Error::Exists {
            path: path.to_path_buf(),
        });
    }
    let Some(name) = path.file_name() else {
        return Err(Error::Io {
            what: "naming the store file",
            source: io::Error::new(io::ErrorKind::InvalidInput, format!("{} names no file", path.display())),
        });
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".quantykube-new");
    let temporary = path.with_file_name(temporary);
    match FileDisk::open(&temporary) {
        Ok(_) => fs::remove_file(&temporary).map_err(Error::io("removing an old temporary file"))?,
        Err(Error::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(Error::io("creating the store file"))?;
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .map_err(Error::io("setting the store file's mode"))?;
    lock(&file, &temporary, FlockOperation::NonBlockingLockExclusive)?;
    Ok((FileDisk { file }, temporary))
}

/// Gives a synced temporary file its final name, never replacing one, and syncs the folder.
pub(crate) fn publish_temporary(temporary: &Path, path: &Path) -> Result<(), Error> {
    let exists = || Error::Exists {
        path: path.to_path_buf(),
    };
    match rustix::fs::renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Err(exists()),
        // A file system without it: a link never replaces either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::hard_link(temporary, path).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => exists(),
                _ => Error::Io {
                    what: "naming the store file",
                    source,
                },
            })?;
            fs::remove_file(temporary).map_err(Error::io("removing the temporary name"))?;
        }
        Err(errno) => {
            return Err(Error::Io {
                what: "naming the store file",
                source: errno.into(),
            });
        }
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|folder| folder.sync_all())
        .map_err(Error::io("syncing the store file's folder"))
}

impl Disk for FileDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, len) {
            Ok(()) => Ok(()),
            // A file system that cannot reserve: written zeros take the space as well.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let zeros = vec![0; 1 << 20];
                let mut done = 0;
                while done < len {
                    let part = (len - done).min(zeros.len() as u64);
                    self.file.write_all_at(&zeros[..part as usize], at + done)?;
                    done += part;
                }
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn punch_hole(&self, at: u64, len: u64) -> io::Result<bool> {
        match rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            at,
            len,
        ) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn read_ahead(&self, at: u64, len: u64) {
        // As below.
        let _ = rustix::fs::fadvise(&self.file, at, std::num::NonZeroU64::new(len), Advice::WillNeed);
    }

    fn drop_caches(&self) {
        // Whether the kernel does it is its affair; nothing depends on it.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_gets_its_name_once_and_never_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.qks");
        let (disk, temporary) = create_temporary(&path).unwrap();
        disk.write_at(0, b"one").unwrap();
        assert_eq!(fs::metadata(&temporary).unwrap().mode() & 0o7777, 0o600);
        assert!(
            matches!(create_temporary(&path), Err(Error::Locked { .. })),
            "a held temporary is left alone"
        );
        publish_temporary(&temporary, &path).unwrap();
        assert!(!temporary.exists());
        assert!(matches!(create_temporary(&path), Err(Error::Exists { .. })));
        fs::write(&temporary, b"two").unwrap();
        assert!(matches!(
            publish_temporary(&temporary, &path),
            Err(Error::Exists { .. })
        ));
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }

    #[test]
    #[allow(unsafe_code)]
    fn a_thread_gets_short_slices_and_keeps_its_share() {
        let read = || {
            let mut attr = SchedAttr::default();
            let size = size_of::<SchedAttr>();
            // SAFETY: the kernel writes `size` bytes at most, which is all of `attr`. 0 is this thread.
            let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
            assert_eq!(failed, 0, "{}", io::Error::last_os_error());
            attr
        };
        let before = read();
        short_slices().unwrap();
        let after = read();
        assert_eq!((after.policy, after.nice), (0, 0));
        if before.runtime == 0 {
            println!("SKIPPED a_thread_gets_short_slices_and_keeps_its_share: this kernel knows no slices");
            return;
        }
        assert_eq!(after.runtime, SLICE_NS);
        let inherited = std::thread::spawn(move || read().runtime).join().unwrap();
        assert_eq!(inherited, SLICE_NS);
    }

    #[test]
    fn locks_exclude_and_a_hole_reads_as_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.qks");
        assert!(matches!(FileDisk::open(&path), Err(Error::Missing { .. })));
        fs::write(&path, vec![1; 65536]).unwrap();
        let first = FileDisk::open_frozen(&path).unwrap();
        let second = FileDisk::open_frozen(&path).unwrap();
        assert!(matches!(FileDisk::open(&path), Err(Error::Locked { .. })));
        drop((first, second));
        let disk = FileDisk::open(&path).unwrap();
        assert!(matches!(FileDisk::open_frozen(&path), Err(Error::Locked { .. })));
        if disk.punch_hole(8192, 16384).unwrap() {
            let mut hole = vec![9; 16384];
            disk.read_at(8192, &mut hole).unwrap();
            assert_eq!(hole, vec![0; 16384]);
        }
        assert_eq!(disk.len().unwrap(), 65536);
        disk.allocate(65536, 65536).unwrap();
        assert_eq!(disk.len().unwrap(), 131_072);
    }
}
