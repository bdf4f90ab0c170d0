//! The store: its state, and how a frame gets into the log.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use crate::frame::{FIRST, FRAME_HEADER_LEN, Kind, LAST, frame_len, seal};
use crate::index::Index;
use crate::layout::{Address, Header, SEGMENT_HEADER_LEN, SegmentHeader, SegmentKind, end_of_log, fresh_tag};
use crate::recent::Recent;
use crate::record::{PREFIX_OVERHEAD, RECORD_OVERHEAD};
use crate::revisions::Revisions;
use crate::space::Space;
use crate::upkeep::Upkeep;
use crate::writer::{DurableHook, Job, Writer};
use crate::{Disk, Durable, Error, Identity, Lease, Queued, Sizes, Stats, Tuning};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most bytes the file may take, 0 for no limit but the disk's.
    pub quota: u64,
    /// The identity of a new file.
    pub identity: Identity,
}

/// An open store: the index in memory, the log on disk, the writer thread behind.
///
/// One owner calls the `&mut` methods; the order of those calls is the order of the log. Reads see every change made so
/// far, durable or not: who must not show what could still be lost reads at [`Store::durable`]'s revision.
pub struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) writer: Writer,
    pub(crate) tuning: Tuning,
    pub(crate) header: Header,
    pub(crate) index: Index,
    pub(crate) space: Space,
    pub(crate) recent: Recent,
    pub(crate) revisions: Revisions,
    pub(crate) head: i64,
    pub(crate) compacted: i64,
    /// How many long reads hold each revision.
    pub(crate) holds: BTreeMap<i64, usize>,
    /// The last frame's sequence number.
    pub(crate) seq: u64,
    /// Where the next frame goes.
    pub(crate) tail: Address,
    /// The tag of the log's last segment.
    pub(crate) tag: u32,
    pub(crate) open: Open,
    pub(crate) leases: BTreeMap<i64, Lease>,
    pub(crate) lease_keys: HashMap<i64, BTreeSet<Box<[u8]>>>,
    pub(crate) notes: BTreeMap<String, Bytes>,
    pub(crate) upkeep: Upkeep,
}

/// The frame being built: a transaction's current part.
#[derive(Default)]
pub(crate) struct Open {
    /// The segment's header if the frame is the first there, the frame's header (filled in at the end), its payload.
    pub(crate) bytes: Vec<u8>,
    /// Where `bytes` begins.
    pub(crate) address: Address,
    /// Where the frame begins in `bytes`.
    start: usize,
    /// The frames of the chain before it.
    jobs: Vec<Job>,
    /// Where the chain's first frame begins.
    first: Address,
    /// Whether a transaction is open.
    pub(crate) active: bool,
}

impl Store {
    /// Sets what is called (on the writer thread) after each sync, or once with the error that stopped the writer.
    pub fn on_durable(&mut self, hook: DurableHook) {
        self.writer.shared().set_hook(hook);
    }

    /// The identity in the header.
    pub fn identity(&self) -> Identity {
        self.header.identity
    }

    /// The head revision, durable or not.
    pub fn revision(&self) -> i64 {
        self.head
    }

    /// What is synced.
    pub fn durable(&self) -> Durable {
        self.writer.shared().durable()
    }

    /// Everything before this revision may be gone; reads at it still work. 0 when nothing was ever compacted.
    pub fn compacted(&self) -> i64 {
        self.compacted
    }

    /// The first revision whose changes are all here: the compacted one, as etcd keeps even the deletes of that; after an
    /// import the one behind its head, for an import brings what is live at the head and no delete.
    pub fn history_begins(&self) -> i64 {
        if self.compacted > 0 && self.compacted == self.header.imported {
            self.compacted + 1
        } else {
            self.compacted
        }
    }

    /// The head revision at which the import ended, while no transaction followed it; else None.
    pub fn untouched_import(&self) -> Option<i64> {
        let imported = self.header.imported;
        (imported > 0 && imported == self.head).then_some(imported)
    }

