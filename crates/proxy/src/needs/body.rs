//! A request's body that is read whole before any of it is sent: for filters that look at it, and for retries and hedges.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use model::fields::Known;
use model::limits::{BUFFER_BYTES, HELD_BODY_TIME};
use model::{Fault, Version};
use plan::filter::{Hold, TooLong};
use wire::http1::{Framing, SendResponse};

use crate::exchange::Exchange;
use crate::io::write_all;
use crate::relay::{BodyWriter, Pump, tell};
use crate::replay::KeptFile;
use crate::respond::send_interim;
use crate::spool::SpoolFile;
use crate::upstream::conversation::upload::refused_upload;

impl Exchange<'_> {
    /// Whether the body is known to be longer than its route allows.
    pub(crate) fn is_body_too_large(&self) -> bool {
        let length = match (&self.replay.body, self.request.framing) {
            (Some(kept), _) => kept.len(),
            (None, Framing::Length(length)) => length,
            _ => self.replay.ahead.as_ref().map_or(0, |ahead| ahead.bytes().len() as u64),
        };
        self.incoming.notes.body_max.is_some_and(|max| length > max)
    }
}

/// Holds the body for a step that wants it if it has at most `max` bytes.
///
/// # Errors
/// It breaks off, is malformed, comes too slowly, or turns out to be longer though its head did not say so.
pub(crate) async fn held(exchange: &mut Exchange<'_>, max: u32) -> Result<Result<(), TooLong>, Fault> {
    if let Some(body) = &exchange.replay.body {
        return Ok(if body.is_within(max as usize) { Ok(()) } else { Err(TooLong) });
    }
    if matches!(exchange.request.framing, Framing::Length(length) if length > max.into()) || !has_body(exchange) {
        return Ok(Err(TooLong));
    }
    if exchange.request.framing == Framing::None {
        return Ok(Ok(()));
    }
    hold(exchange, max.into()).await.map(Ok)
}

/// Holds the body in memory or in a file, for a filter with these bounds.
///
/// # Errors
/// As [`held`]; and the file cannot be written.
pub(super) async fn held_by(exchange: &mut Exchange<'_>, hold: &Arc<Hold>) -> Result<(), Fault> {
    if exchange.replay.body.is_some() || !has_body(exchange) || exchange.request.framing == Framing::None {
        return Ok(());
    }
    let bounds = Bounds { max: hold.request_max(), memory: hold.memory, within: hold.within };
    read_whole(exchange, &bounds, Some(hold)).await
}

/// Whether what follows the head is a body: on a stream, an upgrade has none. One that has a body on a connection is no upgrade then: the
/// protocol cannot change before the body is over, and a recipient need not change it at all (RFC 9110 section 7.8).
fn has_body(exchange: &mut Exchange<'_>) -> bool {
    if exchange.request.framing == Framing::None || !exchange.wants_upgrade() {
        return true;
    }
    let is_connection = !exchange.connection.io.is_message();
    exchange.request.upgrade &= !is_connection;
    is_connection
}

/// Bounds on a body that is read whole.
struct Bounds {
    /// Bytes of the body.
    max: u64,
    /// Bytes in memory, if there is a file for the others.
    memory: u64,
    /// From the beginning to the end.
    within: Duration,
}

/// Reads the body and keeps it for all attempts.
///
/// # Errors
/// As [`held`].
pub(crate) async fn hold(exchange: &mut Exchange<'_>, max: u64) -> Result<(), Fault> {
    read_whole(exchange, &Bounds { max, memory: max, within: HELD_BODY_TIME }, None).await
}

async fn read_whole(exchange: &mut Exchange<'_>, bounds: &Bounds, hold: Option<&Arc<Hold>>) -> Result<(), Fault> {
    if exchange.is_body_too_large() {
        return Err(Fault::BodyTooLarge);
    }
    ask_for_body(exchange).await?;
    let (mut reader, bytes) = opened(exchange, bounds.max)?;
    let mut body = Collected { bytes, file: None };
    let read = body.collect(exchange, &mut reader, (bounds, hold)).await;
    keep_leftover(exchange, &mut reader);
    exchange.progress.look();
    // Then what is left over is the next request, and nothing of it is to be skipped as a body.
    // These may end the wait for the file when all of the body is here. After other faults the reader says that it is done, too.
    let ends_writing = matches!(read, Err(Fault::SpoolFailed | Fault::TotalTimeout | Fault::DrainEnded));
    exchange.is_read |= ends_writing && reader.is_read();
    read?;
    exchange.is_read = true;
    let trailers = reader.take_trailers();
    exchange.progress.received_bytes = body.len();
    exchange.replay.hold(body.bytes.into(), body.file, trailers);
    exchange.incoming.notes.note_body_held();
    Ok(())
}

