//! Protocol Buffers, as far as messages need it that are written and read by hand (protobuf.dev, "Encoding").
//!
//! What is read comes from another process and may be anything: [`Reader`] stays within the message, skips fields that its caller does
//! not know, and allocates nothing. A message inside a message is read only if its caller asks for it, so that no depth has to be bounded.

/// Numbers of fields end here.
const FIELD_MAX: u64 = (1 << 29) - 1;

/// The bytes are not a message of Protocol Buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number, a yes or no, or an item of an enumeration. Negative numbers are in two's complement.
    Number(u64),
    /// Text, bytes, or a message.
    Bytes(&'a [u8]),
    /// 64 bits of another kind, such as a floating-point number of double precision.
    Fixed(u64),
    /// 32 bits of another kind.
    Short,
}

impl<'a> Value<'a> {
    /// Returns the number; `None` if the field is of another kind.
    pub fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// Returns the bytes; `None` if the field is of another kind.
    pub fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// Reads the fields of a message, in order, each with its number. It ends behind the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of this message.
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn read(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let tag = self.varint()?;
        let (field, kind) = (tag >> 3, tag & 7);
        if field == 0 || field > FIELD_MAX {
            return Err(Malformed);
        }
        let value = match kind {
            0 => Value::Number(self.varint()?),
            1 => Value::Fixed(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Malformed)?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Short)?,
            // Groups, which proto3 does not have, and kinds that no version has.
            _ => return Err(Malformed),
        };
        Ok((field as u32, value))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a number of up to 64 bits, seven bits at a time, the lowest first.
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
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
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

/// Writes a message. Numbers of 0 and empty texts are left out, as proto3 has it.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// Returns the message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Writes a number.
    pub fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, 0);
            self.varint(value);
        }
    }

    /// Writes bytes.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.tag(field, 2);
            self.varint(value.len() as u64);
            self.out.extend_from_slice(value);
        }
    }

    /// Writes text, which must be UTF-8: readers refuse the whole message otherwise. A byte that is none becomes `!`, as Envoy writes it.
    pub fn text(&mut self, field: u32, value: &[u8]) {
        match std::str::from_utf8(value) {
            Ok(text) => self.bytes(field, text.as_bytes()),
            Err(_) => {
                let mut mended = Vec::with_capacity(value.len());
                for chunk in value.utf8_chunks() {
                    mended.extend_from_slice(chunk.valid().as_bytes());
                    mended.extend(chunk.invalid().iter().map(|_| b'!'));
                }
                self.bytes(field, &mended);
            }
        }
    }

    /// Writes a message inside this one, also if it is empty.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.tag(field, 2);
        let start = self.out.len();
        write(self);
        let end = self.out.len();
        self.varint((end - start) as u64);
        // The length is known only now, and belongs before it.
        self.out[start..].rotate_left(end - start);
    }

    /// Writes an entry of a map from text to text.
    pub fn entry(&mut self, field: u32, key: &[u8], value: &[u8]) {
        self.message(field, |entry| {
            entry.text(1, key);
            entry.text(2, value);
        });
    }

    fn tag(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        Reader::new(message).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut writer = Writer::default();
        writer.number(1, 300);
        writer.number(2, 0);
        writer.text(3, "é".as_bytes());
        writer.text(4, b"a\xff\xc3z");
        writer.bytes(5, &[0, 0xff]);
        writer.message(6, |inner| inner.message(7, |inner| inner.bytes(8, &[7; 200])));
        writer.message(9, |_| {});
        writer.number(FIELD_MAX as u32, u64::MAX);
        let written = writer.into_bytes();
        let inner = [&[0x3a, 0xcb, 0x01, 0x42, 0xc8, 0x01][..], &[7; 200]].concat();
        let expected = [
            (1, Value::Number(300)),
            (3, Value::Bytes("é".as_bytes())),
            (4, Value::Bytes(b"a!!z")),
            (5, Value::Bytes(&[0, 0xff])),
            (6, Value::Bytes(&inner)),
            (9, Value::Bytes(b"")),
            (FIELD_MAX as u32, Value::Number(u64::MAX)),
        ];
        assert_eq!(all(&written).unwrap(), expected);
    }

    #[test]
    fn fields_of_all_kinds_are_read_and_groups_are_refused() {
        let message = [&[0x19][..], &[9; 8], &[0x25], &[9; 4], &[0x08, 0x81, 0x00]].concat();
        assert_eq!(
            all(&message).unwrap(),
            [(3, Value::Fixed(0x0909_0909_0909_0909)), (4, Value::Short), (1, Value::Number(1))]
        );
        let endless = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let too_large = [8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        let far = [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        for bad in
            [&[8][..], &[8, 0x80], &[0, 1], &[0x0b], &[0x0c], &[0x0f], &[0x12, 5, 1], &[0x19, 1], &[0x25, 1], &[0x80]]
                .into_iter()
                .chain([&endless[..], &too_large, &far])
        {
            assert_eq!(all(bad), Err(Malformed), "{bad:?}");
            assert_eq!(Reader::new(bad).count(), 1, "it ends behind the error");
        }
    }

    #[test]
    fn a_value_of_another_kind_is_none() {
        assert_eq!((Value::Number(1).bytes(), Value::Short.number()), (None, None));
        assert_eq!((Value::Bytes(b"").number(), Value::Fixed(1).bytes()), (None, None));
    }
}
