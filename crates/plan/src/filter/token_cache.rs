//! Tokens that were verified, found again by their digest.
//!
//! A table of fixed size, in shards with a lock each, which is held for one look at a bucket. Only verified tokens come into it: a stranger
//! cannot fill it. An entry ends with its token, and when the keys change.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use crate::padded::Padded;

const SHARDS: usize = 64;
const BUCKETS: usize = 8;
const WAYS: usize = 8;
/// Bytes of what is kept of a token. More is verified each time: all entries together stay below 64 MiB.
const WEIGHT_MAX: usize = 16 << 10;

/// The digest of a token.
pub(crate) type Digest = [u8; 32];

/// Returns the digest of a token.
pub(crate) fn digest_of(token: &[u8]) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token).as_ref());
    bytes
}

struct Entry<T> {
    digest: Digest,
    /// The version of the keys.
    version: u64,
    /// The first second since 1970 in which it is no longer good.
    ends: u64,
    value: Arc<T>,
}

type Shard<T> = Padded<Mutex<Vec<Option<Entry<T>>>>>;

/// See the module. It holds no memory until the first token is verified.
pub(crate) struct Cache<T>(OnceLock<Box<[Shard<T>]>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> Cache<T> {
    /// Returns what is kept of a token, if keys of this version have verified it and it is still good.
    pub(crate) fn get(&self, digest: &Digest, version: u64, now: u64) -> Option<Arc<T>> {
        let shards = self.0.get()?;
        let (shard, bucket) = place(digest);
        let entries = shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let mut bucket = entries.get(bucket)?.iter().flatten();
        let entry = bucket.find(|entry| verify_slices_are_equal(&entry.digest, digest).is_ok())?;
        (entry.version == version && now < entry.ends).then(|| Arc::clone(&entry.value))
    }

    /// Keeps what is known of a verified token until `ends`. `weight` is its size in bytes.
    pub(crate) fn put(&self, digest: Digest, version: u64, (now, ends): (u64, u64), (value, weight): (&Arc<T>, usize)) {
        if weight > WEIGHT_MAX {
            return;
        }
        let shards = self.0.get_or_init(|| (0..SHARDS).map(|_| Padded::default()).collect());
        let (shard, bucket) = place(&digest);
        let mut entries = shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
        if entries.is_empty() {
            entries.resize_with(BUCKETS * WAYS, || None);
        }
        let ways = &mut entries[bucket];
        let is_free = |entry: &Option<Entry<T>>| {
            entry.as_ref().is_none_or(|entry| entry.digest == digest || entry.version != version || entry.ends <= now)
        };
        let at = ways.iter().position(is_free).unwrap_or(usize::from(digest[3]) % WAYS);
        ways[at] = Some(Entry { digest, version, ends, value: Arc::clone(value) });
    }
}

/// Returns the shard of a digest, and its bucket there.
fn place(digest: &Digest) -> (usize, std::ops::Range<usize>) {
    let bucket = usize::from(digest[1]) % BUCKETS;
    (usize::from(digest[0]) % SHARDS, bucket * WAYS..(bucket + 1) * WAYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_until_its_end_and_with_the_same_keys_only() {
        let cache = Cache::default();
        let digest = digest_of(b"a");
        assert!(cache.get(&digest, 1, 0).is_none());
        cache.put(digest, 1, (10, 20), (&Arc::new("a"), 1));
        assert_eq!(cache.get(&digest, 1, 19).as_deref(), Some(&"a"));
        assert_eq!((cache.get(&digest, 1, 20), cache.get(&digest, 2, 19)), (None, None));
        assert_eq!(cache.get(&digest_of(b"b"), 1, 19), None);
        cache.put(digest, 2, (10, 30), (&Arc::new("b"), 1));
        assert_eq!((cache.get(&digest, 2, 29).as_deref(), cache.get(&digest, 1, 19)), (Some(&"b"), None));
        cache.put(digest_of(b"c"), 1, (10, 20), (&Arc::new("c"), WEIGHT_MAX + 1));
        assert_eq!(cache.get(&digest_of(b"c"), 1, 10), None);
    }

    #[test]
    fn it_holds_no_more_than_its_places_and_always_the_last_that_came() {
        let cache = Cache::default();
        for token in 0..20_000_u32 {
            let digest = digest_of(&token.to_le_bytes());
            cache.put(digest, 1, (0, 10), (&Arc::new(token), 1));
            assert_eq!(cache.get(&digest, 1, 0).as_deref(), Some(&token));
        }
        let left = (0..20_000_u32).filter(|token| cache.get(&digest_of(&token.to_le_bytes()), 1, 0).is_some()).count();
        assert!(left <= SHARDS * BUCKETS * WAYS && left > SHARDS * BUCKETS * WAYS / 2, "{left}");
    }
}
