//! What memory and disk of a store share: how keys are hashed, and what has become void.

use std::sync::OnceLock;

use super::marks::Times;
use super::purges::{Purges, Tagged};
use crate::keyed;

/// When a response was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The second.
    pub at: u64,
    /// How many purges were before, by [`super::CacheStore::purges`].
    pub purges: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Validity {
    /// Against keys that are chosen to fall onto each other.
    hash_key: OnceLock<[u64; 2]>,
    pub purges: Purges,
    /// When a request has invalidated a key.
    pub invalidated: Times,
    /// When the slices of a key were found to be out of date. A table of its own, as a time that another key has left here voids slices for as
    /// long as they are fresh.
    pub slices_outdated: Times,
}

impl Validity {
    /// Returns the hash of a key. `chance` gives random bits the first time.
    pub(super) fn hash(&self, key: &[u8], chance: &mut dyn FnMut() -> u64) -> u64 {
        keyed::hash(*self.hash_key.get_or_init(|| [chance(), chance()]), key)
    }

    /// Returns the hash of a key, if keys have been hashed before.
    pub(super) fn known_hash(&self, key: &[u8]) -> Option<u64> {
        self.hash_key.get().map(|hash_key| keyed::hash(*hash_key, key))
    }

    /// Returns whether a response that was asked for then has been purged or invalidated since.
    pub(super) fn is_void(&self, hash: u64, response: &impl Tagged, begun: Begun) -> bool {
        self.invalidated.last(hash).is_some_and(|at| u64::from(at) >= begun.at)
            || self.purges.have_meant(response, begun.purges)
    }
}
