//! A call of a filter's own whose reply all exchanges share: it goes on when the exchange that began it has ended.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use plan::ClusterPlan;
use plan::filter::Apart;
use tokio::sync::oneshot;

use super::call::{self, Protocol};
use super::mirror::OwnSite;
use crate::connection::{Connection, ConnectionFacts};
use crate::exchange::Exchange;
use crate::registry::Registered;

/// How much longer than its call an exchange waits: the call reports its own end.
const SPARE: Duration = Duration::from_secs(1);

/// A call, apart from the exchange that has begun it.
struct Begun {
    apart: Apart,
    site: OwnSite,
    cluster: Arc<ClusterPlan>,
    facts: Rc<ConnectionFacts>,
    registered: Registered,
}

/// Begins the call, and waits until its reply is taken if the filter wants that.
///
/// # Errors
/// The exchange has ended: its client has gone, or its time is over. The call goes on.
pub(super) async fn begun(apart: Apart, exchange: &mut Exchange<'_>) -> Result<(), Fault> {
    let now = exchange.progress.look();
    let called = exchange.progress.route.and_then(|route| route.called.get(apart.call.cluster.place()));
    let Some(cluster) = called.cloned() else {
        apart.taker.take(Err(Fault::UnknownCluster), now);
        return Ok(());
    };
    let Some(site) = exchange.own_site() else {
        // The plan has gone out of force: nothing but the exchange holds it.
        let reply = call::made((apart.call, Protocol::Http), exchange).await?;
        apart.taker.take(reply, exchange.progress.look());
        return Ok(());
    };
    let of = &*exchange.connection;
    let registered = site.worker.registry.register(of.registration.handle.clone());
    let (facts, is_awaited, timeout) = (of.facts.clone(), apart.is_awaited, apart.call.timeout);
    let (over, waits) = oneshot::channel();
    // Not a type of its own: an exchange may have a call, and a call is an exchange.
    let carried: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
        carry(Begun { apart, site, cluster, facts, registered }).await;
        let _ = over.send(());
    });
    tokio::task::spawn_local(carried);
    if is_awaited { wait(waits, exchange.connection, timeout + SPARE).await } else { Ok(()) }
}

async fn carry(begun: Begun) {
    let Begun { apart: Apart { call, taker, .. }, site, cluster, facts, registered } = begun;
    let registration = &registered.registration;
    let Some(site) = site.lend(registration) else { return };
    let now = Instant::now();
    let is_gone = Rc::new(Cell::new(false));
    let connection = call::connection_for((&facts, registration), &call, (now, now + call.timeout), &is_gone);
    let mut is_known = false;
    let mut making = pin!(call::make(site, connection, (call, Protocol::Http), &cluster));
    let reply = poll_fn(|cx| {
        if !std::mem::replace(&mut is_known, true) {
            registration.set_waker(cx.waker());
        }
        making.as_mut().poll(cx)
    })
    .await;
    taker.take(reply, Instant::now());
}

async fn wait(over: oneshot::Receiver<()>, connection: &mut Connection, patience: Duration) -> Result<(), Fault> {
    connection.watch.set(Instant::now(), patience);
    let mut over = pin!(over);
    poll_fn(|cx| {
        // An error says that the call was dropped.
        if over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        connection.watch.poll(cx).map(|()| match connection.watch.fault(Fault::ClosedInWait) {
            Fault::ClosedInWait => Ok(()),
            fault => Err(fault),
        })
    })
    .await
}