/// Begins to collect the body, behind what was read ahead, which is returned. `max` bounds all of it.
fn opened(exchange: &mut Exchange<'_>, max: u64) -> Result<(Pump, Vec<u8>), Fault> {
    let max = exchange.incoming.notes.body_max.map_or(max, |own| own.min(max));
    let (mut reader, bytes) = match exchange.replay.ahead.take() {
        Some(ahead) => Pump::collected(*ahead),
        None => (Pump::new(exchange.request.framing, &exchange.connection.io, BodyWriter::Stream), Vec::new()),
    };
    let left = max.checked_sub(bytes.len() as u64).ok_or(Fault::BodyTooLarge)?;
    reader.bound(left);
    exchange.thin_request(&mut reader);
    let buffers = &exchange.worker.buffers;
    let is_open = !reader.is_read();
    let first = exchange.connection.received.take_if(|_| is_open).unwrap_or_else(|| buffers.take());
    let begun = reader.begin(b"", first, buffers);
    begun.map_err(|fault| refused_upload(&mut exchange.connection.io, &fault))?;
    Ok((reader, bytes))
}

/// Gives the next request back to the connection, if it came with the end of the body. It is there already if the end was read before.
fn keep_leftover(exchange: &mut Exchange<'_>, reader: &mut Pump) {
    if let Some(leftover) = reader.take_leftover() {
        exchange.connection.received = Some(leftover);
    }
}

/// How much of a body is there for a step that wants its beginning.
#[derive(Clone, Copy)]
pub(super) enum Begun {
    Whole,
    /// At least so many bytes.
    Part(u32),
    Unread,
}

/// Reads the beginning of the body, of `max` bytes, unless the body is there. If it is longer, what was read waits for the endpoint.
///
/// # Errors
/// As [`held`]; a longer body is none.
pub(super) async fn begun(exchange: &mut Exchange<'_>, max: u32, wants_part: bool) -> Result<Begun, Fault> {
    if let Some(begun) = known_beginning(exchange, max, wants_part) {
        return Ok(begun);
    }
    if exchange.is_body_too_large() {
        return Err(Fault::BodyTooLarge);
    }
    ask_for_body(exchange).await?;
    let (mut reader, bytes) = opened(exchange, u64::MAX)?;
    let max_bytes = max as usize;
    let enough = match exchange.request.framing {
        // Its end is waited for: a body that is not as long as it says is malformed.
        Framing::Length(length) if length <= max.into() => usize::MAX,
        // One byte more is too much.
        _ if !wants_part => max_bytes.saturating_add(1),
        _ => max_bytes,
    };
    let ends = exchange.progress.now + HELD_BODY_TIME;
    let mut body = Collected { bytes, file: None };
    let read = body.read(exchange, &mut reader, (enough, ends)).await;
    keep_leftover(exchange, &mut reader);
    exchange.progress.look();
    exchange.is_read |= read?;
    exchange.progress.received_bytes = body.len();
    if reader.is_read() && body.bytes.len() <= max_bytes {
        exchange.replay.hold(body.bytes.into(), None, reader.take_trailers());
        exchange.incoming.notes.note_body_held();
        return Ok(Begun::Whole);
    }
    exchange.replay.ahead = Some(reader.into_ahead(body.bytes));
    Ok(if wants_part { Begun::Part(max) } else { Begun::Unread })
}

