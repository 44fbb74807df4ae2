//! What one process has counted, for another that counts on from there.
//!
//! Everything goes by names that do not change from one version to the next: a counter that the other process does not know
//! is passed over, and one that it does not tell of begins at 0.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::persistence::SessionPick;
use model::resilience::Refusal;
use model::{Fault, Name, PickReason};

use crate::counter::{ClassCounters, Counter, FaultCounters};
use crate::histogram::{Bin, Histogram};
use crate::record::CLASS_LABELS;
use crate::series::{ClusterShard, EndpointShard, ListenerShard, RouteShard, Series};

/// Counters of one object that are not 0, by their names.
pub type Counts = BTreeMap<String, u64>;

/// The counters of all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// By listener.
    pub listeners: Vec<(Name, Counts)>,
    /// By route.
    pub routes: Vec<(Name, Counts)>,
    /// By cluster.
    pub clusters: Vec<(Name, Counts)>,
    /// By cluster and endpoint.
    pub endpoints: Vec<((Name, Name), Counts)>,
    /// Of what is no more.
    pub gone: Gone,
}

/// What was counted of objects that are gone, so that totals never fall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Of listeners.
    pub listeners: Counts,
    /// Of clusters.
    pub clusters: Counts,
}

impl Gone {
    /// Adds what others have counted.
    pub(crate) fn add(&mut self, other: &Self) {
        add(&mut self.listeners, &other.listeners);
        add(&mut self.clusters, &other.clusters);
    }
}

/// Adds what was counted elsewhere of the same.
pub(crate) fn add(sums: &mut Counts, counts: &Counts) {
    for (name, count) in counts {
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.wrapping_add(*count);
    }
}

/// Takes away what is counted elsewhere.
pub(crate) fn subtract(sums: &mut Counts, counts: &Counts) {
    for (name, count) in counts {
        if let Some(sum) = sums.get_mut(name) {
            *sum = sum.saturating_sub(*count);
        }
    }
}

