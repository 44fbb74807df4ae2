//! The spanned tree: what YAML said, with the place of every key and value.
//!
//! Copies share maps and lists, so that a large configuration with one object changed is the old one but for that object, and
//! what is the very same need not be looked at again.

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use model::Name;
use serde_json::{Map, Number, Value};

use crate::source::Span;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// In the order of the file; keys are unique.
    Map(Arc<Vec<(Key, Node)>>),
    List(Arc<Vec<Node>>),
    Scalar(Scalar),
    /// Something that was reported already; whatever holds it is not looked at further.
    Invalid,
}

/// A text in the place of a secret.
pub(crate) const HIDDEN: &str = "(hidden)";

/// One step of a way into a tree.
#[derive(Clone)]
pub(crate) enum Step<'a> {
    Key(&'a Key),
    Index(usize),
}

/// A key with its place.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: Text,
    pub(crate) span: Span,
}

/// A text that copies of the tree share, and the names of what it is resolved to. There may be very many.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Text(Arc<str>);

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The same text as a name.
    pub(crate) fn name(&self) -> Name {
        Name::new(Arc::clone(&self.0))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

/// Text that may stand for a number or a truth value.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: Text,
    /// Without quotes: then `true`, `5` and the like are not text.
    pub(crate) plain: bool,
    /// What was written, when the text comes from the environment in part: this may be shown, the text may be secret.
    pub(crate) written: Option<Box<Text>>,
}

impl Scalar {
    /// The text as it may be shown.
    pub(crate) fn shown(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.text)
    }

    /// Whether what was written is one variable and nothing else: `${NAME}`.
    pub(crate) fn is_one_variable(&self) -> bool {
        self.written.as_ref().is_some_and(|text| text.starts_with("${") && text.find('}') == Some(text.len() - 1))
    }

    /// The value by the core schema of YAML 1.2 (section 10.3): `on` and `yes` are text.
    pub(crate) fn value(&self) -> Value {
        if !self.plain {
            return Value::String(self.text.to_string());
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            text => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
        }
    }
}

impl Scalar {
    /// What may be told about this value: what came from the environment may be secret, and messages end up in logs.
    pub(crate) fn discreet(&self, message: String, suggestion: Option<String>) -> (String, Option<String>) {
        let Some(written) = &self.written else { return (message, suggestion) };
        // A short text may be part of any word.
        let hide = |text: &str| match self.text.len() {
            0..4 => text.replace(&format!("`{}`", self.text), &format!("`{written}`")),
            _ => text.replace(self.text.as_str(), written),
        };
        let tells = |text: &String| text.to_lowercase().contains(&self.text.to_lowercase());
        (hide(&message), suggestion.map(|text| hide(&text)).filter(|text| !tells(text)))
    }
}

