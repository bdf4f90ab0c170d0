//! Recovery: from bytes nobody vouches for to a state that was acknowledged.
//!
//! 1. The header copies: the whole one with the higher generation counts.
//! 2. The header of every slot: which are segments of the log, which of the checkpoint.
//! 3. The checkpoint the header names, checked frame by frame.
//! 4. The log from where the checkpoint says, frame by frame, up to the first that is not whole.
//! 5. Whether that is a torn tail or damage:
//!
//! | first frame that is not whole, number `s` | then |
//! |---|---|
//! | a frame behind it, the mark or the header says `s` was synced | damage: refused with its offset |
//! | nothing says so | a torn tail: cut there (at the start of its chain, if it belongs to one) |
//!
//! Nothing is written here: what has to be cleaned is given back as a list.

mod believed;
mod replay;
mod scan;
mod tail;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use scan::{Slots, read_headers, read_padded, read_segment, scan_slots};

use crate::checkpoint::{End, read_frames, read_keys, read_revisions, read_segments};
use crate::codec::{Malformed, Reader};
use crate::frame::Kind;
use crate::index::Index;
use crate::layout::{Address, Header, SEGMENT_HEADER_LEN};
use crate::record::read_lease;
use crate::revisions::Revisions;
use crate::space::{Segment, Space, weight};
use crate::{Disk, Error, Lease};

/// What a file holds, recovered.
pub(crate) struct Recovered {
    pub(crate) header: Header,
    pub(crate) index: Index,
    pub(crate) leases: BTreeMap<i64, Lease>,
    pub(crate) notes: BTreeMap<String, Bytes>,
    pub(crate) revisions: Revisions,
    pub(crate) head: i64,
    pub(crate) compacted: i64,
    pub(crate) space: Space,
    /// Where the next frame goes.
    pub(crate) tail: Address,
    /// The last whole frame's sequence number.
    pub(crate) seq: u64,
    /// The tag of the log's last segment.
    pub(crate) tag: u32,
    /// The highest checkpoint id found anywhere, so that the next one is new.
    pub(crate) last_checkpoint: u64,
    /// Where the log was replayed from.
    pub(crate) replayed_from: Address,
    /// Bytes of the file to be overwritten with zeros, and synced, before anything is written.
    pub(crate) clean: Vec<(u64, u64)>,
    /// Header copies to be brought to the newest before what an older one names is used for something else.
    pub(crate) stale_headers: Vec<u64>,
}

/// Damage at an offset, for a payload whose checksum is right but which does not parse.
pub(crate) fn unparsable(offset: u64, what: &str) -> Error {
    Error::damaged(
        offset,
        format!(
            "{what} with a right checksum does not parse: expected format {}",
            crate::layout::FORMAT
        ),
    )
}

/// Recovers a file.
pub(crate) fn recover(disk: &Arc<dyn Disk>, quota: u64) -> Result<Recovered, Error> {
    let headers = read_headers(&**disk)?;
    let header = headers.newest;
    let slots = scan_slots(&**disk, header.segment_bytes)?;
    let mut space = Space::new(Arc::clone(disk), header.segment_bytes, quota);
    space.set_slots(slots.count as usize);
    let mut state = Recovered {
        index: Index::default(),
        leases: BTreeMap::new(),
        notes: BTreeMap::new(),
        revisions: Revisions::default(),
        head: 1,
        compacted: 0,
        space,
        tail: u64::from(header.segment_bytes) + SEGMENT_HEADER_LEN as u64,
        seq: 0,
        tag: 0,
        last_checkpoint: slots.last_checkpoint.max(header.checkpoint),
        replayed_from: 0,
        clean: Vec::new(),
        stale_headers: headers.stale,
        header,
    };
    if state.header.checkpoint == 0 {
        first_segment(&mut state, &slots)?;
    } else {
        load_checkpoint(&**disk, &mut state, &slots)?;
    }
    state.replayed_from = state.tail;
    let evidence = state.header.durable_seq.max(headers.mark);
    tail::replay_log(&**disk, &mut state, &slots, evidence)?;
    believed::state(&state)?;
    account(&mut state);
    Ok(state)
}

/// A file without a checkpoint: its log begins in segment 1.
fn first_segment(state: &mut Recovered, slots: &Slots) -> Result<(), Error> {
    let Some(found) = slots.log.get(&1) else {
        return Err(Error::damaged(
            state.space.slot_at(0),
            "no slot holds segment 1 of the log, and the header names no checkpoint",
        ));
    };
    state.space.add_segment(
        1,
        Segment {
            slot: found.slot,
            first_seq: found.first_seq,
            used: SEGMENT_HEADER_LEN as u32,
            live: 0,
            max_revision: 0,
            emptied: None,
        },
    );
    Ok(())
}

