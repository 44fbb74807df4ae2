//! Puts a request head together from the fields of a section as they come, pseudo-header fields first (RFC 9113 section 8.3, RFC 9114
//! section 4.3).

use std::ops::Range;

use model::fields::is_token;
use model::{Fault, RequestHead, Version};

use super::{Arriving, Pseudo};
use crate::http1::{HeadLimits, RequestParsed};

/// Why a section is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRequest {
    /// It is malformed (RFC 9113 section 8.1.1): its stream is to be ended.
    Malformed,
    /// It may be answered.
    Fault(Fault),
}

/// Where the pseudo-header fields stand in the memory.
#[derive(Default)]
struct Found {
    method: Option<Range<usize>>,
    scheme: Option<Range<usize>>,
    authority: Option<Range<usize>>,
    path: Option<Range<usize>>,
    protocol: Option<Range<usize>>,
}

/// See the module.
pub(crate) struct Gather<'h> {
    found: Found,
    /// Until the first field that is no pseudo-header field.
    waiting: Option<&'h mut RequestHead>,
    arriving: Option<Arriving<'h>>,
    memory: &'h mut Vec<u8>,
    version: Version,
    /// What is wrong; all that follows is passed over.
    bad: Option<BadRequest>,
}

impl<'h> Gather<'h> {
    /// Clears `head` and `memory`; the pseudo-header fields lie in that until they are all here.
    pub(crate) fn new(head: &'h mut RequestHead, memory: &'h mut Vec<u8>, version: Version) -> Self {
        head.clear();
        memory.clear();
        Self { found: Found::default(), waiting: Some(head), arriving: None, memory, version, bad: None }
    }

    /// Takes a field.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.bad.is_none() {
            self.bad = self.take(name, value).err();
        }
    }

    /// The section is whole; `ends` says that the message is, too.
    ///
    /// # Errors
    /// See [`BadRequest`].
    pub(crate) fn end(mut self, limits: &HeadLimits, ends: bool) -> Result<RequestParsed, BadRequest> {
        if let Some(bad) = self.bad {
            return Err(bad);
        }
        let arriving = match self.arriving.take() {
            Some(arriving) => arriving,
            None => self.begin()?,
        };
        arriving.finish(limits, ends)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), BadRequest> {
        if let Some(arriving) = &mut self.arriving {
            // Pseudo-header fields come first: here their names are none, for no token begins with a colon.
            return arriving.field(name, value).map_err(|_| BadRequest::Malformed);
        }
        if name.first() == Some(&b':') {
            return self.found.take(name, value, self.memory);
        }
        let mut arriving = self.begin()?;
        arriving.field(name, value).map_err(|_| BadRequest::Malformed)?;
        self.arriving = Some(arriving);
        Ok(())
    }

    fn begin(&mut self) -> Result<Arriving<'h>, BadRequest> {
        let head = self.waiting.take().ok_or(BadRequest::Malformed)?;
        self.found.begin(head, self.memory, self.version)
    }
}

impl Found {
    /// RFC 9113 section 8.3.1: each at most once, and no other.
    fn take(&mut self, name: &[u8], value: &[u8], memory: &mut Vec<u8>) -> Result<(), BadRequest> {
        let place = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            // RFC 8441 section 4.
            b":protocol" => &mut self.protocol,
            _ => return Err(BadRequest::Malformed),
        };
        if place.is_some() {
            return Err(BadRequest::Malformed);
        }
        let start = memory.len();
        memory.extend_from_slice(value);
        *place = Some(start..memory.len());
        Ok(())
    }

    fn begin<'h>(
        &self,
        head: &'h mut RequestHead,
        memory: &[u8],
        version: Version,
    ) -> Result<Arriving<'h>, BadRequest> {
        let at = |range: &Option<Range<usize>>| range.clone().map(|range| &memory[range]);
        let method = at(&self.method).ok_or(BadRequest::Malformed)?;
        let pseudo =
            Pseudo { method, authority: at(&self.authority), path: at(&self.path), protocol: at(&self.protocol) };
        let is_plain_connect = method == b"CONNECT" && pseudo.protocol.is_none();
        let is_whole = self.scheme.is_some() && pseudo.path.is_some_and(|path| !path.is_empty());
        // Section 8.5: CONNECT has neither.
        if is_plain_connect && (self.scheme.is_some() || self.path.is_some()) || !is_plain_connect && !is_whole {
            return Err(BadRequest::Malformed);
        }
        // Section 8.2.1: what no line of HTTP/1.1 could hold is not worth an answer.
        let is_visible = |part: Option<&[u8]>| part.is_none_or(|part| part.iter().all(u8::is_ascii_graphic));
        let are_tokens = is_token(method) && pseudo.protocol.is_none_or(is_token);
        // The scheme is not used, but a bad one makes the message malformed (section 8.3.1).
        let is_scheme_good = at(&self.scheme).is_none_or(is_scheme);
        if !are_tokens || !is_scheme_good || !is_visible(pseudo.authority) || !is_visible(pseudo.path) {
            return Err(BadRequest::Malformed);
        }
        Arriving::begin(head, &pseudo, version).map_err(BadRequest::Fault)
    }
}

/// Whether `text` is a scheme (RFC 3986 section 3.1).
fn is_scheme(text: &[u8]) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_a_letter_and_what_may_follow_one() {
        for good in ["http", "HTTPS", "a", "coap+tcp", "view-source", "a.1"] {
            assert!(is_scheme(good.as_bytes()), "{good}");
        }
        for bad in ["", "1http", "+a", "a b", "http:", "http://evil/?", "ht\r\ntp", "http\n", "h\0", "h\u{e9}", "a_b"] {
            assert!(!is_scheme(bad.as_bytes()), "{bad:?}");
        }
    }
}
