//! What decides whether endpoints are fit for work: checks, what requests tell, and what the operator wants.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CheckStep, ClusterTlsSettings, GrpcCheck, HttpCheck, one_of};
use crate::units::{Percent, Time};

/// A regular check of each endpoint: one of `tcp`, `tls`, `http`, `grpc` or `script`, or several of them as `steps`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["tcp", "tls", "http", "grpc", "script", "steps"])))]
pub struct HealthCheck {
    /// The port accepts a connection, and completes a TLS handshake when the cluster speaks TLS. Has no settings: `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpCheck>,
    /// The port completes a TLS handshake, although the cluster itself does not use TLS: for TLS passthrough. `{}` for the
    /// defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTlsSettings>,
    /// The endpoint answers an HTTP request as expected. Uses TLS if the cluster does, and HTTP/2 or HTTP/3 if the cluster
    /// speaks only that and no `port` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// The endpoint reports `SERVING` over the gRPC health protocol (`grpc.health.v1.Health/Check`). Over HTTP/2, with TLS if
    /// the cluster uses it, or over HTTP/3 if the cluster speaks only that and no `port` is set. `{}` for the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// Bytes are sent and expected, one step after the other. Uses TLS if the cluster does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub script: Option<Vec<ScriptStep>>,
    /// Several checks, one after the other, each optionally with its own port. The endpoint passes if all of them do; the
    /// reason of a failure names the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub steps: Option<Vec<CheckStep>>,
    /// TCP port of the check. By default that of the endpoint. With `steps`, the port of each step that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Time between two checks of one endpoint.
    #[serde(default = "check_interval")]
    pub interval: Time,
    /// Interval while the endpoint is down. By default `interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_down: Option<Time>,
    /// Interval while results contradict the endpoint's state, but not yet often enough to change it. By default `interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_changing: Option<Time>,
    /// Random variation of intervals, as a share up and down. Endpoints are spread over the interval in any case.
    #[serde(default = "none")]
    pub jitter: Percent,
    /// Time-out of one check, with all its steps.
    #[serde(default = "check_timeout")]
    pub timeout: Time,
    /// Successes in a row that make a down endpoint up.
    #[serde(default = "rise")]
    #[schemars(range(min = 1, max = 1000))]
    pub rise: u32,
    /// Failures in a row that make an up endpoint down.
    #[serde(default = "fall")]
    #[schemars(range(min = 1, max = 1000))]
    pub fall: u32,
    /// State of a new endpoint until its first check.
    #[serde(default)]
    pub start: CheckStart,
    /// Keep one connection open for all checks, instead of a new one each time. For one `http` check over HTTP/1.1.
    #[serde(default)]
    pub reuse_connection: bool,
}

/// State of a new endpoint until its first check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStart {
    /// It gets requests.
    #[default]
    Serving,
    /// It gets no requests until a check has succeeded.
    HeldOut,
}

/// A check by TCP has no settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpCheck {}

/// A step of a script: one of `send`, `send_hex`, `expect` or `expect_hex`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["send", "send_hex", "expect", "expect_hex"])))]
pub struct ScriptStep {
    /// Text to send, as in `"PING\\r\\n"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub send: Option<String>,
    /// Bytes to send, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 8192))]
    pub send_hex: Option<String>,
    /// Text to wait for. Bytes before it are skipped, up to 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub expect: Option<String>,
    /// Bytes to wait for, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 8192))]
    pub expect_hex: Option<String>,
}

/// Administrative state of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// It gets requests while it is healthy.
    #[default]
    Auto,
    /// It gets requests, whatever its health.
    Up,
    /// It gets no requests, as if its checks failed.
    Down,
    /// It gets no new requests; those in flight finish.
    Drain,
    /// It gets no new requests, and is not checked.
    Maintenance,
}

/// Agents are queried over TCP, as in HAProxy: they answer with one line of words, such as `75%`, `up`, `down`, `drain`, `maint`
/// or `ready`, and close.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentCheck {
    /// Port of the agents, at the addresses of the endpoints. `agent_port` of an endpoint overrides it; an endpoint without
    /// either has no agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Interval between queries of one agent.
    pub interval: Time,
    /// Time-out of one query. An agent that does not answer changes nothing.
    pub timeout: Time,
    /// Text that is sent to the agent first, such as `"status\\n"`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub send: String,
}

