//! What of a conversation is different on a stream: how the request head is sent, how response heads come, and what it
//! means that none does.

use std::task::{Context as TaskContext, Poll, ready};

use model::snapshot::Endpoint;
use model::{Fault, RequestHead};
use wire::crossing;
use wire::http1::{Framing, HeadLimits, ResponseParsed};
use wire::http2::code::REFUSED_STREAM;
use wire::http2::connection::{NotSent, RequestSent};
use wire::http3::code;
use wire::http3::message::{self, BadHead};

use super::connection::Start;
use super::permit::StreamPermit;
use crate::exchange::Exchange;
use crate::http2::{Reset, upstream, websocket};
use crate::http3::{self, NoHead};
use crate::io::Io;
use crate::message::MessageStream;
use crate::upstream::UpstreamConnection;

/// Begins a stream with the head of the request.
///
/// # Errors
/// [`Fault::StreamRefused`]: nothing was sent. [`Fault::BadRequest`]: the head cannot be said on a stream.
/// [`Fault::UpgradeNotOffered`]: it asks for a WebSocket, and the endpoint does not offer that.
pub(crate) fn begin(
    exchange: &Exchange<'_>,
    (endpoint, is_https): (&Endpoint, bool),
    permit: Box<StreamPermit>,
) -> Result<UpstreamConnection, Fault> {
    let message = match permit.is_http3() {
        true => begin_http3(exchange, endpoint, &permit)?,
        false => begin_http2(exchange, (endpoint, is_https), &permit)?,
    };
    Ok(UpstreamConnection::of_stream(Io::Stream(Box::new(message)), permit, exchange.progress.now))
}

fn begin_http2(
    exchange: &Exchange<'_>,
    (endpoint, is_https): (&Endpoint, bool),
    permit: &StreamPermit,
) -> Result<MessageStream, Fault> {
    let (head, is_websocket) = (&exchange.incoming.head, exchange.wants_upgrade());
    if is_websocket {
        check_websocket(head, permit)?;
    }
    let how = RequestSent {
        framing: if is_websocket { Framing::None } else { exchange.framing_for_endpoint() },
        is_https,
        is_websocket,
        host_fallback: endpoint.name.as_bytes(),
        ends: is_whole(exchange),
    };
    let Start::Http2(state) = permit.begin()? else { return Err(Fault::StreamRefused) };
    let stream = upstream::Stream::begin(state, head, &how).map_err(|not_sent| match not_sent {
        NotSent::NoRoom => Fault::StreamRefused,
        NotSent::BadAuthority => Fault::BadRequest,
    })?;
    Ok(MessageStream::Http2(stream))
}

/// Whether a request ends with its head.
fn is_whole(exchange: &Exchange<'_>) -> bool {
    matches!(exchange.request.framing, Framing::None | Framing::Length(0)) && !exchange.wants_upgrade()
}

fn begin_http3(exchange: &Exchange<'_>, endpoint: &Endpoint, permit: &StreamPermit) -> Result<MessageStream, Fault> {
    let (head, is_websocket) = (&exchange.incoming.head, exchange.wants_upgrade());
    if is_websocket {
        check_websocket(head, permit)?;
    }
    let how = (if is_websocket { Framing::None } else { exchange.framing_for_endpoint() }, is_websocket);
    let Start::Http3(session, id) = permit.begin()? else { return Err(Fault::StreamRefused) };
    if session.head_bytes_max.get() < crossing::request_bytes(head) as u64 {
        session.give_up(id);
        return Err(Fault::HeadTooLarge);
    }
    let (quic, counts) = (session.quic.clone(), session.counts.clone());
    let stream = http3::Stream::requested(quic, id, counts, is_whole(exchange), |out| {
        message::write_request(head, how, endpoint.name.as_bytes(), out);
    });
    Ok(MessageStream::Http3(stream))
}

/// It is we who would say that the key was read, and the endpoint that must know what is asked for.
fn check_websocket(head: &RequestHead, permit: &StreamPermit) -> Result<(), Fault> {
    match websocket::has_key(head) {
        false => Err(Fault::BadRequest),
        true if !permit.offers_upgrades() => Err(Fault::UpgradeNotOffered),
        true => Ok(()),
    }
}

/// Ready with the next response head, interim or final.
///
/// # Errors
/// It is malformed, or there will be none: see [`Ended::fault`].
pub(crate) fn poll_head(
    cx: &mut TaskContext<'_>,
    exchange: &mut Exchange<'_>,
    stream: &mut MessageStream,
) -> Poll<Result<ResponseParsed, Ended>> {
    let method = exchange.incoming.head.method;
    let (mut parsed, ends) = match stream {
        // No endpoint answers on a client's stream.
        MessageStream::Client(_) => return Poll::Pending,
        MessageStream::Http2(stream) => {
            let worker = exchange.worker;
            let head = exchange.response.get_or_insert_with(|| worker.take_response());
            let (parsed, ends) = ready!(stream.poll_head(cx, head)).map_err(Ended::of_http2)?;
            (parsed.map_err(Ended::Malformed)?, ends)
        }
        MessageStream::Http3(stream) => {
            let ends = ready!(stream.poll_head(cx)).map_err(Ended::of_http3)?;
            let worker = exchange.worker;
            let mut memory = worker.sections.borrow_mut();
            let head = exchange.response();
            let parsed =
                message::read_response(stream.section(), (method, &HeadLimits::default(), ends), &mut memory, head);
            let parsed = parsed.map_err(|bad| refuse(stream, bad))?;
            if !(100..200).contains(&head.status) {
                stream.begin_body();
            }
            (parsed, ends)
        }
    };
    let is_success = (200..300).contains(&exchange.response().status);
    if is_success && exchange.wants_upgrade() && !ends {
        let worker = exchange.worker;
        let response = exchange.response.get_or_insert_with(|| worker.take_response());
        websocket::accept(&exchange.incoming.head, response);
        parsed.switching = true;
    }
    Poll::Ready(Ok(parsed))
}

/// Tells the endpoint that its head is none (RFC 9114 section 4.1.2, RFC 9204 section 2.2).
fn refuse(stream: &mut http3::Stream, bad: BadHead) -> Ended {
    match bad {
        BadHead::Malformed(fault) | BadHead::Fault(fault) => {
            stream.refuse(code::MESSAGE_ERROR);
            Ended::Malformed(fault)
        }
        BadHead::Undecodable => {
            stream.end_connection(code::DECOMPRESSION_FAILED);
            Ended::Malformed(Fault::BadResponse)
        }
    }
}

/// How a stream ended that has no response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The endpoint will not look at it: it was over its limit, or came after a goodbye (RFC 9113 section 8.7).
    Refused,
    /// The endpoint reset it.
    Reset,
    /// The connection is gone.
    Closed,
    /// What came breaks the rules.
    Malformed(Fault),
}

impl Ended {
    fn of_http3(none: NoHead) -> Self {
        match none {
            NoHead::Refused | NoHead::Reset(code::REQUEST_REJECTED) => Self::Refused,
            NoHead::Reset(_) | NoHead::Incomplete => Self::Reset,
            NoHead::TooLarge => Self::Malformed(Fault::ResponseHeadTooLarge),
            NoHead::Gone => Self::Closed,
        }
    }

    fn of_http2(torn: Option<Reset>) -> Self {
        match torn {
            Some(Reset::ByPeer(REFUSED_STREAM)) => Self::Refused,
            Some(Reset::ByPeer(_)) => Self::Reset,
            Some(Reset::Broken) => Self::Malformed(Fault::BadResponse),
            None => Self::Closed,
        }
    }
}
