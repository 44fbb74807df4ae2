//! Ketama: points on a ring.
//!
//! The points are those of this program's own hash, not of MD5 as in libketama: clients that keep such a ring themselves
//! do not agree with it.

use model::limits::{KETAMA_POINTS, KETAMA_POINTS_MAX};

use super::super::Seed;
use super::super::tier::Configured;
use crate::random::{GOLDEN, mix};

/// Points in order, found through the bucket of their highest bits.
pub(super) struct Ring {
    /// Position on the ring, and the place of the owner.
    points: Box<[(u32, u32)]>,
    /// The first point in each bucket.
    starts: Box<[u32]>,
    /// Bits of a position below those of its bucket.
    shift: u32,
}

impl Ring {
    /// Sorted by counting, for positions are spread evenly: the time is linear in the number of points, which is bounded.
    pub(super) fn new(seeds: &[Seed], configured: Configured) -> Self {
        let unit = unit(configured, seeds.iter().map(|seed| u64::from(seed.weight)).sum());
        let shares: Vec<u64> = seeds.iter().map(|seed| share(seed.weight, unit)).collect();
        let total: u64 = shares.iter().sum();
        // About four points in each bucket: a look there reads one line of the cache.
        let bits = total.next_power_of_two().trailing_zeros().saturating_sub(2).clamp(1, 24);
        let shift = u32::BITS - bits;
        let all = || {
            let owned = seeds.iter().zip(&shares).zip(0_u32..);
            owned.flat_map(|((seed, &share), place)| (1..=share).map(move |point| (position(seed.id, point), place)))
        };
        let mut ends = vec![0_u32; (1 << bits) + 1];
        for (position, _) in all() {
            ends[(position >> shift) as usize + 1] += 1;
        }
        for bucket in 1..ends.len() {
            ends[bucket] += ends[bucket - 1];
        }
        let starts: Box<[u32]> = ends[..1 << bits].into();
        let mut points = vec![(0, 0); total as usize].into_boxed_slice();
        for point in all() {
            let end = &mut ends[(point.0 >> shift) as usize];
            points[*end as usize] = point;
            *end += 1;
        }
        for (bucket, &start) in starts.iter().enumerate() {
            let bucket = &mut points[start as usize..ends[bucket] as usize];
            bucket.sort_unstable_by_key(|&(position, place)| (position, seeds[place as usize].id));
        }
        Self { points, starts, shift }
    }

    /// The owner of the first point from the key on, around the ring.
    #[inline]
    pub(super) fn locate(&self, key: u64) -> usize {
        let wanted = (key >> 32) as u32;
        let start = self.starts[(wanted >> self.shift) as usize] as usize;
        let next = self.points[start..].iter().find(|(position, _)| *position >= wanted);
        next.unwrap_or(&self.points[0]).1 as usize
    }
}

#[inline]
fn position(id: u64, point: u64) -> u32 {
    (mix(id.wrapping_add(point.wrapping_mul(GOLDEN))) >> 32) as u32
}

/// The weight that stands for [`KETAMA_POINTS`] points: the power of two that is nearest to the mean of what is configured, so that
/// it seldom changes when endpoints come and go; more when the ring would be too large, also because agents ask for more. In
/// the parts in which members have their weights: an agent that asks for 99 % must leave the points of all others where they are.
fn unit(configured: Configured, of_members: u64) -> f64 {
    let scale = f64::from(configured.scale.max(1));
    let mean = configured.weight as f64 / configured.count.max(1) as f64;
    let most = (configured.weight as f64).max(of_members as f64 / scale);
    let mut unit = mean.log2().round().exp2();
    while most / unit * KETAMA_POINTS as f64 > KETAMA_POINTS_MAX as f64 {
        unit *= 2.0;
    }
    unit * scale
}

fn share(weight: u32, unit: f64) -> u64 {
    ((f64::from(weight) / unit * KETAMA_POINTS as f64).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The points of endpoints that are configured with weight 1 and have these weights, in parts of `scale`.
    fn points(weights: &[u32], scale: u32) -> Box<[(u32, u32)]> {
        let seeds: Vec<Seed> = weights.iter().zip(0..).map(|(&weight, name)| Seed { id: mix(name), weight }).collect();
        Ring::new(&seeds, Configured { count: seeds.len(), weight: seeds.len() as u64, scale }).points
    }

    #[test]
    fn a_ring_neither_grows_nor_changes_when_weights_are_told_in_smaller_parts() {
        let plain = points(&[1; 300], 1);
        assert!(points(&[100; 300], 100) == plain);
        let mut weights = [100; 300];
        weights[7] = 99;
        let lighter = points(&weights, 100);
        assert_eq!(lighter.len(), plain.len() - 2, "99 % of 160 points are 158");
        let known: HashSet<&(u32, u32)> = plain.iter().collect();
        assert!(lighter.iter().all(|point| known.contains(point)));
    }

    #[test]
    fn agents_that_ask_for_more_than_is_configured_make_no_ring_larger_than_it_may_be() {
        let configured = Configured { count: 20_000, weight: 20_000, scale: 100 };
        assert_eq!(unit(configured, 20_000 * 100), 100.0);
        for percent in [1, 99, 101, 150, 1_000_u32] {
            let weight = 20_000 * u64::from(percent);
            let found = weight as f64 / unit(configured, weight) * KETAMA_POINTS as f64;
            assert!(found <= KETAMA_POINTS_MAX as f64, "{percent} %: {found}");
        }
    }
}
