//! Totals at a moment, for the live line of the demo and the admin page.

use std::time::{Duration, Instant};

use model::resilience::Refusal;
use model::{Name, PickReason};

use crate::counter::FAULTS;
use crate::figures::{Gone, take};
use crate::histogram::HistogramSnapshot;
use crate::listing::Listing;
use crate::record::CLASSES;
use crate::series::{ClusterSeries, EndpointSeries, ListenerSeries, RouteSeries};

/// Counts that rise, of everything or of one object. What an object does not count stays zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Requests by class: no response, 1xx to 5xx.
    pub classes: [u64; CLASSES],
    /// TCP streams that ended.
    pub streams: u64,
    /// Datagrams that were dropped.
    pub datagrams_dropped: u64,
    /// Clients of HTTP/3 that were asked to prove where they are.
    pub http3_retries: u64,
    /// Connections opened: by clients of a listener, or to an endpoint.
    pub connections_opened: u64,
    /// Connections of clients that were closed.
    pub connections_closed: u64,
    /// Connections of clients that were refused.
    pub connections_refused: u64,
    /// Connections to an endpoint that could not be established.
    pub connects_failed: u64,
    /// Requests that reused a pooled connection to an endpoint.
    pub reused: u64,
    /// TLS handshakes: full, resumed, failed.
    pub handshakes: [u64; 3],
    /// Body and stream bytes from clients.
    pub received_bytes: u64,
    /// Body and stream bytes to clients.
    pub sent_bytes: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Retries that the budget did not allow.
    pub retries_refused: u64,
    /// Attempts beside the first: sent, won, refused for want of budget.
    pub hedges: [u64; 3],
    /// What circuit breakers refused, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// What became of sessions, in the order of [`model::persistence::SessionPick::ALL`].
    pub sessions: [u64; 4],
    /// Why endpoints were picked, in the order of [`PickReason::ALL`].
    pub picks: [u64; PickReason::ALL.len()],
    /// How long exchanges waited in the queue, however that ended.
    pub queue: HistogramSnapshot,
    /// Time of requests and streams at an endpoint, or of streams of a listener, added up, in nanoseconds.
    pub busy_nanos: u64,
    /// Faults, in the order of [`model::Fault::ALL`].
    pub faults: [u64; FAULTS],
    /// Times of whole requests.
    pub latency: HistogramSnapshot,
    /// Times until the head of the response came from an endpoint.
    pub first_byte: HistogramSnapshot,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            classes: [0; CLASSES],
            streams: 0,
            datagrams_dropped: 0,
            http3_retries: 0,
            connections_opened: 0,
            connections_closed: 0,
            connections_refused: 0,
            connects_failed: 0,
            reused: 0,
            handshakes: [0; 3],
            received_bytes: 0,
            sent_bytes: 0,
            retries: 0,
            retries_refused: 0,
            hedges: [0; 3],
            refused: [0; Refusal::ALL.len()],
            sessions: [0; 4],
            picks: [0; PickReason::ALL.len()],
            queue: HistogramSnapshot::default(),
            busy_nanos: 0,
            faults: [0; FAULTS],
            latency: HistogramSnapshot::default(),
            first_byte: HistogramSnapshot::default(),
        }
    }
}

fn add_all<const N: usize>(sums: &mut [u64; N], values: [u64; N]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(value);
    }
}

fn less<const N: usize>(now: &[u64; N], then: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|index| now[index].saturating_sub(then[index]))
}

impl Totals {
    /// Requests of every class.
    pub fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Requests answered with 5xx, or not at all.
    pub fn errors(&self) -> u64 {
        self.classes[0] + self.classes[5]
    }

    /// Connections of clients that are open.
    pub fn connections_open(&self) -> u64 {
        self.connections_opened.saturating_sub(self.connections_closed)
    }

