//! What passive health promises: bounds that hold in every history, and figures behind every ejection.

use std::sync::Arc;

use model::fitness::{FailureRate, LatencyOutliers, SuccessRate};
use model::snapshot::{Balance, Cluster, HealthCheck};

use super::outliers::{Window, find};
use super::*;
use crate::testing::{Worker, cluster, endpoint, health_check, plan_of, weighted};
use crate::{Outcome, Pick, Random, Standing};

const NOBODY: [usize; 0] = [];
const SECOND: Duration = Duration::from_secs(1);

/// Three failures in a row eject for 5 to 12 s.
pub(in crate::health) fn rules() -> PassiveHealth {
    PassiveHealth {
        consecutive_failures: Some(3),
        consecutive_5xx: None,
        failure_rate: None,
        success_rate: None,
        latency: None,
        interval: 10 * SECOND,
        ejection_time: 5 * SECOND,
        ejection_time_max: 12 * SECOND,
        ejected_percent_max: 50,
    }
}

fn watched(count: usize, rules: PassiveHealth) -> Cluster {
    let mut cluster = cluster("c", Balance::RoundRobin, weighted(&vec![1; count]));
    cluster.fitness.passive = Some(rules);
    cluster
}

fn answer(status: u16) -> Seen {
    Seen::Answered { status, latency: Duration::from_millis(5) }
}

fn witness(plan: &ClusterPlan, index: usize, seen: Seen, now: Instant) {
    plan.witness(&plan.endpoints[index].state, seen, now);
}

fn standings(plan: &ClusterPlan) -> Vec<Standing> {
    let roll = plan.roll();
    (0..plan.endpoints.len()).map(|index| roll.standing(index)).collect()
}

