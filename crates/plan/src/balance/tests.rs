//! What the balancers promise, whatever the number of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use model::limits::BALANCE_HALF_LIFE;
use model::snapshot::Balance::{self, LeastRequest, RoundRobin};
use model::snapshot::Hash;
use model::snapshot::HashAlgorithm::{Ketama, Maglev};

use super::*;
use crate::testing::{Worker, bounded, cluster, endpoint, health_check, plan_of, weighted};
use crate::{Outcome, Pick};

/// When time begins in these tests.
pub(crate) fn begin() -> Instant {
    static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *BEGIN
}

/// Those that their name alone chooses, and the hashes that need settings.
fn all() -> Vec<Balance> {
    let hash = |algorithm| Balance::Hash(Hash { algorithm, ..Hash::of_source() });
    let named = Balance::NAMED.iter().map(|named| (named.make)());
    named.chain([Ketama, Maglev].map(hash)).collect()
}

/// How often each endpoint is picked when every place is given back at once.
pub(super) fn shares(plan: &ClusterPlan, worker: &mut Worker, picks: usize) -> Vec<usize> {
    let mut shares = vec![0; plan.endpoints.len()];
    for _ in 0..picks {
        shares[worker.lease(plan).endpoint_index()] += 1;
    }
    shares
}

#[test]
fn only_an_endpoint_that_gets_work_and_was_not_tried_is_left_for_another_attempt() {
    let mut config = cluster("c", RoundRobin, weighted(&[1, 1, 0]));
    config.health_check = health_check(1, 1);
    let plan = plan_of(config);
    let mut cache = PickCache::default();
    let slot = |place: usize| plan.endpoints[place].state.slot;
    let mut is_left = |tried: &[u32]| plan.has_untried(&mut cache, Subset::ALL, None, |slot| tried.contains(&slot));
    assert!(is_left(&[]) && is_left(&[slot(0)]));
    assert!(!is_left(&[slot(0), slot(1)]), "the third has no weight");
    plan.observe(1, Outcome::Failure);
    assert!(!is_left(&[slot(0)]), "the second is down");
}

#[test]
fn every_balancer_of_the_model_is_in_the_registry_under_its_own_name() {
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    let alone = sorted(by_name().map(|spec| spec.name).collect());
    assert_eq!(alone, sorted(Balance::NAMED.iter().map(|named| named.name()).collect()));
    assert_eq!((BALANCERS[0].name, Balance::NAMED[0].name()), ("round_robin", "round_robin"), "the default first");
    let others: Vec<&str> = BALANCERS.iter().filter(|spec| spec.needs_settings).map(|spec| spec.name).collect();
    assert_eq!(others, ["hash"]);
    assert!(BALANCERS.iter().all(|spec| spec.doc.lines().next().is_some_and(|line| line.ends_with('.'))));
}

