//! A simulated medium with a live and a durable side.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::Disk;

/// The size of what a medium writes whole or not at all.
const SECTOR: usize = 512;

/// A small generator of numbers from a seed (SplitMix64), the same on every machine.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Begins the sequence of a seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What is left of unsynced writes after a crash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CrashKind {
    /// Everything that was written, as after a kill of the process.
    KeepAll,
    /// Only what was synced.
    LoseAll,
    /// Each write kept, lost or torn by a seed, sector by sector.
    Torn {
        /// The seed.
        seed: u64,
    },
}

/// Unsynced changes, in order.
#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Punch { at: usize, len: usize },
    SetLen { len: usize },
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Fault {
    /// Fail this operation with the given OS error, once. A failed write leaves a part behind.
    Error(i32),
    /// Freeze before the operation.
    CrashBefore,
    /// Freeze after the operation.
    CrashAfter,
}

#[derive(Debug, Default)]
struct State {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    ops: u64,
    writes: u64,
    syncs: u64,
    fault: Option<(u64, Fault)>,
    fired: bool,
    frozen: bool,
    capacity: Option<usize>,
}

/// A medium in memory. It counts its changing operations (writes, syncs, allocations, holes, lengths), fails or freezes
/// at a chosen one, and afterwards gives what a crash would have left. Clones are the same medium.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty medium.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// A medium that holds these bytes, synced.
    pub fn with_bytes(bytes: Vec<u8>) -> SimDisk {
        let disk = SimDisk::new();
        disk.with(|state| {
            state.durable = bytes.clone();
            state.live = bytes;
        });
        disk
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changing operations so far.
    pub fn ops(&self) -> u64 {
        self.with(|state| state.ops)
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.with(|state| state.writes)
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.with(|state| state.syncs)
    }

    /// Lets the operation with this number (from 0, counted from the medium's start) fail with an OS error.
    pub fn fail_at(&self, op: u64, errno: i32) {
        self.with(|state| state.fault = Some((op, Fault::Error(errno))));
    }

    /// Freezes the medium just before or just after an operation: nothing changes any more, every call fails.
    pub fn crash_at(&self, op: u64, after: bool) {
        let fault = if after { Fault::CrashAfter } else { Fault::CrashBefore };
        self.with(|state| state.fault = Some((op, fault)));
    }

    /// Whether the chosen operation came.
    pub fn fired(&self) -> bool {
        self.with(|state| state.fired)
    }

    /// Limits the medium: what would extend it beyond fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.with(|state| state.capacity = bytes);
    }

    /// The live bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.with(|state| state.live.clone())
    }

    /// Flips one bit on both sides.
    pub fn flip(&self, at: u64, bit: u8) {
        self.with(|state| {
            for side in [&mut state.live, &mut state.durable] {
                if let Some(byte) = side.get_mut(at as usize) {
                    *byte ^= 1 << bit;
                }
            }
        });
    }

    /// The bytes a crash now leaves.
    pub fn after_crash(&self, kind: CrashKind) -> Vec<u8> {
        self.with(|state| match kind {
            CrashKind::KeepAll => state.live.clone(),
            CrashKind::LoseAll => state.durable.clone(),
            CrashKind::Torn { seed } => {
                let mut random = Seeded::new(seed);
                let mut bytes = state.durable.clone();
                for change in &state.unsynced {
                    match random.below(4) {
                        0 => {}
                        1 => apply(&mut bytes, change),
                        _ => apply_torn(&mut bytes, change, &mut random),
                    }
                }
                bytes
            }
        })
    }

    /// Counts an operation and lets the chosen fault happen.
    fn operate(&self, act: impl Fn(&mut State, bool) -> io::Result<()>) -> io::Result<()> {
        self.with(|state| {
            if state.frozen {
                return Err(frozen());
            }
            let op = state.ops;
            state.ops += 1;
            let fault = match &state.fault {
                Some((at, fault)) if *at == op => {
                    state.fired = true;
                    Some(fault.clone())
                }
                _ => None,
            };
            match fault {
                None => act(state, false),
                Some(Fault::CrashBefore) => {
                    state.frozen = true;
                    Err(frozen())
                }
                Some(Fault::CrashAfter) => {
                    act(state, false)?;
                    state.frozen = true;
                    Err(frozen())
                }
                Some(Fault::Error(errno)) => {
                    act(state, true)?;
                    Err(io::Error::from_raw_os_error(errno))
                }
            }
        })
    }
}

fn frozen() -> io::Error {
    io::Error::other("the simulated medium has crashed")
}

