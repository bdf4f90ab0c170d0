//! The two streams of an import, on their way to the file.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::frame::{FIRST, FRAME_HEADER_LEN, Kind, LAST, frame_len, seal};
use crate::layout::{Address, SEGMENT_HEADER_LEN, SLOTS_AT, SegmentHeader, SegmentKind, fresh_tag};
use crate::space::Segment;
use crate::{Disk, Error};

/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes after which a sync is asked for.
const SYNC_BYTES: u64 = 16 << 20;

/// Pieces of one stream, gathered into large writes.
#[derive(Default)]
struct Pieces {
    at: u64,
    bytes: Vec<u8>,
}

/// The file, its slots handed out in order, and the thread that syncs it along the way.
pub(super) struct Output {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    slots: u32,
    data: Pieces,
    index: Pieces,
    unsynced: u64,
    /// Tells the thread to sync; None once it has been told to end.
    sync: Option<SyncSender<()>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Output {
    pub(super) fn start(disk: Arc<dyn Disk>, segment_bytes: u32) -> Result<Output, Error> {
        let (sync, asked) = sync_channel(1);
        let synced = Arc::clone(&disk);
        let thread = std::thread::Builder::new()
            .name("import-sync".into())
            .spawn(move || asked.iter().try_for_each(|()| synced.sync_data()))
            .map_err(Error::io("starting the import's sync thread"))?;
        Ok(Output {
            disk,
            segment_bytes: u64::from(segment_bytes),
            slots: 0,
            data: Pieces::default(),
            index: Pieces::default(),
            unsynced: 0,
            sync: Some(sync),
            thread: Some(thread),
        })
    }

    /// The next slot and its offset, its space reserved.
    pub(super) fn next_slot(&mut self) -> Result<(u32, u64), Error> {
        let at = SLOTS_AT + u64::from(self.slots) * self.segment_bytes;
        self.disk
            .allocate(at, self.segment_bytes)
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::NoSpace {
                    needed: at + self.segment_bytes,
                },
                _ => Error::Io {
                    what: "reserving space for the import",
                    source,
                },
            })?;
        self.slots += 1;
        Ok((self.slots - 1, at))
    }

    pub(super) fn write_data(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.data.add(&*self.disk, at, bytes)?;
        self.count(written)
    }

    pub(super) fn write_index(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.index.add(&*self.disk, at, bytes)?;
        self.count(written)
    }

    fn count(&mut self, written: u64) -> Result<(), Error> {
        self.unsynced += written;
        if self.unsynced >= SYNC_BYTES
            && let Some(sync) = &self.sync
        {
            match sync.try_send(()) {
                Ok(()) => self.unsynced = 0,
                Err(TrySendError::Full(())) => {}
                // The thread ends early only on an error.
                Err(TrySendError::Disconnected(())) => self.end_thread()?,
            }
        }
        Ok(())
    }

    fn end_thread(&mut self) -> Result<(), Error> {
        self.sync = None;
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(source))) => Err(Error::Io {
                what: "syncing the import",
                source,
            }),
            Some(Err(_)) => Err(Error::Io {
                what: "syncing the import",
                source: std::io::Error::other("the sync thread panicked"),
            }),
        }
    }

    /// Writes what is gathered and waits until all of it is synced.
    pub(super) fn finish(&mut self) -> Result<Arc<dyn Disk>, Error> {
        self.data.flush(&*self.disk)?;
        self.index.flush(&*self.disk)?;
        self.end_thread()?;
        self.disk.sync_data().map_err(Error::io("syncing the import"))?;
        Ok(Arc::clone(&self.disk))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // An import that is given up: its file goes, whatever the thread found.
        let _ = self.end_thread();
    }
}

impl Pieces {
    /// Adds bytes; gives how many were written to the file.
    fn add(&mut self, disk: &dyn Disk, at: u64, bytes: &[u8]) -> Result<u64, Error> {
        let mut written = 0;
        if at != self.at + self.bytes.len() as u64 || self.bytes.len() + bytes.len() > 2 * PIECE_BYTES {
            written += self.flush(disk)?;
            self.at = at;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= PIECE_BYTES {
            written += self.flush(disk)?;
        }
        Ok(written)
    }

    fn flush(&mut self, disk: &dyn Disk) -> Result<u64, Error> {
        let len = self.bytes.len() as u64;
        if len > 0 {
            disk.write_at(self.at, &self.bytes)
                .map_err(Error::io("writing the import"))?;
            self.at += len;
            self.bytes.clear();
        }
        Ok(len)
    }
}

/// The log's segments with the records.
pub(super) struct Data {
    segment_bytes: usize,
    segments: Vec<(u64, Segment)>,
    /// Offset of the current segment in the file.
    base: u64,
    at: usize,
    seq: u64,
    tag: u32,
}

impl Data {
    /// Begins segment 1, which every file has.
    pub(super) fn begin(output: &mut Output) -> Result<Data, Error> {
        let mut data = Data {
            segment_bytes: output.segment_bytes as usize,
            segments: Vec::new(),
            base: 0,
            at: 0,
            seq: 0,
            tag: fresh_tag(),
        };
        data.next_segment(output)?;
        Ok(data)
    }

    /// The most payload a frame takes.
    pub(super) fn frame_limit(&self) -> usize {
        self.segment_bytes - SEGMENT_HEADER_LEN - FRAME_HEADER_LEN - 8
    }

    fn sequence(&self) -> u64 {
        self.segments.len() as u64
    }

    fn next_segment(&mut self, output: &mut Output) -> Result<(), Error> {
        let (slot, base) = output.next_slot()?;
        let segment = Segment {
            slot,
            first_seq: self.seq + 1,
            used: SEGMENT_HEADER_LEN as u32,
            live: 0,
            max_revision: 0,
            emptied: None,
        };
        self.segments.push((self.sequence() + 1, segment));
        (self.base, self.at) = (base, SEGMENT_HEADER_LEN);
        let header = SegmentHeader {
            kind: SegmentKind::Log {
                sequence: self.sequence(),
                first_seq: self.seq + 1,
            },
            tag: self.tag,
        };
        output.write_data(base, &header.encode())
    }

    /// Writes a frame of copies; gives the address of its payload.
    pub(super) fn frame(&mut self, output: &mut Output, payload: &[u8]) -> Result<Address, Error> {
        let len = frame_len(payload.len());
        if self.at + len > self.segment_bytes {
            self.next_segment(output)?;
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.resize(FRAME_HEADER_LEN, 0);
        bytes.extend_from_slice(payload);
        let durable = self.seq;
        self.seq += 1;
        seal(&mut bytes, 0, Kind::Copy, FIRST | LAST, self.seq, durable, self.tag);
        let address = self.sequence() * self.segment_bytes as u64 + self.at as u64;
        output.write_data(self.base + self.at as u64, &bytes)?;
        self.at += len;
        if let Some((_, segment)) = self.segments.last_mut() {
            segment.used = self.at as u32;
        }
        Ok(address + FRAME_HEADER_LEN as u64)
    }

    pub(super) fn segments(&self) -> Vec<(u64, Segment)> {
        self.segments.clone()
    }

    /// Where the log goes on, and with which frame.
    pub(super) fn end(&self) -> (Address, u64) {
        (
            self.sequence() * self.segment_bytes as u64 + self.at as u64,
            self.seq + 1,
        )
    }
}
