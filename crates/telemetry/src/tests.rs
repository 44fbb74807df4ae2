//! Tests of counting and exposing together.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use model::resilience::Refusal;
use model::snapshot::{Action, Route};
use model::{Fault, Name, Snapshot};

use crate::series::Series;
use crate::testing::{Draft, request};
use crate::{ClusterShard, EndpointShard, Gauge, Kind, ListenerShard, Metric, Record, Telemetry, WorkerSeries, count};

/// Counts a record as worker `worker` of `telemetry` would.
fn tell(telemetry: &Telemetry, worker: usize, draft: &Draft, change: impl FnOnce(&mut Record<'_>)) {
    let facts = draft.facts();
    let mut record = draft.record(&facts);
    change(&mut record);
    let listener = telemetry.listener(&draft.listener);
    let route = record.route.map(|name| telemetry.route(name));
    let cluster = record.cluster.map(|name| telemetry.cluster(name));
    let endpoint = record.endpoint.map(|name| telemetry.endpoint(&draft.cluster, name));
    let into = WorkerSeries {
        listener: Some(listener.of(worker)),
        route: route.as_ref().map(|series| series.of(worker)),
        cluster: cluster.as_ref().map(|series| series.of(worker)),
        endpoint: endpoint.as_ref().map(|series| series.of(worker)),
    };
    count(&record, &into);
}

fn page(telemetry: &Telemetry, gauges: &[Gauge<'_>]) -> String {
    let mut out = String::new();
    telemetry.expose(gauges, &mut out);
    out
}

#[test]
fn counts_of_all_workers_add_up_exactly_while_they_are_read() {
    const EACH: u64 = 20_000;
    const WORKERS: usize = 4;
    let telemetry = Telemetry::new(WORKERS);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let telemetry = &telemetry;
                scope.spawn(move || {
                    let draft = Draft::default();
                    for turn in 0..EACH {
                        tell(telemetry, worker, &draft, |record| {
                            record.response_status = [200, 503][(turn % 2) as usize];
                            record.retries = 1;
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut last = telemetry.summary();
            while !done.load(Ordering::Relaxed) {
                let now = telemetry.summary();
                assert!(now.total.requests() >= last.total.requests());
                assert!(now.total.latency.count() >= last.total.latency.count());
                last = now;
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let summary = telemetry.summary();
    let all = EACH * WORKERS as u64;
    assert_eq!(summary.total.classes, [0, 0, all / 2, 0, 0, all / 2]);
    assert_eq!((summary.total.errors(), summary.total.retries), (all / 2, all));
    assert_eq!((summary.total.received_bytes, summary.total.sent_bytes), (all * 10, all * 2_000));
    assert_eq!(summary.total.latency.sum_nanos(), all * 12_345_000);
    for totals in [&summary.listeners[0].1, &summary.routes[0].1, &summary.clusters[0].1, &summary.endpoints[0].1] {
        assert_eq!(totals.requests(), all);
    }
}

#[test]
fn a_record_is_counted_where_it_belongs_and_nowhere_else() {
    let telemetry = Telemetry::new(2);
    let draft = Draft::default();
    tell(&telemetry, 0, &draft, |record| {
        record.response_status = 504;
        record.fault = Some(Fault::ResponseHeadTimeout);
        record.phases.queue = Duration::from_millis(3);
        record.phases.first_byte = Duration::ZERO;
    });
    tell(&telemetry, 1, &draft, |record| {
        record.response_status = 404;
        record.fault = Some(Fault::NoRoute);
        (record.route, record.cluster, record.endpoint) = (None, None, None);
        record.phases.first_byte = Duration::ZERO;
    });
    let summary = telemetry.summary();
    let (listener, cluster, endpoint) = (&summary.listeners[0].1, &summary.clusters[0].1, &summary.endpoints[0].1);
    assert_eq!(listener.classes, [0, 0, 0, 0, 1, 1]);
    assert_eq!(listener.faults.iter().sum::<u64>(), 2);
    for totals in [cluster, endpoint] {
        assert_eq!(totals.classes, [0, 0, 0, 0, 0, 1]);
        assert_eq!(totals.faults[Fault::ResponseHeadTimeout as usize], 1);
        assert_eq!(totals.faults.iter().sum::<u64>(), 1);
    }
    assert_eq!((cluster.queue.count(), cluster.queue.sum_nanos()), (1, 3_000_000));
    assert_eq!((cluster.latency.count(), cluster.first_byte.count()), (1, 0));
    assert_eq!(endpoint.busy_nanos, 12_345_000);
}

#[test]
fn tunnels_streams_and_broken_heads_do_not_bend_the_latency_of_requests() {
    let telemetry = Telemetry::new(1);
    let mut draft = Draft::default();
    tell(&telemetry, 0, &draft, |record| record.response_status = 101);
    tell(&telemetry, 0, &draft, |record| (record.request, record.response_status) = (None, 408));
    tell(&telemetry, 0, &draft, |record| {
        (record.request, record.kind, record.response_status) = (None, Kind::Stream, 0)
    });
    draft.request = request(b"CONNECT", b"", &[]);
    tell(&telemetry, 0, &draft, |_| ());
    let summary = telemetry.summary();
    assert_eq!(summary.total.latency.count(), 0);
    assert_eq!((summary.total.classes, summary.total.streams), ([0, 1, 1, 0, 1, 0], 1));
    assert_eq!(summary.total.busy_nanos, 12_345_000);
    assert_eq!(summary.endpoints[0].1.streams, 1);
    tell(&telemetry, 0, &draft, |record| record.response_status = 403);
    assert_eq!(telemetry.summary().total.latency.count(), 1);
}

pub(crate) fn snapshot_with_route(name: &str) -> Snapshot {
    let route = Route {
        name: name.into(),
        above: Vec::new(),
        listeners: Vec::new(),
        matches: model::matching::Match::default(),
        priority: 0,
        filters: Vec::new(),
        action: Action::Respond(model::LocalResponse::default()),
        timeout: None,
        retry: None,
        hedge: None,
        subset: None,
        precedence: model::queue::Precedence::default(),
        early_data: false,
        is_internal: false,
    };
    Snapshot { routes: vec![Arc::new(route)], ..Snapshot::default() }
}

#[test]
fn counters_survive_by_name_and_go_when_object_and_holder_are_gone() {
    let telemetry = Telemetry::new(1);
    let draft = Draft::default();
    let held = telemetry.cluster(&draft.cluster);
    tell(&telemetry, 0, &draft, |_| ());
    telemetry.retain(&snapshot_with_route("shop").into());
    let summary = telemetry.summary();
    assert!(summary.listeners.is_empty() && summary.endpoints.is_empty());
    assert_eq!(summary.routes[0].1.requests(), 1, "still configured");
    assert_eq!(summary.clusters[0].1.requests(), 1, "still held");
    assert_eq!(summary.total.requests(), 1, "totals never fall");
    assert!(Arc::ptr_eq(&held, &telemetry.cluster(&draft.cluster)));
    telemetry.retain(&Arc::default());
    drop(held);
    let summary = telemetry.summary();
    assert!(summary.routes.is_empty() && summary.clusters.is_empty());
    assert_eq!(summary.total.first_byte.count(), 1);
    assert_eq!(telemetry.route(&draft.route).of(0).requests.get(), [0; 6], "a new object of an old name starts anew");
}

#[test]
fn a_series_asked_for_again_is_wanted_again() {
    let telemetry = Telemetry::new(1);
    let name = Name::from("back");
    let held = telemetry.route(&name);
    held.of(0).requests.add(200);
    telemetry.retain(&Arc::default());
    drop(telemetry.route(&name));
    drop(held);
    assert_eq!(telemetry.summary().routes[0].1.requests(), 1);
}

#[test]
fn a_summary_less_an_earlier_one_is_what_came_between() {
    let telemetry = Telemetry::new(1);
    let draft = Draft::default();
    tell(&telemetry, 0, &draft, |_| ());
    let before = telemetry.summary();
    let other = Draft { cluster: "new".into(), ..Draft::default() };
    tell(&telemetry, 0, &other, |record| record.response_status = 500);
    let between = telemetry.summary().since(&before);
    assert_eq!(between.total.classes, [0, 0, 0, 0, 0, 1]);
    assert_eq!(between.total.latency.count(), 1);
    let requests: Vec<_> = between.clusters.iter().map(|(name, totals)| (name.as_str(), totals.requests())).collect();
    assert_eq!(requests, [("api", 0), ("new", 1)]);
    assert!(between.request_rate() > 0.0 && before.request_rate() == 0.0);
}

#[test]
fn an_idle_object_costs_little() {
    assert!(size_of::<ListenerShard>() <= 384 && size_of::<ClusterShard>() <= 384);
    assert!(size_of::<EndpointShard>() <= 256);
    let idle = Series::<ClusterShard>::new(64);
    assert_eq!(idle.used().count(), 0);
    assert!(size_of_val(&idle) <= 16);
}

/// One sample as parsed: labels without `le`, the bound, the value.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

fn parse_labels(text: &str) -> (Vec<(String, String)>, &str) {
    let Some(mut rest) = text.strip_prefix('{') else { return (Vec::new(), text) };
    let mut labels = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label has a quoted value");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("quotes are closed") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    other @ ('"' | '\\') => other,
                    other => panic!("escape {other}"),
                }),
                (_, char) => value.push(char),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &after[end + 1..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (labels, more),
            other => panic!("after a label: {other:?}"),
        }
    }
}

/// Checks a page against the format, and returns its samples.
fn check(page: &str) -> Vec<Sample> {
    let mut types: HashMap<String, String> = HashMap::new();
    let mut current = String::new();
    let mut seen = HashSet::new();
    let mut samples = Vec::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            current = rest.split_once(' ').unwrap().0.to_owned();
            assert!(!types.contains_key(&current), "{current} is in two groups");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let end = line.find(['{', ' ']).unwrap();
            let (labels, rest) = parse_labels(&line[end..]);
            let name = line[..end].to_owned();
            let suffix = name.strip_prefix(&current).expect("a sample stands in the group of its metric");
            let fits = if types[&current] == "histogram" { &["_bucket", "_sum", "_count"][..] } else { &[""] };
            assert!(fits.contains(&suffix), "{name}");
            assert!(seen.insert(line.rsplit_once(' ').unwrap().0.to_owned()), "twice: {line}");
            let value: f64 = rest.strip_prefix(' ').unwrap().parse().unwrap();
            assert!(types[&current] == "gauge" || value >= 0.0);
            samples.push(Sample { name, labels, value });
        }
    }
    samples
}

fn check_histograms(samples: &[Sample]) -> usize {
    let mut histograms: HashMap<(String, String), Vec<(f64, f64)>> = HashMap::new();
    for sample in samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let (le, labels): (Vec<_>, Vec<_>) = sample.labels.iter().partition(|(name, _)| name == "le");
        let key = (sample.name.trim_end_matches("_bucket").to_owned(), format!("{labels:?}"));
        histograms.entry(key).or_default().push((le[0].1.parse().unwrap(), sample.value));
    }
    for ((name, labels), buckets) in &histograms {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} {labels}: {buckets:?}");
        let count = samples
            .iter()
            .find(|sample| {
                sample.name == format!("{name}_count")
                    && format!("{:?}", sample.labels.iter().collect::<Vec<_>>()) == *labels
            })
            .unwrap();
        assert_eq!(buckets.last().unwrap(), &(f64::INFINITY, count.value));
    }
    histograms.len()
}

#[test]
fn the_page_keeps_the_format_and_tells_the_counts() {
    let telemetry = Telemetry::new(2);
    let hostile = Draft { listener: "a\"b\\c\nd {x=\"1\"} 7".into(), cluster: "ü,}".into(), ..Draft::default() };
    for worker in 0..2 {
        for (turn, &fault) in Fault::ALL.iter().enumerate() {
            tell(&telemetry, worker, &hostile, |record| {
                record.fault = Some(fault);
                record.response_status = fault.consequence().status;
                record.phases.total = Duration::from_micros(1 << (turn % 40));
            });
        }
    }
    telemetry.listener(&"idle".into());
    let gauges = [
        Gauge::new(Metric::EndpointUp, &["ü,}", "a.example:9001"], 1.0),
        Gauge::new(Metric::BuildInfo, &["1.2.3"], 1.0),
        Gauge::new(Metric::EndpointUp, &["ü,}", "b.example:9001"], 0.0),
        Gauge::new(Metric::Generation, &[], 12.0),
        Gauge::new(Metric::EndpointInFlight, &["ü,}", "b.example:9001"], f64::NEG_INFINITY),
    ];
    let samples = check(&page(&telemetry, &gauges));
    assert_eq!(check_histograms(&samples), 3);
    let value = |name: &str, label: &str| {
        let fits = |sample: &&Sample| sample.name == name && sample.labels.iter().any(|(_, value)| value == label);
        samples.iter().find(fits).unwrap_or_else(|| panic!("{name} {label}")).value
    };
    assert_eq!(value("equipoise_http_request_seconds_count", &hostile.listener), 2.0 * Fault::ALL.len() as f64);
    assert_eq!(value("equipoise_faults_total", "no_route"), 2.0);
    assert_eq!(value("equipoise_endpoint_up", "b.example:9001"), 0.0);
    assert_eq!(value("equipoise_http_requests_total", "idle"), 0.0);
    assert!(samples.iter().any(|sample| sample.name == "process_resident_memory_bytes" && sample.value > 0.0));
    let sum = 2.0 * (0..Fault::ALL.len()).map(|turn| 1u64 << (turn % 40)).sum::<u64>() as f64 / 1e6;
    assert_eq!(value("equipoise_http_request_seconds_sum", &hostile.listener), sum);
}

#[test]
fn every_metric_of_the_table_reaches_the_page() {
    let telemetry = Telemetry::new(1);
    tell(&telemetry, 0, &Draft::default(), |record| {
        record.fault = Some(Fault::ClosedInResponse);
        record.session = Some(model::persistence::SessionPick::Moved);
        record.phases.queue = Duration::from_millis(1);
    });
    telemetry.cluster(&"api".into()).of(0).refused(Refusal::Requests);
    telemetry.cluster(&"api".into()).of(0).hedges.add(1);
    telemetry.cluster(&"api".into()).of(0).picked(model::PickReason::Balance);
    let gauges: Vec<Gauge<'_>> = [
        (Metric::ClusterCircuit, &["api"][..]),
        (Metric::FilterEvents, &["all", "rate_limit", "limited"]),
        (Metric::TableEntries, &["clients"]),
        (Metric::TableEvictions, &["clients"]),
        (Metric::PeerConnected, &["10.0.0.2:7100"]),
        (Metric::PeerLag, &["10.0.0.2:7100"]),
        (Metric::PeerBacklog, &["10.0.0.2:7100"]),
        (Metric::PeersSent, &[]),
        (Metric::PeersReceived, &[]),
        (Metric::PeersSkipped, &[]),
        (Metric::PeersDropped, &[]),
        (Metric::PeersResyncs, &[]),
        (Metric::PeersRefused, &[]),
        (Metric::ClusterConcurrencyLimit, &["api"]),
        (Metric::ClusterCircuitOpened, &["api"]),
        (Metric::ClusterQueueLength, &["api"]),
        (Metric::ClusterPanic, &["api"]),
        (Metric::ClusterSessionEntries, &["api"]),
        (Metric::ClusterSessionEvictions, &["api"]),
        (Metric::EndpointUp, &["api", "a"]),
        (Metric::EndpointEjected, &["api", "a"]),
        (Metric::EndpointEjections, &["api", "a", "latency"]),
        (Metric::EndpointWeight, &["api", "a"]),
        (Metric::EndpointWeightNow, &["api", "a"]),
        (Metric::EndpointInFlight, &["api", "a"]),
        (Metric::AccessLogDropped, &["full"]),
        (Metric::Generation, &[]),
        (Metric::GenerationsRefused, &[]),
        (Metric::CanaryShare, &[]),
        (Metric::Canaries, &["promoted"]),
        (Metric::ProviderUp, &["fleet"]),
        (Metric::ProviderRefused, &["fleet"]),
        (Metric::ProviderEndpoints, &["fleet"]),
        (Metric::ProviderLastSuccess, &["fleet"]),
        (Metric::ProviderLastChange, &["fleet"]),
        (Metric::NamesFailing, &[]),
        (Metric::NameLookupsFailed, &[]),
        (Metric::CacheBytes, &["pages"]),
        (Metric::CacheEntries, &["pages"]),
        (Metric::CacheEvictions, &["pages"]),
        (Metric::CachePurges, &["pages"]),
        (Metric::CacheRequests, &["pages", "hit"]),
        (Metric::CacheDiskBytes, &["pages"]),
        (Metric::CacheDiskEntries, &["pages"]),
        (Metric::CacheDiskEvictions, &["pages"]),
        (Metric::CacheDiskFailures, &["pages", "write"]),
        (Metric::CacheHits, &["pages", "disk"]),
        (Metric::BuildInfo, &["1"]),
    ]
    .into_iter()
    .map(|(metric, labels)| Gauge::new(metric, labels, 1.0))
    .collect();
    let page = page(&telemetry, &gauges);
    let names = Metric::ALL.iter().map(|metric| metric.definition().name);
    let missing: Vec<_> = names.filter(|name| !page.contains(&format!("# TYPE {name} "))).collect();
    assert!(missing.is_empty(), "never exposed: {missing:?}");
}
