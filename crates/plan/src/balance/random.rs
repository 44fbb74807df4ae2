//! At random by weight.

use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Seed, Tier, Waiting, weights};
use crate::cluster::Lease;
use crate::random::scale;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "random",
    needs_settings: false,
    doc: "At random, in proportion to the weights.\n\n\
        Workers share no state, and several instances of the program with the same endpoints never synchronise. An endpoint that is full, down or has weight 0 is skipped; its share goes to the others in proportion.",
};

/// Sums of the weights up to and with each.
pub(super) fn sums(weights: &[u32]) -> Box<[u64]> {
    let add = |sum: &mut u64, &weight: &u32| {
        *sum += u64::from(weight);
        Some(*sum)
    };
    weights.iter().scan(0, add).collect()
}

/// Draws before those that have room are counted: as long as some have, few draws are needed, and what comes of them is
/// the same as of the exact draw.
const DRAWS_MAX: u32 = 8;

/// Sums of the weights up to and with each member.
pub(super) struct Random(Box<[u64]>);

impl Random {
    pub(super) fn new(seeds: &[Seed], _: Configured) -> Self {
        Self(sums(&weights(seeds)))
    }
}

impl Balancer for Random {
    #[inline]
    fn take(&self, tier: &Tier, chance: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        take(tier, &self.0, chance, ask.tried)
    }

    fn take_for_waiting(&self, tier: &Tier, chance: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        take(tier, &self.0, chance, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "drawn at random, by weight"
    }
}

#[inline]
fn take(tier: &Tier, sums: &[u64], chance: &mut Chance<'_>, tried: &[u32]) -> Option<Lease> {
    for _ in 0..DRAWS_MAX {
        let member = &tier.members()[draw(sums, chance)];
        if (tried.is_empty() || member.is_open(tried))
            && let Some(lease) = tier.take(member)
        {
            return Some(lease);
        }
    }
    take_open(tier, chance, tried)
}

/// The place that chance falls on by weight. There is at least one.
#[inline]
pub(super) fn draw(sums: &[u64], chance: &mut Chance<'_>) -> usize {
    let drawn = scale(chance(), sums[sums.len() - 1]);
    sums.partition_point(|&sum| sum <= drawn)
}

/// The exact draw among those that have room. Another worker may fill the chosen one first: then the draw is made
/// again, at most once for each endpoint.
fn take_open(tier: &Tier, chance: &mut Chance<'_>, tried: &[u32]) -> Option<Lease> {
    for _ in 0..tier.members().len() {
        let open = || tier.members().iter().filter(|member| member.is_open(tried));
        let total: u64 = open().map(|member| u64::from(member.weight)).sum();
        if total == 0 {
            return None;
        }
        let mut left = scale(chance(), total);
        let chosen = open().find(|member| match left.checked_sub(u64::from(member.weight)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        if let Some(lease) = chosen.and_then(|member| tier.take(member)) {
            return Some(lease);
        }
    }
    tier.take_any(0, tried)
}
