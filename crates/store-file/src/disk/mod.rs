//! The only door to the medium: one narrow trait, a file behind it, and a simulated twin.

mod file;
mod overlay;
mod sim;

pub use file::{FileDisk, short_slices};
pub(crate) use file::{create_temporary, publish_temporary};
pub(crate) use overlay::Overlay;
pub use sim::{CrashKind, Seeded, SimDisk};

use std::io;

/// What the store needs of a medium.
///
/// Only the writer thread writes and syncs, but allocation is asked for by the owner, and reads come at any time. A
/// write is durable only after a later [`Disk::sync_data`] returned; until then any part of it may be lost, in units of
/// 512-byte sectors. Reads see every write that returned.
pub trait Disk: Send + Sync {
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether there are no bytes at all.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buffer` from `at`; an error if the file ends before.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `at`, extending the file if need be.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Returns once everything written before is on the medium, with the file's length.
    fn sync_data(&self) -> io::Result<()>;
    /// Reserves space, so that writes in the range cannot fail for want of it; extends the file if need be. New space
    /// reads as zeros.
    fn allocate(&self, at: u64, len: u64) -> io::Result<()>;
    /// Gives the range's space back; it then reads as zeros. A medium that cannot does nothing and says false.
    fn punch_hole(&self, at: u64, len: u64) -> io::Result<bool>;
    /// Cuts or extends the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Bytes taken on the medium.
    fn allocated(&self) -> io::Result<u64>;
    /// Says that a range will be read soon. Only a wish.
    fn read_ahead(&self, _at: u64, _len: u64) {}
    /// Drops what the kernel caches of the (synced) file, so that the next reads ask the medium. Only a wish.
    fn drop_caches(&self) {}
}
