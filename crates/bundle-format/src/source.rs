//! Where the bytes of an archive are: in one file, or in the parts that `split` made of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Digest, Hasher};

/// The bytes of an archive, read at any place.
#[derive(Debug)]
pub(crate) struct Source {
    pieces: Vec<Piece>,
    length: u64,
    /// How many bytes were read so far.
    read: AtomicU64,
}

/// A row of bytes of the archive in one file.
#[derive(Debug)]
pub(crate) struct Piece {
    pub file: File,
    pub path: PathBuf,
    /// Where the bytes begin in the file.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// Of a part: what its own digest is of beside these bytes, and the digest.
    pub sum: Option<(Vec<u8>, Digest)>,
}

impl Source {
    /// The pieces follow one another.
    pub fn new(pieces: Vec<Piece>) -> Source {
        Source {
            length: pieces.iter().map(|piece| piece.length).sum(),
            pieces,
            read: AtomicU64::new(0),
        }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// How many bytes were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub fn is_split(&self) -> bool {
        self.pieces.iter().any(|piece| piece.sum.is_some())
    }

    /// The files of the pieces, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.pieces.iter().map(|piece| piece.path.as_path())
    }

    /// Follows the bytes of the archive, from the first on, and compares each part with its own digest.
    pub fn sums(&self) -> Sums<'_> {
        let mut sums = Sums {
            pieces: &self.pieces,
            left: 0,
            hasher: Hasher::new(),
            good: true,
        };
        sums.begin();
        sums
    }

    /// Fills `out` from byte `at` of the archive on.
    pub fn read_exact_at(&self, mut out: &mut [u8], at: u64) -> io::Result<()> {
        self.read.fetch_add(out.len() as u64, Ordering::Relaxed);
        let mut start = 0;
        let mut at = at;
        for piece in &self.pieces {
            let end = start + piece.length;
            if at < end && !out.is_empty() {
                let part = out.len().min((end - at) as usize);
                let (now, rest) = out.split_at_mut(part);
                piece.file.read_exact_at(now, piece.offset + at - start)?;
                (out, at) = (rest, at + part as u64);
            }
            start = end;
        }
        match out.is_empty() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The digests of parts, while their bytes go by.
pub(crate) struct Sums<'a> {
    /// The one that goes by, and those after it.
    pieces: &'a [Piece],
    /// How many bytes of it are to come.
    left: u64,
    hasher: Hasher,
    good: bool,
}

impl Sums<'_> {
    fn begin(&mut self) {
        self.hasher = Hasher::new();
        if let Some(piece) = self.pieces.first() {
            self.left = piece.length;
            if let Some((front, _)) = &piece.sum {
                self.hasher.update(front);
            }
        }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        // Of a bundle in one file nothing is asked.
        while let Some((_, expected)) = self.pieces.first().and_then(|piece| piece.sum.as_ref()) {
            let now = bytes.len().min(self.left as usize);
            self.hasher.update(&bytes[..now]);
            self.left -= now as u64;
            bytes = &bytes[now..];
            if self.left > 0 {
                return;
            }
            self.good &= std::mem::take(&mut self.hasher).finish() == *expected;
            self.pieces = &self.pieces[1..];
            self.begin();
        }
    }

    /// Whether every part had its digest.
    pub fn good(&self) -> bool {
        self.good && self.pieces.iter().all(|piece| piece.sum.is_none())
    }
}
