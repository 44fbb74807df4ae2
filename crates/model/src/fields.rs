//! Header fields of a head, or of trailers, in the order and case they came.
//!
//! All bytes lie in one arena: what was received, then what filters added. Changing a field allocates nothing once the
//! arena has its working size; anyone who owns a `Fields` keeps it for the next exchange.

mod name;

use std::fmt;

pub use name::{FieldName, Known, is_field_value, is_lower_token, is_token, reads_as};

/// Where something lies in the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// Returns the span of `start..end`. Heads are bounded far below 4 GiB (see [`crate::limits`]).
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, len: (end - start) as u32 }
    }

    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Span,
    value: Span,
    known: Known,
}

/// One field, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its classification.
    pub known: Known,
    /// The name in the case it came.
    pub name: &'a [u8],
    /// The value without surrounding white space.
    pub value: &'a [u8],
}

/// An ordered list of fields over one arena of bytes.
#[derive(Clone, Default)]
pub struct Fields {
    arena: Vec<u8>,
    entries: Vec<Entry>,
}

impl Fields {
    /// Empties list and arena; their memory stays.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.entries.clear();
    }

    /// Makes it equal to another list; its memory stays.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        self.arena.extend_from_slice(&other.arena);
        self.entries.extend_from_slice(&other.entries);
    }

    /// Gives memory back that it does not need.
    pub fn shrink(&mut self) {
        self.arena.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes that list and arena occupy.
    pub fn capacity_bytes(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Copies received bytes into the arena and returns where they begin, so that a parser can push spans of them.
    pub fn load(&mut self, bytes: &[u8]) -> usize {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        start
    }

    /// Adds a field whose name and value lie in the arena already.
    pub fn push_span(&mut self, name: Span, value: Span) {
        let known = Known::of(self.bytes(name));
        self.entries.push(Entry { name, value, known });
    }

    /// Returns the bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.arena[span.range()]
    }

    /// Returns the fields in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Field<'_>> + Clone {
        self.entries.iter().map(|entry| self.field(entry))
    }

    fn field(&self, entry: &Entry) -> Field<'_> {
        Field { known: entry.known, name: self.bytes(entry.name), value: self.bytes(entry.value) }
    }

    /// Returns the value of the first field of this name.
    pub fn get(&self, name: &FieldName) -> Option<&[u8]> {
        self.entries.iter().find(|entry| self.is(entry, name)).map(|entry| self.bytes(entry.value))
    }

    /// Returns the values of all fields of this name.
    pub fn all<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        self.entries.iter().filter(|entry| self.is(entry, name)).map(|entry| self.bytes(entry.value))
    }

    /// Returns the value of the first field of this kind. Not for [`Known::Other`].
    pub fn get_known(&self, known: Known) -> Option<&[u8]> {
        self.all_known(known).next()
    }

    /// Returns the values of all fields of this kind. Not for [`Known::Other`].
    pub fn all_known(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(move |entry| entry.known == known).map(|entry| self.bytes(entry.value))
    }

    /// Returns the span of the value of the first field of this kind. Not for [`Known::Other`].
    pub fn span_known(&self, known: Known) -> Option<Span> {
        self.entries.iter().find(|entry| entry.known == known).map(|entry| entry.value)
    }

    /// Returns whether a field of this kind exists.
    pub fn has_known(&self, known: Known) -> bool {
        self.entries.iter().any(|entry| entry.known == known)
    }

    /// Adds a field at the end. The value must satisfy [`is_field_value`]; see [`Self::append_with`].
    pub fn append(&mut self, name: &FieldName, value: &[u8]) {
        self.append_with(name, |out| out.extend_from_slice(value));
    }

    /// Adds a field at the end whose value is written straight into the arena. Bytes that may not stand in a field value
    /// (CR, LF, NUL and other controls) become spaces, so that no value can begin a new field.
    pub fn append_with(&mut self, name: &FieldName, write: impl FnOnce(&mut Vec<u8>)) {
        let value = self.write_value(write);
        let name_span = self.write_name(name);
        self.entries.push(Entry { name: name_span, value, known: name.known });
    }

    /// Puts one field of this name in place of all that were there: at the place of the first, or at the end.
    pub fn set(&mut self, name: &FieldName, value: &[u8]) {
        self.set_with(name, |out| out.extend_from_slice(value));
    }

    /// Sets a field like [`Self::set`], and writes the value directly into the arena, cleaned as in [`Self::append_with`].
    pub fn set_with(&mut self, name: &FieldName, write: impl FnOnce(&mut Vec<u8>)) {
        let value = self.write_value(write);
        let Some(first) = self.entries.iter().position(|entry| self.is(entry, name)) else {
            let name_span = self.write_name(name);
            self.entries.push(Entry { name: name_span, value, known: name.known });
            return;
        };
        self.entries[first].value = value;
        let arena = &self.arena;
        let mut place = 0;
        self.entries.retain(|entry| {
            place += 1;
            place - 1 <= first || !names_equal(arena, entry, name)
        });
    }

    /// Sets a field that only the proxy may set, like [`Self::set`], and removes the fields that endpoints could read as it; see
    /// [`reads_as`].
    pub fn set_alone(&mut self, name: &FieldName, value: &[u8]) {
        let arena = &self.arena;
        self.entries
            .retain(|entry| !reads_as(&arena[entry.name.range()], &name.text) || names_equal(arena, entry, name));
        self.set(name, value);
    }

    /// Returns the index of the first field of this name, from the index `from` on.
    pub fn find_from(&self, name: &FieldName, from: usize) -> Option<usize> {
        let later = self.entries.iter().enumerate().skip(from);
        later.filter(|(_, entry)| self.is(entry, name)).map(|(place, _)| place).next()
    }

    /// Returns the value of the field at this index, or an empty value if there is none.
    pub fn value_at(&self, place: usize) -> &[u8] {
        self.entries.get(place).map_or(b"", |entry| self.bytes(entry.value))
    }

    /// Replaces the value of the field at this place, cleaned as in [`Self::append_with`], without space at its ends: values with such
    /// are malformed in HTTP/2 and HTTP/3 (RFC 9113 section 8.2.1). Without effect where there is no field.
    pub fn set_at(&mut self, place: usize, value: &[u8]) {
        let is_space = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
        let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
        let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
        let span = self.write_value(|out| out.extend_from_slice(&value[start..end]));
        if let Some(entry) = self.entries.get_mut(place) {
            entry.value = span;
        }
    }

    /// Removes the fields before this place.
    pub fn keep_from(&mut self, place: usize) {
        self.entries.drain(..place.min(self.entries.len()));
    }

    /// Removes all fields that endpoints could read as this one, see [`reads_as`]; says whether there was one.
    pub fn remove_alike(&mut self, name: &FieldName) -> bool {
        let arena = &self.arena;
        let before = self.entries.len();
        self.entries.retain(|entry| !reads_as(&arena[entry.name.range()], &name.text));
        self.entries.len() != before
    }

    /// Removes all fields of this name; says whether there was one.
    pub fn remove(&mut self, name: &FieldName) -> bool {
        let arena = &self.arena;
        let before = self.entries.len();
        self.entries.retain(|entry| !names_equal(arena, entry, name));
        self.entries.len() != before
    }

    /// Removes all fields of this kind. Not for [`Known::Other`].
    pub fn remove_known(&mut self, known: Known) {
        self.entries.retain(|entry| entry.known != known);
    }

    /// Removes all fields of this name given as bytes, case ignored.
    pub fn remove_named(&mut self, name: &[u8]) {
        let arena = &self.arena;
        self.entries.retain(|entry| !arena[entry.name.range()].eq_ignore_ascii_case(name));
    }

    /// Keeps the fields for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(Field<'_>) -> bool) {
        let arena = &self.arena;
        self.entries.retain(|entry| {
            keep(Field { known: entry.known, name: &arena[entry.name.range()], value: &arena[entry.value.range()] })
        });
    }

    /// Writes into the arena and returns where, for parts of a head that are no fields.
    pub fn write_span(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.arena.len();
        write(&mut self.arena);
        Span::new(start, self.arena.len())
    }

    fn write_value(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.arena.len();
        write(&mut self.arena);
        for byte in &mut self.arena[start..] {
            if (*byte < b' ' && *byte != b'\t') || *byte == 0x7f {
                *byte = b' ';
            }
        }
        Span::new(start, self.arena.len())
    }

    fn write_name(&mut self, name: &FieldName) -> Span {
        let start = self.load(name.text.as_bytes());
        Span::new(start, self.arena.len())
    }

    fn is(&self, entry: &Entry, name: &FieldName) -> bool {
        names_equal(&self.arena, entry, name)
    }
}

