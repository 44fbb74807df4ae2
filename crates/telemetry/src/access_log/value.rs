//! What a variable stands for in a record, and how a value is written.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use model::facts::TlsFacts;
use model::persistence::SessionPick;
use model::{Address, PickReason, RequestHead, Version};

use crate::record::Record;
use crate::text::{self, Clock, Escape, push_escaped};

/// Something known of a record. What each means stands in [`super::format::VARIABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Time,
    TimeLocal,
    Kind,
    Listener,
    ClientIp,
    ClientPort,
    PeerIp,
    SenderIp,
    SenderId,
    Scheme,
    Method,
    Host,
    Path,
    Query,
    Uri,
    Request,
    Version,
    Status,
    ReceivedBytes,
    SentBytes,
    TotalMs,
    ReceiveMs,
    QueueMs,
    ConnectMs,
    FirstByteMs,
    Route,
    Cluster,
    Endpoint,
    EndpointAddress,
    Pick,
    Retries,
    Hedges,
    Session,
    CacheStatus,
    Fault,
    Flag,
    RequestId,
    User,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    TlsClientSubject,
}

/// A value before it becomes text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Missing,
    /// May hold anything.
    Foreign(&'a [u8]),
    /// Ours: needs no escape.
    Plain(&'static str),
    Number(u64),
    /// A number as JSON writes it.
    Digits(&'a [u8]),
    Millis(Duration),
    Time(SystemTime),
    TimeLocal(SystemTime),
    Ip(IpAddr),
    Address(&'a Address),
    Uri(&'a RequestHead),
    RequestLine(&'a RequestHead),
}

impl<'a> Value<'a> {
    /// Returns a number that is written already. What JSON has no number for, such as `NaN`, is a text.
    pub(crate) fn digits(written: &'a [u8]) -> Self {
        let is_json = written.iter().all(|byte| byte.is_ascii_digit() || b"-.".contains(byte));
        if is_json && !written.is_empty() { Self::Digits(written) } else { Some(written).into() }
    }
}

impl<'a> From<Option<&'a [u8]>> for Value<'a> {
    fn from(value: Option<&'a [u8]>) -> Self {
        value.filter(|bytes| !bytes.is_empty()).map_or(Self::Missing, Self::Foreign)
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(value: Option<&'a str>) -> Self {
        value.map(str::as_bytes).into()
    }
}

fn plain<'a>(value: Option<&'static str>) -> Value<'a> {
    value.filter(|text| !text.is_empty()).map_or(Value::Missing, Value::Plain)
}

/// Returns the value of `variable` in `record`.
pub(crate) fn value<'a>(variable: Variable, record: &Record<'a>) -> Value<'a> {
    let facts = record.facts;
    let request = record.request;
    let tls: Option<&'a TlsFacts> = facts.tls;
    match variable {
        Variable::Time => Value::Time(record.at),
        Variable::TimeLocal => Value::TimeLocal(record.at),
        Variable::Kind => Value::Plain(record.kind.as_str()),
        Variable::Listener => Some(facts.listener.as_str()).into(),
        Variable::ClientIp => Value::Ip(facts.client),
        Variable::ClientPort if facts.client.to_canonical() == facts.peer.ip().to_canonical() => {
            Value::Number(u64::from(facts.peer.port()))
        }
        Variable::ClientPort => Value::Missing,
        Variable::PeerIp => Value::Ip(facts.peer.ip()),
        Variable::SenderIp => facts.sender.map_or(Value::Missing, |sender| Value::Ip(sender.address.ip())),
        Variable::SenderId => facts.sender.and_then(|sender| sender.unique_id.as_deref()).into(),
        Variable::Scheme => plain(request.map(|_| facts.scheme.as_str())),
        Variable::Method => request.map(RequestHead::received_method_bytes).into(),
        Variable::Host => request.map(RequestHead::received_host).into(),
        Variable::Path => request.map(RequestHead::received_path).into(),
        Variable::Query => request.and_then(RequestHead::received_query).into(),
        Variable::Uri => request.map_or(Value::Missing, Value::Uri),
        Variable::Request => request.map_or(Value::Missing, Value::RequestLine),
        Variable::Version => plain(request.map(|head| head.version.as_str())),
        Variable::Status if record.response_status == 0 => Value::Missing,
        Variable::Status => Value::Number(u64::from(record.response_status)),
        Variable::ReceivedBytes => Value::Number(record.received_bytes),
        Variable::SentBytes => Value::Number(record.sent_bytes),
        Variable::TotalMs => Value::Millis(record.phases.total),
        Variable::ReceiveMs => Value::Millis(record.phases.receive),
        Variable::QueueMs => Value::Millis(record.phases.queue),
        Variable::ConnectMs => Value::Millis(record.phases.connect),
        Variable::FirstByteMs => Value::Millis(record.phases.first_byte),
        Variable::Route => record.route.map(|name| name.as_str()).into(),
        Variable::Cluster => record.cluster.map(|name| name.as_str()).into(),
        Variable::Endpoint => record.endpoint.map(|name| name.as_str()).into(),
        Variable::EndpointAddress => record.endpoint_address.map_or(Value::Missing, Value::Address),
        Variable::Pick => plain(record.pick.map(PickReason::as_str)),
        Variable::Retries => Value::Number(u64::from(record.retries)),
        Variable::Hedges => Value::Number(u64::from(record.hedges)),
        Variable::Session => plain(record.session.map(SessionPick::as_str)),
        Variable::CacheStatus => plain(Some(record.cache).filter(|status| !status.is_empty())),
        Variable::Fault => plain(record.fault.map(|fault| fault.consequence().label)),
        Variable::Flag => plain(record.fault.map(|fault| fault.consequence().flag)),
        Variable::RequestId => Some(facts.request_id).into(),
        Variable::User => record.facts.user.into(),
        Variable::TlsVersion => plain(tls.map(|tls| tls.version)),
        Variable::TlsCipher => plain(tls.map(|tls| tls.cipher)),
        Variable::TlsServerName => tls.and_then(|tls| tls.server_name.as_deref()).into(),
        Variable::TlsClientSubject => tls.and_then(|tls| tls.client_subject.as_deref()).into(),
    }
}

/// Appends a value. In JSON, what is not a number is a string, and what is missing is `null`; in a line it is `-`.
pub(crate) fn write_value(value: Value<'_>, escape: Escape, clock: &mut Clock, out: &mut Vec<u8>) {
    match value {
        Value::Missing => out.extend_from_slice(if escape == Escape::Json { b"null" } else { b"-" }),
        Value::Number(number) => text::push_number(out, number),
        Value::Digits(digits) => out.extend_from_slice(digits),
        Value::Millis(duration) => text::push_millis(out, duration),
        _ if escape == Escape::Json => {
            out.push(b'"');
            write_text(value, escape, clock, out);
            out.push(b'"');
        }
        _ => write_text(value, escape, clock, out),
    }
}

fn write_uri(head: &RequestHead, escape: Escape, out: &mut Vec<u8>) {
    push_escaped(out, head.received_path(), escape);
    if let Some(query) = head.received_query() {
        out.push(b'?');
        push_escaped(out, query, escape);
    }
}

fn write_text(value: Value<'_>, escape: Escape, clock: &mut Clock, out: &mut Vec<u8>) {
    match value {
        Value::Foreign(bytes) => push_escaped(out, bytes, escape),
        Value::Plain(text) => out.extend_from_slice(text.as_bytes()),
        Value::Time(at) => clock.push_rfc3339(out, at),
        Value::TimeLocal(at) => clock.push_clf(out, at),
        Value::Ip(ip) => text::push_ip(out, ip),
        Value::Address(Address::Ip(address)) => text::push_address(out, *address),
        Value::Address(Address::Unix(path)) => {
            out.extend_from_slice(b"unix:");
            push_escaped(out, path.as_bytes(), escape);
        }
        Value::Uri(head) => write_uri(head, escape, out),
        Value::RequestLine(head) => {
            push_escaped(out, head.method_bytes(), escape);
            out.push(b' ');
            write_uri(head, escape, out);
            out.extend_from_slice(match head.version {
                Version::Http10 => b" HTTP/1.0",
                Version::Http11 => b" HTTP/1.1",
                Version::Http2 => b" HTTP/2.0",
                Version::Http3 => b" HTTP/3.0",
            });
        }
        Value::Missing | Value::Number(_) | Value::Digits(_) | Value::Millis(_) => (),
    }
}
