//! The value of each fact for a subject.

use std::io::Write;
use std::net::IpAddr;

use model::facts::{ClientNames, TlsFacts};
use model::persistence::SessionPick;
use model::{Address, FieldName, Fields, Known, Name, PickReason, RequestHead};
use serde_json::Value;

use super::attributes::{IpFact, NumberFact, TextFact, TimeFact, TruthFact};
use super::program::Entry;
use super::subject::Subject;
use super::value::{Bytes, Failed, Scratch};
use crate::json::{Item, Path};
use crate::route::query;

/// Returns the value of a text that stands in one place. `None`: it has none, or is made of several parts.
fn single_text<'a>(fact: TextFact, of: &Subject<'a>) -> Option<&'a [u8]> {
    let (request, facts, ended) = (of.request, of.facts, &of.ended);
    let name = |name: Option<&'a Name>| name.map(|name| name.as_str().as_bytes());
    let tls = |part: fn(&'a TlsFacts) -> Option<&'a str>| facts.tls.and_then(part).map(str::as_bytes);
    let names = |part: fn(&'a ClientNames) -> Option<&'a String>| {
        let names = facts.tls.and_then(|tls| tls.client_names.as_deref());
        names.and_then(part).map(String::as_bytes)
    };
    match fact {
        TextFact::Method => request.map(RequestHead::method_bytes),
        TextFact::ReceivedMethod => request.map(RequestHead::received_method_bytes),
        TextFact::Path => request.map(RequestHead::path),
        TextFact::ReceivedPath => request.map(RequestHead::received_path),
        TextFact::QueryString => request.map(|head| head.query().unwrap_or_default()),
        // Without the dot of the root, as routes read it.
        TextFact::Host => request.map(|head| head.host().strip_suffix(b".").unwrap_or(head.host())),
        TextFact::Authority => request.map(RequestHead::received_authority),
        TextFact::Scheme => Some(facts.scheme.as_str().as_bytes()),
        TextFact::Protocol => request.map(|head| head.version.as_str().as_bytes()),
        TextFact::Id => Some(facts.request_id.as_bytes()).filter(|id| !id.is_empty()),
        TextFact::User => of.user(),
        TextFact::LimitStatus => of.limit_status(),
        TextFact::CacheStatus => of.cache_status(),
        TextFact::Body => of.notes?.body.bytes(),
        TextFact::ServerName => tls(|tls| tls.server_name.as_deref()),
        TextFact::TlsVersion => tls(|tls| Some(tls.version)),
        TextFact::TlsCipher => tls(|tls| Some(tls.cipher)),
        TextFact::Alpn => tls(|tls| tls.alpn),
        TextFact::PeerSubject => tls(|tls| tls.client_subject.as_deref()),
        TextFact::PeerSubjectName => tls(|tls| tls.client_common_name.as_deref()),
        TextFact::PeerIssuer => names(|names| names.issuer.as_ref()),
        TextFact::PeerDns => names(|names| names.dns.first()),
        TextFact::PeerUri => names(|names| names.uris.first()),
        TextFact::PeerEmail => names(|names| names.emails.first()),
        TextFact::PeerSerial => names(|names| names.serial.as_ref()),
        TextFact::PeerFingerprint => names(|names| names.fingerprint.as_ref()),
        TextFact::SenderId => facts.sender.and_then(|sender| sender.unique_id.as_deref()),
        TextFact::Listener => Some(facts.listener.as_str().as_bytes()),
        TextFact::Route => name(ended.route),
        TextFact::Cluster => name(ended.cluster),
        TextFact::Endpoint => name(ended.endpoint.map(|(name, _)| name)),
        TextFact::Pick => ended.pick.map(PickReason::as_str).map(str::as_bytes),
        TextFact::Session => ended.session.map(SessionPick::as_str).map(str::as_bytes),
        TextFact::Fault => ended.fault.map(|fault| fault.consequence().label.as_bytes()),
        TextFact::Flag => ended.fault.map(|fault| fault.consequence().flag.as_bytes()),
        // These are written, see `text`.
        TextFact::Uri | TextFact::EndpointAddress => None,
    }
}

/// Returns all names of the client's certificate of one kind. `None`: there is no certificate.
pub(super) fn names<'a>(fact: TextFact, of: &Subject<'a>) -> Option<&'a [String]> {
    let names = of.facts.tls?.client_names.as_deref()?;
    match fact {
        TextFact::PeerDns => Some(&names.dns),
        TextFact::PeerUri => Some(&names.uris),
        TextFact::PeerEmail => Some(&names.emails),
        _ => None,
    }
}

