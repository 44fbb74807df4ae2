//! The most free places.

use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Member, Seed, Tier, Waiting, least, weights};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "most_room",
    needs_settings: false,
    doc: "The endpoint with the most free places.\n\n\
        An endpoint has as many as `connections_max` allows, less those in use. Without `connections_max` it counts as having \
        more than any other. Equal endpoints take turns by weight.",
};

/// Places in the tier, one for each turn among equals.
pub(super) struct MostRoom(Box<[u32]>);

impl MostRoom {
    pub(super) fn new(seeds: &[Seed], _: Configured) -> Self {
        Self(least::turns(&weights(seeds)))
    }
}

impl Balancer for MostRoom {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        least::take(tier, &self.0, chance, (ask.tried, burden))
    }

    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        least::take(tier, &self.0, chance, (waiting.tried, burden))
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "it has the most free places"
    }
}

/// Free places, negative: the search is for the least.
fn burden(member: &Member) -> f64 {
    -f64::from(member.max.unwrap_or(u32::MAX).saturating_sub(member.state.in_flight()))
}
