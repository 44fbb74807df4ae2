//! Messages that cross between HTTP/1.1 and HTTP/2 or HTTP/3: what RFC 9113 section 8, and nearly word for word RFC 9114
//! section 4, asks of a message, on heads that know no version.
//!
//! ```text
//! pseudo-header fields, fields → Arriving → RequestHead, RequestParsed     (from a client)
//!              status, fields → arriving_response → ResponseHead, ResponseParsed   (from an endpoint)
//! RequestHead → request_fields,  ResponseHead → response_fields            (towards HTTP/2 and HTTP/3)
//! ```
//!
//! What arrives is judged as strictly as by [`crate::http1`], so that the writers of either version may trust a head,
//! whoever sent it. What is malformed (section 8.1.1) is never passed on.

mod gather;
mod response;

use std::sync::LazyLock;

use model::fields::{Field, Span, is_field_value, is_lower_token, is_token};
use model::limits::{FIELDS_HARD_MAX, TARGET_BYTES_MAX};
use model::{Fault, FieldName, Fields, Known, Method, RequestHead, ResponseHead, Version};

use crate::http1::framing::{Length, decimal};
use crate::http1::tally::{Tally, has_trailers};
use crate::http1::target::{Form, HOST, form, is_authority};
use crate::http1::{Framing, HeadLimits, RequestParsed, ResponseParsed, may_be_trailer};
use crate::text::Digits;

pub(crate) use gather::{BadRequest, Gather};
use response::ArrivingResponse;
pub(crate) use response::GatherResponse;

static COOKIE: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("cookie").expect("`cookie` is a token"));
static UPGRADE: LazyLock<FieldName> = LazyLock::new(|| FieldName::new("upgrade").expect("`upgrade` is a token"));

/// What a field counts beside the bytes of its name and value (RFC 9113 section 6.5.2).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// What the pseudo-header fields of a request say (RFC 9113 section 8.3.1). The scheme is not among them: it is not
/// believed, for how the client reached us is known from the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pseudo<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:authority`.
    pub authority: Option<&'a [u8]>,
    /// `:path`.
    pub path: Option<&'a [u8]>,
    /// `:protocol` (RFC 8441 section 4).
    pub protocol: Option<&'a [u8]>,
}

/// A request head while it is put together.
pub struct Arriving<'a> {
    head: &'a mut RequestHead,
    has_authority: bool,
    is_websocket: bool,
}

impl<'a> Arriving<'a> {
    /// Clears `head` and puts the pseudo-header fields into it: a method, a target in origin form or `*`, and `Host` as
    /// the first field, for that is where `:authority` goes (section 8.3.1). A WebSocket becomes what it is in HTTP/1.1, a
    /// GET with `Upgrade` (RFC 8441 section 5); its key is not given here.
    ///
    /// # Errors
    /// [`Fault::BadRequest`], [`Fault::TargetTooLong`], or [`Fault::NotImplemented`] for any other CONNECT.
    pub fn begin(head: &'a mut RequestHead, pseudo: &Pseudo<'_>, version: Version) -> Result<Self, Fault> {
        head.clear();
        if !is_token(pseudo.method) {
            return Err(Fault::BadRequest);
        }
        let path = pseudo.path.unwrap_or_default();
        if path.len() > TARGET_BYTES_MAX {
            let method = loaded(&mut head.fields, pseudo.method);
            head.set_line(method, Span::default(), version);
            return Err(Fault::TargetTooLong);
        }
        let is_connect = pseudo.method == b"CONNECT";
        let is_websocket =
            is_connect && pseudo.protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
        if pseudo.protocol.is_some() && !is_connect {
            return Err(Fault::BadRequest);
        }
        let method = loaded(&mut head.fields, if is_websocket { b"GET" } else { pseudo.method });
        let target = loaded(&mut head.fields, path);
        head.set_line(method, target, version);
        if let Some(authority) = pseudo.authority {
            // An empty one, or one with user information, is malformed too.
            if !is_authority(authority) {
                return Err(Fault::BadRequest);
            }
            head.fields.append(&HOST, authority);
        }
        if head.method == Method::Connect {
            return Err(Fault::NotImplemented);
        }
        match form(path, head.method) {
            Some(Form::Origin | Form::Asterisk) => {
                Ok(Self { head, has_authority: pseudo.authority.is_some(), is_websocket })
            }
            _ => Err(Fault::BadRequest),
        }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] when it may not stand in an HTTP/2 message.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        push_field(&mut self.head.fields, name, value).map_err(|Malformed| Fault::BadRequest)
    }

    /// The head is whole; `ends` says that the message is, too. Of the limits only the number of fields counts.
    ///
    /// # Errors
    /// [`Fault::BadRequest`], [`Fault::HeadTooLarge`] or [`Fault::ExpectationFailed`].
    pub fn end(self, limits: &HeadLimits, ends: bool) -> Result<RequestParsed, Fault> {
        self.finish(limits, ends).map_err(|bad| match bad {
            BadRequest::Malformed => Fault::BadRequest,
            BadRequest::Fault(fault) => fault,
        })
    }

    /// The same, and says of what may be answered that it may.
    fn finish(self, limits: &HeadLimits, ends: bool) -> Result<RequestParsed, BadRequest> {
        if self.head.fields.len() > limits.fields_max.min(FIELDS_HARD_MAX) {
            return Err(BadRequest::Fault(Fault::HeadTooLarge));
        }
        settle_host(self.head, self.has_authority).map_err(BadRequest::Fault)?;
        join_cookies(&mut self.head.fields);
        let tally = Tally::of(&self.head.fields);
        // RFC 9113 section 8.1.1: a length that is not that of the content is malformed.
        let framing = match tally.length {
            Length::Invalid => return Err(BadRequest::Malformed),
            // What follows are no bytes of a message.
            Length::Absent if self.is_websocket => Framing::None,
            _ if self.is_websocket => return Err(BadRequest::Fault(Fault::BadRequest)),
            Length::Value(length) if ends && length > 0 => return Err(BadRequest::Malformed),
            Length::Absent if !ends => Framing::Chunked,
            Length::Value(length) if length > 0 => Framing::Length(length),
            Length::Absent | Length::Value(_) => Framing::None,
        };
        if tally.expects_other {
            return Err(BadRequest::Fault(Fault::ExpectationFailed));
        }
        if self.is_websocket {
            self.head.fields.append(&UPGRADE, b"websocket");
        }
        Ok(RequestParsed {
            head_len: 0,
            framing,
            keep_alive: true,
            expects_continue: tally.expects_continue && framing != Framing::None,
            upgrade: self.is_websocket,
            accepts_trailers: tally.trailers,
            host_differs: false,
            awaits_end: !ends && tally.length == Length::Value(0),
        })
    }
}

