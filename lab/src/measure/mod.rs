//! All measuring: where programs run, what a window of time cost, what a generator saw. Every study uses this.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod child;
pub(crate) mod loads;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod origins;
pub(crate) mod other_loads;
pub(crate) mod pauses;
pub(crate) mod procfs;
pub(crate) mod sentinel;
pub(crate) mod stats;
pub(crate) mod syslog;
pub(crate) mod window;

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use stats::median;
use std::collections::BTreeMap;

/// What one measurement of one product gave. What a cell does not measure is left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// CPU time of the product's processes for a request, us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Memory that a held connection added, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_bytes: Option<f64>,
    /// Requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps: Option<f64>,
    /// Median latency, us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// The rate that a generator with a constant rate was told to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rps: Option<f64>,
    /// How late that generator was itself, 99th percentile, us: a latency cannot be known better than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_late_us: Option<f64>,
    /// Bytes of an answer's body as it was sent, where answers are encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_bytes: Option<u64>,
    /// How long the product took from its start to its first answer, ms.
    pub start_ms: f64,
    /// Requests answered, or connections held.
    pub requests: u64,
    /// Failed connections, answers that were not 2xx, requests never answered.
    pub errors: u64,
    /// The same, told apart: how many of which kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_kinds: BTreeMap<String, u64>,
    /// Bytes a second that the generator received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_bytes: Option<f64>,
    /// The latency distribution: percentiles and microseconds, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<(f64, f64)>,
    /// The most memory (proportional set size) that the product was seen to hold, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Seconds since the measurement began, and how many cores the product used around then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores_over_time: Vec<(f64, f64)>,
    /// Lines of the access log that reached the lab's receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_lines: Option<u64>,
    /// Seconds since the measurement began, and the origin's response time around then as the access log tells it, ms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origin_over_time: Vec<(f64, f64)>,
    /// Share of the machine that programs outside the lab used meanwhile.
    pub others_share: f64,
    /// Share of the machine that its host took away meanwhile.
    pub stolen_share: f64,
    /// Protocol, cipher and key exchange, as the generator saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
}

/// Above this share of the machine used by others or taken by the host, a measurement counts as disturbed.
pub(crate) const DISTURBED_SHARE: f64 = 0.04;

impl Sample {
    /// Somebody else used the machine.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.others_share + self.stolen_share > DISTURBED_SHARE
    }

    /// The medians of several; counts are sums, memory, size and disturbance the worst. `None` of none.
    pub(crate) fn median(samples: &[Self]) -> Option<Self> {
        let first = samples.first()?;
        let middle = |field: fn(&Self) -> Option<f64>| median(&samples.iter().filter_map(field).collect::<Vec<_>>());
        let worst = |field: fn(&Self) -> f64| samples.iter().map(field).fold(0.0, f64::max);
        let mut error_kinds = BTreeMap::new();
        for (kind, count) in samples.iter().flat_map(|sample| &sample.error_kinds) {
            *error_kinds.entry(kind.clone()).or_default() += count;
        }
        Some(Self {
            cpu_us: middle(|sample| sample.cpu_us),
            connection_bytes: middle(|sample| sample.connection_bytes),
            rps: middle(|sample| sample.rps),
            p50_us: middle(|sample| sample.p50_us),
            p99_us: middle(|sample| sample.p99_us),
            offered_rps: middle(|sample| sample.offered_rps),
            generator_late_us: middle(|sample| sample.generator_late_us),
            answer_bytes: samples.iter().filter_map(|sample| sample.answer_bytes).max(),
            start_ms: middle(|sample| Some(sample.start_ms)).unwrap_or(0.0),
            requests: samples.iter().map(|sample| sample.requests).sum(),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            error_kinds,
            transfer_bytes: middle(|sample| sample.transfer_bytes),
            quantiles: quantiles(samples, &first.quantiles),
            peak_bytes: samples.iter().filter_map(|sample| sample.peak_bytes).max(),
            cores_over_time: first.cores_over_time.clone(),
            log_lines: samples.iter().map(|sample| sample.log_lines).sum(),
            origin_over_time: first.origin_over_time.clone(),
            others_share: worst(|sample| sample.others_share),
            stolen_share: worst(|sample| sample.stolen_share),
            tls: samples.iter().find_map(|sample| sample.tls.clone()),
        })
    }
}

/// For each percentile of the first sample the median over all that have it.
fn quantiles(samples: &[Sample], of: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let at = |sample: &Sample, percentile: f64| {
        sample.quantiles.iter().find(|(other, _)| *other == percentile).map(|(_, time_us)| *time_us)
    };
    let middle = |&(percentile, _): &(f64, f64)| {
        let times: Vec<f64> = samples.iter().filter_map(|sample| at(sample, percentile)).collect();
        Some((percentile, median(&times)?))
    };
    of.iter().filter_map(middle).collect()
}

/// Measures once, and once more when others used the machine meanwhile; the calmer of the two counts.
pub(crate) fn undisturbed(mut measure: impl FnMut() -> Result<Sample, Failure>) -> Result<Sample, Failure> {
    let first = measure()?;
    if !first.is_disturbed() {
        return Ok(first);
    }
    let calm = |sample: &Sample| sample.others_share + sample.stolen_share;
    match measure() {
        Ok(second) if calm(&second) < calm(&first) => Ok(second),
        Err(failure) if failure.is_interruption() => Err(failure),
        _ => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_and_counts_added() {
        let sample = |cpu: f64, errors: u64| Sample {
            cpu_us: Some(cpu),
            errors,
            requests: 10,
            error_kinds: BTreeMap::from([("timeout".to_owned(), errors)]),
            quantiles: vec![(50.0, cpu), (99.0, 2.0 * cpu)],
            ..Sample::default()
        };
        let median = Sample::median(&[sample(20.0, 1), sample(26.0, 2), sample(22.0, 0)]).unwrap();
        assert_eq!((median.cpu_us, median.errors, median.requests), (Some(22.0), 3, 30));
        assert_eq!(median.error_kinds["timeout"], 3);
        assert_eq!(median.quantiles, [(50.0, 22.0), (99.0, 44.0)]);
        assert!(Sample::median(&[]).is_none());
    }

    #[test]
    fn a_disturbed_measurement_is_made_once_more_and_the_calmer_one_counts() {
        let mut shares = [0.5, 0.3, 0.0].into_iter();
        let mut made = 0;
        let sample = undisturbed(|| {
            made += 1;
            Ok(Sample { others_share: shares.next().unwrap_or(1.0), ..Sample::default() })
        });
        assert_eq!((made, sample.unwrap().others_share), (2, 0.3));
    }
}
