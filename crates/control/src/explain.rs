//! What would become of a request: against a plan that was just made, or against the one that runs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Instant, SystemTime};

use model::fields::reads_as;
use model::snapshot::ClientAuth;
use model::{Facts, Fault, FieldName, RequestHead};
use plan::{ListenerPlan, Moment, Plan, Random};
use wire::forwarding::{apply_forwarding, told_address};
use wire::path::normalise;

pub use plan::explain::{
    ClusterExplanation, EndpointExplanation, Explanation, FilterExplanation, Outcome, Question, RouteExplanation,
};

/// Asks a plan. What chance decides is drawn anew each time.
///
/// # Errors
/// The question cannot be understood, or no listener takes such a request.
pub fn explain(plan: &Plan, question: &Question) -> Result<Explanation, String> {
    let mut random = Random::new(RandomState::new().build_hasher().finish());
    let mut admit =
        |listener: &ListenerPlan, head: &mut RequestHead, facts: &Facts<'_>| admit(plan, listener, head, facts);
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = Moment { now: Instant::now(), unix };
    plan::explain::explain(plan, question, at, &mut || random.next_u64(), &mut admit)
}

/// What the data plane does to a request before it is routed.
fn admit(plan: &Plan, listener: &ListenerPlan, head: &mut RequestHead, facts: &Facts<'_>) -> Result<(), Fault> {
    let Some(http) = listener.listener.protocol.http() else { return Ok(()) };
    if let Some(name) = http.request_id.as_deref().and_then(|name| FieldName::new(name).ok()) {
        head.fields.set_alone(&name, b"(a new one)");
    }
    let trust = plan.snapshot.listeners.iter().filter_map(|listener| match &listener.tls.as_ref()?.client {
        ClientAuth::Optional(trust) | ClientAuth::Required(trust) => trust.identity_header.as_deref(),
        ClientAuth::Off => None,
    });
    let identities: Vec<&str> = trust.collect();
    head.fields.retain(|field| !identities.iter().any(|identity| reads_as(field.name, identity)));
    // Who the client is, the question says. Those who are believed about it are asked nothing here.
    let _ = told_address(&mut head.fields, facts.peer.ip(), &http.forwarding.client_address);
    apply_forwarding(head, (facts, facts.scheme), &http.forwarding, &mut Vec::new());
    match &http.paths {
        Some(paths) => normalise(head, paths, &mut Vec::new()),
        None => Ok(()),
    }
}
