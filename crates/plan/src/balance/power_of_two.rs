//! The better of two that chance draws.

use super::{
    Ask, Balancer, BalancerSpec, Chance, Configured, Member, Seed, Tier, Waiting, least_request, random, weights,
};
use crate::cluster::Lease;
use crate::random::scale;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "power_of_two",
    needs_settings: false,
    doc: "The better of two random endpoints, drawn by weight: the one with fewer exchanges in flight for its weight.\n\n\
        Nearly as even as comparing all of them, at a constant cost, and several instances of the program do not all send to the same idle endpoint (*The Power of Two Choices in Randomized Load Balancing*, 2001).",
};

/// Pairs drawn before every member is looked at in order.
const PAIRS_MAX: u32 = 8;
/// Draws by weight for another than the first.
const DRAWS_MAX: u32 = 4;

/// Sums of the weights up to and with each member.
pub(super) struct PowerOfTwo(Box<[u64]>);

impl PowerOfTwo {
    pub(super) fn new(seeds: &[Seed], _: Configured) -> Self {
        Self(random::sums(&weights(seeds)))
    }
}

impl Balancer for PowerOfTwo {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        take(tier, &self.0, chance, ask.tried)
    }

    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        take(tier, &self.0, chance, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "the one with fewer requests in flight of two drawn at random"
    }
}

#[inline]
pub(super) fn take(tier: &Tier, sums: &[u64], chance: &mut Chance<'_>, tried: &[u32]) -> Option<Lease> {
    take_lighter(tier, sums, chance, (tried, least_request::burden))
}

/// Takes a place at the one of two that bears less.
#[inline]
pub(super) fn take_lighter(
    tier: &Tier,
    sums: &[u64],
    chance: &mut Chance<'_>,
    (tried, burden): (&[u32], impl Fn(&Member) -> f64),
) -> Option<Lease> {
    let mut place = 0;
    for _ in 0..PAIRS_MAX {
        place = random::draw(sums, chance);
        let (one, two) = (&tier.members()[place], &tier.members()[another(place, sums, chance)]);
        let chosen = match (one.is_open(tried), two.is_open(tried)) {
            (true, true) => Some(if burden(two) < burden(one) { two } else { one }),
            (true, false) => Some(one),
            (false, true) => Some(two),
            (false, false) => None,
        };
        if let Some(lease) = chosen.and_then(|member| tier.take(member)) {
            return Some(lease);
        }
    }
    tier.take_any(place, tried)
}

/// Another place, by weight if that does not take too long.
#[inline]
fn another(first: usize, sums: &[u64], chance: &mut Chance<'_>) -> usize {
    for _ in 0..DRAWS_MAX {
        let place = random::draw(sums, chance);
        if place != first {
            return place;
        }
    }
    let count = sums.len();
    (first + 1 + scale(chance(), count as u64 - 1) as usize) % count
}
