//! What balancers choose from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use model::snapshot::{Balance, Cluster};

use super::hash::HashTable;
use super::{random, round_robin};
use crate::cluster::{EndpointPlan, Lease};
use crate::padded::Padded;
use crate::response_time::Timing;
use crate::standing::Roll;
use crate::state::{ClusterState, EndpointState};

/// An endpoint that may get work.
pub(crate) struct Member {
    pub(super) state: Arc<EndpointState>,
    index: u32,
    pub(super) weight: u32,
    pub(super) max: Option<u32>,
}

impl Member {
    #[inline]
    pub(super) fn is_open(&self, tried: &[u32]) -> bool {
        !tried.contains(&self.state.slot) && !self.state.is_full(self.max)
    }
}

/// Endpoints of equal preference, prepared for one balancer.
pub(crate) struct Tier {
    members: Box<[Member]>,
    choice: Choice,
    state: Arc<TierState>,
    /// Whether places taken here are counted in `state`.
    counts: bool,
}

/// What a balancer computes ahead.
pub(super) enum Choice {
    /// Places in the tier, one for each turn.
    RoundRobin(Box<[u32]>),
    /// Sums of the weights up to and with each member.
    Random(Box<[u64]>),
    LeastRequest,
    /// Sums as above.
    PowerOfTwo(Box<[u64]>),
    LeastTime(Timing),
    /// Sums as above.
    PeakEwma(Box<[u64]>, Timing),
    First,
    Hash(HashTable),
}

/// What all workers share about a tier, whatever view shows it.
#[derive(Default)]
pub(crate) struct TierState {
    turns: Padded<AtomicUsize>,
    busy: Padded<AtomicU32>,
}

impl TierState {
    /// Gives back what [`Tier::lease`] counted.
    pub(crate) fn leave(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A member as hashes see it: the same on every instance of the program that has the same configuration.
#[derive(Clone, Copy)]
pub(super) struct Seed {
    /// Hash of the endpoint's name.
    pub(super) id: u64,
    pub(super) weight: u32,
}

/// The endpoints of a tier that are configured, whether they are up or not: what is sized by them stays as it is while
/// endpoints go down and come up.
#[derive(Clone, Copy)]
pub(super) struct Configured {
    pub(super) count: usize,
    pub(super) weight: u64,
}

impl Tier {
    fn new(cluster: &Cluster, members: Vec<(Member, u64)>, configured: Configured, state: Arc<TierState>) -> Self {
        let seeds: Vec<Seed> = members.iter().map(|(member, id)| Seed { id: *id, weight: member.weight }).collect();
        let members: Box<[Member]> = members.into_iter().map(|(member, _)| member).collect();
        let weights = || members.iter().map(|member| member.weight).collect::<Vec<u32>>();
        let choice = match &cluster.balance {
            Balance::RoundRobin => Choice::RoundRobin(round_robin::sequence(&weights())),
            Balance::Random => Choice::Random(random::sums(&weights())),
            Balance::LeastRequest => Choice::LeastRequest,
            Balance::PowerOfTwo => Choice::PowerOfTwo(random::sums(&weights())),
            Balance::LeastTime { half_life } => Choice::LeastTime(Timing::new(*half_life, false)),
            Balance::PeakEwma { half_life } => {
                Choice::PeakEwma(random::sums(&weights()), Timing::new(*half_life, true))
            }
            Balance::First => Choice::First,
            Balance::Hash(hash) => Choice::Hash(HashTable::new(hash, &seeds, configured)),
        };
        let counts = matches!(&choice, Choice::Hash(table) if table.is_bounded());
        Self { members, choice, state, counts }
    }

    #[inline]
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    #[inline]
    pub(super) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The next turn. Relaxed: turns only have to differ.
    #[inline]
    pub(super) fn turn(&self) -> usize {
        self.state.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Places taken now, if they are counted.
    #[inline]
    pub(super) fn busy(&self) -> u32 {
        self.state.busy.load(Ordering::Relaxed)
    }

    /// Takes a place at a member, if it has one.
    #[inline]
    pub(super) fn take(&self, member: &Member) -> Option<Lease> {
        member.state.try_take(member.max).then(|| self.lease(member))
    }

    /// The lease for a place that was taken.
    #[inline]
    pub(super) fn lease(&self, member: &Member) -> Lease {
        let counted = self.counts.then(|| {
            self.state.busy.fetch_add(1, Ordering::Relaxed);
            self.state.clone()
        });
        Lease::new(&member.state, member.index, counted)
    }

    /// Takes the first free place from `start` on, around the circle. Sees every member.
    pub(super) fn take_any(&self, start: usize, tried: &[u32]) -> Option<Lease> {
        let start = start.checked_rem(self.members.len())?;
        let (before, after) = self.members.split_at(start);
        after.iter().chain(before).find_map(|member| if member.is_open(tried) { self.take(member) } else { None })
    }
}

/// The endpoints that may get work, as the present health of all gives it.
pub(crate) struct View {
    tiers: Box<[Tier]>,
}

impl View {
    pub(crate) fn new(cluster: &Cluster, endpoints: &[EndpointPlan], state: &ClusterState) -> Self {
        let roll = Roll::call(cluster, endpoints);
        let mut members = Vec::with_capacity(endpoints.len());
        let mut configured = Configured { count: 0, weight: 0 };
        for (index, plan) in endpoints.iter().enumerate().filter(|(_, plan)| plan.endpoint.weight > 0) {
            configured.count += 1;
            configured.weight += u64::from(plan.endpoint.weight);
            let weight = roll.weight(index);
            if weight > 0 {
                let max = plan.endpoint.connections_max;
                members.push((Member { state: plan.state.clone(), index: index as u32, weight, max }, plan.id));
            }
        }
        if members.is_empty() {
            return Self { tiers: Box::default() };
        }
        Self { tiers: [Tier::new(cluster, members, configured, state.tier())].into() }
    }

    #[inline]
    pub(super) fn tier(&self) -> Option<&Tier> {
        self.tiers.first()
    }

    /// Whether nobody may get work.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// How many may get work.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.members.len()).sum()
    }

    /// Takes any free place, whatever the balancer would choose.
    pub(crate) fn take_free(&self) -> Option<Lease> {
        self.tiers.iter().find_map(|tier| tier.take_any(tier.state.turns.load(Ordering::Relaxed), &[]))
    }
}
