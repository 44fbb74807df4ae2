//! The task of one stream, which may be that of its connection.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use model::limits::HTTP2_IDLE_FRAMES_PER_EXCHANGE;

use super::inline::Carried;
use super::shared::Shared;
use crate::boxed::boxed;
use crate::connection::Connection;
use crate::downstream::served::Served;
use crate::exchange::{self, Arrived};
use crate::registry::Registered;

/// Counts an exchange as in flight until it is dropped.
pub(super) struct Active {
    shared: Rc<Shared>,
}

impl Active {
    pub(super) fn new(shared: &Rc<Shared>) -> Self {
        shared.exchanges.begin();
        Self { shared: shared.clone() }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.shared.exchanges.end();
    }
}

/// Carries one stream: the same story as on any connection. One without a registration is inline.
///
/// A block uses what it is given in place, where an `async fn` would hold it twice.
#[inline(never)]
pub(super) fn carry(
    served: Served,
    mut connection: Connection,
    arrived: Arrived,
    (registered, active): (Option<Registered>, Active),
) -> Carried {
    boxed(|| async move {
        if let Some(registered) = &registered {
            poll_fn(|cx| {
                registered.registration.set_waker(cx.waker());
                Poll::Ready(())
            })
            .await;
        }
        let found = served.plan.listeners.get(served.index).and_then(|listener| Some((listener, listener.http()?)));
        let Some((listener, http)) = found else { return };
        exchange::carry(&served.worker, (&served.plan, listener, http), &mut connection, arrived).await;
        let Connection { mut io, mut watch, received, .. } = connection;
        if let Some(buffer) = received {
            served.worker.buffers.give(buffer);
        }
        if let Some(stream) = io.message() {
            if stream.awaits_end() {
                crate::downstream::linger(stream, &mut watch).await;
            }
            if stream.finish() {
                active.shared.state.borrow_mut().earn(HTTP2_IDLE_FRAMES_PER_EXCHANGE);
            }
        }
        if registered.is_none() {
            *active.shared.spare.borrow_mut() = Some(watch);
        }
    })
}
