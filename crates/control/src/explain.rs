//! What would become of a request: against a plan that was just made, or against the one that runs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Instant;

use plan::{Plan, Random};

pub use plan::explain::{ClusterTold, EndpointTold, Explanation, FilterTold, Outcome, Question, RouteTold};

/// Asks a plan. What chance decides is drawn anew each time.
///
/// # Errors
/// The question cannot be understood, or no listener takes such a request.
pub fn explain(plan: &Plan, question: &Question) -> Result<Explanation, String> {
    let mut random = Random::new(RandomState::new().build_hasher().finish());
    plan::explain::explain(plan, question, Instant::now(), &mut || random.next_u64())
}
