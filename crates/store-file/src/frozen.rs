//! A closed store file, read only.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::import::Summary;
use crate::read::{check_value, read_value};
use crate::recovery::{Recovered, recover};
use crate::{Digest, Disk, Error, FileDisk, Identity, Lease, Record};

/// Bytes read at once where values follow each other.
const WINDOW: usize = 1 << 20;
/// How far apart values may stand to count as following each other.
const GAP: u64 = 64 << 10;

/// A closed store file, read only: nothing in it is changed, a torn tail is left alone (and not read).
pub struct Frozen {
    disk: Arc<dyn Disk>,
    state: Recovered,
}

impl Frozen {
    /// Opens for reading; refuses a file that a server holds.
    pub fn open(path: &Path) -> Result<Frozen, Error> {
        Frozen::open_on(Arc::new(FileDisk::open_frozen(path)?))
    }

    /// Opens any medium for reading.
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<Frozen, Error> {
        let state = recover(&disk, 0)?;
        Ok(Frozen { disk, state })
    }

    /// The identity.
    pub fn identity(&self) -> Identity {
        self.state.header.identity
    }

    /// The head revision.
    pub fn revision(&self) -> i64 {
        self.state.head
    }

    /// The compacted revision.
    pub fn compacted(&self) -> i64 {
        self.state.compacted
    }

    /// The head at which the import ended, if the file was made by one (kept for ever in the file).
    pub fn imported(&self) -> Option<i64> {
        let imported = self.state.header.imported;
        (imported > 0).then_some(imported)
    }

    /// All leases.
    pub fn leases(&self) -> Vec<Lease> {
        self.state.leases.values().copied().collect()
    }

    /// Visits every live key at the head, in key order, with its value.
    pub fn records(&self, visit: &mut dyn FnMut(Record) -> ControlFlow<()>) -> Result<(), Error> {
        let mut window = Window::default();
        for entry in self.state.index.entries() {
            let ver = entry.latest();
            if ver.is_tombstone() {
                continue;
            }
            let offset = self.state.space.offset(ver.address).ok_or(Error::Gone)?;
            let record = Record {
                key: Bytes::copy_from_slice(entry.key()),
                value: window.value(&*self.disk, offset, ver.len as usize)?,
                create: ver.create,
                modified: ver.main,
                version: ver.version,
                lease: ver.lease,
            };
            if visit(record).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Number, bytes and digest of all live keys.
    pub fn summary(&self) -> Result<Summary, Error> {
        let (mut keys, mut bytes, mut digest) = (0, 0, Digest::default());
        self.records(&mut |record| {
            keys += 1;
            bytes += (record.key.len() + record.value.len()) as u64;
            digest.add(&record);
            ControlFlow::Continue(())
        })?;
        Ok(Summary {
            keys,
            bytes,
            head: self.state.head,
            digest: digest.finish(),
        })
    }
}

/// Reads ahead where values stand behind each other, as after an import.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Bytes,
    last_end: u64,
}

impl Window {
    fn value(&mut self, disk: &dyn Disk, offset: u64, len: usize) -> Result<Bytes, Error> {
        let follows = offset >= self.last_end && offset - self.last_end < GAP;
        self.last_end = offset + len as u64 + 4;
        if let Some(bytes) = self.slice(offset, len + 4) {
            check_value(&bytes, offset)?;
            return Ok(bytes.slice(4..));
        }
        let file = disk.len().map_err(Error::io("reading the store file's length"))?;
        let ahead = (file - offset.min(file)).min(WINDOW as u64) as usize;
        if !follows || ahead < len + 4 {
            return read_value(disk, offset, len);
        }
        let mut bytes = vec![0; ahead];
        disk.read_at(offset, &mut bytes).map_err(Error::io("reading values"))?;
        (self.at, self.bytes) = (offset, Bytes::from(bytes));
        check_value(&self.bytes[..len + 4], offset)?;
        Ok(self.bytes.slice(4..len + 4))
    }

    fn slice(&self, from: u64, len: usize) -> Option<Bytes> {
        let at = usize::try_from(from.checked_sub(self.at)?).ok()?;
        (at + len <= self.bytes.len()).then(|| self.bytes.slice(at..at + len))
    }
}
