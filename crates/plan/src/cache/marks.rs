//! Notes about keys in memory of a fixed size: of two keys that fall onto one place, the later counts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PLACES: usize = 1 << 14;

/// A number for each of the keys that were marked last.
#[derive(Default)]
pub(super) struct Marks(OnceLock<Box<[AtomicU64]>>);

impl Marks {
    /// Marks a key.
    pub(super) fn put(&self, hash: u64, number: u32) {
        let places = self.0.get_or_init(|| (0..PLACES).map(|_| AtomicU64::new(0)).collect());
        places[place(hash)].store(u64::from(print(hash)) << 32 | u64::from(number), Ordering::Relaxed);
    }

    /// Returns the number of a key, if it is marked.
    pub(super) fn get(&self, hash: u64) -> Option<u32> {
        let held = self.0.get()?[place(hash)].load(Ordering::Relaxed);
        (held >> 32 == u64::from(print(hash))).then_some(held as u32)
    }
}

/// The last times of keys. Of a key whose place another has taken, a time is known that is not before its own.
#[derive(Default)]
pub(super) struct Times(OnceLock<Box<[Time]>>);

#[derive(Default)]
struct Time {
    held: AtomicU64,
    /// The latest time that another key has overwritten; 0: none.
    lost: AtomicU32,
}

impl Times {
    /// Notes a time of a key.
    pub(super) fn put(&self, hash: u64, at: u32) {
        let places = self.0.get_or_init(|| (0..PLACES).map(|_| Time::default()).collect());
        let Time { held, lost } = &places[place(hash)];
        let next = u64::from(print(hash)) << 32;
        let mut known = held.load(Ordering::SeqCst);
        loop {
            let is_same = known >> 32 == u64::from(print(hash));
            let at = if is_same { at.max(known as u32) } else { at };
            if !is_same {
                // Before it is overwritten, so that it is always seen at one of both.
                lost.fetch_max(known as u32, Ordering::SeqCst);
            }
            match held.compare_exchange(known, next | u64::from(at), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => known = other,
            }
        }
    }

    /// Returns the last time of a key, or a later one of others that have had its place.
    pub(super) fn last(&self, hash: u64) -> Option<u32> {
        let Time { held, lost } = &self.0.get()?[place(hash)];
        let known = held.load(Ordering::SeqCst);
        let own = (known >> 32 == u64::from(print(hash))).then_some(known as u32);
        own.max(Some(lost.load(Ordering::SeqCst)).filter(|lost| *lost > 0))
    }
}

fn place(hash: u64) -> usize {
    hash as usize % PLACES
}

/// Never 0, which is an empty place.
fn print(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_key_is_not_lost_to_another_at_its_place() {
        let times = Times::default();
        let [first, second, third] = [1, 2, 3].map(|print: u64| print << 33 | 7);
        assert_eq!(times.last(first), None);
        times.put(first, 100);
        times.put(first, 90);
        assert_eq!([first, second].map(|hash| times.last(hash)), [Some(100), None]);
        times.put(second, 110);
        assert_eq!([first, second, third].map(|hash| times.last(hash)), [Some(100), Some(110), Some(100)]);
        times.put(third, 120);
        assert_eq!([first, second, third].map(|hash| times.last(hash)), [Some(110), Some(110), Some(120)]);
        assert_eq!(times.last(first + 1), None, "another place");
    }
}
