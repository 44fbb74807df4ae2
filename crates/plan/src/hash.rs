//! A fast hash for tables whose keys come from the configuration.
//!
//! It is not keyed. A client that crafts colliding strings can only look them up, never add them, so a lookup costs no
//! more than the keys of the configuration that share its hash.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::random::mix;

/// A map with keys from the configuration.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds eight bytes at a time into the state by a 64 × 64 → 128 bit product, whose halves are joined.
#[derive(Clone, Copy, Default)]
pub(crate) struct FastHasher(u64);

impl FastHasher {
    #[inline]
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word ^ MULTIPLIER) * u128::from(MULTIPLIER);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// Returns the hash of some bytes, the same in every process and on every machine, spread evenly over all 64 bits.
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    let mut hasher = FastHasher::default();
    hasher.write(bytes);
    // The length tells a short text from the same one with zeros behind it.
    mix(hasher.finish() ^ bytes.len() as u64)
}

impl Hasher for FastHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.fold(u64::from_le_bytes(last));
        }
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn similar_names_spread_over_high_and_low_bits() {
        let hash = |text: String| BuildHasherDefault::<FastHasher>::default().hash_one(text.as_bytes());
        let hashes: Vec<u64> = (0..10_000).map(|i| hash(format!("shop-{i}.example.com"))).collect();
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), 10_000);
        let low: HashSet<u64> = hashes.iter().map(|h| h & 0x3fff).collect();
        let high: HashSet<u64> = hashes.iter().map(|h| h >> 57).collect();
        // 10,000 balls in 16,384 bins fill 7,486 of them on average.
        assert!((7_200..7_800).contains(&low.len()), "{}", low.len());
        assert_eq!(high.len(), 128);
    }
}
