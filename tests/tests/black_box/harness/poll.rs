//! Waiting for something to become true, with a bound.

use std::time::{Duration, Instant};

/// Longest that any test waits for one thing. Generous, since the machine may be busy: a test that passes is never
/// slower for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Time between two looks.
pub(crate) const STEP: Duration = Duration::from_millis(4);

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(STEP);
    }
}

/// Waits until `holds`.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}
