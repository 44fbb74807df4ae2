//! The rules one by one, and the budget under storms from seeds.

use model::retry::{Conditions, Methods};

use super::*;
use crate::Random;

fn policy() -> Retry {
    Retry {
        on: Conditions {
            connect_failure: true,
            reset: true,
            timeout: true,
            bad_response: true,
            statuses: vec![(502, 504)],
            grpc_statuses: vec![14],
        },
        ..Retry::default()
    }
}

fn attempted(failure: Failure) -> Attempted {
    Attempted {
        failure,
        method: Method::Get,
        is_replayable: true,
        attempts: 1,
        since_first: Duration::ZERO,
        has_untried: true,
        has_untried_backup: false,
    }
}

fn verdict(policy: &Retry, attempted: &Attempted) -> Verdict {
    let now = Instant::now();
    decide(policy, attempted, &mut Savings::new(1, now), now, &mut || 0)
}

const AGAIN: Verdict = Verdict::Again(Duration::ZERO);

#[test]
fn only_what_the_conditions_name_is_tried_again() {
    for (failure, expected) in [
        (Failure::Fault(Fault::ConnectFailed), AGAIN),
        (Failure::Fault(Fault::StaleConnection), AGAIN),
        (Failure::Fault(Fault::ResponseHeadTimeout), AGAIN),
        (Failure::Fault(Fault::BadResponse), AGAIN),
        (Failure::Fault(Fault::TotalTimeout), Verdict::GiveUp),
        (Failure::Fault(Fault::ClosedInBody), Verdict::GiveUp),
        (Failure::Status(503), AGAIN),
        (Failure::Status(501), Verdict::GiveUp),
        (Failure::Status(200), Verdict::GiveUp),
        (Failure::Grpc(14), AGAIN),
        (Failure::Grpc(13), Verdict::GiveUp),
    ] {
        assert_eq!(verdict(&policy(), &attempted(failure)), expected, "{failure:?}");
    }
    let by_default = Retry::default();
    assert_eq!(verdict(&by_default, &attempted(Failure::Fault(Fault::ConnectTimeout))), AGAIN);
    assert_eq!(verdict(&by_default, &attempted(Failure::Fault(Fault::SendFailed))), Verdict::GiveUp);
    assert_eq!(verdict(&by_default, &attempted(Failure::Status(503))), Verdict::GiveUp);
}

#[test]
fn a_stream_that_was_refused_is_tried_again_whatever_the_method_but_not_without_its_body() {
    let refused = Attempted { method: Method::Post, ..attempted(Failure::Fault(Fault::StreamRefused)) };
    assert_eq!(verdict(&Retry::default(), &refused), AGAIN);
    assert_eq!(verdict(&Retry::default(), &Attempted { is_replayable: false, ..refused }), Verdict::GiveUp);
}

#[test]
fn what_an_endpoint_may_have_acted_on_is_not_sent_twice_unless_that_does_no_harm() {
    let post = Attempted { method: Method::Post, ..attempted(Failure::Fault(Fault::ClosedBeforeResponse)) };
    assert_eq!(verdict(&policy(), &post), Verdict::GiveUp);
    let any = Retry { methods: Methods::Any, ..policy() };
    assert_eq!(verdict(&any, &post), AGAIN);
    assert_eq!(verdict(&any, &Attempted { is_replayable: false, ..post }), Verdict::GiveUp);
    let unseen = Attempted { failure: Failure::Fault(Fault::ConnectFailed), is_replayable: false, ..post };
    assert_eq!(verdict(&policy(), &unseen), AGAIN, "no endpoint has seen it");
}

#[test]
fn attempts_are_bounded_and_an_endpoint_that_has_failed_is_asked_again_only_if_the_operator_says_so() {
    let third = Attempted { attempts: 3, ..attempted(Failure::Status(503)) };
    assert_eq!(verdict(&policy(), &third), Verdict::GiveUp);
    let nobody_left = Attempted { has_untried: false, ..attempted(Failure::Status(503)) };
    assert_eq!(verdict(&policy(), &nobody_left), Verdict::GiveUp);
    let base = Duration::from_millis(20);
    let pausing = Retry { backoff: Some(Backoff { base, max: base }), ..policy() };
    assert_eq!(verdict(&pausing, &nobody_left), Verdict::GiveUp);
    let repeating = Retry { same_endpoint: true, ..pausing };
    assert_eq!(verdict(&repeating, &nobody_left), Verdict::Again(base));
    assert_eq!(verdict(&repeating, &Attempted { attempts: 3, ..nobody_left }), Verdict::GiveUp);
}

#[test]
fn a_backup_is_asked_once_more_when_all_attempts_have_failed_unless_only_one_is_allowed() {
    let third = Attempted { attempts: 3, has_untried_backup: true, ..attempted(Failure::Status(503)) };
    assert_eq!(verdict(&policy(), &third), AGAIN);
    assert!(is_for_backup(&policy(), 3) && !is_for_backup(&policy(), 2));
    assert_eq!(verdict(&policy(), &Attempted { attempts: 4, ..third }), Verdict::GiveUp);
    assert_eq!(verdict(&policy(), &Attempted { failure: Failure::Status(501), ..third }), Verdict::GiveUp);
    let once = Retry { attempts_max: 1, ..policy() };
    assert_eq!(verdict(&once, &Attempted { attempts: 1, ..third }), Verdict::GiveUp);
}

