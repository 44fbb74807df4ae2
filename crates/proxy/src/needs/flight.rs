//! A wait for what another exchange fetches.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use plan::filter::Awaited;

use crate::exchange::Exchange;

/// Ready when the other exchange has fetched it, or given up, or the time for it is over.
///
/// # Errors
/// The client has gone; the time of the whole exchange is over.
pub(super) async fn over(awaited: &Awaited, exchange: &mut Exchange<'_>) -> Result<(), Fault> {
    let connection = &mut *exchange.connection;
    let now = Instant::now();
    connection.watch.set(now, awaited.until.saturating_duration_since(now));
    poll_fn(|cx| {
        if awaited.waiter.poll_over(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        if connection.watch.poll(cx).is_pending() {
            return Poll::Pending;
        }
        // Which of the bounds was it? That of the wait has no fault of its own.
        Poll::Ready(match connection.watch.fault(Fault::ClosedInWait) {
            Fault::ClosedInWait => Ok(()),
            fault => Err(fault),
        })
    })
    .await
}
