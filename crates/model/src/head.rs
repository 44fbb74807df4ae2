//! The head of a request and of a response, shared by every HTTP version.
//!
//! A head is filled by a protocol module, changed by filters, written by a protocol module, and then reused.

use crate::fields::{FieldName, Fields, Known, Span};

/// An HTTP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl Version {
    /// Returns the version as logs write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// A method; any that is not listed is `Other` and found in [`RequestHead::method_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    Other,
}

impl Method {
    /// Returns the method; methods are case-sensitive (RFC 9110 section 9.1).
    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"CONNECT" => Self::Connect,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// Returns whether the method is idempotent (RFC 9110 section 9.2.2).
    pub fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Put | Self::Delete | Self::Options | Self::Trace)
    }
}

/// The head of a request. The `Host` field is the authority: protocol modules put there what an absolute target or
/// `:authority` said.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The version it came in.
    pub version: Version,
    /// The fields, over the arena that also holds method and target.
    pub fields: Fields,
    method_span: Span,
    received_method: Method,
    received_method_span: Span,
    path: Span,
    query: Option<Span>,
    received_path: Span,
    received_query: Option<Span>,
    received_authority: Option<Span>,
}

impl RequestHead {
    /// Makes the head empty for the next request; memory stays.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Says where in the arena the request line's parts lie. `target` is in origin form, `*`, or (CONNECT) empty;
    /// it is split at the first `?`.
    pub fn set_line(&mut self, method: Span, target: Span, version: Version) {
        self.method = Method::of(self.fields.bytes(method));
        self.method_span = method;
        (self.received_method, self.received_method_span) = (self.method, method);
        self.version = version;
        self.receive_target(target);
    }

    /// Says where in the arena the target lies that the client asked for, in origin form or `*`: that of an absolute target,
    /// for example, whose line holds a scheme and an authority too.
    pub fn receive_target(&mut self, target: Span) {
        self.set_target(target);
        (self.received_path, self.received_query) = (self.path, self.query);
    }

    /// Remembers the authority as it is now, before filters change it. What was received stays in the arena.
    pub fn keep_received(&mut self) {
        self.received_authority = self.fields.span_known(Known::Host);
    }

    /// Returns the path that the client sent, before normalization and filters.
    pub fn received_path(&self) -> &[u8] {
        self.fields.bytes(self.received_path)
    }

    /// Returns the query that the client sent, without `?`.
    pub fn received_query(&self) -> Option<&[u8]> {
        self.received_query.map(|span| self.fields.bytes(span))
    }

    /// Removes the query that the client sent from what is known of the request as it was received, so that no record shows it.
    pub fn hide_received_query(&mut self) {
        self.received_query = None;
    }

    /// Returns the host that the client requested, without port.
    pub fn received_host(&self) -> &[u8] {
        host_without_port(self.received_authority())
    }

    /// Returns the host that the client requested, with the port if it was given.
    pub fn received_authority(&self) -> &[u8] {
        self.received_authority.map_or_else(|| self.authority(), |span| self.fields.bytes(span))
    }

    /// Returns the method that is sent to the endpoint.
    pub fn method_bytes(&self) -> &[u8] {
        self.fields.bytes(self.method_span)
    }

    /// Returns the method that the client used, before filters. The response to the client follows this one.
    pub fn received_method(&self) -> Method {
        self.received_method
    }

    /// Returns the same as bytes.
    pub fn received_method_bytes(&self) -> &[u8] {
        self.fields.bytes(self.received_method_span)
    }

    /// Replaces the method. The text must be a token (RFC 9110 section 9.1) other than `CONNECT`.
    pub fn set_method(&mut self, text: &[u8]) {
        self.method_span = self.fields.write_span(|arena| arena.extend_from_slice(text));
        self.method = Method::of(text);
    }

    /// Returns the path. It begins with `/`, or is `*` (OPTIONS), or empty (CONNECT).
    pub fn path(&self) -> &[u8] {
        self.fields.bytes(self.path)
    }