/// What the frames of a checkpoint hold, handed over one by one.
#[derive(Default)]
struct Loading {
    revisions: Vec<(i64, Vec<Address>)>,
    segments: Vec<(u64, Segment)>,
    entries: u64,
    end: Option<End>,
}

fn load_checkpoint(disk: &dyn Disk, state: &mut Recovered, slots: &Slots) -> Result<(), Error> {
    let id = state.header.checkpoint;
    let segments = slots.checkpoint(id, state.header.checkpoint_segments)?;
    let mut loading = Loading::default();
    let mut seq = 0;
    let mut stopped = 0;
    for slot in &segments {
        let base = state.space.slot_at(*slot);
        let bytes = read_segment(disk, base, state.header.segment_bytes)?;
        let at = read_frames(&bytes, &mut seq, |header, payload| {
            take_frame(state, &mut loading, header.kind, payload)
                .map_err(|Malformed| unparsable(base, "a checkpoint frame"))
        })?;
        stopped = base + at as u64;
    }
    let Some(end) = loading.end else {
        return Err(Error::damaged(
            stopped,
            format!("checkpoint {id} ends after frame {seq}: expected more frames and its end"),
        ));
    };
    if end.entries != loading.entries {
        return Err(Error::damaged(
            stopped,
            format!(
                "checkpoint {id} has {} entries, its end says {}",
                loading.entries, end.entries
            ),
        ));
    }
    if !believed::end(&end, state.header.segment_bytes) {
        return Err(unparsable(stopped, "the end of a checkpoint"));
    }
    state.space.set_checkpoint(segments);
    for (sequence, segment) in loading.segments {
        let found = slots.log.get(&sequence).is_some_and(|found| found.slot == segment.slot);
        if !found {
            return Err(Error::damaged(
                state.space.slot_at(segment.slot),
                format!("the header of segment {sequence} of the log is not here, where checkpoint {id} has it"),
            ));
        }
        if !believed::segment(&segment, state.header.segment_bytes) {
            return Err(unparsable(stopped, "a checkpoint's list of segments"));
        }
        state.space.add_segment(sequence, segment);
    }
    state.head = end.head;
    state.compacted = end.compacted;
    state.tail = end.replay_at;
    state.seq = end.replay_seq - 1;
    let mut revisions: Vec<(i64, Address)> = Vec::new();
    for (first, addresses) in loading.revisions {
        revisions.extend((first..).zip(addresses));
    }
    state.revisions = Revisions::from_list(&revisions);
    state.revisions.forget_before(end.compacted);
    Ok(())
}

fn take_frame(state: &mut Recovered, loading: &mut Loading, kind: Kind, payload: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(payload);
    match kind {
        Kind::Keys => read_keys::<Malformed>(payload, |key, versions| {
            loading.entries += 1;
            add_entry(&mut state.index, key, versions)
        })?,
        Kind::Leases => {
            while !reader.is_empty() {
                let lease = read_lease(&mut reader)?;
                state.leases.insert(lease.id, lease);
            }
        }
        Kind::Notes => {
            let name = String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| Malformed)?;
            let value = Bytes::copy_from_slice(reader.bytes()?);
            state.notes.insert(name, value);
        }
        Kind::Revisions => {
            let (first, addresses) = read_revisions(payload)?;
            if !believed::number(first) {
                return Err(Malformed);
            }
            loading.revisions.push((first, addresses));
        }
        Kind::Segments => loading.segments.extend(read_segments(payload)?),
        Kind::End => loading.end = Some(End::decode(payload)?),
        _ => return Err(Malformed),
    }
    Ok(())
}

/// A key with many versions comes in several entries.
fn add_entry(index: &mut Index, key: &[u8], versions: &[crate::index::Ver]) -> Result<(), Malformed> {
    if index.push(key, versions) {
        return Ok(());
    }
    let last = index.get(key).map(|entry| entry.latest().revision());
    match (last, versions.first()) {
        (Some(last), Some(first))
            if last < first.revision() && versions.is_sorted_by(|a, b| a.revision() < b.revision()) => {}
        _ => return Err(Malformed),
    }
    for ver in versions {
        index.append(key, *ver);
    }
    Ok(())
}

/// Weighs every version in its segment: what the log holds beyond that is dead.
fn account(state: &mut Recovered) {
    for entry in state.index.entries() {
        for ver in entry.versions().filter(|ver| !ver.is_tombstone()) {
            state.space.weigh(ver.address, weight(entry.key().len(), ver.len), true);
        }
    }
}
