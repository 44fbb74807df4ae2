//! A worker's random numbers: fast, and good enough to balance and to name requests; never used for secrets.

use std::cell::Cell;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub(crate) struct Random(Cell<u64>);

impl Random {
    /// Seeded from the operating system's randomness by way of the standard library's hash keys.
    pub(crate) fn from_system() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self(Cell::new(std::hash::RandomState::new().build_hasher().finish()))
    }

    pub(crate) fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// 32 hexadecimal digits that name a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestId {
    text: [u8; Self::LEN_MAX],
    len: u8,
}

impl RequestId {
    /// Longest id taken over from a trusted proxy.
    const LEN_MAX: usize = 64;

    /// No id.
    pub(crate) const NONE: Self = Self { text: [0; Self::LEN_MAX], len: 0 };

    pub(crate) fn new(random: &Random) -> Self {
        let mut id = Self { len: 32, ..Self::NONE };
        let (first, second) = (random.next(), random.next());
        let halves = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        for (place, number) in id.text[..32].chunks_exact_mut(8).zip(halves) {
            place.copy_from_slice(&hexadecimal(number));
        }
        id
    }

    /// Returns an id that a trusted proxy gave: short, visible ASCII.
    pub(crate) fn adopt(given: &[u8]) -> Option<Self> {
        let fits = !given.is_empty() && given.len() <= Self::LEN_MAX && given.iter().all(u8::is_ascii_graphic);
        fits.then(|| {
            let mut id = Self { len: given.len() as u8, ..Self::NONE };
            id.text[..given.len()].copy_from_slice(given);
            id
        })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    /// Returns the id as text. It costs a look at every byte, so it is called only where the text is read.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// The digits of `number`, the lowest first, all eight at once: every request has an id.
fn hexadecimal(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // A nibble to each byte.
    let mut digits = u64::from(number);
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & (15 * ONES);
    // 10 and more are letters: 6 makes them overflow their nibble.
    let letters = (digits + 6 * ONES) >> 4 & ONES;
    (digits + u64::from(b'0') * ONES + letters * u64::from(b'a' - 10 - b'0')).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_those_of_the_standard_library_backwards() {
        for number in [0, 1, 9, 10, 15, 0x89ab_cdef, 0x0123_4567, u32::MAX] {
            let digits = hexadecimal(number).into_iter().rev().map(char::from).collect::<String>();
            assert_eq!(digits, format!("{number:08x}"));
        }
    }

    #[test]
    fn request_ids_are_distinct_and_a_strange_one_is_not_adopted() {
        let random = Random::from_system();
        let (a, b) = (RequestId::new(&random), RequestId::new(&random));
        assert_eq!(a.as_str().len(), 32);
        assert_ne!(a.as_str(), b.as_str());
        assert_eq!(RequestId::adopt(b"abc-1").map(|id| id.as_str().to_owned()).as_deref(), Some("abc-1"));
        assert!(RequestId::adopt(b"").is_none());
        assert!(RequestId::adopt(b"a b").is_none());
        assert!(RequestId::adopt(&[b'a'; 65]).is_none());
    }
}