    /// Returns what came after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let sub = u64::saturating_sub;
        Self {
            classes: less(&self.classes, &earlier.classes),
            streams: sub(self.streams, earlier.streams),
            datagrams_dropped: sub(self.datagrams_dropped, earlier.datagrams_dropped),
            http3_retries: sub(self.http3_retries, earlier.http3_retries),
            connections_opened: sub(self.connections_opened, earlier.connections_opened),
            connections_closed: sub(self.connections_closed, earlier.connections_closed),
            connections_refused: sub(self.connections_refused, earlier.connections_refused),
            connects_failed: sub(self.connects_failed, earlier.connects_failed),
            reused: sub(self.reused, earlier.reused),
            handshakes: less(&self.handshakes, &earlier.handshakes),
            received_bytes: sub(self.received_bytes, earlier.received_bytes),
            sent_bytes: sub(self.sent_bytes, earlier.sent_bytes),
            retries: sub(self.retries, earlier.retries),
            retries_refused: sub(self.retries_refused, earlier.retries_refused),
            hedges: less(&self.hedges, &earlier.hedges),
            refused: less(&self.refused, &earlier.refused),
            sessions: less(&self.sessions, &earlier.sessions),
            picks: less(&self.picks, &earlier.picks),
            queue: self.queue.since(&earlier.queue),
            busy_nanos: sub(self.busy_nanos, earlier.busy_nanos),
            faults: less(&self.faults, &earlier.faults),
            latency: self.latency.since(&earlier.latency),
            first_byte: self.first_byte.since(&earlier.first_byte),
        }
    }

    pub(crate) fn add_listener(&mut self, series: &ListenerSeries) {
        for shard in series.used() {
            // Closed before opened: a connection that opens and closes meanwhile must not make the difference negative.
            self.connections_closed += shard.connections_closed.get();
            self.connections_opened += shard.connections_opened.get();
            self.connections_refused += shard.connections_refused.get();
            add_all(
                &mut self.handshakes,
                [shard.handshakes_full.get(), shard.handshakes_resumed.get(), shard.handshakes_failed.get()],
            );
            add_all(&mut self.classes, shard.requests.get());
            self.streams += shard.streams.get();
            self.datagrams_dropped += shard.datagrams_dropped.get();
            self.http3_retries += shard.http3_retries.get();
            self.busy_nanos += shard.stream_nanos.get();
            self.received_bytes += shard.received_bytes.get();
            self.sent_bytes += shard.sent_bytes.get();
            shard.latency.add_to(&mut self.latency);
            shard.faults.add_to(&mut self.faults);
        }
    }

    /// Adds what listeners do not count; the totals over listeners are complete without it.
    pub(crate) fn add_cluster(&mut self, series: &ClusterSeries) {
        for shard in series.used() {
            self.retries += shard.retries.get();
            self.retries_refused += shard.retries_refused.get();
            add_all(&mut self.hedges, [shard.hedges.get(), shard.hedges_won.get(), shard.hedges_refused.get()]);
            add_all(&mut self.refused, shard.refusals());
            add_all(&mut self.sessions, std::array::from_fn(|place| shard.sessions[place].get()));
            add_all(&mut self.picks, shard.picks());
            shard.queue.add_to(&mut self.queue);
            shard.first_byte.add_to(&mut self.first_byte);
        }
    }

    pub(crate) fn of_gone(gone: &Gone) -> Self {
        let mut totals = Self::default();
        if !gone.listeners.is_empty() {
            let all = ListenerSeries::new(0);
            take(&all, &gone.listeners);
            totals.add_listener(&all);
        }
        if !gone.clusters.is_empty() {
            let all = ClusterSeries::new(0);
            take(&all, &gone.clusters);
            totals.add_cluster(&all);
        }
        totals
    }

    pub(crate) fn of_listener(series: &ListenerSeries) -> Self {
        let mut totals = Self::default();
        totals.add_listener(series);
        totals
    }

    pub(crate) fn of_route(series: &RouteSeries) -> Self {
        let mut totals = Self::default();
        for shard in series.used() {
            add_all(&mut totals.classes, shard.requests.get());
        }
        totals
    }

    pub(crate) fn of_cluster(series: &ClusterSeries) -> Self {
        let mut totals = Self::default();
        totals.add_cluster(series);
        for shard in series.used() {
            add_all(&mut totals.classes, shard.requests.get());
            totals.streams += shard.streams.get();
            shard.latency.add_to(&mut totals.latency);
            shard.faults.add_to(&mut totals.faults);
        }
        totals
    }

    pub(crate) fn of_endpoint(series: &EndpointSeries) -> Self {
        let mut totals = Self::default();
        for shard in series.used() {
            add_all(&mut totals.classes, shard.requests.get());
            totals.streams += shard.streams.get();
            totals.connections_opened += shard.connects_opened.get();
            totals.connects_failed += shard.connects_failed.get();
            totals.reused += shard.reused.get();
            totals.received_bytes += shard.received_bytes.get();
            totals.sent_bytes += shard.sent_bytes.get();
            totals.busy_nanos += shard.nanos.get();
            shard.faults.add_to(&mut totals.faults);
        }
        totals
    }
}

