//! Bounds that hold under threads, and what a pass gives back.

use std::time::Duration;

use model::resilience::{ErrorRatio, Resilience};
use model::snapshot::Balance;

use super::*;
use crate::Plan;
use crate::resilience::breaker::Phase;
use crate::testing::{cluster, weighted};

fn plan(breaker: Option<CircuitBreaker>, previous: Option<&Arc<ClusterPlan>>) -> Arc<ClusterPlan> {
    let mut cluster = cluster("site", Balance::RoundRobin, weighted(&[1]));
    cluster.resilience = Resilience { breaker, ..Resilience::default() };
    Arc::new(ClusterPlan::compile(Arc::new(cluster), previous.map(|plan| &**plan)))
}

fn ratio() -> ErrorRatio {
    let second = Duration::from_secs(1);
    ErrorRatio { percent: 50, window: second, requests_min: 1, open_for: second, trial_requests: 1 }
}

fn let_in(plan: &ClusterPlan) -> Result<Option<Pass>, Refusal> {
    let mut pass = None;
    plan.let_in(&mut pass, Instant::now()).map(|()| pass)
}

#[test]
fn without_a_circuit_breaker_there_is_no_pass() {
    let plan = plan(None, None);
    assert!(!plan.is_guarded() && let_in(&plan).unwrap().is_none());
    assert_eq!((plan.occupy(&mut None), plan.let_retry(&mut None)), (Ok(()), Ok(())));
}

#[test]
fn each_bound_refuses_what_is_above_it_until_something_is_given_back() {
    let breaker = CircuitBreaker {
        requests_max: Some(3),
        connections_max: Some(1),
        retries_max: Some(1),
        ..CircuitBreaker::default()
    };
    let plan = plan(Some(breaker), None);
    let mut passes: Vec<_> = (0..3).map(|_| let_in(&plan).unwrap()).collect();
    assert_eq!(let_in(&plan).unwrap_err(), Refusal::Requests);
    let [first, second, third] = &mut passes[..] else { unreachable!() };
    assert_eq!((plan.occupy(first), plan.occupy(first)), (Ok(()), Ok(())), "one is enough");
    assert_eq!(plan.occupy(second), Err(Refusal::Connections));
    first.as_mut().unwrap().vacate();
    assert_eq!(plan.occupy(second), Ok(()));
    assert_eq!((plan.let_retry(first), plan.let_retry(second)), (Ok(()), Err(Refusal::Retries)));
    assert_eq!(plan.let_in(second, Instant::now()), Ok(()), "for another attempt, which has no connection yet");
    assert_eq!(plan.occupy(third), Ok(()));
    *first = None;
    assert_eq!(plan.let_retry(third), Ok(()));
    assert!(let_in(&plan).is_ok());
}

#[test]
fn bounds_are_exact_whatever_the_number_of_threads() {
    let plan = plan(Some(CircuitBreaker { requests_max: Some(3), ..CircuitBreaker::default() }), None);
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if let Ok(pass) = let_in(&plan) {
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(pass);
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&most.into_inner()));
    assert_eq!(plan.guard_state().unwrap().requests.load(Ordering::SeqCst), 0);
}

#[test]
fn a_change_of_bounds_keeps_what_is_counted_and_the_open_circuit() {
    let breaker = |requests_max| CircuitBreaker {
        requests_max: Some(requests_max),
        error_ratio: Some(ratio()),
        ..CircuitBreaker::default()
    };
    let before = plan(Some(breaker(5)), None);
    let mut pass = let_in(&before).unwrap();
    let kept = let_in(&before).unwrap();
    let now = Instant::now();
    before.tell_circuit(&mut pass, false, now);
    let after = plan(Some(breaker(2)), Some(&before));
    assert_eq!(let_in(&after).unwrap_err(), Refusal::Requests);
    drop(kept);
    assert_eq!(let_in(&after).unwrap_err(), Refusal::ErrorRatio);
    let without = plan(None, Some(&after));
    assert!(!without.is_guarded());
    let phase = || after.guard_state().unwrap().circuit().phase(now);
    assert_eq!(phase(), Phase::Open, "what is only compiled changes nothing");
    let [after, without] = [after.clone(), without].map(|plan| Plan { clusters: vec![plan], ..Plan::default() });
    without.take_effect(&after);
    assert_eq!(phase(), Phase::Closed, "its rules are gone");
}

#[test]
fn only_the_first_outcome_of_an_attempt_is_told_to_the_circuit() {
    let rules = ErrorRatio { requests_min: 2, ..ratio() };
    let plan = plan(Some(CircuitBreaker { error_ratio: Some(rules), ..CircuitBreaker::default() }), None);
    let (mut pass, now) = (let_in(&plan).unwrap(), Instant::now());
    let phase = || plan.guard_state().unwrap().circuit().phase(now);
    for _ in 0..5 {
        plan.tell_circuit(&mut pass, false, now);
    }
    assert_eq!(phase(), Phase::Closed);
    plan.let_in(&mut pass, now).unwrap();
    plan.tell_circuit(&mut pass, false, now);
    assert_eq!(phase(), Phase::Open, "that was another attempt");
}
