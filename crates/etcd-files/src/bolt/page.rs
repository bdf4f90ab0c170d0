//! A branch or leaf page whose every element was found to be inside it and in order.

use bytes::Bytes;

use super::{BRANCH, ELEMENT, HEADER, IS_BUCKET, LEAF, u16_at, u32_at, u64_at};
use crate::error::{ReadError, shown};

/// The longest run of a page and its overflow pages that is read, in bytes: what one leaf may take in memory.
pub const RUN_MAX: u64 = 256 << 20;
/// The same for a branch. bbolt gives a branch overflow pages only where four of the longest keys need them; a page for
/// each level of a tree is in memory at once.
pub(crate) const BRANCH_RUN_MAX: u64 = 1 << 20;

/// A page, trusted: its elements lie inside it, one after the other, and their keys increase.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Its number; that of the page around it for an inline bucket's.
    pub id: u64,
    /// The file offset of its first byte.
    pub offset: u64,
    pub leaf: bool,
    pub count: usize,
    bytes: Bytes,
}

/// What the header of a page says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub id: u64,
    pub flags: u16,
    pub count: u16,
    pub overflow: u32,
}

impl Header {
    /// Of at least 16 bytes.
    pub fn decode(bytes: &[u8]) -> Header {
        Header {
            id: u64_at(bytes, 0),
            flags: u16_at(bytes, 8),
            count: u16_at(bytes, 10),
            overflow: u32_at(bytes, 12),
        }
    }

    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.flags.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.count.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.overflow.to_le_bytes());
        bytes
    }
}

impl Page {
    /// Looks at every element of a page (with its overflow pages) that was read from `offset`.
    pub fn parse(id: u64, offset: u64, bytes: Bytes) -> Result<Page, ReadError> {
        let damaged = |at: usize, what: String| ReadError::Damaged {
            page: id,
            offset: offset + at as u64,
            what,
        };
        if bytes.len() < HEADER {
            return Err(damaged(0, format!("{} bytes are too few for a page", bytes.len())));
        }
        let header = Header::decode(&bytes);
        let leaf = match header.flags {
            LEAF => true,
            BRANCH => false,
            flags => {
                return Err(damaged(
                    8,
                    format!("the flags are {flags:#06x}, neither a branch nor a leaf"),
                ));
            }
        };
        let count = usize::from(header.count);
        let page = Page {
            id,
            offset,
            leaf,
            count,
            bytes,
        };
        let mut free = HEADER + count * ELEMENT;
        if free > page.bytes.len() {
            return Err(damaged(10, format!("{count} elements do not fit")));
        }
        for index in 0..count {
            let at = HEADER + index * ELEMENT;
            let (start, key, value) = page.extent(index);
            let end = start as u64 + key as u64 + value as u64;
            if start < free || end > page.bytes.len() as u64 {
                return Err(damaged(
                    at,
                    format!(
                        "element {index} claims the bytes {start} to {end} of {}, where {free} is free",
                        page.bytes.len()
                    ),
                ));
            }
            if index > 0 && page.key(index - 1) >= page.key(index) {
                return Err(damaged(
                    at,
                    format!(
                        "key {index} ({}) does not come after the one before it ({})",
                        shown(page.key(index)),
                        shown(page.key(index - 1))
                    ),
                ));
            }
            free = end as usize;
        }
        Ok(page)
    }

    /// Where an element's data begins, and the lengths of its key and value. The start is below 2^33.
    fn extent(&self, index: usize) -> (usize, usize, usize) {
        let at = HEADER + index * ELEMENT;
        let number = |offset: usize| u32_at(&self.bytes, at + offset) as usize;
        match self.leaf {
            true => (at + number(4), number(8), number(12)),
            false => (at + number(0), number(4), 0),
        }
    }

    pub fn key(&self, index: usize) -> &[u8] {
        let (start, key, _) = self.extent(index);
        &self.bytes[start..start + key]
    }

    pub fn key_bytes(&self, index: usize) -> Bytes {
        let (start, key, _) = self.extent(index);
        self.bytes.slice(start..start + key)
    }

    /// A leaf element's value.
    pub fn value_bytes(&self, index: usize) -> Bytes {
        let (start, key, value) = self.extent(index);
        self.bytes.slice(start + key..start + key + value)
    }

    /// The file offset of a leaf element's value.
    pub fn value_offset(&self, index: usize) -> u64 {
        let (start, key, _) = self.extent(index);
        self.offset + (start + key) as u64
    }

    /// Whether a leaf element is a bucket.
    pub fn is_bucket(&self, index: usize) -> bool {
        self.leaf && u32_at(&self.bytes, HEADER + index * ELEMENT) & IS_BUCKET != 0
    }

    /// A branch element's child.
    pub fn child(&self, index: usize) -> u64 {
        u64_at(&self.bytes, HEADER + index * ELEMENT + 8)
    }

    /// The first element whose key is not below `key`, and whether it is that key.
    pub fn search(&self, key: &[u8]) -> (usize, bool) {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return (middle, true),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// Says that something about this page is wrong.
    pub fn damaged(&self, what: String) -> ReadError {
        ReadError::Damaged {
            page: self.id,
            offset: self.offset,
            what,
        }
    }
}
