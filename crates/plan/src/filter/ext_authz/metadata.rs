//! `dynamic_metadata` of a `CheckResponse`: a `google.protobuf.Struct`, which is JSON in the form of a message.

use model::protobuf::{Malformed, Reader, Value};
use serde_json::{Map, Number, Value as Json};

use crate::jose::Claims;

/// Structs and lists inside one another.
const DEPTH_MAX: usize = 16;
/// Values, and bytes of names and texts, of all of it.
const VALUES_MAX: usize = 1_024;
const BYTES_MAX: usize = 64 << 10;
/// Whole numbers up to here are exact, and are written without a fraction.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why metadata are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// They are no message.
    Malformed,
    /// They have more levels, values or bytes than they may.
    TooLarge,
}

impl From<Malformed> for Unread {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Reads the metadata of an answer, if it has any. Of several the last counts.
///
/// # Errors
/// They are malformed, or larger than they may be.
pub(super) fn read(message: &[u8]) -> Result<Option<Claims>, Unread> {
    let mut found = None;
    for field in Reader::new(message) {
        if let (4, Value::Bytes(bytes)) = field? {
            found = Some(bytes);
        }
    }
    let mut budget = Budget { values: VALUES_MAX, bytes: BYTES_MAX };
    found.map(|message| object(message, DEPTH_MAX, &mut budget).map(Claims::new)).transpose()
}

/// What may still be read.
struct Budget {
    values: usize,
    bytes: usize,
}

impl Budget {
    fn value(&mut self) -> Result<(), Unread> {
        self.values = self.values.checked_sub(1).ok_or(Unread::TooLarge)?;
        Ok(())
    }

    fn text(&mut self, bytes: &[u8]) -> Result<String, Unread> {
        self.bytes = self.bytes.checked_sub(bytes.len()).ok_or(Unread::TooLarge)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Unread::Malformed)
    }
}

/// Reads a `Struct`.
fn object(message: &[u8], depth: usize, budget: &mut Budget) -> Result<Map<String, Json>, Unread> {
    let depth = depth.checked_sub(1).ok_or(Unread::TooLarge)?;
    let mut members = Map::new();
    for field in Reader::new(message) {
        let (1, Value::Bytes(entry)) = field? else { continue };
        let (mut name, mut value) = (&b""[..], &b""[..]);
        for part in Reader::new(entry) {
            match part? {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        // Of an entry that comes twice the last counts.
        members.insert(budget.text(name)?, json(value, depth, budget)?);
    }
    Ok(members)
}

/// Reads a `Value`, which is one choice: the last counts.
fn json(message: &[u8], depth: usize, budget: &mut Budget) -> Result<Json, Unread> {
    budget.value()?;
    let mut last = None;
    for field in Reader::new(message) {
        let field = field?;
        if matches!(field.0, 1..=6) {
            last = Some(field);
        }
    }
    Ok(match last {
        Some((2, Value::Fixed(bits))) => number(f64::from_bits(bits)),
        Some((3, Value::Bytes(bytes))) => Json::String(budget.text(bytes)?),
        Some((4, Value::Number(truth))) => Json::Bool(truth != 0),
        Some((5, Value::Bytes(inner))) => Json::Object(object(inner, depth, budget)?),
        Some((6, Value::Bytes(inner))) => Json::Array(list(inner, depth, budget)?),
        Some((1, Value::Number(_))) | None => Json::Null,
        Some(_) => return Err(Unread::Malformed),
    })
}

/// Reads a `ListValue`.
fn list(message: &[u8], depth: usize, budget: &mut Budget) -> Result<Vec<Json>, Unread> {
    let depth = depth.checked_sub(1).ok_or(Unread::TooLarge)?;
    let mut items = Vec::new();
    for field in Reader::new(message) {
        if let (1, Value::Bytes(bytes)) = field? {
            items.push(json(bytes, depth, budget)?);
        }
    }
    Ok(items)
}

fn number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Json::Number((value as i64).into());
    }
    // JSON has neither infinite numbers nor those that are none.
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}

#[cfg(test)]
mod tests {
    use model::protobuf::Writer;
    use serde_json::json;

    use super::*;

