//! The full check: every page reached once, free, or a meta page; every key where it must be.

use bytes::Bytes;

use super::cursor::{entry, inside};
use super::db::{Db, Root};
use super::page::{Header, Page};
use super::source::Source;
use super::{FREELIST, HEADER, META, u16_at, u64_at};
use crate::error::ReadError;

/// At most this many problems are kept; the rest are counted.
const PROBLEMS_MAX: usize = 100;
/// The deepest nesting of buckets that is followed. etcd nests none.
const NESTING_MAX: usize = 64;

/// Something that is wrong with a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The page.
    pub page: u64,
    /// The file offset.
    pub offset: u64,
    /// What was found and expected.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "page {} at offset {}: {}", self.page, self.offset, self.what)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Pages of the file, by its meta page.
    pub pages: u64,
    /// Pages that hold data, overflow pages included.
    pub reached: u64,
    /// Pages that are free.
    pub free: u64,
    /// Buckets, the root among them.
    pub buckets: u64,
    /// Keys with values, in all buckets.
    pub keys: u64,
    /// What is wrong; empty for a sound file. At most 100.
    pub problems: Vec<Problem>,
    /// Problems beyond those.
    pub more_problems: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A tree or a part of one, still to be walked.
struct Task {
    root: Root,
    /// What the parent says of the keys; `None` for a bucket's root.
    bounds: Option<(Bytes, Option<Bytes>)>,
    depth: usize,
    nesting: usize,
}

struct Check<'db, S> {
    db: &'db Db<S>,
    report: Report,
    reached: Vec<u64>,
    tasks: Vec<Task>,
}

impl<S: Source> Db<S> {
    /// Checks the whole file. Takes time in proportion to its size, and a bit of memory per page.
    ///
    /// # Errors
    /// Only when reading fails; what is wrong with the file is in the report.
    pub fn check(&self) -> Result<Report, ReadError> {
        let mut check = Check {
            db: self,
            report: Report {
                pages: self.meta().pages,
                ..Report::default()
            },
            reached: vec![0; (self.meta().pages / 64 + 1) as usize],
            tasks: Vec::new(),
        };
        check.metas()?;
        check.tasks.push(Task {
            root: Root::Page(self.meta().root),
            bounds: None,
            depth: 0,
            nesting: 0,
        });
        while let Some(task) = check.tasks.pop() {
            check.tree(task)?;
        }
        check.free_pages()?;
        Ok(check.report)
    }
}

