//! Every request of a run: what it shows of the configuration that it met, and what changes did to it.

use super::changes::Change;
use super::held_up::Unpaused;
use crate::generators::vegeta::Row;
use crate::measure::stats::percentile;
use crate::net::mongrel::{SEEN_FIELD, Seen, TARGET_FIELD};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// When it began, us since 1970.
    pub began_us: u64,
    pub latency_us: u64,
    pub is_good: bool,
    /// What the answer shows.
    pub shows: Shows,
}

/// What an answer shows of the configuration that it met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shows {
    pub fourth: bool,
    pub cors: bool,
    pub header: bool,
    pub rewrite: bool,
}

impl Request {
    pub(super) fn new(row: &Row) -> Self {
        let seen = row.field(SEEN_FIELD).and_then(Seen::parse);
        let shows = Shows {
            fourth: seen.is_some_and(|seen| seen.address == 3),
            cors: row.field("access-control-allow-origin").is_some(),
            header: row.field("x-lab-added").is_some(),
            rewrite: row.field(TARGET_FIELD).is_some_and(|target| target.starts_with("/new/")),
        };
        // An answer that no origin gave is none, whatever its status.
        let is_good = row.is_good() && seen.is_some();
        Self { began_us: row.began_ns / 1000, latency_us: row.latency_ns / 1000, is_good, shows }
    }

    pub(super) fn ended_us(&self) -> u64 {
        self.began_us + self.latency_us
    }
}

