//! Fewest exchanges in flight.

use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Member, Seed, Tier, Waiting, least, weights};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "least_request",
    needs_settings: false,
    doc: "The endpoint with the fewest exchanges in flight for its weight.\n\n\
        An endpoint of weight 2 gets twice as many as one of weight 1. The counts are those of the whole process. Equal endpoints, such as idle ones, take turns by weight, over all workers. With more than 64 endpoints, the balancer compares 16 random ones, and equal ones are drawn at random. Good when requests differ much in cost.",
};

/// Places in the tier, one for each turn among equals.
pub(super) struct LeastRequest(Box<[u32]>);

impl LeastRequest {
    pub(super) fn new(seeds: &[Seed], _: Configured) -> Self {
        Self(least::turns(&weights(seeds)))
    }
}

impl Balancer for LeastRequest {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        take(tier, &self.0, chance, ask.tried)
    }

    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        take(tier, &self.0, chance, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "it has the fewest requests in flight for its weight"
    }
}

#[inline]
pub(super) fn take(tier: &Tier, turns: &[u32], chance: &mut Chance<'_>, tried: &[u32]) -> Option<Lease> {
    least::take(tier, turns, chance, (tried, burden))
}

/// Exchanges in flight by weight. Equal quotients are equal as floats too, and bounds keep others apart.
#[inline]
pub(super) fn burden(member: &Member) -> f64 {
    f64::from(member.state.in_flight()) / f64::from(member.weight)
}
