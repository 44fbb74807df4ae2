//! Limits that several instances share: one question to Redis for each request.
//!
//! Each worker has one connection to each store, and to each node of one that is a Redis Cluster. What is asked while it writes leaves with
//! the next write, and replies come in the order of questions, so that many requests share a round trip. While there is no connection, and
//! none is being made for the first time, a request learns at once that the store is away.

mod charge;
mod link;
mod script;
mod shards;
mod target;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use model::Fault;
use plan::filter::{Away, Spent, StoreAsk, StoreLogin};
use tokio::sync::oneshot;

use crate::exchange::Exchange;
use crate::worker_plan::ClusterLocal;
use link::{Answer, Link, Missed};
use shards::Store;

/// How often a question is sent on.
const REDIRECTS_MAX: usize = 4;

thread_local! {
    /// The stores of this worker.
    static STORES: RefCell<Vec<Rc<Store>>> = const { RefCell::new(Vec::new()) };
}

/// Asks the store, and waits for its answer.
///
/// # Errors
/// The exchange that it is for has ended: its client has gone, or its time is over.
pub(super) async fn spent(ask: StoreAsk, exchange: &mut Exchange<'_>) -> Result<Result<Spent, Away>, Fault> {
    let called = exchange.progress.route.and_then(|route| route.called.get(ask.cluster.place()));
    let Some(local) = called.and_then(|cluster| exchange.plan.cluster(cluster)) else { return Ok(Err(Away)) };
    let local = local.clone();
    exchange.connection.watch.set(Instant::now(), ask.timeout);
    asked(&ask, &local, async |answer| answer_of(answer, exchange).await).await
}

/// Asks the store, also where it says that another node has the key. `wait` waits for an answer, and has `None` when the time is over.
async fn asked(
    ask: &StoreAsk,
    local: &Rc<ClusterLocal>,
    mut wait: impl AsyncFnMut(oneshot::Receiver<Answer>) -> Result<Option<Answer>, Fault>,
) -> Result<Result<Spent, Away>, Fault> {
    let store = store_of(local, &ask.login);
    let (mut link, mut is_asking) = (store.link_of(local, &ask.key), false);
    let arguments = ask.script_arguments();
    for _ in 0..=REDIRECTS_MAX {
        let answer = match link.ask(local, (&ask.key, is_asking), &arguments) {
            Ok(found) => wait(found).await?,
            Err(missed) => Some(Err(missed)),
        };
        match answer {
            Some(Ok(spent)) => return Ok(Ok(spent)),
            Some(Err(Missed::Elsewhere(redirect))) => {
                (link, is_asking) = (store.elsewhere(local, &redirect, &link), redirect.is_ask);
            }
            Some(Err(Missed::Away)) => {
                store.is_missing(local);
                break;
            }
            None => {
                link.is_late(ask.timeout);
                store.is_missing(local);
                break;
            }
        }
    }
    Ok(Err(Away))
}

fn store_of(local: &Rc<ClusterLocal>, login: &Arc<StoreLogin>) -> Rc<Store> {
    STORES.with_borrow_mut(|stores| {
        if let Some(store) = stores.iter().find(|store| store.is_for(local, login)) {
            return store.clone();
        }
        let store = Store::new(local, login, forget);
        stores.push(store.clone());
        store.look(local);
        store
    })
}

/// Waits for an answer. `None`: the time is over.
async fn answer_of(answer: oneshot::Receiver<Answer>, exchange: &mut Exchange<'_>) -> Result<Option<Answer>, Fault> {
    // What the watch says when it was this wait that ended.
    const OVER: Fault = Fault::VerificationFull;
    let connection = &mut *exchange.connection;
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(Some(answer.unwrap_or(Err(Missed::Away)))));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        connection.watch.poll(cx).map(|()| match connection.watch.fault(OVER) {
            OVER => Ok(None),
            ended => Err(ended),
        })
    })
    .await
}

/// Takes a link that nobody uses out of the list.
fn forget(link: &Rc<Link>) {
    STORES.with_borrow_mut(|stores| stores.retain(|store| !store.forget(link)));
}
