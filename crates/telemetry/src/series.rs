//! What is counted for each listener, route, cluster and endpoint, and the one function that counts a record.
//!
//! A series holds one shard per worker. A shard is written by its worker alone, with plain loads and stores, and lies on
//! cache lines of its own. Shards are made at first use: an object that carries nothing costs 16 bytes per worker.

use std::sync::OnceLock;

use model::resilience::Refusal;
use model::{Fault, PickReason};

use crate::counter::{ClassCounters, Counter, FaultCounters};
use crate::histogram::{Histogram, nanos};
use crate::record::{Kind, Record};

/// One shard per worker, and one for what the process before has counted.
#[derive(Debug)]
pub struct Series<S> {
    shards: Box<[OnceLock<Box<S>>]>,
}

impl<S: Default> Series<S> {
    pub(crate) fn new(workers: usize) -> Self {
        Self { shards: (0..=workers).map(|_| OnceLock::new()).collect() }
    }

    /// Returns the counts of the previous process, which act as the shard of one more worker.
    pub(crate) fn inherited(&self) -> &S {
        self.shards[self.shards.len() - 1].get_or_init(Box::default)
    }

    /// Returns the shard of a worker, the only thread that writes to it.
    ///
    /// # Panics
    /// When there are not that many workers, which is a mistake in the calling code.
    #[inline]
    pub fn of(&self, worker: usize) -> &S {
        self.shards[worker].get_or_init(Box::default)
    }

    /// Returns the shards that were used so far.
    pub fn used(&self) -> impl Iterator<Item = &S> {
        self.shards.iter().filter_map(|shard| shard.get().map(|shard| &**shard))
    }

    /// Returns the used shards of the workers, and that of the previous process.
    pub(crate) fn used_apart(&self) -> [impl Iterator<Item = &S>; 2] {
        let (workers, before) = self.shards.split_at(self.shards.len() - 1);
        [workers, before].map(|shards| shards.iter().filter_map(|shard| shard.get().map(|shard| &**shard)))
    }
}

/// Counters of a listener.
pub type ListenerSeries = Series<ListenerShard>;
/// Counters of a route.
pub type RouteSeries = Series<RouteShard>;
/// Counters of a cluster.
pub type ClusterSeries = Series<ClusterShard>;
/// Counters of an endpoint.
pub type EndpointSeries = Series<EndpointShard>;

/// What one worker counts for one listener.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ListenerShard {
    /// Connections accepted. The data plane counts them.
    pub connections_opened: Counter,
    /// Of those, closed. The data plane counts them.
    pub connections_closed: Counter,
    /// Connections closed at once because of a limit. The data plane counts them.
    pub connections_refused: Counter,
    /// TLS handshakes in full. The data plane counts them.
    pub handshakes_full: Counter,
    /// TLS handshakes that resumed a session. The data plane counts them.
    pub handshakes_resumed: Counter,
    /// TLS handshakes that failed or took too long. The data plane counts them.
    pub handshakes_failed: Counter,
    /// Datagrams that were dropped, from clients or to them. The data plane counts them.
    pub datagrams_dropped: Counter,
    /// Clients of HTTP/3 that were asked to prove where they are. The data plane counts them.
    pub http3_retries: Counter,
    pub(crate) requests: ClassCounters,
    pub(crate) streams: Counter,
    pub(crate) stream_nanos: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) latency: Histogram,
    pub(crate) faults: FaultCounters,
}

impl ListenerShard {
    /// Counts a fault without a record, such as a failed handshake.
    pub fn fault(&self, fault: Fault) {
        self.faults.add(fault);
    }
}

/// What one worker counts for one route.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct RouteShard {
    pub(crate) requests: ClassCounters,
}

/// What one worker counts for one cluster.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ClusterShard {
    pub(crate) requests: ClassCounters,
    pub(crate) streams: Counter,
    /// Retries that the budget did not allow. The data plane counts them.
    pub retries_refused: Counter,
    /// Attempts beside the first. The data plane counts them.
    pub hedges: Counter,
    /// Of those, the ones whose answer came first. The data plane counts them.
    pub hedges_won: Counter,
    /// Hedges that the budget did not allow. The data plane counts them.
    pub hedges_refused: Counter,
    pub(crate) refused: [Counter; Refusal::ALL.len()],
    pub(crate) retries: Counter,
    /// In the order of [`model::persistence::SessionPick::ALL`].
    pub(crate) sessions: [Counter; 4],
    pub(crate) picks: [Counter; PickReason::ALL.len()],
    pub(crate) queue: Histogram,
    pub(crate) latency: Histogram,
    pub(crate) first_byte: Histogram,
    pub(crate) faults: FaultCounters,
}

