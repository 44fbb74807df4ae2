//! Smooth weighted round robin.

use model::limits::ROUND_ROBIN_STEPS_MAX;

use super::{Ask, Balancer, BalancerSpec, Chance, Configured, Seed, Tier, Waiting, weights};
use crate::cluster::Lease;

pub(super) const SPEC: BalancerSpec = BalancerSpec {
    name: "round_robin",
    needs_settings: false,
    doc: "Each endpoint in turn, as often as its weight says.\n\n\
        The turns of heavier endpoints are spread out: weights 5, 1 and 1 give `a a b a c a a`, not `a a a a a b c`. \
        All workers take turns from one counter, so the shares are exact over the whole process. An endpoint that is \
        full, down or has weight 0 is skipped.",
};

/// Turns tried before every endpoint is looked at in order. Passing over a full endpoint by taking the next turn keeps
/// the shares of the others in proportion.
const TURNS_MAX: usize = 16;

/// Places in the tier, one for each turn.
pub(super) struct RoundRobin(Box<[u32]>);

impl RoundRobin {
    pub(super) fn new(seeds: &[Seed], _: Configured) -> Self {
        Self(sequence(&weights(seeds)))
    }
}

impl Balancer for RoundRobin {
    #[inline]
    fn take(&self, tier: &Tier, _: &mut Chance<'_>, ask: &Ask<'_>) -> Option<Lease> {
        take(tier, &self.0, ask.tried)
    }

    fn take_for_waiting(&self, tier: &Tier, _: &mut Chance<'_>, waiting: &Waiting<'_>) -> Option<Lease> {
        take(tier, &self.0, waiting.tried)
    }

    fn reason(_: &Ask<'_>) -> &'static str {
        "its turn comes next"
    }
}

#[inline]
fn take(tier: &Tier, sequence: &[u32], tried: &[u32]) -> Option<Lease> {
    let mut place = 0;
    for _ in 0..sequence.len().min(TURNS_MAX) {
        place = sequence[tier.turn() % sequence.len()] as usize;
        let member = &tier.members()[place];
        if (tried.is_empty() || member.is_open(tried))
            && let Some(lease) = tier.take(member)
        {
            return Some(lease);
        }
    }
    tier.take_any(place, tried)
}

/// The turns of one round: each place as often as its weight, as far apart as can be, by the rule that nginx made known:
/// at each turn every current value grows by its weight, the largest (the first among equals) is chosen and lowered by
/// the sum of all weights.
///
/// Endpoints of equal weight behave alike up to a shift, so they form one group and take the group's turns in a
/// circle. The cost is steps × different weights, at most 65,536 × 362: more weights that differ have a larger sum.
fn sequence(weights: &[u32]) -> Box<[u32]> {
    sequence_within(weights, ROUND_ROBIN_STEPS_MAX)
}

/// The same with so many turns at most, each place having at least one.
pub(super) fn sequence_within(weights: &[u32], steps_max: usize) -> Box<[u32]> {
    let weights = reduced(weights, steps_max);
    let total: i64 = weights.iter().map(|&weight| i64::from(weight)).sum();
    let mut groups = groups(&weights);
    let mut sequence = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
    for step in 1..=total {
        let Some(best) = groups.iter_mut().max_by_key(|group| group.claim(step, total)) else { break };
        sequence.push(best.next_turn());
    }
    sequence.into()
}

/// Places of equal weight.
struct Group {
    weight: i64,
    members: Vec<u32>,
    /// Place in `members` of the one whose turn is next; all before it have had one turn more than those from it on.
    next: usize,
    /// Turns that the next one has had.
    turns: i64,
}

impl Group {
    /// The current value of the next one, and what decides among equals: the earlier place.
    fn claim(&self, step: i64, total: i64) -> (i64, std::cmp::Reverse<u32>) {
        (self.weight * step - total * self.turns, std::cmp::Reverse(self.members[self.next]))
    }

    fn next_turn(&mut self) -> u32 {
        let place = self.members[self.next];
        self.next += 1;
        if self.next == self.members.len() {
            self.next = 0;
            self.turns += 1;
        }
        place
    }
}

fn groups(weights: &[u32]) -> Vec<Group> {
    let mut by_weight = std::collections::BTreeMap::<u32, Vec<u32>>::new();
    for (place, &weight) in (0..).zip(weights) {
        by_weight.entry(weight).or_default().push(place);
    }
    let group = |(weight, members)| Group { weight: i64::from(weight), members, next: 0, turns: 0 };
    by_weight.into_iter().map(group).collect()
}

/// Weights in the same proportion (as nearly as the bound on steps allows) with the smallest sum. None becomes 0.
fn reduced(weights: &[u32], steps_max: usize) -> Vec<u32> {
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let weights: Vec<u32> = weights.iter().map(|weight| weight / divisor).collect();
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let most = steps_max as u64;
    if total <= most {
        return weights;
    }
    let scaled = |&weight: &u32| ((u64::from(weight) * most / total) as u32).max(1);
    weights.iter().map(scaled).collect()
}

fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule itself, without groups.
    fn plain(weights: &[u32]) -> Vec<u32> {
        let total: i64 = weights.iter().map(|&weight| i64::from(weight)).sum();
        let mut current = vec![0; weights.len()];
        let mut sequence = Vec::new();
        for _ in 0..total {
            let mut best = 0;
            for place in 0..weights.len() {
                current[place] += i64::from(weights[place]);
                if current[place] > current[best] {
                    best = place;
                }
            }
            current[best] -= total;
            sequence.push(best as u32);
        }
        sequence
    }

    #[test]
    fn turns_of_a_heavy_endpoint_are_spread_out() {
        assert_eq!(*sequence(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(*sequence(&[10, 10, 10]), [0, 1, 2]);
        assert_eq!(*sequence(&[7]), [0]);
        assert!(sequence(&[]).is_empty());
    }

    #[test]
    fn groups_give_the_very_sequence_of_the_plain_rule() {
        let mut random = crate::Random::new(11);
        for _ in 0..500 {
            let weights: Vec<u32> = (0..1 + random.below(9)).map(|_| 1 + random.below(7) as u32).collect();
            let reduced = reduced(&weights, ROUND_ROBIN_STEPS_MAX);
            assert_eq!(*sequence(&weights), plain(&reduced), "{weights:?}");
        }
    }

    #[test]
    fn a_round_is_bounded_and_every_endpoint_still_has_a_turn() {
        let mut weights = vec![1_000; 200];
        weights[7] = 1;
        weights[8] = 999;
        let sequence = sequence(&weights);
        assert!(sequence.len() <= ROUND_ROBIN_STEPS_MAX);
        for place in 0..200 {
            let turns = sequence.iter().filter(|&&turn| turn == place).count();
            assert!(turns >= 1 && (place == 7 || turns > 300), "{place}: {turns}");
        }
    }
}
