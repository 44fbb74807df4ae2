//! `oha`: HTTP/3, many requests at a time on each connection.

use super::Load;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What `oha` found, and how long the bodies were.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The counts and latencies.
    pub load: Load,
    /// The mean size of a body, whole bytes.
    pub body_bytes: Option<u64>,
}

/// What it prints as JSON, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    summary: Summary,
    #[serde(default)]
    latency_percentiles: BTreeMap<String, Option<f64>>,
    #[serde(default)]
    status_code_distribution: BTreeMap<String, u64>,
    #[serde(default)]
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    requests_per_sec: Option<f64>,
    size_per_request: Option<u64>,
}

/// What it calls requests that were under way at the end: no failure of anybody.
const UNDER_WAY: &str = "aborted due to deadline";

/// Parses the output of `oha --output-format json`, version 1.12 or later.
pub(crate) fn parse(text: &str) -> Option<Outcome> {
    let found: Found = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let mut load = Load { rps: found.summary.requests_per_sec?, ..Load::default() };
    for (status, count) in &found.status_code_distribution {
        load.requests += count;
        if !status.starts_with('2') {
            load.fail(&format!("status {status}"), *count);
        }
    }
    for (error, count) in found.error_distribution.iter().filter(|(error, _)| *error != UNDER_WAY) {
        load.fail(error, *count);
    }
    let at = |(name, seconds): (&String, &Option<f64>)| {
        Some((name.strip_prefix('p')?.parse::<f64>().ok()?, (*seconds)? * 1e6))
    };
    load.quantiles = found.latency_percentiles.iter().filter_map(at).collect();
    load.quantiles.sort_by(|one, other| one.0.total_cmp(&other.0));
    load.p50_us = load.quantile_us(50.0).unwrap_or(0.0);
    load.p99_us = load.quantile_us(99.0).unwrap_or(0.0);
    Some(Outcome { load, body_bytes: found.summary.size_per_request })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{
  "summary": { "successRate": 1.0, "total": 1.0, "slowest": 0.02, "requestsPerSec": 30000.5, "totalData": 360000,
    "sizePerRequest": 12, "sizePerSec": 360000.0 },
  "latencyPercentiles": { "p10": 0.001, "p50": 0.002, "p99": 0.0045, "p99.9": 0.009, "p99.99": null },
  "statusCodeDistribution": { "200": 30000, "502": 3 },
  "errorDistribution": { "aborted due to deadline": 17, "connection lost": 2 }
}"#;

    #[test]
    fn a_run_is_parsed_and_what_was_under_way_is_no_error() {
        let Outcome { load, body_bytes } = parse(OUTPUT).unwrap();
        assert_eq!((load.requests, load.errors, load.rps, body_bytes), (30_003, 5, 30_000.5, Some(12)));
        assert_eq!((load.p50_us, load.p99_us), (2000.0, 4500.0));
        assert_eq!(load.quantiles.len(), 4);
        assert_eq!((load.error_kinds["status 502"], load.error_kinds["connection lost"]), (3, 2));
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("error: unexpected argument '--http-version'"), None);
        assert_eq!(parse("{}"), None);
    }
}