    /// Sizes now.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            allocated: self.space.allocated(),
            in_use: self.space.live(),
            quota: self.space.quota(),
        }
    }

    /// Counts and times of writes, syncs, checkpoints and compactions since the start.
    pub fn stats(&self) -> Stats {
        self.writer.shared().stats()
    }

    /// Waits until all that is queued is synced.
    pub fn sync(&mut self) -> Result<Durable, Error> {
        self.writer.flush()?;
        Ok(self.durable())
    }

    /// Waits until all that is queued is synced and ends the writer.
    pub fn close(mut self) -> Result<(), Error> {
        self.writer.close()
    }

    /// The last queued frame.
    pub(crate) fn queued(&self) -> Queued {
        Queued {
            seq: self.seq,
            revision: self.head,
        }
    }

    /// Makes sure that frames with `records` records of `bytes` bytes of keys and values in all can be written.
    pub(crate) fn reserve(&mut self, records: usize, bytes: usize, spare: bool) -> Result<(), Error> {
        self.writer.shared().check()?;
        let size = self.space.segment_bytes() as usize;
        let one = FRAME_HEADER_LEN + 8 + PREFIX_OVERHEAD;
        let records = bytes + records * RECORD_OVERHEAD;
        let capacity = self.space.capacity() - one;
        let (_, used) = end_of_log(self.tail, size as u64);
        let slots = if used + one + records <= size {
            0
        } else if records <= capacity {
            1
        } else {
            // Two neighbours hold more than one segment's worth, for the second's first record did not fit the first.
            2 * records.div_ceil(capacity)
        };
        let total = records + (slots + 1) * (one + SEGMENT_HEADER_LEN);
        self.space.reserve(slots as u64, total as u64, spare)
    }

    /// Begins a frame for a payload of at least `need` bytes, in a new (reserved) segment if it does not fit this one.
    pub(crate) fn begin_frame(&mut self, need: usize) {
        debug_assert!(self.open.bytes.is_empty());
        let size = self.space.segment_bytes();
        let (last, used) = end_of_log(self.tail, size);
        self.open.bytes = Vec::with_capacity(SEGMENT_HEADER_LEN + FRAME_HEADER_LEN + need + 8);
        if used + frame_len(need) > size as usize {
            let sequence = last + 1;
            let begun = self.space.begin_segment(sequence, self.seq + 1);
            assert!(begun.is_some(), "a frame is only begun in reserved space");
            self.tag = fresh_tag();
            let header = SegmentHeader {
                kind: SegmentKind::Log {
                    sequence,
                    first_seq: self.seq + 1,
                },
                tag: self.tag,
            };
            self.open.bytes.extend_from_slice(&header.encode());
            self.tail = sequence * size;
        }
        self.open.address = self.tail;
        self.open.start = self.open.bytes.len();
        self.open.bytes.resize(self.open.start + FRAME_HEADER_LEN, 0);
        if self.open.jobs.is_empty() {
            self.open.first = self.open.address + self.open.start as u64;
        }
    }

    /// Whether `more` bytes of payload still fit the open frame's segment.
    pub(crate) fn fits(&self, more: usize) -> bool {
        let size = self.space.segment_bytes();
        let payload = self.open.bytes.len() - self.open.start - FRAME_HEADER_LEN + more;
        let at = (self.open.address % size) as usize + self.open.start;
        at + frame_len(payload) <= size as usize
    }

    /// Ends the open frame. `last`: it is its chain's last, and the chain is queued.
    pub(crate) fn end_frame(&mut self, kind: Kind, last: bool, revision: i64) {
        let size = self.space.segment_bytes();
        let mut bytes = std::mem::take(&mut self.open.bytes);
        let sequence = self.open.address / size;
        self.seq += 1;
        let first = if self.open.jobs.is_empty() { FIRST } else { 0 };
        let part = first | if last { LAST } else { 0 };
        let durable = self.writer.shared().durable().seq;
        seal(&mut bytes, self.open.start, kind, part, self.seq, durable, self.tag);
        let bytes = Bytes::from(bytes);
        let at = self.space.offset(self.open.address);
        assert!(at.is_some(), "the open frame's segment is part of the log");
        self.tail = self.open.address + bytes.len() as u64;
        let used = (self.tail - sequence * size) as u32;
        self.space.update(sequence, |segment| {
            segment.used = used;
            segment.max_revision = segment.max_revision.max(revision);
        });
        self.recent.push(self.open.address, self.seq, bytes.clone());
        self.open.jobs.push(Job::Frame {
            at: at.unwrap_or_default(),
            bytes,
            seq: self.seq,
            // A chain's first parts do not make its revision durable.
            revision: if last { self.head.max(revision) } else { self.head },
            fresh_until: self.space.fresh_until(sequence),
        });
        if last {
            let jobs = std::mem::take(&mut self.open.jobs);
            self.writer.queue(jobs);
            self.recent.trim(self.tuning.recent_bytes, durable);
        }
    }

    /// Where the chain being built begins.
    pub(crate) fn chain_start(&self) -> Address {
        self.open.first
    }

    /// Logs one frame of its own. The space is reserved.
    pub(crate) fn log(&mut self, kind: Kind, payload: &[u8]) -> Queued {
        self.begin_frame(payload.len());
        self.open.bytes.extend_from_slice(payload);
        self.end_frame(kind, true, 0);
        self.queued()
    }
}