impl Default for AgentCheck {
    fn default() -> Self {
        Self { port: None, interval: check_interval(), timeout: check_timeout(), send: String::new() }
    }
}

/// Ejects endpoints that fail requests (outlier detection): they get no requests for a while. The last available endpoint is
/// never ejected.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveHealth {
    /// Failures in a row that eject an endpoint; 0 switches this off. A failure is every fault that counts against health in
    /// the table of faults: no connection, no response in time, an invalid response.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub consecutive_failures: u32,
    /// Responses with a status from 500 to 599, and failures, in a row that eject an endpoint. Off by default: a client may be
    /// able to provoke such responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub consecutive_5xx: Option<u32>,
    /// Eject an endpoint if too many of its requests fail. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_rate: Option<FailureRate>,
    /// Eject an endpoint if its requests fail more often than those of the others. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// Eject an endpoint that responds more slowly than the others. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyOutliers>,
    /// Time over which `failure_rate`, `success_rate` and `latency` are counted.
    pub interval: Time,
    /// Duration of an endpoint's first ejection. Each further ejection is longer by the same time; each good interval takes one
    /// step back.
    pub ejection_time: Time,
    /// Longest ejection.
    pub ejection_time_max: Time,
    /// Share of the cluster's endpoints that may be ejected at once, rounded down to whole endpoints.
    pub ejected_max: Percent,
}

impl Default for PassiveHealth {
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            consecutive_5xx: None,
            failure_rate: None,
            success_rate: None,
            latency: None,
            interval: Time(Duration::from_secs(10)),
            ejection_time: Time(Duration::from_secs(30)),
            ejection_time_max: Time(Duration::from_secs(300)),
            ejected_max: Percent(50),
        }
    }
}

/// Too many requests of an endpoint fail. Failures and statuses from 500 to 599 count.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FailureRate {
    /// Share of an endpoint's requests that may fail within an interval; more ejects it.
    pub max: Percent,
    /// Minimum number of an endpoint's requests in an interval; with fewer there is no decision.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
}

impl Default for FailureRate {
    fn default() -> Self {
        Self { max: Percent(50), requests_min: 50 }
    }
}

/// An endpoint succeeds less often than the others. Failures and statuses from 500 to 599 are not successes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRate {
    /// Standard deviations below the mean success rate of all endpoints; a lower rate is ejected.
    #[schemars(range(min = 0.5, max = 10.0))]
    pub deviations: f64,
    /// Success rate that is good enough, whatever the others have.
    pub enough: Percent,
    /// Minimum number of an endpoint's requests in an interval; with fewer it is ignored.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
    /// Minimum number of endpoints with that many requests; with fewer there is no decision. With fewer than five, none can be
    /// 1.9 deviations below the mean.
    #[schemars(range(min = 2, max = 10_000))]
    pub endpoints_min: u32,
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { deviations: 1.9, enough: Percent(95), requests_min: 100, endpoints_min: 5 }
    }
}

/// An endpoint responds more slowly than the others, by the mean time from sending a request to the head of the response, or
/// for TCP the time to connect.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyOutliers {
    /// Multiple of the median of the others.
    #[schemars(range(min = 1.1, max = 1000.0))]
    pub factor: f64,
    /// Latency that is good enough, whatever the others have.
    pub enough: Time,
    /// Minimum number of an endpoint's good responses in an interval; with fewer it is ignored.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
    /// Minimum number of endpoints with that many responses; with fewer there is no decision.
    #[schemars(range(min = 2, max = 10_000))]
    pub endpoints_min: u32,
}

impl Default for LatencyOutliers {
    fn default() -> Self {
        Self { factor: 3.0, enough: Time(Duration::from_millis(100)), requests_min: 100, endpoints_min: 3 }
    }
}

fn none() -> Percent {
    Percent(0)
}

fn check_interval() -> Time {
    Time(Duration::from_secs(2))
}

fn check_timeout() -> Time {
    Time(Duration::from_secs(1))
}

fn rise() -> u32 {
    2
}

fn fall() -> u32 {
    3
}
