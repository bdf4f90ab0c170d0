//! The meta pages.

use super::{HEADER, META, u32_at, u64_at};

/// The length of a meta page's contents, checksum included.
const LENGTH: usize = 64;
/// A meta page's header and contents.
pub(crate) const META_PAGE: usize = HEADER + LENGTH;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// What stands for "the list of free pages is not in the file".
pub(crate) const NO_FREELIST: u64 = u64::MAX;
/// Page sizes that are believed: the operating systems' own, and what bbolt's smallest is.
pub(crate) const PAGE_SIZES: std::ops::RangeInclusive<u32> = 1024..=65536;

/// What a meta page says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Meta {
    /// The size of a page in bytes.
    pub page_size: u32,
    /// The page of the root bucket.
    pub root: u64,
    /// The root bucket's sequence.
    pub sequence: u64,
    /// The page of the list of free pages; `None` if it is not kept in the file.
    pub freelist: Option<u64>,
    /// The number of pages in use so far: all page numbers are below.
    pub pages: u64,
    /// The transaction that wrote this copy; its parity is the page it stands on.
    pub transaction: u64,
}

impl Meta {
    /// The 64 bytes, checksum included.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.page_size.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.root.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.freelist.unwrap_or(NO_FREELIST).to_le_bytes());
        bytes[40..48].copy_from_slice(&self.pages.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.transaction.to_le_bytes());
        let sum = fnv1a(&bytes[..56]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The page: header and contents, without what fills it up.
    pub(crate) fn encode_page(&self) -> [u8; META_PAGE] {
        let mut page = [0; META_PAGE];
        page[0..8].copy_from_slice(&(self.transaction % 2).to_le_bytes());
        page[8..10].copy_from_slice(&META.to_le_bytes());
        page[HEADER..].copy_from_slice(&self.encode());
        page
    }

    /// Of the 64 bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Meta, String> {
        let (magic, version, page_size) = (u32_at(bytes, 0), u32_at(bytes, 4), u32_at(bytes, 8));
        if magic != MAGIC {
            return Err(format!("the magic number is {magic:#010x}, not {MAGIC:#010x}"));
        }
        if version != VERSION {
            return Err(format!("the format's version is {version}, not {VERSION}"));
        }
        let (found, expected) = (u64_at(bytes, 56), fnv1a(&bytes[..56]));
        if found != expected {
            return Err(format!(
                "the checksum is {found:#018x}, but {expected:#018x} by the contents"
            ));
        }
        if !PAGE_SIZES.contains(&page_size) || !page_size.is_power_of_two() {
            return Err(format!(
                "the page size is {page_size}, not a power of two from {} to {}",
                PAGE_SIZES.start(),
                PAGE_SIZES.end()
            ));
        }
        let (root, freelist, pages) = (u64_at(bytes, 16), u64_at(bytes, 32), u64_at(bytes, 40));
        let freelist = (freelist != NO_FREELIST).then_some(freelist);
        if pages < 3 || !(2..pages).contains(&root) {
            return Err(format!("the root is page {root} of {pages}"));
        }
        if let Some(list) = freelist.filter(|list| !(2..pages).contains(list)) {
            return Err(format!("the list of free pages is page {list} of {pages}"));
        }
        Ok(Meta {
            page_size,
            root,
            sequence: u64_at(bytes, 24),
            freelist,
            pages,
            transaction: u64_at(bytes, 48),
        })
    }
}

/// FNV-1a of 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
