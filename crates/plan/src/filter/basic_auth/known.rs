//! Credentials that were right, known again without hashing them again.
//!
//! A table of digests under a key that is drawn for it: anyone who sees the table learns no password from it but by trying. It is read
//! without a lock; an entry pushes out the one that stood in its place before.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;

/// Credentials that are known at once.
const PLACES: usize = 4_096;

#[derive(Default)]
pub(super) struct Known {
    /// There from the first entry on.
    table: OnceLock<Table>,
}

struct Table {
    key: hmac::Key,
    /// Two halves of a digest each. One half decides the place.
    places: Box<[[AtomicU64; 2]]>,
}

impl Known {
    /// Returns whether these were right before.
    pub(super) fn holds(&self, credentials: &[u8]) -> bool {
        let Some(table) = self.table.get() else { return false };
        let (place, wanted) = table.digest(credentials);
        let found = place.each_ref().map(|half| half.load(Ordering::Acquire));
        // In one step, whatever the halves are.
        (found[0] ^ wanted[0]) | (found[1] ^ wanted[1]) == 0
    }

    /// Takes credentials that are right.
    pub(super) fn add(&self, credentials: &[u8], chance: &mut dyn FnMut() -> u64) {
        let table = self.table.get_or_init(|| Table::new(chance));
        let (place, halves) = table.digest(credentials);
        // Who reads between the two, or writes at the same time, finds halves that fit no credentials.
        for (half, value) in place.iter().zip(halves) {
            half.store(value, Ordering::Release);
        }
    }
}

impl Table {
    fn new(chance: &mut dyn FnMut() -> u64) -> Self {
        let key: Vec<u8> = (0..4).flat_map(|_| chance().to_le_bytes()).collect();
        let places = (0..PLACES).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect();
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), places }
    }

    /// Returns the place of a digest and its halves, of which none is 0.
    fn digest(&self, credentials: &[u8]) -> (&[AtomicU64; 2], [u64; 2]) {
        let tag = hmac::sign(&self.key, credentials);
        let word = |at: usize| tag.as_ref()[at * 8..].iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte));
        (&self.places[word(2) as usize % PLACES], [word(0) | 1, word(1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_known_and_nothing_else() {
        let (known, mut turn) = (Known::default(), 0);
        let mut chance = || {
            turn += 1;
            turn
        };
        assert!(!known.holds(b"ann:secret"));
        known.add(b"ann:secret", &mut chance);
        known.add(b"bob:secret", &mut chance);
        assert!(known.holds(b"ann:secret") && known.holds(b"bob:secret"));
        assert!(!known.holds(b"ann:secre") && !known.holds(b"ann:secret ") && !known.holds(b""));
        for other in 0..50_000_u32 {
            assert!(!known.holds(format!("{other}:secret").as_bytes()));
        }
        assert_eq!(turn, 4, "the key is drawn once");
    }

    #[test]
    fn it_holds_no_more_than_its_places_and_the_last_that_came() {
        let known = Known::default();
        for user in 0..20_000_u32 {
            known.add(format!("{user}:x").as_bytes(), &mut || 7);
            assert!(known.holds(format!("{user}:x").as_bytes()));
        }
        let left = (0..20_000_u32).filter(|user| known.holds(format!("{user}:x").as_bytes())).count();
        assert!(left <= PLACES && left > PLACES / 2, "{left}");
    }
}
