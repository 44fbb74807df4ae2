//! By which rules a request is carried at a cluster, beside the choice of an endpoint: its turn in the queue, further
//! attempts, hedges, and trials while a circuit is half-open.

use model::Method;
use model::resilience::{Hedge, HedgeAfter};
use model::retry::{Methods, Retry};

use super::asked::Asked;
use crate::cluster::ClusterPlan;
use crate::resilience::breaker::Phase;

/// Returns what there is to tell. Rules that no one has written are left out.
pub(super) fn notes(plan: &ClusterPlan, asked: &Asked<'_>, is_pinned: bool) -> Vec<String> {
    let mut notes: Vec<String> = trial(plan, asked).into_iter().collect();
    let Some(head) = asked.head else { return notes };
    let route = asked.route.map(|route| &*route.route);
    notes.extend(turn(plan, asked));
    let own = route.and_then(|route| route.retry.as_ref());
    let retry = own.unwrap_or(&plan.cluster.retry);
    if *retry != Retry::default() {
        notes.push(format!("{}{}", attempts(retry, head.method), by(own.is_some())));
    }
    let own = route.and_then(|route| route.hedge.as_ref());
    if let Some(hedge) = own.or(plan.cluster.resilience.hedge.as_ref()) {
        notes.push(format!("{}{}", hedged(hedge, head.method, (plan, is_pinned)), by(own.is_some())));
    }
    notes
}

/// Returns whose rules they are.
fn by(is_own: bool) -> &'static str {
    if is_own { " (the route's rules)" } else { " (the cluster's rules)" }
}

fn trial(plan: &ClusterPlan, asked: &Asked<'_>) -> Option<String> {
    let rules = plan.cluster.resilience.breaker.as_ref()?.error_ratio.as_ref()?;
    let circuit = plan.guard_state()?.circuit();
    (circuit.phase(asked.at.now) == Phase::HalfOpen).then(|| {
        format!(
            "the circuit is half-open: {} trial requests at once, {} in flight",
            rules.trial_requests,
            circuit.trials()
        )
    })
}

/// Returns its turn among those that wait.
fn turn(plan: &ClusterPlan, asked: &Asked<'_>) -> Option<String> {
    plan.cluster.queue.as_ref()?;
    let precedence = asked.route?.route.precedence;
    let (class, offset) = (precedence.class, precedence.offset_ms);
    let shift = match offset {
        0 => None,
        early if early < 0 => Some(format!("as if it had come {} ms earlier", early.unsigned_abs())),
        late => Some(format!("as if it had come {late} ms later")),
    };
    let parts: Vec<String> = (class != 0).then(|| format!("of class {class}")).into_iter().chain(shift).collect();
    (!parts.is_empty()).then(|| format!("in the queue it is {}", parts.join(", ")))
}

fn attempts(retry: &Retry, method: Method) -> String {
    let on = &retry.on;
    let named = [
        (on.connect_failure, "connect_failure"),
        (on.reset, "reset"),
        (on.timeout, "timeout"),
        (on.bad_response, "bad_response"),
    ];
    let named = named.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name.to_owned());
    let range = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let all: Vec<String> = named.chain(on.statuses.iter().map(range)).collect();
    if retry.attempts_max <= 1 || all.is_empty() {
        return "never tried again".to_owned();
    }
    let most = format!("{} attempts at most", retry.attempts_max);
    if retry.methods.allow(method) || !on.hold_after_sending() {
        return format!("retried after {}, {most}", all.join(", "));
    }
    // An endpoint that could not be connected to has not acted on it.
    match on.connect_failure {
        true => format!("retried only after connect_failure, because its method is not idempotent, {most}"),
        false => "never retried, because its method is not idempotent".to_owned(),
    }
}

fn hedged(hedge: &Hedge, method: Method, (plan, is_pinned): (&ClusterPlan, bool)) -> String {
    if is_pinned {
        return "not hedged, because its session stays with its endpoint".to_owned();
    }
    if !hedge.methods.allow(method) {
        debug_assert_eq!(hedge.methods, Methods::Idempotent);
        return "not hedged, because its method is not idempotent".to_owned();
    }
    if plan.endpoints.len() < 2 {
        return "not hedged, because there is no other endpoint".to_owned();
    }
    let after = match hedge.after {
        HedgeAfter::Time(time) => format!("within {time:?}"),
        HedgeAfter::Percentile(percent) => format!("within the time of {percent}% of recent responses"),
    };
    format!("hedged: without a response {after} it is also sent to another endpoint, to {} at most", hedge.attempts_max)
}
