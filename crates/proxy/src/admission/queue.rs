//! The wait for an endpoint in the queue of a cluster.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use plan::{Ask, ClusterPlan, LastResort, Lease, Refusal, Tried, Wait};

use super::{Admission, Entrant, Place};

impl Admission<'_> {
    /// Waits for an endpoint in the queue of the cluster.
    pub(super) async fn wait(&self, entrant: &mut Entrant<'_>, ask: &Ask<'_>, place: &Place) -> Result<Lease, Fault> {
        let (cluster, gate, buffers) = (&self.local.plan, self.gate(), &self.worker.buffers);
        let connection = &mut *entrant.connection;
        let Some(queue) = &cluster.cluster.queue else { return Err(gate.full()) };
        let wait = wait_of(cluster, ask, place);
        connection.watch.set(wait.arrived, queue.timeout.min(Duration::from_millis(place.patience_ms.into())));
        // Many may wait, and a buffer is large: only those keep one who have sent more than a head.
        if let Some(empty) = connection.received.take_if(|buffer| buffer.is_empty()) {
            buffers.give(empty);
        }
        let fault = |refusal| match refusal {
            Refusal::Full | Refusal::Crowded => gate.queue_full(),
            Refusal::Shed => Fault::Shed,
        };
        let entered = match poll_fn(|cx| Poll::Ready(cluster.enqueue(wait, cx.waker()))).await {
            Err(Refusal::Crowded) => {
                // Its session moves to another endpoint, or the request waits for any of them.
                if let Some(lease) = self.pick(&Ask { pinned: None, ..*ask })? {
                    return Ok(lease);
                }
                poll_fn(|cx| Poll::Ready(cluster.enqueue(Wait { pinned: None, ..wait }, cx.waker()))).await
            }
            entered => entered,
        };
        let ticket = entered.map_err(fault)?;
        let leased = poll_fn(|cx| match ticket.poll(cx.waker(), Instant::now()) {
            Some(answer) => Poll::Ready(answer.map_err(fault)),
            None if connection.poll_gone(buffers, cx).is_ready() => Poll::Ready(Err(Fault::ClosedInQueue)),
            None => connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::QueueTimeout))),
        })
        .await;
        *entrant.queued += wait.arrived.elapsed();
        leased
    }
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
