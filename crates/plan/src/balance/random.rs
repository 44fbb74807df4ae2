//! At random by weight.

use model::snapshot::Balance;

use super::{BalancerSpec, View};
use crate::cluster::Lease;
use crate::random::scale;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "random",
    doc: "At random, in proportion to the weights.\n\n\
        Nothing is shared between workers, and several instances of the program that face the same endpoints never fall \
        into step. An endpoint that is full, down or has weight 0 is passed over, its share going to the others in \
        proportion.",
    balance: Balance::Random,
};

/// Sums of the weights up to and with each.
pub(super) fn sums(weights: &[u32]) -> Box<[u64]> {
    let add = |sum: &mut u64, &weight: &u32| {
        *sum += u64::from(weight);
        Some(*sum)
    };
    weights.iter().scan(0, add).collect()
}

#[inline]
pub(super) fn take(view: &View, sums: &[u64], random: &mut dyn FnMut() -> u64, tried: &[u32]) -> Option<Lease> {
    let drawn = scale(random(), *sums.last()?);
    let member = view.members.get(sums.partition_point(|&sum| sum <= drawn))?;
    if (tried.is_empty() || member.is_open(tried))
        && let Some(lease) = member.take()
    {
        return Some(lease);
    }
    take_open(view, random, tried)
}

/// The exact draw among those that have room. Another worker may fill the chosen one first: then the draw is made
/// again, at most once for each endpoint.
fn take_open(view: &View, random: &mut dyn FnMut() -> u64, tried: &[u32]) -> Option<Lease> {
    for _ in 0..view.members.len() {
        let open = || view.members.iter().filter(|member| member.is_open(tried));
        let total: u64 = open().map(|member| u64::from(member.weight)).sum();
        if total == 0 {
            return None;
        }
        let mut left = scale(random(), total);
        let chosen = open().find(|member| match left.checked_sub(u64::from(member.weight)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        if let Some(lease) = chosen.and_then(super::Member::take) {
            return Some(lease);
        }
    }
    view.take_any(0, tried)
}
