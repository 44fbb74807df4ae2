//! What a run found, as it is written to the file.

use crate::failure::Failure;
use crate::measure::Sample;
use crate::measure::bench::Bench;
use crate::measure::child::write_file;
use crate::measure::stats::{median, spread};
use crate::products::{Product, Version};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Which study.
    pub study: &'static str,
    /// When it was started, UTC.
    pub date: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor.
    pub processor: String,
    /// Cores that the lab could use.
    pub cores: usize,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of a measurement.
    pub seconds: u64,
    /// A small run, not to be quoted.
    pub quick: bool,
    /// It was ended by Ctrl-C.
    pub interrupted: bool,
    /// What the generators offer in a TLS handshake, whatever they are.
    pub tls_offered: &'static str,
    /// The products' versions, or why there is none.
    pub versions: BTreeMap<&'static str, Version>,
    /// The cells measured.
    pub cells: Vec<CellResult>,
}

/// One cell.
#[derive(Debug, Serialize)]
pub(crate) struct CellResult {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// One for each product, in the order of the table.
    pub products: Vec<ProductResult>,
}

/// One product in one cell.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ProductResult {
    /// Its name.
    pub name: &'static str,
    /// Why it does not take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// The last thing that went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The medians of the samples; counts are sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<Sample>,
    /// From the least to the most, as a share of the median, of the figure that the cell is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Others used the machine during some of the samples.
    pub disturbed: bool,
    /// One for each round.
    pub samples: Vec<Sample>,
}

impl Report {
    /// An empty report of a run that begins now.
    pub(crate) fn new(bench: &Bench, products: &[&'static Product], rounds: usize, seconds: u64, quick: bool) -> Self {
        let version = |product: &&'static Product| {
            let version = bench
                .version(product)
                .unwrap_or_else(|failure| Version { version: failure.to_string(), tls: String::new() });
            (product.name, version)
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self {
            study: "cost",
            date: utc(now),
            kernel: read("/proc/sys/kernel/osrelease"),
            processor: processor(&read("/proc/cpuinfo")),
            cores: bench.core_count(),
            rounds,
            seconds,
            quick,
            interrupted: false,
            tls_offered: "TLS 1.3, X25519, AES-128-GCM; certificate ECDSA P-256",
            versions: products.iter().map(version).collect(),
            cells: Vec::new(),
        }
    }

    /// Writes it as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Failure::new(error.to_string()))?;
        write_file(path, &(text + "\n"))
    }
}

impl CellResult {
    /// A cell without samples.
    pub(crate) fn new(name: &'static str, title: &'static str, products: &[&'static Product]) -> Self {
        let row = |product: &&'static Product| ProductResult { name: product.name, ..ProductResult::default() };
        Self { name, title, products: products.iter().map(row).collect() }
    }

    /// Computes medians and spreads.
    pub(crate) fn conclude(&mut self) {
        self.products.iter_mut().for_each(ProductResult::conclude);
    }

    /// The figure of a product that the cell is about.
    pub(crate) fn figure(&self, product: &str) -> Option<f64> {
        let row = self.products.iter().find(|row| row.name == product)?;
        row.median.as_ref().and_then(figure)
    }
}

/// What a cell is about: CPU time for a request, or memory for a connection.
pub(crate) fn figure(sample: &Sample) -> Option<f64> {
    sample.cpu_us.or(sample.connection_bytes)
}

impl ProductResult {
    fn conclude(&mut self) {
        let samples = &self.samples;
        if samples.is_empty() {
            return;
        }
        let middle = |field: fn(&Sample) -> Option<f64>| median(&samples.iter().filter_map(field).collect::<Vec<_>>());
        let worst = |field: fn(&Sample) -> f64| samples.iter().map(field).fold(0.0, f64::max);
        self.spread = spread(&samples.iter().filter_map(figure).collect::<Vec<_>>());
        self.disturbed = samples.iter().any(Sample::is_disturbed);
        self.median = Some(Sample {
            cpu_us: middle(|sample| sample.cpu_us),
            connection_bytes: middle(|sample| sample.connection_bytes),
            rps: middle(|sample| sample.rps),
            p50_us: middle(|sample| sample.p50_us),
            p99_us: middle(|sample| sample.p99_us),
            offered_rps: middle(|sample| sample.offered_rps),
            generator_late_us: middle(|sample| sample.generator_late_us),
            start_ms: middle(|sample| Some(sample.start_ms)).unwrap_or(0.0),
            requests: samples.iter().map(|sample| sample.requests).sum(),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            others_share: worst(|sample| sample.others_share),
            stolen_share: worst(|sample| sample.stolen_share),
            tls: samples.iter().find_map(|sample| sample.tls.clone()),
        });
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

/// A time of the Unix clock in words, by the usual conversion of days to a civil date.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_become_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_796_083_199), "2026-11-30T23:59:59Z");
    }

    #[test]
    fn medians_are_taken_and_counts_added() {
        let sample = |cpu: f64, errors: u64| Sample { cpu_us: Some(cpu), errors, requests: 10, ..Sample::default() };
        let samples = vec![sample(20.0, 0), sample(26.0, 2), sample(22.0, 0)];
        let mut row = ProductResult { samples, ..ProductResult::default() };
        row.conclude();
        let median = row.median.unwrap();
        assert_eq!((median.cpu_us, median.errors, median.requests), (Some(22.0), 2, 30));
        assert!((row.spread.unwrap() - 6.0 / 22.0).abs() < 1e-9);
    }
}
