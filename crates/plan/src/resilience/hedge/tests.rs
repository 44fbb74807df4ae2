//! What is long, and how often it may be hedged.

use model::retry::Methods;

use super::*;
use crate::Random;

fn rules(after: HedgeAfter, percent: u32) -> Hedge {
    Hedge { after, attempts_max: 2, methods: Methods::Idempotent, budget_percent: percent }
}

#[test]
fn buckets_follow_one_another_and_bound_what_is_in_them() {
    let mut last = 0;
    for micros in 0..200_000 {
        let took = Duration::from_micros(micros);
        let place = bucket(took);
        assert!(place == last || place == last + 1, "{took:?}");
        let bound = upper_bound(place);
        assert!(took < bound && bound <= took + took / 8 + Duration::from_micros(1), "{took:?} {bound:?}");
        last = place;
    }
    assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
}

#[test]
fn a_percentile_is_known_after_enough_answers_and_follows_what_changes() {
    let rules = rules(HedgeAfter::Percentile(95), 10);
    let mut hedging = Hedging::new(Instant::now());
    let mut random = Random::new(3);
    for _ in 0..HEDGE_SAMPLES_MIN - 1 {
        assert_eq!(hedging.after(&rules), None);
        hedging.observe(&rules, Duration::from_millis(7));
    }
    for base in [10, 50, 10] {
        for _ in 0..5_000 {
            hedging.observe(&rules, Duration::from_micros(base * 1_000 + random.below(base * 1_000)));
        }
        let found = hedging.after(&rules).unwrap().as_secs_f64() * 1_000.0;
        let wanted = 1.95 * base as f64;
        assert!((wanted * 0.97..wanted * 1.15).contains(&found), "{found} ms instead of {wanted}");
    }
}

#[test]
fn hedges_never_exceed_their_share_of_requests() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let rules = rules(HedgeAfter::Time(Duration::from_millis(1)), random.below(100) as u32);
        let now = Instant::now();
        let mut hedging = Hedging::new(now);
        let slow = random.below(101);
        let (mut requests, mut hedges) = (0, 0);
        for _ in 0..random.below(2_000) {
            hedging.earn(&rules);
            requests += 1;
            for _ in 0..random.below(4) {
                let affords = hedging.affords(&rules, now);
                let is_sent = random.below(100) < slow && hedging.spend(&rules, now);
                assert!(affords || !is_sent, "seed {seed}: only looking takes nothing");
                hedges += u32::from(is_sent);
            }
            assert!(hedges * 100 <= requests * rules.budget_percent, "seed {seed}: {hedges} of {requests}");
        }
    }
}
