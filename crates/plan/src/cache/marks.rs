//! Notes about keys in memory of a fixed size: of two keys that fall onto one place, the later counts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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

fn place(hash: u64) -> usize {
    hash as usize % PLACES
}

/// Never 0, which is an empty place.
fn print(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
