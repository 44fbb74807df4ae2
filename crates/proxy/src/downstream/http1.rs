//! The life of a client's HTTP/1 connection.
//!
//! ```text
//!        ┌──────────── keep-alive ───────────┐
//!        ▼                                   │
//!  wait for a byte ──► receive a head ──► exchange ──► close, or linger and close
//!   (no buffer,          (one buffer)
//!    small future)
//! ```

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use model::limits::{LINGER, LINGER_BYTES_MAX};
use model::snapshot::HttpListener;
use wire::http1::{HeadLimits, RequestParsed, parse_request};

use crate::connection::Connection;
use crate::exchange;
use crate::worker::{Heads, Worker};

/// What becomes of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another request may come.
    KeepAlive,
    /// Close; nothing unread matters.
    Close,
    /// Close, but read on for a while: closing with unread bytes would reset the connection and could destroy the
    /// answer before the client has read it (RFC 9112 section 9.6).
    Linger,
}

/// Serves a connection to its end.
pub(crate) async fn serve(worker: &Rc<Worker>, mut connection: Connection) {
    loop {
        if !wait_for_request(worker, &mut connection).await {
            break;
        }
        // Boxed, so that an idle connection does not carry the room of an exchange.
        match Box::pin(exchange::run(worker, &mut connection)).await {
            Next::KeepAlive => {}
            Next::Close => break,
            Next::Linger => {
                Box::pin(linger(worker, &mut connection)).await;
                return;
            }
        }
    }
    if let Some(buffer) = connection.received.take() {
        worker.buffers.give(buffer);
    }
    // Says goodbye with TLS; a plain connection is closed by being dropped.
    if connection.facts.tls.is_some() {
        poll_fn(|cx| {
            let _ = connection.io.poll_shutdown(cx);
            Poll::Ready(())
        })
        .await;
    }
}

/// Waits, without a buffer, for the first byte of a request. False: the connection is over.
async fn wait_for_request(worker: &Rc<Worker>, connection: &mut Connection) -> bool {
    if connection.received.is_some() {
        return true;
    }
    // A connection that just arrived at an ending listener keeps the short time it was given.
    if !(connection.tether.is_closing() && connection.requests == 0) {
        let plan = worker.plan();
        match plan.http_listener(&connection.tether) {
            Some((_, http)) => connection.watch.set(Instant::now(), http.idle_timeout),
            None => return false,
        }
    }
    poll_fn(|cx| match connection.io.poll_read_ready(cx) {
        Poll::Ready(ready) => Poll::Ready(ready.is_ok()),
        Poll::Pending if connection.tether.is_closing() && connection.requests > 0 => Poll::Ready(false),
        Poll::Pending => connection.watch.poll(cx).map(|()| false),
    })
    .await
}

/// How receiving a head ended when there is none.
pub(crate) enum NoRequest {
    /// The client closed between requests, as it may, or nothing but noise of TLS came.
    Closed,
    /// What came is no acceptable request.
    Fault(Fault),
}

/// Reads until a request head is whole. Bytes behind it stay in `connection.received`.
pub(crate) async fn receive(
    worker: &Worker,
    connection: &mut Connection,
    http: &HttpListener,
    heads: &mut Heads,
) -> Result<RequestParsed, NoRequest> {
    let limits = HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max };
    let mut deadline_is_set = false;
    poll_fn(|cx| {
        loop {
            if let Some(buffer) = &mut connection.received {
                match parse_request(buffer.data(), &limits, &mut heads.scan, &mut heads.request) {
                    Err(fault) => return Poll::Ready(Err(NoRequest::Fault(fault))),
                    Ok(Some(parsed)) => {
                        buffer.consume_head(parsed.head_len);
                        return Poll::Ready(Ok(parsed));
                    }
                    Ok(None) => {}
                }
                if !deadline_is_set {
                    connection.watch.set(Instant::now(), http.head_timeout);
                    deadline_is_set = true;
                }
            }
            match connection.read_more(&worker.buffers, cx) {
                Poll::Ready(Some(0)) | Poll::Ready(None) if connection.received.is_none() => {
                    return Poll::Ready(Err(NoRequest::Closed));
                }
                Poll::Ready(Some(0)) | Poll::Ready(None) => {
                    return Poll::Ready(Err(NoRequest::Fault(Fault::ClosedInHead)));
                }
                Poll::Ready(Some(_)) => {}
                Poll::Pending => {
                    let begun = connection.received.is_some();
                    // What woke us was no request, but some record of TLS.
                    if !begun && connection.tether.is_closing() {
                        return Poll::Ready(Err(NoRequest::Closed));
                    }
                    let expired = connection.watch.poll(cx);
                    return expired.map(|()| {
                        Err(if begun {
                            NoRequest::Fault(connection.watch.fault(Fault::HeadTimeout))
                        } else {
                            NoRequest::Closed
                        })
                    });
                }
            }
        }
    })
    .await
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
