//! Maps: tables of keys and values that expressions look up.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::{Cidr, Name};

/// Entries of a map.
pub const ENTRIES_MAX: usize = 4_000_000;
/// Entries of a map of regular expressions, which are tried one after the other.
pub const REGEXES_MAX: usize = 1_000;
/// Bytes of one key.
pub const KEY_BYTES_MAX: usize = 4 * 1024;
/// Bytes of one value.
pub const VALUE_BYTES_MAX: usize = 8 * 1024;

/// A map.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// Its name, by which expressions use it.
    pub name: Name,
    /// How keys are compared.
    pub kind: MapKind,
    /// What it gives for all other keys; `None`: no value.
    pub default: Option<String>,
    /// Where its entries come from, for people: a file, or nothing for entries in the configuration.
    pub file: Option<String>,
    /// Its entries.
    pub entries: Arc<Entries>,
}

/// How the keys of a map are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// The very text.
    Exact,
    /// The longest that the text begins with.
    Prefix,
    /// The first regular expression that matches the whole text.
    Regex,
    /// The most specific network that contains the address.
    Cidr,
}

impl MapKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Prefix, Self::Regex, Self::Cidr];

    /// Returns the name that the configuration gives it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Regex => "regex",
            Self::Cidr => "cidr",
        }
    }

    /// Returns a key in the form in which it is kept: networks are equal however they are written.
    ///
    /// # Errors
    /// What is wrong with it. The message does not quote it.
    pub fn key(self, text: &str) -> Result<String, String> {
        if text.len() > KEY_BYTES_MAX {
            return Err(format!("a key is longer than {KEY_BYTES_MAX} bytes"));
        }
        match self {
            Self::Cidr => {
                let wrong = |_| "a key is not an address or a network such as 10.0.0.0/8".to_owned();
                text.parse::<Cidr>().map(|network| network.to_string()).map_err(wrong)
            }
            Self::Exact | Self::Prefix | Self::Regex => Ok(text.to_owned()),
        }
    }

    fn entries_max(self) -> usize {
        if self == Self::Regex { REGEXES_MAX } else { ENTRIES_MAX }
    }
}

/// Keys with their values, in order. Keys lie one behind the other, and equal values are kept once: a million entries take 12 bytes each
/// beside their keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Entries {
    keys: Box<[u8]>,
    /// Where each key ends.
    key_ends: Box<[u32]>,
    /// The place of the value of each key.
    places: Box<[u32]>,
    values: Box<[u8]>,
    /// Where each value ends.
    value_ends: Box<[u32]>,
}

impl Entries {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Returns the key of an entry, or an empty one if there is no such entry.
    #[inline]
    pub fn key(&self, entry: u32) -> &[u8] {
        between(&self.keys, &self.key_ends, entry)
    }

    /// Returns the value of an entry.
    #[inline]
    pub fn value(&self, entry: u32) -> &[u8] {
        self.places.get(entry as usize).map_or(b"", |place| between(&self.values, &self.value_ends, *place))
    }

    /// Returns all entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.len() as u32).map(|entry| (self.key(entry), self.value(entry)))
    }

    /// Returns the bytes that it occupies.
    pub fn bytes(&self) -> usize {
        let words = self.key_ends.len() + self.places.len() + self.value_ends.len();
        self.keys.len() + self.values.len() + 4 * words
    }
}

/// The part of some bytes that lies between the end before and the own one.
#[inline]
fn between<'a>(bytes: &'a [u8], ends: &[u32], place: u32) -> &'a [u8] {
    let place = place as usize;
    let start = if place == 0 { 0 } else { ends.get(place - 1).copied().unwrap_or_default() };
    let end = ends.get(place).copied().unwrap_or(start);
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entries({})", self.len())
    }
}

/// Collects the entries of a map.
#[derive(Debug)]
pub struct Collector {
    kind: MapKind,
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    places: Vec<u32>,
    values: Vec<u8>,
    value_ends: Vec<u32>,
    known: HashMap<Box<[u8]>, u32>,
}

impl Collector {
    /// Returns one for a map of this kind.
    pub fn new(kind: MapKind) -> Self {
        let (keys, key_ends, places, known) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new());
        Self { kind, keys, key_ends, places, values: Vec::new(), value_ends: Vec::new(), known }
    }

    /// Adds an entry behind the others.
    ///
    /// # Errors
    /// The key is none of the kind, key or value is too long, or there are too many. The message does not quote them.
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), String> {
        if self.key_ends.len() >= self.kind.entries_max() {
            return Err(format!("the map has more than {} entries", self.kind.entries_max()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("a value is longer than {VALUE_BYTES_MAX} bytes"));
        }
        let canonical;
        let key = match self.kind {
            MapKind::Cidr => {
                canonical = self.kind.key(key)?;
                canonical.as_str()
            }
            _ if key.len() > KEY_BYTES_MAX => return Err(format!("a key is longer than {KEY_BYTES_MAX} bytes")),
            _ => key,
        };
        let large = |_| "the map has more than 4 GiB of text".to_owned();
        let end = u32::try_from(self.keys.len() + key.len()).map_err(large)?;
        let place = match self.known.get(value.as_bytes()) {
            Some(place) => *place,
            None => {
                let end = u32::try_from(self.values.len() + value.len()).map_err(large)?;
                let place = self.value_ends.len() as u32;
                self.values.extend_from_slice(value.as_bytes());
                self.value_ends.push(end);
                self.known.insert(value.as_bytes().into(), place);
                place
            }
        };
        self.keys.extend_from_slice(key.as_bytes());
        self.key_ends.push(end);
        self.places.push(place);
        Ok(())
    }

    /// Returns the number of entries so far.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Returns whether there is no entry yet.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Returns the entries.
    ///
    /// # Errors
    /// The places of two entries with the same key, and different values. Of entries that are all the same the first stays.
    pub fn finish(self) -> Result<Entries, (usize, usize)> {
        let entries = Entries {
            keys: self.keys.into(),
            key_ends: self.key_ends.into(),
            places: self.places.into(),
            values: self.values.into(),
            value_ends: self.value_ends.into(),
        };
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        order.sort_unstable_by(|one, other| entries.key(*one).cmp(entries.key(*other)).then(one.cmp(other)));
        let is_twin = |pair: &[u32]| entries.key(pair[0]) == entries.key(pair[1]);
        let mut twins = order.windows(2).filter(|pair| is_twin(pair)).peekable();
        if twins.peek().is_none() {
            return Ok(entries);
        }
        let mut gone = vec![false; entries.len()];
        for pair in twins {
            if entries.value(pair[0]) != entries.value(pair[1]) {
                return Err((pair[0] as usize, pair[1] as usize));
            }
            gone[pair[1] as usize] = true;
        }
        Ok(entries.without(&gone))
    }
}

