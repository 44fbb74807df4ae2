//! Random bits.

use std::hash::{BuildHasher, RandomState};

/// Returns random bits, for the hash of a table or the name of a process.
pub(crate) fn chance() -> u64 {
    RandomState::new().hash_one(0)
}
