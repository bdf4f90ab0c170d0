//! Where the bytes come from.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use bytes::Bytes;

/// Bytes that can be read from any place.
pub trait Source {
    /// How many there are.
    ///
    /// # Errors
    /// When they cannot be counted.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// When a read fails or the bytes end before the buffer does.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl Source for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl Source for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|from| self.get(from..from.checked_add(buffer.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(found);
        Ok(())
    }
}

impl Source for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        self.as_slice().size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buffer)
    }
}

impl Source for Bytes {
    fn size(&self) -> io::Result<u64> {
        self[..].size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self[..].read_at(offset, buffer)
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
}

/// Makes a source of anything that reads and seeks.
pub struct Seeking<R>(Mutex<R>);

impl<R: Read + Seek> Seeking<R> {
    /// Of this reader, whose position no longer matters.
    pub fn new(reader: R) -> Self {
        Seeking(Mutex::new(reader))
    }
}

impl<R: Read + Seek> Source for Seeking<R> {
    fn size(&self) -> io::Result<u64> {
        let mut reader = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        reader.seek(SeekFrom::End(0))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut reader = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        reader.seek(SeekFrom::Start(offset))?;
        reader.read_exact(buffer)
    }
}
