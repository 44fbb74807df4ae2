//! The Prometheus text format 0.0.4.

use std::fmt::Write as _;

use model::persistence::SessionPick;
use model::resilience::Refusal;
use model::{Fault, Name, PickReason};

use crate::counter::FAULTS;
use crate::histogram::{EXPOSED_BOUNDS_MICROS, HistogramSnapshot};
use crate::listing::Listing;
use crate::names::{Definition, Metric};
use crate::process::Process;
use crate::record::{CLASS_LABELS, CLASSES};
use crate::summary::Totals;

/// A value that lives elsewhere, handed in at scrape time: one sample of a metric from the table.
#[derive(Clone, Copy, Debug)]
pub struct Gauge<'a> {
    metric: Metric,
    labels: [&'a str; 3],
    value: f64,
}

impl<'a> Gauge<'a> {
    /// Returns a sample of `metric`; its labels are in the order of the table, at most three.
    pub fn new(metric: Metric, labels: &[&'a str], value: f64) -> Self {
        debug_assert_eq!(labels.len(), metric.definition().labels.len());
        let label = |index: usize| labels.get(index).copied().unwrap_or_default();
        Self { metric, labels: [label(0), label(1), label(2)], value }
    }
}

/// The samples of one metric. Its HELP and TYPE come before the first sample, and not at all without one.
struct Page<'o> {
    out: &'o mut String,
    told: Definition,
    headed: bool,
}

impl Page<'_> {
    fn head(&mut self) {
        if !self.headed {
            self.headed = true;
            let Definition { name, kind, help, .. } = self.told;
            let _ = write!(self.out, "# HELP {name} ");
            push_escaped(self.out, help.trim(), false);
            let _ = writeln!(self.out, "\n# TYPE {name} {}", kind.as_str());
        }
    }

    /// Writes `name_suffix{labels,le="…"} `; the value and a line end are to follow.
    fn start(&mut self, suffix: &str, labels: &[&str], le: Option<&str>) {
        self.head();
        self.out.push_str(self.told.name);
        self.out.push_str(suffix);
        let pairs = self.told.labels.iter().copied().zip(labels.iter().copied()).chain(le.map(|le| ("le", le)));
        let mut before = '{';
        for (label, value) in pairs {
            self.out.push(before);
            before = ',';
            self.out.push_str(label);
            self.out.push_str("=\"");
            push_escaped(self.out, value, true);
            self.out.push('"');
        }
        self.out.push_str(if before == ',' { "} " } else { " " });
    }

    fn integer(&mut self, labels: &[&str], value: u64) {
        self.start("", labels, None);
        let _ = writeln!(self.out, "{value}");
    }

    fn float(&mut self, labels: &[&str], value: f64) {
        self.start("", labels, None);
        if value.is_infinite() {
            self.out.push_str(if value > 0.0 { "+Inf\n" } else { "-Inf\n" });
        } else {
            let _ = writeln!(self.out, "{value}");
        }
    }

    fn seconds(&mut self, suffix: &str, labels: &[&str], nanos: u64) {
        self.start(suffix, labels, None);
        let _ = writeln!(self.out, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    }

    /// Writes the classes 2xx to 5xx from the start, so that rates see the first error, and the others once they occur.
    fn classes(&mut self, labels: &[&str], classes: &[u64; CLASSES]) {
        for (class, &count) in classes.iter().enumerate() {
            if class >= 2 || count > 0 {
                self.integer(&with(labels, &[CLASS_LABELS[class]]), count);
            }
        }
    }

    /// Faults that occurred.
    fn faults(&mut self, labels: &[&str], faults: &[u64; FAULTS]) {
        for (fault, &count) in Fault::ALL.iter().zip(faults) {
            if count > 0 {
                let told = fault.consequence();
                self.integer(&with(labels, &[told.source.as_str(), told.label]), count);
            }
        }
    }

    /// Writes a histogram, or nothing while nothing was counted: an idle object must not cost twenty lines.
    fn histogram(&mut self, labels: &[&str], taken: &HistogramSnapshot) {
        let count = taken.count();
        if count == 0 {
            return;
        }
        for bound in EXPOSED_BOUNDS_MICROS {
            self.start("_bucket", labels, Some(&(bound as f64 / 1e6).to_string()));
            let _ = writeln!(self.out, "{}", taken.at_most(bound));
        }
        self.start("_bucket", labels, Some("+Inf"));
        let _ = writeln!(self.out, "{count}");
        self.seconds("_sum", labels, taken.sum_nanos());
        self.start("_count", labels, None);
        let _ = writeln!(self.out, "{count}");
    }
}

