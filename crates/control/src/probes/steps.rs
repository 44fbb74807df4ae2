//! The steps of a check: what all endpoints of a cluster share of them, and what asks one endpoint.

use std::sync::Arc;
use std::time::Duration;

use model::Address;
use model::check::{CheckStep, HealthCheck, HealthCheckKind};
use model::proxy_protocol::SendProxy;
use model::snapshot::{Cluster, SharedVersion, UpstreamTls};
use plan::health::expectation::Expectation;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::time::Instant;

use super::attempt::{Kept, Target};
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

/// The steps at one endpoint, prepared once.
pub(crate) struct Sequence {
    steps: Vec<Step>,
    timeout: Duration,
    is_listed: bool,
}

struct Step {
    /// What cannot be asked fails each time, and says why.
    target: Result<Target, String>,
    timeout: Option<Duration>,
    /// What a reason calls it.
    label: String,
}

impl Sequence {
    /// Prepares the steps of `check` at an endpoint by its name and address, with what [`Shared::of`] gives for it.
    pub(crate) fn new(
        check: &HealthCheck,
        shared: &[Shared],
        (name, address): (&str, &Address),
        header: Option<&SendProxy>,
    ) -> Self {
        let step = |(number, shared): (usize, &Shared)| Step {
            target: Target::new(shared, (name, address), header),
            timeout: shared.step.timeout,
            label: label(number, &shared.step),
        };
        let steps = (1..).zip(shared).map(step).collect();
        Self { steps, timeout: check.timeout, is_listed: check.is_listed }
    }

    /// Takes all steps once, until one fails; bounded by the time of the check. `kept` is used if there is one, and left for the
    /// next.
    ///
    /// # Errors
    /// Says in a few words why the endpoint is not well, and where several steps are listed which of them says so.
    pub(crate) async fn attempt(&self, kept: &mut Kept) -> Result<(), String> {
        let end = Instant::now() + self.timeout;
        for step in &self.steps {
            let found = match &step.target {
                Ok(target) => target.attempt(kept, step.timeout, (end, self.timeout, self.is_listed)).await,
                Err(why) => Err(why.clone()),
            };
            found.map_err(|why| if self.is_listed { format!("{}: {why}", step.label) } else { why })?;
        }
        Ok(())
    }
}

/// `step 2 (http at port 9100)`.
fn label(number: usize, step: &CheckStep) -> String {
    let at = step.port.map(|port| format!(" at port {port}")).unwrap_or_default();
    format!("step {number} ({}{at})", step.kind.as_str())
}
