//! A request's body that is read whole before any of it is sent: for filters that look at it, and for retries and hedges.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use model::fields::Known;
use model::{Fault, Version};
use plan::filter::TooLong;
use wire::http1::{Framing, SendResponse};

use crate::exchange::Exchange;
use crate::io::write_all;
use crate::relay::{BodyWriter, Pump};
use crate::respond::send_interim;
use crate::upstream::conversation::upload::refused_upload;

impl Exchange<'_> {
    /// Whether the body is known to be longer than its route allows.
    pub(crate) fn is_body_too_large(&self) -> bool {
        let length = match (&self.replay.body, self.request.framing) {
            (Some(kept), _) => kept.bytes.len() as u64,
            (None, Framing::Length(length)) => length,
            _ => 0,
        };
        self.incoming.notes.body_max.is_some_and(|max| length > max)
    }
}

/// Holds the body for a step that wants it if it has at most `max` bytes.
///
/// # Errors
/// It breaks off, is malformed, or turns out to be longer though its head did not say so.
pub(super) async fn held(exchange: &mut Exchange<'_>, max: u32) -> Result<Result<(), TooLong>, Fault> {
    if let Some(body) = &exchange.replay.body {
        return Ok(if body.bytes.len() <= max as usize { Ok(()) } else { Err(TooLong) });
    }
    match exchange.request.framing {
        Framing::None => return Ok(Ok(())),
        Framing::Length(length) if length > max.into() => return Ok(Err(TooLong)),
        // What follows the head is no body.
        _ if exchange.wants_upgrade() => return Ok(Err(TooLong)),
        _ => {}
    }
    hold(exchange, max.into()).await.map(Ok)
}

/// Reads the body and keeps it for all attempts.
///
/// # Errors
/// As [`held`].
pub(crate) async fn hold(exchange: &mut Exchange<'_>, max: u64) -> Result<(), Fault> {
    if exchange.is_body_too_large() {
        return Err(Fault::BodyTooLarge);
    }
    ask_for_body(exchange).await?;
    let mut reader = Pump::new(exchange.request.framing, &exchange.connection.io, BodyWriter::Stream);
    reader.bound(exchange.incoming.notes.body_max.map_or(max, |own| own.min(max)));
    exchange.thin_request(&mut reader);
    let buffers = &exchange.worker.buffers;
    let mut body = Vec::new();
    let first = exchange.connection.received.take().unwrap_or_else(|| buffers.take());
    let mut read = reader.begin(b"", first, buffers);
    if read.is_ok() {
        let connection = &mut *exchange.connection;
        connection.watch.set(exchange.progress.now, exchange.http.stream_timeout);
        read = poll_fn(|cx| {
            if let Poll::Ready(read) = reader.poll_collect(cx, &mut connection.io, &mut body, buffers) {
                return Poll::Ready(Ok(read));
            }
            if reader.take_progress() {
                connection.watch.set(Instant::now(), exchange.http.stream_timeout);
            }
            connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::RequestBodyTimeout)))
        })
        .await
        .inspect_err(|_| _ = exchange.progress.look())?;
    }
    exchange.connection.received = reader.take_leftover();
    if let Err(fault) = read {
        return Err(refused_upload(&mut exchange.connection.io, &fault));
    }
    exchange.progress.look();
    exchange.is_read = true;
    exchange.progress.received_bytes = body.len() as u64;
    exchange.replay.hold(body.into(), reader.take_trailers());
    Ok(())
}

/// Tells a client that waits to be asked for its body (RFC 9110 section 10.1.1) to send it. The endpoint, which gets all of it at once,
/// has nothing to ask for then.
async fn ask_for_body(exchange: &mut Exchange<'_>) -> Result<(), Fault> {
    if !std::mem::take(&mut exchange.request.expects_continue) {
        return Ok(());
    }
    exchange.incoming.head.fields.remove_known(Known::Expect);
    let head = exchange.response();
    head.clear();
    let reason = head.fields.write_span(|out| out.extend_from_slice(b"Continue"));
    head.set_line(100, reason, Version::Http11);
    let how =
        SendResponse { framing: Framing::None, to: exchange.incoming.head.version, keep_alive: true, upgrade: false };
    let mut bytes = Vec::new();
    send_interim(exchange, &how, &mut bytes)?;
    exchange.response().clear();
    if exchange.connection.io.is_message() {
        return Ok(());
    }
    let connection = &mut *exchange.connection;
    connection.watch.set(Instant::now(), exchange.http.stream_timeout);
    let mut writing = pin!(write_all(&mut connection.io, &bytes));
    poll_fn(|cx| match writing.as_mut().poll(cx) {
        Poll::Ready(written) => Poll::Ready(written.map_err(|_| Fault::ClosedInBody)),
        Poll::Pending => connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::RequestBodyTimeout))),
    })
    .await
    .inspect_err(|_| {
        exchange.progress.is_interim_cut = true;
        exchange.progress.look();
    })
}
