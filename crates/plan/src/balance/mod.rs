//! How an endpoint is chosen. One file per balancer; [`BALANCERS`] lists them for the reference page.
//!
//! A [`View`] is what balancers work on: the endpoints of a cluster that may get work now, and what is computed from
//! their weights. It is built when the plan is, and again when availability changes; a pick only reads it.

mod least_request;
mod random;
mod round_robin;

use std::sync::Arc;

use model::snapshot::{Balance, Cluster, Endpoint};

use crate::cluster::{ClusterPlan, EndpointPlan, Lease, Stamped};
use crate::standing::Roll;
use crate::state::{ClusterState, EndpointState};

/// One balancer, as the reference page and the schema tell of it.
#[derive(Clone, Copy, Debug)]
pub struct BalancerSpec {
    /// The value of `balance:`.
    pub name: &'static str,
    /// Markdown: first line a summary, then explanation.
    pub doc: &'static str,
    /// Its noun.
    pub balance: Balance,
}

/// Every balancer, the default first.
pub const BALANCERS: &[BalancerSpec] = &[round_robin::SPEC, random::SPEC, least_request::SPEC];

/// An endpoint that may get work.
pub(crate) struct Member {
    state: Arc<EndpointState>,
    index: u32,
    weight: u32,
    max: Option<u32>,
}

impl Member {
    #[inline]
    fn take(&self) -> Option<Lease> {
        self.state.try_take(self.max).then(|| Lease::new(&self.state, self.index))
    }

    #[inline]
    fn is_open(&self, tried: &[u32]) -> bool {
        !tried.contains(&self.state.slot) && !self.state.is_full(self.max)
    }
}

/// The endpoints that may get work, prepared for one balancer.
pub(crate) struct View {
    members: Box<[Member]>,
    choice: Choice,
}

/// What a balancer computes ahead.
enum Choice {
    /// Places in `members`, one for each turn.
    RoundRobin(Box<[u32]>),
    /// Sums of the weights up to and with each member.
    Random(Box<[u64]>),
    LeastRequest,
}

impl View {
    /// The view that the present health of the endpoints gives.
    pub(crate) fn new(cluster: &Cluster, endpoints: &[EndpointPlan]) -> Self {
        let roll = Roll::call(cluster, endpoints);
        let members: Box<[Member]> = endpoints
            .iter()
            .zip(0..)
            .filter(|&(_, index)| roll.gets_work(index as usize))
            .map(|(plan, index)| member(&plan.endpoint, plan.state.clone(), index))
            .collect();
        let weights: Vec<u32> = members.iter().map(|member| member.weight).collect();
        let choice = match cluster.balance {
            Balance::RoundRobin => Choice::RoundRobin(round_robin::sequence(&weights)),
            Balance::Random => Choice::Random(random::sums(&weights)),
            Balance::LeastRequest => Choice::LeastRequest,
        };
        Self { members, choice }
    }

    #[inline]
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Takes the first free place from `start` on, around the circle. Sees every member.
    pub(crate) fn take_any(&self, start: usize, tried: &[u32]) -> Option<Lease> {
        let count = self.members.len();
        let start = start.checked_rem(count)?;
        let (before, after) = self.members.split_at(start);
        after.iter().chain(before).find_map(|member| if member.is_open(tried) { member.take() } else { None })
    }
}

fn member(endpoint: &Endpoint, state: Arc<EndpointState>, index: u32) -> Member {
    Member { state, index, weight: endpoint.weight, max: endpoint.connections_max }
}

/// Takes a place by the rules of the view's balancer. Tried endpoints are left out unless no other has room. `None`: all
/// are full.
#[inline]
pub(crate) fn take(view: &View, state: &ClusterState, random: &mut dyn FnMut() -> u64, tried: &[u32]) -> Option<Lease> {
    if let [only] = view.members() {
        return only.take();
    }
    let lease = choose(view, state, random, tried);
    if lease.is_none() && !tried.is_empty() { choose(view, state, random, &[]) } else { lease }
}

#[inline]
fn choose(view: &View, state: &ClusterState, random: &mut dyn FnMut() -> u64, tried: &[u32]) -> Option<Lease> {
    match &view.choice {
        Choice::RoundRobin(sequence) => round_robin::take(view, sequence, state, tried),
        Choice::Random(sums) => random::take(view, sums, random, tried),
        Choice::LeastRequest => least_request::take(view, random, tried),
    }
}

/// A worker's copy of what picks of one cluster need: the view of the latest epoch it has seen. One per worker and
/// cluster; empty to begin with.
#[derive(Default)]
pub struct PickCache {
    version: u64,
    stamped: Option<Stamped>,
}

impl PickCache {
    /// The view, brought up to date if the plan is another or availability has changed.
    #[inline]
    pub(crate) fn view(&mut self, plan: &ClusterPlan) -> &View {
        let fresh = self.version == plan.version()
            && self.stamped.as_ref().is_some_and(|stamped| stamped.epoch == plan.state.epoch());
        if !fresh {
            self.version = plan.version();
            self.stamped = None;
        }
        &self.stamped.get_or_insert_with(|| plan.latest_view()).view
    }
}

#[cfg(test)]
mod tests;
