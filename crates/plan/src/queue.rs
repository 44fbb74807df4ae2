//! Waiting for a place when all endpoints of a cluster are full: strict order of arrival over all workers.
//!
//! The mutex is touched only here, and this module is entered only when a pick found everything full, or when someone
//! waits. Two counts make that safe without a lock on the way of every request:
//!
//! * who gives a place back first lowers `in_flight`, then reads `waiting`;
//! * who enqueues first raises `waiting`, then looks for a place once more.
//!
//! Both counts are sequentially consistent, so at least one of the two sees the other, and no place stays free while
//! somebody waits for it. From then on every place that comes free is handed to the first in the queue by whoever frees it.
//!
//! Those who wait hold the plan they were routed by, and get endpoints of that plan. When a change of configuration
//! leaves waiters of two plans in the queue, one whose plan has no free place does not block a later one whose plan has;
//! nor do those who wait for different subsets.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use crate::cluster::{ClusterPlan, Lease};
use crate::state::ClusterState;
use crate::subset::Subset;

/// The queue of one cluster. Bounded by `requests_max` of the cluster.
#[derive(Default)]
pub(crate) struct Queue {
    next_id: u64,
    /// In order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    /// Places handed to those who have not come for them yet.
    granted: BTreeMap<u64, Lease>,
    /// How many wait for each kind of place; one entry but around a change of configuration or where there are subsets.
    by_kind: Vec<(Kind, usize)>,
}

/// The version of a cluster's plan, and which of its endpoints. Those who wait for the same kind are served in order.
type Kind = (u64, Wait);

/// What someone waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// A place in this subset.
    pub subset: Subset,
    /// A place at this endpoint, [`ClusterPlan::pinned_in_queue`].
    pub pinned: Option<u32>,
}

impl Wait {
    /// Any place in the cluster.
    pub const ANY: Self = Self { subset: Subset::ALL, pinned: None };
}

struct Waiter {
    plan: Arc<ClusterPlan>,
    wait: Wait,
    waker: Waker,
}

/// The queue holds as many as it may, or there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl fmt::Display for QueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the cluster is full")
    }
}

impl std::error::Error for QueueFull {}

/// A place in the queue. Dropping it leaves the queue at once; a place at an endpoint that was handed over in this very
/// moment goes to the next.
#[must_use = "dropping a ticket leaves the queue"]
pub struct Ticket {
    cluster: Arc<ClusterState>,
    id: u64,
    done: Cell<bool>,
}

impl ClusterPlan {
    /// Waits for a place, after a pick that found all endpoints full. `waker` is woken when a place is there to be fetched
    /// by [`Ticket::poll`]; that may be at once.
    ///
    /// # Errors
    /// [`QueueFull`] when `requests_max` wait already or the cluster has no queue.
    pub fn enqueue(self: &Arc<Self>, wait: Wait, waker: &Waker) -> Result<Ticket, QueueFull> {
        let max = self.cluster.queue.as_ref().map_or(0, |queue| queue.requests_max);
        if max == 0 {
            return Err(QueueFull);
        }
        let (id, served) = {
            let mut queue = self.state.queue();
            if queue.waiting.len() >= max as usize {
                return Err(QueueFull);
            }
            let (id, first_of_kind) = queue.push(Waiter { plan: self.clone(), wait, waker: waker.clone() });
            self.state.set_waiting(queue.waiting.len());
            // Behind another waiter of the same kind there is nothing to find: that one looked, and whatever came free
            // since is handed over by its owner.
            let served = if first_of_kind { queue.serve(&self.state) } else { Vec::new() };
            (id, served)
        };
        wake(served);
        Ok(Ticket { cluster: self.state.clone(), id, done: Cell::new(false) })
    }
}

impl Ticket {
    /// The place, if it has been handed over; otherwise `waker` is woken when it is. After it has given a lease it gives
    /// no other.
    pub fn poll(&self, waker: &Waker) -> Option<Lease> {
        if self.done.get() {
            return None;
        }
        let mut replaced = None;
        let lease = {
            let mut queue = self.cluster.queue();
            let lease = queue.granted.remove(&self.id);
            if lease.is_none()
                && let Some(waiter) = queue.waiting.get_mut(&self.id)
                && !waiter.waker.will_wake(waker)
            {
                replaced = Some(std::mem::replace(&mut waiter.waker, waker.clone()));
            }
            lease
        };
        // A waker may run code of its task when dropped: never under the lock.
        drop(replaced);
        self.done.set(lease.is_some());
        lease
    }

    /// Those who came earlier and still wait.
    pub fn ahead(&self) -> usize {
        self.cluster.queue().waiting.range(..self.id).count()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done.get() {
            return;
        }
        let (waiter, lease) = {
            let mut queue = self.cluster.queue();
            let waiter = queue.remove(self.id);
            self.cluster.set_waiting(queue.waiting.len());
            (waiter, queue.granted.remove(&self.id))
        };
        // Outside the lock: dropping the lease hands its place to the next.
        drop(waiter);
        drop(lease);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.id)
    }
}

impl Waiter {
    fn kind(&self) -> Kind {
        (self.plan.version(), self.wait)
    }
}

impl Queue {
    /// Adds at the end; says whether it is the only one of its kind.
    fn push(&mut self, waiter: Waiter) -> (u64, bool) {
        let kind = waiter.kind();
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.insert(id, waiter);
        match self.by_kind.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => {
                *count += 1;
                (id, false)
            }
            None => {
                self.by_kind.push((kind, 1));
                (id, true)
            }
        }
    }

    fn remove(&mut self, id: u64) -> Option<Waiter> {
        let waiter = self.waiting.remove(&id)?;
        let kind = waiter.kind();
        if let Some(at) = self.by_kind.iter().position(|(known, _)| *known == kind) {
            self.by_kind[at].1 -= 1;
            if self.by_kind[at].1 == 0 {
                self.by_kind.swap_remove(at);
            }
        }
        Some(waiter)
    }

    /// Hands free places to those who wait, in order, and returns them for waking without the lock.
    fn serve(&mut self, state: &ClusterState) -> Vec<Waiter> {
        let mut served = Vec::new();
        let mut exhausted: Vec<Kind> = Vec::new();
        for (&id, waiter) in &self.waiting {
            let kind = waiter.kind();
            if exhausted.contains(&kind) {
                continue;
            }
            match waiter.plan.take_free(waiter.wait) {
                Some(lease) => served.push((id, lease)),
                None => {
                    exhausted.push(kind);
                    if exhausted.len() == self.by_kind.len() {
                        break;
                    }
                }
            }
        }
        let mut waiters = Vec::with_capacity(served.len());
        for (id, lease) in served {
            self.granted.insert(id, lease);
            waiters.extend(self.remove(id));
        }
        state.set_waiting(self.waiting.len());
        waiters
    }
}

/// Hands free places to those who wait. Called by whoever has freed one, or brought an endpoint up.
pub(crate) fn dispatch(state: &ClusterState) {
    let served = state.queue().serve(state);
    wake(served);
}

fn wake(served: Vec<Waiter>) {
    for waiter in served {
        waiter.waker.wake();
    }
}

#[cfg(test)]
mod tests;
