//! Response heads: bytes to [`ResponseHead`] (RFC 9112 sections 4, 5 and 6).

use std::mem::MaybeUninit;

use model::limits::FIELDS_HARD_MAX;
use model::{Fault, Known, Method, ResponseHead, Version};

use super::connection::remove_nominated;
use super::framing::{Length, Transfer};
use super::scan::{Opening, ScanFault};
use super::tally::Tally;
use super::{Framing, HeadLimits, HeadScan, span_of};

/// What a response head says about its message and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseParsed {
    /// Bytes of the head with its empty line.
    pub head_len: usize,
    /// How the end of the body is known.
    pub framing: Framing,
    /// Whether the connection may carry another request after this response (RFC 9112 section 9.3). For an interim
    /// response it says nothing.
    pub keep_alive: bool,
    /// 101: the bytes after the head are another protocol (RFC 9110 section 15.2.2). The caller checks that the request
    /// asked for it.
    pub switching: bool,
}

/// Parses a response head at the start of `bytes`, as [`super::parse_request`] does a request's. `request_method` is that
/// of the request as the endpoint got it.
///
/// As strict as for requests, obs-fold included (RFC 9112 section 5.2 lets a proxy answer 502) and white space between
/// name and colon (section 5.1 asks a proxy to remove it; a message that odd is refused instead).
///
/// # Errors
/// [`Fault::BadResponse`] or [`Fault::ResponseHeadTooLarge`]; the connection must be closed.
pub fn parse_response(
    bytes: &[u8],
    limits: &HeadLimits,
    scan: &mut HeadScan,
    request_method: Method,
    head: &mut ResponseHead,
) -> Result<Option<ResponseParsed>, Fault> {
    let found = match scan.advance(bytes, limits.head_bytes_max, Opening::Response) {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found,
        Err(fault) => {
            scan.reset();
            return Err(match fault {
                ScanFault::Broken => Fault::BadResponse,
                ScanFault::TooLarge | ScanFault::FirstLineTooLong => Fault::ResponseHeadTooLarge,
            });
        }
    };
    scan.reset();
    read(&bytes[found], limits, request_method, head).map(Some)
}

fn read(
    raw: &[u8],
    limits: &HeadLimits,
    request_method: Method,
    head: &mut ResponseHead,
) -> Result<ResponseParsed, Fault> {
    head.clear();
    load(raw, limits, head)?;
    let tally = Tally::of(&head.fields);
    let framing = response_framing(&tally, head, request_method)?;
    if tally.nominates {
        remove_nominated(&mut head.fields).map_err(|_| Fault::BadResponse)?;
    }
    let switching = head.status == 101;
    let mut keep_alive = tally.persists(head.version) && framing != Framing::UntilClose && !switching;
    if head.status == 204 && !is_without_content(&tally) {
        // RFC 9110 section 8.6 and RFC 9112 section 6.1 forbid both fields here. If the endpoint does send a body,
        // closing keeps it from being taken for the next response.
        keep_alive = false;
    }
    if head.status < 200 || head.status == 204 {
        head.fields.remove_known(Known::ContentLength);
    }
    Ok(ResponseParsed { head_len: raw.len(), framing, keep_alive, switching })
}

/// Fills line and fields. See `request::load` for what httparse refuses.
fn load(raw: &[u8], limits: &HeadLimits, head: &mut ResponseHead) -> Result<(), Fault> {
    let mut space = [const { MaybeUninit::uninit() }; FIELDS_HARD_MAX];
    let mut response = httparse::Response::new(&mut []);
    let outcome = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        raw,
        &mut space[..limits.fields_max.min(FIELDS_HARD_MAX)],
    );
    match outcome {
        Ok(httparse::Status::Complete(len)) if len == raw.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::ResponseHeadTooLarge),
        _ => return Err(Fault::BadResponse),
    }
    let (Some(minor), Some(status)) = (response.version, response.code) else {
        return Err(Fault::BadResponse);
    };
    if status < 100 {
        return Err(Fault::BadResponse);
    }
    let base = head.fields.load(raw);
    for field in response.headers.iter() {
        head.fields.push_span(span_of(field.name.as_bytes(), raw, base), span_of(field.value, raw, base));
    }
    let reason = span_of(response.reason.unwrap_or_default().as_bytes(), raw, base);
    head.set_line(status, reason, if minor == 0 { Version::Http10 } else { Version::Http11 });
    Ok(())
}

fn is_without_content(tally: &Tally) -> bool {
    tally.codings.verdict() == Transfer::Absent && matches!(tally.length, Length::Absent | Length::Value(0))
}

/// RFC 9112 section 6.3, the rules for responses.
fn response_framing(tally: &Tally, head: &ResponseHead, request_method: Method) -> Result<Framing, Fault> {
    let transfer = tally.codings.verdict();
    // Section 6.1: both fields, or a transfer coding in HTTP/1.0, are faulty. So is a coding that we did not ask for.
    let coded = transfer != Transfer::Absent;
    if matches!(transfer, Transfer::Invalid | Transfer::Unsupported)
        || tally.length == Length::Invalid
        || (coded && (tally.length != Length::Absent || head.version == Version::Http10))
    {
        return Err(Fault::BadResponse);
    }
    if head.status < 200 {
        // Bytes after an interim head would be read as the final response: one that announces content is refused.
        return if is_without_content(tally) { Ok(Framing::None) } else { Err(Fault::BadResponse) };
    }
    if request_method == Method::Head || matches!(head.status, 204 | 304) {
        return Ok(Framing::None);
    }
    Ok(match tally.length {
        _ if coded => Framing::Chunked,
        Length::Value(length) => Framing::Length(length),
        _ => Framing::UntilClose,
    })
}

#[cfg(test)]
mod tests;
