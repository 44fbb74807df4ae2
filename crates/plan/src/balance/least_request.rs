//! Fewest exchanges in flight.

use super::{BalancerSpec, Chance, Member, Tier, least};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "least_request",
    doc: "The endpoint with the fewest exchanges in flight for its weight.\n\n\
        An endpoint of weight 2 is taken to bear twice as many at once as one of weight 1. The counts are those of the \
        whole process. Up to 64 endpoints are all looked at; of more, 16 that chance draws. Among equals, such as all idle \
        endpoints, chance decides by weight. Good when requests differ much in cost.",
};

#[inline]
pub(super) fn take(tier: &Tier, chance: &mut Chance<'_>, tried: &[u32]) -> Option<Lease> {
    least::take(tier, chance, tried, burden)
}

/// Exchanges in flight by weight. Equal quotients are equal as floats too, and bounds keep others apart.
#[inline]
pub(super) fn burden(member: &Member) -> f64 {
    f64::from(member.state.in_flight()) / f64::from(member.weight)
}
