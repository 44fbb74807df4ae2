//! The one handle by which control reaches the workers.

use std::fmt;
use std::sync::Arc;

use crate::Plan;

type Publish = dyn Fn(Arc<Plan>) -> Result<(), String> + Send + Sync;
type TryOut = dyn Fn(Option<Trial>) -> Result<(), String> + Send + Sync;

/// A plan beside the active one.
#[derive(Clone, Debug)]
pub struct Trial {
    /// With the very same listeners as the active plan.
    pub plan: Arc<Plan>,
    /// Share of exchanges and TCP connections that go by it, in percent.
    pub share_percent: u8,
}

/// Gives plans to all workers, or to none. The data plane makes it, the control plane calls it, and neither sees the
/// other.
pub struct Publisher {
    publish: Box<Publish>,
    try_out: Option<Box<TryOut>>,
}

impl Publisher {
    /// Wraps what prepares a plan on every worker and then commits it on all or aborts it on all. It returns when that
    /// is done.
    pub fn new(publish: impl Fn(Arc<Plan>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { publish: Box::new(publish), try_out: None }
    }

    /// Adds support for canaries: `try_out` starts one on all workers, or ends the current one.
    #[must_use]
    pub fn with_trials(self, try_out: impl Fn(Option<Trial>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { try_out: Some(Box::new(try_out)), ..self }
    }

    /// Has a share of what comes in go by another plan than the active one, or nothing any more. Publishing any plan ends
    /// it too; publishing the one that is tried keeps the connections that it has.
    ///
    /// # Errors
    /// A sentence that says why it cannot be tried. Nothing has changed then.
    pub fn try_out(&self, trial: Option<Trial>) -> Result<(), String> {
        match &self.try_out {
            Some(try_out) => try_out(trial),
            None => Err("this data plane has no canary".to_owned()),
        }
    }

    /// Makes `plan` the one that all workers use, and tells those who wait in queues.
    ///
    /// # Errors
    /// A sentence that says why the plan could not be prepared, such as an address in use. The plan before stays active.
    pub fn publish(&self, plan: Arc<Plan>) -> Result<(), String> {
        (self.publish)(plan.clone())?;
        for cluster in &plan.clusters {
            cluster.take_effect();
        }
        Ok(())
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reaches_the_workers_and_their_refusal_comes_back() {
        let publisher = Publisher::new(|plan| if plan.generation == 1 { Ok(()) } else { Err("in use".to_owned()) });
        let plan = |generation| Arc::new(Plan { generation, ..Plan::default() });
        assert_eq!(publisher.publish(plan(1)), Ok(()));
        assert_eq!(publisher.publish(plan(2)), Err("in use".to_owned()));
    }
}