    /// Returns the query without `?`.
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|span| self.fields.bytes(span))
    }

    /// Returns `Host` as received, with the port if given; empty if there is none.
    pub fn authority(&self) -> &[u8] {
        self.fields.get_known(Known::Host).unwrap_or_default()
    }

    /// Returns the authority without port, in its original case. Brackets of an IPv6 literal are kept.
    pub fn host(&self) -> &[u8] {
        host_without_port(self.authority())
    }

    /// Replaces the path, keeping the query. Filters use it; the text must begin with `/`. Bytes that may not stand in
    /// a request target (controls, space, `?`, `#`, bytes from 0x7f) are percent-encoded.
    pub fn rewrite_path(&mut self, write: impl FnOnce(&[u8], &mut Vec<u8>), scratch: &mut Vec<u8>) {
        scratch.clear();
        write(self.fields.bytes(self.path), scratch);
        self.path = self.fields.write_span(|arena| {
            if scratch.first() != Some(&b'/') {
                arena.push(b'/');
            }
            for &byte in scratch.iter() {
                push_path_byte(arena, byte);
            }
        });
    }

    /// Replaces the path by this one, which begins with `/` and holds only what may stand there.
    pub fn set_path(&mut self, path: &[u8]) {
        self.path = self.fields.write_span(|arena| arena.extend_from_slice(path));
    }

    /// Replaces the query; an empty one is taken away with its `?`. Bytes that may not stand in a request target (controls,
    /// space, `#`, bytes from 0x7f) are percent-encoded.
    pub fn set_query(&mut self, query: &[u8]) {
        let write = |arena: &mut Vec<u8>| query.iter().for_each(|&byte| push_query_byte(arena, byte));
        self.query = if query.is_empty() { None } else { Some(self.fields.write_span(write)) };
    }

    /// Replaces path and query by a target in origin form that lies in the arena.
    pub fn set_target(&mut self, target: Span) {
        let bytes = self.fields.bytes(target);
        let (start, end) = (target.start as usize, (target.start + target.len) as usize);
        match bytes.iter().position(|&b| b == b'?') {
            Some(at) => {
                self.path = Span::new(start, start + at);
                self.query = Some(Span::new(start + at + 1, end));
            }
            None => {
                self.path = target;
                self.query = None;
            }
        }
    }

    /// Replaces the authority.
    pub fn set_authority(&mut self, host: &FieldName, value: &[u8]) {
        debug_assert_eq!(host.known(), Known::Host);
        self.fields.set(host, value);
    }
}

/// Appends a byte of a path, and escapes a question mark, which would end it (RFC 3986 section 3.4).
fn push_path_byte(out: &mut Vec<u8>, byte: u8) {
    if byte == b'?' { out.extend_from_slice(b"%3F") } else { push_query_byte(out, byte) }
}

fn push_query_byte(out: &mut Vec<u8>, byte: u8) {
    if byte <= b' ' || byte >= 0x7f || byte == b'#' {
        out.extend_from_slice(&percent_encoded(byte));
    } else {
        out.push(byte);
    }
}

/// Returns a byte as `%XX` (RFC 3986 section 2.1).
pub fn percent_encoded(byte: u8) -> [u8; 3] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// Cuts `:port` off an authority.
pub fn host_without_port(authority: &[u8]) -> &[u8] {
    let after_bracket = authority.iter().rposition(|&b| b == b']').map_or(0, |at| at + 1);
    match authority[after_bracket..].iter().position(|&b| b == b':') {
        Some(at) => &authority[..after_bracket + at],
        None => authority,
    }
}

/// The head of a response.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// 100–999.
    pub status: u16,
    /// The version it came in.
    pub version: Version,
    /// The fields, over the arena that also holds the reason.
    pub fields: Fields,
    reason: Span,
}

impl ResponseHead {
    /// Makes the head empty for the next response; memory stays.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Says what the status line held.
    pub fn set_line(&mut self, status: u16, reason: Span, version: Version) {
        self.status = status;
        self.reason = reason;
        self.version = version;
    }

    /// Makes it equal to another head; its memory stays.
    pub fn copy_from(&mut self, other: &Self) {
        (self.status, self.version, self.reason) = (other.status, other.version, other.reason);
        self.fields.copy_from(&other.fields);
    }