/// What of a body is there without a further read; `None`: it is to be read.
fn known_beginning(exchange: &mut Exchange<'_>, max: u32, wants_part: bool) -> Option<Begun> {
    let longer = if wants_part { Begun::Part(max) } else { Begun::Unread };
    if let Some(kept) = &exchange.replay.body {
        return Some(if kept.file.is_none() && !kept.is_coded { Begun::Whole } else { Begun::Unread });
    }
    if exchange.request.framing == Framing::None || !has_body(exchange) {
        return Some(Begun::Whole);
    }
    match (exchange.request.framing, &exchange.replay.ahead) {
        (_, Some(ahead)) if wants_part && ahead.bytes().len() >= max as usize => Some(longer),
        (_, Some(ahead)) if ahead.bytes().len() > max as usize => Some(longer),
        (Framing::Length(length), _) if length > max.into() && !wants_part => Some(longer),
        _ => None,
    }
}

/// What is read of a body.
struct Collected {
    /// What is not in the file.
    bytes: Vec<u8>,
    file: Option<KeptFile>,
}

impl Collected {
    fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.file.as_ref().map_or(0, |kept| kept.length)
    }

    /// Reads the body to its end. What memory has no room for goes to the file, and with it all before that.
    async fn collect(
        &mut self,
        exchange: &mut Exchange<'_>,
        reader: &mut Pump,
        (bounds, hold): (&Bounds, Option<&Arc<Hold>>),
    ) -> Result<(), Fault> {
        let ends = exchange.progress.now + bounds.within;
        let memory = usize::try_from(bounds.memory).unwrap_or(usize::MAX);
        // One byte more is too much: the body may end with the last that memory has room for.
        let mut enough = if hold.is_some() { memory.saturating_add(1) } else { usize::MAX };
        loop {
            let is_whole = self.read(exchange, reader, (enough, ends)).await?;
            let Some(hold) = hold.filter(|_| self.file.is_some() || self.bytes.len() > memory) else {
                return Ok(());
            };
            self.spool(exchange, hold, ends).await?;
            if is_whole {
                return Ok(());
            }
            enough = BUFFER_BYTES;
        }
    }

    /// Reads until there is enough. Says whether that is all.
    async fn read(
        &mut self,
        exchange: &mut Exchange<'_>,
        reader: &mut Pump,
        (enough, ends): (usize, Instant),
    ) -> Result<bool, Fault> {
        let (connection, buffers) = (&mut *exchange.connection, &exchange.worker.buffers);
        let timeout = exchange.http.stream_timeout;
        let until_next = |now: Instant| timeout.min(ends.saturating_duration_since(now));
        let now = Instant::now();
        connection.watch.set(now, until_next(now));
        let read = poll_fn(|cx| {
            let read = reader.poll_collect(cx, &mut connection.io, (&mut self.bytes, enough), buffers);
            if let Poll::Ready(read) = read {
                return Poll::Ready(Ok(read));
            }
            if reader.take_progress() {
                let now = Instant::now();
                connection.watch.set(now, until_next(now));
            }
            connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::RequestBodyTimeout)))
        })
        .await?;
        read.map_err(|fault| refused_upload(&mut exchange.connection.io, &fault))
    }

    /// Moves what was read to the file.
    async fn spool(&mut self, exchange: &mut Exchange<'_>, hold: &Arc<Hold>, ends: Instant) -> Result<(), Fault> {
        let kept = self.file.get_or_insert_with(|| {
            hold.note_spooled();
            KeptFile { hold: hold.clone(), file: SpoolFile::new(hold.clone()), length: 0 }
        });
        let bytes = std::mem::take(&mut self.bytes);
        let end = kept.length + bytes.len() as u64;
        if !kept.file.reserve(end) {
            return Err(Fault::SpoolFailed);
        }
        let mut writing = kept.file.write(bytes, kept.length);
        let connection = &mut *exchange.connection;
        connection.watch.set(Instant::now(), ends.saturating_duration_since(Instant::now()));
        let written = poll_fn(|cx| match writing.poll(cx) {
            Poll::Ready(written) => Poll::Ready(Ok(written)),
            Poll::Pending => connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::SpoolFailed))),
        });
        let mut memory = written.await?.map_err(|(_, error)| {
            tell(hold, "cannot write a body to the spool", &error);
            Fault::SpoolFailed
        })?;
        kept.length = end;
        if memory.capacity() <= 4 * BUFFER_BYTES {
            memory.clear();
            self.bytes = memory;
        }
        Ok(())
    }
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
