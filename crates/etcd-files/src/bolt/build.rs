//! Packs sorted entries into pages, bottom up, in one pass.
//!
//! Where a page ends depends on lengths alone. So the same code runs over the lengths first ([`Count`]) to learn how many
//! pages there will be, and then over the bytes, and comes to the same pages.
//!
//! A page is written as soon as nothing can be added to it, branches among the leaves: what stays in memory is a page
//! per level of the tree.

use super::page::Header;
use super::{BRANCH, BUCKET, ELEMENT, HEADER, IS_BUCKET, KEY_MAX, LEAF, VALUE_MAX};
use crate::error::WriteError;

/// A leaf whose elements fill its pages badly goes on, up to so many pages.
const LEAF_PAGES_MAX: usize = 8;
/// The most elements of a page that `count` can tell.
const ELEMENTS_MAX: usize = u16::MAX as usize;

/// Bytes, or only how many there are.
pub(crate) trait Content: Default {
    fn len(&self) -> usize;
    /// Adds these bytes.
    fn push(&mut self, bytes: &[u8]);
    fn append(&mut self, other: Self);
    /// Whether this may come before `next`; always if both are only lengths.
    fn before(&self, next: &Self) -> bool;
    /// The bytes, for an error's message.
    fn bytes(&self) -> &[u8];
    fn copy(&self) -> Self;
}

impl Content for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn append(&mut self, mut other: Self) {
        Vec::append(self, &mut other);
    }

    fn before(&self, next: &Self) -> bool {
        self < next
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn copy(&self) -> Self {
        self.clone()
    }
}

/// How many bytes there are, instead of the bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(pub usize);

impl Content for Count {
    fn len(&self) -> usize {
        self.0
    }

    fn push(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn append(&mut self, other: Self) {
        self.0 += other.0;
    }

    fn before(&self, _: &Self) -> bool {
        true
    }

    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn copy(&self) -> Self {
        *self
    }
}

/// Takes whole pages, in the order of their numbers.
pub(crate) trait PageWriter<C> {
    /// `pages` pages from `header.id` on: the header, the elements, the data, and zeros.
    fn page(&mut self, header: Header, elements: &[u8], data: &C, length: usize) -> Result<(), WriteError>;
}

/// Only counts.
impl PageWriter<Count> for () {
    fn page(&mut self, _: Header, _: &[u8], _: &Count, _: usize) -> Result<(), WriteError> {
        Ok(())
    }
}

/// What a file's meta pages say of its pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Layout {
    pub root: u64,
    pub pages: u64,
}

/// Builds buckets, one inside the other, from sorted entries.
pub(crate) struct Builder<C, W> {
    page_size: usize,
    next: u64,
    /// The root bucket, and those that were begun and not ended.
    open: Vec<Open<C>>,
    pub(crate) out: W,
}

/// A bucket that is being built.
struct Open<C> {
    name: C,
    last: Option<C>,
    leaf: Leaf<C>,
    /// From the level above the leaves: the first keys and pages of children that are on no branch yet.
    branches: Vec<Vec<(C, u64)>>,
    has_buckets: bool,
}

#[derive(Default)]
struct Leaf<C> {
    /// Flags, key length and value length of each element.
    heads: Vec<(u32, u32, u32)>,
    data: C,
    /// The first element's key.
    first: C,
}

impl<C: Content> Open<C> {
    fn new(name: C) -> Self {
        Open {
            name,
            last: None,
            leaf: Leaf {
                heads: Vec::new(),
                data: C::default(),
                first: C::default(),
            },
            branches: Vec::new(),
            has_buckets: false,
        }
    }
}

impl<C: Content> Leaf<C> {
    fn size(&self) -> usize {
        HEADER + self.heads.len() * ELEMENT + self.data.len()
    }
}

impl<C: Content, W: PageWriter<C>> Builder<C, W> {
    pub fn new(page_size: usize, out: W) -> Self {
        Builder {
            page_size,
            next: 2,
            open: vec![Open::new(C::default())],
            out,
        }
    }

