//! Peak-sensitive mean of response times, and two choices.

use std::time::Duration;

use super::{
    Ask, Balancer, BalancerSpec, Chance, Configured, Member, Seed, Tier, Waiting, least_time, power_of_two, random,
    weights,
};
use crate::balance::response_time::{Tick, Timing};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "peak_ewma",
    needs_settings: false,
    doc: "The better of two random endpoints, drawn by weight: the one that is expected to respond sooner. Reacts to slowness at once.\n\n\
        Like `least_time`, with two differences: a time above the mean becomes the mean at once, which then decays with `half_life` (10 s by default); and only two endpoints are compared, so that not all requests go to the one that looks best. Known from Finagle and Linkerd.\n\n\
        The best choice if latency matters and the speed of endpoints varies: garbage collection pauses, a full disk, a cold cache, a noisy neighbour.",
};

/// As [`power_of_two`], and how times are averaged.
pub(super) struct PeakEwma {
    sums: Box<[u64]>,
    timing: Timing,
}

impl PeakEwma {
    pub(super) fn new(half_life: Duration, seeds: &[Seed], _: Configured) -> Self {
        Self { sums: random::sums(&weights(seeds)), timing: Timing::new(half_life, true) }
    }
}

impl Balancer for PeakEwma {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        let (now, timing) = (Tick::of(ask.now), self.timing);
        let burden = |member: &Member| least_time::burden(member, now, timing);
        power_of_two::take_lighter(tier, &self.sums, chance, (ask.tried, burden))
    }

    /// By load, as there is no time to go by.
    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        power_of_two::take(tier, &self.sums, chance, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "the one that is likely to answer sooner of two drawn at random"
    }
}
