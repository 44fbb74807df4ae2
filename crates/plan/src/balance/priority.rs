//! Which tier gets how much: priorities with overprovisioning.

use crate::random::scale;

/// The whole of the work.
pub(super) const WHOLE: u64 = 1 << 32;

/// What is up of a tier, and what there is, as sums of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fitness {
    pub(super) up: u64,
    pub(super) all: u64,
}

/// The share of each tier, in order, of [`WHOLE`].
///
/// A tier can bear its weight that is up, times the overprovisioning, up to the whole. It gets what those before it have
/// left, as far as it can bear that. When all together cannot bear the whole, it is shared in proportion to what they
/// can: nobody is refused for that. With 140 %, the second tier gets its first work once less than 71 % of the first is up.
pub(super) fn shares(tiers: &[Fitness], overprovisioning: u32) -> Vec<u64> {
    let bears = |tier: &Fitness| {
        let up = u128::from(WHOLE) * u128::from(tier.up) * u128::from(overprovisioning);
        (up / (100 * u128::from(tier.all.max(1)))).min(u128::from(WHOLE)) as u64
    };
    let mut left = WHOLE;
    let mut shares: Vec<u64> = tiers
        .iter()
        .map(|tier| {
            let share = bears(tier).min(left);
            left -= share;
            share
        })
        .collect();
    let borne = WHOLE - left;
    if left > 0 && borne > 0 {
        for share in &mut shares {
            *share = (u128::from(*share) * u128::from(WHOLE) / u128::from(borne)) as u64;
        }
        // What rounding left over.
        let rest = WHOLE - shares.iter().sum::<u64>();
        if let Some(share) = shares.iter_mut().rev().find(|share| **share > 0) {
            *share += rest;
        }
    }
    shares
}

/// The place that 64 bits fall on, given where each share ends.
#[inline]
pub(super) fn choose(bits: u64, ends: impl Iterator<Item = u64>) -> usize {
    let drawn = scale(bits, WHOLE);
    ends.take_while(|&end| end <= drawn).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Percent of the work for tiers of 10, of which so many are up.
    fn percent(up: &[u64], overprovisioning: u32) -> Vec<u64> {
        let tiers: Vec<Fitness> = up.iter().map(|&up| Fitness { up, all: 10 }).collect();
        let shares = shares(&tiers, overprovisioning);
        assert_eq!(shares.iter().sum::<u64>(), if up.iter().any(|up| *up > 0) { WHOLE } else { 0 });
        shares.iter().map(|share| (share * 100 + WHOLE / 2) / WHOLE).collect()
    }

    #[test]
    fn work_spills_over_once_a_tier_cannot_bear_it() {
        assert_eq!(percent(&[10, 10, 10], 140), [100, 0, 0]);
        assert_eq!(percent(&[8, 10, 10], 140), [100, 0, 0]);
        assert_eq!(percent(&[7, 10, 10], 140), [98, 2, 0]);
        assert_eq!(percent(&[5, 10, 10], 140), [70, 30, 0]);
        assert_eq!(percent(&[0, 10, 10], 140), [0, 100, 0]);
        assert_eq!(percent(&[2, 3, 10], 140), [28, 42, 30]);
        assert_eq!(percent(&[9, 10], 100), [90, 10]);
        assert_eq!(percent(&[1, 10], 1_000), [100, 0]);
    }

    #[test]
    fn what_all_together_cannot_bear_is_shared_in_proportion() {
        assert_eq!(percent(&[2, 2], 140), [50, 50]);
        assert_eq!(percent(&[1, 3], 140), [25, 75]);
        assert_eq!(percent(&[0, 0, 1], 140), [0, 0, 100]);
        assert_eq!(percent(&[0, 0], 140), [0, 0]);
    }

    #[test]
    fn bits_fall_on_shares() {
        let ends = || [WHOLE / 4, WHOLE / 4, WHOLE].into_iter();
        assert_eq!((choose(0, ends()), choose(u64::MAX, ends())), (0, 2));
        assert_eq!((choose(u64::MAX / 4 - 1, ends()), choose(u64::MAX / 4 + 2, ends())), (0, 2));
    }
}
