use std::time::{Duration, Instant};

use model::fitness::{AdminState, PassiveHealth};
use model::snapshot::{Balance, Cluster, HealthCheck};

use crate::testing::{cluster, compiled, health_check, snapshot, weighted};
use crate::{ClusterPlan, HealthState, Outcome, Plan, Seen};

fn plan_of(cluster: Cluster, previous: Option<&Plan>) -> Plan {
    compiled(snapshot(vec![], vec![], vec![cluster]), previous)
}

/// What is known of the endpoints, and what they weigh.
fn known(plan: &Plan) -> Vec<(HealthState, u32, u32, bool)> {
    let cluster: &ClusterPlan = &plan.clusters[0];
    let roll = cluster.roll();
    let of = |(index, endpoint): (usize, &crate::EndpointPlan)| {
        let ejected = endpoint.state.passive_if_any().is_some_and(|passive| passive.ejected() > 0);
        (endpoint.state.health_state(), endpoint.state.ramp.share(), roll.weight(index), ejected)
    };
    cluster.endpoints.iter().enumerate().map(of).collect()
}

#[test]
fn a_plan_that_is_refused_after_all_leaves_no_trace() {
    let mut config = cluster("c", Balance::RoundRobin, weighted(&[1, 1, 1]));
    config.health_check = health_check(1, 1);
    config.fitness.slow_start = Some(Duration::from_secs(10));
    config.endpoints[2].state = AdminState::Maintenance;
    let first = plan_of(config.clone(), None);
    first.clusters[0].observe(0, Outcome::Failure);
    first.clusters[0].observe(2, Outcome::Failure);
    let (before, epoch) = (known(&first), first.clusters[0].state.epoch());

    // Back from maintenance: it is asked again, and begins slowly.
    let mut next = config.clone();
    next.endpoints[2].state = AdminState::Auto;
    let second = plan_of(next, Some(&first));
    assert_eq!((known(&first), first.clusters[0].state.epoch()), (before, epoch), "only compiled");
    second.take_effect(&first);
    let after = known(&second);
    assert_eq!((after[0].0, after[2].0), (HealthState::Down, HealthState::Unknown));
    assert_eq!((after[1].1, after[2].1), (20, 2), "the second works on, the third begins with a tenth");
}

#[test]
fn a_check_that_begins_finds_nothing_that_an_earlier_one_left_behind_once_it_is_in_force() {
    let mut config = cluster("c", Balance::RoundRobin, weighted(&[1, 1]));
    config.health_check = health_check(1, 1);
    let first = plan_of(config.clone(), None);
    first.clusters[0].observe(0, Outcome::Failure);
    let unchecked = plan_of(config.clone().with(|it| it.health_check = None), Some(&first));
    unchecked.take_effect(&first);
    let health = |plan: &Plan| plan.clusters[0].endpoints[0].state.health_state();
    assert_eq!(health(&unchecked), HealthState::Down, "nobody looks at it");

    let held_out = HealthCheck { held_out: true, ..health_check(1, 1).unwrap() };
    let again = plan_of(config.clone().with(|it| it.health_check = Some(held_out)), Some(&unchecked));
    assert_eq!(health(&unchecked), HealthState::Down);
    assert!(!again.clusters[0].is_up(0), "as long as it is only compiled");
    again.take_effect(&unchecked);
    assert_eq!(health(&again), HealthState::Up, "who was at work goes on");
    let roll = again.clusters[0].roll();
    assert_eq!([0, 1].map(|index| roll.weight(index)), [1, 1]);
    let tiers = again.clusters[0].latest_view();
    assert!(!tiers.view.tiers(crate::Subset::ALL).is_empty(), "the view shows it");
}

#[test]
fn ejections_are_forgotten_when_passive_health_begins_again_and_not_before() {
    let second = Duration::from_secs(1);
    let rules = PassiveHealth {
        consecutive_failures: Some(1),
        consecutive_5xx: None,
        failure_rate: None,
        success_rate: None,
        latency: None,
        interval: 10 * second,
        ejection_time: 5 * second,
        ejection_time_max: 10 * second,
        ejected_percent_max: 50,
    };
    let mut config = cluster("c", Balance::RoundRobin, weighted(&[1, 1, 1]));
    config.fitness.passive = Some(rules);
    let first = plan_of(config.clone(), None);
    let watched = &first.clusters[0];
    watched.witness(&watched.endpoints[0].state, Seen::Failed, Instant::now());
    let ejected = |plan: &Plan| known(plan)[0].3;
    assert!(ejected(&first));
    let mut off = config.clone();
    off.fitness.passive = None;
    let off = plan_of(off, Some(&first));
    off.take_effect(&first);
    let again = plan_of(config, Some(&off));
    assert!(ejected(&off), "only compiled");
    again.take_effect(&off);
    assert!(!ejected(&again));
}
