//! Conditions on requests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, one_of};
use crate::units::Size;

/// Conditions of a route. All of them must hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// Any of these hosts: a name, or `*.` and a name, which stands for one or more labels.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub host: OneOrMany,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Any of these methods.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub method: OneOrMany,
    /// All of these header fields, by name (upper or lower case).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ValueTest>,
    /// All of these query parameters, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, ValueTest>,
    /// All of these cookies, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cookies: BTreeMap<String, ValueTest>,
    /// All of these TLVs of the connection's PROXY header, version 2, by name (`alpn`, `authority`, `unique_id`, `ssl_version`,
    /// `ssl_cn`, `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, `netns`, `aws_vpce_id`) or type (`0xea`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_tlvs: BTreeMap<String, ValueTest>,
    /// The client address is in any of these networks, such as `10.0.0.0/8` or `192.0.2.7`.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub source: OneOrMany,
    /// A CEL expression that must be true, for what the other keys cannot say, such as
    /// `request.path.endsWith(".php") || request.size > quantity("1MiB")`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub expression: Option<String>,
    /// Conditions on the body of the request, which is held for them. All of them must hold, and none does for a body that is
    /// longer than `max`, has a `content-encoding`, or is malformed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyMatch>,
}

/// Conditions on values in the body of a request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BodyMatch {
    /// All of these values of a JSON text, by JSON Pointer (RFC 6901), such as `/model` or `/user/tier`. Numbers and truth values are
    /// compared as they are written.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, ValueTest>,
    /// All of these fields of a form (`application/x-www-form-urlencoded`), by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub form: BTreeMap<String, ValueTest>,
    /// All of these fields of the first message of a unary gRPC call, by their numbers: `1` or `1.3`, in quotes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub grpc: BTreeMap<String, ValueTest>,
    /// Bytes of the body that are held, at most 16 MiB. A longer body without `content-length` gets 413.
    pub max: Size,
}

impl Default for BodyMatch {
    fn default() -> Self {
        Self { json: BTreeMap::new(), form: BTreeMap::new(), grpc: BTreeMap::new(), max: Size(64 << 10) }
    }
}

/// A condition on the path, without the query, after normalization (`paths` of the listener).
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["exact", "prefix", "regex"])))]
pub struct PathMatch {
    /// The whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// Whole segments from the start: `/api` matches `/api` and `/api/x`, not `/apix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A regular expression for the whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

/// A condition on a value: text stands for `{ exact: … }`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ValueTest {
    /// Exactly this.
    Exact(String),
    /// A condition.
    Test(ValueTestMap),
}

/// What a value must be.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ValueTest", extend("oneOf" = one_of(&["exact", "regex", "present", "absent"])))]
pub struct ValueTestMap {
    /// Exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    /// A regular expression for the whole value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// Present, with any value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub present: Option<bool>,
    /// Absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub absent: Option<bool>,
}
