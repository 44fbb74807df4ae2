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
    /// The port completes a TLS handshake, though the cluster itself does not speak TLS: for connections that are passed
    /// through. `{}` for the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClusterTlsSettings>,
    /// A request is answered as expected. With TLS when the cluster speaks it, and over HTTP/2 or HTTP/3 when it speaks nothing
    /// else and no `port` is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
    /// The endpoint says by gRPC's health protocol (`grpc.health.v1.Health/Check`) that it serves. Over HTTP/2, with TLS
    /// when the cluster speaks it, and over HTTP/3 when it speaks nothing else and no `port` is named. `{}` for the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCheck>,
    /// Bytes are sent and expected, one step after the other. With TLS when the cluster speaks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub script: Option<Vec<ScriptStep>>,
    /// Several checks, one after the other, each of which may have a port of its own. The endpoint passes when all of them do, and
    /// the reason of a failure names the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub steps: Option<Vec<CheckStep>>,
    /// Port of TCP that is asked. By default that of the endpoint. With `steps`, the port of each step that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Time between two checks of one endpoint.
    #[serde(default = "check_interval")]
    pub interval: Time,
    /// The same while the endpoint is down. By default `interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_down: Option<Time>,
    /// The same while checks speak against the state of the endpoint, but not often enough yet to change it. By default
    /// `interval`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_changing: Option<Time>,
    /// Intervals vary at random by up to this share of theirs, up and down. Endpoints are spread over the interval in any
    /// case.
    #[serde(default = "none")]
    pub jitter: Percent,
    /// Time for one check, with all its steps.
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
    /// What a new endpoint does until its first check.
    #[serde(default)]
    pub start: CheckStart,
    /// Ask over one connection as long as it lasts, not over a new one each time. For one `http` check over HTTP/1.1.
    #[serde(default)]
    pub reuse_connection: bool,
}

/// What a new endpoint does until its first check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckStart {
    /// It gets work.
    #[default]
    Serving,
    /// It gets no work before a check has succeeded.
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
    /// Text to wait for. What comes before it is passed over, up to 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub expect: Option<String>,
    /// Bytes to wait for, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 8192))]
    pub expect_hex: Option<String>,
}

/// What is wanted of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// It gets work while it is fit for it.
    #[default]
    Auto,
    /// It gets work, whatever checks and requests say of it.
    Up,
    /// It gets no work, as if its checks failed.
    Down,
    /// It gets nothing new. What is under way ends in its own time.
    Drain,
    /// It gets nothing new, and is not checked.
    Maintenance,
}

/// Agents are asked over TCP, as HAProxy does: they answer with one line of words, such as `75%`, `up`, `down`, `drain`,
/// `maint` or `ready`, and close.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentCheck {
    /// Port of the agents, at the addresses of the endpoints. `agent_port` of an endpoint comes first; an endpoint without
    /// either has no agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Time between two questions to one agent.
    pub interval: Time,
    /// Time for one. An agent that does not answer changes nothing.
    pub timeout: Time,
    /// Text that is sent to the agent at first, as in `"status\\n"`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub send: String,
}

impl Default for AgentCheck {
    fn default() -> Self {
        Self { port: None, interval: check_interval(), timeout: check_timeout(), send: String::new() }
    }
}

/// Endpoints that fail requests are ejected: they get no work for a while. The last one that could work is never
/// ejected.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PassiveHealth {
    /// Failures in a row that eject an endpoint; 0 switches this off. A failure is whatever counts against the health of
    /// the endpoint in the table of faults: no connection, no answer in time, a broken answer.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub consecutive_failures: u32,
    /// Answers with a status from 500 to 599, and failures, in a row that eject an endpoint. Not counted by default: mind
    /// that a client may be able to provoke such answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub consecutive_5xx: Option<u32>,
    /// Eject an endpoint of which too many requests fail. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_rate: Option<FailureRate>,
    /// Eject an endpoint of which more requests fail than of the others. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_rate: Option<SuccessRate>,
    /// Eject an endpoint that answers later than the others. `{}` for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyOutliers>,
    /// Time over which `failure_rate`, `success_rate` and `latency` are counted.
    pub interval: Time,
    /// How long an endpoint stays ejected the first time. Each ejection that follows lasts as much longer; each interval
    /// that goes well takes one back.
    pub ejection_time: Time,
    /// How long an ejection lasts at most.
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
    /// Requests of an endpoint in an interval below which nothing is concluded.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
}

impl Default for FailureRate {
    fn default() -> Self {
        Self { max: Percent(50), requests_min: 50 }
    }
}

/// An endpoint succeeds less often than the others. Failures and statuses from 500 to 599 are no success.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuccessRate {
    /// Standard deviations below the mean rate of all endpoints; what lies lower is ejected.
    #[schemars(range(min = 0.5, max = 10.0))]
    pub deviations: f64,
    /// Rate of success that is good enough, whatever the others do.
    pub enough: Percent,
    /// Requests of an endpoint in an interval below which it is left aside.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
    /// Endpoints with so many requests below which nothing is concluded. With fewer than five, none can lie 1.9 deviations
    /// below the mean.
    #[schemars(range(min = 2, max = 10_000))]
    pub endpoints_min: u32,
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { deviations: 1.9, enough: Percent(95), requests_min: 100, endpoints_min: 5 }
    }
}

/// An endpoint answers later than the others. What counts is the mean time from a request being sent to the head of its
/// response, or for TCP the time to connect.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyOutliers {
    /// How many times the median of the others.
    #[schemars(range(min = 1.1, max = 1000.0))]
    pub factor: f64,
    /// Latency that is good enough, whatever the others do.
    pub enough: Time,
    /// Good answers of an endpoint in an interval below which it is left aside.
    #[schemars(range(min = 1))]
    pub requests_min: u64,
    /// Endpoints with so many answers below which nothing is concluded.
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
