//! Active checks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::matching::ValueMatch;
use crate::tls::UpstreamTls;

/// An active check of each endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// What is asked, in this order; at least one step. The endpoint passes when every step does.
    pub steps: Vec<CheckStep>,
    /// Reasons name the step, as the configuration lists steps.
    pub is_listed: bool,
    /// Time between checks of one endpoint that is up.
    pub interval: Duration,
    /// The same while it is down.
    pub interval_down: Duration,
    /// The same while outcomes speak against its state, but not often enough yet.
    pub interval_changing: Duration,
    /// Intervals vary by chance up to so many percent up and down.
    pub jitter_percent: u8,
    /// Time for one check with all its steps.
    pub timeout: Duration,
    /// Successes in a row that make a down endpoint up.
    pub rise: u32,
    /// Failures in a row that make an up endpoint down.
    pub fall: u32,
    /// A new endpoint gets no work before its first check has succeeded.
    pub held_out: bool,
    /// Checks by HTTP use one connection as long as it lasts.
    pub reuses_connection: bool,
}

/// One step of an active check.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckStep {
    /// What is asked.
    pub kind: HealthCheckKind,
    /// Port that is asked; that of the endpoint when not given.
    pub port: Option<u16>,
    /// Time for this step, where it has less than the whole check.
    pub timeout: Option<Duration>,
}

impl From<HealthCheckKind> for CheckStep {
    fn from(kind: HealthCheckKind) -> Self {
        Self { kind, port: None, timeout: None }
    }
}

impl HealthCheck {
    /// Returns a check of one step with one interval, two successes to rise, three failures to fall, and everything else off.
    pub fn new(kind: HealthCheckKind, interval: Duration, timeout: Duration) -> Self {
        Self {
            steps: vec![kind.into()],
            is_listed: false,
            interval,
            interval_down: interval,
            interval_changing: interval,
            jitter_percent: 0,
            timeout,
            rise: 2,
            fall: 3,
            held_out: false,
            reuses_connection: false,
        }
    }
}

/// What an active check asks.
#[derive(Clone, Debug, PartialEq)]
pub enum HealthCheckKind {
    /// The port accepts a connection (and completes a TLS handshake when the cluster speaks TLS).
    Tcp,
    /// The port completes a TLS handshake, whatever the cluster speaks.
    Tls(UpstreamTls),
    /// An HTTP request is answered as expected.
    Http(HttpCheck),
    /// The endpoint says by gRPC's health protocol that it serves.
    Grpc(GrpcCheck),
    /// Bytes are sent and expected, one step after the other.
    Script(Vec<ScriptStep>),
}

impl HealthCheckKind {
    /// Returns the name that the configuration gives it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls(_) => "tls",
            Self::Http(_) => "http",
            Self::Grpc(_) => "grpc",
            Self::Script(_) => "script",
        }
    }
}

/// A check over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpCheck {
    /// Method of the request, not `CONNECT`.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// `host` field; the endpoint's name when not given.
    pub host: Option<String>,
    /// Fields that are sent. Names are valid, and none is part of the framing.
    pub fields: Vec<(String, String)>,
    /// Body that is sent; at most [`crate::limits::CHECK_BODY_SENT_BYTES_MAX`].
    pub body: Arc<[u8]>,
    /// What the response must be: all of it.
    pub wanted: ResponseTests,
    /// What the response must not be: none of it.
    pub refused: ResponseTests,
    /// How much of the response's body is looked at; at most [`crate::limits::CHECK_BODY_BYTES_HARD_MAX`].
    pub response_bytes_max: usize,
}

impl HttpCheck {
    /// Returns a GET request that expects a status from 200 to 299.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: "GET".to_owned(),
            path: path.into(),
            host: None,
            fields: Vec::new(),
            body: Arc::default(),
            wanted: ResponseTests { statuses: vec![(200, 299)], ..ResponseTests::default() },
            refused: ResponseTests::default(),
            response_bytes_max: crate::limits::CHECK_BODY_BYTES_MAX,
        }
    }
}

/// Conditions on a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseTests {
    /// Inclusive ranges; one of them holds the status.
    pub statuses: Vec<(u16, u16)>,
    /// Header fields. Names are valid.
    pub fields: Vec<ValueMatch>,
    /// The body; at most [`crate::limits::CHECK_CONDITIONS_MAX`].
    pub body: Vec<BodyTest>,
    /// The body read as JSON; at most [`crate::limits::CHECK_CONDITIONS_MAX`].
    pub json: Vec<JsonMatch>,
}

/// A condition on a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyTest {
    /// It contains this text.
    Contains(String),
    /// This expression matches somewhere in it.
    Regex(String),
}

/// A condition on one value of a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonMatch {
    /// Where the value is, as written: `.checks.db.status`.
    pub path: String,
    /// What it must be.
    pub test: JsonTest,
}

/// What a JSON value must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTest {
    /// There at all, also `null`.
    Present,
    /// Not there.
    Absent,
    /// Equal to this text, number or boolean.
    Equals(Value),
    /// A text, number or boolean that this expression matches as a whole.
    Regex(String),
}

/// A check by `grpc.health.v1.Health/Check`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrpcCheck {
    /// What of the endpoint is asked after; empty is the whole of it.
    pub name: String,
    /// Authority; the endpoint's name when not given.
    pub host: Option<String>,
    /// Fields that are sent. Names are valid.
    pub fields: Vec<(String, String)>,
}

/// A step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Reads until these bytes come.
    Expect(Vec<u8>),
}
