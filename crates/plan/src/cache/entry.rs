//! A stored response.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::fields::FieldName;
use model::head::reason_phrase;
use model::{ResponseHead, Version};

use super::control::trimmed;
use super::date;
use super::fresh::{Clock, Freshness};
use super::purges::Tagged;
use super::shard::Kept;
use super::validate::named;
use super::vary::{self, Varied};
use crate::content::Content;

/// Bytes of one piece of a body.
pub const CHUNK_BYTES: usize = 64 << 10;
/// What an entry takes beside its bytes.
const OVERHEAD_BYTES: usize = 512;
/// Fields of one message on one connection, or of this very response, which are not stored (RFC 9111 section 3.1).
const NOT_STORED: [&[u8]; 12] = [
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"proxy-authenticate",
    b"proxy-authentication-info",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"content-length",
    b"age",
];

/// A body, whole: in memory, in pieces of [`CHUNK_BYTES`] but for the last, or in a file.
#[derive(Default)]
pub struct Body {
    chunks: Vec<Box<[u8]>>,
    file: Option<Arc<dyn Content>>,
    len: u64,
}

impl Body {
    /// One in memory, in pieces of [`CHUNK_BYTES`] but for the last.
    pub fn new(chunks: Vec<Box<[u8]>>) -> Self {
        let len = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { chunks, file: None, len }
    }

    /// One of so many bytes that are read from there.
    pub fn in_file(file: Arc<dyn Content>, len: u64) -> Self {
        Self { chunks: Vec::new(), file: Some(file), len }
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns what it is read from, if it is not in memory.
    pub fn file(&self) -> Option<&Arc<dyn Content>> {
        self.file.as_ref()
    }

    /// Returns the bytes from `at` on, as far as they lie together in memory; nothing behind the end.
    pub fn piece(&self, at: u64) -> &[u8] {
        let (place, offset) = (at / CHUNK_BYTES as u64, (at % CHUNK_BYTES as u64) as usize);
        let chunk = usize::try_from(place).ok().and_then(|place| self.chunks.get(place));
        chunk.and_then(|chunk| chunk.get(offset..)).unwrap_or_default()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({})", self.len)
    }
}

/// See the module. It does not change, but for the mark of a soft purge.
#[derive(Debug)]
pub struct Entry {
    /// The key, see [`super::key`].
    pub key: Box<[u8]>,
    /// Status and fields as the endpoint has sent them, with a `date`.
    pub head: ResponseHead,
    /// The body.
    pub body: Arc<Body>,
    /// What tells it from others of its key.
    pub variant: Box<[Varied]>,
    /// By which it is purged, together with others.
    pub tags: Box<[Box<[u8]>]>,
    /// For how long it may be served.
    pub fresh: Freshness,
    /// How old it was when, for [`Clock::age`].
    pub clock: Clock,
    is_stale: AtomicBool,
}

impl Entry {
    /// An entry without its body. `head` is that of the endpoint.
    pub fn new(
        key: Box<[u8]>,
        head: &ResponseHead,
        variant: Box<[Varied]>,
        (fresh, clock): (Freshness, Clock),
    ) -> Self {
        let head = stored_head(head, clock.received);
        Self {
            key,
            head,
            body: Arc::default(),
            variant,
            tags: Box::default(),
            fresh,
            clock,
            is_stale: AtomicBool::new(false),
        }
    }

    /// The same without its body.
    pub(crate) fn without_body(&self) -> Self {
        Self {
            key: self.key.clone(),
            head: self.head.clone(),
            body: Arc::default(),
            variant: self.variant.clone(),
            tags: self.tags.clone(),
            fresh: self.fresh,
            clock: self.clock,
            is_stale: AtomicBool::new(self.is_marked_stale()),
        }
    }

    /// Bytes that it takes in memory, those of a body in a file included.
    pub fn bytes(&self) -> u64 {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + 16).sum();
        let held =
            OVERHEAD_BYTES + self.key.len() + self.head.fields.capacity_bytes() + tags + vary::bytes(&self.variant);
        held as u64 + self.body.len()
    }

    /// Has it be validated before it is served as fresh again.
    pub fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Returns whether it must be validated before it is served as fresh again.
    pub fn is_marked_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Returns for how many more seconds it is fresh; less than 0 when it is stale.
    pub fn fresh_for(&self, now: u64) -> i64 {
        let left = self.fresh.lifetime as i64 - self.clock.age(now) as i64;
        if self.is_marked_stale() { left.min(0) - 1 } else { left }
    }

    /// Its entity tag.
    pub fn etag(&self) -> Option<&[u8]> {
        named(&self.head.fields, b"etag").next()
    }

    /// Its `Last-Modified`.
    pub fn last_modified(&self) -> Option<&[u8]> {
        named(&self.head.fields, b"last-modified").next()
    }

