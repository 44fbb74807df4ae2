//! One value of a JSON text (RFC 8259), found by a JSON Pointer (RFC 6901) without a tree in memory.
//!
//! The whole text is looked at: one that is no JSON has no values. Of names that stand twice in an object the last counts, as most parsers
//! have it.

use std::borrow::Cow;

use super::Malformed;
pub use crate::json::DEPTH_MAX;
use crate::json::{Lexer, place, unescaped};

/// What a pointer leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'t> {
    /// Text, unescaped.
    Text(Cow<'t, [u8]>),
    /// A number as it is written, `true`, `false` or `null`.
    Literal(&'t [u8]),
    /// An object or an array.
    Nested,
}

impl Found<'_> {
    /// Returns the bytes to compare, if it is a single value.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            Self::Literal(text) => Some(text),
            Self::Nested => None,
        }
    }
}

/// Splits a pointer into its names, unescaped.
///
/// # Errors
/// A message: it does not begin with `/`, or has a `~` that is no escape.
pub fn pointer(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mend = text.trim_start_matches(['$', '.']).replace('.', "/");
    let wrong = || format!("the JSON pointer `{text}` does not begin with `/`: write `/{mend}`");
    let rest = text.strip_prefix('/').ok_or_else(wrong)?;
    let name = |part: &str| {
        let is_escape = |at: usize| matches!(part.as_bytes().get(at + 1), Some(b'0' | b'1'));
        match part.match_indices('~').all(|(at, _)| is_escape(at)) {
            true => Ok(part.replace("~1", "/").replace("~0", "~")),
            false => Err(format!("`~` in the JSON pointer `{text}` is not `~0` or `~1`")),
        }
    };
    rest.split('/').map(name).collect()
}

/// Returns what a pointer leads to in a text, if it leads to anything.
///
/// # Errors
/// The text is no JSON, or too deep.
pub fn find<'t>(text: &'t [u8], pointer: &[String]) -> Result<Option<Found<'t>>, Malformed> {
    let mut reader = Reader { lexer: Lexer::new(text).ok_or(Malformed)?, found: None };
    reader.value(Some(pointer), DEPTH_MAX).ok_or(Malformed)?;
    if reader.lexer.is_over() { Ok(reader.found) } else { Err(Malformed) }
}

struct Reader<'t> {
    lexer: Lexer<'t>,
    found: Option<Found<'t>>,
}