    /// Entries and children that wait for their page.
    #[cfg(test)]
    pub fn waiting(&self) -> (usize, usize) {
        let leaves = self.open.iter().map(|bucket| bucket.leaf.heads.len()).sum();
        let branches = self.open.iter().flat_map(|bucket| &bucket.branches);
        (leaves, branches.map(Vec::len).sum())
    }

    pub fn put(&mut self, key: C, value: C) -> Result<(), WriteError> {
        self.add(0, key, value)
    }

    pub fn begin(&mut self, name: C) {
        self.open.push(Open::new(name));
    }

    pub fn end(&mut self) -> Result<(), WriteError> {
        if self.open.len() < 2 {
            return Err(WriteError::Nesting("one was ended that was not begun"));
        }
        let mut bucket = self.open.pop().expect("two are open");
        let mut value = C::default();
        let inline = bucket.branches.is_empty() && !bucket.has_buckets && bucket.leaf.size() <= self.page_size / 4;
        if inline {
            value.push(&[0; BUCKET]);
            let header = Header {
                id: 0,
                flags: LEAF,
                count: bucket.leaf.heads.len() as u16,
                overflow: 0,
            };
            value.push(&header.encode());
            value.push(&leaf_elements(&bucket.leaf.heads));
            value.append(bucket.leaf.data);
        } else {
            let root = self.close(&mut bucket)?;
            value.push(&root.to_le_bytes());
            value.push(&[0; 8]);
        }
        self.add(IS_BUCKET, bucket.name, value)
    }

    /// Writes what is left. Gives back where the pages went.
    pub fn finish(&mut self) -> Result<Layout, WriteError> {
        if self.open.len() != 1 {
            return Err(WriteError::Nesting("one was begun and not ended"));
        }
        let mut bucket = self.open.pop().expect("one is open");
        let root = self.close(&mut bucket)?;
        Ok(Layout { root, pages: self.next })
    }

    fn add(&mut self, flags: u32, key: C, value: C) -> Result<(), WriteError> {
        if key.len() == 0 || key.len() > KEY_MAX || value.len() as u64 > VALUE_MAX {
            return Err(WriteError::TooBig {
                key: key.len(),
                value: value.len() as u64,
                key_max: KEY_MAX,
                value_max: VALUE_MAX,
            });
        }
        let depth = self.open.len() - 1;
        if let Some(last) = self.open[depth].last.as_ref().filter(|last| !last.before(&key)) {
            return Err(WriteError::Order {
                key: crate::error::shown(key.bytes()),
                last: crate::error::shown(last.bytes()),
            });
        }
        if self.is_full(ELEMENT + key.len() + value.len()) {
            let mut bucket = std::mem::replace(&mut self.open[depth], Open::new(C::default()));
            self.leaf(&mut bucket)?;
            self.open[depth] = bucket;
        }
        let bucket = &mut self.open[depth];
        bucket.has_buckets |= flags & IS_BUCKET != 0;
        if bucket.leaf.heads.is_empty() {
            bucket.leaf.first = key.copy();
        }
        bucket.leaf.heads.push((flags, key.len() as u32, value.len() as u32));
        bucket.last = Some(key.copy());
        bucket.leaf.data.append(key);
        bucket.leaf.data.append(value);
        Ok(())
    }

    /// Whether the open leaf should be written before so many bytes are added. A leaf may go on over several pages where
    /// ending it would waste more than an eighth: objects of half a page would otherwise waste half of the file.
    fn is_full(&self, more: usize) -> bool {
        let leaf = &self.open[self.open.len() - 1].leaf;
        if leaf.heads.is_empty() {
            return false;
        }
        let (now, then) = (
            leaf.size().div_ceil(self.page_size),
            (leaf.size() + more).div_ceil(self.page_size),
        );
        let waste = now * self.page_size - leaf.size();
        leaf.heads.len() >= ELEMENTS_MAX || then > now && (then > LEAF_PAGES_MAX || waste * 8 <= now * self.page_size)
    }

