//! What the log's payloads hold, record by record.
//!
//! A transaction's payload is its revision, the number of its first change in this frame, and its records up to the
//! payload's end. A record never crosses a frame, so that a value is one piece of the file; its checksum stands before
//! it, so that it can be read without its frame.

use crate::codec::{Malformed, Reader, put_bytes, put_signed, put_varint};
use crate::index::Ver;
use crate::{Lease, Revision};

/// The most bytes a record takes beyond its key and value.
pub(crate) const RECORD_OVERHEAD: usize = 72;
/// The most bytes a payload takes before its first record.
pub(crate) const PREFIX_OVERHEAD: usize = 16;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const END_LEASE: u8 = 3;

/// A put as the log holds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Put<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) create: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) value: &'a [u8],
    /// Where its checksum begins in the payload, and the value 4 bytes on. This place, not the value's, is the address of
    /// a version: an empty value may end where its segment ends.
    pub(crate) stored_at: usize,
    /// The checksum stored before the value.
    pub(crate) checksum: u32,
}

/// One record of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Record<'a> {
    Put(Put<'a>),
    Delete { key: &'a [u8] },
    EndLease { id: i64 },
}

/// Appends the start of a transaction's payload. One that changes no key (leases end) does not make its revision.
pub(crate) fn put_prefix(out: &mut Vec<u8>, revision: i64, first_sub: u32) {
    put_signed(out, revision);
    put_varint(out, u64::from(first_sub));
}

pub(crate) fn read_prefix(reader: &mut Reader<'_>) -> Result<Revision, Malformed> {
    Ok(Revision {
        main: reader.signed()?,
        sub: reader.length32()?,
    })
}

/// Appends a put; gives where the value's checksum begins in `out`.
pub(crate) fn put_put(out: &mut Vec<u8>, key: &[u8], value: &[u8], create: i64, version: i64, lease: i64) -> usize {
    out.push(PUT);
    put_body(out, key, value, create, version, lease)
}

fn put_body(out: &mut Vec<u8>, key: &[u8], value: &[u8], create: i64, version: i64, lease: i64) -> usize {
    put_signed(out, create);
    put_signed(out, version);
    put_signed(out, lease);
    put_bytes(out, key);
    put_varint(out, value.len() as u64);
    let at = out.len();
    out.extend_from_slice(&crc32c::crc32c(value).to_le_bytes());
    out.extend_from_slice(value);
    at
}

fn read_body<'a>(reader: &mut Reader<'a>) -> Result<Put<'a>, Malformed> {
    let (create, version, lease) = (reader.signed()?, reader.signed()?, reader.signed()?);
    let key = reader.bytes()?;
    let len = reader.length32()?;
    let stored_at = reader.at();
    let checksum = read_u32(reader)?;
    let value = reader.take(len as usize)?;
    Ok(Put {
        key,
        create,
        version,
        lease,
        value,
        stored_at,
        checksum,
    })
}

fn read_u32(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let bytes = reader.take(4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

pub(crate) fn put_delete(out: &mut Vec<u8>, key: &[u8]) {
    out.push(DELETE);
    put_bytes(out, key);
}

pub(crate) fn put_end_lease(out: &mut Vec<u8>, id: i64) {
    out.push(END_LEASE);
    put_signed(out, id);
}

pub(crate) fn read_record<'a>(reader: &mut Reader<'a>) -> Result<Record<'a>, Malformed> {
    match reader.byte()? {
        PUT => Ok(Record::Put(read_body(reader)?)),
        DELETE => Ok(Record::Delete { key: reader.bytes()? }),
        END_LEASE => Ok(Record::EndLease { id: reader.signed()? }),
        _ => Err(Malformed),
    }
}

/// Appends a version copied forward or imported, which keeps its own revision; gives where the value's checksum begins.
pub(crate) fn put_copy(out: &mut Vec<u8>, key: &[u8], value: &[u8], ver: &Ver) -> usize {
    put_signed(out, ver.main);
    put_varint(out, u64::from(ver.sub));
    put_body(out, key, value, ver.create, ver.version, ver.lease)
}

pub(crate) fn read_copy<'a>(reader: &mut Reader<'a>) -> Result<(Revision, Put<'a>), Malformed> {
    let revision = read_prefix(reader)?;
    Ok((revision, read_body(reader)?))
}

pub(crate) fn put_lease(out: &mut Vec<u8>, lease: &Lease) {
    put_signed(out, lease.id);
    put_signed(out, lease.granted_ttl);
    put_signed(out, lease.deadline_ms);
}

pub(crate) fn read_lease(reader: &mut Reader<'_>) -> Result<Lease, Malformed> {
    Ok(Lease {
        id: reader.signed()?,
        granted_ttl: reader.signed()?,
        deadline_ms: reader.signed()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_return_and_their_overhead_is_bounded() {
        let mut out = Vec::new();
        put_prefix(&mut out, i64::MAX, u32::MAX);
        assert!(out.len() <= PREFIX_OVERHEAD);
        let before = out.len();
        let stored_at = put_put(&mut out, b"key", b"value", i64::MAX, i64::MAX, -1);
        assert!(out.len() - before <= RECORD_OVERHEAD);
        put_delete(&mut out, b"gone");
        put_end_lease(&mut out, 7);
        let mut reader = Reader::new(&out);
        let revision = read_prefix(&mut reader).unwrap();
        assert_eq!((revision.main, revision.sub), (i64::MAX, u32::MAX));
        let Record::Put(put) = read_record(&mut reader).unwrap() else {
            panic!("not a put")
        };
        assert_eq!(
            (put.key, put.value, put.stored_at),
            (&b"key"[..], &b"value"[..], stored_at)
        );
        assert_eq!((put.create, put.version, put.lease), (i64::MAX, i64::MAX, -1));
        assert_eq!(put.checksum, crc32c::crc32c(b"value"));
        assert_eq!(read_record(&mut reader).unwrap(), Record::Delete { key: b"gone" });
        assert_eq!(read_record(&mut reader).unwrap(), Record::EndLease { id: 7 });
        assert!(reader.is_empty());
        assert!(read_record(&mut Reader::new(&[9])).is_err());
    }

    #[test]
    fn a_copy_keeps_its_revision() {
        let ver = Ver {
            create: 3,
            main: 9,
            version: 4,
            lease: -2,
            address: 0,
            sub: 5,
            len: 1,
        };
        let mut out = Vec::new();
        put_copy(&mut out, b"k", b"v", &ver);
        let (revision, put) = read_copy(&mut Reader::new(&out)).unwrap();
        assert_eq!(revision, ver.revision());
        assert_eq!((put.create, put.version, put.lease, put.value), (3, 4, -2, &b"v"[..]));
    }
}
