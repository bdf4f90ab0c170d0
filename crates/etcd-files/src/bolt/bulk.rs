//! Writes a whole bbolt file from sorted entries.

use std::io::{Seek, SeekFrom, Write};

use super::build::{Builder, Layout, PageWriter};
use super::meta::Meta;
use super::page::Header;
use crate::error::WriteError;

/// The size of the pages that are written; bbolt reads it from the file.
pub(crate) const PAGE_SIZE: usize = 4096;

/// What a writer made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Written {
    /// The file's size in bytes.
    pub size: u64,
    /// The pages, as the meta pages say.
    pub pages: u64,
    /// The root bucket's page.
    pub root: u64,
}

/// Makes a file that bbolt opens: all buckets in one pass, with a page per level of the open trees in memory. The meta
/// pages are written last, so that a file that was not finished is none.
///
/// It has no list of free pages, because it has no free pages; bbolt makes one when it opens it for writing.
pub struct BulkWriter<W: Write> {
    builder: Builder<Vec<u8>, Pages<W>>,
}

/// Writes pages one after the other.
pub(crate) struct Pages<W> {
    pub out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Pages<W> {
    pub fn new(out: W) -> Self {
        Pages {
            out,
            buffer: Vec::new(),
        }
    }

    /// Writes both meta pages, or zeros where they will be.
    pub fn metas(&mut self, layout: Option<Layout>) -> Result<(), WriteError> {
        let mut pages = vec![0; 2 * PAGE_SIZE];
        if let Some(layout) = layout {
            for transaction in 0..2 {
                let meta = Meta {
                    page_size: PAGE_SIZE as u32,
                    root: layout.root,
                    sequence: 0,
                    freelist: None,
                    pages: layout.pages,
                    transaction,
                }
                .encode_page();
                let at = transaction as usize * PAGE_SIZE;
                pages[at..at + meta.len()].copy_from_slice(&meta);
            }
        }
        self.out
            .write_all(&pages)
            .map_err(|source| WriteError::Io { page: 0, source })
    }

    pub fn flush(&mut self, page: u64) -> Result<(), WriteError> {
        self.out.flush().map_err(|source| WriteError::Io { page, source })
    }
}

impl<W: Write> PageWriter<Vec<u8>> for Pages<W> {
    fn page(&mut self, header: Header, elements: &[u8], data: &Vec<u8>, length: usize) -> Result<(), WriteError> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&header.encode());
        self.buffer.extend_from_slice(elements);
        self.buffer.extend_from_slice(data);
        self.buffer.resize(length, 0);
        let written = self.out.write_all(&self.buffer);
        // One huge value must not stay allocated for the rest of the file.
        self.buffer.shrink_to(64 * PAGE_SIZE);
        written.map_err(|source| WriteError::Io {
            page: header.id,
            source,
        })
    }
}

impl<W: Write + Seek> BulkWriter<W> {
    /// Begins a file where `out` stands.
    ///
    /// # Errors
    /// When a write fails.
    pub fn new(out: W) -> Result<Self, WriteError> {
        let mut pages = Pages::new(out);
        pages.metas(None)?;
        Ok(BulkWriter {
            builder: Builder::new(PAGE_SIZE, pages),
        })
    }

    /// Adds an entry to the bucket that was begun last.
    ///
    /// # Errors
    /// The key is not above the one before it, or too big; or a write fails.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.builder.put(key.to_vec(), value.to_vec())
    }

    /// Begins a bucket inside the one that was begun last. Its name takes its place among that one's keys when it ends.
    pub fn begin(&mut self, name: &[u8]) {
        self.builder.begin(name.to_vec());
    }

    /// Ends the bucket that was begun last.
    ///
    /// # Errors
    /// As [`BulkWriter::put`]; also when none was begun.
    pub fn end(&mut self) -> Result<(), WriteError> {
        self.builder.end()
    }

    /// Writes what is left, then the meta pages. Does not sync.
    ///
    /// # Errors
    /// A bucket is still open, or a write fails.
    pub fn finish(mut self) -> Result<(W, Written), WriteError> {
        let layout = self.builder.finish()?;
        let mut pages = self.builder.out;
        patch(&mut pages, layout)?;
        Ok((pages.out, written(layout)))
    }
}

/// Goes back and writes the meta pages, then returns to the end.
pub(crate) fn patch<W: Write + Seek>(pages: &mut Pages<W>, layout: Layout) -> Result<(), WriteError> {
    let failed = |source| WriteError::Io { page: 0, source };
    let length = i64::try_from(layout.pages * PAGE_SIZE as u64).expect("files are below 2^63");
    pages.out.seek(SeekFrom::Current(-length)).map_err(failed)?;
    pages.metas(Some(layout))?;
    pages
        .out
        .seek(SeekFrom::Current(length - 2 * PAGE_SIZE as i64))
        .map_err(failed)?;
    pages.flush(layout.pages)
}

pub(crate) fn written(layout: Layout) -> Written {
    Written {
        size: layout.pages * PAGE_SIZE as u64,
        pages: layout.pages,
        root: layout.root,
    }
}
