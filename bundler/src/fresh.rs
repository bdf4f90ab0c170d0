//! A new file that gets its name only when it is whole and synced.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use quantykube_base::{Exit, Failure, durable};
use rustix::fs::{CWD, FlockOperation, RenameFlags};

/// A file under a temporary name beside its target, locked. Dropped under that name, it is removed.
pub struct Fresh {
    pub file: File,
    target: PathBuf,
    temporary: PathBuf,
    /// From then on the temporary name may be another run's.
    renamed: bool,
}

/// What a failed write to `target` ends with.
pub fn cannot_write(target: &Path) -> impl Fn(std::io::Error) -> Failure {
    let shown = target.display().to_string();
    move |error| {
        let exit = match error.kind() {
            std::io::ErrorKind::StorageFull => Exit::NoSpace,
            _ => Exit::Failed,
        };
        Failure::new(exit, "write", format!("cannot write {shown}")).because(error)
    }
}

/// Refuses a target that is there.
pub fn absent(target: &Path) -> Result<(), Failure> {
    match target.symlink_metadata() {
        Ok(_) => {
            let message = format!("{} is there already, and is not written over", target.display());
            Err(Failure::new(Exit::Refused, "exists", message).hint("give another name with -o"))
        }
        Err(_) => Ok(()),
    }
}

/// Refuses a folder that has less space than `needed` bytes.
pub fn space(folder: &Path, needed: u64) -> Result<(), Failure> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let Ok(space) = rustix::fs::statvfs(folder) else {
        // Writing says what is wrong with it.
        return Ok(());
    };
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    match available < needed {
        true => {
            let message = format!(
                "{} has {available} bytes of space, {needed} are needed",
                folder.display()
            );
            Err(Failure::new(Exit::NoSpace, "no-space", message))
        }
        false => Ok(()),
    }
}

impl Fresh {
    /// Makes the temporary file, empty and ours alone. Two runs for one target would write into one another; what a
    /// killed run left is taken over.
    pub fn make(target: &Path) -> Result<Fresh, Failure> {
        let cannot = cannot_write(target);
        if target.is_dir() {
            let message = format!("{} is a folder, expected a file to write", target.display());
            return Err(Failure::new(Exit::Usage, "write", message));
        }
        let temporary = durable::temporary_name(target).map_err(&cannot)?;
        let file = loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let flags = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
            let file = options.custom_flags(flags).open(&temporary).map_err(&cannot)?;
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let message = format!("another build is writing {}", target.display());
                return Err(Failure::new(Exit::Refused, "busy", message).hint("wait for it, or give another -o FILE"));
            }
            // Between the two calls the other run may have ended: then this is its finished file, or nothing.
            let ours = file.metadata().map_err(&cannot)?;
            match fs::symlink_metadata(&temporary) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => break file,
                _ => continue,
            }
        };
        let fresh = Fresh {
            file,
            target: target.into(),
            temporary,
            renamed: false,
        };
        fresh.file.set_len(0).map_err(&cannot)?;
        Ok(fresh)
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Gives the file its name, in place of whatever has it.
    pub fn replace(mut self) -> Result<(), Failure> {
        let cannot = cannot_write(&self.target);
        self.file.sync_all().map_err(&cannot)?;
        durable::rename(&self.temporary, &self.target).map_err(&cannot)?;
        self.renamed = true;
        Ok(())
    }

    /// Gives the file its name, which nothing may have.
    pub fn finish(mut self) -> Result<(), Failure> {
        let cannot = cannot_write(&self.target);
        self.file.sync_all().map_err(&cannot)?;
        match rustix::fs::renameat_with(CWD, &self.temporary, CWD, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => absent(&self.target)?,
            // FAT and some network file systems know no such rename: the name is then looked at just before.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                absent(&self.target)?;
                fs::rename(&self.temporary, &self.target).map_err(&cannot)?;
            }
            Err(error) => return Err(cannot(error.into())),
        }
        self.renamed = true;
        let folder = match self.target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
