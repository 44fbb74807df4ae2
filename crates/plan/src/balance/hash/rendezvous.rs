//! Rendezvous, also called highest random weight: key and endpoint together give a score, and the highest wins.
//!
//! Every member is looked at, up to [`RENDEZVOUS_FLAT_MAX`]. More are arranged as a tree by the bits of their ids, at most
//! [`FAN`] below each node, and the contest is held at each level: its cost grows with the depth, not with the number.

use model::limits::RENDEZVOUS_FLAT_MAX;

use super::super::Seed;
use crate::random::mix;

/// Bits of the id that a level of the tree goes by.
const BITS: u32 = 4;
/// Children of a node at most.
const FAN: usize = 1 << BITS;

/// Between two numbers that 53 bits can tell apart, from 0 to 1.
const STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// A contest: those from `first` on take part.
#[derive(Clone, Copy)]
struct Contest {
    first: u32,
    count: u32,
    /// Whether all weights are equal, so that the hash alone is the score.
    is_even: bool,
}

/// One who takes part in a contest.
#[derive(Clone, Copy)]
struct Rival {
    id: u64,
    /// One over the weight, the sum of those below.
    rarity: f64,
    /// The place of a member, or the number of the contest below.
    leads_to: u32,
    is_member: bool,
}

/// Contests, the first to begin with.
pub(super) struct Scores {
    contests: Vec<Contest>,
    rivals: Vec<Rival>,
}

impl Scores {
    pub(super) fn new(seeds: &[Seed], configured: usize) -> Self {
        let mut members: Vec<(Seed, u32)> = seeds.iter().copied().zip(0..).collect();
        // Ids are spread evenly: those with the same first bits lie together.
        members.sort_unstable_by_key(|(seed, place)| (seed.id, *place));
        let mut scores = Self { contests: Vec::new(), rivals: Vec::new() };
        let flat = if configured <= RENDEZVOUS_FLAT_MAX { RENDEZVOUS_FLAT_MAX } else { FAN };
        scores.add(&members, 0, flat);
        scores
    }

    /// Adds the contest of these members, whose first `depth` bits are the same, and those below it; gives its number.
    fn add(&mut self, members: &[(Seed, u32)], depth: u32, flat: usize) -> u32 {
        let (number, first) = (self.contests.len(), self.rivals.len());
        let mut branches: Vec<&[(Seed, u32)]> = Vec::new();
        if members.len() <= flat || depth >= u64::BITS {
            self.rivals.extend(members.iter().map(|(seed, place)| Rival::member(seed, *place)));
        } else {
            let branch = |seed: &Seed| seed.id << depth >> (u64::BITS - BITS);
            branches.extend(members.chunk_by(|(one, _), (two, _)| branch(one) == branch(two)));
            self.rivals.extend(branches.iter().map(|below| Rival::branch(below, depth)));
        }
        let rivals = &self.rivals[first..];
        let is_even = rivals.iter().all(|rival| rival.rarity == rivals[0].rarity);
        self.contests.push(Contest { first: first as u32, count: rivals.len() as u32, is_even });
        for (at, below) in branches.into_iter().enumerate() {
            self.rivals[first + at].leads_to = self.add(below, depth + BITS, flat);
        }
        number as u32
    }

    /// The member that wins the key.
    #[inline]
    pub(super) fn locate(&self, key: u64) -> usize {
        let mut contest = self.contests[0];
        loop {
            let rivals = &self.rivals[contest.first as usize..][..contest.count as usize];
            let winner = if contest.is_even { highest(rivals, key) } else { soonest(rivals, key) };
            if winner.is_member {
                return winner.leads_to as usize;
            }
            contest = self.contests[winner.leads_to as usize];
        }
    }
}

impl Rival {
    fn member(seed: &Seed, place: u32) -> Self {
        Self { id: seed.id, rarity: f64::from(seed.weight).recip(), leads_to: place, is_member: true }
    }

    /// Stands for all `below`, whose ids are equal in the first bits. Its own id is the same whoever they are.
    fn branch(below: &[(Seed, u32)], depth: u32) -> Self {
        let weight: u64 = below.iter().map(|(seed, _)| u64::from(seed.weight)).sum();
        let prefix = below[0].0.id >> (u64::BITS - BITS - depth);
        let id = mix(prefix.wrapping_add(mix(depth.into())));
        Self { id, rarity: (weight as f64).recip(), leads_to: 0, is_member: false }
    }
}

/// The winner among equal weights.
#[inline]
fn highest(rivals: &[Rival], key: u64) -> &Rival {
    let mut best = (&rivals[0], 0);
    for rival in rivals {
        let score = mix(key ^ rival.id);
        if score >= best.1 {
            best = (rival, score);
        }
    }
    best.0
}

/// The winner by weight: each waits for a time that is exponentially distributed, the shorter the more it weighs, and the
/// first one wins. So each wins with the probability of its weight among all.
#[inline]
fn soonest(rivals: &[Rival], key: u64) -> &Rival {
    let mut best = (&rivals[0], f64::INFINITY);
    for rival in rivals {
        let uniform = ((mix(key ^ rival.id) >> 11) + 1) as f64 * STEP;
        // The logarithm lies below its tangent: most rivals have lost already by that, which is cheaper.
        if (1.0 - uniform) * rival.rarity < best.1 {
            let wait = -uniform.ln() * rival.rarity;
            if wait < best.1 {
                best = (rival, wait);
            }
        }
    }
    best.0
}
