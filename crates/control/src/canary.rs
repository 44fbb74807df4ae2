//! A canary: a configuration that a share of exchanges uses before it is promoted. Its terms, and the verdict on what was measured. Pure.

use std::time::Duration;

use serde::Serialize;
use telemetry::trial::Outcome;

/// Canaries that are remembered; the oldest are forgotten.
pub const CANARIES_MAX: usize = 16;
/// Longest time.
pub const TIME_MAX: Duration = Duration::from_secs(3_600);
/// Time by which latencies may differ whatever is allowed: below it, they tell of the machine and not of the plan.
const LATENCY_GRAIN: Duration = Duration::from_millis(1);
/// How sure it must be that a bound is passed for the trial to end before its time, in standard deviations.
const SURE: f64 = 3.0;

/// The terms of a canary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Terms {
    /// Share of exchanges and TCP connections that go by it, in percent: 1 to 99.
    pub share_percent: u8,
    /// How long, in seconds.
    #[serde(rename = "for_s", serialize_with = "seconds")]
    pub time: Duration,
    /// So many in a hundred may fail more than under the old one.
    pub errors_max_percent: f64,
    /// The time that nine of ten stay below may be so much longer than under the old one, in percent.
    pub latency_max_percent: f64,
    /// With fewer exchanges on the new side there is no verdict, and the canary is rolled back.
    pub exchanges_min: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            share_percent: 10,
            time: Duration::from_secs(60),
            errors_max_percent: 1.0,
            latency_max_percent: 50.0,
            exchanges_min: 20,
        }
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is tried on.
    GoOn,
    /// It is promoted, for this reason.
    Promote(String),
    /// The old one stays, for this reason.
    GoBack(String),
}

/// What follows, so long after the beginning. Before the time is over, only what is beyond doubt ends it.
pub fn judge(terms: &Terms, elapsed: Duration, old: &Outcome, new: &Outcome) -> Verdict {
    let is_over = elapsed >= terms.time;
    if new.exchanges < terms.exchanges_min {
        return if is_over {
            let (seen, least) = (new.exchanges, terms.exchanges_min);
            Verdict::GoBack(format!("only {seen} exchanges used it, fewer than the {least} needed to decide"))
        } else {
            Verdict::GoOn
        };
    }
    if let Some(reason) = too_many_errors(terms, is_over, old, new).or_else(|| too_slow(terms, is_over, old, new)) {
        return Verdict::GoBack(reason);
    }
    if is_over {
        return Verdict::Promote(format!("{} exchanges used it, {} failed", new.exchanges, new.failed));
    }
    Verdict::GoOn
}

fn too_many_errors(terms: &Terms, is_over: bool, old: &Outcome, new: &Outcome) -> Option<String> {
    let usual = old.failed as f64 / old.exchanges.max(1) as f64;
    let allowed = (usual + terms.errors_max_percent / 100.0).clamp(0.0, 1.0);
    let count = new.exchanges as f64;
    let doubt = if is_over { 0.0 } else { SURE * (count * allowed * (1.0 - allowed)).sqrt() };
    (new.failed as f64 > count * allowed + doubt).then(|| {
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let (is, was) = (percent(new.failed as f64 / count), percent(usual));
        format!("{} of {} exchanges failed ({is}); {was} with the previous configuration", new.failed, new.exchanges)
    })
}