impl Reader<'_> {
    /// Reads a value, in which `way` leads on if there is one. `None`: it is wrong.
    fn value(&mut self, way: Option<&[String]>, depth: usize) -> Option<()> {
        self.lexer.space();
        let is_end = way.is_some_and(<[String]>::is_empty);
        match self.lexer.peek()? {
            b'{' => self.object(way.filter(|_| !is_end), depth.checked_sub(1)?)?,
            b'[' => self.array(way.filter(|_| !is_end), depth.checked_sub(1)?)?,
            b'"' => {
                let raw = self.lexer.raw_text()?;
                // Also one that nobody wants has to be right.
                let text = unescaped(raw)?;
                if is_end {
                    self.found = Some(Found::Text(text));
                }
                return Some(());
            }
            _ => {
                let literal = self.lexer.literal()?;
                if is_end {
                    self.found = Some(Found::Literal(literal));
                }
                return Some(());
            }
        }
        if is_end {
            self.found = Some(Found::Nested);
        }
        Some(())
    }

    fn object(&mut self, way: Option<&[String]>, depth: usize) -> Option<()> {
        let mut has_more = self.lexer.enter(b'}');
        while has_more {
            self.lexer.space();
            let name = unescaped(self.lexer.raw_text()?)?;
            self.lexer.colon()?;
            let below = way.and_then(<[String]>::split_first).filter(|(first, _)| *first.as_bytes() == *name);
            let below = below.map(|(_, rest)| rest);
            if below.is_some() {
                self.found = None;
            }
            self.value(below, depth)?;
            has_more = self.lexer.next(b'}')?;
        }
        Some(())
    }

    fn array(&mut self, way: Option<&[String]>, depth: usize) -> Option<()> {
        let way = way.and_then(<[String]>::split_first);
        let wanted = way.and_then(|(first, _)| place(first));
        let mut has_more = self.lexer.enter(b']');
        let mut index = 0;
        while has_more {
            let below = way.map(|(_, rest)| rest).filter(|_| wanted == Some(index));
            self.value(below, depth)?;
            has_more = self.lexer.next(b']')?;
            index += 1;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn at(text: &str, way: &str) -> Option<String> {
        let pointer = pointer(way).unwrap();
        let found = find(text.as_bytes(), &pointer).ok()??;
        Some(found.bytes().map_or("nested".to_owned(), |bytes| String::from_utf8(bytes.to_vec()).unwrap()))
    }

    #[test]
    fn pointers_of_rfc_6901_lead_to_their_values() {
        let text = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
        for (way, wanted) in [
            ("", "nested"),
            ("/foo", "nested"),
            ("/foo/0", "bar"),
            ("/foo/1", "baz"),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
        ] {
            assert_eq!(at(text, way).as_deref(), Some(wanted), "{way}");
        }
        for way in ["/foo/2", "/foo/00", "/foo/-", "/foo/0/x", "/none", "/foo/+1"] {
            assert_eq!(at(text, way), None, "{way}");
        }
        assert!(pointer("foo").is_err() && pointer("/a~2").is_err() && pointer("/a~").is_err());
    }

    #[test]
    fn the_last_of_equal_names_counts_at_every_level() {
        assert_eq!(at(r#"{"a":1,"a":2}"#, "/a").as_deref(), Some("2"));
        assert_eq!(at(r#"{"a":{"b":1},"a":{}}"#, "/a/b"), None);
        assert_eq!(at(r#"{"a":{"b":1},"\u0061":{"b":3}}"#, "/a/b").as_deref(), Some("3"));
    }

    #[test]
    fn what_is_no_json_has_no_values() {
        for text in [
            "",
            "{",
            r#"{"a":1"#,
            r#"{"a":1}x"#,
            r#"{"a":1,}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":tru}"#,
            r#"{"a":1}{"a":1}"#,
            "{\"a\":1,\"b\":\"\n\"}",
            r#"{"a":1,"b":"\x"}"#,
            r#"{"a":1,"b":"\ud800"}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":1,"b":[1,]}"#,
            r#"{"a":1,"b":"\"}"#,
            r#"{"a":1,"b":-}"#,
            r#"{"a":1,"b":"\u12"}"#,
        ] {
            assert_eq!(at(text, "/a"), None, "{text}");
        }
        assert_eq!(find(b"{\"a\":1,\"b\":\"\xff\"}", &["a".to_owned()]), Err(Malformed));
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(find(deep(DEPTH_MAX).as_bytes(), &[]).is_ok());
        assert!(find(deep(DEPTH_MAX + 1).as_bytes(), &[]).is_err());
        assert!(find(deep(1_000_000).as_bytes(), &[]).is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[ab/~\"]{0,2}", inner), 0..4)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    fn shown(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Object(_) | Value::Array(_) => None,
            other => Some(other.to_string()),
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_serde_json_finds(value in value(), way in "(/([ab0-3]|~0|~1|\"){0,2}){0,4}", is_pretty: bool) {
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            let found = find(text.as_bytes(), &pointer(&way).unwrap()).unwrap();
            let wanted = value.pointer(&way);
            prop_assert_eq!(found.is_some(), wanted.is_some());
            if let (Some(found), Some(wanted)) = (found, wanted) {
                prop_assert_eq!(found.bytes().map(<[u8]>::to_vec), shown(wanted).map(String::into_bytes));
            }
        }

        #[test]
        fn it_takes_as_json_what_serde_json_takes(text in r#"[\[\]{}",:0-9.eE+\-truefalsn\\ ]{0,24}"#) {
            let is_json = serde_json::from_str::<Value>(&text).is_ok();
            // A number beyond all bounds is one to the grammar.
            if find(text.as_bytes(), &[]).is_ok() != is_json {
                prop_assert!(!is_json && text.contains(['e', 'E']), "{}", text);
            }
        }
    }
}