    /// The head of a validated response: the fields of the 304 take the place of those stored (RFC 9111 section 3.2).
    pub fn updated_head(&self, by: &ResponseHead) -> ResponseHead {
        let mut head = self.head.clone();
        let kept = |name: &[u8]| name.len() >= 8 && name[..8].eq_ignore_ascii_case(b"content-") || is_not_stored(name);
        for field in by.fields.iter().filter(|field| !kept(field.name)) {
            head.fields.retain(|old| !old.name.eq_ignore_ascii_case(field.name));
        }
        for field in by.fields.iter().filter(|field| !kept(field.name)) {
            if let Some(name) = std::str::from_utf8(field.name).ok().and_then(|name| FieldName::new(name).ok()) {
                head.fields.append(&name, field.value);
            }
        }
        head
    }
}

impl Tagged for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn tags(&self) -> &[Box<[u8]>] {
        &self.tags
    }
}

impl Kept for Entry {
    fn variant(&self) -> &[Varied] {
        &self.variant
    }

    fn received(&self) -> u64 {
        self.clock.received
    }

    fn mark_stale(&self) {
        Self::mark_stale(self);
    }
}

fn is_not_stored(name: &[u8]) -> bool {
    NOT_STORED.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A copy of the head without the fields that are not stored, in as little memory as it needs.
fn stored_head(of: &ResponseHead, received: u64) -> ResponseHead {
    let mut head = ResponseHead::default();
    let reason = head.fields.write_span(|out| out.extend_from_slice(reason_phrase(of.status).as_bytes()));
    head.set_line(of.status, reason, Version::Http11);
    // Fields that `Connection` names belong to the connection, too.
    let named_there = |name: &[u8]| {
        let options = named(&of.fields, b"connection").flat_map(|list| list.split(|byte| *byte == b','));
        options.map(trimmed).any(|option| option.eq_ignore_ascii_case(name))
    };
    for field in of.fields.iter().filter(|field| !is_not_stored(field.name) && !named_there(field.name)) {
        if let Some(name) = std::str::from_utf8(field.name).ok().and_then(|name| FieldName::new(name).ok()) {
            head.fields.append(&name, field.value);
        }
    }
    if named(&head.fields, b"date").next().is_none()
        && let Ok(name) = FieldName::new("date")
    {
        head.fields.append_with(&name, |out| date::write(received, out));
    }
    head.fields.shrink();
    head
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use model::fields::Fields;

    pub(crate) fn fields(list: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in list {
            fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
        }
        fields
    }

    pub(crate) fn response(status: u16, list: &[(&str, &str)]) -> ResponseHead {
        let mut head = ResponseHead::default();
        (head.fields, head.status) = (fields(list), status);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::testing::response;
    use super::*;

    fn entry(list: &[(&str, &str)]) -> Entry {
        let clock = Clock { received: 784_111_777, age: 3 };
        let fresh = Freshness { lifetime: 10, ..Freshness::default() };
        Entry::new((*b"route\0\0http://a/b").into(), &response(200, list), Box::default(), (fresh, clock))
    }

    fn listed(head: &ResponseHead) -> String {
        let line = |field: model::fields::Field<'_>| {
            format!("{}: {}", String::from_utf8_lossy(field.name), String::from_utf8_lossy(field.value))
        };
        head.fields.iter().map(line).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn fields_of_the_connection_are_not_stored() {
        // RFC 9111 section 3.1.
        let stored = entry(&[
            ("connection", "x-hop, close"),
            ("X-Hop", "1"),
            ("Content-Length", "3"),
            ("age", "9"),
            ("x-a", "b"),
        ]);
        assert_eq!(listed(&stored.head), "x-a: b|date: Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(stored.url(), b"http://a/b");
    }

    #[test]
    fn a_304_updates_the_head_but_not_what_describes_the_body() {
        // RFC 9111 section 3.2.
        let stored = entry(&[("etag", "\"1\""), ("content-type", "text/a"), ("x-a", "1"), ("x-a", "2")]);
        let head = stored.updated_head(&response(
            304,
            &[("x-a", "3"), ("content-type", "text/b"), ("content-encoding", "gzip"), ("cache-control", "max-age=5")],
        ));
        assert_eq!(
            (head.status, listed(&head).as_str()),
            (
                200,
                "etag: \"1\"|content-type: text/a|date: Sun, 06 Nov 1994 08:49:37 GMT|x-a: 3|cache-control: max-age=5"
            )
        );
    }

    #[test]
    fn an_entry_ages_and_a_soft_purge_makes_it_stale() {
        let stored = entry(&[]);
        assert_eq!(
            [stored.fresh_for(784_111_777), stored.fresh_for(784_111_784), stored.fresh_for(784_111_787)],
            [7, 0, -3]
        );
        stored.mark_stale();
        assert_eq!(stored.fresh_for(784_111_777), -1);
    }

    #[test]
    fn a_body_is_read_in_pieces() {
        let body = Body::new(vec![vec![b'a'; CHUNK_BYTES].into(), (*b"bc").into()]);
        assert_eq!(
            (body.len(), body.piece(0).len(), body.piece(CHUNK_BYTES as u64 + 1)),
            (CHUNK_BYTES as u64 + 2, CHUNK_BYTES, &b"c"[..])
        );
        assert!(body.piece(CHUNK_BYTES as u64 + 2).is_empty() && body.piece(u64::MAX).is_empty());
    }
}