impl<S: Source> Check<'_, S> {
    /// Keeps what is wrong with the file; gives back what is wrong with reading it.
    fn note<T>(&mut self, result: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(ReadError::Damaged { page, offset, what }) => {
                self.problem(page, offset, what);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    fn problem(&mut self, page: u64, offset: u64, what: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(Problem { page, offset, what });
        } else {
            self.report.more_problems += 1;
        }
    }

    /// Marks pages as reached; false if one was already.
    fn reach(&mut self, id: u64, pages: u64) -> bool {
        for page in id..id + pages {
            let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
            if self.reached[word] & bit != 0 {
                self.problem(
                    page,
                    self.db.offset(page),
                    format!("reached a second time, from page {id}"),
                );
                return false;
            }
            self.reached[word] |= bit;
            self.report.reached += 1;
        }
        true
    }

    fn is_reached(&self, page: u64) -> bool {
        self.reached[(page / 64) as usize] & 1 << (page % 64) != 0
    }

    /// One torn meta page is normal after a crash; a sound one must stand where it says.
    fn metas(&mut self) -> Result<(), ReadError> {
        let page = self.db.meta().transaction % 2;
        let mut bytes = [0; HEADER];
        let offset = self.db.offset(page);
        self.db
            .source()
            .read_at(offset, &mut bytes)
            .map_err(|source| ReadError::Io {
                offset,
                length: HEADER,
                source,
            })?;
        let header = Header::decode(&bytes);
        if header.id != page || header.flags != META {
            self.problem(
                page,
                offset,
                format!("the header is of page {} with flags {:#06x}", header.id, header.flags),
            );
        }
        self.reach(0, 2);
        Ok(())
    }

    /// Looks at one page and notes its children.
    fn tree(&mut self, task: Task) -> Result<(), ReadError> {
        let page = match task.root {
            Root::Inline(page) => page,
            Root::Page(id) => {
                let run = self.db.run(id);
                let Some((header, bytes)) = self.note(run)? else {
                    return Ok(());
                };
                if !self.reach(id, u64::from(header.overflow) + 1) {
                    return Ok(());
                }
                let page = Page::parse(id, self.db.offset(id), bytes);
                match self.note(page)? {
                    Some(page) => page,
                    None => return Ok(()),
                }
            }
        };
        match &task.bounds {
            None => self.report.buckets += 1,
            Some((lower, upper)) => {
                let fits = inside(&page, task.depth, lower, upper.as_deref());
                if self.note(fits)?.is_none() {
                    return Ok(());
                }
            }
        }
        if page.leaf {
            return self.leaf(&page, task.nesting);
        }
        if page.count == 0 {
            self.problem(page.id, page.offset, "a branch page without children".to_owned());
        }
        let upper = task.bounds.and_then(|(_, upper)| upper);
        for index in (0..page.count).rev() {
            let end = if index + 1 < page.count {
                Some(page.key_bytes(index + 1))
            } else {
                upper.clone()
            };
            self.tasks.push(Task {
                root: Root::Page(page.child(index)),
                bounds: Some((page.key_bytes(index), end)),
                depth: task.depth + 1,
                nesting: task.nesting,
            });
        }
        Ok(())
    }

    fn leaf(&mut self, page: &Page, nesting: usize) -> Result<(), ReadError> {
        for index in 0..page.count {
            if !page.is_bucket(index) {
                self.report.keys += 1;
                continue;
            }
            let entry = entry(page, index);
            let opened = self.db.open_bucket(&entry).map(|bucket| bucket.root);
            let Some(root) = self.note(opened)? else { continue };
            if nesting >= NESTING_MAX {
                self.problem(
                    page.id,
                    entry.offset,
                    format!("buckets nest deeper than {NESTING_MAX} levels"),
                );
                continue;
            }
            self.tasks.push(Task {
                root,
                bounds: None,
                depth: 0,
                nesting: nesting + 1,
            });
        }
        Ok(())
    }

    /// Without a list of free pages, what was not reached is free. With one, each page is either.
    fn free_pages(&mut self) -> Result<(), ReadError> {
        let pages = self.report.pages;
        let Some(list) = self.db.meta().freelist else {
            self.report.free = pages.saturating_sub(self.report.reached);
            return Ok(());
        };
        let run = self.db.run(list);
        let Some((header, bytes)) = self.note(run)? else {
            return Ok(());
        };
        self.reach(list, u64::from(header.overflow) + 1);
        let offset = self.db.offset(list);
        if header.flags != FREELIST {
            self.problem(
                list,
                offset,
                format!("the flags are {:#06x}, not a list's", header.flags),
            );
            return Ok(());
        }
        // A list of 65535 pages or more has its length in its first number.
        let (count, from) = match u16_at(&bytes, 10) {
            u16::MAX if bytes.len() >= HEADER + 8 => (u64_at(&bytes, HEADER), HEADER + 8),
            count => (u64::from(count), HEADER),
        };
        if count > ((bytes.len() - from) / 8) as u64 {
            self.problem(list, offset, format!("{count} free pages do not fit in the list"));
            return Ok(());
        }
        for index in 0..count as usize {
            let page = u64_at(&bytes, from + 8 * index);
            let offset = offset + (from + 8 * index) as u64;
            if !(2..pages).contains(&page) {
                self.problem(list, offset, format!("free page {page} is none of {pages}"));
            } else if self.is_reached(page) {
                self.problem(list, offset, format!("free page {page} is in use, or free twice"));
            } else {
                self.reach(page, 1);
                self.report.reached -= 1;
                self.report.free += 1;
            }
        }
        for page in 2..pages {
            if !self.is_reached(page) {
                self.problem(page, self.db.offset(page), "neither reached nor free".to_owned());
            }
        }
        Ok(())
    }
}
