//! What priorities, backups and zones promise.

use model::placement::{Aperture, Placement};
use model::snapshot::{Balance, Cluster, Endpoint, Hash};

use super::tests::{begin, shares};
use super::*;
use crate::testing::{Worker, cluster, endpoint, health_check, plan_of};
use crate::{ClusterPlan, Outcome, Pick};

/// Endpoints of weight 1 with these placements, and checks that one failure decides.
fn placed(placements: &[Placement]) -> Cluster {
    let place = |(place, placement): (u16, &Placement)| Endpoint {
        placement: placement.clone().into(),
        ..endpoint(place, 1, None)
    };
    let endpoints = (0..).zip(placements).map(place).collect();
    cluster("c", Balance::RoundRobin, endpoints).with(|it| it.health_check = health_check(1, 1))
}

fn priority(priority: u32) -> Placement {
    Placement { priority, ..Placement::default() }
}

fn zone(zone: &str) -> Placement {
    Placement { zone: Some(zone.to_owned()), ..Placement::default() }
}

fn backup() -> Placement {
    Placement { is_backup: true, ..Placement::default() }
}

fn down(plan: &ClusterPlan, places: std::ops::Range<usize>) {
    for place in places {
        plan.observe(place, Outcome::Failure);
    }
}

/// How many percent of the work the endpoints of each of these ranges get.
fn percent(plan: &ClusterPlan, ranges: &[std::ops::Range<usize>]) -> Vec<usize> {
    let shares = shares(plan, &mut Worker::new(3), 20_000);
    ranges.iter().map(|range| (shares[range.clone()].iter().sum::<usize>() + 100) / 200).collect()
}

#[test]
fn the_second_priority_gets_what_the_first_cannot_bear() {
    let placements: Vec<Placement> = (0..20).map(|place| priority(if place < 10 { 0 } else { 7 })).collect();
    let plan = plan_of(placed(&placements));
    let tiers = [0..10, 10..20];
    assert_eq!(percent(&plan, &tiers), [100, 0]);
    down(&plan, 0..2);
    assert_eq!(percent(&plan, &tiers), [100, 0], "8 of 10 bear the whole at 140 %");
    down(&plan, 2..5);
    let spilt = percent(&plan, &tiers);
    // 20,000 draws: a standard deviation is 0.3 %.
    assert!(spilt[0].abs_diff(70) <= 2 && spilt[1].abs_diff(30) <= 2, "{spilt:?}");
    down(&plan, 5..10);
    assert_eq!(percent(&plan, &tiers), [0, 100]);
    down(&plan, 10..20);
    assert!(matches!(Worker::new(1).pick(&plan), Pick::None));
}

#[test]
fn within_a_tier_the_balancer_keeps_its_promise() {
    let placements: Vec<Placement> = (0..6).map(|place| priority(place / 3)).collect();
    let plan = plan_of(placed(&placements));
    assert_eq!(shares(&plan, &mut Worker::new(1), 300), [100, 100, 100, 0, 0, 0]);
    down(&plan, 0..3);
    assert_eq!(shares(&plan, &mut Worker::new(1), 300), [0, 0, 0, 100, 100, 100]);
}

#[test]
fn a_full_priority_leaves_the_rest_to_the_next_but_not_to_backups() {
    let mut config = placed(&[priority(0), priority(1), backup()]);
    for endpoint in &mut config.endpoints {
        endpoint.connections_max = Some(1);
    }
    let plan = plan_of(config);
    let mut worker = Worker::new(1);
    let (one, two) = (worker.lease(&plan), worker.lease(&plan));
    assert_eq!((one.endpoint_index(), two.endpoint_index()), (0, 1));
    assert!(matches!(worker.pick(&plan), Pick::Full), "a backup does not help those that are only full");
    drop(one);
    assert_eq!(worker.lease(&plan).endpoint_index(), 0);
}

#[test]
fn backups_get_work_only_while_nobody_else_may() {
    let plan = plan_of(placed(&[priority(0), priority(3), backup(), backup()]));
    let tiers = [0..1, 1..2, 2..4];
    assert_eq!(percent(&plan, &tiers), [100, 0, 0]);
    down(&plan, 0..1);
    assert_eq!(percent(&plan, &tiers), [0, 100, 0]);
    down(&plan, 1..2);
    assert_eq!(percent(&plan, &tiers), [0, 0, 100]);
    plan.observe(1, Outcome::Success);
    assert_eq!(percent(&plan, &tiers), [0, 100, 0]);
}

#[test]
fn the_own_zone_comes_first_within_a_priority() {
    let mut config = placed(&[zone("b"), zone("a"), zone("a"), zone("b"), Placement { priority: 1, ..zone("a") }]);
    let indifferent = plan_of(config.clone());
    assert_eq!(percent(&indifferent, &[0..1, 1..3, 3..4, 4..5]), [25, 50, 25, 0]);
    config.spread.own_zone = Some("a".to_owned());
    let plan = plan_of(config.clone());
    assert_eq!(percent(&plan, &[0..1, 1..3, 3..4]), [0, 100, 0]);
    down(&plan, 1..2);
    // One of two at 140 % bears 70 %.
    let spilt = percent(&plan, &[1..3, 3..4]);
    assert!(spilt[0].abs_diff(70) <= 2 && spilt[1].abs_diff(15) <= 2, "{spilt:?}");
    down(&plan, 2..3);
    assert_eq!(percent(&plan, &[0..1, 3..4, 4..5]), [50, 50, 0]);
    config.spread.own_zone = Some("nowhere".to_owned());
    let far = plan_of(config);
    assert_eq!(percent(&far, &[0..4, 4..5]), [100, 0]);
}

#[test]
fn a_key_stays_with_one_tier() {
    let placements: Vec<Placement> = (0..8).map(|place| priority(place / 4)).collect();
    let mut config = placed(&placements);
    config.balance = Balance::Hash(Hash::of_source());
    let plan = plan_of(config);
    down(&plan, 0..2);
    let mut worker = Worker::new(1);
    let mut place = |key: u64| {
        let ask = Ask { tried: &[], key: Some(mix(key)), now: begin(), subset: Subset::ALL, pinned: None };
        match worker.pick_for(&plan, &ask) {
            Pick::Endpoint(lease) => lease.endpoint_index(),
            other => panic!("{other:?}"),
        }
    };
    let mut spilt = 0;
    for key in 0..1_000 {
        let first = place(key);
        assert!((0..3).all(|_| place(key) == first));
        spilt += usize::from(first >= 4);
    }
    // 30 % of 1,000 with a standard deviation of 14.
    assert!(spilt.abs_diff(300) < 80, "{spilt}");
}

#[test]
fn an_aperture_uses_a_part_and_widens_when_endpoints_are_down() {
    let mut config = placed(&vec![Placement::default(); 100]);
    config.spread.aperture = Some(Aperture { instance: 3, instances: 10, endpoints_min: 5 });
    let plan = plan_of(config);
    let used = |plan: &ClusterPlan| -> Vec<usize> {
        let shares = shares(plan, &mut Worker::new(1), 5_000);
        (0..100).filter(|place| shares[*place] > 0).collect()
    };
    let before = used(&plan);
    assert!((10..=11).contains(&before.len()), "{before:?}");
    for place in &before[..5] {
        plan.observe(*place, Outcome::Failure);
    }
    let after = used(&plan);
    assert!(after.len() >= 9 && before[5..].iter().any(|place| after.contains(place)), "{after:?}");
    assert!(before[..5].iter().all(|place| !after.contains(place)));
}
