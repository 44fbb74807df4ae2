//! Waiting for something to become true, with a bound.

use std::time::{Duration, Instant};

/// Longest that any test waits for one thing. Generous, since the machine may be busy: a test that passes is never
/// slower for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What users are promised: a change that somebody else has made is felt within this.
pub(crate) const SECOND: Duration = Duration::from_secs(1);

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

/// Makes changes, each of which tells how long it took until it was felt, and looks whether half of them were felt within `bound`. The
/// machine may be busy just then: before that is denied, all is measured again, twice. `change` is told how many there were before.
pub(crate) fn half_within(bound: Duration, what: &str, mut change: impl FnMut(usize) -> Duration) {
    let mut number = 0;
    for _ in 0..3 {
        let mut took = [Duration::ZERO; 9];
        for one in &mut took {
            *one = change(number);
            number += 1;
        }
        took.sort();
        let [first, .., last] = took;
        let half = took[took.len() / 2];
        println!("{what}: felt within {half:?} by half of them, the first within {first:?}, the last within {last:?}");
        if half <= bound {
            return;
        }
    }
    panic!("{what}: never felt within {bound:?} by half of them");
}
