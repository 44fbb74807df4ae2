//! All measuring: where programs run, what a window of time cost, what a generator saw. Every study uses this.

pub(crate) mod bench;
pub(crate) mod child;
pub(crate) mod loads;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod procfs;
pub(crate) mod stats;
pub(crate) mod window;

use serde::{Deserialize, Serialize};

/// What one measurement of one product gave. What a cell does not measure is left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// CPU time of the product's processes for a request, us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Memory that a held connection added, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_bytes: Option<f64>,
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rps: Option<f64>,
    /// Median latency, us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// The rate that a generator with a constant rate was told to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_rps: Option<f64>,
    /// How late that generator was itself, 99th percentile, us: a latency cannot be known better than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_late_us: Option<f64>,
    /// How long the product took from its start to its first answer, ms.
    pub start_ms: f64,
    /// Requests answered, or connections held.
    pub requests: u64,
    /// Failed connections, answers that were not 2xx, requests never answered.
    pub errors: u64,
    /// Share of the machine that programs outside the lab used meanwhile.
    pub others_share: f64,
    /// Share of the machine that its host took away meanwhile.
    pub stolen_share: f64,
    /// Protocol, cipher and key exchange, as the generator saw them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
}

/// Above this share of the machine used by others or taken by the host, a measurement counts as disturbed.
pub(crate) const DISTURBED_SHARE: f64 = 0.04;

impl Sample {
    /// Somebody else used the machine.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.others_share + self.stolen_share > DISTURBED_SHARE
    }
}
