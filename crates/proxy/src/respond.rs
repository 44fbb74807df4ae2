//! Begins responses to clients, whatever their version of HTTP: as bytes of HTTP/1, or as heads of a stream.

use model::Fault;
use wire::http1::{Framing, SendResponse, write_response};

use crate::exchange::Exchange;
use crate::http2::websocket;
use crate::message::MessageStream;

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
