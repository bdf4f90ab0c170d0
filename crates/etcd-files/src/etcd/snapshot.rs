//! Writes an etcd database from records in the order of revisions, in one pass.
//!
//! A file may be patched at its beginning, a stream may not, and its receiver wants to know its length first. So a stream
//! is measured ([`Measure`]) from the lengths of the same records, and then written ([`SnapshotWriter`]); a file needs
//! only [`FileWriter`].

use std::collections::{HashMap, HashSet};
use std::io::{Seek, Write};

use super::head::Head;
use super::record::{self, Revision};
use super::sum::SUM;
use super::{BUCKETS, KEY, LEASE};
use crate::bolt::bulk::{PAGE_SIZE, Pages, patch};
use crate::bolt::{Builder, Content, Count, Layout, PageWriter};
use crate::error::{WriteError, shown};

/// How long a database will be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Measured(Layout);

impl Measured {
    /// The bytes of the database, without the sum.
    pub fn bytes(&self) -> u64 {
        self.0.pages * PAGE_SIZE as u64
    }

    /// The bytes of a snapshot: the database and the sum behind it.
    pub fn bytes_with_sum(&self) -> u64 {
        self.bytes() + SUM as u64
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Finished {
    /// The bytes of the database, without a sum.
    pub size: u64,
    /// How many records.
    pub records: u64,
    /// The hash that `etcdutl snapshot status` shows.
    pub status_hash: u32,
}

/// Learns from lengths how long a database will be.
pub struct Measure {
    composer: Composer<Count, ()>,
}

impl Measure {
    /// Begins; the same head must be written later.
    ///
    /// # Errors
    /// When an entry of the head is too big.
    pub fn new(head: &Head) -> Result<Measure, WriteError> {
        Ok(Measure {
            composer: Composer::new(head, ())?,
        })
    }

    /// A put, in the order of revisions.
    ///
    /// # Errors
    /// When it is too big.
    pub fn put(
        &mut self,
        revision: Revision,
        key: usize,
        value: usize,
        create_revision: i64,
        version: i64,
        lease: i64,
    ) -> Result<(), WriteError> {
        let length = record::put_length(revision.main, key, value, create_revision, version, lease);
        self.composer.record(revision, false, Count(length))
    }

    /// A delete, in the order of revisions.
    ///
    /// # Errors
    /// When it is too big.
    pub fn delete(&mut self, revision: Revision, key: usize) -> Result<(), WriteError> {
        let length = record::put_length(0, key, 0, 0, 0, 0);
        self.composer.record(revision, true, Count(length))
    }

    /// The result.
    ///
    /// # Errors
    /// The records do not lead to the head's revision.
    pub fn finish(mut self) -> Result<Measured, WriteError> {
        self.composer.finish().map(Measured)
    }
}

/// Writes a database into a stream, page after page. For the sum behind it, see [`super::Hashing`].
///
/// In memory stay a page per level of the tree, the greatest value, and the keys whose newest record so far names a
/// lease that is not in the head.
pub struct SnapshotWriter<W: Write> {
    records: Records<W>,
    measured: Layout,
}

impl<W: Write> SnapshotWriter<W> {
    /// Begins with what was measured.
    ///
    /// # Errors
    /// When a write fails.
    pub fn new(out: W, head: &Head, measured: Measured) -> Result<Self, WriteError> {
        let mut pages = Pages::new(out);
        pages.metas(Some(measured.0))?;
        Ok(SnapshotWriter {
            records: Records::new(head, pages)?,
            measured: measured.0,
        })
    }

    /// A put, in the order of revisions.
    ///
    /// # Errors
    /// It is out of order or too big, or a write fails.
    pub fn put(
        &mut self,
        revision: Revision,
        key: &[u8],
        value: &[u8],
        create_revision: i64,
        version: i64,
        lease: i64,
    ) -> Result<(), WriteError> {
        self.records.put(revision, key, value, create_revision, version, lease)
    }

    /// A delete, in the order of revisions.
    ///
    /// # Errors
    /// It is out of order or too big, or a write fails.
    pub fn delete(&mut self, revision: Revision, key: &[u8]) -> Result<(), WriteError> {
        self.records.delete(revision, key)
    }

    /// Writes what is left. After an error the receiver must not get the sum.
    ///
    /// # Errors
    /// The records are not those that were measured, do not lead to the head's revision, or leave a live key with an
    /// unknown lease; or a write fails.
    pub fn finish(self) -> Result<(W, Finished), WriteError> {
        let measured = self.measured;
        let (mut pages, layout, finished) = self.records.finish()?;
        if layout != measured {
            return Err(WriteError::Measured {
                written: layout.pages,
                root: layout.root,
                measured: measured.pages,
                measured_root: measured.root,
            });
        }
        pages.flush(layout.pages)?;
        Ok((pages.out, finished))
    }
}

/// Writes a database into a file; its meta pages last, so that an unfinished file is none.
pub struct FileWriter<W: Write + Seek> {
    records: Records<W>,
}

impl<W: Write + Seek> FileWriter<W> {
    /// Begins a database where `out` stands. Writes are of whole pages, but may be small: give it a buffered writer.
    ///
    /// # Errors
    /// When a write fails.
    pub fn new(out: W, head: &Head) -> Result<Self, WriteError> {
        let mut pages = Pages::new(out);
        pages.metas(None)?;
        Ok(FileWriter {
            records: Records::new(head, pages)?,
        })
    }

    /// A put, in the order of revisions.
    ///
    /// # Errors
    /// It is out of order or too big, or a write fails.
    pub fn put(
        &mut self,
        revision: Revision,
        key: &[u8],
        value: &[u8],
        create_revision: i64,
        version: i64,
        lease: i64,
    ) -> Result<(), WriteError> {
        self.records.put(revision, key, value, create_revision, version, lease)
    }

    /// A delete, in the order of revisions.
    ///
    /// # Errors
    /// It is out of order or too big, or a write fails.
    pub fn delete(&mut self, revision: Revision, key: &[u8]) -> Result<(), WriteError> {
        self.records.delete(revision, key)
    }

    /// Writes what is left, then the meta pages. Does not sync.
    ///
    /// # Errors
    /// The records do not lead to the head's revision, or leave a live key with an unknown lease; or a write fails.
    pub fn finish(self) -> Result<(W, Finished), WriteError> {
        let (mut pages, layout, finished) = self.records.finish()?;
        patch(&mut pages, layout)?;
        Ok((pages.out, finished))
    }
}

/// Records with their bytes, and what is known of them.
struct Records<W: Write> {
    composer: Composer<Vec<u8>, Pages<W>>,
    leases: HashSet<i64>,
    /// Keys whose newest record so far names an unknown lease.
    dangling: HashMap<Box<[u8]>, i64>,
    records: u64,
}

impl<W: Write> Records<W> {
    fn new(head: &Head, pages: Pages<W>) -> Result<Self, WriteError> {
        let leases = head
            .bucket(LEASE)
            .filter_map(|(id, _)| Some(i64::from_be_bytes(id[..].try_into().ok()?)))
            .collect();
        Ok(Records {
            composer: Composer::new(head, pages)?,
            leases,
            dangling: HashMap::new(),
            records: 0,
        })
    }

    fn put(
        &mut self,
        revision: Revision,
        key: &[u8],
        value: &[u8],
        create_revision: i64,
        version: i64,
        lease: i64,
    ) -> Result<(), WriteError> {
        if lease != 0 && !self.leases.contains(&lease) {
            self.dangling.insert(Box::from(key), lease);
        } else if !self.dangling.is_empty() {
            self.dangling.remove(key);
        }
        let length = record::put_length(revision.main, key.len(), value.len(), create_revision, version, lease);
        let mut bytes = Vec::with_capacity(length);
        record::encode_put(&mut bytes, revision.main, key, value, create_revision, version, lease);
        self.records += 1;
        self.composer.record(revision, false, bytes)
    }

    fn delete(&mut self, revision: Revision, key: &[u8]) -> Result<(), WriteError> {
        self.dangling.remove(key);
        let mut bytes = Vec::new();
        record::encode_put(&mut bytes, 0, key, &[], 0, 0, 0);
        self.records += 1;
        self.composer.record(revision, true, bytes)
    }

    fn finish(mut self) -> Result<(Pages<W>, Layout, Finished), WriteError> {
        if let Some((key, lease)) = self.dangling.iter().min() {
            return Err(WriteError::Lease {
                keys: self.dangling.len(),
                key: shown(key),
                lease: *lease,
            });
        }
        let layout = self.composer.finish()?;
        let finished = Finished {
            size: layout.pages * PAGE_SIZE as u64,
            records: self.records,
            status_hash: self.composer.hash,
        };
        Ok((self.composer.builder.out, layout, finished))
    }
}

/// Puts the buckets in order around the records: the same for lengths and for bytes.
struct Composer<C, W> {
    builder: Builder<C, W>,
    head: Head,
    last: i64,
    hash: u32,
}

impl<C: Content, W: PageWriter<C>> Composer<C, W> {
    fn new(head: &Head, out: W) -> Result<Self, WriteError> {
        let mut composer = Composer {
            builder: Builder::new(PAGE_SIZE, out),
            head: head.clone(),
            last: 0,
            hash: 0,
        };
        for name in BUCKETS.into_iter().take_while(|name| *name != KEY) {
            composer.small(name)?;
        }
        composer.begin(KEY);
        Ok(composer)
    }

    fn record(&mut self, revision: Revision, deleted: bool, value: C) -> Result<(), WriteError> {
        self.last = revision.main;
        let mut key = C::default();
        key.push(&revision.encode());
        if deleted {
            key.push(b"t");
        }
        self.put(key, value)
    }

    fn finish(&mut self) -> Result<Layout, WriteError> {
        let (head, compacted) = (self.head.revision(), self.head.compacted());
        if head != self.last.max(compacted).max(1) {
            return Err(WriteError::Head {
                head,
                last: self.last,
                compacted,
            });
        }
        self.builder.end()?;
        for name in BUCKETS.into_iter().skip_while(|name| *name != KEY).skip(1) {
            self.small(name)?;
        }
        self.builder.finish()
    }

    fn small(&mut self, name: &'static str) -> Result<(), WriteError> {
        self.begin(name);
        let entries: Vec<(C, C)> = self
            .head
            .bucket(name)
            .map(|(key, value)| (content(key), content(value)))
            .collect();
        for (key, value) in entries {
            self.put(key, value)?;
        }
        self.builder.end()
    }

    fn begin(&mut self, name: &str) {
        self.hash = crc32c::crc32c_append(self.hash, name.as_bytes());
        self.builder.begin(content(name.as_bytes()));
    }

    fn put(&mut self, key: C, value: C) -> Result<(), WriteError> {
        self.hash = crc32c::crc32c_append(self.hash, key.bytes());
        self.hash = crc32c::crc32c_append(self.hash, value.bytes());
        self.builder.put(key, value)
    }
}

fn content<C: Content>(bytes: &[u8]) -> C {
    let mut content = C::default();
    content.push(bytes);
    content
}
