//! Limits that several instances share: one question to Redis for each request.
//!
//! Each worker has one connection to each store. What is asked while it writes leaves with the next write, and replies come in the order
//! of questions, so that many requests share a round trip. While there is no connection, and none is being made for the first time, a
//! request learns at once that the store is away.

mod link;
mod script;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use plan::filter::{Away, Spent, StoreAsk};

use crate::exchange::Exchange;
use link::Link;

thread_local! {
    /// The connections of this worker.
    static LINKS: RefCell<Vec<Rc<Link>>> = const { RefCell::new(Vec::new()) };
}

/// Asks the store, and waits for its answer.
///
/// # Errors
/// The exchange that it is for has ended: its client has gone, or its time is over.
pub(super) async fn spent(ask: StoreAsk, exchange: &mut Exchange<'_>) -> Result<Result<Spent, Away>, Fault> {
    let called = exchange.progress.route.and_then(|route| route.called.get(ask.cluster.place()));
    let Some(local) = called.and_then(|cluster| exchange.plan.cluster(cluster)) else { return Ok(Err(Away)) };
    let link = LINKS.with_borrow_mut(|links| {
        if let Some(link) = links.iter().find(|link| link.is_for(local, &ask.login)) {
            return link.clone();
        }
        let link = Link::start(local, &ask.login, forget);
        links.push(link.clone());
        link
    });
    let Ok(answer) = link.ask(local, &ask.key, &ask.arguments) else { return Ok(Err(Away)) };
    // What the watch says when it was this wait that ended.
    const OVER: Fault = Fault::VerificationFull;
    let connection = &mut *exchange.connection;
    connection.watch.set(Instant::now(), ask.timeout);
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(answer.unwrap_or(Err(Away))));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        connection.watch.poll(cx).map(|()| match connection.watch.fault(OVER) {
            OVER => {
                link.is_late(ask.timeout);
                Ok(Err(Away))
            }
            ended => Err(ended),
        })
    })
    .await
}

/// Takes a link that nobody uses out of the list.
fn forget(link: &Rc<Link>) {
    LINKS.with_borrow_mut(|links| links.retain(|known| !Rc::ptr_eq(known, link)));
}
