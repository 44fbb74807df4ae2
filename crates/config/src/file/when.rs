//! When a filter applies.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::{Match, OneOrMany, PathMatch, TableTest, ValueTest};

/// Conditions of a filter. All of them must hold, for the request as earlier filters left it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// Any of these hosts: a name, or `*.` and a name, which stands for one or more labels.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub host: OneOrMany,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathMatch>,
    /// Any of these methods.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub method: OneOrMany,
    /// All of these header fields of the request, by name (upper or lower case).
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
    /// What tables have counted of this client or key: one condition, or a list of which all must hold.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub table: OneOrMany<TableTest>,
    /// A CEL expression that must be true, for what the other keys cannot say, such as
    /// `request.headers["x-tenant"] == jwt.claims["tenant"]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub expression: Option<String>,
    /// Any of these statuses of the response: `404`, `5xx` or `500-599`. Only for filters that act only on responses.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub status: OneOrMany<StatusText>,
    /// Negation: this must not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<When>>,
    /// One of these must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub any: Option<Vec<When>>,
    /// All of these must hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub all: Option<Vec<When>>,
}

impl When {
    /// Returns what it asks that routes may ask too.
    pub(crate) fn matches(&self) -> Match {
        Match {
            host: self.host.clone(),
            path: self.path.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            query: self.query.clone(),
            cookies: self.cookies.clone(),
            proxy_tlvs: self.proxy_tlvs.clone(),
            source: self.source.clone(),
            expression: self.expression.clone(),
            body: None,
        }
    }
}

/// Statuses as they are written: a number, or a text such as `5xx`.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct StatusText(pub String);

impl<'de> Deserialize<'de> for StatusText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) => Ok(Self(number.to_string())),
            Value::String(text) => Ok(Self(text)),
            other => Err(de::Error::custom(format!("{other} is not a status"))),
        }
    }
}

impl JsonSchema for StatusText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Status".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"] })
    }
}