/// A number of the core schema. What does not fit 64 bits becomes a float; infinities stay text, JSON has none.
fn number(text: &str) -> Option<Number> {
    if let Some(digits) = text.strip_prefix("0x") {
        return plain_digits(digits, 16).then(|| u64::from_str_radix(digits, 16).ok().map(Number::from))?;
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return plain_digits(digits, 8).then(|| u64::from_str_radix(digits, 8).ok().map(Number::from))?;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if plain_digits(unsigned, 10) {
        let bare = text.strip_prefix('+').unwrap_or(text);
        let whole = bare.parse::<u64>().map(Number::from).or_else(|_| bare.parse::<i64>().map(Number::from));
        return whole.ok().or_else(|| Number::from_f64(bare.parse().ok()?));
    }
    let shaped = unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    let digit = unsigned.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.');
    if !shaped || !digit || !unsigned.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

fn plain_digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

impl Kind {
    pub(crate) fn map(mut entries: Vec<(Key, Node)>) -> Self {
        entries.shrink_to_fit();
        Self::Map(Arc::new(entries))
    }

    pub(crate) fn list(mut items: Vec<Node>) -> Self {
        items.shrink_to_fit();
        Self::List(Arc::new(items))
    }
}

impl Node {
    /// Whether this is a copy of the very same map or list, at the same place. Equal ones may still not be.
    pub(crate) fn is_very_same(&self, other: &Self) -> bool {
        self.span == other.span
            && match (&self.kind, &other.kind) {
                (Kind::Map(one), Kind::Map(other)) => Arc::ptr_eq(one, other),
                (Kind::List(one), Kind::List(other)) => Arc::ptr_eq(one, other),
                _ => false,
            }
    }

    /// The value under a key, for a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, node)| node)
    }

    /// Key and value, for a map that has the key.
    pub(crate) fn entry(&self, key: &str) -> Option<(&Key, &Node)> {
        self.entries().iter().find(|(known, _)| known.text == key).map(|(key, node)| (key, node))
    }

    /// The entries of a map; none for anything else.
    pub(crate) fn entries(&self) -> &[(Key, Node)] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none for anything else.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// Whether this is a text that holds what an environment variable holds.
    pub(crate) fn is_from_environment(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(Scalar { written: Some(_), .. }))
    }

    /// The same as JSON. Recursion is bounded by the depth that the parser allows.
    pub(crate) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Map(entries) => {
                let pairs = entries.iter().map(|(key, node)| (key.text.to_string(), node.to_value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
            Kind::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Scalar(scalar) => scalar.value(),
            Kind::Invalid => Value::Null,
        }
    }

    /// The place of what `path` names: parts are joined by `/`, list places count from 0. Where the path leads out of
    /// the tree, the place of its longest known beginning.
    pub(crate) fn locate(&self, path: &str) -> Span {
        let mut node = self;
        let mut rest = path;
        let mut best = self.span;
        while !rest.is_empty() {
            let Some((span, child, left)) = node.step(rest) else { break };
            best = span;
            node = child;
            rest = left;
        }
        best
    }

    /// The scalar at the end of a path.
    pub(crate) fn scalar(&self, path: &str) -> Option<&Scalar> {
        let mut node = self;
        let mut rest = path;
        while !rest.is_empty() {
            (_, node, rest) = node.step(rest)?;
        }
        match &node.kind {
            Kind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// One step along a path: the place to show for the child, the child, and the path that is left.
    fn step<'a, 'p>(&'a self, path: &'p str) -> Option<(Span, &'a Node, &'p str)> {
        match &self.kind {
            Kind::Map(entries) => {
                // A key may hold `/` itself; the longest key that fits is meant.
                let fits =
                    |key: &str| path.strip_prefix(key).is_some_and(|left| left.is_empty() || left.starts_with('/'));
                let (key, child) =
                    entries.iter().filter(|(key, _)| fits(&key.text)).max_by_key(|(key, _)| key.text.len())?;
                let left = path[key.text.len()..].trim_start_matches('/');
                let value_shows = matches!(child.kind, Kind::Scalar(_)) && child.span.end > child.span.column;
                Some((if value_shows { child.span } else { key.span }, child, left))
            }
            Kind::List(items) => {
                let (place, left) = path.split_once('/').unwrap_or((path, ""));
                let child = items.get(place.parse::<usize>().ok()?)?;
                Some((child.span, child, left))
            }
            Kind::Scalar(_) | Kind::Invalid => None,
        }
    }

    /// The place of the key that a path ends in, where it ends in one.
    pub(crate) fn locate_key(&self, path: &str, key: &str) -> Span {
        let mut node = self;
        let mut rest = path;
        while !rest.is_empty() {
            let Some((_, child, left)) = node.step(rest) else { return self.locate(path) };
            node = child;
            rest = left;
        }
        node.entry(key).map_or_else(|| self.locate(path), |(key, _)| key.span)
    }
}

/// So many are looked for one by one before a table of all is made.
const STRAYS_MAX: u32 = 8;

/// Finds the entries of a map in an earlier one, mostly in the same order, without a search for each.
pub(crate) struct ByName<'a> {
    entries: &'a [(Key, Node)],
    next: Cell<usize>,
    /// How many were looked for out of order.
    strays: Cell<u32>,
    by_name: OnceCell<HashMap<&'a str, usize>>,
}

impl<'a> ByName<'a> {
    /// `map` is the earlier one.
    pub(crate) fn of(map: Option<&'a Node>) -> Self {
        let entries = map.map_or(&[][..], Node::entries);
        Self { entries, next: Cell::new(0), strays: Cell::new(0), by_name: OnceCell::new() }
    }

    /// The place of the entry with this key.
    pub(crate) fn place(&self, key: &str) -> Option<usize> {
        let fits = |place: &usize| self.entries.get(*place).is_some_and(|(known, _)| known.text == key);
        let expected = Some(self.next.get()).filter(fits);
        let place = expected.or_else(|| self.search(key))?;
        self.next.set(place + 1);
        Some(place)
    }

    fn search(&self, key: &str) -> Option<usize> {
        self.strays.set(self.strays.get() + 1);
        if self.strays.get() <= STRAYS_MAX {
            return self.entries.iter().position(|(known, _)| known.text == key);
        }
        let names = || self.entries.iter().enumerate().map(|(place, (key, _))| (key.text.as_str(), place)).collect();
        self.by_name.get_or_init(names).get(key).copied()
    }

    /// The value of the entry with this key.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entries.get(self.place(key)?).map(|(_, node)| node)
    }

    /// All keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.entries.iter().map(|(key, _)| key.text.as_str())
    }

    /// The key at a place.
    pub(crate) fn key(&self, place: usize) -> Option<&'a Key> {
        self.entries.get(place).map(|(key, _)| key)
    }

    /// The place of the entry that is the very same.
    pub(crate) fn same(&self, key: &Key, node: &Node) -> Option<usize> {
        let place = self.place(&key.text)?;
        let (known, twin) = &self.entries[place];
        (known.span == key.span && twin.is_very_same(node)).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        let plain = |text: &str| Scalar { text: text.into(), plain: true, written: None }.value();
        assert_eq!(plain("true"), json!(true));
        assert_eq!(plain("12"), json!(12));
        assert_eq!(plain("-3"), json!(-3));
        assert_eq!(plain("+3"), json!(3));
        assert_eq!(plain("0x1F"), json!(31));
        assert_eq!(plain("0o17"), json!(15));
        assert_eq!(plain("1.5"), json!(1.5));
        assert_eq!(plain("1e3"), json!(1000.0));
        assert_eq!(plain("~"), Value::Null);
        for text in
            ["on", "yes", "1.2.3.4", "12:30", "5s", ".", "-", "+", "e", "1e", ".inf", "1_000", "0x", "nan", "inf"]
        {
            assert_eq!(plain(text), json!(text), "{text}");
        }
        assert_eq!(Scalar { text: "12".into(), plain: false, written: None }.value(), json!("12"));
    }
}
