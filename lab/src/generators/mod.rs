//! The load generators and what they print. Each is somebody else's tool, except the one for constant rates.

pub(crate) mod h2load;
pub(crate) mod hey;
pub(crate) mod wrk;

use serde::{Deserialize, Serialize};

/// What a generator counted in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Requests answered.
    pub requests: u64,
    /// Answers that were not 2xx, and connections that failed.
    pub errors: u64,
    /// Requests a second.
    pub rps: f64,
    /// Median latency, us.
    pub p50_us: f64,
    /// 99th percentile of the latency, us.
    pub p99_us: f64,
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
