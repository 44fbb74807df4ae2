//! Request heads: bytes to [`RequestHead`] (RFC 9112 sections 2, 3, 5 and 6).

use std::mem::MaybeUninit;

use model::limits::{FIELDS_HARD_MAX, TARGET_BYTES_MAX};
use model::{Fault, Method, RequestHead, Version};

use super::connection::remove_nominated;
use super::framing::{Length, Transfer};
use super::scan::{Opening, ScanFault};
use super::tally::{Tally, Upgrade};
use super::target::{form, set_target};
use super::{Framing, HeadLimits, HeadScan, span_of};

/// What a request head says about its message and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestParsed {
    /// Bytes of the head, from the start of the input (ignored empty lines included) to the end of its empty line.
    pub head_len: usize,
    /// How the end of the body is known; never [`Framing::UntilClose`] nor `Length(0)`.
    pub framing: Framing,
    /// Whether the client lets the connection live on (RFC 9112 section 9.3).
    pub keep_alive: bool,
    /// `Expect: 100-continue` on an HTTP/1.1 request that has a body (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// HTTP/1.1 with `Connection: upgrade` and a valid `Upgrade` that may be passed on (RFC 9110 section 7.8). Never `h2c`.
    pub upgrade: bool,
    /// `TE: trailers` (RFC 9110 section 10.1.4).
    pub accepts_trailers: bool,
    /// The authority of an absolute target is another than that of `Host`, which it has replaced (RFC 9112 section 3.2.2).
    pub host_differs: bool,
    /// HTTP/2 and HTTP/3: the head says that there is no content, but its stream has not ended. Content that comes all the
    /// same makes the message malformed (RFC 9113 section 8.1.1).
    pub awaits_end: bool,
}

/// Parses a request head at the start of `bytes`. `Ok(None)`: more bytes are needed; call again with the same bytes and
/// more after them, and the same `scan`. However the bytes are split, the result is the same, and the cost is linear.
///
/// `head` is cleared and filled; an absolute target has become its origin form and its `Host`, and the fields that
/// `Connection` names are gone. After a result or a fault, `scan` is ready for the next head.
///
/// # Errors
/// [`Fault::BadRequest`], [`Fault::HeadTooLarge`], [`Fault::TargetTooLong`], [`Fault::VersionNotSupported`],
/// [`Fault::NotImplemented`] (CONNECT, transfer codings beside `chunked`) or [`Fault::ExpectationFailed`]. The connection
/// cannot go on after any of them: where the next request begins is not known.
pub fn parse_request(
    bytes: &[u8],
    limits: &HeadLimits,
    scan: &mut HeadScan,
    head: &mut RequestHead,
) -> Result<Option<RequestParsed>, Fault> {
    let found = match scan.advance(bytes, limits.head_bytes_max, Opening::Request) {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(fault) => {
            scan.reset();
            return Err(match fault {
                ScanFault::Broken => Fault::BadRequest,
                ScanFault::TooLarge => Fault::HeadTooLarge,
                ScanFault::FirstLineTooLong => Fault::TargetTooLong,
            });
        }
    };
    scan.reset();
    let head_len = found.end;
    read(&bytes[found], limits, head).map(|parsed| Some(RequestParsed { head_len, ..parsed }))
}

