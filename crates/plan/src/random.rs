//! Chance, from a seed that the caller gives.

/// 2^64 over the golden ratio, odd: its multiples are spread evenly.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Turns a number into another, one to one, so that each bit of the one changes half of the bits of the other.
#[inline]
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A small generator of numbers that look random (splitmix64, public domain, by Sebastiano Vigna). One per worker,
/// seeded by it. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of this seed: equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a number below `bound`; 0 when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next_u64(), bound)
    }
}

/// Maps 64 random bits to a number below `bound` (0 when `bound` is 0). The bias is below `bound` / 2^64.
#[inline]
pub(crate) fn scale(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_below_a_bound_is_below_it_and_every_such_number_comes() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!((random.below(0), random.below(1)), (0, 0));
        assert_eq!((scale(u64::MAX, 5), scale(0, 5)), (4, 0));
    }

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let (mut a, mut b) = (Random::new(1), Random::new(1));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Random::new(1).next_u64(), Random::new(2).next_u64());
    }
}