/// Returns whether a text has a value. A missing query differs from an empty one.
pub(super) fn has_text(fact: TextFact, of: &Subject<'_>) -> bool {
    match fact {
        TextFact::Uri => of.request.is_some(),
        TextFact::QueryString => of.request.is_some_and(|head| head.query().is_some()),
        TextFact::EndpointAddress => of.ended.endpoint.is_some(),
        _ => single_text(fact, of).is_some(),
    }
}

/// Returns the value of a text.
pub(super) fn text<'a>(fact: TextFact, of: &Subject<'a>, scratch: &mut Scratch<'_>) -> Result<Bytes<'a>, Failed> {
    match fact {
        TextFact::Uri => {
            let request = of.request.ok_or(Failed)?;
            let Some(query) = request.query() else { return Ok(Bytes::Borrowed(request.path())) };
            scratch.write(|out| {
                out.extend_from_slice(request.path());
                out.push(b'?');
                out.extend_from_slice(query);
            })
        }
        TextFact::EndpointAddress => match of.ended.endpoint {
            Some((_, address)) => scratch.write(|out| write_address(address, out)),
            None => Err(Failed),
        },
        _ => single_text(fact, of).map(Bytes::Borrowed).ok_or(Failed),
    }
}

fn write_address(address: &Address, out: &mut Vec<u8>) {
    // Writing into memory cannot fail.
    let _ = write!(out, "{address}");
}

/// Returns the value of a number, 0 if it has none.
pub(super) fn number(fact: NumberFact, of: &Subject<'_>) -> i64 {
    let (facts, ended) = (of.facts, &of.ended);
    let length = |fields: Option<&Fields>| {
        let text = fields.and_then(|fields| fields.get_known(Known::ContentLength)).and_then(digits);
        text.unwrap_or(0)
    };
    match fact {
        NumberFact::SourcePort if facts.client.to_canonical() == facts.peer.ip().to_canonical() => {
            facts.peer.port().into()
        }
        NumberFact::SourcePort => 0,
        NumberFact::PeerPort => facts.peer.port().into(),
        NumberFact::DestinationPort => facts.local.port().into(),
        NumberFact::RequestSize => length(of.request.map(|head| &head.fields)),
        NumberFact::Code => ended.status.into(),
        NumberFact::ResponseSize => length(of.response.map(|head| &head.fields)),
        NumberFact::ReceivedBytes => i64::try_from(ended.received_bytes).unwrap_or(i64::MAX),
        NumberFact::SentBytes => i64::try_from(ended.sent_bytes).unwrap_or(i64::MAX),
        NumberFact::Retries => ended.retries.into(),
        NumberFact::Hedges => ended.hedges.into(),
        NumberFact::Redirects => of.redirects().into(),
    }
}

/// Returns the number that a text of digits says.
pub(super) fn digits(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_i64, |number, digit| {
        let digit = i64::from(char::from(*digit).to_digit(10)?);
        let tens = number.checked_mul(10)?;
        if is_negative { tens.checked_sub(digit) } else { tens.checked_add(digit) }
    })
}

