//! What health checks ask over HTTP and gRPC, what they expect, and checks of several steps.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::{ClusterTlsSettings, OneOrMany, ScriptStep, TcpCheck, ValueTest, one_of};
use crate::units::{Size, Time};

/// One step of a check: one of `tcp`, `tls`, `http`, `grpc` or `script`, with the settings that these have in `health_check`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["tcp", "tls", "http", "grpc", "script"])))]
pub struct CheckStep {
    /// The port accepts a connection, and completes a TLS handshake when the cluster speaks TLS. Has no settings: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// The port completes a TLS handshake, although the cluster itself does not use TLS. `{}` for the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTlsSettings>,
    /// The endpoint answers a request as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// The endpoint reports `SERVING` over the gRPC health protocol. `{}` for the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// Bytes are sent and expected, one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub script: Option<Vec<ScriptStep>>,
    /// TCP port of this step. By default that of the check, then that of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Time-out of this step. By default the rest of the check's `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
}

/// A check over HTTP. Every condition on the response must hold.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpCheck {
    /// Method of the request: any but `CONNECT`.
    #[serde(default = "check_method")]
    #[schemars(length(min = 1, max = 32))]
    pub method: String,
    /// Path, optionally with a query.
    #[serde(default = "check_path")]
    pub path: String,
    /// Host of the request. By default the endpoint as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Header fields of the request; `host` may be one of them. The probe sets the framing itself (`content-length`,
    /// `connection` and the like), and sends `accept-encoding: identity` unless that field is set here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Body, up to 16 KiB, sent with its `content-length`. Set its `content-type` in `headers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// Expected statuses: numbers such as `200`, classes such as `2xx`, or ranges such as `200-299`. By default `200-299`, or
    /// with `not.statuses` every status that is not listed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub statuses: Option<Vec<Statuses>>,
    /// Expected header fields of the response: text for exactly this value, or `{ regex: … }`, `{ present: true }`, `{ absent:
    /// true }`. Of several fields of a name, one must match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expect_headers: BTreeMap<String, ValueTest>,
    /// Expected body of the response: text that it contains, or `{ regex: … }`; or up to 16 of them, which must all hold.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub expect_body: OneOrMany<BodyTest>,
    /// Expected values in the body of the response, which must be JSON: one condition such as `{ path: .status, equals: ok }`,
    /// or up to 16, which must all hold.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub expect_json: OneOrMany<JsonTest>,
    /// Negated conditions: a response that meets one of them fails the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<RefusedResponse>,
    /// How much of the response body is read, up to 1 MiB. JSON must fit completely.
    #[serde(default = "response_bytes_max")]
    pub response_bytes_max: Size,
}

/// Negated conditions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RefusedResponse {
    /// Statuses that fail the check: numbers such as `503`, classes such as `5xx`, or ranges such as `500-599`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub statuses: Vec<Statuses>,
    /// Header fields of the response, written as in `expect_headers`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ValueTest>,
    /// The body of the response, written as in `expect_body`.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub body: OneOrMany<BodyTest>,
    /// Values in the body of the response, written as in `expect_json`. The body must still be JSON.
    #[serde(skip_serializing_if = "OneOrMany::is_empty")]
    pub json: OneOrMany<JsonTest>,
}

/// A condition on a body: text stands for `{ contains: … }`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum BodyTest {
    /// It contains this text.
    Contains(#[schemars(length(min = 1, max = 1024))] String),
    /// A condition.
    Test(BodyTestMap),
}

/// A condition on a body: `contains` or `regex`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "BodyTest", extend("oneOf" = one_of(&["contains", "regex"])))]
pub struct BodyTestMap {
    /// It contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub contains: Option<String>,
    /// A regular expression that matches anywhere in it. It works on bytes, so the body need not be UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub regex: Option<String>,
}

/// A condition on one value of a JSON document: a path, and one of `equals`, `regex`, `present` or `absent`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["equals", "regex", "present", "absent"])))]
pub struct JsonTest {
    /// Path of the value from the top of the document: keys such as `.checks.db.status`, list indexes from 0 such as
    /// `.nodes[0].role` or `[0]`, and keys in quotes such as `["a.b"]`. A leading `$` is optional; alone it is the whole
    /// document.
    #[schemars(length(min = 1, max = 256))]
    pub path: String,
    /// The value is exactly this text, number, `true` or `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<JsonValue>,
    /// A regular expression for the whole value, which is text, a number, `true` or `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub regex: Option<String>,
    /// The value exists, even if it is `null`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub present: Option<bool>,
    /// The value does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub absent: Option<bool>,
}

/// A JSON value to compare with.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum JsonValue {
    /// `true` or `false`.
    Switch(bool),
    /// A number.
    Number(Number),
    /// Text.
    Text(#[schemars(length(max = 1024))] String),
}

/// A gRPC health check. The endpoint passes if it answers `SERVING`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcCheck {
    /// Full name of the gRPC service to check, such as `shop.v1.Basket`. By default empty: the endpoint as a whole.
    #[serde(rename = "service", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub name: String,
    /// Host of the request. By default the endpoint as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Header fields of the request; gRPC calls them metadata.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// A status, or a range of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Statuses {
    /// This one.
    One(#[schemars(range(min = 100, max = 599))] u16),
    /// A class or a range.
    Range(String),
}

fn check_method() -> String {
    "GET".to_owned()
}

fn check_path() -> String {
    "/".to_owned()
}

fn response_bytes_max() -> Size {
    Size(limits::CHECK_BODY_BYTES_MAX as u64)
}