#[test]
fn no_attempt_begins_after_the_time_for_all_of_them_and_none_is_paid_for() {
    let millis = Duration::from_millis;
    let backoff = Some(Backoff { base: millis(20), max: millis(20) });
    let policy = Retry { time_max: Some(millis(100)), backoff, ..policy() };
    let after = |since_first| Attempted { since_first, ..attempted(Failure::Status(503)) };
    assert_eq!(verdict(&policy, &after(millis(80))), Verdict::Again(millis(20)), "the pause ends just in time");
    assert_eq!(verdict(&policy, &after(millis(81))), Verdict::GiveUp);
    assert_eq!(verdict(&policy, &after(Duration::MAX)), Verdict::GiveUp);
    let now = Instant::now();
    let budget = Some(Budget { percent: 0, per_second: 1 });
    let (policy, mut savings) = (Retry { budget, ..policy }, Savings::new(1, now));
    let held = savings.clone().thousandths;
    assert_eq!(decide(&policy, &after(millis(81)), &mut savings, now, &mut || 0), Verdict::GiveUp);
    assert_eq!(savings.thousandths, held);
}

#[test]
fn pauses_double_up_to_their_bound_and_are_drawn_from_the_upper_half() {
    let backoff = Backoff { base: Duration::from_millis(10), max: Duration::from_millis(35) };
    let mut random = Random::new(1);
    for (attempts, most) in [(1, 10), (2, 20), (3, 35), (40, 35), (u32::MAX, 35)] {
        let most = Duration::from_millis(most);
        assert_eq!(pause(backoff, attempts, 0), most);
        for _ in 0..100 {
            let pause = pause(backoff, attempts, random.next_u64());
            assert!(pause >= most / 2 && pause <= most, "{pause:?}");
        }
    }
    let endless = Backoff { base: Duration::MAX, max: Duration::MAX };
    assert!(pause(endless, 9, 1) > Duration::from_secs(1));
}

/// Runs workers against failing endpoints from a seed; tells how many requests and charged retries there were, and for how
/// long.
fn storm(seed: u64, budget: Budget, workers: u32) -> (u64, u64, Duration) {
    let mut random = Random::new(seed);
    let start = Instant::now();
    let mut now = start;
    let policy = Retry { budget: Some(budget), attempts_max: 10, ..policy() };
    let mut savings: Vec<Savings> = (0..workers).map(|_| Savings::new(workers, now)).collect();
    let failing = random.below(101);
    let (mut requests, mut retries) = (0, 0);
    for _ in 0..random.below(3000) {
        now += Duration::from_micros(random.below(3000));
        let saved = &mut savings[random.below(u64::from(workers)) as usize];
        saved.earn(budget);
        requests += 1;
        let mut attempts = 1;
        while random.below(100) < failing {
            let attempted = Attempted { attempts, ..attempted(Failure::Status(503)) };
            match decide(&policy, &attempted, saved, now, &mut || 0) {
                Verdict::Again(_) => retries += 1,
                Verdict::GiveUp | Verdict::NoBudget => break,
            }
            attempts += 1;
        }
    }
    (requests, retries, now - start)
}

#[test]
fn retries_never_exceed_their_budget_whatever_fails() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed ^ 0xb0d9);
        let budget = Budget { percent: random.below(120) as u32, per_second: random.below(50) as u32 };
        let workers = 1 + random.below(8) as u32;
        let (requests, retries, time) = storm(seed, budget, workers);
        let time = (time + START).as_secs_f64();
        let bound = requests as f64 * f64::from(budget.percent) / 100.0 + time * f64::from(budget.per_second);
        assert!(retries as f64 <= bound + 1e-6, "seed {seed}: {retries} retries, {bound} allowed ({budget:?})");
    }
}

#[test]
fn a_budget_lets_through_nearly_all_that_it_allows() {
    let budget = Budget { percent: 20, per_second: 0 };
    let now = Instant::now();
    let mut savings = Savings::new(1, now);
    let taken = (0..1000)
        .filter(|_| {
            savings.earn(budget);
            savings.spend(budget, now)
        })
        .count();
    assert_eq!(taken, 200);
    let slow = Budget { percent: 0, per_second: 10 };
    let mut savings = Savings::new(4, now);
    let asked = (0..10_000).filter(|step| savings.spend(slow, now + Duration::from_micros(step * 1000))).count();
    assert!((49..=50).contains(&asked), "a fourth of 10 a second for 10 s and for those before: {asked}");
}

#[test]
fn a_failure_to_connect_is_not_charged() {
    let budget = Some(Budget { percent: 0, per_second: 0 });
    let policy = Retry { budget, ..policy() };
    assert_eq!(verdict(&policy, &attempted(Failure::Fault(Fault::ConnectFailed))), AGAIN);
    assert_eq!(verdict(&policy, &attempted(Failure::Status(503))), Verdict::NoBudget);
}

#[test]
fn a_retry_that_is_not_made_after_all_leaves_the_budget_as_it_was() {
    let policy = Retry { budget: Some(Budget { percent: 0, per_second: 1 }), ..policy() };
    let now = Instant::now();
    let mut savings = Savings::new(10, now);
    for _ in 0..50 {
        let failure = Failure::Status(503);
        assert_eq!(decide(&policy, &attempted(failure), &mut savings, now, &mut || 0), AGAIN);
        take_back(&policy, failure, &mut savings);
    }
    for expected in [AGAIN, Verdict::NoBudget] {
        assert_eq!(decide(&policy, &attempted(Failure::Status(503)), &mut savings, now, &mut || 0), expected);
        take_back(&policy, Failure::Fault(Fault::ConnectFailed), &mut savings);
    }
}
