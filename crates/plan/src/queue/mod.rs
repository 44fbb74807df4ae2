//! Waiting for a place when all endpoints of a cluster are full: strict order over all workers.
//!
//! The mutex is touched only here, and this module is entered only when a pick found everything full, or when someone
//! waits. Two counts make that safe without a lock on the way of every request:
//!
//! * who gives a place back first lowers `in_flight`, then reads `waiting`;
//! * who enqueues first raises `waiting`, then looks for a place once more.
//!
//! Both counts are sequentially consistent, so at least one of the two sees the other, and no place stays free while
//! a request waits for it. From then on every place that comes free is handed to the first in the queue by anyone who frees it.
//! The bound of a cluster is a place like any other: it is given back before `waiting` is read.
//!
//! Those who wait for one endpoint alone (its sessions) are also counted there, and all others in `waiting_anywhere`, in
//! the same way: raised before a place is looked for. By these two, who gives a place back passes by a queue in which
//! no one could use it, and a pick goes on as ever while others wait for what it does not want: it takes an endpoint that
//! some wait for as full.
//!
//! Those who wait for the same are in one [`lane`]; [`order`] says who of all is next. One whose lane has no free place is
//! passed over, so that no one is held up by those who wait for something else, and anyone who could use a place gets it
//! before those who come later in the order.

mod lane;
mod order;
mod shed;
mod tried;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use model::queue::{Precedence, Shed, ShedFrom};
use model::{PickReason, RequestHead};

use crate::cluster::state::ClusterState;
use crate::cluster::subset::Subset;
use crate::cluster::{ClusterPlan, Lease};
use crate::hash::FastMap;
pub(crate) use lane::Wanted;
use lane::{Kind, Lane, Views};
use order::{Order, Spot};
use shed::Shedder;
pub use tried::Tried;

/// The queue of one cluster. Bounded by `requests_max` of the cluster.
#[derive(Default)]
pub(crate) struct Queue {
    next_id: u64,
    /// By id, which is the order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    order: Order,
    lanes: BTreeMap<u64, Lane>,
    by_kind: FastMap<Kind, u64>,
    /// The result for those who no longer wait and have not come for it yet.
    answers: BTreeMap<u64, Result<Lease, Refusal>>,
    /// The plan with the highest version that was seen, and its version.
    newest: (u64, Weak<ClusterPlan>),
    clock: Clock,
    /// Of lanes of which some may be gone: what they came to is remembered for when they come back.
    shedders: FastMap<Kind, Shedder>,
}

struct Waiter {
    spot: Spot,
    affinity: Option<u64>,
    arrived: Instant,
}

/// How one who waits came.
#[derive(Clone, Copy)]
struct Came {
    arrived: Instant,
    kind: Kind,
    class: i8,
    key: Option<u64>,
}

/// Turns times of arrival into numbers that never go back.
#[derive(Default)]
struct Clock {
    origin: Option<Instant>,
    latest: i64,
}

/// What one waits for, and how its turn is found.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Those endpoints that come into question, [`ClusterPlan::subset`].
    pub subset: Subset,
    /// Only this endpoint, by its place in [`ClusterPlan::endpoints`]. Should it be down or gone while the wait lasts, any
    /// of the subset will do: the lease tells which one it became.
    pub pinned: Option<u32>,
    /// None of these, which have failed in its exchange: it waits for one of the others.
    pub tried: Tried,
    /// Class and offset.
    pub precedence: Precedence,
    /// Hash of the key by which turns are taken, [`ClusterPlan::fair_key`].
    pub key: Option<u64>,
    /// The key of the request, if the balancer goes by that, [`ClusterPlan::key`]: of several places that are free it gets
    /// the one where that falls.
    pub affinity: Option<u64>,
    /// The time.
    pub arrived: Instant,
}

impl Wait {
    /// Returns a wait for any endpoint of the cluster, in order of arrival.
    pub fn new(arrived: Instant) -> Self {
        let precedence = Precedence::default();
        Self { subset: Subset::ALL, pinned: None, tried: Tried::NONE, precedence, key: None, affinity: None, arrived }
    }
}

/// Why one does not get to wait, or not any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue holds as many as it may, or there is none; where keys share it, one of a key that had more than its share
    /// may meet this later too.
    Full,
    /// As many wait for the endpoint of its session as may: the session has to move. Where it must not, that is [`Self::Full`].
    Crowded,
    /// Waiting is hopeless: some are refused so that the others get through.
    Shed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue of the cluster is full",
            Self::Crowded => "the queue of this endpoint is full",
            Self::Shed => "the queue of the cluster has exceeded its target delay",
        })
    }
}

impl std::error::Error for Refusal {}

