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

use model::limits::{LINGER, LINGER_BYTES_MAX};

use crate::boxed::boxed;
use crate::connection::{Connection, Next};
use crate::exchange;
use crate::worker::Worker;

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

/// Returns the next exchange, boxed, so that an idle connection does not carry the room of one.
#[inline(never)]
fn begin(worker: &Rc<Worker>, connection: &mut Connection) -> Pin<Box<impl Future<Output = Next>>> {
    boxed(|| exchange::run(worker, connection))
}

/// Sets the deadline of a connection that waits for another request. False: its listener speaks HTTP no more.
fn begin_idling(worker: &Worker, connection: &mut Connection) -> bool {
    let plan = worker.plan_of(&connection.registration.handle);
    let Some((_, http)) = plan.http_listener(&connection.registration) else { return false };
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
        if connection.registration.is_closing() && !is_last_call {
            let is_given = connection.registration.handle.is_given.get();
            if connection.requests > 0 && !is_given {
                return Poll::Ready(false);
            }
            // Its first request may be in flight; while another process takes over, any request may be, and no client must notice.
            is_last_call = true;
            let patience = connection.registration.handle.last_call();
            connection.watch.set(Instant::now(), patience);
        }
        connection.watch.poll(cx).map(|()| false)
    })
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
