//! Heads between the types of the `h2` library and those of `model`. What may cross is said in `wire::crossing`.

use bytes::BytesMut;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use model::fields::Fields;
use model::{Fault, Method, RequestHead, ResponseHead, Version};
use wire::crossing;
use wire::http1::{Framing, HeadLimits, ResponseParsed};

/// Of a length in decimal.
const LENGTH_BYTES_MAX: usize = 20;

/// Fills `head` with a response, interim or final, that came on a stream; `ends` says that its body is empty.
///
/// # Errors
/// [`Fault::BadResponse`] or [`Fault::ResponseHeadTooLarge`].
pub(crate) fn read_response(
    parts: &http::response::Parts,
    how: (Method, &HeadLimits, bool),
    head: &mut ResponseHead,
) -> Result<ResponseParsed, Fault> {
    let fields = parts.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let line = crossing::StatusLine { status: parts.status.as_u16(), version: Version::Http2 };
    crossing::arriving_response(head, line, fields, how)
}

/// The head of a request for a WebSocket, which begins with an HTTP/1.1 `Upgrade`, as HTTP/2 has it (RFC 8441 section 5).
///
/// # Errors
/// [`Fault::BadRequest`]: something of it cannot be said in HTTP/2.
pub(crate) fn of_websocket(head: &RequestHead, host: (&str, bool)) -> Result<http::Request<()>, Fault> {
    let mut request = of_request(head, Framing::None, host)?;
    *request.method_mut() = http::Method::CONNECT;
    request.headers_mut().remove(http::header::SEC_WEBSOCKET_KEY);
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    Ok(request)
}

/// The head of a request as `h2` sends it. `host_fallback` stands for the authority of a request without one (HTTP/1.0).
///
/// # Errors
/// [`Fault::BadRequest`]: something of it cannot be said in HTTP/2.
pub(crate) fn of_request(
    head: &RequestHead,
    framing: Framing,
    (host_fallback, is_https): (&str, bool),
) -> Result<http::Request<()>, Fault> {
    let mut fields = Collected::with_room_for(&head.fields);
    crossing::request_fields(head, framing, |name, value| fields.add(name, value));
    let authority = if head.authority().is_empty() { host_fallback.as_bytes() } else { head.authority() };
    let mut target = Vec::with_capacity(head.path().len() + 1 + head.query().map_or(0, <[u8]>::len));
    crossing::push_target(head, &mut target);
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if is_https { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = Some(Authority::try_from(authority).map_err(|_| Fault::BadRequest)?);
    uri.path_and_query = Some(PathAndQuery::try_from(target).map_err(|_| Fault::BadRequest)?);
    let mut request = http::Request::new(());
    *request.method_mut() = http::Method::from_bytes(head.method_bytes()).map_err(|_| Fault::BadRequest)?;
    *request.uri_mut() = http::Uri::from_parts(uri).map_err(|_| Fault::BadRequest)?;
    *request.headers_mut() = fields.done().ok_or(Fault::BadRequest)?;
    Ok(request)
}

/// How large a list of fields is (RFC 9113 section 6.5.2).
pub(super) fn list_bytes(map: &HeaderMap) -> usize {
    map.iter().map(|(name, value)| name.as_str().len() + value.len() + crossing::FIELD_OVERHEAD_BYTES).sum()
}

/// The trailers that came on a stream, as far as they are passed on.
///
/// # Errors
/// One of them makes the message malformed.
pub(super) fn read_trailers(map: &HeaderMap) -> Result<Option<Box<Fields>>, crossing::Malformed> {
    let mut fields = Fields::default();
    for (name, value) in map {
        crossing::arriving_trailer(&mut fields, name.as_str().as_bytes(), value.as_bytes())?;
    }
    Ok((!fields.is_empty()).then(|| Box::new(fields)))
}

/// Trailers as `h2` sends them.
pub(super) fn of_trailers(fields: &Fields) -> HeaderMap {
    let mut collected = Collected::with_room_for(fields);
    crossing::trailer_fields(fields, |name, value| collected.add(name, value));
    collected.done().unwrap_or_default()
}

/// Fields as the library takes them.
struct Collected {
    map: HeaderMap,
    /// All values lie in one block of memory, so that a head costs few allocations. What is left of it.
    values: BytesMut,
    is_valid: bool,
}

impl Collected {
    /// Has room for as much as `fields` are, and a length.
    fn with_room_for(fields: &Fields) -> Self {
        let bytes = fields.iter().map(|field| field.value.len()).sum::<usize>() + LENGTH_BYTES_MAX;
        Self { map: HeaderMap::with_capacity(fields.len()), values: BytesMut::with_capacity(bytes), is_valid: true }
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        self.values.extend_from_slice(value);
        let value = HeaderValue::from_maybe_shared(self.values.split().freeze());
        match (HeaderName::from_bytes(name), value) {
            (Ok(name), Ok(value)) => self.is_valid &= self.map.try_append(name, value).is_ok(),
            _ => self.is_valid = false,
        }
    }

    /// `None`: a name or value was not valid, or there were too many.
    fn done(self) -> Option<HeaderMap> {
        self.is_valid.then_some(self.map)
    }
}
