use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fitness::AdminState::{self, Auto, Down, Drain, Maintenance, Up};
use model::snapshot::Balance;

use super::*;
use crate::health::passive::Event;
use crate::testing::{Worker, cluster, health_check, plan_of, weighted};
use crate::{ClusterPlan, HealthState, Outcome, Pick};

fn checked(weights: &[u32]) -> Cluster {
    cluster("c", Balance::RoundRobin, weighted(weights)).with(|it| it.health_check = health_check(1, 1))
}

fn with_states(mut cluster: Cluster, states: &[AdminState]) -> Cluster {
    for (endpoint, state) in cluster.endpoints.iter_mut().zip(states) {
        endpoint.state = *state;
    }
    cluster
}

fn weights(plan: &ClusterPlan) -> Vec<u32> {
    (0..plan.endpoints.len()).map(|index| plan.roll().weight(index)).collect()
}

fn after(previous: &ClusterPlan, cluster: Cluster) -> ClusterPlan {
    let next = ClusterPlan::compile(Arc::new(cluster), Some(previous));
    next.succeed(previous);
    next
}

#[test]
fn what_the_operator_wants_overrules_checks() {
    let plan = plan_of(with_states(checked(&[1, 2, 3, 4, 5]), &[Auto, Up, Down, Drain, Maintenance]));
    assert_eq!(weights(&plan), [1, 2, 0, 0, 0]);
    for index in 0..5 {
        plan.observe(index, Outcome::Failure);
    }
    assert_eq!(weights(&plan), [0, 2, 0, 0, 0]);
    let standings: Vec<_> = (0..5).map(|index| plan.roll().standing(index).as_str()).collect();
    assert_eq!(standings, ["down", "fit", "forced_down", "drain", "maintenance"]);
    for index in 0..5 {
        plan.observe(index, Outcome::Success);
    }
    assert_eq!(weights(&plan), [1, 2, 0, 0, 0]);
}

#[test]
fn a_drained_endpoint_keeps_what_it_has_and_gets_nothing_new() {
    let plan = plan_of(checked(&[1, 1]));
    let mut worker = Worker::new(1);
    let held: Vec<_> = (0..2).map(|_| worker.lease(&plan)).collect();
    let drained = after(&plan, with_states(checked(&[1, 1]), &[Drain, Auto]));
    assert_eq!(drained.endpoints[0].state.in_flight(), 1);
    for _ in 0..4 {
        assert_eq!(worker.lease(&drained).endpoint_index(), 1);
    }
    drop(held);
    assert_eq!(drained.endpoints[0].state.in_flight(), 0);
    let none = after(&drained, with_states(checked(&[1, 1]), &[Drain, Maintenance]));
    assert!(matches!(worker.pick(&none), Pick::None));
}

#[test]
fn what_was_known_before_maintenance_is_forgotten_after_it() {
    let plan = plan_of(checked(&[1, 1]));
    plan.observe(0, Outcome::Failure);
    plan.observe(1, Outcome::Failure);
    let worked_on = after(&plan, with_states(checked(&[1, 1]), &[Maintenance, Drain]));
    let back = after(&worked_on, checked(&[1, 1]));
    assert_eq!(back.endpoints[0].state.health_state(), HealthState::Unknown);
    assert_eq!(back.endpoints[1].state.health_state(), HealthState::Down, "checks went on while it drained");
}

#[test]
fn when_too_few_are_fit_all_that_could_be_get_work() {
    let mut config = with_states(checked(&[1, 1, 1, 1, 1, 0]), &[Auto, Auto, Auto, Auto, Drain, Auto]);
    config.fitness.panic_percent = 50;
    let plan = plan_of(config);
    let now = Instant::now();
    for index in 0..2 {
        plan.observe(index, Outcome::Failure);
    }
    assert_eq!((weights(&plan), plan.tick(now)), (vec![0, 0, 1, 1, 0, 0], vec![]), "half of them is not below half");
    plan.observe(2, Outcome::Failure);
    assert_eq!(weights(&plan), [1, 1, 1, 1, 0, 0], "neither who drains nor who has no weight");
    assert_eq!(plan.tick(now), [Event::Panic { begins: true, fit: (1, 4) }]);
    assert_eq!(plan.tick(now), []);
    plan.observe(0, Outcome::Success);
    assert_eq!(weights(&plan), [1, 0, 0, 1, 0, 0]);
    assert_eq!(plan.tick(now), [Event::Panic { begins: false, fit: (2, 4) }]);
}

