//! Sends responses to clients, those of endpoints and those that are made here, whatever their version of HTTP: as bytes of HTTP/1, or as heads of a stream.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use model::{Fault, LocalResponse, Version};
use plan::cache::Served;
use plan::filter::Content;
use wire::http1::{Framing, SendResponse, write_response};

use crate::buffer::Buffer;
use crate::exchange::Exchange;
use crate::file_body::FileBody;
use crate::http2::websocket;
use crate::message::MessageStream;
use crate::relay::{BodyWriter, Pump, PumpFault};

/// How a final response is sent, wherever it is from.
pub(crate) struct Response {
    how: SendResponse,
    /// Whether the response lets the client's connection live on.
    pub keeps_alive: bool,
}

/// What takes the place of a response.
pub(crate) enum Instead {
    Local(LocalResponse),
    Stored(Box<Served>),
}

impl Response {
    /// A response with this framing, as the client's version of HTTP can say it. `keeps_alive` speaks of all but the response itself.
    #[inline]
    pub(crate) fn new(exchange: &Exchange<'_>, framing: Framing, keeps_alive: bool) -> Self {
        let to = if exchange.is_parsed { exchange.incoming.head.version } else { Version::Http11 };
        let framing = match framing {
            Framing::Chunked | Framing::UntilClose if to <= Version::Http10 => Framing::UntilClose,
            Framing::UntilClose => Framing::Chunked,
            other => other,
        };
        let keeps_alive = keeps_alive && framing != Framing::UntilClose;
        Self { how: SendResponse { framing, to, keep_alive: keeps_alive, upgrade: false }, keeps_alive }
    }

    /// How the end of its body is written.
    #[inline]
    pub(crate) fn writer(&self, exchange: &Exchange<'_>) -> BodyWriter {
        BodyWriter::new(self.how.framing, &exchange.connection.io)
    }
}

/// Begins the final response whose body `download` moves: its head, and what is there of the body.
///
/// # Errors
/// [`Fault::ClosedInResponse`]: the client is gone. [`Fault::BadResponse`]: the body is bad from its beginning, or filters made the head
/// unfit for this version. [`Fault::ResponseTooLarge`]: it exceeds the bound of a filter.
#[inline]
pub(crate) fn begin(
    exchange: &mut Exchange<'_>,
    download: &mut Pump,
    (first, response): (Buffer, &Response),
) -> Result<(), Fault> {
    let worker = exchange.worker;
    let mut head = worker.scratch.borrow_mut();
    head.clear();
    if exchange.connection.io.is_message() {
        // On a stream the head leaves at once. A body that is bad from its beginning must be known before.
        download.begin(b"", first, &worker.buffers).map_err(|fault| refused_download(&fault))?;
        begin_head(exchange, &response.how, &mut head)?;
    } else {
        begin_head(exchange, &response.how, &mut head)?;
        download.begin(&head, first, &worker.buffers).map_err(|fault| refused_download(&fault))?;
    }
    exchange.progress.status = exchange.response().status;
    exchange.progress.ends_by_close = response.how.framing == Framing::UntilClose;
    Ok(())
}

/// The fault of a body that is bad from its beginning.
fn refused_download(fault: &PumpFault) -> Fault {
    match fault {
        PumpFault::TooLong => Fault::ResponseTooLarge,
        _ => Fault::BadResponse,
    }
}

/// The fault of a body that ends before its end.
fn refused_drain(fault: &PumpFault) -> Fault {
    match fault {
        PumpFault::Source => Fault::ContentFailed,
        _ => Fault::ClosedInResponse,
    }
}

/// Sends a response whose body is here: `download` has no sender.
///
/// # Errors
/// As [`begin`], and [`Fault::ClientWriteTimeout`]: the client takes nothing for too long.
pub(crate) async fn send(
    exchange: &mut Exchange<'_>,
    mut download: Pump,
    (first, response): (Buffer, &Response),
) -> Result<(), Fault> {
    begin(exchange, &mut download, (first, response))?;
    let (connection, buffers) = (&mut *exchange.connection, &exchange.worker.buffers);
    connection.watch.set_bound(None);
    connection.watch.set(Instant::now(), exchange.http.stream_timeout);
    let sent = poll_fn(|cx| {
        let drained = download.poll_drain(cx, &mut connection.io, buffers);
        if let Poll::Ready(drained) = drained {
            return Poll::Ready(drained.map_err(|fault| refused_drain(&fault)));
        }
        if download.take_progress() {
            connection.watch.set(Instant::now(), exchange.http.stream_timeout);
        }
        let waits_for_client = download.is_blocked_on_receiver();
        let late = if waits_for_client { Fault::ClientWriteTimeout } else { Fault::ContentFailed };
        connection.watch.poll(cx).map(|()| Err(late))
    })
    .await;
    download.stop(buffers);
    exchange.progress.sent_bytes += download.sent_bytes();
    sent
}

/// Sends a response whose body is a range of a file, over a connection in clear, and nothing else has to see it.
///
/// # Errors
/// As [`send`].
pub(crate) async fn send_file(
    exchange: &mut Exchange<'_>,
    (content, range): (Arc<dyn Content>, Range<u64>),
    response: &Response,
) -> Result<(), Fault> {
    let mut head = exchange.worker.scratch.take();
    head.clear();
    begin_head(exchange, &response.how, &mut head)?;
    exchange.progress.status = exchange.response().status;
    let mut body = FileBody::new(head, content, range);
    let connection = &mut *exchange.connection;
    connection.watch.set_bound(None);
    connection.watch.set(Instant::now(), exchange.http.stream_timeout);
    let sent = poll_fn(|cx| {
        let Some(tcp) = connection.io.as_plain() else { return Poll::Ready(Err(Fault::ClosedInResponse)) };
        if let Poll::Ready(sent) = body.poll(cx, tcp) {
            return Poll::Ready(sent.map_err(|fault| refused_drain(&fault)));
        }
        if body.take_progress() {
            connection.watch.set(Instant::now(), exchange.http.stream_timeout);
        }
        let late = if body.is_blocked_on_receiver() { Fault::ClientWriteTimeout } else { Fault::ContentFailed };
        connection.watch.poll(cx).map(|()| Err(late))
    })
    .await;
    exchange.progress.sent_bytes += body.sent_bytes();
    exchange.worker.scratch.replace(body.into_head());
    sent
}

/// Begins the final response: its head is sent at once where it has a stream of its own, and else written to `out`, to
/// leave with the first of the body.
///
/// # Errors
/// [`Fault::ClosedInResponse`]: the client is gone. [`Fault::BadResponse`]: filters made it unfit for this version.
pub(crate) fn begin_head(exchange: &mut Exchange<'_>, how: &SendResponse, out: &mut Vec<u8>) -> Result<(), Fault> {
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

/// Takes a request body that is already here whole out of the way.
pub(crate) fn skip_body(exchange: &mut Exchange<'_>) {
    let Framing::Length(length) = exchange.request.framing else { return };
    let buffered = exchange.connection.received.as_ref().map_or(0, |buffer| buffer.len() as u64);
    if exchange.is_read || buffered < length {
        return;
    }
    if let Some(buffer) = &mut exchange.connection.received {
        buffer.consume_head(length as usize);
    }
    exchange.progress.received_bytes += length;
    exchange.is_read = true;
}
