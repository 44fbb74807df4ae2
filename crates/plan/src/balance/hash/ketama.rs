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
        let unit = unit(configured);
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

/// The weight that stands for [`KETAMA_POINTS`] points: the power of two that is nearest to the mean, so that it seldom
/// changes when endpoints come and go; more when the ring would be too large.
fn unit(configured: Configured) -> f64 {
    let mean = configured.weight as f64 / configured.count.max(1) as f64;
    let mut unit = mean.log2().round().exp2();
    while configured.weight as f64 / unit * KETAMA_POINTS as f64 > KETAMA_POINTS_MAX as f64 {
        unit *= 2.0;
    }
    unit
}

fn share(weight: u32, unit: f64) -> u64 {
    ((f64::from(weight) / unit * KETAMA_POINTS as f64).round() as u64).max(1)
}