    fn written(value: &Json, out: &mut Writer) {
        match value {
            Json::Null => {}
            Json::Bool(truth) => out.number(4, (*truth).into()),
            Json::String(text) => out.bytes(3, text.as_bytes()),
            Json::Array(items) => {
                out.message(6, |out| items.iter().for_each(|item| out.message(1, |out| written(item, out))));
            }
            Json::Object(_) => out.message(5, |out| write_object(value, out)),
            Json::Number(_) => panic!("the writer has no doubles"),
        }
    }

    fn write_object(value: &Json, out: &mut Writer) {
        for (name, value) in value.as_object().unwrap() {
            out.message(1, |out| {
                out.bytes(1, name.as_bytes());
                out.message(2, |out| written(value, out));
            });
        }
    }

    fn answer(value: &Json) -> Vec<u8> {
        let mut out = Writer::default();
        out.message(4, |out| write_object(value, out));
        out.into_bytes()
    }

    #[test]
    fn values_of_all_kinds_are_read() {
        let all =
            json!({ "a": "b", "yes": true, "none": null, "list": ["x", [true], {}], "deep": { "er": { "c": "d" } } });
        let read = read(&answer(&all)).unwrap().unwrap();
        assert_eq!(read.get("deep.er.c"), Some(&json!("d")));
        assert_eq!(read, Claims::from_json(all.to_string().as_bytes()).unwrap());
        assert_eq!(
            (number(-5.0), number(0.5), number(f64::NAN), number(1e300)),
            (json!(-5), json!(0.5), json!(null), json!(1e300))
        );
        let entry = [&[0x0a, 1, b'n', 0x12, 9, 0x11][..], &2.5_f64.to_le_bytes()].concat();
        let message = [&[0x22, entry.len() as u8 + 2, 0x0a, entry.len() as u8][..], &entry].concat();
        assert_eq!(super::read(&message).unwrap().unwrap().get("n"), Some(&json!(2.5)));
        assert_eq!(super::read(b"").unwrap(), None);
    }

    #[test]
    fn depth_values_and_bytes_are_bounded() {
        let deep = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(read(&answer(&deep(DEPTH_MAX))).is_ok());
        assert_eq!(read(&answer(&deep(DEPTH_MAX + 1))), Err(Unread::TooLarge));
        let nested = |levels: usize| json!({ "a": (1..levels).fold(json!([]), |inner, _| json!([inner])) });
        assert!(read(&answer(&nested(DEPTH_MAX - 1))).is_ok());
        assert_eq!(read(&answer(&nested(DEPTH_MAX))), Err(Unread::TooLarge));
        let many = |count: usize| json!({ "a": vec![json!(true); count] });
        assert!(read(&answer(&many(VALUES_MAX - 1))).is_ok());
        assert_eq!(read(&answer(&many(VALUES_MAX))), Err(Unread::TooLarge));
        let long = |bytes: usize| json!({ "a": "x".repeat(bytes) });
        assert!(read(&answer(&long(BYTES_MAX - 1))).is_ok());
        assert_eq!(read(&answer(&long(BYTES_MAX))), Err(Unread::TooLarge));
        // More levels than a stack would bear if each were entered.
        let mut inner = Vec::new();
        for _ in 0..2_000 {
            let mut out = Writer::default();
            out.message(1, |out| out.message(2, |out| out.bytes(5, &inner)));
            inner = out.into_bytes();
        }
        let mut out = Writer::default();
        out.bytes(4, &inner);
        assert_eq!(read(&out.into_bytes()), Err(Unread::TooLarge));
    }

    #[test]
    fn what_is_no_struct_is_refused() {
        for bad in [
            &[0x22, 1, 0x0a][..],
            &[0x22, 3, 0x0a, 1, 0x0a],
            // A name, and a text, that are not UTF-8.
            &[0x22, 5, 0x0a, 3, 0x0a, 1, 0xff],
            &[0x22, 7, 0x0a, 5, 0x12, 3, 0x1a, 1, 0xff],
            // A text that is a number.
            &[0x22, 6, 0x0a, 4, 0x12, 2, 0x18, 1],
        ] {
            assert_eq!(read(bad), Err(Unread::Malformed), "{bad:x?}");
        }
    }
}
