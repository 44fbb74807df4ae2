//! Which requests the machine held up, and the figures without them. The rule is the same for all products, and no product
//! is excused for more than the machine took: a request is left out when pauses were at least half of its time.

use super::requests::{Figures, Request};
use crate::measure::sentinel::{Pause, Seen};
use serde::{Deserialize, Serialize};

/// Figures without the requests that were held up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Unpaused {
    /// How many were.
    pub left_out: usize,
    pub p999_ms: f64,
    pub worst_near_ms: f64,
    pub worst_far_ms: f64,
}

/// The figures of what was not held up, added up as those of all are. `None` when what was seen excuses nobody: a product
/// can keep a plain thread from its core.
pub(super) fn unpaused(
    requests: &[Request],
    rate: u64,
    seen: &Seen,
    figures: impl Fn(&[Request]) -> Figures,
) -> Option<Unpaused> {
    if !seen.is_real_time {
        return None;
    }
    let kept = not_held_up(requests, rate, &seen.pauses);
    let Figures { p999_ms, worst_near_ms, worst_far_ms, .. } = figures(&kept);
    Some(Unpaused { left_out: requests.len() - kept.len(), p999_ms, worst_near_ms, worst_far_ms })
}

/// The requests, in the order in which they began, without those that spent half of their time or more in pauses. Their
/// time begins when they were due: a generator that was held up itself begins them after it, all at once.
fn not_held_up(requests: &[Request], rate: u64, pauses: &[Pause]) -> Vec<Request> {
    let spans = spans(pauses);
    let after = |number: usize| number as u64 * 1_000_000 / rate.max(1);
    // None began before it was due.
    let numbered = requests.iter().enumerate();
    let start_us = numbered.clone().map(|(number, one)| one.began_us.saturating_sub(after(number))).min().unwrap_or(0);
    let is_held_up = |number: usize, one: &Request| {
        let (due_us, ended_us) = (start_us + after(number), one.ended_us());
        let paused_us = overlap(&spans, due_us, ended_us);
        paused_us > 0 && paused_us * 2 >= ended_us - due_us
    };
    numbered.filter(|(number, one)| !is_held_up(*number, one)).map(|(_, one)| *one).collect()
}

/// The times in which any core paused, one after the other.
fn spans(pauses: &[Pause]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    let mut all: Vec<(u64, u64)> = pauses.iter().map(|pause| (pause.from_us, pause.to_us)).collect();
    all.sort_unstable();
    for (from, to) in all {
        match spans.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => spans.push((from, to)),
        }
    }
    spans
}

/// How much of the time between these lies in the spans.
fn overlap(spans: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let first = spans.partition_point(|span| span.1 <= from);
    let within = spans[first..].iter().take_while(|span| span.0 < to);
    within.map(|span| span.1.min(to) - span.0.max(from)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::requests::{Shows, figures};
    use super::*;

    const START: u64 = 1_000_000_000;

    /// A request each 10 ms that takes 1 ms; these take as long as they say.
    fn requests(slow: &[(usize, u64)]) -> Vec<Request> {
        let request = |n: usize| {
            let latency_us = slow.iter().find(|(number, _)| *number == n).map_or(1_000, |(_, time)| *time);
            Request { began_us: START + n as u64 * 10_000, latency_us, is_good: true, shows: Shows::default() }
        };
        (0..1000).map(request).collect()
    }

    fn pause(core: usize, from_ms: f64, to_ms: f64) -> Pause {
        let at = |ms: f64| START + (ms * 1000.0) as u64;
        Pause { core, from_us: at(from_ms), to_us: at(to_ms) }
    }

    fn left_out(requests: &[Request], pauses: &[Pause]) -> Vec<u64> {
        let kept = not_held_up(requests, 100, pauses);
        requests.iter().filter(|one| !kept.contains(one)).map(|one| (one.began_us - START) / 10_000).collect()
    }

    #[test]
    fn a_request_that_the_machine_held_up_is_left_out_and_one_beside_the_pause_is_not() {
        let requests = requests(&[(300, 7_000), (500, 7_000)]);
        assert_eq!(left_out(&requests, &[pause(1, 3000.5, 3006.0)]), [300]);
        assert_eq!(left_out(&requests, &[]), [0_u64; 0]);
    }

    #[test]
    fn a_slow_product_is_not_excused_by_a_short_pause_in_its_time() {
        let requests = requests(&[(300, 40_000), (500, 300_000)]);
        let left_out = left_out(&requests, &[pause(0, 3002.0, 3004.0), pause(0, 5100.0, 5150.0)]);
        // Those that were asked within the second pause alone.
        assert_eq!(left_out, [510, 511, 512, 513, 514]);
    }

    #[test]
    fn pauses_of_two_cores_at_the_same_time_count_once_and_those_one_after_the_other_both() {
        let requests = requests(&[(300, 9_000)]);
        assert_eq!(left_out(&requests, &[pause(0, 3002.0, 3005.0), pause(1, 3002.5, 3005.0)]), [0_u64; 0]);
        assert_eq!(left_out(&requests, &[pause(0, 3002.0, 3005.0), pause(1, 3006.0, 3008.0)]), [300]);
    }

    #[test]
    fn what_a_late_generator_began_after_a_pause_was_under_way_since_it_was_due() {
        let mut requests = requests(&[]);
        // It was due within the pause, and begun when it was over.
        requests[400].began_us += 6_000;
        assert_eq!(left_out(&requests, &[pause(1, 4000.0, 4006.0)]), [400]);
    }

    #[test]
    fn a_plain_thread_excuses_nobody() {
        let requests = requests(&[(300, 7_000)]);
        let seen = |is_real_time| Seen { is_real_time, pauses: vec![pause(1, 3000.5, 3006.0)], ..Seen::default() };
        let of = |seen: &Seen| unpaused(&requests, 100, seen, |kept| figures(kept, &[], 1_000_000));
        assert_eq!(of(&seen(false)), None);
        let without = of(&seen(true)).unwrap();
        assert_eq!((without.left_out, without.worst_far_ms), (1, 1.0));
    }
}
