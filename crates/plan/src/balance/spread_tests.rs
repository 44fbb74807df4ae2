//! What priorities, backups and zones promise.

use std::sync::atomic::{AtomicU32, Ordering};

use model::PickReason;
use model::placement::{Aperture, Placement};
use model::snapshot::{Balance, Cluster, Endpoint, Hash, Queue};

use super::tests::{begin, shares};
use super::*;
use crate::testing::{Worker, cluster, endpoint, health_check, plan_of, queue};
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

const BALANCES: [Balance; 5] =
    [Balance::RoundRobin, Balance::Random, Balance::LeastRequest, Balance::PowerOfTwo, Balance::First];

/// The same with room for one at each endpoint.
fn narrow(placements: &[Placement], balance: Balance) -> Cluster {
    let mut config = placed(placements).with(|it| it.balance = balance);
    config.endpoints.iter_mut().for_each(|endpoint| endpoint.connections_max = Some(1));
    config
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
fn what_a_full_priority_cannot_take_goes_to_the_next_and_then_to_a_backup() {
    for balance in BALANCES {
        let plan = plan_of(narrow(&[priority(0), priority(1), backup()], balance));
        let mut worker = Worker::new(1);
        let held = [worker.lease(&plan), worker.lease(&plan), worker.lease(&plan)];
        assert_eq!(held.each_ref().map(Lease::endpoint_index), [0, 1, 2]);
        assert_eq!(held[2].reason(), PickReason::Spill);
        assert!(matches!(worker.pick(&plan), Pick::Full));
        let [one, ..] = held;
        drop(one);
        assert_eq!(worker.lease(&plan).endpoint_index(), 0, "regular endpoints come first again");
    }
}

#[test]
fn requests_wait_for_a_regular_endpoint_where_there_is_a_queue_unless_it_says_otherwise() {
    let mut config = narrow(&[priority(0), priority(1), backup()], Balance::RoundRobin);
    config.queue = queue(10);
    let waiting = plan_of(config.clone());
    let mut worker = Worker::new(1);
    let held = [worker.lease(&waiting), worker.lease(&waiting)];
    assert!(matches!(worker.pick(&waiting), Pick::Full), "all priorities are full");
    let at_once = Ask { last_resort: LastResort::BackupsAtOnce, ..Ask::new(begin()) };
    let Pick::Endpoint(lease) = worker.pick_for(&waiting, &at_once) else { panic!("datagrams cannot wait") };
    assert_eq!(lease.endpoint_index(), 2);
    drop((lease, held));
    config.queue = config.queue.clone().map(|queue| Queue { use_backups: true, ..queue });
    let lending = plan_of(config);
    let places: Vec<usize> = (0..3).map(|_| hold(worker.lease(&lending))).collect();
    assert_eq!(places, [0, 1, 2]);
    assert!(matches!(worker.pick(&lending), Pick::Full));
}

/// The place that it keeps for good.
fn hold(lease: Lease) -> usize {
    let place = lease.endpoint_index();
    std::mem::forget(lease);
    place
}

#[test]
fn a_retry_asks_what_has_not_failed_then_a_backup_and_none_twice() {
    for balance in BALANCES {
        let mut config = narrow(&[priority(0), priority(0), priority(1), backup()], balance);
        config.queue = queue(10);
        let plan = plan_of(config);
        let mut worker = Worker::new(1);
        let mut tried = Vec::new();
        for expected in [&[0, 1][..], &[0, 1], &[2], &[3]] {
            let Pick::Endpoint(lease) = worker.pick_but(&plan, &tried) else { panic!("{expected:?}") };
            assert!(expected.contains(&lease.endpoint_index()));
            tried.push(lease.state().slot);
        }
        assert!(matches!(worker.pick_but(&plan, &tried), Pick::Full), "all have failed");
        let again = Ask { tried: &tried, last_resort: LastResort::Repeat, ..Ask::new(begin()) };
        let Pick::Endpoint(lease) = worker.pick_for(&plan, &again) else { panic!("none is asked again") };
        assert_eq!((lease.endpoint_index() < 2, lease.reason()), (true, PickReason::Retry));
        let beside = Ask { tried: &tried[..3], last_resort: LastResort::Nothing, ..Ask::new(begin()) };
        assert!(matches!(worker.pick_for(&plan, &beside), Pick::Full), "a hedge leaves backups alone");
    }
}

#[test]
fn the_only_endpoint_is_not_asked_again_after_it_has_failed() {
    let plan = plan_of(narrow(&[priority(0)], Balance::RoundRobin));
    let tried = [plan.endpoints[0].state.slot];
    assert!(matches!(Worker::new(1).pick_but(&plan, &tried), Pick::Full));
    let again = Ask { tried: &tried, last_resort: LastResort::Repeat, ..Ask::new(begin()) };
    assert!(matches!(Worker::new(1).pick_for(&plan, &again), Pick::Endpoint(_)));
}

#[test]
fn the_bound_of_a_cluster_holds_for_its_backups_too() {
    let mut config = narrow(&[priority(0), backup(), backup()], Balance::RoundRobin);
    config.connections_max = Some(2);
    let plan = plan_of(config);
    let mut worker = Worker::new(1);
    let held = [worker.lease(&plan), worker.lease(&plan)];
    assert!(matches!(worker.pick(&plan), Pick::Full));
    drop(held);
    assert_eq!(plan.state.bounded(), 0);
}

#[test]
fn no_endpoint_gets_more_than_its_bound_whatever_the_number_of_workers_and_the_order_of_failures() {
    let bounds = [priority(0), priority(0), priority(1), backup(), backup()];
    let plan = plan_of(narrow(&bounds, Balance::LeastRequest));
    let most: Vec<AtomicU32> = bounds.iter().map(|_| AtomicU32::new(0)).collect();
    let served = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (plan, most, served) = (&plan, &most, &served);
            scope.spawn(move || {
                let (mut worker, mut random) = (Worker::new(seed), crate::Random::new(seed));
                for _ in 0..5_000 {
                    let failed = random.below(5) as usize;
                    let tried: Vec<u32> = plan.endpoints[..failed].iter().map(|it| it.state.slot).collect();
                    if let Pick::Endpoint(lease) = worker.pick_but(plan, &tried) {
                        assert!(!tried.contains(&lease.state().slot));
                        most[lease.endpoint_index()].fetch_max(lease.state().in_flight(), Ordering::Relaxed);
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(most.iter().all(|most| most.load(Ordering::Relaxed) == 1), "{most:?}");
    assert!(served.into_inner() > 10_000);
    assert!(plan.endpoints.iter().all(|endpoint| endpoint.state.in_flight() == 0));
}

#[test]
fn backups_do_all_the_work_while_nobody_else_may() {
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
        let ask = Ask { key: Some(mix(key)), ..Ask::new(begin()) };
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
