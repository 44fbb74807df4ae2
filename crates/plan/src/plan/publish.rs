//! The one handle by which control reaches the workers.

use std::fmt;
use std::sync::Arc;

use crate::Plan;

type Publish = dyn Fn(Arc<Plan>) -> Result<(), String> + Send + Sync;

/// Gives plans to all workers, or to none. The data plane makes it, the control plane calls it, and neither sees the
/// other.
pub struct Publisher(Box<Publish>);

impl Publisher {
    /// Wraps what prepares a plan on every worker and then commits it on all or aborts it on all. It returns when that
    /// is done.
    pub fn new(publish: impl Fn(Arc<Plan>) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Box::new(publish))
    }

    /// Makes `plan` the one that all workers use, and tells those who wait in queues.
    ///
    /// # Errors
    /// A sentence that says why the plan could not be prepared, such as an address in use. The plan before stays in force.
    pub fn publish(&self, plan: Arc<Plan>) -> Result<(), String> {
        (self.0)(plan.clone())?;
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
