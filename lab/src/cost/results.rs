//! What a run found, as it is written to the file.

use crate::failure::Failure;
use crate::measure::Sample;
use crate::measure::bench::Bench;
use crate::measure::child::write_file;
use crate::measure::machine::{self, Machine};
use crate::measure::stats::spread;
use crate::products::{self, Product, Version};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

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
    /// The peer that did best (of those whose answers are as small), and how many times its figure Equipoise's is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
}

/// Answers are of equal size when they differ by no more than this share.
pub(crate) const SIZE_TOLERANCE: f64 = 0.03;

/// Equipoise beside the best of the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Against {
    /// The best peer.
    pub best: &'static str,
    /// Equipoise's figure, as a multiple of that peer's.
    pub times: f64,
}

/// One product in one cell.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ProductResult {
    /// Its name.
    pub name: &'static str,
    /// What it does otherwise than it was asked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
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
        let Machine { kernel, processor } = Machine::read();
        Self {
            study: "cost",
            date: machine::utc(machine::now()),
            kernel,
            processor,
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
        Self { name, title, products: products.iter().map(row).collect(), against: None }
    }

    /// Computes medians and spreads.
    pub(crate) fn conclude(&mut self) {
        self.products.iter_mut().for_each(ProductResult::conclude);
        self.against = self.best_peer().and_then(|(best, figure)| {
            let times = self.figure("equipoise")? / figure;
            Some(Against { best, times })
        });
    }

    /// The peer with the least figure. Where answers are encoded, those of Equipoise's size count, and those that are both
    /// smaller and cheaper: others did another amount of work.
    fn best_peer(&self) -> Option<(&'static str, f64)> {
        let is_peer = |row: &&ProductResult| products::ALL.iter().any(|one| one.name == row.name && one.is_peer);
        let peers = self.products.iter().filter(is_peer);
        let figures = peers.filter_map(|row| Some((row.name, row.median.as_ref().and_then(figure)?)));
        let counts = |name: &str, figure: f64| match self.size_beside_equipoise(name) {
            Some(more) if more > SIZE_TOLERANCE => false,
            Some(more) if more < -SIZE_TOLERANCE => self.figure("equipoise").is_some_and(|own| figure < own),
            _ => true,
        };
        let figures = figures.filter(|(name, figure)| *figure > 0.0 && counts(name, *figure));
        figures.min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// How much larger (smaller, when negative) the answers of a product are than Equipoise's, as a share, where they are encoded.
    pub(crate) fn size_beside_equipoise(&self, product: &str) -> Option<f64> {
        Some(self.answer_bytes(product)? / self.answer_bytes("equipoise")? - 1.0)
    }

    fn answer_bytes(&self, product: &str) -> Option<f64> {
        let row = self.products.iter().find(|row| row.name == product)?;
        row.median.as_ref()?.answer_bytes.map(|bytes| bytes as f64)
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
        self.spread = spread(&samples.iter().filter_map(figure).collect::<Vec<_>>());
        self.disturbed = samples.iter().any(Sample::is_disturbed);
        self.median = Sample::median(samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_is_the_one_with_the_least_figure() {
        let row = |name, cpu| {
            let samples = vec![Sample { cpu_us: Some(cpu), ..Sample::default() }];
            ProductResult { name, samples, ..ProductResult::default() }
        };
        let products = vec![row("floor", 5.0), row("equipoise", 15.0), row("nginx", 30.0), row("haproxy", 20.0)];
        let mut cell = CellResult { name: "h3", title: "", products, against: None };
        cell.conclude();
        assert_eq!(cell.against, Some(Against { best: "haproxy", times: 0.75 }));
    }

    #[test]
    fn a_peer_whose_answers_are_larger_is_not_the_best_and_one_with_smaller_is_when_it_is_cheaper() {
        let row = |name, cpu, bytes| {
            let samples = vec![Sample { cpu_us: Some(cpu), answer_bytes: Some(bytes), ..Sample::default() }];
            ProductResult { name, samples, ..ProductResult::default() }
        };
        let best = |products| {
            let mut cell = CellResult { name: "gzip6-json-10k", title: "", products, against: None };
            cell.conclude();
            cell.against
        };
        let against = |best, times| Some(Against { best, times });
        let ours = || row("equipoise", 15.0, 2000);
        assert_eq!(best(vec![ours(), row("nginx", 30.0, 2050), row("haproxy", 5.0, 2100)]), against("nginx", 0.5));
        assert_eq!(best(vec![ours(), row("nginx", 30.0, 2050), row("envoy", 10.0, 1800)]), against("envoy", 1.5));
        assert_eq!(best(vec![ours(), row("nginx", 30.0, 2050), row("envoy", 20.0, 1800)]), against("nginx", 0.5));
        assert_eq!(best(vec![ours(), row("haproxy", 5.0, 2100)]), None);
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
