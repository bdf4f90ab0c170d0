//! The history: the changes of a run of revisions, read from their frames.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::codec::{Malformed, Reader};
use crate::frame::{FRAME_HEADER_LEN, FrameHeader, LAST, frame_len, parse};
use crate::layout::{Address, SEGMENT_HEADER_LEN};
use crate::record::{Record, read_prefix, read_record};
use crate::recovery::{read_padded, unparsable};
use crate::{Change, ChangeKind, Error, Revision, Store, ValueRef, Version};

/// Bytes read at once where frames follow each other.
const WINDOW: usize = 256 << 10;

impl Store {
    /// The changes of revisions `from..=to`, in order of revision. Stops on Break.
    ///
    /// `from >= compacted()`: the changes of the compacted revision itself are still there, as in etcd; of an import's
    /// head, those whose key still had that version.
    pub fn changes(&self, from: i64, to: i64, visit: &mut dyn FnMut(Change) -> ControlFlow<()>) -> Result<(), Error> {
        let mut window = Window::default();
        for revision in from..=to.min(self.head) {
            let flow = match self.revisions.get(revision) {
                Some(address) => self.changes_at(address, &mut window, visit)?,
                None => self.kept_changes(revision, visit),
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The changes of a revision whose frame is gone, as far as the index keeps them.
    fn kept_changes(&self, revision: i64, visit: &mut dyn FnMut(Change) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut kept = Vec::new();
        for entry in self.index.entries() {
            for ver in entry.versions().filter(|ver| ver.main == revision) {
                let what = if ver.is_tombstone() {
                    ChangeKind::Delete
                } else {
                    ChangeKind::Put(ver.public())
                };
                kept.push(Change {
                    key: Bytes::copy_from_slice(entry.key()),
                    revision: ver.revision(),
                    what,
                });
            }
        }
        kept.sort_by_key(|change| change.revision);
        for change in kept {
            visit(change)?;
        }
        ControlFlow::Continue(())
    }

    /// The changes of the transaction whose chain begins at an address.
    fn changes_at(
        &self,
        mut address: Address,
        window: &mut Window,
        visit: &mut dyn FnMut(Change) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let size = self.space.segment_bytes();
        loop {
            let (header, payload) = self.frame_at(address, window)?;
            let payload_at = address + FRAME_HEADER_LEN as u64;
            let offset = self.space.offset(address).unwrap_or_default();
            let flow =
                visit_records(&payload, payload_at, visit).map_err(|Malformed| unparsable(offset, "a transaction"))?;
            if flow.is_break() || header.part & LAST != 0 {
                return Ok(flow);
            }
            let next = address + frame_len(payload.len()) as u64;
            // The next part stands here, or, if this was the last of its segment, at the start of the next one.
            address = match self.frame_at(next, window) {
                Ok((found, _)) if found.seq == header.seq + 1 => next,
                _ => (address / size + 1) * size + SEGMENT_HEADER_LEN as u64,
            };
        }
    }

    /// The frame at an address: from memory, or from the file through the window.
    fn frame_at(&self, address: Address, window: &mut Window) -> Result<(FrameHeader, Bytes), Error> {
        if let Some(bytes) = self.in_memory(address, FRAME_HEADER_LEN) {
            // Made by this process: its checksum is for the medium.
            let header = FrameHeader::decode(&bytes).ok_or(Error::Gone)?;
            let whole = self.in_memory(address, FRAME_HEADER_LEN + header.len as usize);
            let whole = whole.ok_or(Error::Gone)?;
            return Ok((header, whole.slice(FRAME_HEADER_LEN..)));
        }
        let offset = self.space.offset(address).ok_or(Error::Gone)?;
        let rest = (self.space.segment_bytes() - address % self.space.segment_bytes()) as usize;
        for wanted in [WINDOW, rest] {
            let bytes = self.through_window(window, offset, wanted.min(rest))?;
            if let Some((header, payload)) = parse(&bytes, 0) {
                let payload = bytes.slice_ref(payload);
                return Ok((header, payload));
            }
        }
        Err(Error::damaged(offset, "a frame of the history is not whole"))
    }

    /// Bytes from an offset: what the window has, or at least `wanted` read anew.
    fn through_window(&self, window: &mut Window, offset: u64, wanted: usize) -> Result<Bytes, Error> {
        let inside = offset
            .checked_sub(window.at)
            .filter(|at| *at < window.bytes.len() as u64);
        if let Some(at) = inside {
            let bytes = window.bytes.slice(at as usize..);
            if parse(&bytes, 0).is_some() {
                return Ok(bytes);
            }
        }
        let bytes = read_padded(&*self.disk, offset, wanted)?;
        *window = Window {
            at: offset,
            bytes: Bytes::from(bytes),
        };
        Ok(window.bytes.clone())
    }
}

/// A piece of the file read ahead.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Bytes,
}

/// Visits a transaction's changes. `payload_at`: where the payload begins in the log.
pub(crate) fn visit_records(
    payload: &Bytes,
    payload_at: Address,
    visit: &mut dyn FnMut(Change) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Malformed> {
    let mut reader = Reader::new(payload);
    let mut revision: Revision = read_prefix(&mut reader)?;
    while !reader.is_empty() {
        let (key, what) = match read_record(&mut reader)? {
            Record::EndLease { .. } => continue,
            Record::Delete { key } => (key, ChangeKind::Delete),
            Record::Put(put) => {
                let value = ValueRef {
                    offset: payload_at + put.stored_at as u64,
                    len: put.value.len() as u32,
                };
                let version = Version {
                    create: put.create,
                    modified: revision,
                    version: put.version,
                    lease: put.lease,
                    value,
                };
                (put.key, ChangeKind::Put(version))
            }
        };
        let change = Change {
            key: payload.slice_ref(key),
            revision,
            what,
        };
        if visit(change).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        revision.sub += 1;
    }
    Ok(ControlFlow::Continue(()))
}
