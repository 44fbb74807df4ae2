//! What of a conversation is different on a stream: how the request head is sent, how response heads come, and what it
//! means that none does.

use std::task::{Context as TaskContext, Poll, ready};

use model::Fault;
use model::snapshot::Endpoint;
use wire::http1::{Framing, HeadLimits, ResponseParsed};

use super::trunk::Berth;
use crate::exchange::Exchange;
use crate::http2::{Stream, heads, websocket};
use crate::io::Io;
use crate::message::MessageStream;
use crate::upstream::pool::UpstreamConnection;

/// Begins a stream with the head of the request.
///
/// # Errors
/// [`Fault::StreamRefused`]: nothing was sent. [`Fault::BadRequest`]: the head cannot be said in HTTP/2.
/// [`Fault::UpgradeNotOffered`]: it asks for a protocol that the endpoint does not offer.
pub(crate) fn begin(
    exchange: &Exchange<'_>,
    (endpoint, is_https): (&Endpoint, bool),
    berth: Box<Berth>,
) -> Result<UpstreamConnection, Fault> {
    let framing = exchange.request.framing;
    let host = (endpoint.name.as_str(), is_https);
    let head = &exchange.incoming.head;
    let request = if !exchange.wants_upgrade() {
        heads::of_request(head, framing, host)?
    } else if websocket::is_asked_for(head) && berth.offers_upgrades() {
        heads::of_websocket(head, host)?
    } else {
        return Err(Fault::UpgradeNotOffered);
    };
    let is_whole = matches!(framing, Framing::None | Framing::Length(0)) && !exchange.wants_upgrade();
    let (response, send) = berth.send(request, is_whole)?;
    let io = Io::Stream(Box::new(MessageStream::Http2(Stream::requested(send, response, is_whole))));
    Ok(UpstreamConnection::of_stream(io, berth, exchange.told.now))
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
    // Only of HTTP/2 is anything asked of an endpoint this way.
    let MessageStream::Http2(stream) = stream else { return Poll::Ready(Err(Ended::Closed)) };
    let (parts, ends) = ready!(stream.poll_head(cx)).map_err(|error| Ended::of(&error))?;
    let (limits, method) = (HeadLimits::default(), exchange.incoming.head.method);
    let parsed = heads::read_response(&parts, (method, &limits, ends), exchange.response());
    let mut parsed = parsed.map_err(Ended::Malformed)?;
    if parts.status.is_success() && exchange.wants_upgrade() && !ends {
        let worker = exchange.worker;
        let response = exchange.response.get_or_insert_with(|| worker.take_response());
        websocket::accept(&exchange.incoming.head, response);
        parsed.switching = true;
    }
    Poll::Ready(Ok(parsed))
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
    fn of(error: &h2::Error) -> Self {
        if error.is_go_away() && error.is_remote() {
            // Only streams beyond the last that a goodbye lets in are told of it this way.
            return Self::Refused;
        }
        match error.reason() {
            Some(h2::Reason::REFUSED_STREAM) if error.is_remote() => Self::Refused,
            Some(_) if error.is_reset() && error.is_remote() => Self::Reset,
            Some(_) if error.is_reset() => Self::Malformed(Fault::BadResponse),
            _ => Self::Closed,
        }
    }
}
