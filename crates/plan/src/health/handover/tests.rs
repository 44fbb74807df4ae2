//! A process that follows another goes on as that one would have.

use std::sync::Arc;

use model::snapshot::{Balance, Cluster};

use super::*;
use crate::health::agent::Wish;
use crate::health::passive::tests::rules;
use crate::health::passive::{Cause, Evidence, Seen};
use crate::testing::{cluster, health_check, plan_of, weighted};
use crate::{Outcome, Standing};

const SECOND: Duration = Duration::from_secs(1);

fn config() -> Cluster {
    let mut cluster =
        cluster("c", Balance::RoundRobin, weighted(&[1; 5])).with(|it| it.health_check = health_check(2, 2));
    cluster.fitness.passive = Some(rules());
    cluster.fitness.slow_start = Some(10 * SECOND);
    cluster
}

#[test]
fn a_process_that_follows_knows_what_the_one_before_knew() {
    let (old, new, now) = (plan_of(config()), plan_of(config()), Instant::now());
    for place in 0..5 {
        old.observe(place, Outcome::Success);
    }
    // One down, one that comes up again, one ejected, one about to be.
    for (place, outcomes) in [(0, "--"), (1, "--++"), (2, "-")] {
        for sign in outcomes.chars() {
            old.observe(place, if sign == '+' { Outcome::Success } else { Outcome::Failure });
        }
    }
    let fails = |plan: &ClusterPlan, place: usize, times: usize| {
        for _ in 0..times {
            plan.witness(&plan.endpoints[place].state, Seen::Failed, now);
        }
    };
    fails(&old, 3, 3);
    fails(&old, 4, 2);
    old.tick(now);
    old.tick(now + 4 * SECOND);
    let later = now + 4 * SECOND;
    let handed: Vec<_> = old.hand_over(later).into_iter().enumerate().collect();
    new.inherit(&handed, later);
    let standings = |plan: &ClusterPlan| {
        let roll = plan.roll();
        (0..5).map(|place| (roll.standing(place), roll.weight(place))).collect::<Vec<_>>()
    };
    assert_eq!(standings(&new), standings(&old));
    assert_eq!((standings(&new)[0].0, standings(&new)[3].0), (Standing::Unwell, Standing::Ejected));
    assert_eq!(new.hand_over(later), old.hand_over(later));
    // Both go on alike.
    for plan in [&old, &new] {
        plan.observe(2, Outcome::Failure);
        plan.tick(now + 5 * SECOND);
    }
    assert_eq!(standings(&new), standings(&old));
    assert_eq!(standings(&new)[3].0, Standing::Fit, "its time was over when it would have been");
    let count = |plan: &ClusterPlan| plan.endpoints[3].state.ejection().unwrap().count(Cause::ConsecutiveFailures);
    assert_eq!((count(&old), count(&new)), (1, 1));
    let unknown = Arc::new(new);
    unknown.inherit(&[(99, EndpointHandover::default())], later);
}

#[test]
fn what_another_process_says_beyond_measure_lasts_no_longer_than_the_rules_here_allow() {
    let (plan, now) = (plan_of(config()), Instant::now());
    let passive = PassiveHandover {
        ejected: Some((u64::MAX, Duration::MAX)),
        evidence: Some(Evidence::of(Cause::Latency, [f64::MAX; 3])),
        level: u32::MAX,
        counts: Cause::ALL.into_iter().map(|cause| (cause, u64::MAX)).collect(),
        run: (u32::MAX, u32::MAX),
    };
    let handed = EndpointHandover {
        health: (HealthState::Up, u32::MAX),
        agent: Report { wish: Wish::Ready, is_down: false, percent: u16::MAX },
        climb: Some((u32::MAX, Duration::MAX)),
        passive: Some(passive),
    };
    plan.inherit(&[(0, handed)], now);
    plan.tick(now);
    assert_eq!(plan.roll().standing(0), Standing::Ejected);
    for _ in 0..3 {
        plan.witness(&plan.endpoints[1].state, Seen::Failed, now);
    }
    assert_eq!(plan.roll().standing(1), Standing::Ejected, "there are numbers left");
    plan.tick(now + 12 * SECOND);
    assert_eq!(plan.roll().standing(0), Standing::Fit);
}

#[test]
fn evidence_is_told_in_numbers_and_read_back() {
    let millis = Duration::from_millis;
    for evidence in [
        Evidence::Failures(3),
        Evidence::Errors(7),
        Evidence::FailureRate { bad: 6, requests: 10 },
        Evidence::SuccessRate { rate: 0.6, mean: 0.96, needed: 0.75 },
        Evidence::Latency { mean: millis(200), others: millis(20) },
    ] {
        assert_eq!(Evidence::of(evidence.cause(), evidence.figures()), evidence);
    }
    assert_eq!(Evidence::of(Cause::ConsecutiveFailures, [f64::NAN; 3]), Evidence::Failures(0));
}
