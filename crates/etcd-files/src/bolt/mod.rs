//! bbolt's file format (`go.etcd.io/bbolt`, version 2): reading, checking and bulk writing.
//!
//! ```text
//! page 0, 1   meta pages: two copies, the valid one with the larger transaction id counts
//! page 2 ..   branch and leaf pages of the buckets' trees, free pages, perhaps a list of the free ones
//!
//! page        id u64 | flags u16 | count u16 | overflow u32 | elements | their keys and values
//! branch      element: position u32 | key length u32 | child's page u64          (all numbers little-endian)
//! leaf        element: flags u32 (1: a bucket) | position u32 | key length u32 | value length u32
//! bucket      value: root page u64 | sequence u64 | the bucket's only page if root is 0 ("inline")
//! ```
//!
//! A position counts from the element's own address. `overflow` pages follow a page whose contents do not fit.

mod build;
pub(crate) mod bulk;
mod check;
mod cursor;
mod db;
mod meta;
mod page;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use build::{Builder, Content, Count, Layout, PageWriter};
pub use bulk::{BulkWriter, Written};
pub use check::{Problem, Report};
pub use cursor::{Cursor, Entry};
pub use db::{Bucket, Db};
pub use meta::Meta;
pub use page::RUN_MAX;
pub use source::{Seeking, Source};

/// The length of a page's header.
pub(crate) const HEADER: usize = 16;
/// The length of an element of a branch or leaf page.
pub(crate) const ELEMENT: usize = 16;
/// The length of a bucket's root and sequence before an inline page.
pub(crate) const BUCKET: usize = 16;
pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META: u16 = 0x04;
pub(crate) const FREELIST: u16 = 0x10;
/// The flag of a leaf element that is a bucket.
pub(crate) const IS_BUCKET: u32 = 1;
/// The longest key, as bbolt has it.
pub const KEY_MAX: usize = 32768;
/// The longest value, as bbolt has it.
pub const VALUE_MAX: u64 = (1 << 31) - 2;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