    /// Writes the open leaf.
    fn leaf(&mut self, bucket: &mut Open<C>) -> Result<(), WriteError> {
        let first = std::mem::take(&mut bucket.leaf.first);
        let elements = leaf_elements(&bucket.leaf.heads);
        let data = std::mem::take(&mut bucket.leaf.data);
        let page = self.write(LEAF, bucket.leaf.heads.len(), &elements, &data)?;
        bucket.leaf.heads.clear();
        self.child(bucket, 0, first, page)
    }

    /// Adds a child to a level of branches; writes the level's page once it is full.
    ///
    /// Two children always stay behind: bbolt panics when it deletes from a page that is its parent's only one, so no
    /// branch may end with one child.
    fn child(&mut self, bucket: &mut Open<C>, level: usize, first: C, page: u64) -> Result<(), WriteError> {
        if bucket.branches.len() == level {
            bucket.branches.push(Vec::new());
        }
        let children = &mut bucket.branches[level];
        children.push((first, page));
        let full = fitting(children, self.page_size);
        if children.len() < full + 2 {
            return Ok(());
        }
        self.branch(bucket, level, full)
    }

    /// Writes the first `count` children of a level as a page.
    fn branch(&mut self, bucket: &mut Open<C>, level: usize, count: usize) -> Result<(), WriteError> {
        let children: Vec<(C, u64)> = bucket.branches[level].drain(..count).collect();
        let mut elements = Vec::with_capacity(count * ELEMENT);
        let mut data = C::default();
        for (index, (key, page)) in children.iter().enumerate() {
            let position = (count - index) * ELEMENT + data.len();
            elements.extend_from_slice(&(position as u32).to_le_bytes());
            elements.extend_from_slice(&(key.len() as u32).to_le_bytes());
            elements.extend_from_slice(&page.to_le_bytes());
            data.append(key.copy());
        }
        let page = self.write(BRANCH, count, &elements, &data)?;
        let first = children.into_iter().next().expect("a branch has children").0;
        self.child(bucket, level + 1, first, page)
    }

    /// Writes all that is left of a bucket. Gives back its root.
    fn close(&mut self, bucket: &mut Open<C>) -> Result<u64, WriteError> {
        if !bucket.leaf.heads.is_empty() || bucket.branches.is_empty() {
            self.leaf(bucket)?;
        }
        let mut level = 0;
        loop {
            let top = level + 1 == bucket.branches.len();
            let count = bucket.branches[level].len();
            if top && count == 1 {
                return Ok(bucket.branches[level][0].1);
            }
            let full = fitting(&bucket.branches[level], self.page_size);
            if full < count && full > 2 {
                // One more than fits: the second page gets two.
                self.branch(bucket, level, count - 2)?;
            }
            let rest = bucket.branches[level].len();
            self.branch(bucket, level, rest)?;
            level += 1;
        }
    }

    fn write(&mut self, flags: u16, count: usize, elements: &[u8], data: &C) -> Result<u64, WriteError> {
        let pages = (HEADER + elements.len() + data.len()).div_ceil(self.page_size);
        let id = self.next;
        let header = Header {
            id,
            flags,
            count: count as u16,
            overflow: (pages - 1) as u32,
        };
        self.out.page(header, elements, data, pages * self.page_size)?;
        self.next += pages as u64;
        Ok(id)
    }
}

/// How many of the children go on one page; at least two.
fn fitting<C: Content>(children: &[(C, u64)], page_size: usize) -> usize {
    let mut size = HEADER;
    let fit = children
        .iter()
        .take_while(|(key, _)| {
            size += ELEMENT + key.len();
            size <= page_size
        })
        .count();
    fit.max(2)
}

fn leaf_elements(heads: &[(u32, u32, u32)]) -> Vec<u8> {
    let mut elements = Vec::with_capacity(heads.len() * ELEMENT);
    let mut data = 0;
    for (index, (flags, key, value)) in heads.iter().enumerate() {
        let position = (heads.len() - index) * ELEMENT + data;
        for number in [*flags, position as u32, *key, *value] {
            elements.extend_from_slice(&number.to_le_bytes());
        }
        data += (*key + *value) as usize;
    }
    elements
}