/// Totals of the program and of each object, in the order of names.
#[derive(Clone, Debug)]
pub struct Summary {
    /// When it was taken.
    pub at: Instant,
    /// Time since the earlier one that was subtracted; zero in a summary as taken.
    pub period: Duration,
    /// Over all listeners and clusters, those that are gone included, so it never falls.
    pub total: Totals,
    /// Per listener.
    pub listeners: Vec<(Name, Totals)>,
    /// Per route.
    pub routes: Vec<(Name, Totals)>,
    /// Per cluster.
    pub clusters: Vec<(Name, Totals)>,
    /// Per cluster and endpoint.
    pub endpoints: Vec<((Name, Name), Totals)>,
}

impl Summary {
    pub(crate) fn of(listing: &Listing) -> Self {
        let mut total = Totals::of_gone(&listing.gone);
        for (_, series) in &listing.listeners {
            total.add_listener(series);
        }
        for (_, series) in &listing.clusters {
            total.add_cluster(series);
        }
        Self {
            at: Instant::now(),
            period: Duration::ZERO,
            total,
            listeners: map(&listing.listeners, |series| Totals::of_listener(series)),
            routes: map(&listing.routes, |series| Totals::of_route(series)),
            clusters: map(&listing.clusters, |series| Totals::of_cluster(series)),
            endpoints: map(&listing.endpoints, |series| Totals::of_endpoint(series)),
        }
    }

    /// Returns what came after `earlier` was taken. Objects that were not there then count from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            at: self.at,
            period: self.at.saturating_duration_since(earlier.at),
            total: self.total.since(&earlier.total),
            listeners: subtract(&self.listeners, &earlier.listeners),
            routes: subtract(&self.routes, &earlier.routes),
            clusters: subtract(&self.clusters, &earlier.clusters),
            endpoints: subtract(&self.endpoints, &earlier.endpoints),
        }
    }

    /// Requests per second over [`Self::period`]; zero when nothing was subtracted.
    pub fn request_rate(&self) -> f64 {
        match self.period.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.total.requests() as f64 / seconds,
        }
    }
}

fn map<K: Clone, S>(series: &[(K, S)], totals: impl Fn(&S) -> Totals) -> Vec<(K, Totals)> {
    series.iter().map(|(key, series)| (key.clone(), totals(series))).collect()
}

/// Subtracts the earlier list from the later one; both are sorted by key.
fn subtract<K: Ord + Clone>(now: &[(K, Totals)], then: &[(K, Totals)]) -> Vec<(K, Totals)> {
    let earlier = |key: &K| then.binary_search_by(|(other, _)| other.cmp(key)).ok().map(|at| &then[at].1);
    now.iter()
        .map(|(key, totals)| (key.clone(), earlier(key).map_or_else(|| totals.clone(), |then| totals.since(then))))
        .collect()
}
