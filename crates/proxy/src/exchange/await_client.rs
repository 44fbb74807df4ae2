//! What an exchange waits for on the client's side before it goes to an endpoint.

use std::future::poll_fn;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::Instant;

use model::{Fault, FieldName, Method};
use plan::RoutePlan;

use super::state::Exchange;
use crate::registry::LAST_CALL;

/// Marks a request that came as early data (RFC 8470 section 5.1).
static EARLY_DATA: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("early-data").unwrap_or_else(|_| unreachable!("a constant token")));

impl Exchange<'_> {
    /// Early data may be a replay by anyone who has recorded it. So the request waits for the end of the handshake, unless its route
    /// allows early data and its method is safe (RFC 8470 sections 3 and 5).
    pub(super) async fn settle_early(&mut self, route: &RoutePlan) -> Result<(), Fault> {
        let is_safe = matches!(self.incoming.head.method, Method::Get | Method::Head | Method::Options | Method::Trace);
        if route.route.early_data && is_safe {
            self.incoming.head.fields.set(&EARLY_DATA, b"1");
            return Ok(());
        }
        let patience = self.listener.tls.as_ref().map_or(LAST_CALL, |tls| tls.handshake_timeout);
        let connection = &mut *self.connection;
        connection.watch.set(Instant::now(), patience);
        let settled = poll_fn(|cx| {
            let Some(stream) = connection.io.message() else { return Poll::Ready(Ok(())) };
            match stream.poll_settled(cx) {
                Poll::Ready(settled) => Poll::Ready(settled.map_err(|_| Fault::HandshakeFailed)),
                Poll::Pending => {
                    connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::HandshakeTimeout)))
                }
            }
        })
        .await;
        self.progress.look();
        settled
    }

    /// Waits for the end of a stream whose request has no content by its length. An endpoint over HTTP/1.1 gets such a request whole with
    /// its head, and must not get a malformed one (RFC 9113 section 8.1.1).
    pub(super) async fn await_end(&mut self) -> Result<(), Fault> {
        let connection = &mut *self.connection;
        connection.watch.set(Instant::now(), self.http.stream_timeout);
        let ended = poll_fn(|cx| {
            let Some(stream) = connection.io.message() else { return Poll::Ready(Ok(())) };
            match stream.poll_read(cx, &mut [0]) {
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {
                    stream.refuse_malformed();
                    Poll::Ready(Err(Fault::BadRequestBody))
                }
                Poll::Ready(Err(_)) => Poll::Ready(Err(Fault::ClosedInBody)),
                Poll::Pending => {
                    connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::RequestBodyTimeout)))
                }
            }
        })
        .await;
        self.progress.look();
        ended
    }

    /// Returns whether the client has reset the stream of its request already, while others had their turn: then no endpoint gets it. A
    /// later reset is seen while the endpoint is at work.
    pub(super) async fn is_given_up(&mut self) -> bool {
        let Some(stream) = self.connection.io.message() else { return false };
        poll_fn(|cx| Poll::Ready(stream.poll_reset(cx).is_ready())).await
    }
}