/// RFC 9113 section 8.3.1: `Host` says the same as `:authority`, or stands for it. One of them must be there.
fn settle_host(head: &mut RequestHead, has_authority: bool) -> Result<(), Fault> {
    let mut hosts = head.fields.all_known(Known::Host);
    let first = hosts.next().ok_or(Fault::BadRequest)?;
    let mut others = 0;
    for other in hosts {
        others += 1;
        if !other.eq_ignore_ascii_case(first) {
            return Err(Fault::BadRequest);
        }
    }
    if others > u32::from(has_authority) || !is_authority(first) {
        return Err(Fault::BadRequest);
    }
    if others > 0 {
        let authority = first.to_vec();
        head.set_authority(&HOST, &authority);
    }
    Ok(())
}

/// RFC 9113 section 8.2.3: the pieces of a cookie become one field for HTTP/1.1.
fn join_cookies(fields: &mut Fields) {
    if fields.all_known(Known::Cookie).nth(1).is_some() {
        let crumbs: Vec<_> = fields.all_known(Known::Cookie).filter(|crumb| !crumb.is_empty()).collect();
        let joined = crumbs.join(&b"; "[..]);
        fields.set(&COOKIE, &joined);
    }
}

/// A field, or a message, that RFC 9113 calls malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

fn push_field(fields: &mut Fields, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    check_field(name, value)?;
    add_field(fields, name, value);
    Ok(())
}

fn add_field(fields: &mut Fields, name: &[u8], value: &[u8]) {
    let name = loaded(fields, name);
    let value = loaded(fields, value);
    fields.push_span(name, value);
}

/// RFC 9113 sections 8.2.1 and 8.2.2.
fn check_field(name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    let is_lower = is_lower_token(name);
    let is_padded = matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
    let is_allowed = match Known::of(name) {
        Known::Te => value.eq_ignore_ascii_case(b"trailers"),
        known => !known.is_hop_by_hop(),
    };
    if !is_lower || is_padded || !is_field_value(value) || !is_allowed {
        return Err(Malformed);
    }
    Ok(())
}

fn loaded(fields: &mut Fields, bytes: &[u8]) -> Span {
    let start = fields.load(bytes);
    Span::new(start, start + bytes.len())
}

/// What a status line says.
#[derive(Clone, Copy, Debug)]
pub struct StatusLine {
    /// The status.
    pub status: u16,
    /// The version by which it came.
    pub version: Version,
}

/// Puts a response head together: clears `head`, takes status and fields. `ends` says that the message is whole with it.
///
/// # Errors
/// [`Fault::BadResponse`] or [`Fault::ResponseHeadTooLarge`].
pub fn arriving_response<'f>(
    head: &mut ResponseHead,
    StatusLine { status, version }: StatusLine,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    (request_method, limits, ends): (Method, &HeadLimits, bool),
) -> Result<ResponseParsed, Fault> {
    let mut arriving = ArrivingResponse::new(head, version, limits);
    arriving.set_status(status);
    for (name, value) in fields {
        arriving.field(name, value)?;
    }
    arriving.end(request_method, ends)
}

