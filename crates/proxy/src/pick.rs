//! Which endpoint an exchange or stream gets, and the wait for one.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use model::queue::Precedence;
use plan::{Ask, ClusterPlan, LastResort, Lease, Pick, Refusal, Tried, Wait};

use crate::connection::Connection;
use crate::guard::{full, queue_full};
use crate::worker::Worker;
use crate::worker_plan::ClusterNow;

/// Where an exchange or stream stands among others, should it have to wait.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub precedence: Precedence,
    /// The key by which those who wait take turns.
    pub key: Option<u64>,
    /// How long it waits at most, if that is shorter than the queue allows.
    pub patience_ms: u32,
    /// What it takes when no other endpoint has room.
    pub last_resort: LastResort,
}

impl Default for Place {
    fn default() -> Self {
        let (precedence, last_resort) = (Precedence::default(), LastResort::Backups);
        Self { precedence, key: None, patience_ms: u32::MAX, last_resort }
    }
}

/// Picks an endpoint by what is asked for, waiting in the cluster's queue if it has one. How long the wait was is added to
/// `queued`, however it ended.
///
/// # Errors
/// [`Fault::NoEndpoint`], [`Fault::EmptyCluster`], [`Fault::QueueFull`], [`Fault::CircuitFull`], [`Fault::ConcurrencyLimit`], [`Fault::Shed`], [`Fault::QueueTimeout`],
/// [`Fault::ClosedInQueue`], or what rang the watch before.
pub(crate) async fn pick(
    worker: &Worker,
    connection: &mut Connection,
    (cluster, now): (&Arc<ClusterPlan>, &ClusterNow),
    (ask, place): (&Ask<'_>, &Place),
    queued: &mut Duration,
) -> Result<Lease, Fault> {
    let picked = cluster.pick(&mut now.cache.borrow_mut(), &mut || worker.random.next(), ask);
    match picked {
        Pick::Endpoint(lease) => Ok(lease),
        Pick::None => Err(none(cluster)),
        // What waits gets a regular endpoint.
        Pick::Full if ask.last_resort == LastResort::OnlyBackups => Err(full(worker, now)),
        // Boxed: waiting is rare, and its state would make every exchange larger.
        Pick::Full => Box::pin(wait_in_queue(worker, connection, (cluster, now), (ask, place), queued)).await,
    }
}

/// What it means that no endpoint may get work. An empty cluster has no queue to wait in: nothing says that endpoints will come.
#[cold]
pub(crate) fn none(cluster: &ClusterPlan) -> Fault {
    if cluster.cluster.endpoints.is_empty() { Fault::EmptyCluster } else { Fault::NoEndpoint }
}

fn wait_of(cluster: &ClusterPlan, ask: &Ask<'_>, place: &Place) -> Wait {
    let tried = match ask.last_resort {
        LastResort::Repeat => Tried::NONE,
        _ => Tried::new(ask.tried),
    };
    let Place { precedence, key, .. } = *place;
    let pinned = cluster.pinned_in_queue(ask);
    Wait { subset: ask.subset, pinned, tried, precedence, key, affinity: ask.key, arrived: Instant::now() }
}

async fn wait_in_queue(
    worker: &Worker,
    connection: &mut Connection,
    (cluster, now): (&Arc<ClusterPlan>, &ClusterNow),
    (ask, place): (&Ask<'_>, &Place),
    queued: &mut Duration,
) -> Result<Lease, Fault> {
    let Some(queue) = &cluster.cluster.queue else { return Err(full(worker, now)) };
    let wait = wait_of(cluster, ask, place);
    connection.watch.set(wait.arrived, queue.timeout.min(Duration::from_millis(place.patience_ms.into())));
    // Many may wait, and a buffer is large: only those keep one who have sent more than a head.
    if let Some(empty) = connection.received.take_if(|buffer| buffer.is_empty()) {
        worker.buffers.give(empty);
    }
    let fault = |refusal| match refusal {
        Refusal::Full | Refusal::Crowded => queue_full(worker, now),
        Refusal::Shed => Fault::Shed,
    };
    let entered = match poll_fn(|cx| Poll::Ready(cluster.enqueue(wait, cx.waker()))).await {
        Err(Refusal::Crowded) => {
            // Its session moves to another endpoint, or the request waits for any of them.
            let ask = Ask { pinned: None, ..*ask };
            match cluster.pick(&mut now.cache.borrow_mut(), &mut || worker.random.next(), &ask) {
                Pick::Endpoint(lease) => return Ok(lease),
                Pick::None => return Err(Fault::NoEndpoint),
                Pick::Full => (),
            }
            poll_fn(|cx| Poll::Ready(cluster.enqueue(Wait { pinned: None, ..wait }, cx.waker()))).await
        }
        entered => entered,
    };
    let ticket = entered.map_err(fault)?;
    let leased = poll_fn(|cx| match ticket.poll(cx.waker(), Instant::now()) {
        Some(answer) => Poll::Ready(answer.map_err(fault)),
        None if connection.poll_gone(&worker.buffers, cx).is_ready() => Poll::Ready(Err(Fault::ClosedInQueue)),
        None => connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::QueueTimeout))),
    })
    .await;
    *queued += wait.arrived.elapsed();
    leased
}
