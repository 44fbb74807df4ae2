//! The life of a client's HTTP/1 connection.
//!
//! ```text
//!        ┌──────────── keep-alive ───────────┐
//!        ▼                                   │
//!  wait for a byte ──► receive a head ──► exchange ──► close, or linger and close
//!   (no buffer,          (one buffer)
//!    small future)           └── the preface of HTTP/2 ──► downstream::http2
//! ```

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use model::limits::{LINGER, LINGER_BYTES_MAX};
use model::snapshot::HttpListener;
use wire::http1::{HeadLimits, RequestParsed, parse_request};
use wire::http2::{Preface, preface};

use crate::connection::Connection;
use crate::exchange;
use crate::worker::{Incoming, Worker};

/// What becomes of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another request may come.
    KeepAlive,
    /// What came is the beginning of an HTTP/2 connection.
    Http2,
    /// What woke the connection was no request, but some record of TLS: go on waiting.
    NotYet,
    /// Close; nothing unread matters.
    Close,
    /// Close so that the client sees that the response is not whole.
    Reset,
    /// Close, but read on for a while: closing with unread bytes would reset the connection and could destroy the
    /// answer before the client has read it (RFC 9112 section 9.6).
    Linger,
}

/// How the life of a connection of HTTP/1 ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// It is to be dropped.
    Closed,
    /// It is one of HTTP/2.
    Http2,
}

/// Serves a connection to its end, or until it turns out to be one of HTTP/2. A block, and no `async fn`, for the same reason
/// as where it is called.
#[expect(clippy::manual_async_fn, reason = "it is not the same")]
pub(crate) fn serve(worker: &Rc<Worker>, connection: &mut Connection) -> impl Future<Output = Over> {
    async move {
        loop {
            if !wait_for_request(connection).await {
                break;
            }
            match begin(worker, connection).await {
                Next::KeepAlive if begin_idling(worker, connection) => {}
                Next::NotYet => {}
                Next::KeepAlive | Next::Close => break,
                Next::Http2 => return Over::Http2,
                Next::Reset => {
                    connection.io.reset_on_close();
                    return Over::Closed;
                }
                Next::Linger => {
                    Box::pin(linger(worker, connection)).await;
                    return Over::Closed;
                }
            }
        }
        if let Some(buffer) = connection.received.take() {
            worker.buffers.give(buffer);
        }
        // Says goodbye with TLS; a plain connection is closed by being dropped. The facts may tell of TLS that ended before us.
        if connection.io.is_encrypted() {
            poll_fn(|cx| {
                let _ = connection.io.poll_shutdown(cx);
                Poll::Ready(())
            })
            .await;
        }
        Over::Closed
    }
}

/// The next exchange, boxed, so that an idle connection does not carry the room of one. Apart from where it is awaited, for it
/// would be made there in one place and copied to another.
#[inline(never)]
fn begin(worker: &Rc<Worker>, connection: &mut Connection) -> Pin<Box<impl Future<Output = Next>>> {
    Box::pin(exchange::run(worker, connection))
}

/// Sets the deadline of a connection that waits for another request. False: its listener speaks HTTP no more.
fn begin_idling(worker: &Worker, connection: &mut Connection) -> bool {
    let plan = worker.plan_of(&connection.tether.seat);
    let Some((_, http)) = plan.http_listener(&connection.tether) else { return false };
    connection.watch.set_bound(None);
    connection.watch.set(Instant::now(), http.idle_timeout);
    true
}

/// Waits, without a buffer, for the first byte of a request. False: the connection is over.
fn wait_for_request(connection: &mut Connection) -> impl Future<Output = bool> {
    let mut is_last_call = false;
    poll_fn(move |cx| {
        if connection.received.is_some() {
            return Poll::Ready(true);
        }
        if let Poll::Ready(ready) = connection.io.poll_read_ready(cx) {
            return Poll::Ready(ready.is_ok());
        }
        if connection.tether.is_closing() && !is_last_call {
            let is_given = connection.tether.seat.is_given.get();
            if connection.requests > 0 && !is_given {
                return Poll::Ready(false);
            }
            // Its first request may be on its way; where another process goes on, so that nobody is to notice, any.
            is_last_call = true;
            let patience = connection.tether.seat.last_call();
            connection.watch.set(Instant::now(), patience);
        }
        connection.watch.poll(cx).map(|()| false)
    })
}

/// How receiving a head ended when there is none.
pub(crate) enum NoRequest {
    /// No request had begun.
    Other(Next),
    /// What came is no acceptable request.
    Fault(Fault),
}

/// When a request head came.
#[derive(Default)]
pub(crate) struct Arrival {
    /// Its first byte.
    pub begun: Option<Instant>,
    /// Its last, if it did not come at once.
    pub whole: Option<Instant>,
}

