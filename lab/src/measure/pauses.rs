//! What the machine keeps from its programs: times in which one that could run did not, since the kernel or the host of the
//! machine had the core. No latency can be known better than that, whoever is measured.

use crate::sys;
use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

/// Shorter pauses are not told from those of the scheduler's own work.
const SHORTEST: Duration = Duration::from_millis(1);

/// Those of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pauses {
    longest: Duration,
    count: u32,
}

/// Looks at each core for so long, all at once, and says what was seen. The machine must have nothing else to do.
pub(crate) fn told(cores: &[usize], time: Duration) -> String {
    let of = |core: usize| thread::spawn(move || sys::pin_self(&[core]).map(|()| on_this_core(time)));
    let watched: Vec<_> = cores.iter().map(|&core| (core, of(core))).collect();
    let seen = watched.into_iter().filter_map(|(core, one)| Some((core, one.join().ok()?.ok()?)));
    in_words(&seen.collect::<Vec<_>>(), time)
}

fn on_this_core(time: Duration) -> Pauses {
    let (began, mut last, mut pauses) = (Instant::now(), Instant::now(), Pauses::default());
    while last - began < time {
        let now = Instant::now();
        pauses.note(now - last);
        last = now;
    }
    pauses
}

impl Pauses {
    fn note(&mut self, between: Duration) {
        self.longest = self.longest.max(between);
        self.count += u32::from(between >= SHORTEST);
    }
}

fn in_words(seen: &[(usize, Pauses)], time: Duration) -> String {
    let mut words = String::new();
    for (core, pauses) in seen {
        let longest = pauses.longest.as_secs_f64() * 1e3;
        let a_second = f64::from(pauses.count) / time.as_secs_f64();
        // Writing to a string cannot fail.
        let _ = write!(words, "core {core}: {a_second:.1} of 1 ms or more a second, the longest {longest:.1} ms; ");
    }
    words.trim_end_matches("; ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_from_a_millisecond_on_and_the_longest_is_kept() {
        let mut pauses = Pauses::default();
        for us in [3, 999, 1000, 7200, 40] {
            pauses.note(Duration::from_micros(us));
        }
        assert_eq!(pauses, Pauses { longest: Duration::from_micros(7200), count: 2 });
        assert_eq!(
            in_words(&[(0, pauses), (1, Pauses::default())], Duration::from_secs(4)),
            "core 0: 0.5 of 1 ms or more a second, the longest 7.2 ms; \
             core 1: 0.0 of 1 ms or more a second, the longest 0.0 ms"
        );
    }

    #[test]
    fn every_core_that_may_be_used_is_looked_at() {
        let cores = sys::cores_allowed().unwrap();
        let words = told(&cores, Duration::from_millis(5));
        assert_eq!(words.matches("core ").count(), cores.len(), "{words}");
    }
}
