//! Encrypted tokens that were verified.
//!
//! Apart from those that are only signed: anyone can encrypt a token of their own again and again, and each is another one. Of one token
//! inside, a few are kept.

use std::sync::{Arc, Mutex, PoisonError};

use crate::filter::passing::Verdict;
use crate::filter::token_cache::{Cache, Digest};

/// Encrypted tokens that are kept of one token inside.
const OUTER_MAX: usize = 4;

/// See the module.
#[derive(Default)]
pub(super) struct Wrapped {
    /// By the digest of the encrypted token.
    verdicts: Cache<Verdict>,
    /// By the digest of what is inside: the digests of the encrypted tokens that are kept.
    outer: Cache<Mutex<Vec<Digest>>>,
}

impl Wrapped {
    /// Returns what is kept of an encrypted token, see [`Cache::get`].
    pub(super) fn get(&self, outer: &Digest, version: u64, now: u64) -> Option<Arc<Verdict>> {
        self.verdicts.get(outer, version, now)
    }

    /// Keeps a verdict until `ends`, unless enough is kept of what is inside.
    pub(super) fn put(
        &self,
        (inner, outer): (Digest, Digest),
        version: u64,
        (now, ends): (u64, u64),
        verdict: &Arc<Verdict>,
    ) {
        let known = self.outer.get(&inner, version, now).unwrap_or_else(|| {
            let new = Arc::default();
            self.outer.put(inner, version, (now, ends), (&new, OUTER_MAX * size_of::<Digest>()));
            new
        });
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&outer) {
            if known.len() >= OUTER_MAX {
                return;
            }
            known.push(outer);
        }
        self.verdicts.put(outer, version, (now, ends), (verdict, verdict.weight()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::filter::passing::Passing;
    use crate::filter::token_cache::digest_of;
    use crate::jose::Claims;

    #[test]
    fn of_one_token_inside_only_a_few_are_kept_and_those_stay() {
        let wrapped = Wrapped::default();
        let passing = Passing::compile(None, None, "sub".to_owned()).unwrap();
        let claims = Claims::from_json(json!({ "sub": "ann" }).to_string().as_bytes()).unwrap();
        let verdict = Arc::new(passing.judge(claims));
        let digest = |number: u32| digest_of(&number.to_le_bytes());
        let other = (digest(1_000_001), digest(1_000_002));
        wrapped.put(other, 1, (0, 10), &verdict);
        for number in 0..20_000 {
            wrapped.put((digest(1_000_000), digest(number)), 1, (0, 10), &verdict);
        }
        let kept = |number: &u32| wrapped.get(&digest(*number), 1, 0).is_some();
        assert_eq!((0..20_000).filter(kept).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(wrapped.get(&other.1, 1, 0).is_some());
        // With other keys all begins again.
        wrapped.put((digest(1_000_000), digest(9)), 2, (0, 10), &verdict);
        assert!(wrapped.get(&digest(9), 2, 0).is_some());
    }
}
