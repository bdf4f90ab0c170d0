//! The digest that proves two sides equal.

use sha2::{Digest as _, Sha256};

use crate::Record;

/// The digest that proves two sides equal: SHA-256 over, for each record in key order, key length (u32 LE), key, value
/// length (u32 LE), value, create, modified, version and lease (i64 LE each).
#[derive(Clone, Default)]
pub struct Digest {
    hash: Sha256,
}

impl Digest {
    /// Adds the next record.
    pub fn add(&mut self, record: &Record) {
        self.add_parts(
            &record.key,
            &record.value,
            [record.create, record.modified, record.version, record.lease],
        );
    }

    pub(crate) fn add_parts(&mut self, key: &[u8], value: &[u8], numbers: [i64; 4]) {
        self.hash.update((key.len() as u32).to_le_bytes());
        self.hash.update(key);
        self.hash.update((value.len() as u32).to_le_bytes());
        self.hash.update(value);
        let mut tail = [0; 32];
        for (field, number) in tail.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        self.hash.update(tail);
    }

    /// The digest.
    pub fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_bytes_are_as_documented() {
        let record = Record {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"vv"),
            create: 2,
            modified: 3,
            version: 4,
            lease: -1,
        };
        let mut digest = Digest::default();
        digest.add(&record);
        let mut plain = Vec::new();
        plain.extend_from_slice(b"\x01\0\0\0k\x02\0\0\0vv");
        for number in [2i64, 3, 4, -1] {
            plain.extend_from_slice(&number.to_le_bytes());
        }
        assert_eq!(digest.finish(), <[u8; 32]>::from(Sha256::digest(&plain)));
    }
}
