//! Every metric there is, as data. The Prometheus page and its reference are both made from this table.
//!
//! Names begin with `equipoise_` (`process_` for what every program tells), count in base units, and end in the unit;
//! counters end in `_total`.

/// What kind of value a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises, until the program restarts.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by upper bound, with sum and count.
    Histogram,
}

impl MetricKind {
    /// As the exposition format writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What is fixed about a metric.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Its name on the page.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Names of its labels, in the order in which their values are given.
    pub labels: &'static [&'static str],
    /// What it means, in a sentence or two. Begins with a space.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $id:ident = $kind:ident $name:literal [$($label:literal),*];)+) => {
        /// A metric, in the order of the page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Metric {
            $($(#[doc = $doc])+ $id,)+
        }

        impl Metric {
            /// Every metric, in the order of the page.
            pub const ALL: &'static [Self] = &[$(Self::$id,)+];

            /// What is fixed about it.
            pub const fn definition(self) -> Definition {
                match self {
                    $(Self::$id => Definition {
                        name: $name,
                        kind: MetricKind::$kind,
                        labels: &[$($label),*],
                        help: concat!($($doc),+),
                    },)+
                }
            }
        }
    };
}

metrics! {
    /// Connections accepted.
    ConnectionsOpened = Counter "equipoise_connections_opened_total" ["listener"];
    /// Connections closed at once because the listener was full.
    ConnectionsRefused = Counter "equipoise_connections_refused_total" ["listener"];
    /// Connections open now.
    ConnectionsOpen = Gauge "equipoise_connections_open" ["listener"];
    /// TLS handshakes with clients; `result` is `full`, `resumed` or `failed`.
    TlsHandshakes = Counter "equipoise_tls_handshakes_total" ["listener", "result"];
    /// Requests by class of the status sent to the client: `1xx` (tunnels) to `5xx`, or `none` when the exchange ended
    /// without a response.
    HttpRequests = Counter "equipoise_http_requests_total" ["listener", "class"];
    /// Time from the first byte of a request to the end of its response. Tunnels, and requests whose head never came
    /// whole, are left out.
    HttpRequestSeconds = Histogram "equipoise_http_request_seconds" ["listener"];
    /// TCP streams and UDP flows that ended.
    Streams = Counter "equipoise_streams_total" ["listener"];
    /// Total time that TCP streams and UDP flows were open, counted when they end.
    StreamSeconds = Counter "equipoise_stream_seconds_total" ["listener"];
    /// Datagrams from or to clients that were dropped: the limit on flows was reached, or a socket buffer was full. For HTTP/3 also those that could not be handed to another worker.
    DatagramsDropped = Counter "equipoise_datagrams_dropped_total" ["listener"];
    /// HTTP/3 clients that had to prove their address before the handshake (QUIC Retry), because there were many.
    Http3Retries = Counter "equipoise_http3_retries_total" ["listener"];
    /// Body and stream bytes received from clients.
    ReceivedBytes = Counter "equipoise_received_bytes_total" ["listener"];
    /// Body and stream bytes sent to clients.
    SentBytes = Counter "equipoise_sent_bytes_total" ["listener"];
    /// Faults, by kind and by source: `downstream`, `upstream` or `local`.
    Faults = Counter "equipoise_faults_total" ["listener", "source", "fault"];
    /// Requests that matched a route, by class of status.
    RouteRequests = Counter "equipoise_route_requests_total" ["route", "class"];
    /// Entries of a table of `tables`, those included whose time is over and whose place is free for others.
    TableEntries = Gauge "equipoise_table_entries" ["table"];
    /// Entries of a table that made room for others before their time: `keys_max` is small.
    TableEvictions = Counter "equipoise_table_evictions_total" ["table"];
    /// Whether an instance of `peers` gets what this one counts (1) or not (0).
    PeerConnected = Gauge "equipoise_peer_connected" ["peer"];
    /// Time since the oldest increment that a peer has not acknowledged.
    PeerLag = Gauge "equipoise_peer_lag_seconds" ["peer"];
    /// Bytes of increments that a peer has not acknowledged.
    PeerBacklog = Gauge "equipoise_peer_backlog_bytes" ["peer"];
    /// Records of keys sent to peers.
    PeersSent = Counter "equipoise_peers_sent_total" [];
    /// Records of keys received from peers and added.
    PeersReceived = Counter "equipoise_peers_received_total" [];
    /// Records of keys from peers whose table does not exist here, or counts something else.
    PeersSkipped = Counter "equipoise_peers_skipped_total" [];
    /// Segments and entries that were dropped before a peer had them; the peer is taught again.
    PeersDropped = Counter "equipoise_peers_dropped_total" [];
    /// Times that this instance took over the whole state of a peer.
    PeersResyncs = Counter "equipoise_peers_resyncs_total" [];
    /// Connections to the port of peers that were refused.
    PeersRefused = Counter "equipoise_peers_refused_total" [];
    /// Bytes of the files of a cache, in whole blocks of 4 KiB.
    CacheDiskBytes = Gauge "equipoise_cache_disk_bytes" ["cache"];
    /// Responses that a cache holds on disk.
    CacheDiskEntries = Gauge "equipoise_cache_disk_entries" ["cache"];
    /// Responses on disk that made room for others.
    CacheDiskEvictions = Counter "equipoise_cache_disk_evictions_total" ["cache"];
    /// Failures of a cache on disk: files that could not be written (`write`), responses that were not written because the disk was slow or
    /// had just failed (`dropped`), and files that were removed because they were cut short or altered (`bad_file`).
    CacheDiskFailures = Counter "equipoise_cache_disk_failures_total" ["cache", "reason"];
    /// Answers of a cache by where it had them: in `memory` or on `disk`. Only of caches with a disk.
    CacheHits = Counter "equipoise_cache_hits_total" ["cache", "tier"];
    /// Bytes that a cache of `caches` holds in memory, those of responses on their way included.
    CacheBytes = Gauge "equipoise_cache_bytes" ["cache"];
    /// Responses that a cache holds in memory.
    CacheEntries = Gauge "equipoise_cache_entries" ["cache"];
    /// Responses that made room for others in a cache.
    CacheEvictions = Counter "equipoise_cache_evictions_total" ["cache"];
    /// Responses of a cache that were purged.
    CachePurges = Counter "equipoise_cache_purged_total" ["cache"];
    /// Requests by a cache: `hit` if it has answered, fresh or stale, `miss` if an endpoint was asked.
    CacheRequests = Counter "equipoise_cache_requests_total" ["cache", "result"];
    /// Events of filters, by route, filter and event, such as requests that `rate_limit` has limited.
    FilterEvents = Counter "equipoise_filter_events_total" ["route", "filter", "event"];
    /// Requests for which a cluster was chosen, by class of status.
    ClusterRequests = Counter "equipoise_cluster_requests_total" ["cluster", "class"];
    /// TCP streams and UDP flows passed to a cluster that ended.
    ClusterStreams = Counter "equipoise_cluster_streams_total" ["cluster"];
    /// Time from the first byte of a request to the end of its response.
    ClusterRequestSeconds = Histogram "equipoise_cluster_request_seconds" ["cluster"];
    /// Time from sending a request to an endpoint to the head of the response.
    ClusterFirstByteSeconds = Histogram "equipoise_cluster_first_byte_seconds" ["cluster"];
    /// Attempts after the first.
    ClusterRetries = Counter "equipoise_cluster_retries_total" ["cluster"];
    /// Retries that the retry budget did not allow.
    ClusterRetriesRefused = Counter "equipoise_cluster_retries_refused_total" ["cluster"];
    /// Hedged attempts; `result` is `sent` (all of them), `won` (those that responded first) or `refused` (not sent, because of the budget).
    ClusterHedges = Counter "equipoise_cluster_hedges_total" ["cluster", "result"];
    /// Requests that a cluster rejected; `reason` is the limit: `requests`, `pending`, `connections`, `retries` (there was no further attempt), `error_ratio`, or `concurrency`, the limit of adaptive concurrency.
    ClusterRefused = Counter "equipoise_cluster_refused_total" ["cluster", "reason"];
    /// Current concurrency limit of a cluster with adaptive concurrency.
    ClusterConcurrencyLimit = Gauge "equipoise_cluster_concurrency_limit" ["cluster"];
    /// State of the circuit of a cluster with an `error_ratio`: 0 closed, 1 half-open, 2 open.
    ClusterCircuit = Gauge "equipoise_cluster_circuit" ["cluster"];
    /// Times the circuit of a cluster opened.
    ClusterCircuitOpened = Counter "equipoise_cluster_circuit_opened_total" ["cluster"];
    /// Requests and streams that waited in the queue, whatever the result.
    ClusterQueueWaits = Counter "equipoise_cluster_queue_waits_total" ["cluster"];
    /// Total time that requests and streams waited in the queue.
    ClusterQueueSeconds = Counter "equipoise_cluster_queue_seconds_total" ["cluster"];
    /// Time that requests and streams waited in the queue, whatever the result. Rejected and abandoned ones are counted as faults: `queue_full`, `queue_timeout`, `shed`, `closed_in_queue`.
    ClusterQueueWaitSeconds = Histogram "equipoise_cluster_queue_wait_seconds" ["cluster"];
    /// Requests and streams in the queue now.
    ClusterQueueLength = Gauge "equipoise_cluster_queue_length" ["cluster"];
    /// Endpoints picked, by `reason`, the first that applies: `hedge` (another attempt is slow), `queue` (all were full), `retry` (another attempt had failed), `session` (sticky session), `fallback` (no endpoint of the route's subset is available), `panic` (too few endpoints are healthy), `spill` (a backup or a lower priority), `other_zone`, `own_zone` (preferred), `overflow` (the endpoint of the key is full or beyond `load_max`), `hash` (the endpoint of the key), `only` (no other is available), `balance` (the balancer's choice among all).
    ClusterPicks = Counter "equipoise_cluster_picks_total" ["cluster", "reason"];
    /// Requests and streams of a cluster with `persistence`, by the result for their session: `new`, `kept` (at its endpoint), `moved` (to another), `refused`.
    ClusterSessions = Counter "equipoise_cluster_sessions_total" ["cluster", "result"];
    /// Sessions that the table of a cluster remembers.
    ClusterSessionEntries = Gauge "equipoise_cluster_session_entries" ["cluster"];
    /// Sessions that a full table evicted before they expired.
    ClusterSessionEvictions = Counter "equipoise_cluster_session_evictions_total" ["cluster"];
    /// Faults of exchanges and streams for which a cluster was chosen.
    ClusterFaults = Counter "equipoise_cluster_faults_total" ["cluster", "source", "fault"];
    /// 1 while a cluster is in panic mode: too few endpoints are healthy, so all get requests.
    ClusterPanic = Gauge "equipoise_cluster_panic" ["cluster"];
    /// 1 if an endpoint gets requests, 0 if its checks fail, it is ejected, or the operator took it out.
    EndpointUp = Gauge "equipoise_endpoint_up" ["cluster", "endpoint"];
    /// 1 while an endpoint is ejected by passive health.
    EndpointEjected = Gauge "equipoise_endpoint_ejected" ["cluster", "endpoint"];
    /// Ejections of an endpoint by passive health; `cause` is the setting that caused them.
    EndpointEjections = Counter "equipoise_endpoint_ejections_total" ["cluster", "endpoint", "cause"];
    /// Configured weight of an endpoint.
    EndpointWeight = Gauge "equipoise_endpoint_weight" ["cluster", "endpoint"];
    /// Current weight of an endpoint of a cluster with `slow_start`, relative to the others.
    EndpointWeightNow = Gauge "equipoise_endpoint_weight_now" ["cluster", "endpoint"];
    /// Requests and streams at an endpoint now.
    EndpointInFlight = Gauge "equipoise_endpoint_in_flight" ["cluster", "endpoint"];
    /// Requests whose last attempt went to an endpoint, by class of the status sent to the client.
    EndpointRequests = Counter "equipoise_endpoint_requests_total" ["cluster", "endpoint", "class"];
    /// TCP streams passed to an endpoint that ended.
    EndpointStreams = Counter "equipoise_endpoint_streams_total" ["cluster", "endpoint"];
    /// Connections to an endpoint; `result` is `opened` or `failed`.
    EndpointConnects = Counter "equipoise_endpoint_connects_total" ["cluster", "endpoint", "result"];
    /// Requests that reused a pooled connection to an endpoint.
    EndpointReused = Counter "equipoise_endpoint_connections_reused_total" ["cluster", "endpoint"];
    /// Body and stream bytes received from clients of an endpoint.
    EndpointReceivedBytes = Counter "equipoise_endpoint_received_bytes_total" ["cluster", "endpoint"];
    /// Body and stream bytes of an endpoint sent to clients.
    EndpointSentBytes = Counter "equipoise_endpoint_sent_bytes_total" ["cluster", "endpoint"];
    /// Total time of requests and streams that ended at an endpoint.
    EndpointSeconds = Counter "equipoise_endpoint_seconds_total" ["cluster", "endpoint"];
    /// Faults at an endpoint, including those of attempts that were retried.
    EndpointFaults = Counter "equipoise_endpoint_faults_total" ["cluster", "endpoint", "source", "fault"];
    /// Access log records that were not written; `reason` is `full` (the target is too slow) or `failed` (the target returned an error).
    AccessLogDropped = Counter "equipoise_access_log_dropped_total" ["reason"];
    /// Lines that the program's log suppressed because the same message repeated too often.
    DiagnosticsSuppressed = Counter "equipoise_diagnostics_suppressed_total" [];
    /// Generation of the active configuration.
    Generation = Gauge "equipoise_generation" [];
    /// Configurations rejected since the start; the previous one stayed active.
    GenerationsRefused = Counter "equipoise_generations_refused_total" [];
    /// Share of exchanges that use the canary configuration, from 0 to 1; 0 without a canary.
    CanaryShare = Gauge "equipoise_canary_share" [];
    /// Canaries that ended, by result: `promoted`, `went_back` (rolled back), `ended`.
    Canaries = Counter "equipoise_canaries_total" ["result"];
    /// 1 while a provider is reachable; 0 while it is not, or before its first state.
    ProviderUp = Gauge "equipoise_provider_up" ["provider"];
    /// States of a provider that were rejected as invalid.
    ProviderRefused = Counter "equipoise_provider_refused_total" ["provider"];
    /// Active endpoints of a provider.
    ProviderEndpoints = Gauge "equipoise_provider_endpoints" ["provider"];
    /// Last successful response of a provider, in seconds since 1970.
    ProviderLastSuccess = Gauge "equipoise_provider_last_success_timestamp_seconds" ["provider"];
    /// Last change of a provider's state, in seconds since 1970.
    ProviderLastChange = Gauge "equipoise_provider_last_change_timestamp_seconds" ["provider"];
    /// Host names of endpoints that do not resolve now; their endpoints keep their addresses.
    NamesFailing = Gauge "equipoise_names_failing" [];
    /// Lookups of host names of endpoints that returned no address.
    NameLookupsFailed = Counter "equipoise_name_lookups_failed_total" [];
    /// Workers.
    Workers = Gauge "equipoise_workers" [];
    /// Always 1; the label is the version.
    BuildInfo = Gauge "equipoise_build_info" ["version"];
    /// Processor time used by the program, in user and system mode.
    ProcessCpuSeconds = Counter "process_cpu_seconds_total" [];
    /// Resident memory of the program.
    ProcessResidentBytes = Gauge "process_resident_memory_bytes" [];
    /// Open file descriptors.
    ProcessOpenFds = Gauge "process_open_fds" [];
    /// Limit of open file descriptors.
    ProcessMaxFds = Gauge "process_max_fds" [];
    /// When the program started, in seconds since 1970.
    ProcessStartSeconds = Gauge "process_start_time_seconds" [];
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_keep_the_conventions_and_are_unique() {
        let mut names = HashSet::new();
        let plain = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_lowercase())
                && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        for told in Metric::ALL.iter().map(|metric| metric.definition()) {
            assert!(names.insert(told.name), "{} twice", told.name);
            assert!(told.name.starts_with("equipoise_") || told.name.starts_with("process_"), "{}", told.name);
            assert!(
                plain(told.name) && told.labels.iter().all(|label| plain(label) && *label != "le"),
                "{}",
                told.name
            );
            assert_eq!(told.name.ends_with("_total"), told.kind == MetricKind::Counter, "{}", told.name);
            assert!(told.kind != MetricKind::Histogram || told.name.ends_with("_seconds"));
            assert!(told.help.starts_with(' ') && told.help.ends_with('.') && !told.help.contains("  "));
            assert!(!told.help.contains(['|', '\n']), "the help stands in a table");
        }
    }
}
