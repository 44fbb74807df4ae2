//! Two plans side by side: what came of exchanges under the old one and under the one that is tried.
//!
//! While nothing is tried, nothing of this exists.

use std::sync::Arc;
use std::time::Instant;

use model::fault::Source;

use crate::counter::Counter;
use crate::histogram::{Histogram, HistogramSnapshot};
use crate::record::{Kind, Record};

/// The counts of a trial, a shard for each worker.
#[derive(Debug)]
pub struct Trial {
    /// The generation of the plan that is tried first. When both plans get other endpoints meanwhile, the next two numbers are those
    /// of the active one and of the one that is tried, and so on: every second one from here on is new, every other is old.
    generation: u64,
    /// When it began. Trials use numbers of generations again: what began before this one may be of another.
    since: Instant,
    shards: Box<[Shard]>,
}

/// On cache lines of its own: no two workers write to the same one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    old: Tally,
    new: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    exchanges: Counter,
    failed: Counter,
    latency: Histogram,
}

/// What came of exchanges and streams under one plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// All that have ended.
    pub exchanges: u64,
    /// Those that failed, but for faults of clients: no answer, one that was made here for want of another, or a status of 500
    /// and more.
    pub failed: u64,
    /// Time of exchanges, without streams and tunnels, whose clients stay as long as they like.
    pub latency: HistogramSnapshot,
}

impl Trial {
    /// Returns empty counts.
    pub fn new(generation: u64, workers: usize, since: Instant) -> Arc<Self> {
        Arc::new(Self { generation, since, shards: (0..workers.max(1)).map(|_| Shard::default()).collect() })
    }

    /// Counts what has ended under the plan of this generation, unless it began before the trial. Only the worker may
    /// call it.
    pub fn count(&self, worker: usize, generation: u64, record: &Record<'_>) {
        let Some(shard) = self.shards.get(worker).filter(|_| record.kind != Kind::Flow) else { return };
        if record.phases.total > self.since.elapsed() {
            return;
        }
        let is_new = generation >= self.generation && (generation - self.generation).is_multiple_of(2);
        let tally = if is_new { &shard.new } else { &shard.old };
        tally.exchanges.add(1);
        let is_our_fault = record.fault.is_some_and(|fault| fault.consequence().source != Source::Downstream);
        if is_our_fault || record.response_status >= 500 {
            tally.failed.add(1);
        }
        if record.kind == Kind::Exchange && !record.is_tunnel() {
            tally.latency.record(record.phases.total);
        }
    }

    /// Returns the counts so far: with the old plan, and with the new one.
    pub fn outcomes(&self) -> (Outcome, Outcome) {
        let sum = |side: fn(&Shard) -> &Tally| {
            self.shards.iter().map(side).fold(Outcome::default(), |mut sum, tally| {
                sum.exchanges += tally.exchanges.get();
                sum.failed += tally.failed.get();
                tally.latency.add_to(&mut sum.latency);
                sum
            })
        };
        (sum(|shard| &shard.old), sum(|shard| &shard.new))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use model::{Facts, Fault, Name, Scheme};

    use super::*;

    fn a_second_ago() -> Instant {
        Instant::now().checked_sub(Duration::from_secs(1)).expect("clocks run for longer")
    }

    #[test]
    fn what_began_before_the_trial_is_not_counted() {
        let trial = Trial::new(7, 1, a_second_ago());
        let (listener, peer) = (&Name::from("web"), SocketAddr::from(([127, 0, 0, 1], 1)));
        let (scheme, client) = (Scheme::Http, peer.ip());
        let facts =
            Facts { peer, client, local: peer, scheme, tls: None, sender: None, listener, request_id: "", user: None };
        for kind in [Kind::Exchange, Kind::Stream] {
            for total in [Duration::from_millis(900), Duration::from_secs(86_400)] {
                let mut record = Record::empty(&facts, kind);
                (record.response_status, record.phases.total) = (500, total);
                trial.count(0, 6, &record);
                trial.count(0, 7, &record);
            }
        }
        let (old, new) = trial.outcomes();
        assert_eq!((old.exchanges, old.failed, old.latency.count()), (2, 2, 1));
        assert_eq!((new.exchanges, new.failed, new.latency.count()), (2, 2, 1));
    }

    #[test]
    fn both_sides_are_counted_apart() {
        let trial = Trial::new(7, 2, a_second_ago());
        let (listener, peer) = (&Name::from("web"), SocketAddr::from(([127, 0, 0, 1], 1)));
        let (scheme, client) = (Scheme::Http, peer.ip());
        let facts =
            Facts { peer, client, local: peer, scheme, tls: None, sender: None, listener, request_id: "", user: None };
        let record = |status, fault: Option<Fault>, ms| {
            let mut record = Record::empty(&facts, Kind::Exchange);
            (record.response_status, record.fault) = (status, fault);
            record.phases.total = Duration::from_millis(ms);
            record
        };
        trial.count(0, 6, &record(200, None, 10));
        trial.count(1, 6, &record(404, None, 10));
        trial.count(0, 7, &record(503, None, 30));
        trial.count(1, 7, &record(404, Some(Fault::NoRoute), 30));
        trial.count(1, 7, &record(0, Some(Fault::ClosedInResponse), 30));
        trial.count(9, 7, &record(500, None, 30));
        // Both were made again: active is 8, tried 9.
        trial.count(0, 8, &record(200, None, 10));
        trial.count(0, 9, &record(200, None, 30));
        trial.count(0, 5, &record(200, None, 10));
        let (old, new) = trial.outcomes();
        assert_eq!((old.exchanges, old.failed, old.latency.count()), (4, 0, 4));
        assert_eq!((new.exchanges, new.failed, new.latency.count()), (4, 2, 4));
        assert!(new.latency.quantile(0.5) > old.latency.quantile(0.9));
    }
}
