//! JSON whose objects name each member once.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses a document. Returns `None` if it is not JSON, is nested deeper than 128 levels, or names a member twice: two readers of such an
/// object may see different values (RFC 7519 section 4).
pub(super) fn parse(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Unique>(bytes).ok().map(|unique| unique.0)
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Unique(value))) = members.next_entry::<String, Unique>()? {
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is named twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_names_a_member_twice_is_not_read() {
        assert_eq!(
            parse(br#"{"a":[1,-2,0.5,null,true,"x",{"a":{}}]}"#),
            Some(json!({"a":[1,-2,0.5,null,true,"x",{"a":{}}]}))
        );
        for bad in
            [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"b":{"a":1,"a":2}}]"#, "{} {}", "", "{", "\u{feff}{}"]
        {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse(b"{\"a\":\"\xff\"}"), None);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(deep(100).as_bytes()).is_some());
        assert_eq!(parse(deep(100_000).as_bytes()), None);
    }

    proptest! {
        #[test]
        fn all_else_is_read_as_ever(text in "[\\[\\]{}:, \"ab01.e-]{0,24}") {
            let known = serde_json::from_str::<Value>(&text).ok();
            let read = parse(text.as_bytes());
            prop_assert!(read.is_none() || read == known);
        }
    }
}
