//! How an endpoint is chosen.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, one_of};
use crate::units::{Margin, Time};

/// How an endpoint is chosen: a name, or settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Balance {
    /// With defaults.
    Name(BalanceName),
    /// With these settings.
    Settings(BalanceSettings),
}

impl Default for Balance {
    fn default() -> Self {
        Self::Name(BalanceName::RoundRobin)
    }
}

/// How an endpoint is chosen, with defaults.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceName {
    /// One after the other, by weight.
    RoundRobin,
    /// At random, by weight.
    Random,
    /// The one with the fewest requests in flight, by weight.
    LeastRequest,
    /// The better of two that chance draws, by weight: the one with fewer requests in flight.
    PowerOfTwo,
    /// The one that is likely to answer soonest.
    LeastTime,
    /// The better of two that chance draws: the one that is likely to answer sooner. Slowness is noticed at once.
    PeakEwma,
    /// The first that has room.
    First,
    /// The same client to the same endpoint, by its address.
    SourceHash,
}

/// How an endpoint is chosen, with settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Balance", extend("oneOf" = one_of(&["hash", "least_time", "peak_ewma"])))]
pub struct BalanceSettings {
    /// Equal keys to the same endpoint, whatever other endpoints come and go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash>,
    /// The one that is likely to answer soonest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_time: Option<ResponseTimes>,
    /// The better of two that chance draws: the one that is likely to answer sooner. Slowness is noticed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ewma: Option<ResponseTimes>,
}

/// How response times are averaged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseTimes {
    /// Time after which an answer counts half.
    pub half_life: Time,
}

impl Default for ResponseTimes {
    fn default() -> Self {
        Self { half_life: Time(limits::BALANCE_HALF_LIFE) }
    }
}

/// Equal keys go to the same endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// What of a request is the key. Of a list the first counts that the request has; a request that has none goes to any
    /// endpoint.
    #[schemars(extend("minItems" = 1))]
    pub on: OneOrMany<HashKey>,
    /// How keys are mapped to endpoints.
    #[serde(default)]
    pub algorithm: HashAlgorithm,
    /// Send no more to an endpoint that has this much of an even share in flight, such as `125%`. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<Margin>,
}

/// A part of a request: its name, or a map that names a field.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum HashKey {
    /// What every request has.
    Part(HashPart),
    /// A named field.
    Field(HashField),
}

/// What every request has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashPart {
    /// The client's address.
    Source,
    /// The path without the query.
    Path,
    /// Path and query.
    Uri,
}

/// A named field of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["header", "cookie", "query"])))]
pub struct HashField {
    /// A header field (upper or lower case).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// A cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// A query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// How keys are mapped to endpoints.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashAlgorithm {
    /// Points on a ring.
    Ketama,
    /// A table that endpoints fill in turns.
    Maglev,
    /// The highest score of key and endpoint.
    #[default]
    Rendezvous,
}

/// Only the endpoints that have all of these labels.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subset {
    /// The labels by name, with their value, or with the header field that holds it.
    pub labels: BTreeMap<String, LabelValue>,
    /// Who takes over when there is no such endpoint, or none that is fit for work: nobody (503), any endpoint of the
    /// cluster, or those with these labels.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// The value of a label.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum LabelValue {
    /// This one.
    Written(String),
    /// That which a request brings.
    Field(LabelField),
}

/// Where a request has the value of a label.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelField {
    /// In this header field (upper or lower case).
    pub header: String,
}

/// Who takes over for a subset: a word, or labels.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Otherwise {
    /// Nobody or anybody.
    Word(OtherwiseWord),
    /// Endpoints with these labels.
    Labels(BTreeMap<String, String>),
}

impl Default for Otherwise {
    fn default() -> Self {
        Self::Word(OtherwiseWord::Refuse)
    }
}

/// Who takes over for a subset.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherwiseWord {
    /// Nobody: the answer is 503.
    Refuse,
    /// Any endpoint of the cluster.
    Any,
}

/// Which part of many endpoints this instance uses. The parts are made by the names of the endpoints, the same for all
/// instances; connections are fewer by as much.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aperture {
    /// The number of this instance, counted from 0, such as `${ORDINAL}`.
    #[schemars(range(min = 0, max = 99_999))]
    pub instance: u32,
    /// How many instances there are.
    #[schemars(range(min = 1, max = 100_000))]
    pub instances: u32,
    /// Endpoints that each instance uses at least.
    #[serde(default = "endpoints_min")]
    #[schemars(range(min = 1, max = 100_000))]
    pub endpoints_min: u32,
}

fn endpoints_min() -> u32 {
    limits::APERTURE_ENDPOINTS_MIN
}