/// A part of a shard.
pub(crate) enum Part<'a> {
    One(&'a Counter),
    Classes(&'a ClassCounters),
    Several(&'a [Counter], fn(usize) -> &'static str),
    Faults(&'a FaultCounters),
    Times(&'a Histogram),
}

/// What is counted of one kind of object: all its parts by their names.
pub(crate) trait Shard: Default {
    fn parts(&self) -> Vec<(&'static str, Part<'_>)>;
}

impl Shard for ListenerShard {
    fn parts(&self) -> Vec<(&'static str, Part<'_>)> {
        use Part::{Classes, Faults, One, Times};
        vec![
            ("connections_opened", One(&self.connections_opened)),
            ("connections_closed", One(&self.connections_closed)),
            ("connections_refused", One(&self.connections_refused)),
            ("handshakes_full", One(&self.handshakes_full)),
            ("handshakes_resumed", One(&self.handshakes_resumed)),
            ("handshakes_failed", One(&self.handshakes_failed)),
            ("datagrams_dropped", One(&self.datagrams_dropped)),
            ("http3_retries", One(&self.http3_retries)),
            ("requests", Classes(&self.requests)),
            ("streams", One(&self.streams)),
            ("stream_nanos", One(&self.stream_nanos)),
            ("received_bytes", One(&self.received_bytes)),
            ("sent_bytes", One(&self.sent_bytes)),
            ("latency", Times(&self.latency)),
            ("faults", Faults(&self.faults)),
        ]
    }
}

impl Shard for RouteShard {
    fn parts(&self) -> Vec<(&'static str, Part<'_>)> {
        vec![("requests", Part::Classes(&self.requests))]
    }
}

impl Shard for ClusterShard {
    fn parts(&self) -> Vec<(&'static str, Part<'_>)> {
        use Part::{Classes, Faults, One, Several, Times};
        vec![
            ("requests", Classes(&self.requests)),
            ("streams", One(&self.streams)),
            ("retries", One(&self.retries)),
            ("retries_refused", One(&self.retries_refused)),
            ("hedges", One(&self.hedges)),
            ("hedges_won", One(&self.hedges_won)),
            ("hedges_refused", One(&self.hedges_refused)),
            ("refused", Several(&self.refused, |place| Refusal::ALL[place].as_str())),
            ("sessions", Several(&self.sessions, |place| SessionPick::ALL[place].as_str())),
            ("picks", Several(&self.picks, |place| PickReason::ALL[place].as_str())),
            ("queue", Times(&self.queue)),
            ("latency", Times(&self.latency)),
            ("first_byte", Times(&self.first_byte)),
            ("faults", Faults(&self.faults)),
        ]
    }
}

impl Shard for EndpointShard {
    fn parts(&self) -> Vec<(&'static str, Part<'_>)> {
        use Part::{Classes, Faults, One};
        vec![
            ("connects_opened", One(&self.connects_opened)),
            ("connects_failed", One(&self.connects_failed)),
            ("reused", One(&self.reused)),
            ("requests", Classes(&self.requests)),
            ("streams", One(&self.streams)),
            ("received_bytes", One(&self.received_bytes)),
            ("sent_bytes", One(&self.sent_bytes)),
            ("nanos", One(&self.nanos)),
            ("faults", Faults(&self.faults)),
        ]
    }
}

/// Returns the counts of an object from all workers and from earlier processes.
pub(crate) fn tell<S: Shard>(series: &Series<S>) -> Counts {
    tell_all(series.used())
}

/// Returns the counts of an object from all workers, and those of earlier processes.
pub(crate) fn tell_apart<S: Shard>(series: &Series<S>) -> [Counts; 2] {
    series.used_apart().map(tell_all)
}

fn tell_all<'a, S: Shard + 'a>(shards: impl Iterator<Item = &'a S>) -> Counts {
    let mut counts = Counts::new();
    let mut note = |name: String, count: u64| {
        if count > 0 {
            let sum: &mut u64 = counts.entry(name).or_default();
            *sum = sum.wrapping_add(count);
        }
    };
    for shard in shards {
        for (name, part) in shard.parts() {
            match part {
                Part::One(counter) => note(name.to_owned(), counter.get()),
                Part::Classes(classes) => {
                    for (class, counter) in CLASS_LABELS.iter().zip(classes.counters()) {
                        note(format!("{name}.{class}"), counter.get());
                    }
                }
                Part::Several(counters, label) => {
                    for (place, counter) in counters.iter().enumerate() {
                        note(format!("{name}.{}", label(place)), counter.get());
                    }
                }
                Part::Faults(faults) => {
                    for (fault, counter) in Fault::ALL.iter().zip(faults.counters().into_iter().flatten()) {
                        note(format!("{name}.{}", of_fault(*fault)), counter.get());
                    }
                }
                Part::Times(times) => times.each(&mut |bin, count| note(of_bin(name, bin), count)),
            }
        }
    }
    counts
}

/// Continues the counters of an object from these figures.
pub(crate) fn take<S: Shard>(series: &Series<S>, counts: &Counts) {
    let find = |name: &str| counts.get(name).copied().unwrap_or(0);
    for (name, part) in series.inherited().parts() {
        match part {
            Part::One(counter) => counter.set(find(name)),
            Part::Classes(classes) => {
                for (class, counter) in CLASS_LABELS.iter().zip(classes.counters()) {
                    counter.set(find(&format!("{name}.{class}")));
                }
            }
            Part::Several(counters, label) => {
                for (place, counter) in counters.iter().enumerate() {
                    counter.set(find(&format!("{name}.{}", label(place))));
                }
            }
            Part::Faults(faults) => {
                let begins = format!("{name}.");
                if faults.counters().is_none() && !counts.keys().any(|key| key.starts_with(&begins)) {
                    continue;
                }
                for (fault, counter) in Fault::ALL.iter().zip(faults.made()) {
                    counter.set(find(&format!("{name}.{}", of_fault(*fault))));
                }
            }
            Part::Times(times) => {
                // Those that are there: most of hundreds are not, and there may be thousands of objects.
                let begins = format!("{name}.from.");
                let from = counts.range::<str, _>((Bound::Included(begins.as_str()), Bound::Unbounded));
                let filled = from.map_while(|(key, count)| Some((key.strip_prefix(begins.as_str())?, *count)));
                let filled = filled.filter_map(|(micros, count)| Some((micros.parse().ok()?, count)));
                times.set(find(&of_bin(name, Bin::Nanos)), filled);
            }
        }
    }
}

fn of_bin(name: &str, bin: Bin) -> String {
    match bin {
        Bin::Nanos => format!("{name}.nanos"),
        Bin::From(micros) => format!("{name}.from.{micros}"),
    }
}

fn of_fault(fault: Fault) -> &'static str {
    fault.consequence().label
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Telemetry;

    fn page(telemetry: &Telemetry) -> String {
        let mut page = String::new();
        telemetry.expose(&[], &mut page);
        page.lines().filter(|line| !line.starts_with("process_")).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn what_is_configured_counts_on_though_it_was_not_used_here_yet() {
        let (old, new) = (Telemetry::new(2), Telemetry::new(1));
        let names: [Name; 2] = ["shop".into(), "away".into()];
        for name in &names {
            old.route(name).of(1).requests.add(200);
        }
        new.retain(&crate::tests::snapshot_with_route("shop").into());
        let counts: Counts = [("requests.2xx".to_owned(), 1)].into();
        for _ in 0..2 {
            new.inherit(&old.figures());
            assert_eq!(new.figures().routes, vec![(names[0].clone(), counts.clone())], "and nothing else is kept");
        }
        assert!(page(&new).contains("equipoise_route_requests_total{route=\"shop\",class=\"2xx\"} 1\n"));
        new.route(&names[0]).of(0).requests.add(200);
        old.route(&names[0]).of(0).requests.add(200);
        new.inherit(&old.figures());
        assert_eq!(new.summary().routes[0].1.requests(), 3);
    }

    #[test]
    fn a_process_that_follows_counts_on_and_figures_that_come_later_replace_those_before() {
        let (old, new) = (Telemetry::new(2), Telemetry::new(2));
        let names: [Name; 2] = ["site".into(), "a:1".into()];
        for telemetry in [&old, &new] {
            telemetry.listener(&names[0]);
            telemetry.route(&names[0]);
            telemetry.cluster(&names[0]);
            telemetry.endpoint(&names[0], &names[1]);
        }
        let count = |telemetry: &Telemetry, worker: usize| {
            let (listener, cluster) = (telemetry.listener(&names[0]), telemetry.cluster(&names[0]));
            listener.of(worker).connections_opened.add(3);
            listener.of(worker).requests.add(200);
            listener.of(worker).latency.record(Duration::from_micros(1_500));
            listener.of(worker).fault(Fault::ALL[1]);
            telemetry.route(&names[0]).of(worker).requests.add(404);
            cluster.of(worker).refused(Refusal::ALL[2]);
            cluster.of(worker).picked(PickReason::ALL[4]);
            cluster.of(worker).queue.record(Duration::from_secs(2));
            telemetry.endpoint(&names[0], &names[1]).of(worker).reused.add(5);
        };
        count(&old, 0);
        count(&old, 1);
        new.inherit(&old.figures());
        assert_eq!(page(&new), page(&old));
        assert_eq!(new.figures(), old.figures());
        count(&old, 1);
        new.inherit(&old.figures());
        assert_eq!(page(&new), page(&old), "not added twice");
        count(&new, 1);
        count(&old, 0);
        assert_eq!(page(&new), page(&old), "the fourth time by either");
        // Buckets of another version, and what is none.
        let strange = [("latency.nanos", 5), ("latency.from.16", 1), ("latency.from.33", 1), ("latency.from.x", 1)];
        let strange: Counts = strange.map(|(name, count)| (name.to_owned(), count)).into();
        let other = Telemetry::new(1);
        other.listener(&names[0]);
        other.inherit(&Figures { listeners: vec![(names[0].clone(), strange)], ..Figures::default() });
        let known: Counts = [("latency.nanos".to_owned(), 5), ("latency.from.16".to_owned(), 1)].into();
        assert_eq!(other.figures().listeners, vec![(names[0].clone(), known)]);
        let unknown = Figures { listeners: vec![("gone".into(), [("x".to_owned(), 1)].into())], ..Figures::default() };
        new.inherit(&unknown);
        assert_eq!(page(&new), page(&old));
    }

    #[test]
    fn totals_do_not_fall_by_what_either_process_has_no_more() {
        let (old, new) = (Telemetry::new(1), Telemetry::new(2));
        let name: Name = "web".into();
        let visit = |telemetry: &Telemetry, name: &str| {
            let (listener, cluster) = (telemetry.listener(&name.into()), telemetry.cluster(&name.into()));
            listener.of(0).requests.add(200);
            listener.of(0).latency.record(Duration::from_millis(3));
            cluster.of(0).retries.add(1);
        };
        let total = |telemetry: &Telemetry| {
            let total = telemetry.summary().total;
            (total.requests(), total.latency.count(), total.retries)
        };
        // One that is gone before the upgrade, one that goes with it, one that stays.
        visit(&old, "first");
        old.retain(&Default::default());
        visit(&old, "second");
        visit(&old, "web");
        assert_eq!(total(&old), (3, 3, 3));
        drop((new.listener(&name), new.cluster(&name)));
        for _ in 0..2 {
            new.inherit(&old.figures());
            assert_eq!(total(&new), (3, 3, 3));
        }
        visit(&new, "web");
        // It goes here, and the old one reports it once more.
        new.retain(&Default::default());
        assert_eq!(total(&new), (4, 4, 4));
        visit(&old, "web");
        new.inherit(&old.figures());
        assert_eq!(total(&new), (5, 5, 5));
        assert!(new.figures().listeners.is_empty());
        let next = Telemetry::new(1);
        next.inherit(&new.figures());
        assert_eq!(total(&next), (5, 5, 5), "and on to the next");
    }

    #[test]
    fn what_the_process_before_drops_while_it_drains_is_not_counted_twice() {
        let (old, new) = (Telemetry::new(1), Telemetry::new(1));
        let name: Name = "web".into();
        let total = |telemetry: &Telemetry| (telemetry.summary().total.requests(), telemetry.summary().total.retries);
        // An exchange holds what is not configured there any more.
        let held = (old.listener(&name), old.cluster(&name));
        old.retain(&Default::default());
        held.0.of(0).requests.add(200);
        held.1.of(0).retries.add(1);
        // Here it is configured, and used.
        let here = (new.listener(&name), new.cluster(&name));
        here.0.of(0).requests.add(200);
        new.inherit(&old.figures());
        assert_eq!(total(&new), (2, 1));
        held.0.of(0).requests.add(200);
        drop(held);
        for _ in 0..2 {
            new.inherit(&old.figures());
            assert_eq!(total(&new), (3, 1));
        }
        let next = Telemetry::new(1);
        next.inherit(&new.figures());
        assert_eq!(total(&next), (3, 1), "and on to the next");
        drop(here);
        new.retain(&Default::default());
        assert_eq!(total(&new), (3, 1), "nor when it goes here");
        new.inherit(&old.figures());
        assert_eq!(total(&new), (3, 1));
    }
}
