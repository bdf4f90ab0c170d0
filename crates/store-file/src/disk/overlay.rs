//! A medium that is only looked at: what would be written to it stays in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

use super::Disk;

/// The unit in which changes are kept.
const BLOCK: u64 = 512;

/// Reads through to another medium and writes beside it, so that a store can be opened with all its means and the file
/// stays as it is.
pub(crate) struct Overlay<D> {
    below: D,
    above: Mutex<Above>,
}

struct Above {
    blocks: BTreeMap<u64, [u8; BLOCK as usize]>,
    len: u64,
}

impl<D: Disk> Overlay<D> {
    pub(crate) fn new(below: D) -> io::Result<Overlay<D>> {
        let len = below.len()?;
        let above = Mutex::new(Above {
            blocks: BTreeMap::new(),
            len,
        });
        Ok(Overlay { below, above })
    }

    fn above(&self) -> MutexGuard<'_, Above> {
        self.above.lock().expect("no code panics while it holds this lock")
    }

    /// The block as it would be now.
    fn block(&self, above: &Above, number: u64) -> io::Result<[u8; BLOCK as usize]> {
        if let Some(block) = above.blocks.get(&number) {
            return Ok(*block);
        }
        let mut block = [0; BLOCK as usize];
        let at = number * BLOCK;
        let there = self.below.len()?.saturating_sub(at).min(BLOCK) as usize;
        if there > 0 {
            self.below.read_at(at, &mut block[..there])?;
        }
        Ok(block)
    }
}

impl<D: Disk> Disk for Overlay<D> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.above().len)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let above = self.above();
        let end = at.saturating_add(buffer.len() as u64);
        if end > above.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let there = self.below.len()?.saturating_sub(at).min(buffer.len() as u64) as usize;
        if there > 0 {
            self.below.read_at(at, &mut buffer[..there])?;
        }
        buffer[there..].fill(0);
        for (number, block) in above.blocks.range(at / BLOCK..end.div_ceil(BLOCK)) {
            let (from, to) = ((number * BLOCK).max(at), ((number + 1) * BLOCK).min(end));
            let inside = (from % BLOCK) as usize..(from % BLOCK + to - from) as usize;
            buffer[(from - at) as usize..(to - at) as usize].copy_from_slice(&block[inside]);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut above = self.above();
        let end = at + bytes.len() as u64;
        for number in at / BLOCK..end.div_ceil(BLOCK) {
            let mut block = self.block(&above, number)?;
            let (from, to) = ((number * BLOCK).max(at), ((number + 1) * BLOCK).min(end));
            let inside = (from % BLOCK) as usize..(from % BLOCK + to - from) as usize;
            block[inside].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            above.blocks.insert(number, block);
        }
        above.len = above.len.max(end);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let mut above = self.above();
        above.len = above.len.max(at + len);
        Ok(())
    }

    fn punch_hole(&self, _at: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut above = self.above();
        above.len = len;
        above.blocks.split_off(&len.div_ceil(BLOCK));
        Ok(())
    }

    fn allocated(&self) -> io::Result<u64> {
        self.below.allocated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimDisk;

    #[test]
    fn what_is_written_is_read_and_the_medium_below_stays() {
        let below = SimDisk::with_bytes((0..2000).map(|n| n as u8).collect());
        let over = Overlay::new(below.clone()).unwrap();
        over.write_at(500, &[7; 600]).unwrap();
        over.write_at(1990, &[8; 100]).unwrap();
        let mut expected: Vec<u8> = (0..2090).map(|n| n as u8).collect();
        expected[500..1100].fill(7);
        expected[1990..2090].fill(8);
        assert_eq!(over.len().unwrap(), 2090);
        for (at, len) in [(0, 2090), (499, 3), (511, 2), (1099, 2), (1989, 101), (700, 0)] {
            let mut found = vec![0; len];
            over.read_at(at as u64, &mut found).unwrap();
            assert_eq!(found, expected[at..at + len], "{at} {len}");
        }
        assert!(over.read_at(2089, &mut [0; 2]).is_err());
        over.allocate(4000, 96).unwrap();
        over.read_at(4000, &mut [0; 96]).unwrap();
        let mut bytes = vec![0; 2000];
        below.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == n as u8));
        assert_eq!(below.len().unwrap(), 2000);
    }
}
