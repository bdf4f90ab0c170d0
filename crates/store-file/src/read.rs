//! Reads: keys from the index, values from memory or the file.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::error::Error;
use crate::layout::Address;
use crate::{Disk, KeyRange, Store, Version};

impl Store {
    /// The version of `key` at revision `at` (`compacted() <= at <= revision()`).
    pub fn get(&self, key: &[u8], at: i64) -> Option<Version> {
        Some(self.index.get(key)?.at(at)?.public())
    }

    /// Visits the live keys of a range at revision `at`, in key order.
    pub fn scan(&self, range: &KeyRange, at: i64, visit: &mut dyn FnMut(&Bytes, &Version) -> ControlFlow<()>) {
        self.index.scan(range, at, visit);
    }

    /// The number of live keys of a range at revision `at`.
    pub fn count(&self, range: &KeyRange, at: i64) -> u64 {
        let newest = self.head + i64::from(self.open.active);
        if at >= newest {
            self.index.count_latest(range)
        } else {
            self.index.count_at(range, at)
        }
    }

    /// The value of a version this store gave out. Checked against the checksum it was written with. A version given out
    /// some time ago (see [`crate::Tuning::grace`]) that was compacted away or moved since answers [`Error::Gone`]: a
    /// new [`Store::get`] tells which.
    pub fn value(&self, version: &Version) -> Result<Bytes, Error> {
        let (address, len) = (version.value.offset, version.value.len as usize);
        if let Some(bytes) = self.in_memory(address)
            && bytes.len() >= len + 4
        {
            return Ok(bytes.slice(4..len + 4));
        }
        let offset = self.space.offset(address).ok_or(Error::Gone)?;
        read_value(&*self.disk, offset, len)
    }

    /// The bytes from an address on that are not written yet, or were lately.
    pub(crate) fn in_memory(&self, address: Address) -> Option<Bytes> {
        if self.open.active && !self.open.bytes.is_empty() && address >= self.open.address {
            let at = (address - self.open.address) as usize;
            return self.open.bytes.get(at..).map(Bytes::copy_from_slice);
        }
        self.recent.from(address)
    }
}

/// Reads a value from the file; `offset` is that of the checksum before it, which is compared.
pub(crate) fn read_value(disk: &dyn Disk, offset: u64, len: usize) -> Result<Bytes, Error> {
    let mut bytes = vec![0; len + 4];
    disk.read_at(offset, &mut bytes).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::damaged(offset, "the file ends before this value does"),
        _ => Error::Io {
            what: "reading a value",
            source,
        },
    })?;
    let bytes = Bytes::from(bytes);
    check_value(&bytes, offset)?;
    Ok(bytes.slice(4..))
}

/// Compares a value with the four bytes of checksum before it.
pub(crate) fn check_value(bytes: &[u8], offset: u64) -> Result<(), Error> {
    let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let found = crc32c::crc32c(&bytes[4..]);
    if stored == found {
        return Ok(());
    }
    Err(Error::damaged(
        offset,
        format!(
            "a value of {} bytes has checksum {found:08x}, expected {stored:08x}",
            bytes.len() - 4
        ),
    ))
}
