//! Reads: keys from the index, values from memory or the file.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::error::Error;
use crate::layout::Address;
use crate::{Disk, KeyRange, Store, Version};

/// Values that stand near each other in the file are read together: with at most so many bytes, and so many bytes of
/// something else between two of them.
const WINDOW_BYTES: u64 = 256 << 10;
const GAP_BYTES: u64 = 2048;

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
        if let Some(bytes) = self.in_memory(address, len + 4) {
            return Ok(bytes.slice(4..));
        }
        let offset = self.space.offset(address).ok_or(Error::Gone)?;
        read_value(&*self.disk, offset, len)
    }

    /// Gives the values of many versions to `visit`, in their order, each with its place in `versions` and checked as by
    /// [`Store::value`]; neighbours in the file are read with one call. An error names the place it happened at:
    /// everything before it was visited.
    pub fn values(&self, versions: &[Version], visit: &mut dyn FnMut(usize, &[u8])) -> Result<(), (usize, Error)> {
        let mut window = Vec::new();
        let mut at = 0;
        while let Some(first) = versions.get(at) {
            let len = first.value.len as usize + 4;
            if let Some(bytes) = self.in_memory(first.value.offset, len) {
                visit(at, &bytes[4..]);
                at += 1;
                continue;
            }
            let end = self.run(&versions[at..]) + at;
            let begins = first.value.offset;
            let last = versions[end - 1].value;
            let bytes = (last.offset - begins) as usize + 4 + last.len as usize;
            let offset = self.space.offset(begins).ok_or((at, Error::Gone))?;
            if window.len() < bytes {
                window.resize(bytes, 0);
            }
            let window = &mut window[..bytes];
            fill(&*self.disk, offset, window).map_err(|error| (at, error))?;
            for (place, version) in versions[at..end].iter().enumerate() {
                let from = (version.value.offset - begins) as usize;
                let value = &window[from..from + 4 + version.value.len as usize];
                check_value(value, offset + from as u64).map_err(|error| (at + place, error))?;
                visit(at + place, &value[4..]);
            }
            at = end;
        }
        Ok(())
    }

    /// How many of these versions one read can bring: those that follow each other closely in one segment. The first is
    /// not in memory.
    fn run(&self, versions: &[Version]) -> usize {
        let segment = |offset: Address| offset / self.space.segment_bytes();
        let first = versions[0].value;
        let mut end = first.offset + 4 + u64::from(first.len);
        let mut count = 1;
        for version in &versions[1..] {
            let value = version.value;
            let after = value.offset + 4 + u64::from(value.len);
            let near = value.offset >= end && value.offset - end <= GAP_BYTES && after - first.offset <= WINDOW_BYTES;
            if !near || segment(value.offset) != segment(first.offset) || self.in_memory(value.offset, 1).is_some() {
                break;
            }
            end = after;
            count += 1;
        }
        count
    }

    /// `len` bytes from an address on that are not written yet, or were lately. Of a transaction that is being made no
    /// more than these are copied: it may read each of its values.
    pub(crate) fn in_memory(&self, address: Address, len: usize) -> Option<Bytes> {
        if self.open.active && !self.open.bytes.is_empty() && address >= self.open.address {
            let at = (address - self.open.address) as usize;
            return self.open.bytes.get(at..at + len).map(Bytes::copy_from_slice);
        }
        self.recent
            .from(address)
            .filter(|bytes| bytes.len() >= len)
            .map(|bytes| bytes.slice(..len))
    }
}

/// Reads a value from the file; `offset` is that of the checksum before it, which is compared.
pub(crate) fn read_value(disk: &dyn Disk, offset: u64, len: usize) -> Result<Bytes, Error> {
    let mut bytes = vec![0; len + 4];
    fill(disk, offset, &mut bytes)?;
    let bytes = Bytes::from(bytes);
    check_value(&bytes, offset)?;
    Ok(bytes.slice(4..))
}

fn fill(disk: &dyn Disk, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
    disk.read_at(offset, bytes).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::damaged(offset, "the file ends before this value does"),
        _ => Error::Io {
            what: "reading a value",
            source,
        },
    })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Identity, Options, SimDisk, Tuning};

    fn created(disk: &SimDisk, tuning: Tuning) -> Store {
        let identity = Identity {
            cluster_id: 1,
            member_id: 2,
            raft_term: 3,
        };
        let options = Options { quota: 0, identity };
        Store::create_on(Arc::new(disk.clone()), options, tuning).unwrap()
    }

    /// Counted in bytes: what is given of the frame that is being made was copied.
    #[test]
    fn a_transaction_that_reads_all_its_values_copies_each_once() {
        let tuning = Tuning {
            segment_bytes: 1 << 20,
            ..Tuning::small()
        };
        let mut store = created(&SimDisk::new(), tuning);
        let mut transaction = store.begin(1000, 300_000, false).unwrap();
        for n in 0..1000_u32 {
            transaction.put(n.to_le_bytes().to_vec().into(), vec![n as u8; 200].into(), 0);
        }
        let (store, revision) = (transaction.store(), transaction.revision());
        let mut copied = 0;
        for n in 0..1000_u32 {
            let version = store.get(&n.to_le_bytes(), revision).unwrap();
            assert_eq!(store.value(&version).unwrap(), vec![n as u8; 200]);
            copied += store.in_memory(version.value.offset, 204).unwrap().len();
        }
        assert_eq!(copied, 1000 * 204);
        // Nothing is given beyond what is there.
        let last = store.get(&999_u32.to_le_bytes(), revision).unwrap();
        assert!(store.in_memory(last.value.offset, 205).is_none());
        transaction.commit().unwrap();
    }

    #[test]
    fn many_values_are_read_at_once_in_any_order_and_each_is_checked() {
        let disk = SimDisk::new();
        let mut store = created(&disk, Tuning::small());
        let value = |n: u8| vec![n; usize::from(n) * 13 % 700];
        for n in 0..60 {
            let mut transaction = store.begin(1, 701, false).unwrap();
            transaction.put(Bytes::from(vec![n]), Bytes::from(value(n)), 0);
            transaction.commit().unwrap();
            // What is synced leaves the memory with a later commit.
            store.sync().unwrap();
        }
        let read = |order: &[u8]| {
            let version = |n: &u8| store.get(&[*n], store.revision()).unwrap();
            let versions: Vec<Version> = order.iter().map(version).collect();
            let mut values = Vec::new();
            let outcome = store.values(&versions, &mut |at, value| values.push((at, value.to_vec())));
            (values, outcome)
        };
        let orders: [Vec<u8>; 4] = [
            (0..60).collect(),
            (0..60).rev().collect(),
            (0..60_u32).map(|n| (n * 7 % 60) as u8).collect(),
            vec![5, 5, 59, 0, 5],
        ];
        for order in &orders {
            let (values, outcome) = read(order);
            outcome.unwrap();
            let expected: Vec<_> = order.iter().map(|n| value(*n)).enumerate().collect();
            assert_eq!(values, expected, "{order:?}");
        }
        // One that was damaged is found among its neighbours, and those before it were given out.
        let damaged = store.get(&[7], store.revision()).unwrap().value.offset;
        assert!(
            store.in_memory(damaged, 1).is_none(),
            "the value is read from the medium"
        );
        let at = store.space.offset(damaged).unwrap() + 50;
        disk.write_at(at, b"x").unwrap();
        let (values, outcome) = read(&orders[0]);
        assert!(matches!(outcome, Err((7, Error::Damaged { .. }))), "{outcome:?}");
        assert_eq!(values.len(), 7);
    }
}