fn read(raw: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<RequestParsed, Fault> {
    head.clear();
    let target = load(raw, limits, head)?;
    if head.method == Method::Connect {
        return Err(Fault::NotImplemented);
    }
    if target.len() > TARGET_BYTES_MAX {
        return Err(Fault::TargetTooLong);
    }
    let form = form(target, head.method).ok_or(Fault::BadRequest)?;
    let tally = Tally::of(&head.fields);
    let version = head.version;
    // RFC 9112 section 3.2: HTTP/1.1 without Host, more than one Host, or an invalid one. An empty one is invalid too: it
    // stands for a target whose scheme has no authority, and `http` and `https` have one (RFC 9110 sections 4.2.1, 7.2).
    if tally.host_invalid || tally.hosts > 1 || (tally.hosts == 0 && version == Version::Http11) {
        return Err(Fault::BadRequest);
    }
    let framing = request_framing(&tally, version)?;
    // RFC 9110 section 10.1.1: the expectation of an HTTP/1.0 request is ignored.
    if tally.expects_other && version == Version::Http11 {
        return Err(Fault::ExpectationFailed);
    }
    if tally.nominates {
        remove_nominated(&mut head.fields).map_err(|_| Fault::BadRequest)?;
    }
    let host_differs = set_target(head, &form, target, offset(target, raw));
    let current = version == Version::Http11;
    Ok(RequestParsed {
        head_len: raw.len(),
        framing,
        keep_alive: tally.persists(version),
        expects_continue: current && tally.expects_continue && framing != Framing::None,
        upgrade: current && tally.upgrade_option && tally.upgrade == Upgrade::Valid,
        accepts_trailers: current && tally.trailers,
        host_differs,
        awaits_end: false,
    })
}

fn offset(part: &[u8], whole: &[u8]) -> usize {
    span_of(part, whole, 0).start as usize
}

/// Fills line and fields; gives the target as sent. The arena begins with `raw`.
///
/// httparse refuses bare CR, obs-fold, white space before the colon or the first name, controls and NUL in values
/// (RFC 9112 sections 2.2, 5.1, 5.2; RFC 9110 section 5.5); tests pin that byte by byte. Bare LF was refused by the scan.
fn load<'a>(raw: &'a [u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<&'a [u8], Fault> {
    let mut space = [const { MaybeUninit::uninit() }; FIELDS_HARD_MAX];
    let mut request = httparse::Request::new(&mut []);
    let outcome = request.parse_with_uninit_headers(raw, &mut space[..limits.fields_max.min(FIELDS_HARD_MAX)]);
    match outcome {
        Ok(httparse::Status::Complete(len)) if len == raw.len() => {}
        Ok(_) => return Err(Fault::BadRequest),
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(version_fault(raw)),
        Err(_) => return Err(Fault::BadRequest),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Fault::BadRequest);
    };
    let base = head.fields.load(raw);
    for field in request.headers.iter() {
        head.fields.push_span(span_of(field.name.as_bytes(), raw, base), span_of(field.value, raw, base));
    }
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    head.set_line(span_of(method.as_bytes(), raw, base), span_of(target.as_bytes(), raw, base), version);
    Ok(target.as_bytes())
}

/// RFC 9112 section 2.3: `HTTP/` digit `.` digit is a version, spoken here or not; anything else is rubbish.
fn version_fault(raw: &[u8]) -> Fault {
    let line = raw.split(|&byte| byte == b'\r').next().unwrap_or_default();
    match line.split(|&byte| byte == b' ').nth(2) {
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Fault::VersionNotSupported
        }
        _ => Fault::BadRequest,
    }
}

/// RFC 9112 section 6.3, the rules for requests.
fn request_framing(tally: &Tally, version: Version) -> Result<Framing, Fault> {
    let transfer = tally.codings.verdict();
    match (transfer, tally.length) {
        (Transfer::Absent, Length::Absent | Length::Value(0)) => Ok(Framing::None),
        (Transfer::Absent, Length::Value(length)) => Ok(Framing::Length(length)),
        (_, Length::Invalid) | (Transfer::Invalid, _) => Err(Fault::BadRequest),
        // Section 6.1: HTTP/1.0 knows no transfer codings; both fields together are how requests are smuggled. The
        // section allows Content-Length to be ignored; refusing is allowed too, and safe behind any other proxy.
        _ if version == Version::Http10 || tally.length != Length::Absent => Err(Fault::BadRequest),
        (Transfer::Unsupported, _) => Err(Fault::NotImplemented),
        (Transfer::Chunked, _) => Ok(Framing::Chunked),
    }
}

#[cfg(test)]
mod tests;
