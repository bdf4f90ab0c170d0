//! One transaction or event of the log, applied again. Applying what the state holds already changes nothing.

use bytes::Bytes;

use super::tail::Part;
use super::{Recovered, unparsable};
use crate::codec::{Malformed, Reader};
use crate::frame::Kind;
use crate::index::Ver;
use crate::layout::Address;
use crate::record::{Put, Record, read_copy, read_lease, read_prefix, read_record};
use crate::{Error, Revision};

/// Applies a whole chain. `address`: where its first frame begins; `offset`: its last frame in the file.
pub(super) fn apply(
    state: &mut Recovered,
    kind: Kind,
    parts: &[Part],
    address: Address,
    offset: u64,
) -> Result<(), Error> {
    let mut revision = 0;
    for part in parts {
        let applied = match kind {
            Kind::Transaction => transaction(state, part, &mut revision),
            Kind::Copy => copies(state, part),
            _ => event(state, kind, &part.payload),
        };
        applied.map_err(|Malformed| unparsable(offset, "a frame of the log"))?;
    }
    if revision > 0 {
        if !state.revisions.push(revision, address) || revision > state.head + 1 {
            return Err(Error::damaged(
                offset,
                format!("revision {revision} follows revision {}", state.head),
            ));
        }
        state.head = state.head.max(revision);
        let size = state.space.segment_bytes();
        for part in parts {
            state.space.update(part.address / size, |segment| {
                segment.max_revision = segment.max_revision.max(revision);
            });
        }
    }
    Ok(())
}

fn version(put: &Put<'_>, revision: Revision, payload_at: Address) -> Ver {
    Ver {
        create: put.create,
        main: revision.main,
        version: put.version,
        lease: put.lease,
        address: payload_at + put.stored_at as u64,
        sub: revision.sub,
        len: put.value.len() as u32,
    }
}

fn transaction(state: &mut Recovered, part: &Part, revision: &mut i64) -> Result<(), Malformed> {
    let mut reader = Reader::new(&part.payload);
    let mut next = read_prefix(&mut reader)?;
    while !reader.is_empty() {
        let (key, ver) = match read_record(&mut reader)? {
            Record::Put(put) => (put.key, version(&put, next, part.address)),
            Record::Delete { key } => (key, Ver::tombstone(next)),
            Record::EndLease { id } => {
                state.leases.remove(&id);
                continue;
            }
        };
        next.sub = next.sub.checked_add(1).ok_or(Malformed)?;
        *revision = next.main;
        let known = state
            .index
            .get(key)
            .is_some_and(|entry| entry.latest().revision() >= ver.revision());
        if !known {
            state.index.append(key, ver);
        }
    }
    Ok(())
}

fn copies(state: &mut Recovered, part: &Part) -> Result<(), Malformed> {
    let mut reader = Reader::new(&part.payload);
    while !reader.is_empty() {
        let (revision, put) = read_copy(&mut reader)?;
        let address = part.address + put.stored_at as u64;
        state.index.relocate(put.key, revision, address);
    }
    Ok(())
}

fn event(state: &mut Recovered, kind: Kind, payload: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(payload);
    match kind {
        Kind::Lease => {
            let lease = read_lease(&mut reader)?;
            state.leases.insert(lease.id, lease);
        }
        Kind::Compact => {
            let compacted = reader.signed()?;
            if compacted > state.head {
                return Err(Malformed);
            }
            state.compacted = state.compacted.max(compacted);
            state.revisions.forget_before(state.compacted);
        }
        Kind::Note => {
            let name = String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| Malformed)?;
            let value = Bytes::copy_from_slice(reader.bytes()?);
            if value.is_empty() {
                state.notes.remove(&name);
            } else {
                state.notes.insert(name, value);
            }
        }
        _ => return Err(Malformed),
    }
    Ok(())
}
