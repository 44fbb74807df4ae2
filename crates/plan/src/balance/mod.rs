//! How an endpoint is chosen. One file and one line for each balancer: `docs/guides/write-a-balancer.md`.
//!
//! A [`View`] is what balancers work on: the endpoints of a cluster that may get work now, and what is computed from
//! their weights. It is built when the plan is, and again when availability changes; a pick only reads it.

mod aperture;
mod first;
mod hash;
mod least;
mod least_request;
mod least_time;
mod peak_ewma;
mod power_of_two;
mod priority;
mod random;
mod registry;
pub(crate) mod response_time;
mod round_robin;
mod tier;
mod view;

use std::time::Instant;

use model::snapshot::Balance;

use crate::cluster::subset::Subset;
use crate::cluster::{ClusterPlan, Lease, Stamped};
use crate::random::mix;
pub use registry::BalancerSpec;
use registry::{Balancer, Waiting, balancers};
use tier::{Configured, Member, Seed, weights};
pub(crate) use tier::{Tier, TierKey, TierState};
pub(crate) use view::{Scope, View};

balancers! {
    RoundRobin => round_robin::{RoundRobin, SPEC};
    Random => random::{Random, SPEC};
    LeastRequest => least_request::{LeastRequest, SPEC};
    PowerOfTwo => power_of_two::{PowerOfTwo, SPEC};
    LeastTime { half_life } => least_time::{LeastTime, SPEC};
    PeakEwma { half_life } => peak_ewma::{PeakEwma, SPEC};
    Hash(settings) => hash::{HashTable, SOURCE_SPEC, SPEC};
    First => first::{First, SPEC};
}

/// Returns those that their name alone chooses, in the same order.
pub fn by_name() -> impl Iterator<Item = &'static BalancerSpec> {
    BALANCERS.iter().filter(|balancer| !balancer.needs_settings)
}

/// What a pick falls back to when no regular endpoint that is left has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastResort {
    /// Nothing: a hedge is no reason to use a backup.
    Nothing,
    /// A backup, unless the cluster has a queue in which requests wait for a regular endpoint.
    #[default]
    Backups,
    /// A backup whether or not others wait: for datagrams, which cannot.
    BackupsAtOnce,
    /// As `Backups`, then the endpoints that have failed in this exchange.
    Repeat,
    /// A backup instead of any regular endpoint: for the attempt after the last that the rules for retries allow.
    OnlyBackups,
}

/// What a pick goes by, beside chance.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Endpoints, by slot, that have failed in this exchange. They are left out, see [`LastResort::Repeat`].
    pub tried: &'a [u32],
    /// Hash of the request's key, [`ClusterPlan::key`]; `None` when there is none.
    pub key: Option<u64>,
    /// The time.
    pub now: Instant,
    /// Those that come into question, [`ClusterPlan::subset`].
    pub subset: Subset,
    /// The place of the endpoint that its session belongs to, [`crate::sticky::Session::pinned`]; in a cluster without sessions
    /// the place of one that is liked best, and taken as long as it gets work and has room.
    pub pinned: Option<u32>,
    /// What follows when no other endpoint has room.
    pub last_resort: LastResort,
}

impl Ask<'_> {
    /// For any endpoint of the cluster, by a request without a key or a session.
    pub fn new(now: Instant) -> Self {
        Self { tried: &[], key: None, now, subset: Subset::ALL, pinned: None, last_resort: LastResort::Backups }
    }
}

/// Random bits, a new number at each call.
pub(crate) type Chance<'a> = dyn FnMut() -> u64 + 'a;

/// Takes a place by the rules of the cluster's balancer, at none of the endpoints that were tried. `None`: all others are full.
#[inline]
pub(crate) fn take(tiers: &[Tier], chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
    let [tier] = tiers else { return take_of_tiers(tiers, chance, ask) };
    if let [only] = tier.members() {
        return if ask.tried.contains(&only.state.slot) { None } else { tier.take(only) };
    }
    tier.choice().take(tier, chance, ask)
}

/// Takes a place at one endpoint of these tiers, if it is there, was not tried, and has room.
fn take_at(tiers: &[Tier], place: u32, tried: &[u32]) -> Option<Lease> {
    tiers.iter().find_map(|tier| {
        let member = tier.members().iter().find(|member| member.index == place)?;
        if tried.contains(&member.state.slot) { None } else { tier.take(member) }
    })
}

/// Takes a place for one who waited, as the balancer would, or near to it: by load where it goes by time. May miss a place
/// where others come first as far as newcomers are concerned.
pub(crate) fn take_for_waiting(tiers: &[Tier], key: Option<u64>, tried: &[u32]) -> Option<Lease> {
    let mut chance = || tiers.first().map_or(0, Tier::bits);
    let place = match tiers {
        [] | [_] => 0,
        // As in `take_of_tiers`.
        _ => {
            let drawn = key.map_or_else(&mut chance, |key| mix(!key));
            priority::choose(drawn, tiers.iter().map(|tier| tier.share_end))
        }
    };
    let tier = tiers.get(place)?;
    tier.choice().take_for_waiting(tier, &mut chance, &Waiting { key, tried })
}

/// Chooses a tier by the shares, by the key if there is one. When it is full, the others follow in order.
fn take_of_tiers(tiers: &[Tier], chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
    // Not the bits by which the key finds its endpoint within the tier.
    let drawn = ask.key.map_or_else(&mut *chance, |key| mix(!key));
    let first = priority::choose(drawn, tiers.iter().map(|tier| tier.share_end));
    let first = tiers.get(first).and_then(|tier| tier.choice().take(tier, chance, ask));
    first.or_else(|| tiers.iter().find_map(|tier| tier.choice().take(tier, chance, ask)))
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
mod guide_examples;
#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
pub(crate) mod tests;