    /// Returns the reason phrase as received; may be empty.
    pub fn reason(&self) -> &[u8] {
        self.fields.bytes(self.reason)
    }

    /// Returns whether a final response follows (RFC 9110 section 15.2); 101 is final.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// Returns the standard reason phrase (RFC 9110 section 15), or an empty text.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(target: &str, host: &str) -> RequestHead {
        let mut head = RequestHead::default();
        let start = head.fields.load(b"GET ");
        let method = Span::new(start, start + 3);
        let start = head.fields.load(target.as_bytes());
        head.set_line(method, Span::new(start, start + target.len()), Version::Http11);
        head.fields.append(&FieldName::new("Host").unwrap(), host.as_bytes());
        head
    }

    #[test]
    fn a_target_splits_at_the_first_question_mark() {
        let head = head("/a/b?x=1?y", "h:80");
        assert_eq!((head.path(), head.query()), (&b"/a/b"[..], Some(&b"x=1?y"[..])));
        assert_eq!((head.method, head.method_bytes()), (Method::Get, &b"GET"[..]));
    }

    #[test]
    fn a_host_loses_its_port_and_an_ipv6_literal_keeps_its_brackets() {
        assert_eq!(head("/", "Example.com:8080").host(), b"Example.com");
        assert_eq!(head("/", "[::1]:8080").host(), b"[::1]");
        assert_eq!(head("/", "[::1]").host(), b"[::1]");
        assert_eq!(head("/", "").host(), b"");
    }

    #[test]
    fn a_rewritten_path_cannot_smuggle_bytes_into_the_request_line() {
        let mut head = head("/old?q=1", "h");
        let mut scratch = Vec::new();
        head.rewrite_path(|_, out| out.extend_from_slice(b"/a b\r\nX: 1?z#\xff"), &mut scratch);
        assert_eq!(head.path(), b"/a%20b%0D%0AX:%201%3Fz%23%FF");
        assert_eq!(head.query(), Some(&b"q=1"[..]));
        head.rewrite_path(|old, out| out.extend_from_slice(&old[1..2]), &mut scratch);
        assert_eq!(head.path(), b"/a");
    }

    #[test]
    fn what_was_received_is_known_after_everything_was_rewritten() {
        let mut head = head("/old?q=1", "a.example:80");
        head.keep_received();
        head.rewrite_path(|_, out| out.extend_from_slice(b"/new"), &mut Vec::new());
        head.set_authority(&FieldName::new("host").unwrap(), b"b.example");
        assert_eq!((head.path(), head.host()), (&b"/new"[..], &b"b.example"[..]));
        assert_eq!((head.received_path(), head.received_query()), (&b"/old"[..], Some(&b"q=1"[..])));
        assert_eq!(head.received_host(), b"a.example");
    }

    #[test]
    fn a_method_that_was_replaced_is_known_as_it_was_received() {
        let mut head = head("/", "h");
        assert_eq!((head.received_method(), head.received_method_bytes()), (Method::Get, &b"GET"[..]));
        head.set_method(b"PURGE");
        assert_eq!((head.method, head.method_bytes()), (Method::Other, &b"PURGE"[..]));
        assert_eq!((head.received_method(), head.received_method_bytes()), (Method::Get, &b"GET"[..]));
    }

    #[test]
    fn a_new_query_cannot_smuggle_bytes_into_the_request_line() {
        let mut head = head("/a?b", "h");
        head.set_query(b"x=1 HTTP/1.1\r\n#?\xff");
        assert_eq!(head.query(), Some(&b"x=1%20HTTP/1.1%0D%0A%23?%FF"[..]));
        assert_eq!((head.path(), head.received_query()), (&b"/a"[..], Some(&b"b"[..])));
        head.set_query(b"");
        assert_eq!(head.query(), None);
    }

    #[test]
    fn clearing_a_head_keeps_its_memory_and_nothing_else() {
        let mut head = head("/", "h");
        let before = head.fields.capacity_bytes();
        head.clear();
        assert!(head.fields.is_empty() && head.path().is_empty());
        assert_eq!(head.fields.capacity_bytes(), before);
    }
}