impl Entries {
    fn without(&self, gone: &[bool]) -> Self {
        let (mut keys, mut key_ends, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let kept = (0..).zip(gone).zip(&self.places).filter(|((_, gone), _)| !**gone);
        for ((entry, _), place) in kept {
            keys.extend_from_slice(self.key(entry));
            key_ends.push(keys.len() as u32);
            places.push(*place);
        }
        Self { keys: keys.into(), key_ends: key_ends.into(), places: places.into(), ..self.clone() }
    }
}

/// Reads a file of a map: on each line a key, white space and its value, which ends with the line. A line that begins with `#` is a
/// comment. A key alone has an empty value.
///
/// # Errors
/// The first line that is wrong. The message does not quote it: the file may be the wrong one and contain secrets.
pub fn parse(text: &str, kind: MapKind) -> Result<Entries, String> {
    let mut collector = Collector::new(kind);
    let mut numbers: Vec<u32> = Vec::new();
    for (line, number) in text.lines().zip(1_u32..) {
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let value = value.trim_start_matches([' ', '\t']);
        if line.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err(format!("line {number}: it contains a control character"));
        }
        collector.add(key, value).map_err(|message| format!("line {number}: {message}"))?;
        numbers.push(number);
    }
    let line = |entry: usize| numbers.get(entry).copied().unwrap_or_default();
    collector.finish().map_err(|(first, second)| {
        let (first, second) = (line(first), line(second));
        format!("line {second}: the key is that of line {first}, with another value")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(entries: &Entries) -> String {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        entries.iter().map(|(key, value)| format!("{}={}", text(key), text(value))).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn a_file_has_two_columns_comments_and_keys_without_a_value() {
        let text = "# hosts\r\na.example  gold plated \r\n\n\tb.example\tsilver\n  # more\nc#d gold plated\ne\n";
        let entries = parse(text, MapKind::Exact).unwrap();
        assert_eq!(shown(&entries), "a.example=gold plated|b.example=silver|c#d=gold plated|e=");
        assert_eq!((entries.len(), entries.key(9), entries.value(9)), (4, &b""[..], &b""[..]));
        assert!(parse("", MapKind::Exact).unwrap().is_empty());
    }

    #[test]
    fn networks_are_equal_however_they_are_written() {
        let entries = parse("10.1.2.3/8 a\n192.0.2.7 b\n2001:DB8::/32 c\n10.0.0.0/8 a\n", MapKind::Cidr).unwrap();
        assert_eq!(shown(&entries), "10.0.0.0/8=a|192.0.2.7/32=b|2001:db8::/32=c");
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_without_its_text() {
        for (text, kind, message) in [
            ("a 1\nb 2\na 3\n", MapKind::Exact, "line 3: the key is that of line 1, with another value"),
            (
                "# x\n10.0.0.0/8 a\nsecret b\n",
                MapKind::Cidr,
                "line 3: a key is not an address or a network such as 10.0.0.0/8",
            ),
            ("a \u{1}\n", MapKind::Exact, "line 1: it contains a control character"),
        ] {
            assert_eq!(parse(text, kind).unwrap_err(), message);
        }
        let long = format!("a {}\n", "x".repeat(VALUE_BYTES_MAX + 1));
        assert_eq!(parse(&long, MapKind::Exact).unwrap_err(), "line 1: a value is longer than 8192 bytes");
        let long = format!("{} x\n", "x".repeat(KEY_BYTES_MAX + 1));
        assert_eq!(parse(&long, MapKind::Prefix).unwrap_err(), "line 1: a key is longer than 4096 bytes");
        let many: String = (0..=REGEXES_MAX).map(|number| format!("{number} x\n")).collect();
        assert_eq!(parse(&many, MapKind::Regex).unwrap_err(), "line 1001: the map has more than 1000 entries");
    }

    #[test]
    fn entries_that_are_all_the_same_are_one() {
        let entries = parse("b 1\na 2\nb 1\nc 1\nb 1\n", MapKind::Exact).unwrap();
        assert_eq!(shown(&entries), "b=1|a=2|c=1");
        assert_eq!(entries, parse("b 1\na 2\nc 1\n", MapKind::Exact).unwrap());
    }

    #[test]
    fn a_million_entries_take_little_more_than_their_keys() {
        let text: String = (0..1_000_000).map(|number| format!("host-{number:07}.example v{}\n", number % 7)).collect();
        let entries = parse(&text, MapKind::Exact).unwrap();
        assert_eq!(entries.len(), 1_000_000);
        assert!(entries.bytes() < 1_000_000 * (20 + 8) + 1_000, "{}", entries.bytes());
    }
}