impl ClusterShard {
    /// Counts what the guard of the cluster refused. The data plane calls it.
    pub fn refused(&self, refusal: Refusal) {
        self.refused[refusal as usize].add(1);
    }

    /// Counts the pick of an endpoint. The data plane calls it.
    #[inline]
    pub fn picked(&self, reason: PickReason) {
        self.picks[reason as usize].add(1);
    }

    pub(crate) fn picks(&self) -> [u64; PickReason::ALL.len()] {
        std::array::from_fn(|index| self.picks[index].get())
    }

    pub(crate) fn refusals(&self) -> [u64; Refusal::ALL.len()] {
        std::array::from_fn(|index| self.refused[index].get())
    }
}

/// What one worker counts for one endpoint.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct EndpointShard {
    /// Connections established. The data plane counts them.
    pub connects_opened: Counter,
    /// Connections that could not be established. The data plane counts them.
    pub connects_failed: Counter,
    /// Times a kept connection was used again. The data plane counts them.
    pub reused: Counter,
    pub(crate) requests: ClassCounters,
    pub(crate) streams: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) nanos: Counter,
    pub(crate) faults: FaultCounters,
}

impl EndpointShard {
    /// Counts the fault of an attempt that was followed by another, since the record contains only the last one.
    pub fn fault(&self, fault: Fault) {
        self.faults.add(fault);
    }
}

/// Where a record is counted: shards of the worker that finished the exchange.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSeries<'a> {
    /// `None`: of a call that a filter has made.
    pub listener: Option<&'a ListenerShard>,
    /// When a route matched.
    pub route: Option<&'a RouteShard>,
    /// When a cluster was chosen.
    pub cluster: Option<&'a ClusterShard>,
    /// When an endpoint was tried; the last one.
    pub endpoint: Option<&'a EndpointShard>,
}

/// Counts one record. The only place that does.
pub fn count(record: &Record<'_>, into: &WorkerSeries<'_>) {
    // A request whose head never came whole was not served: how long it took says nothing. Nor does the life of a tunnel.
    let timed = record.kind == Kind::Exchange && record.request.is_some() && !record.is_tunnel();
    if let Some(listener) = into.listener {
        count_listener(record, listener, timed);
    }
    if let Some(route) = into.route {
        route.requests.add(record.response_status);
    }
    if let Some(cluster) = into.cluster {
        count_cluster(record, cluster, timed);
    }
    if let Some(endpoint) = into.endpoint {
        count_endpoint(record, endpoint);
    }
}

#[inline]
fn count_listener(record: &Record<'_>, shard: &ListenerShard, timed: bool) {
    match record.kind {
        Kind::Exchange => shard.requests.add(record.response_status),
        Kind::Stream | Kind::Flow => {
            shard.streams.add(1);
            shard.stream_nanos.add(nanos(record.phases.total));
        }
    }
    shard.received_bytes.add(record.received_bytes);
    shard.sent_bytes.add(record.sent_bytes);
    if timed {
        shard.latency.record(record.phases.total);
    }
    if let Some(fault) = record.fault {
        shard.faults.add(fault);
    }
}

#[inline]
fn count_cluster(record: &Record<'_>, shard: &ClusterShard, timed: bool) {
    match record.kind {
        Kind::Exchange => shard.requests.add(record.response_status),
        Kind::Stream | Kind::Flow => shard.streams.add(1),
    }
    if timed {
        shard.latency.record(record.phases.total);
    }
    // Without a response head from an endpoint there was no first byte to wait for.
    if !record.phases.first_byte.is_zero() {
        shard.first_byte.record(record.phases.first_byte);
    }
    if record.retries > 0 {
        shard.retries.add(u64::from(record.retries));
    }
    if let Some(session) = record.session {
        shard.sessions[session as usize].add(1);
    }
    if !record.phases.queue.is_zero() {
        shard.queue.record(record.phases.queue);
    }
    if let Some(fault) = record.fault {
        shard.faults.add(fault);
    }
}

#[inline]
fn count_endpoint(record: &Record<'_>, shard: &EndpointShard) {
    match record.kind {
        Kind::Exchange => shard.requests.add(record.response_status),
        Kind::Stream | Kind::Flow => shard.streams.add(1),
    }
    shard.received_bytes.add(record.received_bytes);
    shard.sent_bytes.add(record.sent_bytes);
    shard.nanos.add(nanos(record.phases.total));
    if let Some(fault) = record.fault {
        shard.faults.add(fault);
    }
}
