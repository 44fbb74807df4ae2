//! Tables of counters by key.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::units::Time;

/// A table of counters and rates by key, which the filter `track` and listeners count into and `when: { table: … }` reads. It is shared by all
/// workers and has a bounded size. Each entry takes 16 bytes, its key (16 bytes for `client`, 32 for others), 8 for each counter
/// and 16 for each rate; memory is allocated with the first entries. A configuration change keeps the entries unless `key`, `keys_max`,
/// `counters` or `rates` change; so does an upgrade.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What entries are by: `client`, the client address, `{ header: NAME }`, the value of a request field, or
    /// `{ expression: CEL }`, a value that is computed of the request.
    #[serde(default)]
    pub key: TableKey,
    /// With `key: client`: bits of an IPv4 address that identify a client; 32 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub ipv4_prefix: Option<u8>,
    /// With `key: client`: bits of an IPv6 address that identify a client; 64 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub ipv6_prefix: Option<u8>,
    /// Limit on entries. When eight entries that share a place are all alive, a new key replaces the one that was idle longest, so
    /// set this to several times the expected number.
    #[serde(default = "keys_max")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub keys_max: u32,
    /// Time after its last count at which an entry is forgotten.
    #[serde(default = "expire")]
    pub expire: Time,
    /// What is counted, without end: `requests`, `errors` (responses with 4xx), `failures` (responses with 5xx, and failed
    /// requests), `bytes_in` and `bytes_out` (of bodies), `marks` (see `track`), `connections` and `open_connections` (of listeners with
    /// `track`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<TableCounter>,
    /// What is counted over the last while, such as `{ requests: 10s }`: the counter, and the length of that while, from 1s to 24h.
    /// It is read as `requests_rate`. `open_connections` has no rate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rates: BTreeMap<TableCounter, Time>,
    /// Replicate the table: what the instances of `peers` count is added up, and all of them read the sum, a tenth of a second later.
    /// Each counter takes 8 bytes more. `open_connections` stays that of each instance. A change of this empties the table.
    #[serde(default)]
    pub replicate: bool,
}

fn keys_max() -> u32 {
    100_000
}

fn expire() -> Time {
    Time(std::time::Duration::from_secs(600))
}

/// Something that a table counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TableCounter {
    /// Requests.
    Requests,
    /// Responses with a status from 400 to 499.
    Errors,
    /// Responses with a status from 500 on, and requests that failed without one.
    Failures,
    /// Bytes of request bodies.
    BytesIn,
    /// Bytes of response bodies.
    BytesOut,
    /// What `track: { mark: … }` adds.
    Marks,
    /// Connections that listeners with `track` have accepted.
    Connections,
    /// Connections of listeners with `track` that are open now.
    OpenConnections,
}

/// What the entries of a table are by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKey {
    /// The client address.
    #[default]
    Client,
    /// The value of a request field.
    Header(String),
    /// The value of an expression.
    Expression(String),
}

impl<'de> Deserialize<'de> for TableKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match &value {
            Value::String(text) if text == "client" => return Ok(Self::Client),
            Value::Object(map) if map.len() == 1 => {
                if let Some(Value::String(name)) = map.get("header") {
                    return Ok(Self::Header(name.clone()));
                }
                if let Some(Value::String(text)) = map.get("expression") {
                    return Ok(Self::Expression(text.clone()));
                }
            }
            _ => {}
        }
        Err(de::Error::custom(format!(
            "{value} is not a key: write `client`, {{ header: NAME }} or {{ expression: CEL }}"
        )))
    }
}

impl JsonSchema for TableKey {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TableKey".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "enum": ["client"] },
            {
                "type": "object",
                "properties": { "header": { "type": "string", "description": "Name of the request field." } },
                "required": ["header"],
                "additionalProperties": false,
            },
            {
                "type": "object",
                "properties": { "expression": {
                    "type": "string",
                    "description": "A CEL expression whose value is the key.",
                } },
                "required": ["expression"],
                "additionalProperties": false,
            },
        ] })
    }
}

/// A condition on the entry of the request in a table. A request without an entry has zeros.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableTest {
    /// Name of the table.
    pub name: String,
    /// What must be exceeded, such as `{ errors_rate: 20 }`: all of these counters, or rates (with `_rate`), must be above their number.
    #[schemars(extend("minProperties" = 1))]
    pub above: BTreeMap<String, u64>,
}