fn names_equal(arena: &[u8], entry: &Entry, name: &FieldName) -> bool {
    if entry.known != name.known {
        return false;
    }
    name.known != Known::Other
        || (entry.name.len as usize == name.text.len()
            && arena[entry.name.range()].eq_ignore_ascii_case(name.text.as_bytes()))
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        f.debug_map().entries(self.iter().map(|field| (text(field.name), text(field.value)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FieldName {
        FieldName::new(text).unwrap()
    }

    fn listed(fields: &Fields) -> String {
        let mut out = String::new();
        for field in fields.iter() {
            out += &format!("{}={};", String::from_utf8_lossy(field.name), String::from_utf8_lossy(field.value));
        }
        out
    }

    #[test]
    fn setting_replaces_the_first_in_its_place_and_removes_the_others() {
        let mut fields = Fields::default();
        for (key, value) in [("A", "1"), ("x-B", "2"), ("C", "3"), ("X-b", "4")] {
            fields.append(&name(key), value.as_bytes());
        }
        fields.set(&name("X-B"), b"new");
        assert_eq!(listed(&fields), "A=1;x-B=new;C=3;");
        fields.set(&name("Host"), b"h");
        fields.set(&name("hOST"), b"g");
        assert_eq!(listed(&fields), "A=1;x-B=new;C=3;Host=g;");
        assert_eq!(fields.get_known(Known::Host), Some(&b"g"[..]));
        assert!(fields.remove(&name("c")));
        assert!(!fields.remove(&name("c")));
        assert_eq!(listed(&fields), "A=1;x-B=new;Host=g;");
    }

    #[test]
    fn what_only_we_may_set_is_there_once_in_whatever_spelling_it_came() {
        let mut fields = Fields::default();
        for key in ["X_User", "x-User", "A", "x-users", "x_user", "x.user", "X~USER", "X-USER", "X_Request_Id"] {
            fields.append(&name(key), b"theirs");
        }
        fields.set_alone(&name("x-user"), b"ours");
        assert_eq!(listed(&fields), "x-User=ours;A=theirs;x-users=theirs;X_Request_Id=theirs;");
        fields.set_alone(&name("x-request-id"), b"ours");
        assert_eq!(listed(&fields), "x-User=ours;A=theirs;x-users=theirs;x-request-id=ours;");
        assert!(fields.remove_alike(&name("X_REQUEST_ID")) && fields.remove_alike(&name("x_user")));
        assert!(!fields.remove_alike(&name("x-user")));
        assert_eq!(listed(&fields), "A=theirs;x-users=theirs;");
    }

    #[test]
    fn fields_of_one_name_are_changed_each_in_its_place() {
        let mut fields = Fields::default();
        for (key, value) in [("A", "1"), ("x-B", "2"), ("a", "3")] {
            fields.append(&name(key), value.as_bytes());
        }
        assert_eq!((fields.find_from(&name("a"), 0), fields.find_from(&name("a"), 1)), (Some(0), Some(2)));
        assert_eq!(
            (fields.find_from(&name("a"), 3), fields.value_at(2), fields.value_at(9)),
            (None, &b"3"[..], &b""[..])
        );
        fields.set_at(2, b"x\r\ny");
        fields.set_at(9, b"nowhere");
        assert_eq!(listed(&fields), "A=1;x-B=2;a=x  y;");
        fields.keep_from(2);
        assert_eq!(listed(&fields), "a=x  y;");
        fields.keep_from(2);
        assert!(fields.is_empty());
    }

    #[test]
    fn a_value_can_never_begin_a_new_field() {
        let mut fields = Fields::default();
        fields.append(&name("a"), b"x\r\nEvil: 1\0\x7f");
        assert_eq!(listed(&fields), "a=x  Evil: 1  ;");
    }

    #[test]
    fn every_known_field_is_recognised_in_any_case_and_nothing_else_is() {
        for text in [
            "Connection",
            "content-length",
            "TRANSFER-ENCODING",
            "Host",
            "expect",
            "Upgrade",
            "TE",
            "Trailer",
            "Keep-Alive",
            "Proxy-Connection",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Host",
            "Forwarded",
            "X-Request-Id",
            "Cookie",
            "Date",
            "Origin",
        ] {
            assert_ne!(Known::of(text.as_bytes()), Known::Other, "{text}");
        }
        for text in ["", "t", "hosx", "Content-Lengti", "Transfer_Encoding", "Connectioo", "cookiE2"] {
            assert_eq!(Known::of(text.as_bytes()), Known::Other, "{text}");
        }
    }

    #[test]
    fn every_byte_is_judged_as_the_standard_says() {
        for byte in 0..=u8::MAX {
            let is_token_byte = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let is_value_byte = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            for place in 0..40 {
                let mut text = [b'a'; 40];
                text[place] = byte;
                assert_eq!(is_token(&text), is_token_byte, "{byte} at {place}");
                assert_eq!(is_lower_token(&text), is_token_byte && !byte.is_ascii_uppercase(), "{byte} at {place}");
                assert_eq!(is_field_value(&text), is_value_byte, "{byte} at {place}");
            }
        }
        assert!(!is_token(b"") && !is_lower_token(b"") && is_field_value(b""));
    }

    #[test]
    fn a_bad_name_is_refused() {
        for bad in ["", "a b", "a:", "ä", "a\r", "(x)"] {
            assert!(FieldName::new(bad).is_err(), "{bad:?}");
        }
    }
}