fn grow(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, bytes: written } => {
            grow(bytes, at + written.len());
            bytes[*at..at + written.len()].copy_from_slice(written);
        }
        Change::Punch { at, len } => {
            let end = (at + len).min(bytes.len());
            if *at < end {
                bytes[*at..end].fill(0);
            }
        }
        Change::SetLen { len } => bytes.resize(*len, 0),
    }
}

/// Applies a write sector by sector, each kept or lost; other changes happen or do not.
fn apply_torn(bytes: &mut Vec<u8>, change: &Change, random: &mut Seeded) {
    match change {
        Change::Write { at, bytes: written } => {
            grow(bytes, at + written.len());
            let mut from = 0;
            while from < written.len() {
                let to = written.len().min(from + SECTOR - (at + from) % SECTOR);
                if random.one_in(2) {
                    bytes[at + from..at + to].copy_from_slice(&written[from..to]);
                }
                from = to;
            }
        }
        change if random.one_in(2) => apply(bytes, change),
        _ => {}
    }
}

impl State {
    fn change(&mut self, change: Change) -> io::Result<()> {
        let end = match &change {
            Change::Write { at, bytes } => at + bytes.len(),
            Change::SetLen { len } => *len,
            Change::Punch { .. } => 0,
        };
        if end > self.live.len() && self.capacity.is_some_and(|capacity| end > capacity) {
            return Err(io::Error::from_raw_os_error(28));
        }
        apply(&mut self.live, &change);
        self.unsynced.push(change);
        Ok(())
    }
}

impl Disk for SimDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|state| state.live.len() as u64))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with(|state| {
            let at = at as usize;
            let bytes = state.live.get(at..at + buffer.len());
            buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.operate(|state, fails| {
            state.writes += 1;
            let bytes = if fails { &bytes[..bytes.len() / 2] } else { bytes };
            state.change(Change::Write {
                at: at as usize,
                bytes: bytes.to_vec(),
            })
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(|state, fails| {
            state.syncs += 1;
            if !fails {
                for change in std::mem::take(&mut state.unsynced) {
                    apply(&mut state.durable, &change);
                }
            }
            Ok(())
        })
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.operate(|state, fails| {
            let end = (at + len) as usize;
            if fails || end <= state.live.len() {
                return Ok(());
            }
            state.change(Change::SetLen { len: end })
        })
    }

    fn punch_hole(&self, at: u64, len: u64) -> io::Result<bool> {
        self.operate(|state, fails| {
            if fails {
                return Ok(());
            }
            state.change(Change::Punch {
                at: at as usize,
                len: len as usize,
            })
        })?;
        Ok(true)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate(|state, fails| {
            if fails {
                return Ok(());
            }
            state.change(Change::SetLen { len: len as usize })
        })
    }

    fn allocated(&self) -> io::Result<u64> {
        self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsynced_writes_are_kept_lost_or_torn() {
        let disk = SimDisk::new();
        disk.write_at(0, &[1; 1024]).unwrap();
        disk.sync_data().unwrap();
        disk.write_at(512, &[2; 1024]).unwrap();
        assert_eq!(disk.after_crash(CrashKind::LoseAll), vec![1; 1024]);
        assert_eq!(&disk.after_crash(CrashKind::KeepAll)[512..], &[2; 1024]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let bytes = disk.after_crash(CrashKind::Torn { seed });
            assert_eq!(&bytes[..512], &[1; 512]);
            let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
            for sector in bytes.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            }
            seen.insert(sectors);
        }
        assert!(seen.len() >= 4, "few outcomes: {seen:?}");
    }

    #[test]
    fn faults_fire_once_at_their_operation() {
        let disk = SimDisk::new();
        disk.write_at(0, &[1; 8]).unwrap();
        disk.fail_at(1, 5);
        assert_eq!(disk.sync_data().unwrap_err().raw_os_error(), Some(5));
        assert!(disk.fired());
        assert_eq!(disk.after_crash(CrashKind::LoseAll), b"");
        disk.sync_data().unwrap();
        disk.crash_at(3, false);
        assert!(disk.write_at(0, &[2; 8]).is_err());
        assert!(disk.sync_data().is_err(), "frozen for good");
        assert_eq!(disk.after_crash(CrashKind::KeepAll), vec![1; 8]);
    }

    #[test]
    fn a_full_medium_says_so() {
        let disk = SimDisk::new();
        disk.set_capacity(Some(1000));
        disk.allocate(0, 1000).unwrap();
        assert_eq!(disk.allocate(0, 1001).unwrap_err().raw_os_error(), Some(28));
        disk.write_at(0, &[1; 1000]).unwrap();
    }
}
