//! The load generators and what they print. Each is somebody else's tool, except the one for constant rates.

pub(crate) mod ab;
pub(crate) mod dnsperf;
pub(crate) mod grpc;
pub(crate) mod h2load;
pub(crate) mod hey;
pub(crate) mod k6;
pub(crate) mod oha;
pub(crate) mod vegeta;
pub(crate) mod wrk;

use crate::measure::child::output_of;
use crate::paths::Paths;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The generators, as `lab peers list` shows them.
pub(crate) const ALL: &[&str] = &["wrk", "hey", "ab", "h2load", "vegeta", "dnsperf", "k6", "grpc-benchmark", "oha"];

/// A generator's version, in one line. Those that say nothing useful have their package's.
pub(crate) fn version(paths: &Paths, name: &str) -> String {
    let option = match name {
        "wrk" => "-v",
        "ab" => "-V",
        "hey" => return of_package(paths.package_version("debian-root", "hey")),
        "dnsperf" => return of_package(paths.package_version("dns-root", "dnsperf")),
        "k6" => "version",
        "vegeta" | "grpc-benchmark" => {
            let text = std::fs::read_to_string(paths.peers.join(format!("go-{name}.installed"))).ok();
            return of_package(text.map(|text| text.trim().to_owned()));
        }
        _ => "--version",
    };
    match paths.generator(name).and_then(|launch| output_of(&launch.arg(option))) {
        Ok(text) => {
            let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("").trim();
            let line = line.strip_prefix("This is ").unwrap_or(line);
            let end = [" <", " Copyright"].iter().filter_map(|mark| line.find(mark)).min();
            line[..end.unwrap_or(line.len())].to_owned()
        }
        Err(failure) => failure.to_string(),
    }
}

fn of_package(version: Option<String>) -> String {
    version.unwrap_or_else(|| "not installed".to_owned())
}

/// What a generator counted in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Requests answered.
    pub requests: u64,
    /// Answers that were not 2xx, and connections that failed.
    pub errors: u64,
    /// The same, told apart: how many of which kind.
    pub error_kinds: BTreeMap<String, u64>,
    /// Requests a second.
    pub rps: f64,
    /// Median latency, us.
    pub p50_us: f64,
    /// 99th percentile of the latency, us.
    pub p99_us: f64,
    /// Percentiles and microseconds, ascending: what the generator tells of the distribution.
    pub quantiles: Vec<(f64, f64)>,
    /// Bytes received a second, if it tells.
    pub transfer_bytes: Option<f64>,
    /// Protocol, cipher and key, if it tells.
    pub tls: Option<String>,
}

impl Load {
    /// Counts errors of a kind.
    fn fail(&mut self, kind: &str, count: u64) {
        if count > 0 {
            self.errors += count;
            *self.error_kinds.entry(kind.to_owned()).or_default() += count;
        }
    }

    /// The time within which that share of the requests was answered, if the generator told.
    fn quantile_us(&self, percentile: f64) -> Option<f64> {
        self.quantiles.iter().find(|(known, _)| *known == percentile).map(|(_, time_us)| *time_us)
    }
}

/// Microseconds of a time such as `850.00us`, `1.02ms`, `2.50s`, `1.10m`.
fn time_us(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..unit_at].parse().ok()?;
    let factor = match &text[unit_at..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    Some(number * factor)
}

/// Bytes of a size such as `512.00B`, `5.88MB`, `1.10GB`, in steps of 1,024.
fn size_bytes(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..unit_at].parse().ok()?;
    let power = match &text[unit_at..] {
        "B" => 0,
        "KB" => 1,
        "MB" => 2,
        "GB" => 3,
        _ => return None,
    };
    Some(number * 1024_f64.powi(power))
}