/// Reads until a request head is whole. Bytes behind it stay in `connection.received`.
pub(crate) async fn receive(
    worker: &Worker,
    connection: &mut Connection,
    http: &HttpListener,
    (incoming, arrival): (&mut Incoming, &mut Arrival),
) -> Result<RequestParsed, NoRequest> {
    let limits = HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max };
    poll_fn(|cx| {
        loop {
            if connection.requests == 0
                && let Some(buffer) = &connection.received
                && let Some(told) = look_for_preface(buffer.data(), http, connection.io.is_encrypted())
            {
                match told {
                    Ok(Preface::Whole) => return Poll::Ready(Err(NoRequest::Other(Next::Http2))),
                    Err(fault) => return Poll::Ready(Err(NoRequest::Fault(fault))),
                    Ok(_) if arrival.begun.is_none() => {
                        let now = Instant::now();
                        arrival.begun = Some(now);
                        connection.watch.set(now, http.head_timeout);
                    }
                    Ok(_) => {}
                }
            } else if let Some(buffer) = &mut connection.received {
                match parse_request(buffer.data(), &limits, &mut incoming.scan, &mut incoming.head) {
                    Err(fault) => return Poll::Ready(Err(NoRequest::Fault(fault))),
                    Ok(Some(parsed)) => {
                        buffer.consume_head(parsed.head_len);
                        note_whole(arrival);
                        return Poll::Ready(Ok(parsed));
                    }
                    // Empty lines before a request are no request yet (RFC 9112 section 2.2).
                    Ok(None) if incoming.scan.has_begun() && arrival.begun.is_none() => {
                        let now = Instant::now();
                        arrival.begun = Some(now);
                        connection.watch.set(now, http.head_timeout);
                    }
                    Ok(None) => {}
                }
            }
            match connection.read_more(&worker.buffers, cx) {
                Poll::Ready(Some(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(Err(closed(arrival, Fault::ClosedInHead))),
                Poll::Pending => {
                    if connection.received.is_none() {
                        return Poll::Ready(Err(NoRequest::Other(Next::NotYet)));
                    }
                    connection.pack_received(&worker.buffers);
                    let expired = connection.watch.poll(cx);
                    return expired.map(|()| Err(closed(arrival, connection.watch.fault(Fault::HeadTimeout))));
                }
            }
        }
    })
    .await
}

/// Most heads come in one piece, and one look at the clock is enough for them.
fn note_whole(arrival: &mut Arrival) {
    let now = Instant::now();
    match arrival.begun {
        None => arrival.begun = Some(now),
        Some(_) => arrival.whole = Some(now),
    }
}

/// The end of the wait for a head: nobody's fault as long as none had begun.
fn closed(arrival: &Arrival, fault: Fault) -> NoRequest {
    if arrival.begun.is_some() { NoRequest::Fault(fault) } else { NoRequest::Other(Next::Close) }
}

/// Looks at the first bytes of a connection. `None`: they are a request of HTTP/1, and it may be spoken. Where TLS ends here,
/// the version was agreed on before (RFC 9113 section 3.2), so that the preface is nothing but a bad request. Where it ended at
/// a proxy before us, that one knows what was agreed on, and we see only the bytes.
fn look_for_preface(bytes: &[u8], http: &HttpListener, is_encrypted: bool) -> Option<Result<Preface, Fault>> {
    let found = if http.versions.h2 && !is_encrypted { preface(bytes) } else { Preface::No };
    match found {
        Preface::No if http.versions.h1 => None,
        Preface::No => Some(Err(Fault::VersionNotSupported)),
        found => Some(Ok(found)),
    }
}

/// Ends our half and throws away what still comes, within bounds, so that the client sees the answer before the end.
async fn linger(worker: &Worker, connection: &mut Connection) {
    if let Some(buffer) = connection.received.take() {
        worker.buffers.give(buffer);
    }
    connection.watch.set_bound(None);
    connection.watch.set(Instant::now(), LINGER);
    let mut left = LINGER_BYTES_MAX;
    let mut is_shut = false;
    poll_fn(|cx| {
        if !is_shut {
            match connection.io.poll_shutdown(cx) {
                Poll::Ready(Ok(())) => is_shut = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {}
            }
        }
        while left > 0 {
            match connection.read_more(&worker.buffers, cx) {
                Poll::Ready(Some(count)) if count > 0 => left = left.saturating_sub(count as u64),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return connection.watch.poll(cx),
            }
            if let Some(buffer) = connection.received.take() {
                worker.buffers.give(buffer);
            }
        }
        Poll::Ready(())
    })
    .await;
}
