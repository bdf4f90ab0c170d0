//! `mvccpb.KeyValue` as it stands in a `RangeResponse`, written field by field: a list of many megabytes is sent while its
//! values are read, so that it is never a message in memory.

use bytes::BufMut;
use prost::encoding::{encode_varint, encoded_len_varint};

/// All of a key but its value.
#[derive(Clone, Copy, Debug)]
pub struct KeyMeta<'a> {
    /// The key.
    pub key: &'a [u8],
    /// `create_revision`.
    pub create_revision: i64,
    /// `mod_revision`.
    pub mod_revision: i64,
    /// `version`.
    pub version: i64,
    /// `lease`, 0 for none.
    pub lease: i64,
}

/// The tags: the field's number and its wire type (0 varint, 2 bytes).
const KVS: u8 = 2 << 3 | 2;
const KEY: u8 = 1 << 3 | 2;
const CREATE_REVISION: u8 = 2 << 3;
const MOD_REVISION: u8 = 3 << 3;
const VERSION: u8 = 4 << 3;
const VALUE: u8 = 5 << 3 | 2;
const LEASE: u8 = 6 << 3;

fn bytes_len(len: usize) -> usize {
    match len {
        0 => 0,
        len => 1 + encoded_len_varint(len as u64) + len,
    }
}

fn number_len(number: i64) -> usize {
    match number {
        0 => 0,
        number => 1 + encoded_len_varint(number as u64),
    }
}

fn put_number(out: &mut impl BufMut, tag: u8, number: i64) {
    if number != 0 {
        out.put_u8(tag);
        encode_varint(number as u64, out);
    }
}

fn put_bytes(out: &mut impl BufMut, tag: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.put_u8(tag);
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    }
}

impl KeyMeta<'_> {
    /// Bytes of the message alone, with a value of `value` bytes.
    fn message_len(&self, value: usize) -> usize {
        bytes_len(self.key.len())
            + number_len(self.create_revision)
            + number_len(self.mod_revision)
            + number_len(self.version)
            + bytes_len(value)
            + number_len(self.lease)
    }

    /// Bytes of it as one element of `RangeResponse.kvs`, with a value of `value` bytes.
    pub fn element_len(&self, value: usize) -> usize {
        let message = self.message_len(value);
        1 + encoded_len_varint(message as u64) + message
    }

    /// Writes it as one element of `RangeResponse.kvs`.
    pub fn put_element(&self, value: &[u8], out: &mut impl BufMut) {
        out.put_u8(KVS);
        encode_varint(self.message_len(value.len()) as u64, out);
        put_bytes(out, KEY, self.key);
        put_number(out, CREATE_REVISION, self.create_revision);
        put_number(out, MOD_REVISION, self.mod_revision);
        put_number(out, VERSION, self.version);
        put_bytes(out, VALUE, value);
        put_number(out, LEASE, self.lease);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{KeyValue, RangeResponse};

    #[test]
    fn elements_are_what_the_message_would_be() {
        let numbers = [0, 1, 127, 128, i64::MAX, -1];
        let mut kvs = Vec::new();
        for (at, key) in ["", "k", &"long".repeat(50)].into_iter().enumerate() {
            for (shift, value) in [0, 1, 127, 128, 70_000].into_iter().enumerate() {
                let number = |by: usize| numbers[(at + shift + by) % numbers.len()];
                kvs.push(KeyValue {
                    key: key.to_owned().into(),
                    create_revision: number(0),
                    mod_revision: number(1),
                    version: number(2),
                    value: vec![7; value].into(),
                    lease: number(3),
                });
            }
        }
        let (mut bytes, mut len) = (Vec::new(), 0);
        for kv in &kvs {
            let meta = KeyMeta {
                key: &kv.key,
                create_revision: kv.create_revision,
                mod_revision: kv.mod_revision,
                version: kv.version,
                lease: kv.lease,
            };
            len += meta.element_len(kv.value.len());
            meta.put_element(&kv.value, &mut bytes);
            assert_eq!(bytes.len(), len);
        }
        let response = RangeResponse {
            kvs,
            ..Default::default()
        };
        assert_eq!(bytes, response.encode_to_vec());
    }
}
