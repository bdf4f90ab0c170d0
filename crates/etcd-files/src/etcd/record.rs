//! Revisions and the records of the bucket `key`.

use bytes::Bytes;

use super::KEY;
use super::proto::{self, Fields, Value};
use crate::error::{ReadError, shown};

/// The length of a revision as a key.
pub(crate) const REVISION: usize = 17;

/// A revision: the transaction and the change within it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Revision {
    /// The transaction's revision; a fresh etcd's first has 2.
    pub main: i64,
    /// The number of the change within its transaction, from 0.
    pub sub: i64,
}

impl Revision {
    /// As a key of the bucket `key`, without the mark of a delete.
    pub fn encode(&self) -> [u8; REVISION] {
        let mut bytes = [b'_'; REVISION];
        bytes[..8].copy_from_slice(&self.main.to_be_bytes());
        bytes[9..].copy_from_slice(&self.sub.to_be_bytes());
        bytes
    }

    /// Of 17 bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Revision, String> {
        if bytes.len() != REVISION || bytes[8] != b'_' {
            return Err(format!("`{}` is not a revision: 8 bytes, `_`, 8 bytes", shown(bytes)));
        }
        let number = |from: usize| i64::from_be_bytes(bytes[from..from + 8].try_into().expect("8 bytes"));
        let revision = Revision {
            main: number(0),
            sub: number(9),
        };
        match revision.main >= 0 && revision.sub >= 0 {
            true => Ok(revision),
            false => Err(format!("the revision {revision:?} is negative")),
        }
    }
}

/// A change of a key, as etcd stores it. The bytes are slices of their page: copy what is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The revision of the change.
    pub revision: Revision,
    /// Whether the key was deleted; then all below but the key is zero.
    pub deleted: bool,
    /// The key. Empty in the record that `etcdutl snapshot restore --bump-revision` leaves, which is no key.
    pub key: Bytes,
    /// The main revision of the put that created this generation of the key.
    pub create_revision: i64,
    /// The main revision of this change as the record says it; its place says the same in any sound file.
    pub mod_revision: i64,
    /// The number of puts since the creation, from 1.
    pub version: i64,
    /// The value.
    pub value: Bytes,
    /// The lease, 0 for none.
    pub lease: i64,
}

impl Record {
    /// Of an entry of the bucket `key`.
    pub(crate) fn decode(place: &[u8], bytes: &Bytes) -> Result<Record, ReadError> {
        Self::parse(place, bytes).map_err(|what| ReadError::Content {
            bucket: KEY,
            key: shown(place),
            what,
        })
    }

    fn parse(place: &[u8], bytes: &Bytes) -> Result<Record, String> {
        let deleted = match place.len() {
            REVISION => false,
            18 if place[REVISION] == b't' => true,
            _ => return Err("neither a revision of 17 bytes nor one with the mark `t`".to_owned()),
        };
        let mut record = Record {
            revision: Revision::decode(&place[..REVISION])?,
            deleted,
            key: Bytes::new(),
            create_revision: 0,
            mod_revision: 0,
            version: 0,
            value: Bytes::new(),
            lease: 0,
        };
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(key)) => record.key = key,
                (2, Value::Number(revision)) => record.create_revision = revision as i64,
                (3, Value::Number(revision)) => record.mod_revision = revision as i64,
                (4, Value::Number(version)) => record.version = version as i64,
                (5, Value::Bytes(value)) => record.value = value,
                (6, Value::Number(lease)) => record.lease = lease as i64,
                (1..=6, _) => return Err(format!("field {} has the wrong type", field.0)),
                _ => {}
            }
        }
        if record.mod_revision != record.revision.main && !deleted && !record.key.is_empty() {
            return Err(format!(
                "the record says revision {}, its place {}",
                record.mod_revision, record.revision.main
            ));
        }
        Ok(record)
    }
}

/// A put's value in the bucket, in etcd's own encoding: the hash over it is the same.
pub(crate) fn encode_put(
    out: &mut Vec<u8>,
    main: i64,
    key: &[u8],
    value: &[u8],
    create_revision: i64,
    version: i64,
    lease: i64,
) {
    proto::put_bytes(out, 1, key);
    proto::put_number(out, 2, create_revision as u64);
    proto::put_number(out, 3, main as u64);
    proto::put_number(out, 4, version as u64);
    proto::put_bytes(out, 5, value);
    proto::put_number(out, 6, lease as u64);
}

/// The length of what [`encode_put`] makes.
pub(crate) fn put_length(main: i64, key: usize, value: usize, create_revision: i64, version: i64, lease: i64) -> usize {
    proto::bytes_length(key)
        + proto::number_length(create_revision as u64)
        + proto::number_length(main as u64)
        + proto::number_length(version as u64)
        + proto::bytes_length(value)
        + proto::number_length(lease as u64)
}
