//! An open file and its buckets.

use bytes::Bytes;

use super::cursor::{Cursor, Entry};
use super::meta::{META_PAGE, Meta, PAGE_SIZES};
use super::page::{BRANCH_RUN_MAX, Header, Page, RUN_MAX};
use super::source::Source;
use super::{BRANCH, BUCKET, HEADER, u64_at};
use crate::error::ReadError;

/// A bbolt file, open for reading. Nothing is trusted but the meta page that was chosen.
#[derive(Debug)]
pub struct Db<S> {
    source: S,
    size: u64,
    meta: Meta,
}

/// A bucket of an open file.
#[derive(Debug)]
pub struct Bucket<'db, S> {
    pub(crate) db: &'db Db<S>,
    pub(crate) root: Root,
    sequence: u64,
}

/// Where a bucket's tree begins.
#[derive(Clone, Debug)]
pub(crate) enum Root {
    Page(u64),
    Inline(Page),
}

impl<S: Source> Db<S> {
    /// Opens a file: of its two meta pages the valid one of the newer transaction counts, as in bbolt.
    ///
    /// # Errors
    /// No meta page is valid, or the file is shorter than it must be.
    pub fn open(source: S) -> Result<Db<S>, ReadError> {
        let size = source.size().map_err(|source| ReadError::Io {
            offset: 0,
            length: 0,
            source,
        })?;
        Self::open_part(source, size)
    }

    /// Opens the first `size` bytes of a source.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_part(source: S, size: u64) -> Result<Db<S>, ReadError> {
        let meta_at = |offset: u64| -> Result<Result<Meta, String>, ReadError> {
            if offset + META_PAGE as u64 > size {
                return Ok(Err(format!("the file ends at {size}, before it")));
            }
            let bytes = read(&source, offset, META_PAGE)?;
            Ok(Meta::decode(bytes[HEADER..].try_into().expect("64 bytes")))
        };
        let first = meta_at(0)?;
        let second = match &first {
            Ok(meta) => meta_at(u64::from(meta.page_size))?,
            Err(_) => {
                // Without the first copy the page size is unknown: the second says its own.
                let mut found = Err("not found at any page size".to_owned());
                let mut page_size = *PAGE_SIZES.start();
                while page_size <= *PAGE_SIZES.end() {
                    match meta_at(u64::from(page_size))? {
                        Ok(meta) if meta.page_size == page_size => {
                            found = Ok(meta);
                            break;
                        }
                        _ => page_size *= 2,
                    }
                }
                found
            }
        };
        let meta = match (first, second) {
            (Ok(first), Ok(second)) if second.page_size == first.page_size => {
                if second.transaction > first.transaction {
                    second
                } else {
                    first
                }
            }
            (Ok(meta), _) | (Err(_), Ok(meta)) => meta,
            (Err(first), Err(second)) => return Err(ReadError::NoMeta { first, second }),
        };
        match meta.pages.checked_mul(u64::from(meta.page_size)) {
            Some(expected) if expected <= size => Ok(Db { source, size, meta }),
            expected => Err(ReadError::Short {
                found: size,
                expected: expected.unwrap_or(u64::MAX),
            }),
        }
    }

    /// The meta page that counts.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The bytes of the file, without a snapshot's checksum.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The bucket that holds all others.
    pub fn root(&self) -> Bucket<'_, S> {
        Bucket {
            db: self,
            root: Root::Page(self.meta.root),
            sequence: self.meta.sequence,
        }
    }

    /// A bucket of the root bucket.
    ///
    /// # Errors
    /// When the way to it is damaged.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'_, S>>, ReadError> {
        self.root().bucket(name)
    }

    pub(crate) fn offset(&self, page: u64) -> u64 {
        page * u64::from(self.meta.page_size)
    }

    /// A page's header and its bytes with all overflow pages.
    pub(crate) fn run(&self, id: u64) -> Result<(Header, Bytes), ReadError> {
        if !(2..self.meta.pages).contains(&id) {
            return Err(ReadError::Damaged {
                page: id,
                offset: id.saturating_mul(u64::from(self.meta.page_size)),
                what: format!("there is no such page: they are 2 to {}", self.meta.pages - 1),
            });
        }
        let offset = self.offset(id);
        let page_size = self.meta.page_size as usize;
        let mut bytes = read(&self.source, offset, page_size)?;
        let header = Header::decode(&bytes);
        let damaged = |at: u64, what: String| ReadError::Damaged {
            page: id,
            offset: offset + at,
            what,
        };
        if header.id != id {
            return Err(damaged(0, format!("the page says that it is page {}", header.id)));
        }
        let run = u64::from(header.overflow) + 1;
        let run_max = if header.flags == BRANCH {
            BRANCH_RUN_MAX
        } else {
            RUN_MAX
        };
        let most = (self.meta.pages - id).min(run_max / page_size as u64);
        if run > most {
            return Err(damaged(
                12,
                format!("{} overflow pages, where at most {} can be", header.overflow, most - 1),
            ));
        }
        if header.overflow > 0 {
            let length = page_size * run as usize;
            bytes.resize(length, 0);
            fill(&self.source, offset + page_size as u64, &mut bytes[page_size..])?;
        }
        Ok((header, bytes.into()))
    }

    /// A branch or leaf page.
    pub(crate) fn page(&self, id: u64) -> Result<Page, ReadError> {
        let (_, bytes) = self.run(id)?;
        Page::parse(id, self.offset(id), bytes)
    }

    /// The bucket that a leaf element holds.
    pub(crate) fn open_bucket(&self, entry: &Entry) -> Result<Bucket<'_, S>, ReadError> {
        let damaged = |what: String| ReadError::Damaged {
            page: entry.page,
            offset: entry.offset,
            what,
        };
        if entry.value.len() < BUCKET {
            return Err(damaged(format!(
                "a bucket of {} bytes, where {BUCKET} are the least",
                entry.value.len()
            )));
        }
        let root = match u64_at(&entry.value, 0) {
            0 => {
                let page = Page::parse(entry.page, entry.offset + BUCKET as u64, entry.value.slice(BUCKET..))?;
                if !page.leaf {
                    return Err(damaged("an inline bucket that is a branch page".to_owned()));
                }
                Root::Inline(page)
            }
            root => Root::Page(root),
        };
        Ok(Bucket {
            db: self,
            root,
            sequence: u64_at(&entry.value, 8),
        })
    }
}

