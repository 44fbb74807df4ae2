//! Who stands out, judged by what an interval brought: pure functions over numbers.

use std::time::Duration;

use model::fitness::{FailureRate, LatencyOutliers, PassiveHealth, SuccessRate};

use super::Evidence;

/// What an interval brought for one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Answers below 500.
    pub good: u64,
    /// Failures, and statuses from 500.
    pub bad: u64,
    /// Good ones of which it is not known how long they took.
    pub untimed: u64,
    /// Latency of the other good ones, added up.
    pub latency_nanos: u64,
}

impl Window {
    fn requests(&self) -> u64 {
        self.good + self.bad
    }

    /// Returns the share of good responses; 1 if there were none.
    fn success(&self) -> f64 {
        if self.requests() == 0 { 1.0 } else { self.good as f64 / self.requests() as f64 }
    }

    /// Returns the good responses whose time is known.
    fn timed(&self) -> u64 {
        // Both are taken while others count.
        self.good.saturating_sub(self.untimed)
    }

    fn mean_latency_nanos(&self) -> f64 {
        self.latency_nanos as f64 / self.timed().max(1) as f64
    }
}

/// Returns the places of those that stand out, the worst first, each once: for failing in themselves, for failing more than the others, for
/// being slower than the others.
pub fn find(rules: &PassiveHealth, windows: &[Window]) -> Vec<(usize, Evidence)> {
    let mut found: Vec<(usize, Evidence)> = Vec::new();
    let failing = rules.failure_rate.iter().flat_map(|rule| failing(rule, windows));
    let less_successful = rules.success_rate.iter().flat_map(|rule| less_successful(rule, windows));
    let slower = rules.latency.iter().flat_map(|rule| slower(rule, windows));
    for (place, evidence) in failing.chain(less_successful).chain(slower) {
        if found.iter().all(|(known, _)| *known != place) {
            found.push((place, evidence));
        }
    }
    found
}

fn failing(rule: &FailureRate, windows: &[Window]) -> Vec<(usize, Evidence)> {
    let is_bad = |window: &Window| {
        let requests = window.requests();
        requests >= rule.requests_min.max(1)
            && u128::from(window.bad) * 100 > u128::from(requests) * u128::from(rule.percent_max)
    };
    let mut found: Vec<_> = windows.iter().enumerate().filter(|(_, window)| is_bad(window)).collect();
    found.sort_by(|(_, a), (_, b)| a.success().total_cmp(&b.success()));
    let told = |(place, window): (usize, &Window)| {
        (place, Evidence::FailureRate { bad: window.bad, requests: window.requests() })
    };
    found.into_iter().map(told).collect()
}

fn less_successful(rule: &SuccessRate, windows: &[Window]) -> Vec<(usize, Evidence)> {
    let has_enough = |(_, window): &(usize, &Window)| window.requests() >= rule.requests_min.max(1);
    let mut rates: Vec<(usize, f64)> =
        windows.iter().enumerate().filter(has_enough).map(|(place, window)| (place, window.success())).collect();
    if rates.len() < rule.endpoints_min.max(2) as usize {
        return Vec::new();
    }
    let count = rates.len() as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    let variance = rates.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / count;
    let needed = (mean - rule.deviations * variance.sqrt()).min(f64::from(rule.enough_percent) / 100.0);
    rates.retain(|(_, rate)| *rate < needed);
    rates.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    rates.into_iter().map(|(place, rate)| (place, Evidence::SuccessRate { rate, mean, needed })).collect()
}

fn slower(rule: &LatencyOutliers, windows: &[Window]) -> Vec<(usize, Evidence)> {
    let has_enough = |(_, window): &(usize, &Window)| window.timed() >= rule.requests_min.max(1);
    let mut means: Vec<(usize, f64)> = windows
        .iter()
        .enumerate()
        .filter(has_enough)
        .map(|(place, window)| (place, window.mean_latency_nanos()))
        .collect();
    if means.len() < rule.endpoints_min.max(2) as usize {
        return Vec::new();
    }
    means.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let enough = rule.enough.as_nanos() as f64;
    let judge = |rank: usize| {
        let (place, mean) = means[rank];
        let others = median_without(&means, rank);
        let is_slow = mean > enough && mean > others * rule.factor;
        let evidence = Evidence::Latency { mean: nanos(mean), others: nanos(others) };
        is_slow.then_some((place, evidence))
    };
    (0..means.len()).filter_map(judge).collect()
}

/// Returns the median of a sorted list without one of its items; of an even number the larger of the two in the middle counts, as it lets
/// more pass.
fn median_without(means: &[(usize, f64)], rank: usize) -> f64 {
    // In falling order: the first of the middle is the larger.
    let middle = (means.len() - 2) / 2;
    means[if middle >= rank { middle + 1 } else { middle }].1
}

fn nanos(nanos: f64) -> Duration {
    Duration::from_nanos(nanos as u64)
}