fn too_slow(terms: &Terms, is_over: bool, old: &Outcome, new: &Outcome) -> Option<String> {
    // There has to be something to compare with.
    if old.latency.count() < terms.exchanges_min || new.latency.count() < terms.exchanges_min {
        return None;
    }
    let usual = old.latency.quantile(0.9);
    let allowed = usual.mul_f64(1.0 + terms.latency_max_percent / 100.0).max(usual + LATENCY_GRAIN);
    // A histogram knows a time to a sixteenth.
    let allowed = allowed.mul_f64(1.0 + 1.0 / 16.0);
    // Before its time: when half of all are beyond what nine of ten should be below.
    let seen = new.latency.quantile(if is_over { 0.9 } else { 0.5 });
    (seen > allowed).then(|| {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1_000.0);
        let share = if is_over { "one of ten exchanges" } else { "half of the exchanges" };
        format!("{share} took longer than {}; p90 with the previous configuration: {}", ms(seen), ms(usual))
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use model::{Facts, Name, Scheme};
    use telemetry::trial::Trial;
    use telemetry::{Kind, Record};

    use super::*;

    /// So many exchanges, so many of them failed, all of this time but for one in ten.
    fn outcome(exchanges: u64, failed: u64, ms: u64) -> Outcome {
        // Before any of them began.
        let since = Instant::now().checked_sub(Duration::from_millis(ms)).expect("clocks run for longer");
        let trial = Trial::new(1, 1, since);
        let (listener, peer) = (&Name::from("web"), SocketAddr::from(([127, 0, 0, 1], 1)));
        let (scheme, client) = (Scheme::Http, peer.ip());
        let facts =
            Facts { peer, client, local: peer, scheme, tls: None, sender: None, listener, request_id: "", user: None };
        for number in 0..exchanges {
            let mut record = Record::empty(&facts, Kind::Exchange);
            record.response_status = if number < failed { 500 } else { 200 };
            record.phases.total = Duration::from_millis(ms);
            trial.count(0, 1, &record);
        }
        trial.outcomes().1
    }

    fn verdict(seconds: u64, old: (u64, u64, u64), new: (u64, u64, u64)) -> Verdict {
        let of = |(exchanges, failed, ms)| outcome(exchanges, failed, ms);
        judge(&Terms::default(), Duration::from_secs(seconds), &of(old), &of(new))
    }

    fn goes_back(verdict: &Verdict, words: &str) -> bool {
        matches!(verdict, Verdict::GoBack(reason) if reason.contains(words))
    }

    #[test]
    fn what_is_as_good_as_the_old_one_comes_into_force_when_its_time_is_over() {
        assert_eq!(verdict(59, (900, 0, 10), (100, 0, 10)), Verdict::GoOn);
        assert!(matches!(verdict(60, (900, 0, 10), (100, 0, 10)), Verdict::Promote(_)));
        assert!(
            matches!(verdict(60, (900, 90, 10), (100, 11, 10)), Verdict::Promote(_)),
            "the old one failed as often"
        );
        assert!(matches!(verdict(60, (900, 0, 10), (100, 1, 14)), Verdict::Promote(_)), "within the bounds");
        assert!(matches!(verdict(60, (0, 0, 0), (100, 0, 500)), Verdict::Promote(_)), "nothing to compare with");
        assert!(matches!(verdict(60, (900, 0, 0), (100, 0, 1)), Verdict::Promote(_)), "a millisecond is nothing");
    }

    #[test]
    fn what_is_worse_goes_back() {
        assert!(goes_back(&verdict(60, (900, 0, 10), (100, 2, 10)), "2 of 100 exchanges failed (2.00 %)"));
        assert!(goes_back(&verdict(60, (900, 0, 10), (100, 0, 17)), "one of ten exchanges took longer than"));
        assert!(goes_back(
            &verdict(60, (900, 0, 10), (19, 0, 10)),
            "only 19 exchanges used it, fewer than the 20 needed"
        ));
    }

    #[test]
    fn before_its_time_only_what_is_beyond_doubt_ends_it() {
        assert_eq!(verdict(5, (900, 0, 10), (100, 2, 10)), Verdict::GoOn, "it may be chance");
        assert!(goes_back(&verdict(5, (900, 0, 10), (100, 20, 10)), "20 of 100"));
        assert!(goes_back(&verdict(1, (900, 0, 10), (20, 20, 10)), "20 of 20"));
        assert_eq!(verdict(1, (900, 0, 10), (19, 19, 10)), Verdict::GoOn, "too few to say anything");
        assert!(goes_back(&verdict(5, (900, 0, 10), (100, 0, 100)), "half of the exchanges took longer"));
    }
}