pub(super) fn time(fact: TimeFact, of: &Subject<'_>) -> i64 {
    i64::try_from(of.ended.times[fact as usize].as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn truth(fact: TruthFact, of: &Subject<'_>) -> bool {
    match fact {
        TruthFact::Tls => of.facts.tls.is_some(),
        TruthFact::Mtls => of.facts.tls.is_some_and(|tls| tls.client_subject.is_some()),
        TruthFact::IsLocal => of.is_local,
    }
}

pub(super) fn ip(fact: IpFact, of: &Subject<'_>) -> Option<IpAddr> {
    let facts = of.facts;
    let address = match fact {
        IpFact::Source => facts.client,
        IpFact::Peer => facts.peer.ip(),
        IpFact::Destination => facts.local.ip(),
        IpFact::Sender => facts.sender?.address.ip(),
    };
    Some(address.to_canonical())
}

/// Returns the value of an entry of a table. `None`: there is none.
pub(super) fn entry<'a>(
    entry: &'a Entry,
    of: &Subject<'a>,
    scratch: &mut Scratch<'_>,
) -> Result<Option<Bytes<'a>>, Failed> {
    match entry {
        Entry::RequestHeader(name) => joined(of.request.map(|head| &head.fields), name, scratch),
        Entry::ResponseHeader(name) => joined(of.response.map(|head| &head.fields), name, scratch),
        Entry::Query(name) => match raw_parameter(of, name) {
            Some(raw) if !query::is_plain(raw) => scratch.write(|out| out.extend(query::decoded(raw))).map(Some),
            raw => Ok(raw.map(Bytes::Borrowed)),
        },
        Entry::Cookie(_) | Entry::ProxyTlv(_) => Ok(single(entry, of).map(Bytes::Borrowed)),
        Entry::Claim(_) | Entry::Metadata(_) => json(entry, of).map_or(Ok(None), |value| json_text(value, scratch)),
        Entry::Json(path) => in_body(path, of).map_or(Ok(None), |item| item_text(item, scratch)),
    }
}

/// Returns whether there is an entry.
pub(super) fn has(entry: &Entry, of: &Subject<'_>) -> bool {
    match entry {
        Entry::RequestHeader(name) => of.request.is_some_and(|head| head.fields.get(name).is_some()),
        Entry::ResponseHeader(name) => of.response.is_some_and(|head| head.fields.get(name).is_some()),
        Entry::Query(name) => raw_parameter(of, name).is_some(),
        Entry::Cookie(_) | Entry::ProxyTlv(_) => single(entry, of).is_some(),
        Entry::Claim(_) | Entry::Metadata(_) => json(entry, of).is_some_and(|value| !value.is_null()),
        Entry::Json(path) => in_body(path, of).is_some_and(|item| item != Item::Literal(b"null")),
    }
}

/// Returns whether one of the values of an entry is this text. Of header fields each element of a list is a value (RFC 9110 section
/// 5.6.1).
pub(super) fn holds(entry: &Entry, of: &Subject<'_>, wanted: &[u8]) -> bool {
    let in_fields = |fields: Option<&Fields>, name| {
        fields.is_some_and(|fields| fields.all(name).any(|value| elements(value).any(|element| element == wanted)))
    };
    match entry {
        Entry::RequestHeader(name) => in_fields(of.request.map(|head| &head.fields), name),
        Entry::ResponseHeader(name) => in_fields(of.response.map(|head| &head.fields), name),
        Entry::Query(name) => query_of(of)
            .split(|byte| *byte == b'&')
            .filter(|pair| !pair.is_empty())
            .map(query::split_at_equals)
            .any(|(key, value)| query::equals_decoded(key, name) && query::equals_decoded(value, wanted)),
        Entry::Claim(name) | Entry::Metadata(name) => match json(entry, of) {
            Some(Value::Array(items)) => items.iter().any(|item| is_text(item, wanted)),
            // RFC 8693 section 4.2.
            Some(Value::String(words)) if matches!((entry, &**name), (Entry::Claim(_), "scope" | "scp")) => {
                words.as_bytes().split(|byte| *byte == b' ').any(|word| word == wanted)
            }
            Some(value) => is_text(value, wanted),
            None => false,
        },
        Entry::Json(path) => match in_body(path, of) {
            Some(Item::Array(mut items)) => items.any(|item| item.bytes() == Some(wanted)),
            found => found.and_then(Item::bytes) == Some(wanted),
        },
        Entry::Cookie(_) | Entry::ProxyTlv(_) => single(entry, of) == Some(wanted),
    }
}

fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn query_of<'a>(of: &Subject<'a>) -> &'a [u8] {
    of.request.and_then(RequestHead::query).unwrap_or_default()
}

pub(super) fn raw_parameter<'a>(of: &Subject<'a>, name: &[u8]) -> Option<&'a [u8]> {
    query::parameter(query_of(of), name)
}