#[test]
fn without_a_threshold_nobody_who_is_down_gets_work() {
    let plan = plan_of(checked(&[1, 1]));
    plan.observe(0, Outcome::Failure);
    plan.observe(1, Outcome::Failure);
    assert!(!plan.roll().panics);
    assert!(matches!(Worker::new(1).pick(&plan), Pick::None));
}

/// How often each is picked in 400 turns.
fn shares(plan: &ClusterPlan) -> Vec<usize> {
    let mut worker = Worker::new(1);
    let mut shares = vec![0; plan.endpoints.len()];
    for _ in 0..400 {
        shares[worker.lease(plan).endpoint_index()] += 1;
    }
    shares
}

#[test]
fn an_endpoint_that_comes_up_gets_its_share_little_by_little() {
    let mut config = checked(&[1, 1]);
    config.fitness.slow_start = Some(Duration::from_secs(10));
    let plan = plan_of(config.clone());
    let begun = Instant::now();
    assert_eq!(shares(&plan), [200, 200], "at the start all are new, and nobody is spared");
    plan.observe(0, Outcome::Failure);
    plan.observe(0, Outcome::Success);
    let [first, other] = shares(&plan)[..] else { panic!() };
    assert!((30..45).contains(&first), "a tenth of the weight of the other: {first} and {other}");
    plan.tick(begun);
    let mut before = first;
    for second in 1..=9 {
        plan.tick(begun + Duration::from_secs(second));
        let share = shares(&plan)[0];
        assert!(share > before, "{share} after {second} s, {before} before");
        before = share;
    }
    plan.tick(begun + Duration::from_secs(10));
    assert_eq!(shares(&plan), [200, 200]);
    // A new endpoint and one that comes back from maintenance.
    config.endpoints = weighted(&[1, 1, 1]);
    config.endpoints[1].state = Maintenance;
    let grown = after(&plan, config.clone());
    assert_eq!(weights(&grown), [20, 0, 2]);
    config.endpoints[1].state = Auto;
    assert_eq!(weights(&after(&grown, config.clone())), [20, 2, 2]);
    config.fitness.slow_start = None;
    assert_eq!(weights(&after(&grown, config)), [1, 1, 1]);
}

#[test]
fn an_agent_moves_the_weight_of_its_endpoint_and_takes_it_out() {
    let mut config = cluster("c", Balance::RoundRobin, weighted(&[2, 1, 1]));
    config.endpoints[0].agent_port = Some(1);
    config.fitness.agent = Some(model::fitness::AgentCheck {
        port: None,
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        send: String::new(),
    });
    let plan = plan_of(config.clone());
    assert_eq!(plan.report(0, "up 100%\n"), None, "nothing new");
    assert_eq!(weights(&plan), [2, 1, 1]);
    assert_eq!(plan.report(0, "25%").map(|report| report.percent), Some(25));
    assert_eq!(weights(&plan), [50, 100, 100]);
    assert_eq!(shares(&plan), [80, 160, 160]);
    for (line, standing) in [
        ("drain", Standing::Drain),
        ("ready maint", Standing::Maintenance),
        ("ready down", Standing::Unwell),
        ("up 0%", Standing::Out),
        ("100%", Standing::Fit),
    ] {
        plan.report(0, line);
        assert_eq!((plan.roll().standing(0), weights(&plan)[0] > 0), (standing, standing == Standing::Fit), "{line}");
    }
    plan.report(1, "drain");
    assert_eq!(weights(&plan), [2, 1, 1], "it has no agent");
    plan.report(0, "drain");
    config.endpoints[0].state = Up;
    assert_eq!(weights(&after(&plan, config.clone())), [2, 1, 1], "the operator has the last word");
    config.endpoints[0].state = Auto;
    config.fitness.agent = None;
    assert_eq!(weights(&after(&plan, config)), [2, 1, 1], "nobody is asked any more");
}

#[test]
fn alone_an_endpoint_that_comes_up_gets_all() {
    let mut config = checked(&[3]);
    config.fitness.slow_start = Some(Duration::from_secs(10));
    let plan = plan_of(config);
    plan.observe(0, Outcome::Failure);
    plan.observe(0, Outcome::Success);
    assert_eq!(shares(&plan), [400]);
}
