//! Active checks.

use std::time::Duration;

use crate::snapshot::UpstreamTls;

/// An active check of each endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// What is asked.
    pub kind: HealthCheckKind,
    /// Port that is asked; that of the endpoint when not given.
    pub port: Option<u16>,
    /// Time between checks of one endpoint that is up.
    pub interval: Duration,
    /// The same while it is down.
    pub interval_down: Duration,
    /// The same while outcomes speak against its state, but not often enough yet.
    pub interval_changing: Duration,
    /// Intervals vary by chance up to so many percent up and down.
    pub jitter_percent: u8,
    /// Time for one check.
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

impl HealthCheck {
    /// A check with one interval for all and everything else off, two successes to rise, three failures to fall.
    pub fn new(kind: HealthCheckKind, interval: Duration, timeout: Duration) -> Self {
        Self {
            kind,
            port: None,
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

/// A check by HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// HEAD instead of GET.
    pub is_head: bool,
    /// Path with query.
    pub path: String,
    /// `host` field; the endpoint's name when not given.
    pub host: Option<String>,
    /// Fields that are sent.
    pub fields: Vec<(String, String)>,
    /// Inclusive ranges of good statuses.
    pub statuses: Vec<(u16, u16)>,
    /// Fields that the response must have with exactly this value. Names are valid.
    pub expected_fields: Vec<(String, String)>,
    /// What the body must hold.
    pub expected_body: Option<String>,
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
