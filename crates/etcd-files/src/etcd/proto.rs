//! As much of protobuf's wire format as etcd's records need.

use bytes::Bytes;

/// A field's value.
pub(crate) enum Value {
    Number(u64),
    Bytes(Bytes),
    /// Of a fixed width, which no known field has.
    Fixed,
}

/// Goes through a message's fields.
pub(crate) struct Fields {
    bytes: Bytes,
    at: usize,
}

impl Fields {
    pub fn of(bytes: &Bytes) -> Fields {
        Fields {
            bytes: bytes.clone(),
            at: 0,
        }
    }

    /// The next field's number and value; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u64, Value)>, String> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.skip(8)?,
            2 => {
                let length = self.varint()?;
                let left = self.bytes.len() - self.at;
                if length > left as u64 {
                    return Err(format!(
                        "a field of {length} bytes at byte {} of the value, where {left} are left",
                        self.at
                    ));
                }
                let from = self.at;
                self.at += length as usize;
                Value::Bytes(self.bytes.slice(from..self.at))
            }
            5 => self.skip(4)?,
            wire => return Err(format!("wire type {wire} at byte {} of the value", self.at)),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let Some(byte) = self.bytes.get(self.at) else {
                return Err(format!("the value ends at byte {} inside a number", self.at));
            };
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift.min(63);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(format!(
            "a number of more than 10 bytes before byte {} of the value",
            self.at
        ))
    }

    fn skip(&mut self, length: usize) -> Result<Value, String> {
        if length > self.bytes.len() - self.at {
            return Err(format!("the value ends inside the field at byte {}", self.at));
        }
        self.at += length;
        Ok(Value::Fixed)
    }
}

/// The bytes of a number.
pub(crate) fn varint_length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A numeric field below 16; nothing for 0, as proto3 has it.
pub(crate) fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        out.push(field << 3);
        put_varint(out, number);
    }
}

/// A field of bytes below 16; nothing for none.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.push(field << 3 | 2);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

pub(crate) fn number_length(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_length(number) }
}

pub(crate) fn bytes_length(length: usize) -> usize {
    if length == 0 {
        0
    } else {
        1 + varint_length(length as u64) + length
    }
}
