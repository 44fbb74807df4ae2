//! Towards clients: one module per HTTP version, all of which end in `exchange`.

pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod http3;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use model::limits::{EARLY_RESPONSE_BYTES_MAX, EARLY_RESPONSE_PATIENCE};
use model::snapshot::HttpListener;
use wire::http1::{Framing, SendResponse, write_response};

use crate::exchange::Exchange;
use crate::http2::websocket;
use crate::message::MessageStream;
use crate::registry::Tether;
use crate::watch::Watch;
use crate::worker::Worker;

/// Whether a connection of streams that has taken so many may take another.
pub(crate) fn may_go_on(worker: &Worker, tether: &Tether, accepted: u64) -> bool {
    let plan = worker.plan_of(&tether.seat);
    !tether.is_closing() && plan.http_listener(tether).is_some_and(|(_, http)| !is_enough(http, accepted))
}

/// Whether so many requests are as many as one connection may bring.
fn is_enough(http: &HttpListener, accepted: u64) -> bool {
    http.requests_per_connection_max.is_some_and(|max| accepted >= max)
}

/// Waits for the end of a request whose response is complete, and throws the rest of its body away, both within bounds: a client that
/// sees its stream reset while it sends may take the response for a failure, whatever the code (RFC 9113 section 8.1, RFC 9114
/// section 4.1). The stream counts as open until then.
pub(crate) async fn linger(stream: &mut MessageStream, watch: &mut Watch) {
    watch.set_bound(None);
    watch.set(Instant::now(), EARLY_RESPONSE_PATIENCE);
    let mut left = EARLY_RESPONSE_BYTES_MAX;
    poll_fn(|cx| match stream.poll_discard(cx, &mut left) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => watch.poll(cx),
    })
    .await;
}

/// Begins the final response: its head is sent at once where it has a stream of its own, and else written to `out`, to
/// leave with the first of the body.
///
/// # Errors
/// [`Fault::ClosedInResponse`]: the client is gone. [`Fault::BadResponse`]: filters made it unfit for this version.
pub(crate) fn begin_response(exchange: &mut Exchange<'_>, how: &SendResponse, out: &mut Vec<u8>) -> Result<(), Fault> {
    let worker = exchange.worker;
    let head = exchange.response.get_or_insert_with(|| worker.take_response());
    if let Some(alternative) = &exchange.listener.alternative
        && head.fields.get(&alternative.name).is_none()
        && !matches!(exchange.connection.io.message(), Some(MessageStream::Http3(_)))
    {
        let port = exchange.connection.facts.local.port();
        head.fields.append(&alternative.name, alternative.value(port));
    }
    let Some(stream) = exchange.connection.io.message() else {
        write_response(head, how, out);
        return Ok(());
    };
    let ends = matches!(how.framing, Framing::None | Framing::Length(0));
    if exchange.request.upgrade && !how.upgrade && (200..300).contains(&head.status) {
        // RFC 8441 section 5: to the client it would say that the WebSocket is open.
        return Err(Fault::BadResponse);
    }
    if how.upgrade && !websocket::take_proof(&exchange.incoming.head, head) {
        return Err(Fault::BadResponse);
    }
    // RFC 8441 section 5: a stream has no 101.
    let status = how.upgrade.then_some(200);
    stream.respond(head, (how.framing, status), ends && !how.upgrade)
}

/// Passes an interim response on, to `out` where it goes as bytes.
///
/// # Errors
/// [`Fault::ClosedInWait`]: the client is gone. [`Fault::BadResponse`]: it cannot be said in this version.
pub(crate) fn send_interim(exchange: &mut Exchange<'_>, how: &SendResponse, out: &mut Vec<u8>) -> Result<(), Fault> {
    let worker = exchange.worker;
    let head = exchange.response.get_or_insert_with(|| worker.take_response());
    let Some(stream) = exchange.connection.io.message() else {
        write_response(head, how, out);
        return Ok(());
    };
    stream.send_interim(head, how.framing)
}