#[test]
fn round_robin_follows_the_smooth_sequence() {
    let plan = plan_of(cluster("c", RoundRobin, weighted(&[5, 1, 1])));
    let mut worker = Worker::new(1);
    let turns: Vec<usize> = (0..14).map(|_| worker.lease(&plan).endpoint_index()).collect();
    assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn round_robin_is_exact_over_any_number_of_threads() {
    for threads in [1_usize, 2, 4, 7] {
        let plan = plan_of(cluster("c", RoundRobin, weighted(&[3, 2, 1, 4])));
        let counts: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for seed in 0..threads {
                let (plan, counts) = (&plan, &counts);
                scope.spawn(move || {
                    let mut worker = Worker::new(seed as u64);
                    for _ in 0..10_000 {
                        counts[worker.lease(plan).endpoint_index()].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let counts: Vec<u32> = counts.into_iter().map(AtomicU32::into_inner).collect();
        let round = 1_000 * threads as u32;
        assert_eq!(counts, [3 * round, 2 * round, round, 4 * round]);
    }
}

#[test]
fn round_robin_shares_the_turns_of_a_full_endpoint_among_all_others() {
    let mut endpoints = weighted(&[1, 1, 1, 1]);
    endpoints[1].connections_max = Some(1);
    let plan = plan_of(cluster("c", RoundRobin, endpoints));
    let mut worker = Worker::new(1);
    let held: Vec<_> = (0..2).map(|_| worker.lease(&plan)).collect();
    assert_eq!(held[1].endpoint_index(), 1);
    let shares = shares(&plan, &mut worker, 3_000);
    assert_eq!(shares, [1_000, 0, 1_000, 1_000]);
}

#[test]
fn random_keeps_the_weights_within_what_chance_allows() {
    let weights = [1, 2, 3, 10];
    for seed in 0..20 {
        let plan = plan_of(cluster("c", Balance::Random, weighted(&weights)));
        let shares = shares(&plan, &mut Worker::new(seed), 16_000);
        let chi_square: f64 = shares
            .iter()
            .zip(weights)
            .map(|(&seen, weight)| {
                let expected = 1_000.0 * f64::from(weight);
                (seen as f64 - expected).powi(2) / expected
            })
            .sum();
        // Three degrees of freedom: above 21.1 in one of ten thousand cases.
        assert!(chi_square < 21.1, "seed {seed}: {shares:?} gives {chi_square}");
    }
}

#[test]
fn random_gives_the_share_of_a_full_endpoint_to_the_others_by_weight() {
    let mut endpoints = weighted(&[4, 1, 3]);
    endpoints[0].connections_max = Some(0);
    let plan = plan_of(cluster("c", Balance::Random, endpoints));
    let shares = shares(&plan, &mut Worker::new(3), 8_000);
    assert_eq!(shares[0], 0);
    // Six standard deviations of a binomial with n = 8,000 and p = 1/4.
    assert!(shares[1].abs_diff(2_000) < 233, "{shares:?}");
}

#[test]
fn least_request_takes_the_fewest_in_flight_for_the_weight() {
    let weights = [1, 2, 5];
    let plan = plan_of(cluster("c", LeastRequest, weighted(&weights)));
    let mut worker = Worker::new(9);
    let mut chance = crate::Random::new(4);
    let mut held = Vec::new();
    for _ in 0..5_000 {
        if !held.is_empty() && chance.below(2) == 0 {
            drop(held.swap_remove(chance.below(held.len() as u64) as usize));
            continue;
        }
        let load = |place: usize| f64::from(plan.endpoints[place].state.in_flight()) / f64::from(weights[place]);
        let least = (0..3).map(load).fold(f64::INFINITY, f64::min);
        let before: Vec<f64> = (0..3).map(load).collect();
        let lease = worker.lease(&plan);
        assert_eq!(before[lease.endpoint_index()], least, "{before:?}");
        held.push(lease);
        assert!(held.len() < 5_000);
    }
}

#[test]
fn endpoints_that_are_equal_take_turns_by_weight_over_all_workers() {
    let half_life = BALANCE_HALF_LIFE;
    for balance in [LeastRequest, Balance::LeastTime { half_life }] {
        for (weights, expected) in [
            (&[1, 1][..], &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1][..]),
            (&[7, 7, 7], &[0, 1, 2, 0, 1, 2]),
            (&[2, 1], &[0, 1, 0, 0, 1, 0]),
            (&[5, 1, 1], &[0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]),
        ] {
            let plan = plan_of(cluster("c", balance.clone(), weighted(weights)));
            let mut workers = [Worker::new(1), Worker::new(2), Worker::new(3)];
            let place = |turn: usize| workers[turn % 3].lease(&plan).endpoint_index();
            let places: Vec<usize> = (0..expected.len()).map(place).collect();
            assert_eq!(places, expected, "{weights:?}");
        }
    }
}

#[test]
fn turns_are_exact_among_those_that_are_equal_beside_others_that_come_and_go() {
    let plan = plan_of(cluster("c", LeastRequest, weighted(&[1; 5])));
    let (mut worker, mut chance) = (Worker::new(1), crate::Random::new(8));
    let _busy = plan.endpoints[1].state.try_take(None);
    assert_eq!(shares(&plan, &mut worker, 400), [100, 0, 100, 100, 100]);
    // Two at a time: the second finds one endpoint less, another each time.
    let mut counts = [0_i32; 5];
    for _ in 0..1_000 {
        let held: Vec<Lease> = (0..1 + chance.below(3)).map(|_| worker.lease(&plan)).collect();
        held.iter().for_each(|lease| counts[lease.endpoint_index()] += 1);
    }
    let even = (counts.iter().sum::<i32>() - counts[1]) / 4;
    assert!([0, 2, 3, 4].iter().all(|place| (counts[*place] - even).abs() <= 3), "{counts:?}");
}

#[test]
fn endpoints_stay_equally_loaded_while_several_workers_pick_at_the_same_time() {
    let plan = plan_of(cluster("c", LeastRequest, weighted(&[1; 4])));
    let take_all = |seed: u64| {
        let mut worker = Worker::new(seed);
        (0..2_000).map(|_| worker.lease(&plan)).collect::<Vec<Lease>>()
    };
    let held: Vec<Vec<Lease>> = std::thread::scope(|scope| {
        let take_all = &take_all;
        let workers: Vec<_> = (0..4).map(|seed| scope.spawn(move || take_all(seed))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let counts: Vec<u32> = plan.endpoints.iter().map(|endpoint| endpoint.state.in_flight()).collect();
    // Each of the others may take a place after one has looked.
    assert!(counts.iter().all(|count| count.abs_diff(2_000) <= 4), "{counts:?}");
    drop(held);
}

#[test]
fn least_request_shares_evenly_among_idle_endpoints_beside_busy_ones() {
    let plan = plan_of(cluster("c", LeastRequest, weighted(&[1; 8])));
    let mut worker = Worker::new(5);
    let _busy: Vec<_> = (0..4).map(|place| plan.endpoints[place].state.try_take(None)).collect();
    let shares = shares(&plan, &mut worker, 8_000);
    assert_eq!(shares[..4], [0; 4]);
    assert_eq!(shares[4..], [2_000; 4]);
}

#[test]
fn a_bound_is_never_exceeded_whatever_the_number_of_threads() {
    for balance in all() {
        let bounds = [1, 2, 3];
        let plan = plan_of(cluster("c", balance.clone(), bounded(&bounds)));
        let holding: Vec<AtomicU32> = bounds.iter().map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (plan, holding) = (&plan, &holding);
                scope.spawn(move || {
                    let mut worker = Worker::new(seed);
                    let mut held = Vec::new();
                    for step in 0..10_000 {
                        if let Pick::Endpoint(lease) = worker.pick(plan) {
                            let place = lease.endpoint_index();
                            assert!(holding[place].fetch_add(1, Ordering::SeqCst) < bounds[place]);
                            held.push(lease);
                        }
                        if step % 3 == 0
                            && let Some(lease) = held.pop()
                        {
                            holding[lease.endpoint_index()].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                    for lease in held {
                        holding[lease.endpoint_index()].fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(plan.endpoints.iter().all(|endpoint| endpoint.state.in_flight() == 0));
    }
}

#[test]
fn every_place_is_found_before_a_cluster_is_called_full() {
    for balance in all() {
        for count in [40, 300] {
            let plan = plan_of(cluster("c", balance.clone(), bounded(&vec![1; count])));
            let mut worker = Worker::new(2);
            let mut held: Vec<_> = (0..count).map(|_| worker.lease(&plan)).collect();
            assert!(matches!(worker.pick(&plan), Pick::Full));
            let freed = held.swap_remove(17).endpoint_index();
            assert_eq!(worker.lease(&plan).endpoint_index(), freed);
        }
    }
}

#[test]
fn weight_0_gets_no_work() {
    for balance in all() {
        let plan = plan_of(cluster("c", balance.clone(), weighted(&[0, 1, 1])));
        assert_eq!(shares(&plan, &mut Worker::new(1), 100)[0], 0);
        let nobody = plan_of(cluster("c", balance.clone(), weighted(&[0, 0])));
        assert!(matches!(Worker::new(1).pick(&nobody), Pick::None));
        let only = plan_of(cluster("c", balance.clone(), weighted(&[0])));
        assert!(matches!(Worker::new(1).pick(&only), Pick::None));
    }
}

#[test]
fn endpoints_that_have_failed_are_left_out_and_asked_again_as_a_last_resort_alone() {
    for balance in all() {
        let plan = plan_of(cluster("c", balance.clone(), bounded(&[9, 1, 9])));
        let mut worker = Worker::new(8);
        let slot = |place: usize| plan.endpoints[place].state.slot;
        let picked = |pick: Pick| match pick {
            Pick::Endpoint(lease) => Some(lease),
            _ => None,
        };
        let tried = [slot(0), slot(2)];
        for _ in 0..20 {
            assert_eq!(picked(worker.pick_but(&plan, &tried)).map(|lease| lease.endpoint_index()), Some(1));
        }
        let _full = picked(worker.pick_but(&plan, &tried)).unwrap();
        assert!(picked(worker.pick_but(&plan, &tried)).is_none());
        let again = Ask { tried: &tried, last_resort: LastResort::Repeat, ..Ask::new(begin()) };
        assert_ne!(picked(worker.pick_for(&plan, &again)).unwrap().endpoint_index(), 1);
        let all: Vec<u32> = (0..3).map(slot).collect();
        assert!(picked(worker.pick_but(&plan, &all)).is_none());
        assert!(picked(worker.pick_for(&plan, &Ask { tried: &all, ..again })).is_some());
    }
}

#[test]
fn an_endpoint_that_is_down_gets_no_work_until_it_is_up_again() {
    // The first would get everything.
    for balance in all().into_iter().filter(|balance| *balance != Balance::First) {
        let mut checked = cluster("c", balance.clone(), weighted(&[1, 1, 1]));
        checked.health_check = health_check(2, 1);
        let plan = plan_of(checked);
        let mut worker = Worker::new(1);
        shares(&plan, &mut worker, 10);
        assert!(plan.observe(1, Outcome::Failure).is_some());
        assert!(!plan.is_up(1) && plan.is_up(0) && !plan.is_up(3));
        let down = shares(&plan, &mut worker, 900);
        assert!(down[1] == 0 && down[0] > 300 && down[2] > 300, "{down:?}");
        plan.observe(1, Outcome::Success);
        assert_eq!(shares(&plan, &mut worker, 100)[1], 0);
        plan.observe(1, Outcome::Success);
        assert!(shares(&plan, &mut worker, 300)[1] > 50);
        for place in 0..3 {
            plan.observe(place, Outcome::Failure);
        }
        assert!(matches!(worker.pick(&plan), Pick::None));
        assert_eq!(plan.observe(3, Outcome::Failure), None);
    }
}

#[test]
fn a_cache_follows_a_change_of_plan_and_of_availability_seen_by_another_plan() {
    let mut checked = cluster("c", RoundRobin, weighted(&[1, 1]));
    checked.health_check = health_check(1, 1);
    let old = plan_of(checked.clone());
    checked.endpoints.push(endpoint(2, 1, None));
    let new = ClusterPlan::compile(Arc::new(checked), Some(&old));
    let mut worker = Worker::new(1);
    assert_eq!(shares(&old, &mut worker, 10).len(), 2);
    assert_eq!(shares(&new, &mut worker, 30), [10, 10, 10]);
    old.observe(0, Outcome::Failure);
    assert_eq!(shares(&new, &mut worker, 30), [0, 15, 15]);
    new.observe(0, Outcome::Success);
    assert_eq!(shares(&old, &mut worker, 30), [15, 15]);
}
