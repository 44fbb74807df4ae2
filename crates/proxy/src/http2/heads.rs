//! Heads between the types of the `h2` library and those of `model`. What may cross is said in `wire::crossing`.

use bytes::BytesMut;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use model::fields::Fields;
use model::limits::FIELDS_HARD_MAX;
use model::{Fault, Method, RequestHead, ResponseHead, Version};
use wire::crossing::{self, Arriving, Pseudo};
use wire::http1::{Framing, HeadLimits, RequestParsed, ResponseParsed};

/// Fills `head` with a request that came on a stream; `ends` says that its body is empty.
///
/// # Errors
/// What is wrong with it, as [`Arriving`] says.
pub(crate) fn read_request(
    parts: &http::request::Parts,
    (limits, ends): (&HeadLimits, bool),
    head: &mut RequestHead,
) -> Result<RequestParsed, Fault> {
    let pseudo = Pseudo {
        method: parts.method.as_str().as_bytes(),
        authority: parts.uri.authority().map(|authority| authority.as_str().as_bytes()),
        path: parts.uri.path_and_query().map(|path| path.as_str().as_bytes()),
        protocol: parts.extensions.get::<h2::ext::Protocol>().map(|protocol| protocol.as_str().as_bytes()),
    };
    let mut arriving = Arriving::begin(head, &pseudo, Version::Http2)?;
    if parts.headers.len() > FIELDS_HARD_MAX {
        return Err(Fault::HeadTooLarge);
    }
    for (name, value) in &parts.headers {
        arriving.field(name.as_str().as_bytes(), value.as_bytes())?;
    }
    arriving.end(limits, ends)
}

/// The head of a response as `h2` sends it, under this status. `framing` is that towards the client.
///
/// # Errors
/// [`Fault::BadResponse`]: filters made something of it that is no response.
pub(crate) fn of_response(head: &ResponseHead, status: u16, framing: Framing) -> Result<http::Response<()>, Fault> {
    let fields = collect(|give| crossing::response_fields(head, framing, give)).ok_or(Fault::BadResponse)?;
    let mut response = http::Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(status).map_err(|_| Fault::BadResponse)?;
    *response.headers_mut() = fields;
    Ok(response)
}

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
    crossing::arriving_response(head, (parts.status.as_u16(), Version::Http2), fields, how)
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
    let fields = collect(|give| crossing::request_fields(head, framing, give)).ok_or(Fault::BadRequest)?;
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
    *request.headers_mut() = fields;
    Ok(request)
}

/// How large a list of fields is (RFC 9113 section 6.5.2).
pub(super) fn list_bytes(map: &HeaderMap) -> usize {
    map.iter().map(|(name, value)| name.as_str().len() + value.len() + crossing::FIELD_OVERHEAD_BYTES).sum()
}

/// The trailers that came on a stream, as far as they are passed on.
pub(super) fn read_trailers(map: &HeaderMap) -> Option<Box<Fields>> {
    let mut fields = Fields::default();
    for (name, value) in map {
        crossing::arriving_trailer(&mut fields, name.as_str().as_bytes(), value.as_bytes());
    }
    (!fields.is_empty()).then(|| Box::new(fields))
}

/// Trailers as `h2` sends them.
pub(super) fn of_trailers(fields: &Fields) -> HeaderMap {
    collect(|give| crossing::trailer_fields(fields, give)).unwrap_or_default()
}

/// Makes a map of what `each` gives. All values lie in one block of memory, so that a head costs few allocations.
/// `None`: a name or value is not valid, or there are too many.
fn collect(each: impl Fn(&mut dyn FnMut(&[u8], &[u8]))) -> Option<HeaderMap> {
    let (mut count, mut bytes) = (0, 0);
    each(&mut |_, value| {
        count += 1;
        bytes += value.len();
    });
    let mut block = BytesMut::with_capacity(bytes);
    let mut map = HeaderMap::with_capacity(count);
    let mut is_valid = true;
    each(&mut |name, value| {
        block.extend_from_slice(value);
        let value = HeaderValue::from_maybe_shared(block.split().freeze());
        match (HeaderName::from_bytes(name), value) {
            (Ok(name), Ok(value)) => is_valid &= map.try_append(name, value).is_ok(),
            _ => is_valid = false,
        }
    });
    is_valid.then_some(map)
}