/// A place in the queue. Dropping it leaves the queue at once; a place at an endpoint that was handed over in this very
/// moment goes to the next.
#[must_use = "dropping a ticket leaves the queue"]
pub struct Ticket {
    cluster: Arc<ClusterState>,
    id: u64,
    came: Came,
    shed: Option<Shed>,
    done: Cell<bool>,
}

impl ClusterPlan {
    /// Returns the hash of the key by which a request takes turns with others, if the queue is to be fair. For [`Wait::key`]. `chance`
    /// gives the seed of these hashes, once for all plans of the cluster, and must not be foreseeable.
    #[inline]
    pub fn fair_key(&self, head: &RequestHead, client: IpAddr, chance: &mut dyn FnMut() -> u64) -> Option<u64> {
        if self.fair_keys.is_empty() {
            return None;
        }
        self.fair_keys.of_request(head, client, self.state.fair_seed(chance))
    }

    /// Returns the same for a connection, of which only the client is known.
    pub fn fair_key_of_client(&self, client: IpAddr, chance: &mut dyn FnMut() -> u64) -> Option<u64> {
        if self.fair_keys.is_empty() {
            return None;
        }
        self.fair_keys.of_client(client, self.state.fair_seed(chance))
    }

    /// Waits for a place, after a pick that found all endpoints full. `waker` is woken when there is something to be
    /// fetched by [`Ticket::poll`]; that may be at once.
    ///
    /// # Errors
    /// [`Refusal::Full`] when `requests_max` wait already or the cluster has no queue, [`Refusal::Crowded`] when as many wait for
    /// the endpoint of its session as may, [`Refusal::Shed`] when waiting is hopeless.
    pub fn enqueue(self: &Arc<Self>, wait: Wait, waker: &Waker) -> Result<Ticket, Refusal> {
        let settings = self.cluster.queue.as_ref().filter(|queue| queue.requests_max > 0).ok_or(Refusal::Full)?;
        let mut woken = Vec::new();
        let kind = (self.version(), Wanted::of(&wait));
        let (id, refused) = {
            let mut queue = self.state.queue();
            queue.follow(self, &mut woken);
            let (id, is_first) = queue.push(self, &wait, waker.clone());
            self.state.set_waiting(queue.waiting.len());
            // Behind another of the same lane there is nothing to find: that one looked, and whatever came free since is
            // handed over by its owner.
            if is_first {
                queue.serve(&mut woken);
            }
            queue.keep_short(id, (self, wait.pinned), &mut woken);
            queue.make_room(id, settings, &mut woken);
            if let Some(rules) = &settings.shed {
                queue.shed((kind, rules), (wait.arrived, None), &mut woken);
            }
            self.state.set_waiting(queue.waiting.len());
            let refused = queue.answers.get(&id).and_then(|answer| answer.as_ref().err().copied());
            if refused.is_some() {
                queue.answers.remove(&id);
            }
            (id, refused)
        };
        wake(woken);
        let done = Cell::new(false);
        let came = Came { arrived: wait.arrived, kind, class: wait.precedence.class, key: wait.key };
        let ticket = Ticket { cluster: self.state.clone(), id, came, shed: settings.shed, done };
        match refused {
            None => Ok(ticket),
            Some(refusal) => {
                ticket.done.set(true);
                Err(refusal)
            }
        }
    }

    /// Activates the plan: requests that wait by an earlier plan of the cluster get what this one allows them.
    pub(crate) fn take_effect(self: &Arc<Self>) {
        if let Some(persistence) = &self.persistence {
            persistence.take_effect();
        }
        // Where no one can wait, and no one ever could, there is no queue.
        if self.cluster.queue.is_none() && !self.state.is_used() {
            return;
        }
        let mut woken = Vec::new();
        self.state.queue().follow(self, &mut woken);
        wake(woken);
    }
}

impl Ticket {
    /// Returns the place if it has been handed over, or the refusal; otherwise `waker` is woken when there is one. After it has given an
    /// answer it gives no other.
    pub fn poll(&self, waker: &Waker, now: Instant) -> Option<Result<Lease, Refusal>> {
        if self.done.get() {
            return None;
        }
        let mut woken = Vec::new();
        let mut replaced = None;
        let answer = {
            let mut queue = self.cluster.queue();
            let answer = queue.answers.remove(&self.id);
            match &answer {
                None => replaced = queue.replace_waker(self.id, waker),
                Some(answer) => {
                    if let (Ok(_), Some(rules)) = (answer, &self.shed) {
                        queue.shed((self.came.kind, rules), (now, Some(&self.came)), &mut woken);
                        self.cluster.set_waiting(queue.waiting.len());
                    }
                }
            }
            answer
        };
        // A waker may run code of its task when dropped: never under the lock.
        drop(replaced);
        wake(woken);
        self.done.set(answer.is_some());
        answer
    }