/// Who gets work, found out by picking.
fn at_work(plan: &ClusterPlan) -> Vec<usize> {
    let mut worker = Worker::new(1);
    let mut seen: Vec<usize> = (0..plan.endpoints.len() * 2).map(|_| worker.lease(plan).endpoint_index()).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[test]
fn failures_in_a_row_eject_at_once_and_an_answer_between_them_starts_anew() {
    let plan = plan_of(watched(4, rules()));
    let now = Instant::now();
    for seen in [Seen::Failed, Seen::Failed, answer(500), Seen::Failed, Seen::Failed] {
        witness(&plan, 1, seen, now);
    }
    assert_eq!(at_work(&plan), [0, 1, 2, 3], "an answer of any kind is no failure");
    witness(&plan, 1, Seen::Failed, now);
    assert_eq!(at_work(&plan), [0, 2, 3]);
    let told = plan.tick(now);
    let name = plan.endpoints[1].endpoint.name.clone();
    let evidence = Evidence::Failures(3);
    assert_eq!(told, [Event::Ejected { endpoint: name.clone(), evidence, lasts: 5 * SECOND, ejected: (1, 2) }]);
    assert_eq!(plan.tick(now + 4 * SECOND), []);
    assert_eq!(plan.tick(now + 5 * SECOND), [Event::Released { endpoint: name }]);
    assert_eq!(at_work(&plan), [0, 1, 2, 3]);
}

#[test]
fn statuses_from_500_and_failures_count_together_where_that_is_asked_for() {
    let plan = plan_of(watched(4, PassiveHealth { consecutive_5xx: Some(4), ..rules() }));
    let now = Instant::now();
    for seen in [answer(503), answer(404), answer(500), answer(599), Seen::Failed] {
        witness(&plan, 0, seen, now);
        assert_eq!(at_work(&plan), [0, 1, 2, 3]);
    }
    witness(&plan, 0, answer(502), now);
    assert_eq!(at_work(&plan), [1, 2, 3]);
    assert_eq!(plan.endpoints[0].state.ejection().unwrap().evidence(), Some(Evidence::Errors(4)));
    assert_eq!(plan.endpoints[0].state.ejection().unwrap().count(Cause::Consecutive5xx), 1);
}

#[test]
fn each_ejection_lasts_longer_up_to_the_bound_and_intervals_that_go_well_take_that_back() {
    let mut ejection = Ejection::default();
    let now = Instant::now();
    let lasts = |ejection: &mut Ejection| {
        let lasts = ejection.begin(Evidence::Failures(3), &rules(), now);
        assert!(!ejection.is_over(now + lasts - Duration::from_millis(1)) && ejection.is_over(now + lasts));
        ejection.end();
        lasts.as_secs()
    };
    assert_eq!([(); 4].map(|()| lasts(&mut ejection)), [5, 10, 12, 12]);
    ejection.calm_down();
    ejection.calm_down();
    ejection.calm_down();
    assert_eq!(lasts(&mut ejection), 10);
    for _ in 0..5 {
        ejection.calm_down();
    }
    assert_eq!(lasts(&mut ejection), 5);
    assert_eq!(ejection.count(Cause::ConsecutiveFailures), 6);
}

#[test]
fn no_more_than_the_share_are_ejected_and_never_the_last_that_could_work() {
    let now = Instant::now();
    for (count, percent, left) in
        [(1, 100, 1), (2, 100, 1), (2, 50, 1), (3, 50, 2), (3, 33, 3), (10, 10, 9), (5, 100, 1)]
    {
        let plan = plan_of(watched(count, PassiveHealth { ejected_percent_max: percent, ..rules() }));
        for index in 0..count {
            for _ in 0..9 {
                witness(&plan, index, Seen::Failed, now);
            }
        }
        assert_eq!(at_work(&plan).len(), left, "{percent}% of {count}");
    }
}

#[test]
fn when_the_others_go_down_the_ejected_work_again() {
    let plan = plan_of(watched(2, rules()).with(|it| it.health_check = health_check(1, 1)));
    let now = Instant::now();
    for _ in 0..3 {
        witness(&plan, 0, Seen::Failed, now);
    }
    assert_eq!(at_work(&plan), [1]);
    plan.observe(1, Outcome::Failure);
    assert_eq!(at_work(&plan), [0], "left out for failing now and then, but all there is");
    plan.observe(0, Outcome::Failure);
    assert!(matches!(Worker::new(1).pick(&plan), Pick::None));
    assert_eq!(standings(&plan), [Standing::Unwell, Standing::Unwell]);
}

#[test]
fn a_change_of_configuration_keeps_ejections_and_ends_those_that_have_become_too_many() {
    let now = Instant::now();
    let before = plan_of(watched(6, rules()));
    for index in 0..3 {
        for _ in 0..3 {
            witness(&before, index, Seen::Failed, now);
        }
    }
    assert_eq!(at_work(&before), [3, 4, 5]);
    let after = ClusterPlan::compile(Arc::new(watched(4, rules())), Some(&before));
    assert_eq!(standings(&after)[..], [Standing::Fit, Standing::Ejected, Standing::Ejected, Standing::Fit]);
    assert_eq!(at_work(&after), [0, 3], "the oldest ejection ends");
    let released = after.tick(now);
    assert!(released.contains(&Event::Released { endpoint: after.endpoints[0].endpoint.name.clone() }), "{released:?}");
    let mut off = watched(4, rules());
    off.fitness.passive = None;
    let off = ClusterPlan::compile(Arc::new(off), Some(&after));
    assert_eq!(at_work(&off), [0, 1, 2, 3]);
    assert!(!off.needs_ticks());
    let again = ClusterPlan::compile(Arc::new(watched(4, rules())), Some(&off));
    again.succeed(&off);
    assert_eq!(at_work(&again), [0, 1, 2, 3], "what was known before it was switched off is forgotten");
}

#[test]
fn those_that_wait_get_the_places_of_an_endpoint_that_is_released() {
    let mut config = watched(2, rules());
    config.endpoints = vec![endpoint(0, 1, Some(1)), endpoint(1, 1, Some(1))];
    config.queue = crate::testing::queue(10);
    let plan = plan_of(config);
    let now = Instant::now();
    for _ in 0..3 {
        witness(&plan, 0, Seen::Failed, now);
    }
    let mut worker = Worker::new(1);
    let held = worker.lease(&plan);
    assert!(matches!(worker.pick(&plan), Pick::Full));
    let (bell, waker) = crate::testing::Bell::new();
    let ticket = plan.enqueue(crate::testing::anywhere(), &waker).unwrap();
    plan.tick(now + 5 * SECOND);
    assert_eq!(bell.rung(), 1);
    assert_eq!(crate::testing::fetched(&ticket).map(|lease| lease.endpoint_index()), Some(0));
    drop(held);
}

fn window(good: u64, bad: u64, latency_ms: u64) -> Window {
    Window { good, bad, untimed: 0, latency_nanos: good * latency_ms * 1_000_000 }
}

fn found(rules: &PassiveHealth, windows: &[Window]) -> Vec<usize> {
    find(rules, windows).into_iter().map(|(place, _)| place).collect()
}

#[test]
fn a_share_of_failures_above_the_bound_stands_out_once_there_are_enough_requests() {
    let rule = FailureRate { percent_max: 50, requests_min: 10 };
    let rules = PassiveHealth { failure_rate: Some(rule), ..rules() };
    let windows = [window(5, 5, 1), window(4, 6, 1), window(0, 9, 1), window(0, 10, 1), window(0, 0, 0)];
    assert_eq!(found(&rules, &windows), [3, 1], "the worst first");
    assert_eq!(find(&rules, &windows)[1].1.to_string(), "6 of 10 requests failed");
}

#[test]
fn success_is_compared_with_the_mean_of_all() {
    let rule = SuccessRate { deviations: 1.9, enough_percent: 95, requests_min: 100, endpoints_min: 5 };
    let rules = PassiveHealth { success_rate: Some(rule), ..rules() };
    let good = window(1_000, 0, 1);
    let mut windows = vec![good; 9];
    windows.push(window(600, 400, 1));
    assert_eq!(found(&rules, &windows), [9]);
    let told = find(&rules, &windows)[0].1.to_string();
    assert_eq!(told, "60.0% succeeded, 96.0% on average, 73.2% needed");
    windows[9] = window(960, 40, 1);
    assert_eq!(found(&rules, &windows), NOBODY, "96% is enough, though it stands out");
    windows[9] = window(0, 99, 1);
    assert_eq!(found(&rules, &windows), NOBODY, "too few requests");
    assert_eq!(found(&rules, &[good, good, good, window(0, 1_000, 1)]), NOBODY, "too few endpoints");
    assert_eq!(found(&rules, &[window(500, 500, 1); 10]), NOBODY, "all the same");
}

#[test]
fn answers_that_took_nobody_knows_how_long_make_nobody_look_fast() {
    let rule = LatencyOutliers { factor: 3.0, enough: Duration::from_millis(50), requests_min: 10, endpoints_min: 3 };
    let rules = PassiveHealth { latency: Some(rule), ..rules() };
    let timed = window(10, 0, 100);
    let mostly_not = Window { good: 100, untimed: 90, ..timed };
    assert_eq!(found(&rules, &[mostly_not, mostly_not, mostly_not, timed]), NOBODY);
    let too_few = Window { good: 100, untimed: 95, ..window(10, 0, 1) };
    assert_eq!(found(&rules, &[too_few, too_few, timed]), NOBODY, "five tell too little");
}

#[test]
fn latency_is_compared_with_the_median_of_the_others() {
    let rule = LatencyOutliers { factor: 3.0, enough: Duration::from_millis(50), requests_min: 10, endpoints_min: 3 };
    let rules = PassiveHealth { latency: Some(rule), ..rules() };
    let normal = window(10, 0, 20);
    assert_eq!(found(&rules, &[normal, window(10, 0, 61), normal]), [1]);
    let told = find(&rules, &[normal, window(10, 0, 200), normal])[0].1.to_string();
    assert_eq!(told, "responses take 200.0ms, 20.0ms at the others");
    assert_eq!(found(&rules, &[normal, window(10, 0, 60), normal]), NOBODY, "three times is not more than three times");
    assert_eq!(found(&rules, &[window(10, 0, 1), window(10, 0, 49), window(10, 0, 1)]), NOBODY, "fast enough");
    assert_eq!(found(&rules, &[normal, window(9, 100, 900), normal, normal]), NOBODY, "too few good answers");
    assert_eq!(found(&rules, &[normal, window(10, 0, 900)]), NOBODY, "too few endpoints");
    assert_eq!(found(&rules, &[window(10, 0, 900), window(10, 0, 800), normal, normal, normal]), [0, 1]);
    assert_eq!(
        found(&rules, &[window(10, 0, 900), window(10, 0, 800), normal]),
        NOBODY,
        "two of three are no outliers"
    );
}

#[test]
fn an_endpoint_that_stands_out_twice_is_found_once() {
    let failure_rate = Some(FailureRate { percent_max: 50, requests_min: 10 });
    let success_rate = Some(SuccessRate { deviations: 1.0, enough_percent: 99, requests_min: 10, endpoints_min: 3 });
    let rules = PassiveHealth { failure_rate, success_rate, ..rules() };
    assert_eq!(found(&rules, &[window(100, 0, 1), window(100, 0, 1), window(0, 100, 1)]), [2]);
}

#[test]
fn windows_are_compared_at_the_end_of_each_interval_and_begin_anew() {
    let failure_rate = Some(FailureRate { percent_max: 50, requests_min: 10 });
    let plan = plan_of(watched(4, PassiveHealth { consecutive_failures: None, failure_rate, ..rules() }));
    let begun = Instant::now();
    plan.tick(begun);
    for _ in 0..9 {
        witness(&plan, 2, Seen::Failed, begun);
    }
    assert_eq!(plan.tick(begun + 10 * SECOND), [], "nine are too few");
    for _ in 0..9 {
        witness(&plan, 2, Seen::Failed, begun);
    }
    assert_eq!(plan.tick(begun + 20 * SECOND), [], "those before do not count");
    for _ in 0..10 {
        witness(&plan, 2, answer(500), begun);
    }
    assert_eq!(plan.tick(begun + 29 * SECOND), []);
    assert_eq!(plan.tick(begun + 30 * SECOND).len(), 1);
    assert_eq!(at_work(&plan), [0, 1, 3]);
}

#[test]
fn workers_that_see_failures_at_the_same_time_eject_no_more_than_may_be() {
    for _ in 0..20 {
        let plan = plan_of(watched(8, PassiveHealth { ejected_percent_max: 40, ..rules() }));
        let now = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let plan = &plan;
                scope.spawn(move || {
                    for turn in 0..200 {
                        witness(plan, (turn * 3 + thread) % 8, Seen::Failed, now);
                        let ejected = standings(plan).iter().filter(|one| **one == Standing::Ejected).count();
                        assert!(ejected <= 3, "{ejected}");
                    }
                });
            }
        });
        assert_eq!(at_work(&plan).len(), 5);
    }
}

