//! The import section of a migration: a whole store file made from records in key order.
//!
//! The records go, in frames of copies, into the first segments of the log; their index goes beside them into the
//! segments of checkpoint 1, as a stream of its own. Both streams are written in large pieces, and a thread syncs them
//! while more comes, so that little is left to sync at the end. Nothing but a small part of a frame stays in memory.

mod verify;
mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::checkpoint::{End, KeysPayload, Stream, segments_payload};
use crate::disk::{create_temporary, publish_temporary};
use crate::frame::Kind;
use crate::index::Ver;
use crate::layout::{Header, SEGMENT_HEADER_LEN};
use crate::open::write_header;
use crate::record::{PREFIX_OVERHEAD, RECORD_OVERHEAD, put_copy, put_lease};
use crate::{Disk, Error, Identity, Lease, Record, Tuning};

use write::{Data, Output};

/// Bytes of a frame of copies.
const FRAME_BYTES: usize = 64 << 10;

/// What an import holds, for comparison.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Summary {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The head revision.
    pub head: i64,
    /// SHA-256 over every record in key order, as [`crate::Digest`] makes it.
    pub digest: [u8; 32],
}

/// A temporary file that is removed unless it got its final name.
struct Temporary {
    temporary: PathBuf,
    path: PathBuf,
    published: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // Left behind, it is replaced by the next import to the same path.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a new store file from records in key order: the import section of a migration.
///
/// Nothing stands under the final name before [`Finished::publish`].
pub struct Import {
    output: Output,
    data: Data,
    index: Stream,
    keys: KeysPayload,
    /// Records of the frame being gathered, their values' places still relative to its payload.
    payload: Vec<u8>,
    gathered: Vec<(Bytes, Ver)>,
    /// Changes numbered so far within each revision.
    subs: HashMap<i64, u32>,
    last_key: Option<Bytes>,
    leases: Vec<Lease>,
    count: u64,
    head: i64,
    header: Header,
    max_change: usize,
    // Dropped last: the file is closed before its name goes.
    temporary: Temporary,
}

impl Import {
    /// Begins in a temporary file beside `path` (its name begins with a dot). Refuses a `path` that exists.
    pub fn create(path: &Path, identity: Identity, head: i64) -> Result<Import, Error> {
        Import::create_with(path, identity, head, &Tuning::default())
    }

    pub(crate) fn create_with(path: &Path, identity: Identity, head: i64, tuning: &Tuning) -> Result<Import, Error> {
        if head < 1 {
            return Err(Error::Import(format!(
                "the head is revision {head}, expected 1 or more"
            )));
        }
        let (disk, temporary) = create_temporary(path)?;
        let temporary = Temporary {
            temporary,
            path: path.to_path_buf(),
            published: false,
        };
        let header = Header {
            generation: 1,
            segment_bytes: tuning.segment_bytes,
            identity,
            imported: head,
            checkpoint: 1,
            checkpoint_segments: 0,
            durable_seq: 0,
        };
        let size = tuning.segment_bytes as usize;
        let mut output = Output::start(Arc::new(disk), tuning.segment_bytes)?;
        let data = Data::begin(&mut output)?;
        Ok(Import {
            output,
            data,
            index: Stream::new(1, size),
            keys: KeysPayload::default(),
            payload: Vec::new(),
            gathered: Vec::new(),
            subs: HashMap::new(),
            last_key: None,
            leases: Vec::new(),
            count: 0,
            head,
            header,
            max_change: size - SEGMENT_HEADER_LEN - RECORD_OVERHEAD - PREFIX_OVERHEAD - 64,
            temporary,
        })
    }

    /// Adds the next record; keys strictly ascend, revisions are in `1..=head`.
    pub fn push(&mut self, record: &Record) -> Result<(), Error> {
        self.check(record)?;
        let sub = self.subs.entry(record.modified).or_insert(0);
        let mut ver = Ver {
            create: record.create,
            main: record.modified,
            version: record.version,
            lease: record.lease,
            address: 0,
            sub: *sub,
            len: record.value.len() as u32,
        };
        *sub += 1;
        let more = record.key.len() + record.value.len() + RECORD_OVERHEAD;
        if !self.payload.is_empty() && self.payload.len() + more > FRAME_BYTES.min(self.data.frame_limit()) {
            self.write_frame()?;
        }
        ver.address = put_copy(&mut self.payload, &record.key, &record.value, &ver) as u64;
        self.gathered.push((record.key.clone(), ver));
        self.last_key = Some(record.key.clone());
        self.count += 1;
        Ok(())
    }

