//! What all endpoints of a cluster share of a step of a check.

use std::sync::Arc;
use std::time::Duration;

use model::check::{CheckStep, HealthCheck, HealthCheckKind};
use model::snapshot::{Cluster, SharedVersion, UpstreamTls};
use plan::health::expectation::Expectation;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use super::tls;

/// Which version of HTTP a step speaks, where it speaks HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Http1,
    Http2,
    Http3,
}

/// The version that the endpoints of a cluster speak and no other.
pub(super) fn only_version(cluster: &Cluster) -> Option<SharedVersion> {
    cluster.pool.shared.as_ref().filter(|shared| shared.is_only).map(|shared| shared.version)
}

/// Endpoints are asked over the version that they speak alone, at their own port. Another port may be that of something else.
fn over(step: &CheckStep, only: Option<SharedVersion>) -> Over {
    match (&step.kind, only.filter(|_| step.port.is_none())) {
        (HealthCheckKind::Http(_) | HealthCheckKind::Grpc(_), Some(SharedVersion::Http3)) => Over::Http3,
        (HealthCheckKind::Http(_), Some(SharedVersion::Http2)) | (HealthCheckKind::Grpc(_), _) => Over::Http2,
        _ => Over::Http1,
    }
}

/// What all endpoints of a cluster share of a step.
pub(crate) struct Shared {
    pub(super) step: CheckStep,
    pub(super) over: Over,
    pub(super) reuses_connection: bool,
    /// Time of the whole check.
    whole: Duration,
    settings: Option<UpstreamTls>,
    client: Result<Option<Arc<ClientConfig>>, String>,
    expectation: Option<Result<Arc<Expectation>, String>>,
}

impl Shared {
    /// Prepares the steps of a check of endpoints that speak TLS by these settings, and no other version than `only`.
    pub(crate) fn of(check: &HealthCheck, tls: Option<&UpstreamTls>, only: Option<SharedVersion>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::with_capacity(check.steps.len());
        for step in &check.steps {
            let settings = match &step.kind {
                HealthCheckKind::Tls(settings) => Some(settings),
                _ => tls,
            };
            let over = over(step, only);
            // To read the authorities of the system takes a while: once is enough for steps that are alike.
            let known = all.iter().find(|known| known.settings.as_ref() == settings && known.over == over);
            let make = || settings.map(|settings| tls::client(settings, protocols(over))).transpose();
            let client = known.map_or_else(make, |known| known.client.clone());
            let expectation = match &step.kind {
                HealthCheckKind::Http(http) => Some(expectation(http)),
                _ => None,
            };
            let reuses_connection = check.reuses_connection && check.steps.len() == 1;
            let (step, settings) = (step.clone(), settings.cloned());
            all.push(Self { step, over, reuses_connection, whole: check.timeout, settings, client, expectation });
        }
        all
    }

    /// The settings of TLS, and the name that the certificate of the endpoint must bear.
    ///
    /// # Errors
    /// Says what of them is of no use.
    pub(super) fn tls(&self, endpoint: &str) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, String> {
        match (self.client.clone()?, &self.settings) {
            (Some(client), Some(settings)) => Ok(Some((client, tls::name_of(settings, endpoint)?))),
            _ => Ok(None),
        }
    }

    /// What is expected of a response over HTTP.
    ///
    /// # Errors
    /// Says what of it is of no use. Such a configuration is refused before it is published.
    pub(super) fn expectation(&self) -> Result<Arc<Expectation>, String> {
        self.expectation.clone().unwrap_or_else(|| Err("the step does not speak HTTP".to_owned()))
    }

    /// How long the step may take.
    pub(super) fn time(&self) -> Duration {
        self.step.timeout.unwrap_or(self.whole)
    }
}

fn protocols(over: Over) -> &'static [&'static [u8]] {
    match over {
        Over::Http1 => &[],
        Over::Http2 => &[tls::HTTP2],
        Over::Http3 => &[tls::HTTP3],
    }
}

fn expectation(check: &model::check::HttpCheck) -> Result<Arc<Expectation>, String> {
    let first = |issues: Vec<model::Issue>| issues.first().map(ToString::to_string).unwrap_or_default();
    Expectation::compile(check).map(Arc::new).map_err(first)
}