/// One history from a seed: exchanges that go well or badly, checks, ticks, changes of configuration.
struct History {
    random: Random,
    plan: Arc<ClusterPlan>,
    now: Instant,
    check: Option<HealthCheck>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let check = if random.below(2) == 0 { health_check(1, 1) } else { None };
        let plan = plan_of(Self::configuration(&mut random, check.clone()));
        Self { random, plan, now: Instant::now(), check }
    }

    fn configuration(random: &mut Random, check: Option<HealthCheck>) -> Cluster {
        let rules = PassiveHealth {
            consecutive_failures: Some(1 + random.below(3) as u32),
            consecutive_5xx: Some(1 + random.below(3) as u32),
            failure_rate: Some(FailureRate { percent_max: random.below(100) as u8, requests_min: 1 + random.below(5) }),
            success_rate: Some(SuccessRate { deviations: 1.0, enough_percent: 99, requests_min: 2, endpoints_min: 2 }),
            latency: None,
            interval: SECOND * (1 + random.below(5) as u32),
            ejection_time: SECOND * (1 + random.below(5) as u32),
            ejection_time_max: SECOND * (5 + random.below(20) as u32),
            ejected_percent_max: random.below(101) as u8,
        };
        let count = 1 + random.below(9) as usize;
        watched(count, rules).with(|it| it.health_check = check)
    }

    fn step(&mut self) {
        let index = self.random.below(self.plan.endpoints.len() as u64) as usize;
        match self.random.below(20) {
            0 => {
                let next = Self::configuration(&mut self.random, self.check.clone());
                let next = Arc::new(ClusterPlan::compile(Arc::new(next), Some(&self.plan)));
                next.succeed(&self.plan);
                self.plan = next;
            }
            1..4 => {
                let outcome = if self.random.below(3) == 0 { Outcome::Failure } else { Outcome::Success };
                self.plan.observe(index, outcome);
            }
            4..8 => {
                self.now += Duration::from_millis(self.random.below(3_000));
                self.plan.tick(self.now);
            }
            turn => {
                let seen = [Seen::Failed, answer(500), answer(200)][(turn % 3) as usize];
                witness(&self.plan, index, seen, self.now);
            }
        }
    }

    fn check(&self) {
        let plan = &self.plan;
        let rules = plan.cluster.fitness.passive.as_ref().unwrap();
        let roll = plan.roll();
        let count = plan.endpoints.len();
        let bound = count * usize::from(rules.ejected_percent_max) / 100;
        let is_well = |index: &usize| plan.is_up(*index);
        let out = (0..count).filter(is_well).filter(|index| roll.standing(*index) == Standing::Ejected).count();
        assert!(out <= bound, "{out} of {count} are ejected, {bound} may be");
        let view = plan.latest_view().view;
        assert!(view.len() >= (0..count).filter(is_well).count() - out);
        assert_eq!(view.len() == 0, !(0..count).any(|index| is_well(&index)), "the last was left out");
        for endpoint in &plan.endpoints {
            let Some(ejection) = endpoint.state.ejection() else { continue };
            assert_eq!(ejection.until().is_some(), ejection.evidence().is_some());
        }
    }

    fn end(mut self) {
        // Longer than any ejection of any configuration of this history.
        self.now += 30 * SECOND;
        self.plan.tick(self.now);
        let ejected = standings(&self.plan).into_iter().filter(|standing| *standing == Standing::Ejected).count();
        // At the end of an interval new ones may begin.
        self.plan.tick(self.now + 60 * SECOND);
        assert!(ejected <= self.plan.endpoints.len());
        let left = standings(&self.plan).into_iter().filter(|standing| *standing == Standing::Ejected).count();
        assert_eq!(left, 0, "without further exchanges all come back");
    }
}

#[test]
fn in_every_history_ejection_stays_within_its_bound_and_ends() {
    let only: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..3_000, |seed| seed..seed + 1);
    for seed in seeds {
        let history = std::panic::AssertUnwindSafe(|| {
            let mut history = History::new(seed);
            for _ in 0..150 {
                history.step();
                history.check();
            }
            history.end();
        });
        if let Err(panic) = std::panic::catch_unwind(history) {
            eprintln!("the history of seed {seed} fails; SEED={seed} runs it alone");
            std::panic::resume_unwind(panic);
        }
    }
}