    fn check(&self, record: &Record) -> Result<(), Error> {
        let name = || String::from_utf8_lossy(&record.key).into_owned();
        if self.last_key.as_ref().is_some_and(|last| *last >= record.key) {
            return Err(Error::Import(format!("key {:?} does not ascend", name())));
        }
        if !(1 <= record.create && record.create <= record.modified && record.modified <= self.head) {
            return Err(Error::Import(format!(
                "key {:?} was created at revision {} and modified at {}, expected 1 <= created <= modified <= {}",
                name(),
                record.create,
                record.modified,
                self.head
            )));
        }
        if record.version < 1 {
            return Err(Error::Import(format!(
                "key {:?} has version {}",
                name(),
                record.version
            )));
        }
        let len = record.key.len() + record.value.len();
        if len > self.max_change {
            return Err(Error::Import(format!(
                "key {:?} takes {len} bytes with its value, at most {} are possible",
                name(),
                self.max_change
            )));
        }
        Ok(())
    }

    /// Adds a lease.
    pub fn lease(&mut self, lease: Lease) -> Result<(), Error> {
        if lease.id == 0 {
            return Err(Error::Import("a lease has id 0".into()));
        }
        self.leases.push(lease);
        Ok(())
    }

    /// Writes the gathered records, and their entries to the index.
    fn write_frame(&mut self) -> Result<(), Error> {
        let payload_at = self.data.frame(&mut self.output, &self.payload)?;
        self.payload.clear();
        let (target, mut full) = (self.index.frame_target(), Vec::new());
        for (key, mut ver) in self.gathered.drain(..) {
            ver.address += payload_at;
            self.keys.add(&key, &[ver], target, &mut full);
        }
        for payload in full {
            self.index_frame(Kind::Keys, &payload)?;
        }
        Ok(())
    }

    fn index_frame(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Error> {
        let output = &mut self.output;
        let (at, bytes) = self
            .index
            .frame(kind, payload, &mut || output.next_slot().map(|(_, at)| at))?;
        self.output.write_index(at, &bytes)
    }

    /// Ends the section, syncs, reads the whole file back through recovery's reader and gives what it holds.
    pub fn finish(mut self) -> Result<Finished, Error> {
        if !self.payload.is_empty() {
            self.write_frame()?;
        }
        let rest = self.keys.take();
        if !rest.is_empty() {
            self.index_frame(Kind::Keys, &rest)?;
        }
        self.leases.sort_by_key(|lease| lease.id);
        for leases in std::mem::take(&mut self.leases).chunks(64) {
            let mut payload = Vec::new();
            leases.iter().for_each(|lease| put_lease(&mut payload, lease));
            self.index_frame(Kind::Leases, &payload)?;
        }
        for segments in self.data.segments().chunks(64) {
            let payload = segments_payload(segments.iter().map(|(sequence, segment)| (sequence, segment)));
            self.index_frame(Kind::Segments, &payload)?;
        }
        let (replay_at, replay_seq) = self.data.end();
        let end = End {
            head: self.head,
            compacted: self.head,
            replay_at,
            replay_seq,
            entries: self.keys.entries(),
        };
        self.index_frame(Kind::End, &end.encode())?;
        self.header.checkpoint_segments = self.index.segments();
        self.header.durable_seq = replay_seq - 1;
        let disk = self.output.finish()?;
        write_header(&*disk, &self.header, &[])?;
        disk.drop_caches();
        let summary = verify::summary(&disk)?;
        if summary.keys != self.count {
            return Err(Error::damaged(
                0,
                format!("{} keys were read back, {} were written", summary.keys, self.count),
            ));
        }
        Ok(Finished {
            summary,
            _disk: disk,
            temporary: self.temporary,
        })
    }
}

/// A finished, synced import that has no final name yet. Dropped, it is removed.
pub struct Finished {
    summary: Summary,
    /// Keeps the lock.
    _disk: Arc<dyn Disk>,
    temporary: Temporary,
}

impl Finished {
    /// What the synced file holds, read back from it.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Gives the file its final name (never replacing one) and syncs the folder.
    pub fn publish(mut self) -> Result<(), Error> {
        publish_temporary(&self.temporary.temporary, &self.temporary.path)?;
        self.temporary.published = true;
        Ok(())
    }
}