/// Why a request failed, without what differs from one to the next (addresses with ports).
pub(super) fn problem(row: &Row) -> String {
    if row.error.is_empty() {
        return if row.is_good() { "not answered by an origin".to_owned() } else { format!("status {}", row.status) };
    }
    let parts: Vec<&str> = row.error.split(": ").filter(|part| !part.contains("127.0.0.1")).collect();
    let end = parts[parts.len().saturating_sub(2)..].join(": ");
    end.chars().take(120).collect()
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Made {
    pub change: Change,
    /// When it was begun, us since 1970.
    pub at_us: u64,
    /// How long it took the lab to make it known: a signal, a file, a command.
    pub took_us: u64,
    /// What was looked at beside the answers: when it was seen to be in force, us after its begin.
    pub seen_us: Option<u64>,
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Effect {
    pub change: Change,
    /// Seconds since the first request.
    pub at_s: f64,
    /// How long it took the lab to make it known, ms.
    pub took_ms: f64,
    /// From the begin of the change until no answer showed the old state any more, ms; `None`: it never came to that.
    pub settled_ms: Option<f64>,
    /// The worst latency of a request under way in its window, ms.
    pub worst_ms: f64,
    /// Requests under way in its window that failed.
    pub failed: usize,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub requests: usize,
    pub failed: usize,
    /// How many failed of what.
    pub problems: BTreeMap<String, usize>,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// In the first second, when all connections are new.
    pub worst_start_ms: f64,
    /// In the windows of changes, and outside.
    pub worst_near_ms: f64,
    pub worst_far_ms: f64,
    /// Some of it once more, without the requests that pauses of the machine held up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpaused: Option<Unpaused>,
    pub effects: Vec<Effect>,
}

const START_US: u64 = 1_000_000;

/// Adds up a run. The requests are in the order in which they began.
pub(super) fn figures(requests: &[Request], made: &[Made], window_us: u64) -> Figures {
    let first_us = requests.first().map_or(0, |request| request.began_us);
    let mut times: Vec<f64> = requests.iter().filter(|one| one.is_good).map(|one| ms(one.latency_us)).collect();
    times.sort_by(f64::total_cmp);
    let at = |percent| percentile(&times, percent).unwrap_or(0.0);
    let is_near = |one: &Request| made.iter().any(|made| is_under_way(one, made.at_us, window_us));
    let is_start = |one: &Request| one.began_us < first_us + START_US;
    let worst = |chosen: &dyn Fn(&Request) -> bool| {
        requests.iter().filter(|one| chosen(one)).map(|one| ms(one.latency_us)).fold(0.0, f64::max)
    };
    let effect = |(place, one): (usize, &Made)| {
        let until_us = made.get(place + 1).map_or(u64::MAX, |next| next.at_us);
        effect(requests, one, until_us, window_us)
    };
    Figures {
        requests: requests.len(),
        failed: requests.iter().filter(|one| !one.is_good).count(),
        problems: BTreeMap::new(),
        p50_ms: at(50.0),
        p99_ms: at(99.0),
        p999_ms: at(99.9),
        worst_start_ms: worst(&|one| is_start(one) && !is_near(one)),
        worst_near_ms: worst(&is_near),
        worst_far_ms: worst(&|one| !is_start(one) && !is_near(one)),
        unpaused: None,
        effects: made.iter().enumerate().map(effect).collect(),
    }
}

fn is_under_way(one: &Request, at_us: u64, window_us: u64) -> bool {
    one.began_us < at_us + window_us && one.ended_us() > at_us
}

fn effect(requests: &[Request], made: &Made, until_us: u64, window_us: u64) -> Effect {
    let first_us = requests.first().map_or(0, |request| request.began_us);
    let near: Vec<&Request> = requests.iter().filter(|one| is_under_way(one, made.at_us, window_us)).collect();
    Effect {
        change: made.change,
        at_s: made.at_us.saturating_sub(first_us) as f64 / 1e6,
        took_ms: ms(made.took_us),
        settled_ms: settled_us(requests, made, until_us).map(ms),
        worst_ms: near.iter().map(|one| ms(one.latency_us)).fold(0.0, f64::max),
        failed: near.iter().filter(|one| !one.is_good).count(),
    }
}

/// When the last request that still met the old state began, after the begin of the change; what a fourth origin needs to
/// be seen is its first request. `None` when the old state was still met in the last quarter of the time until the
/// next change, or the new one never.
fn settled_us(requests: &[Request], made: &Made, until_us: u64) -> Option<u64> {
    let wanted: fn(Shows) -> bool = match made.change {
        Change::Fourth => |shows| shows.fourth,
        Change::Three => |shows| !shows.fourth,
        Change::Cors => |shows| shows.cors,
        Change::Header => |shows| shows.header,
        Change::Rewrite => |shows| shows.rewrite,
        Change::Base => |shows| !shows.cors && !shows.header && !shows.rewrite,
        // Answers on connections that last do not show these: they were looked at.
        Change::Certificate | Change::Upgrade => return made.seen_us,
    };
    let span: Vec<&Request> =
        requests.iter().filter(|one| one.is_good && one.began_us >= made.at_us && one.began_us < until_us).collect();
    let shows_new = |one: &&&Request| wanted(one.shows);
    let first = span.iter().find(shows_new)?;
    if made.change == Change::Fourth {
        return Some(first.began_us - made.at_us);
    }
    let last_old = span.iter().rposition(|one| !wanted(one.shows));
    match last_old {
        None => Some(0),
        Some(place) if place + 1 > span.len() * 3 / 4 => None,
        Some(place) => Some(span[place].began_us - made.at_us),
    }
}

/// The points that are drawn: the slowest and the fastest of each slice of time, and everything above the limit.
/// The figures are of all requests.
pub(super) fn thinned(requests: &[Request], slice_us: u64, above_ms: f64) -> Vec<(f64, f64)> {
    let first_us = requests.first().map_or(0, |request| request.began_us);
    let slice = |one: &Request| one.began_us.saturating_sub(first_us) / slice_us.max(1);
    let mut points = Vec::new();
    for part in requests.chunk_by(|one, next| slice(one) == slice(next)) {
        let slowest = (0..part.len()).max_by_key(|place| part[*place].latency_us);
        let fastest = (0..part.len()).min_by_key(|place| part[*place].latency_us);
        let kept = part
            .iter()
            .enumerate()
            .filter(|(place, one)| Some(*place) == slowest || Some(*place) == fastest || ms(one.latency_us) > above_ms);
        points.extend(kept.map(|(_, one)| (one.began_us.saturating_sub(first_us) as f64 / 1e6, ms(one.latency_us))));
    }
    points
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request each 10 ms; after 5 s answers have CORS fields, with a mixture of 50 ms.
    fn run() -> Vec<Request> {
        let request = |n: u64| Request {
            began_us: 1_000_000_000 + n * 10_000,
            latency_us: 900 + n % 7,
            is_good: true,
            shows: Shows { cors: n >= 505 || n == 502, ..Shows::default() },
        };
        (0..1000).map(request).collect()
    }

    fn made(change: Change, at_ms: u64) -> Made {
        Made { change, at_us: 1_000_000_000 + at_ms * 1000, took_us: 10, seen_us: None }
    }

    #[test]
    fn a_change_has_settled_when_the_last_answer_of_the_old_state_was_asked_for() {
        let figures = figures(&run(), &[made(Change::Cors, 5000), made(Change::Upgrade, 9000)], 2_000_000);
        assert_eq!(figures.effects[0].settled_ms, Some(40.0));
        assert_eq!(figures.effects[1].settled_ms, None);
        assert!((figures.effects[0].at_s - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_change_that_never_comes_or_comes_too_late_has_not_settled() {
        let settled = |made: &[Made]| figures(&run(), made, 1_000_000).effects[0].settled_ms;
        assert_eq!(settled(&[made(Change::Header, 5000)]), None);
        assert_eq!(settled(&[made(Change::Cors, 4000), made(Change::Header, 5060)]), None);
        assert_eq!(settled(&[made(Change::Fourth, 5000)]), None);
        assert_eq!(settled(&[made(Change::Three, 5000)]), Some(0.0));
    }

    #[test]
    fn a_request_counts_for_a_change_when_it_was_under_way_in_its_window() {
        let mut requests = run();
        // It began before the change and ended after it.
        requests[490].latency_us = 300_000;
        requests[800].latency_us = 70_000;
        requests[20].latency_us = 50_000;
        requests[510] = Request { is_good: false, latency_us: 1, ..requests[510] };
        let figures = figures(&requests, &[made(Change::Cors, 5000)], 2_000_000);
        assert_eq!([figures.worst_near_ms, figures.worst_far_ms, figures.worst_start_ms], [300.0, 70.0, 50.0]);
        assert_eq!((figures.failed, figures.effects[0].failed, figures.requests), (1, 1, 1000));
    }

    #[test]
    fn thinning_keeps_extremes_of_each_slice_and_all_that_is_slow() {
        let mut requests = run();
        requests[333].latency_us = 80_000;
        requests[334].latency_us = 90_000;
        let points = thinned(&requests, 100_000, 50.0);
        assert!(points.len() <= 100 * 2 + 2 && points.len() > 100, "{}", points.len());
        let slow: Vec<f64> = points.iter().map(|point| point.1).filter(|time| *time > 50.0).collect();
        assert_eq!(slow, [80.0, 90.0]);
        assert!(thinned(&[], 100, 1.0).is_empty());
    }

    #[test]
    fn problems_are_told_without_what_differs() {
        let row = |status, error: &str| Row { status, error: error.to_owned(), ..Row::default() };
        let error = "Get \"https://127.0.0.1:1/\": read tcp 127.0.0.1:5->127.0.0.1:1: read: connection reset by peer";
        assert_eq!(problem(&row(0, error)), "read: connection reset by peer");
        assert_eq!(problem(&row(0, "Get \"https://127.0.0.1:1/\": EOF")), "EOF");
        assert_eq!(problem(&row(503, "")), "status 503");
        assert_eq!(problem(&row(503, "503 Service Unavailable")), "503 Service Unavailable");
    }
}