/// Returns a claim of the token that a filter has verified, or what an authorization service has said.
fn json<'a>(entry: &Entry, of: &Subject<'a>) -> Option<&'a Value> {
    match entry {
        Entry::Claim(name) => of.notes?.claims()?.get(name),
        Entry::Metadata(name) => of.notes?.metadata(name),
        _ => None,
    }
}

/// Returns a value in the body of the request.
fn in_body<'a>(path: &Path, of: &Subject<'a>) -> Option<Item<'a>> {
    of.notes?.body.find(path)
}

/// Returns a value of a body as text, as [`json_text`] does.
fn item_text<'a>(item: Item<'a>, scratch: &mut Scratch<'_>) -> Result<Option<Bytes<'a>>, Failed> {
    let Item::Array(items) = item else { return Ok(item.bytes().map(Bytes::Borrowed)) };
    let write = |out: &mut Vec<u8>| {
        let texts = items.filter_map(Item::bytes).filter(|text| !text.contains(&b','));
        for (place, text) in texts.enumerate() {
            out.extend_from_slice(if place == 0 { b"" } else { b"," });
            out.extend_from_slice(text);
        }
    };
    scratch.write(write).map(Some)
}

/// Returns a claim as text, as the variable `{claim:NAME}` writes it: items of a list are joined by commas, but for those that contain one.
/// `None`: it has none.
fn json_text<'a>(value: &'a Value, scratch: &mut Scratch<'_>) -> Result<Option<Bytes<'a>>, Failed> {
    match value {
        Value::String(text) => Ok(Some(Bytes::Borrowed(text.as_bytes()))),
        Value::Bool(_) | Value::Number(_) => scratch.write(|out| write_plain(value, out)).map(Some),
        Value::Array(items) => {
            let write = |out: &mut Vec<u8>| {
                let is_plain = |item: &&Value| match item {
                    Value::String(text) => !text.contains(','),
                    other => matches!(other, Value::Bool(_) | Value::Number(_)),
                };
                for (place, item) in items.iter().filter(is_plain).enumerate() {
                    out.extend_from_slice(if place == 0 { b"" } else { b"," });
                    write_plain(item, out);
                }
            };
            scratch.write(write).map(Some)
        }
        Value::Object(_) | Value::Null => Ok(None),
    }
}

fn write_plain(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        // Writing into memory cannot fail.
        other => drop(write!(out, "{other}")),
    }
}

/// Returns whether a value is written like this.
fn is_text(value: &Value, wanted: &[u8]) -> bool {
    match value {
        Value::String(text) => text.as_bytes() == wanted,
        Value::Bool(flag) => wanted == if *flag { &b"true"[..] } else { b"false" },
        Value::Number(number) => {
            let mut written = [0; 32];
            let mut rest = &mut written[..];
            // What is longer is no number of 64 bits.
            let fits = write!(rest, "{number}").is_ok();
            let left = rest.len();
            fits && &written[..32 - left] == wanted
        }
        Value::Array(_) | Value::Object(_) | Value::Null => false,
    }
}

/// Returns the value of an entry that is in one place.
fn single<'a>(entry: &Entry, of: &Subject<'a>) -> Option<&'a [u8]> {
    match entry {
        Entry::Cookie(name) => of.request?.fields.all_known(Known::Cookie).find_map(|field| query::cookie(field, name)),
        Entry::ProxyTlv(name) => of.facts.sender?.tlvs.find(*name),
        _ => None,
    }
}

/// Returns the value of a field. Several of one name are joined: that means the same (RFC 9110 section 5.2; cookies: RFC 9113 section
/// 8.2.3).
fn joined<'a>(
    fields: Option<&'a Fields>,
    name: &'a FieldName,
    scratch: &mut Scratch<'_>,
) -> Result<Option<Bytes<'a>>, Failed> {
    let Some(fields) = fields else { return Ok(None) };
    let mut values = fields.all(name);
    let Some(first) = values.next() else { return Ok(None) };
    let Some(second) = values.next() else { return Ok(Some(Bytes::Borrowed(first))) };
    let separator: &[u8] = if name.known() == Known::Cookie { b"; " } else { b", " };
    let write = |out: &mut Vec<u8>| {
        out.extend_from_slice(first);
        for value in std::iter::once(second).chain(values) {
            out.extend_from_slice(separator);
            out.extend_from_slice(value);
        }
    };
    scratch.write(write).map(Some)
}