impl<'db, S: Source> Bucket<'db, S> {
    /// The bucket's sequence, which etcd does not use.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// A cursor before the first entry.
    pub fn cursor(&self) -> Cursor<'db, S> {
        Cursor::new(self.db, self.root.clone())
    }

    /// The entry of a key; buckets are not entries with a value, see [`Bucket::bucket`].
    ///
    /// # Errors
    /// When the way to it is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        let mut cursor = self.cursor();
        cursor.seek(key)?;
        match cursor.next().transpose()? {
            Some(entry) if entry.key == key && !entry.is_bucket => Ok(Some(entry.value)),
            _ => Ok(None),
        }
    }

    /// The bucket of that name in this one.
    ///
    /// # Errors
    /// When the way to it is damaged.
    pub fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'db, S>>, ReadError> {
        let mut cursor = self.cursor();
        cursor.seek(name)?;
        match cursor.next().transpose()? {
            Some(entry) if entry.key == name && entry.is_bucket => self.db.open_bucket(&entry).map(Some),
            _ => Ok(None),
        }
    }

    /// The bucket that an entry of this one holds.
    ///
    /// # Errors
    /// When it is damaged, or no bucket.
    pub fn child(&self, entry: &Entry) -> Result<Bucket<'db, S>, ReadError> {
        if !entry.is_bucket {
            return Err(ReadError::Damaged {
                page: entry.page,
                offset: entry.offset,
                what: "a value where a bucket was expected".to_owned(),
            });
        }
        self.db.open_bucket(entry)
    }

    /// The last entry.
    ///
    /// # Errors
    /// When the way to it is damaged.
    pub fn last(&self) -> Result<Option<Entry>, ReadError> {
        self.cursor().last_entry()
    }
}

fn read(source: &impl Source, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; length];
    fill(source, offset, &mut bytes)?;
    Ok(bytes)
}

fn fill(source: &impl Source, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
    let length = buffer.len();
    source
        .read_at(offset, buffer)
        .map_err(|source| ReadError::Io { offset, length, source })
}
