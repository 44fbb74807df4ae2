//! One field of a protobuf message, found by numbers, without its schema.

use super::Malformed;

/// Returns the numbers of a path such as `1.3`.
///
/// # Errors
/// A message: a part is not the number of a field, or there are more than 16.
pub fn path(text: &str) -> Result<Vec<u32>, String> {
    const PARTS_MAX: usize = 16;
    // The number of a field has 29 bits.
    let number =
        |part: &str| part.parse::<u32>().ok().filter(|number| (1..1 << 29).contains(number) && !part.starts_with('+'));
    let parts: Option<Vec<u32>> = text.split('.').map(number).collect();
    parts.filter(|parts| parts.len() <= PARTS_MAX).ok_or_else(|| {
        format!(
            "`{text}` is not the path of a field: numbers of fields joined by dots, such as `1.3`, at most {PARTS_MAX}"
        )
    })
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'m> {
    /// A varint or a fixed number, without a sign.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'m [u8]),
}

/// Returns the message of the first frame of a gRPC body (five bytes before it), unless it is compressed or incomplete.
pub fn first_message(body: &[u8]) -> Option<&[u8]> {
    let (head, rest) = body.split_at_checked(5)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    rest.get(..length).filter(|_| head[0] == 0)
}

/// Returns the last field at a path, if there is any.
///
/// # Errors
/// The message is malformed. One inside it that is has no fields.
pub fn find<'m>(message: &'m [u8], path: &[u32]) -> Result<Option<Found<'m>>, Malformed> {
    let Some((first, below)) = path.split_first() else { return Ok(None) };
    look(message, *first, below).ok_or(Malformed)
}

/// The outer `None`: the message is malformed.
#[allow(clippy::option_option, reason = "`?` reads the message, and a field may be missing")]
fn look<'m>(message: &'m [u8], first: u32, below: &[u32]) -> Option<Option<Found<'m>>> {
    let (mut rest, mut found) = (message, None);
    while !rest.is_empty() {
        let (key, after) = varint(rest)?;
        let (number, kind) = (key >> 3, key & 7);
        let (value, after) = match kind {
            0 => varint(after).map(|(value, after)| (Found::Number(value), after))?,
            1 => fixed(after, 8)?,
            2 => {
                let (length, after) = varint(after)?;
                let (bytes, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
                (Found::Bytes(bytes), after)
            }
            5 => fixed(after, 4)?,
            // Groups are gone, and nothing else was ever there.
            _ => return None,
        };
        rest = after;
        if number == u64::from(first) {
            found = match (&value, below) {
                (_, []) => Some(value),
                // Messages of one field are merged: of another one only what it has counts.
                (Found::Bytes(inner), below) => find(inner, below).unwrap_or_default().or(found),
                (Found::Number(_), _) => found,
            };
        }
    }
    Some(found)
}

fn fixed(bytes: &[u8], length: usize) -> Option<(Found<'_>, &[u8])> {
    let (value, rest) = bytes.split_at_checked(length)?;
    let number = value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((Found::Number(number), rest))
}

/// Reads a number of at most ten bytes, seven bits each, the lowest first.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * place as u32)?;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_numbers() {
        // 1: 150, 2: "testing", 3: { 1: 7, 2: "in" }, 4: fixed32 5, 5: fixed64 6
        let message = b"\x08\x96\x01\x12\x07testing\x1a\x06\x08\x07\x12\x02in\x25\x05\0\0\0\x29\x06\0\0\0\0\0\0\0";
        let at = |text: &str| find(message, &path(text).unwrap()).unwrap();
        assert_eq!((at("1"), at("2")), (Some(Found::Number(150)), Some(Found::Bytes(b"testing"))));
        assert_eq!((at("3.1"), at("3.2")), (Some(Found::Number(7)), Some(Found::Bytes(b"in"))));
        assert_eq!((at("4"), at("5")), (Some(Found::Number(5)), Some(Found::Number(6))));
        assert_eq!((at("6"), at("1.1"), at("3.3")), (None, None, None));
        // The last counts, and messages are merged.
        assert_eq!(find(b"\x08\x01\x08\x02", &[1]).unwrap(), Some(Found::Number(2)));
        assert_eq!(find(b"\x1a\x02\x08\x07\x1a\x02\x10\x09", &[3, 1]).unwrap(), Some(Found::Number(7)));
    }

    #[test]
    fn malformed_messages_and_frames_have_no_fields() {
        for bad in [
            &b"\x08"[..],
            b"\x08\x01\x12\x05ab",
            b"\x08\x01\x0b",
            b"\x08\x01\x25\0",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(find(bad, &[1]), Err(Malformed), "{bad:?}");
        }
        assert_eq!(first_message(b"\0\0\0\0\x02ab"), Some(&b"ab"[..]));
        assert_eq!(first_message(b"\0\0\0\0\x02abc"), Some(&b"ab"[..]), "more messages follow");
        for bad in [&b""[..], b"\0\0\0\0", b"\x01\0\0\0\x02ab", b"\0\0\0\0\x03ab", b"\0\xff\xff\xff\xffab"] {
            assert_eq!(first_message(bad), None, "{bad:?}");
        }
        for bad in ["", "0", "a", "1.", "1..2", "+1", "536870912", "-1"] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }
}