    /// Returns those who came earlier and still wait.
    pub fn ahead(&self) -> usize {
        self.cluster.queue().waiting.range(..self.id).count()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done.get() {
            return;
        }
        let left = {
            let mut queue = self.cluster.queue();
            let waker = queue.remove(self.id);
            self.cluster.set_waiting(queue.waiting.len());
            (waker, queue.answers.remove(&self.id))
        };
        // Outside the lock: dropping the lease hands its place to the next.
        drop(left);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({})", self.id)
    }
}

impl Clock {
    /// Nanoseconds since the first arrival.
    fn read(&mut self, arrived: Instant) -> i64 {
        let origin = *self.origin.get_or_insert(arrived);
        let nanos = i64::try_from(arrived.saturating_duration_since(origin).as_nanos()).unwrap_or(i64::MAX);
        // Two workers may look at the clock in one order and come here in the other.
        self.latest = self.latest.max(nanos);
        self.latest
    }
}

impl Queue {
    /// Adds one who waits; says whether it is the only one in its lane.
    fn push(&mut self, plan: &Arc<ClusterPlan>, wait: &Wait, waker: Waker) -> (u64, bool) {
        let wanted = Wanted::of(wait);
        let id = self.next_id;
        self.next_id += 1;
        let lane_id = *self.by_kind.entry((plan.version(), wanted)).or_insert(id);
        let newest = &self.newest.1;
        let lane = self.lanes.entry(lane_id).or_insert_with(|| {
            let mut lane = Lane::new(plan.clone(), wanted, newest.upgrade().as_ref());
            lane.settle(&mut Views::default());
            lane
        });
        let is_first = lane.enter();
        let Precedence { class, offset_ms } = wait.precedence;
        let at = self.clock.read(wait.arrived).saturating_add(i64::from(offset_ms) * 1_000_000);
        let spot = Spot { id, class, key: wait.key, lane: lane_id, at };
        self.order.insert(&spot, waker);
        self.waiting.insert(id, Waiter { spot, affinity: wait.affinity, arrived: wait.arrived });
        (id, is_first)
    }

    fn remove(&mut self, id: u64) -> Option<Waker> {
        let Waiter { spot, .. } = self.waiting.remove(&id)?;
        if let Some(lane) = self.lanes.get_mut(&spot.lane)
            && lane.leave()
        {
            let kind = lane.kind();
            self.by_kind.remove(&kind);
            self.lanes.remove(&spot.lane);
            self.rest(kind);
        }
        self.order.remove(&spot)
    }

    fn replace_waker(&mut self, id: u64, waker: &Waker) -> Option<Waker> {
        let spot = self.waiting.get(&id)?.spot;
        let known = self.order.waker(&spot)?;
        if known.will_wake(waker) { None } else { Some(std::mem::replace(known, waker.clone())) }
    }

    /// Takes in that there is this plan. If it is newer than all before, those who wait get what it allows.
    fn follow(&mut self, plan: &Arc<ClusterPlan>, woken: &mut Vec<Waker>) {
        if plan.version() <= self.newest.0 {
            return;
        }
        self.newest = (plan.version(), Arc::downgrade(plan));
        self.shedders.retain(|kind, _| self.by_kind.contains_key(kind));
        if self.lanes.is_empty() {
            return;
        }
        for lane in self.lanes.values_mut() {
            lane.follow(plan);
        }
        self.serve(woken);
        plan.state.set_waiting(self.waiting.len());
    }

    /// Hands free places to those who wait, in order. Who gets one is to be woken without the lock.
    fn serve(&mut self, woken: &mut Vec<Waker>) {
        let mut views = Views::default();
        // Of all of them, before any place is looked for.
        self.lanes.values_mut().for_each(|lane| lane.settle(&mut views));
        let has_room = |(_, lane): &(&u64, &Lane)| lane.may_have_room(&mut views);
        let mut open: Vec<u64> = self.lanes.iter().filter(has_room).map(|(id, _)| *id).collect();
        while let Some((id, lane_id)) = self.order.next(&open) {
            let affinity = self.waiting.get(&id).and_then(|waiter| waiter.affinity);
            let Some(lease) = self.lanes.get(&lane_id).and_then(|lane| lane.take(&mut views, affinity)) else {
                // The bound of the cluster may be reached, and then that is all.
                let mut has_room = |id: &u64| self.lanes.get(id).is_some_and(|lane| lane.may_have_room(&mut views));
                open.retain(|open| *open != lane_id && has_room(open));
                continue;
            };
            let spot = self.waiting.get(&id).map(|waiter| waiter.spot);
            woken.extend(self.remove(id));
            if let Some(spot) = spot {
                self.order.turn_is_over(spot.class, spot.key);
            }
            self.answers.insert(id, Ok(lease.because(PickReason::Queue)));
        }
    }

