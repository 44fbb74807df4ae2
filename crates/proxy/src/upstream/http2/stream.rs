//! What of a conversation is different on a stream: how the request head is sent, how response heads come, and what it
//! means that none does.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use model::Fault;
use model::limits::UPSTREAM_STREAM_END;
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
/// [`Fault::UpgradeNotOffered`]: it asks for a WebSocket, and the endpoint does not offer that.
pub(crate) fn begin(
    exchange: &Exchange<'_>,
    (endpoint, is_https): (&Endpoint, bool),
    berth: Box<Berth>,
) -> Result<UpstreamConnection, Fault> {
    let framing = exchange.request.framing;
    let host = (endpoint.name.as_str(), is_https);
    let head = &exchange.incoming.head;
    let request = match exchange.wants_upgrade() {
        false => heads::of_request(head, framing, host)?,
        // It is we who would say that the key was read.
        true if !websocket::has_key(head) => return Err(Fault::BadRequest),
        true if !berth.offers_upgrades() => return Err(Fault::UpgradeNotOffered),
        true => heads::of_websocket(head, host)?,
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

/// Takes a stream back whose response is whole. Its end may still be on its way, which is waited for beside the client: left
/// before it, the stream looks cancelled to its endpoint, and endpoints end connections on which many are.
pub(crate) fn let_end(mut connection: UpstreamConnection) {
    if poll_end(&mut TaskContext::from_waker(Waker::noop()), &mut connection).is_pending() {
        tokio::task::spawn_local(async move {
            let end = poll_fn(|cx| poll_end(cx, &mut connection));
            let _cancelled_when_late = tokio::time::timeout(UPSTREAM_STREAM_END, end).await;
        });
    }
}

fn poll_end(cx: &mut TaskContext<'_>, connection: &mut UpstreamConnection) -> Poll<()> {
    let Some(stream) = connection.io.message() else { return Poll::Ready(()) };
    if !stream.is_over() {
        let _error_or_more_is_no_good_end = ready!(stream.poll_read_ready(cx));
        stream.take_trailers();
    }
    let is_good = stream.is_over();
    if let Some(berth) = connection.berth().filter(|_| is_good) {
        berth.note_end();
    }
    Poll::Ready(())
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
