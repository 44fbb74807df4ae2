//! How long to wait before something is asked again.

use std::time::Duration;

/// The first wait after a failure.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long to wait after so many failures in a row, between 1 s and 30 s, doubled each time, and by up to a quarter less, so
/// that many instances do not ask at once.
pub(crate) fn backoff(failures: u32, name: &str) -> Duration {
    let whole = BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(5)).min(BACKOFF_MAX);
    jittered(whole, name)
}

/// By up to a quarter less.
pub(crate) fn jittered(whole: Duration, name: &str) -> Duration {
    whole.saturating_sub(chance(whole / 4, name))
}

/// A time below this, at random.
pub(crate) fn chance(below: Duration, name: &str) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    // The keys of each state are random.
    let chance = RandomState::new().hash_one(name) % 1024;
    below / 1024 * u32::try_from(chance).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_failures_grows_to_a_bound_and_is_not_the_same_for_all() {
        for (failures, whole) in [(0, 1), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (1000, 30)] {
            let wait = backoff(failures, "a");
            let whole = Duration::from_secs(whole);
            assert!(wait <= whole && wait >= whole * 3 / 4, "{failures}: {wait:?}");
        }
        let waits: std::collections::BTreeSet<Duration> = (0..20).map(|_| backoff(6, "a")).collect();
        assert!(waits.len() > 1);
    }
}