    /// Refuses a newcomer if more wait for its endpoint alone than may. All who wait are counted under the lock of the queue, so the
    /// bound is exact.
    fn keep_short(&mut self, newcomer: u64, (plan, pinned): (&ClusterPlan, Option<u32>), woken: &mut Vec<Waker>) {
        let Some(endpoint) = pinned.and_then(|place| plan.endpoints.get(place as usize)) else { return };
        let Some(max) = endpoint.endpoint.queue_max else { return };
        if endpoint.state.awaiting().load(Ordering::SeqCst) > max.get() && self.waiting.contains_key(&newcomer) {
            let why = if plan.refuses_others() { Refusal::Full } else { Refusal::Crowded };
            self.refuse(newcomer, why, woken);
        }
    }

    /// Refuses one if there are more than may be: the newcomer, or one of a key that has more than its share.
    fn make_room(&mut self, newcomer: u64, settings: &model::queue::Queue, woken: &mut Vec<Waker>) {
        if self.waiting.len() <= settings.requests_max as usize {
            return;
        }
        let Some(Waiter { spot, .. }) = self.waiting.get(&newcomer) else { return };
        let displaced = if settings.fair_by.is_empty() { None } else { self.order.displaced(spot.class, spot.key) };
        self.refuse(displaced.unwrap_or(newcomer), Refusal::Full, woken);
    }

    /// Takes in that one came, or was served, who wants a place of this kind, and refuses those of the same kind for whom it is
    /// hopeless to wait.
    fn shed(&mut self, (kind, rules): (Kind, &Shed), (now, served): (Instant, Option<&Came>), woken: &mut Vec<Waker>) {
        let Some(&lane) = self.by_kind.get(&kind) else { return self.rest(kind) };
        let Some(victim) = self.order.hopeless(lane, rules.from) else { return };
        let mut shedder = self.shedders.get(&kind).copied().unwrap_or_default();
        match served {
            None => shedder.watch(rules, now, self.longest(lane, now)),
            Some(came) => {
                shedder.hand_over(now);
                // With the one that was served, its line was no shorter than that from which one would be refused.
                let length = self.order.length(lane, came.class, came.key) + 1;
                if came.class == victim.class && length >= victim.length {
                    shedder.observe(rules, now, now.saturating_duration_since(came.arrived));
                }
            }
        }
        let mut next = Some(victim.id);
        while let Some(id) = next {
            let wait = match rules.from {
                ShedFrom::Oldest => self.waited(id, now),
                ShedFrom::Newest => self.forecast(&shedder, lane, now),
            };
            if !shedder.is_due(rules, now, wait) {
                break;
            }
            self.refuse(id, Refusal::Shed, woken);
            next = self.order.hopeless(lane, rules.from).map(|victim| victim.id);
        }
        self.shedders.insert(kind, shedder);
        if !self.by_kind.contains_key(&kind) {
            self.rest(kind);
        }
    }

    /// Notes that no request of this kind waits any more.
    fn rest(&mut self, kind: Kind) {
        let Some(shedder) = self.shedders.get_mut(&kind) else { return };
        shedder.rest();
        if !shedder.has_shed() {
            self.shedders.remove(&kind);
        }
    }

    /// Returns how long the request has waited.
    fn waited(&self, id: u64, now: Instant) -> Duration {
        self.waiting.get(&id).map_or(Duration::ZERO, |waiter| now.saturating_duration_since(waiter.arrived))
    }

    /// Returns how long the last of a lane is going to wait, as places have been handed over there lately.
    fn forecast(&self, shedder: &Shedder, lane: u64, now: Instant) -> Duration {
        let ahead = self.lanes.get(&lane).map_or(0, Lane::waiting);
        shedder.forecast(now, (ahead, self.longest(lane, now)))
    }

    /// Returns how long the one has waited who came first of those of a lane from whom one would be refused.
    fn longest(&self, lane: u64, now: Instant) -> Duration {
        let first = self.order.hopeless(lane, ShedFrom::Oldest);
        first.map_or(Duration::ZERO, |first| self.waited(first.id, now))
    }

    fn refuse(&mut self, id: u64, why: Refusal, woken: &mut Vec<Waker>) {
        if let Some(waker) = self.remove(id) {
            woken.push(waker);
            self.answers.insert(id, Err(why));
        }
    }
}

/// Hands free places to those who wait. Called by anyone who has freed one, or brought an endpoint up.
pub(crate) fn dispatch(state: &ClusterState) {
    let mut woken = Vec::new();
    {
        let mut queue = state.queue();
        queue.serve(&mut woken);
        state.set_waiting(queue.waiting.len());
    }
    wake(woken);
}

fn wake(woken: Vec<Waker>) {
    for waker in woken {
        waker.wake();
    }
}

#[cfg(test)]
mod shedding_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
