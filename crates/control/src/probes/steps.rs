//! The steps of a check as one endpoint is asked.

use std::time::Duration;

use model::Address;
use model::check::{CheckStep, HealthCheck};
use model::proxy_protocol::SendProxy;
use tokio::time::Instant;

use super::attempt::Target;
use super::progress::Kept;
use super::step::Shared;

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