fn response_framing(status: u16, request_method: Method, length: Length, ends: bool) -> Result<Framing, Fault> {
    // RFC 9113 section 8.6: there is no 101. Nor does an interim response end anything (section 8.1).
    let is_interim = (100..200).contains(&status);
    if status < 100 || status == 101 || length == Length::Invalid || (is_interim && ends) {
        return Err(Fault::BadResponse);
    }
    if is_interim || request_method == Method::Head || matches!(status, 204 | 304) {
        return Ok(Framing::None);
    }
    match length {
        Length::Value(length) if ends && length > 0 => Err(Fault::BadResponse),
        _ if ends => Ok(Framing::Length(0)),
        Length::Value(length) => Ok(Framing::Length(length)),
        _ => Ok(Framing::Chunked),
    }
}

/// Gives the fields of a request as HTTP/2 sends them, beside the pseudo-header fields: without `Host`, without what
/// speaks of one connection, `te` reduced to `trailers`, and `content-length` as `framing` says. Names keep their case.
pub fn request_fields(head: &RequestHead, framing: Framing, mut give: impl FnMut(&[u8], &[u8])) {
    let mut is_length_given = false;
    let mut trailers = false;
    for field in head.fields.iter() {
        match field.known {
            Known::Host => {}
            Known::Te => trailers |= has_trailers(field.value),
            Known::ContentLength => give_length(&field, framing, &mut is_length_given, &mut give),
            known if known.is_hop_by_hop() => {}
            _ => give(field.name, field.value),
        }
    }
    add_length(framing, is_length_given, &mut give);
    if trailers {
        give(b"te", b"trailers");
    }
}

/// About how large a request head is, as RFC 9113 section 6.5.2 and RFC 9114 section 4.2.2 count.
pub fn request_bytes(head: &RequestHead) -> usize {
    let fields = head.fields.iter().map(|field| field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES);
    let target = head.path().len() + head.query().map_or(0, <[u8]>::len);
    // The method and the scheme are short.
    fields.sum::<usize>() + target + 4 * FIELD_OVERHEAD_BYTES
}

/// Writes the target of a request as `:path` has it. Bytes that no URI has (RFC 3986 section 2) are encoded: they are common in
/// requests and mean to everyone what they mean encoded, and many do not take them here.
pub fn push_target(head: &RequestHead, out: &mut Vec<u8>) {
    push_encoded(out, head.path());
    if let Some(query) = head.query() {
        out.push(b'?');
        push_encoded(out, query);
    }
}

fn push_encoded(target: &mut Vec<u8>, part: &[u8]) {
    let is_foreign = |byte: &u8| matches!(byte, b'"' | b'<' | b'>' | b'`');
    for piece in part.split_inclusive(is_foreign) {
        match piece.split_last() {
            Some((last, before)) if is_foreign(last) => {
                target.extend_from_slice(before);
                target.extend_from_slice(format!("%{last:02X}").as_bytes());
            }
            _ => target.extend_from_slice(piece),
        }
    }
}

/// Gives the fields of a response as HTTP/2 sends them; see [`request_fields`]. With [`Framing::None`], `content-length` keeps
/// its number, for HEAD and 304, and is left out of 1xx and 204 (RFC 9110 section 8.6).
pub fn response_fields(head: &ResponseHead, framing: Framing, mut give: impl FnMut(&[u8], &[u8])) {
    let mut is_length_given = head.status < 200 || head.status == 204;
    for field in head.fields.iter() {
        match field.known {
            Known::ContentLength => give_length(&field, framing, &mut is_length_given, &mut give),
            known if known.is_hop_by_hop() => {}
            _ => give(field.name, field.value),
        }
    }
    add_length(framing, is_length_given, &mut give);
}

/// Gives those fields of a trailer section that are passed on.
pub fn trailer_fields(fields: &Fields, mut give: impl FnMut(&[u8], &[u8])) {
    for field in fields.iter().filter(|field| may_be_trailer(field.name)) {
        give(field.name, field.value);
    }
}

/// Adds a field of a trailer section that came over HTTP/2 or HTTP/3 to `fields`, if it is passed on. At most
/// [`FIELDS_HARD_MAX`] are.
///
/// # Errors
/// [`Malformed`]: the field may not stand in a trailer section, such as a pseudo-header field (RFC 9113 sections 8.1 and
/// 8.2), and neither may the message go on.
pub fn arriving_trailer(fields: &mut Fields, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    check_field(name, value)?;
    if may_be_trailer(name) && fields.len() < FIELDS_HARD_MAX {
        add_field(fields, name, value);
    }
    Ok(())
}

fn give_length(field: &Field<'_>, framing: Framing, is_given: &mut bool, give: &mut impl FnMut(&[u8], &[u8])) {
    if *is_given {
        return;
    }
    // The number, never the digits that the peer chose: `00` is written as `0`.
    let length = match framing {
        Framing::Length(length) => Some(length),
        Framing::None => decimal(field.value),
        Framing::Chunked | Framing::UntilClose => None,
    };
    if let Some(length) = length {
        give(field.name, Digits::of(length).as_bytes());
        *is_given = true;
    }
}

fn add_length(framing: Framing, is_given: bool, give: &mut impl FnMut(&[u8], &[u8])) {
    if let Framing::Length(length) = framing
        && !is_given
    {
        give(b"content-length", Digits::of(length).as_bytes());
    }
}

#[cfg(test)]
mod tests;
