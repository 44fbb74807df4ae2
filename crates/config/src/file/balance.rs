//! How an endpoint is chosen.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::limits;
use model::snapshot::NamedBalance;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};

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
        Self::Name(BalanceName(&model::snapshot::Balance::NAMED[0]))
    }
}

/// How an endpoint is chosen, with defaults: a name of [`Balance::NAMED`](model::snapshot::Balance::NAMED).
#[derive(Clone, Copy, Debug)]
pub struct BalanceName(pub &'static NamedBalance);

impl Serialize for BalanceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for BalanceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let named = model::snapshot::Balance::NAMED.iter().find(|named| named.name() == text);
        named.map(Self).ok_or_else(|| de::Error::custom(format_args!("`{text}` is not the name of a balancer")))
    }
}

impl JsonSchema for BalanceName {
    fn schema_name() -> Cow<'static, str> {
        "BalanceName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let branch =
            |named: &NamedBalance| json!({ "type": "string", "const": named.name(), "description": named.summary });
        let branches: Vec<Value> = model::snapshot::Balance::NAMED.iter().map(branch).collect();
        json_schema!({ "oneOf": branches, "description": "How an endpoint is chosen, with defaults." })
    }
}

/// How an endpoint is chosen, with settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Balance", extend("oneOf" = one_of(&["hash", "least_time", "peak_ewma"])))]
pub struct BalanceSettings {
    /// The same endpoint for equal keys; few keys move when endpoints are added or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash>,
    /// The one that is expected to respond soonest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_time: Option<ResponseTimes>,
    /// The better of two random endpoints: the one that is expected to respond sooner. Reacts to slowness at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_ewma: Option<ResponseTimes>,
}

/// How response times are averaged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseTimes {
    /// Time after which a response counts half.
    pub half_life: Time,
}

impl Default for ResponseTimes {
    fn default() -> Self {
        Self { half_life: Time(limits::BALANCE_HALF_LIFE) }
    }
}

/// Consistent hashing: equal keys go to the same endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// The part of a request that is the key. In a list, the first one that the request has counts; a request without any goes
    /// to a random endpoint.
    #[schemars(extend("minItems" = 1))]
    pub on: OneOrMany<HashKey>,
    /// How keys are mapped to endpoints.
    #[serde(default)]
    pub algorithm: HashAlgorithm,
    /// Send no more to an endpoint that has this share of the average load in flight, such as `125%` (bounded loads). Unlimited
    /// by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<Margin>,
}

/// A part of a request: its name, or a map that names a field.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum HashKey {
    /// A part that every request has.
    Part(HashPart),
    /// A named field.
    Field(HashField),
}

/// A part that every request has.
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
    /// Points on a hash ring.
    Ketama,
    /// A lookup table that endpoints fill in turn.
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
    /// The fallback if there is no such endpoint, or none that is up: reject with 503, use any endpoint of the cluster, or use
    /// those with these labels.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// The value of a label.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum LabelValue {
    /// A fixed value.
    Written(String),
    /// A value taken from the request.
    Field(LabelField),
}

/// Where a request has the value of a label.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelField {
    /// In this header field (upper or lower case).
    pub header: String,
}

/// The fallback of a subset: a word, or labels.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Otherwise {
    /// Reject, or any endpoint.
    Word(OtherwiseWord),
    /// Endpoints with these labels.
    Labels(BTreeMap<String, String>),
}

impl Default for Otherwise {
    fn default() -> Self {
        Self::Word(OtherwiseWord::Refuse)
    }
}

/// The fallback of a subset.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherwiseWord {
    /// The request is rejected with 503.
    Refuse,
    /// Any endpoint of the cluster.
    Any,
}

/// Use a part of many endpoints (deterministic aperture): each instance of the program takes another part, so there are fewer
/// connections in total. The parts follow from the names of the endpoints, which must be the same for all instances.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aperture {
    /// The number of this instance, counted from 0, such as `${ORDINAL}`.
    #[schemars(range(min = 0, max = 99_999))]
    pub instance: u32,
    /// Number of instances.
    #[schemars(range(min = 1, max = 100_000))]
    pub instances: u32,
    /// Minimum number of endpoints that each instance uses.
    #[serde(default = "endpoints_min")]
    #[schemars(range(min = 1, max = 100_000))]
    pub endpoints_min: u32,
}

fn endpoints_min() -> u32 {
    limits::APERTURE_ENDPOINTS_MIN
}
