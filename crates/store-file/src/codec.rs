//! Integers and byte strings as the file's payloads hold them.
//!
//! Fixed integers are little endian. A varint is LEB128: seven bits a byte, lowest first, at most ten bytes. Signed
//! numbers are stored as the varint of their two's complement bits: they are never negative but for lease ids.

/// Appends an unsigned varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the varint of a signed number's bits.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, value as u64);
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a payload that its checksum has already vouched for: what does not parse is a bug or a collision, and is
/// reported as damage by the caller.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The payload does not parse.
#[derive(Debug)]
pub(crate) struct Malformed;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// The offset of the next byte in the payload.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        Ok(self.varint()? as i64)
    }

    pub(crate) fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.varint()?).map_err(|_| Malformed)
    }

    pub(crate) fn length32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.length()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_return_what_was_put() {
        let values = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        for value in values {
            put_varint(&mut out, value);
        }
        put_signed(&mut out, -5);
        put_bytes(&mut out, b"abc");
        let mut reader = Reader::new(&out);
        for value in values {
            assert_eq!(reader.varint().unwrap(), value);
        }
        assert_eq!(reader.signed().unwrap(), -5);
        assert_eq!(reader.bytes().unwrap(), b"abc");
        assert!(reader.is_empty());
    }

    #[test]
    fn what_is_cut_or_too_long_is_malformed() {
        assert!(Reader::new(&[0x80]).varint().is_err());
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
        assert!(Reader::new(&[5, 1, 2]).bytes().is_err());
        let mut huge = Vec::new();
        put_varint(&mut huge, u64::MAX);
        assert!(Reader::new(&huge).bytes().is_err());
    }
}