fn with<'a>(labels: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [labels, more].concat()
}

/// Escapes as the format asks: backslash and line feed, and the quote in label values.
fn push_escaped(out: &mut String, text: &str, quotes: bool) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

/// Appends the whole page.
pub(crate) fn expose(listing: &Listing, gauges: &[Gauge<'_>], out: &mut String) {
    let objects = Objects::of(listing);
    let process = Process::read();
    for &metric in Metric::ALL {
        let told = metric.definition();
        let mut page = Page { out, told, headed: false };
        objects.samples(metric, &mut page);
        if let Some(value) = own_value(metric, listing.workers, &process) {
            page.float(&[], value);
        }
        for gauge in gauges.iter().filter(|gauge| gauge.metric == metric) {
            page.float(&gauge.labels[..told.labels.len().min(3)], gauge.value);
        }
    }
}

fn own_value(metric: Metric, workers: usize, process: &Process) -> Option<f64> {
    match metric {
        Metric::Workers => Some(workers as f64),
        Metric::DiagnosticsSuppressed => Some(crate::log::suppressed() as f64),
        Metric::ProcessCpuSeconds => process.cpu_seconds,
        Metric::ProcessResidentBytes => process.resident_bytes,
        Metric::ProcessOpenFds => process.open_fds,
        Metric::ProcessMaxFds => process.max_fds,
        Metric::ProcessStartSeconds => process.start_seconds,
        _ => None,
    }
}

/// Each series is added up once, however many metrics come from it.
struct Objects<'a> {
    listeners: Vec<(&'a Name, Totals)>,
    routes: Vec<(&'a Name, Totals)>,
    clusters: Vec<(&'a Name, Totals)>,
    endpoints: Vec<(&'a (Name, Name), Totals)>,
}

impl<'a> Objects<'a> {
    fn of(listing: &'a Listing) -> Self {
        Self {
            listeners: listing.listeners.iter().map(|(name, series)| (name, Totals::of_listener(series))).collect(),
            routes: listing.routes.iter().map(|(name, series)| (name, Totals::of_route(series))).collect(),
            clusters: listing.clusters.iter().map(|(name, series)| (name, Totals::of_cluster(series))).collect(),
            endpoints: listing.endpoints.iter().map(|(names, series)| (names, Totals::of_endpoint(series))).collect(),
        }
    }

    fn samples(&self, metric: Metric, page: &mut Page<'_>) {
        for (name, totals) in &self.listeners {
            listener_samples(metric, page, name, totals);
        }
        if metric == Metric::RouteRequests {
            for (name, totals) in &self.routes {
                page.classes(&[name], &totals.classes);
            }
        }
        for (name, totals) in &self.clusters {
            cluster_samples(metric, page, name, totals);
        }
        for ((cluster, endpoint), totals) in &self.endpoints {
            endpoint_samples(metric, page, &[cluster, endpoint], totals);
        }
    }
}

fn listener_samples(metric: Metric, page: &mut Page<'_>, name: &str, totals: &Totals) {
    let labels = &[name];
    match metric {
        Metric::ConnectionsOpened => page.integer(labels, totals.connections_opened),
        Metric::ConnectionsRefused => page.integer(labels, totals.connections_refused),
        Metric::ConnectionsOpen => page.integer(labels, totals.connections_open()),
        Metric::TlsHandshakes => {
            for (result, count) in ["full", "resumed", "failed"].into_iter().zip(totals.handshakes) {
                page.integer(&[name, result], count);
            }
        }
        Metric::HttpRequests => page.classes(labels, &totals.classes),
        Metric::HttpRequestSeconds => page.histogram(labels, &totals.latency),
        Metric::Streams => page.integer(labels, totals.streams),
        Metric::StreamSeconds => page.seconds("", labels, totals.busy_nanos),
        Metric::DatagramsDropped => page.integer(labels, totals.datagrams_dropped),
        Metric::Http3Retries => page.integer(labels, totals.http3_retries),
        Metric::ReceivedBytes => page.integer(labels, totals.received_bytes),
        Metric::SentBytes => page.integer(labels, totals.sent_bytes),
        Metric::Faults => page.faults(labels, &totals.faults),
        _ => (),
    }
}

fn cluster_samples(metric: Metric, page: &mut Page<'_>, name: &str, totals: &Totals) {
    let labels = &[name];
    match metric {
        Metric::ClusterRequests => page.classes(labels, &totals.classes),
        Metric::ClusterStreams => page.integer(labels, totals.streams),
        Metric::ClusterRequestSeconds => page.histogram(labels, &totals.latency),
        Metric::ClusterFirstByteSeconds => page.histogram(labels, &totals.first_byte),
        Metric::ClusterRetries => page.integer(labels, totals.retries),
        Metric::ClusterRetriesRefused => page.integer(labels, totals.retries_refused),
        Metric::ClusterHedges if totals.hedges != [0; 3] => {
            for (result, count) in ["sent", "won", "refused"].into_iter().zip(totals.hedges) {
                page.integer(&[name, result], count);
            }
        }
        Metric::ClusterRefused => {
            for (refusal, &count) in Refusal::ALL.iter().zip(&totals.refused).filter(|(_, count)| **count > 0) {
                page.integer(&[name, refusal.as_str()], count);
            }
        }
        Metric::ClusterPicks => {
            for (reason, &count) in PickReason::ALL.iter().zip(&totals.picks).filter(|(_, count)| **count > 0) {
                page.integer(&[name, reason.as_str()], count);
            }
        }
        Metric::ClusterSessions => {
            for (session, &count) in SessionPick::ALL.iter().zip(&totals.sessions).filter(|(_, count)| **count > 0) {
                page.integer(&[name, session.as_str()], count);
            }
        }
        Metric::ClusterQueueWaits => page.integer(labels, totals.queue.count()),
        Metric::ClusterQueueSeconds => page.seconds("", labels, totals.queue.sum_nanos()),
        Metric::ClusterQueueWaitSeconds => page.histogram(labels, &totals.queue),
        Metric::ClusterFaults => page.faults(labels, &totals.faults),
        _ => (),
    }
}

fn endpoint_samples(metric: Metric, page: &mut Page<'_>, labels: &[&str; 2], totals: &Totals) {
    match metric {
        Metric::EndpointRequests => page.classes(labels, &totals.classes),
        Metric::EndpointStreams => page.integer(labels, totals.streams),
        Metric::EndpointConnects => {
            page.integer(&with(labels, &["opened"]), totals.connections_opened);
            page.integer(&with(labels, &["failed"]), totals.connects_failed);
        }
        Metric::EndpointReused => page.integer(labels, totals.reused),
        Metric::EndpointReceivedBytes => page.integer(labels, totals.received_bytes),
        Metric::EndpointSentBytes => page.integer(labels, totals.sent_bytes),
        Metric::EndpointSeconds => page.seconds("", labels, totals.busy_nanos),
        Metric::EndpointFaults => page.faults(labels, &totals.faults),
        _ => (),
    }
}
