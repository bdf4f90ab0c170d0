//! The SHA-256 at the end of a snapshot.

use std::io::{self, Write};

use sha2::{Digest, Sha256};

use crate::bolt::Source;
use crate::error::ReadError;

/// The length of the sum.
pub const SUM: usize = 32;

/// Sums up what is written through it.
pub struct Hashing<W> {
    out: W,
    sum: Sha256,
}

impl<W: Write> Hashing<W> {
    /// Sums up from here on.
    pub fn new(out: W) -> Self {
        Hashing {
            out,
            sum: Sha256::new(),
        }
    }

    /// The sum, for a stream whose last message carries it.
    pub fn finish(self) -> (W, [u8; SUM]) {
        (self.out, self.sum.finalize().into())
    }

    /// Writes the sum behind the rest, as `etcdctl snapshot save` has it. Does not sync.
    ///
    /// # Errors
    /// When a write fails.
    pub fn append(self) -> io::Result<(W, [u8; SUM])> {
        let (mut out, sum) = self.finish();
        out.write_all(&sum)?;
        out.flush()?;
        Ok((out, sum))
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether a file of this length has a sum at its end.
pub(crate) fn has_sum(size: u64) -> bool {
    size % 512 == SUM as u64
}

/// Compares the sum behind the first `size` bytes with theirs.
pub(crate) fn verify(source: &impl Source, size: u64) -> Result<(), ReadError> {
    let mut buffer = vec![0; 1 << 18];
    let mut sum = Sha256::new();
    let mut read = |offset: u64, length: usize| -> Result<Vec<u8>, ReadError> {
        source
            .read_at(offset, &mut buffer[..length])
            .map_err(|source| ReadError::Io { offset, length, source })?;
        Ok(buffer[..length].to_vec())
    };
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(1 << 18) as usize;
        sum.update(&read(offset, length)?);
        offset += length as u64;
    }
    let found: [u8; SUM] = sum.finalize().into();
    let expected = read(size, SUM)?;
    if found[..] == expected[..] {
        return Ok(());
    }
    Err(ReadError::Sum {
        found: crate::error::shown(&found),
        expected: crate::error::shown(&expected),
    })
}
