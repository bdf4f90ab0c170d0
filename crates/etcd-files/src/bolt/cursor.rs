//! Walking a bucket in key order.

use std::iter::FusedIterator;

use bytes::Bytes;

use super::db::{Db, Root};
use super::page::Page;
use super::source::Source;
use crate::error::{ReadError, shown};

/// The deepest tree that is followed. bbolt's own stay below ten.
pub(crate) const DEPTH_MAX: usize = 32;

/// A key with its value, or a bucket. Both are slices of their page, which lives as long as they do: copy what is kept.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key, or the bucket's name.
    pub key: Bytes,
    /// The value; of a bucket, its root and sequence.
    pub value: Bytes,
    /// Whether it is a bucket.
    pub is_bucket: bool,
    /// The page it stands on.
    pub page: u64,
    /// The file offset of the value.
    pub offset: u64,
}

/// Yields a bucket's entries in key order, and ends after the first error.
///
/// A page's keys must lie where its parent says, and only a root may be empty: so keys increase over the whole walk, and
/// a page that is reached twice is an error and no endless loop.
#[derive(Debug)]
pub struct Cursor<'db, S> {
    db: &'db Db<S>,
    root: Root,
    /// From the root to a leaf; empty before the start and after the end.
    stack: Vec<Level>,
    /// Not yet placed.
    fresh: bool,
}

#[derive(Clone, Debug)]
struct Level {
    page: Page,
    /// The element to look at next, or whose child is the next level.
    index: usize,
    /// All keys below this page are less.
    upper: Option<Bytes>,
}

impl<'db, S: Source> Cursor<'db, S> {
    pub(crate) fn new(db: &'db Db<S>, root: Root) -> Self {
        Cursor {
            db,
            root,
            stack: Vec::new(),
            fresh: true,
        }
    }

    /// Goes to the first entry that is not below `key`. Pages that the way shares with the last one are kept.
    ///
    /// # Errors
    /// When a page on the way is damaged; the cursor is at its end then.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), ReadError> {
        self.fresh = false;
        let old = std::mem::take(&mut self.stack);
        self.stack = self.way_to(key, old)?;
        Ok(())
    }

    fn way_to(&self, key: &[u8], old: Vec<Level>) -> Result<Vec<Level>, ReadError> {
        let mut way = Vec::with_capacity(old.len());
        let mut old = old.into_iter();
        let mut level = match old.next() {
            Some(level) => level,
            None => self.root_level()?,
        };
        loop {
            let (at, found) = level.page.search(key);
            let before = level.index;
            if level.page.leaf {
                level.index = at;
                way.push(level);
                return Ok(way);
            }
            // The child whose key is the last one not above the key; the first for a key below all.
            level.index = if found { at } else { at.saturating_sub(1) };
            let next = match old.next() {
                Some(below) if before == level.index => below,
                _ => {
                    old = Vec::new().into_iter();
                    self.below(&level, way.len() + 1)?
                }
            };
            way.push(std::mem::replace(&mut level, next));
        }
    }

    /// Goes to the last entry and gives it; the cursor is at its end then.
    pub(crate) fn last_entry(mut self) -> Result<Option<Entry>, ReadError> {
        let mut level = self.root_level()?;
        let mut depth = 1;
        while !level.page.leaf {
            level.index = level.page.count - 1;
            level = self.below(&level, depth)?;
            depth += 1;
        }
        self.stack.clear();
        Ok(level.page.count.checked_sub(1).map(|index| entry(&level.page, index)))
    }

    fn root_level(&self) -> Result<Level, ReadError> {
        let page = match &self.root {
            Root::Page(id) => self.db.page(*id)?,
            Root::Inline(page) => page.clone(),
        };
        if !page.leaf && page.count == 0 {
            return Err(page.damaged("a branch page without children".to_owned()));
        }
        Ok(Level {
            page,
            index: 0,
            upper: None,
        })
    }

    /// The child of a branch's current element. `depth` is how many levels stand above the child.
    fn below(&self, parent: &Level, depth: usize) -> Result<Level, ReadError> {
        let upper = if parent.index + 1 < parent.page.count {
            Some(parent.page.key_bytes(parent.index + 1))
        } else {
            parent.upper.clone()
        };
        let page = self.db.page(parent.page.child(parent.index))?;
        inside(&page, depth, parent.page.key(parent.index), upper.as_deref())?;
        Ok(Level { page, index: 0, upper })
    }

    fn advance(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.fresh {
            self.fresh = false;
            let root = self.root_level()?;
            self.stack.push(root);
        }
        while let Some(top) = self.stack.last_mut() {
            if top.index >= top.page.count {
                self.stack.pop();
                if let Some(parent) = self.stack.last_mut() {
                    parent.index += 1;
                }
            } else if top.page.leaf {
                top.index += 1;
                return Ok(Some(entry(&top.page, top.index - 1)));
            } else {
                let depth = self.stack.len();
                let next = self.below(&self.stack[depth - 1], depth)?;
                self.stack.push(next);
            }
        }
        Ok(None)
    }
}

/// A page below the root must hold something, and its keys must lie in `[lower, upper)`.
pub(crate) fn inside(page: &Page, depth: usize, lower: &[u8], upper: Option<&[u8]>) -> Result<(), ReadError> {
    if depth >= DEPTH_MAX {
        return Err(page.damaged(format!("the tree has more than {DEPTH_MAX} levels")));
    }
    let Some(last) = page.count.checked_sub(1) else {
        return Err(page.damaged("an empty page below a branch".to_owned()));
    };
    if page.key(0) < lower || upper.is_some_and(|upper| page.key(last) >= upper) {
        return Err(page.damaged(format!(
            "its keys {} to {} are not where its parent says: from {} to below {}",
            shown(page.key(0)),
            shown(page.key(last)),
            shown(lower),
            upper.map_or("the end".to_owned(), shown)
        )));
    }
    Ok(())
}

pub(crate) fn entry(page: &Page, index: usize) -> Entry {
    Entry {
        key: page.key_bytes(index),
        value: page.value_bytes(index),
        is_bucket: page.is_bucket(index),
        page: page.id,
        offset: page.value_offset(index),
    }
}

impl<S: Source> Iterator for Cursor<'_, S> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance().transpose();
        if matches!(next, Some(Err(_))) {
            self.stack.clear();
        }
        next
    }
}

impl<S: Source> FusedIterator for Cursor<'_, S> {}
