//! Paths into JSON documents, and the values there.
//!
//! A document is read once from its beginning to its end and nothing of it is kept but the value at the path. What lies beside the
//! path is passed over without recursion, so that no depth does harm.

use std::fmt;

use model::Issue;
use model::limits::JSON_PATH_STEPS_MAX;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::quoted;

/// How a path is written.
const EXAMPLES: &str = "write it like `.status`, `.checks.db.status`, `.nodes[0].role` or `[\"a.b\"]`";

/// The way to a value from the top of a JSON document.
///
/// ```text
/// path  = [ "$" ] *step
/// step  = "." name / "[" digits "]" / "[" JSON string "]"
/// name  = 1*( letter / digit / "_" / "-" / any character beyond ASCII )
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    steps: Vec<Step>,
    written: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl JsonPath {
    /// Reads a path.
    ///
    /// # Errors
    /// Says where it stops being one; or it has more than [`JSON_PATH_STEPS_MAX`] steps.
    pub fn parse(written: &str) -> Result<Self, Issue> {
        let mut steps = Vec::new();
        let mut rest = written.strip_prefix('$').unwrap_or(written);
        let wrong = |rest: &str, why: &str| {
            let place = written[..written.len() - rest.len()].chars().count() + 1;
            Issue::at("", format!("`{written}` is not a path in JSON: {why} at character {place}")).suggest(EXAMPLES)
        };
        if written.is_empty() {
            return Err(wrong(rest, "a key or `$` is missing"));
        }
        while !rest.is_empty() {
            let (step, left) = step(rest).map_err(|why| wrong(rest, why))?;
            steps.push(step);
            rest = left;
        }
        if steps.len() > JSON_PATH_STEPS_MAX {
            let count = steps.len();
            let message =
                format!("`{written}` has {count} steps, and a path in JSON has {JSON_PATH_STEPS_MAX} at most");
            return Err(Issue::at("", message));
        }
        Ok(Self { steps, written: written.to_owned() })
    }

    /// Returns the value there; `None`: there is none. Of a key that an object has twice, the last counts.
    ///
    /// # Errors
    /// The document is not JSON.
    pub(super) fn find(&self, document: &[u8]) -> Result<Option<Found>, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(document);
        let found = Seek(&self.steps).deserialize(&mut reader)?;
        reader.end()?;
        Ok(found)
    }
}

/// Returns the first step of a path, and what follows it.
fn step(text: &str) -> Result<(Step, &str), &'static str> {
    if let Some(rest) = text.strip_prefix('.') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || !c.is_ascii();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        return match end {
            0 => Err("a key is missing after the dot"),
            _ => Ok((Step::Key(rest[..end].to_owned()), &rest[end..])),
        };
    }
    let Some(rest) = text.strip_prefix('[') else { return Err("neither `.` nor `[`") };
    if rest.starts_with('"') {
        let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let key =
            strings.next().and_then(Result::ok).ok_or("a key in quotes that does not end, or is no JSON string,")?;
        let left = rest[strings.byte_offset()..].strip_prefix(']').ok_or("a `[` without its `]`")?;
        return Ok((Step::Key(key), left));
    }
    let (digits, left) = rest.split_once(']').ok_or("a `[` without its `]`")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let index = digits.parse().ok().filter(|_| is_number);
    Ok((Step::Index(index.ok_or("neither a number nor a key in quotes within `[]`")?), left))
}

/// A value of a document, as far as it can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    Null,
    Switch(bool),
    Number(Number),
    Text(String),
    List,
    Map,
}

impl Found {
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(switch) => Self::Switch(*switch),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(_) => Self::List,
            Value::Object(_) => Self::Map,
        }
    }

    /// Returns whether it is this value. Numbers are compared by what they are worth: `1` is `1.0`.
    pub(super) fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Number(one), Value::Number(other)) => {
                one == other || ((one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64())
            }
            (Self::Switch(_) | Self::Text(_), value) => *self == Self::of(value),
            _ => false,
        }
    }

    /// Returns what an expression is matched with.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Number(number) => Some(number.to_string()),
            Self::Switch(switch) => Some(switch.to_string()),
            Self::Null | Self::List | Self::Map => None,
        }
    }

    /// Returns the value as a reason shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::List => "a list".to_owned(),
            Self::Map => "an object".to_owned(),
            Self::Text(text) => quoted(text.as_bytes()),
            Self::Number(_) | Self::Switch(_) => self.text().unwrap_or_default(),
        }
    }
}

/// Looks for the value at the end of these steps.
struct Seek<'p>(&'p [Step]);

impl Seek<'_> {
    fn here(&self, found: Found) -> Option<Found> {
        self.0.is_empty().then_some(found)
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = Option<Found>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = Option<Found>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(self.here(Found::Null))
    }

    fn visit_bool<E: Error>(self, switch: bool) -> Result<Self::Value, E> {
        Ok(self.here(Found::Switch(switch)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.here(Found::Number(number.into())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.here(Found::Number(number.into())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(self.here(Number::from_f64(number).map_or(Found::Null, Found::Number)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.here(Found::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut found = self.here(Found::List);
        if let Some((Step::Index(wanted), rest)) = self.0.split_first() {
            for _ in 0..*wanted {
                if list.next_element::<IgnoredAny>()?.is_none() {
                    return Ok(None);
                }
            }
            found = list.next_element_seed(Seek(rest))?.flatten();
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = self.here(Found::Map);
        if let Some((Step::Key(wanted), rest)) = self.0.split_first() {
            while let Some(is_wanted) = map.next_key_seed(KeyIs(wanted))? {
                match is_wanted {
                    true => found = map.next_value_seed(Seek(rest))?,
                    false => _ = map.next_value::<IgnoredAny>()?,
                }
            }
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// Whether a key is this one.
struct KeyIs<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for KeyIs<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<bool, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIs<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}
