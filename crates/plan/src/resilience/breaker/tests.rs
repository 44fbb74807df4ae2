//! The circuit step by step, and a thousand lives of one from seeds.

use super::*;
use crate::Random;

const SECOND: Duration = Duration::from_secs(1);

fn rules() -> ErrorRatio {
    ErrorRatio { percent: 50, window: 10 * SECOND, requests_min: 4, open_for: 5 * SECOND, trial_requests: 2 }
}

/// One attempt that is let through and ends at once.
fn attempt(circuit: &Circuit, is_good: bool, now: Instant) -> bool {
    match circuit.admit(&rules(), now) {
        Some(mut admission) => {
            circuit.observe(&rules(), &mut admission, is_good, now);
            circuit.leave(&mut admission);
            true
        }
        None => false,
    }
}

fn opened(now: Instant) -> Circuit {
    let circuit = Circuit::default();
    for _ in 0..4 {
        assert!(attempt(&circuit, false, now));
    }
    circuit
}

#[test]
fn a_circuit_goes_on_in_another_process_where_it_stood() {
    let now = Instant::now();
    let (old, new) = (opened(now), Circuit::default());
    let handed = old.hand_over(now + SECOND);
    assert_eq!(handed, CircuitHandover { opened: 1, rests_for: Some(4 * SECOND) });
    new.inherit(&rules(), handed, now + SECOND);
    assert_eq!((new.phase(now + SECOND), new.rests_for(now + SECOND), new.opened()), (Phase::Open, 4 * SECOND, 1));
    assert!(!attempt(&new, true, now + 2 * SECOND), "it rests");
    assert!(attempt(&new, true, now + 5 * SECOND) && attempt(&new, true, now + 5 * SECOND), "trials");
    assert_eq!(new.phase(now + 5 * SECOND), Phase::Closed);
    // One that is closed again has only been opened; one whose rest is over begins with trials.
    assert_eq!(new.hand_over(now + 5 * SECOND), CircuitHandover { opened: 1, rests_for: None });
    assert_eq!(old.hand_over(now + 6 * SECOND).rests_for, Some(Duration::ZERO));
    assert_eq!(Circuit::default().hand_over(now), CircuitHandover::default());
    // A rest is never longer than the rules here have it.
    let other = Circuit::default();
    other.inherit(&rules(), CircuitHandover { opened: u64::MAX, rests_for: Some(Duration::MAX) }, now);
    assert_eq!((other.rests_for(now), other.opened()), (5 * SECOND, u64::MAX));
}

#[test]
fn a_circuit_opens_when_share_and_number_are_reached_and_lets_nothing_through_for_its_time() {
    let now = Instant::now();
    let circuit = Circuit::default();
    for (is_good, after) in [(false, Phase::Closed), (false, Phase::Closed), (true, Phase::Closed)] {
        assert!(attempt(&circuit, is_good, now));
        assert_eq!(circuit.phase(now), after, "fewer than four");
    }
    assert!(attempt(&circuit, false, now));
    assert_eq!((circuit.phase(now), circuit.opened()), (Phase::Open, 1));
    assert!(!attempt(&circuit, true, now + Duration::from_millis(4_999)));
    assert_eq!(circuit.phase(now + 5 * SECOND), Phase::HalfOpen, "who looks sees what would come");
}

#[test]
fn failures_below_the_share_do_not_open_it() {
    let now = Instant::now();
    let circuit = Circuit::default();
    for _ in 0..100 {
        assert!(attempt(&circuit, true, now) && attempt(&circuit, false, now) && attempt(&circuit, true, now));
    }
    assert_eq!(circuit.phase(now), Phase::Closed);
}

#[test]
fn what_failed_long_ago_is_forgotten() {
    let mut now = Instant::now();
    let circuit = Circuit::default();
    for _ in 0..50 {
        assert!(attempt(&circuit, false, now));
        now += 4 * SECOND;
    }
    assert_eq!(circuit.phase(now), Phase::Closed, "never four in ten seconds");
}

#[test]
fn it_closes_after_as_many_good_trials_and_no_more_than_these_are_under_way_at_once() {
    let now = Instant::now();
    let circuit = opened(now);
    let later = now + 5 * SECOND;
    let mut trials = [circuit.admit(&rules(), later).unwrap(), circuit.admit(&rules(), later).unwrap()];
    assert_eq!(circuit.admit(&rules(), later), None);
    circuit.observe(&rules(), &mut trials[0], true, later);
    assert_eq!(circuit.phase(later), Phase::HalfOpen);
    circuit.observe(&rules(), &mut trials[1], true, later);
    assert_eq!(circuit.phase(later), Phase::Closed);
    assert_eq!(circuit.take_news(), [Phase::Open, Phase::HalfOpen, Phase::Closed]);
    assert!(attempt(&circuit, false, later), "what was counted before is forgotten");
    assert_eq!(circuit.phase(later), Phase::Closed);
}

#[test]
fn a_failed_trial_opens_it_for_the_whole_time_again() {
    let now = Instant::now();
    let circuit = opened(now);
    assert!(attempt(&circuit, false, now + 6 * SECOND));
    assert!(!attempt(&circuit, true, now + 10 * SECOND));
    assert!(attempt(&circuit, true, now + 11 * SECOND));
    assert_eq!(circuit.opened(), 2);
}

#[test]
fn a_trial_that_ends_without_an_outcome_makes_room_for_another() {
    let now = Instant::now();
    let circuit = opened(now);
    let later = now + 5 * SECOND;
    for _ in 0..10 {
        circuit.leave(&mut circuit.admit(&rules(), later).unwrap());
    }
    assert_eq!(circuit.phase(later), Phase::HalfOpen);
}

#[test]
fn what_began_before_it_opened_neither_closes_it_nor_keeps_it_open() {
    let now = Instant::now();
    let circuit = Circuit::default();
    let mut slow = [circuit.admit(&rules(), now).unwrap(), circuit.admit(&rules(), now).unwrap()];
    for _ in 0..4 {
        attempt(&circuit, false, now);
    }
    let later = now + 5 * SECOND;
    let mut trial = circuit.admit(&rules(), later).unwrap();
    circuit.observe(&rules(), &mut slow[0], false, later);
    circuit.observe(&rules(), &mut slow[1], true, later);
    assert_eq!(circuit.phase(later), Phase::HalfOpen);
    circuit.observe(&rules(), &mut trial, true, later);
    assert_eq!(circuit.phase(later), Phase::HalfOpen, "one of two");
}

#[test]
fn an_outcome_from_long_ago_does_not_wipe_what_was_counted_since() {
    let now = Instant::now();
    let circuit = Circuit::default();
    assert!(attempt(&circuit, true, now));
    let later = now + 10 * SECOND;
    for _ in 0..3 {
        assert!(attempt(&circuit, false, later));
    }
    // The slices of both times are in the same place.
    assert!(attempt(&circuit, true, now));
    assert!(attempt(&circuit, false, later));
    assert_eq!(circuit.phase(later), Phase::Open);
    let first = Slice { tick: 1, bad: 0, all: 1 };
    let last = Slice { tick: TICK_MASK, ..first };
    assert!(first.is_later_than(last.tick) && !last.is_later_than(first.tick), "the numbers began again");
    assert!(last.is_later_than(TICK_MASK - 10) && !Slice::default().is_later_than(5));
}

#[test]
fn a_slice_that_is_full_keeps_its_ratio() {
    let full = Slice { tick: 7, bad: COUNT_MAX / 4, all: COUNT_MAX };
    let next = full.after(7, true);
    assert_eq!((next.all, next.bad), (COUNT_MAX / 2 + 1, COUNT_MAX / 8));
    assert_eq!(Slice::from_bits(next.to_bits()).all, next.all);
    assert_eq!(next.after(8, false).bad, 1, "another time, another count");
}

/// What a simulated circuit must hold, known by counting everything.
#[derive(Default)]
struct Oracle {
    /// Of this era while closed: when, and whether it went well.
    seen: Vec<(Instant, bool)>,
    trials: u32,
    phase: Phase,
    begun: Option<Instant>,
}

impl Oracle {
    fn must_open(&self, rules: &ErrorRatio, now: Instant) -> bool {
        let begun = self.begun.unwrap();
        let tick = |at: Instant| (at - begun).as_nanos() / (rules.window.as_nanos() / u128::from(SLICES));
        let recent = self.seen.iter().filter(|(at, _)| tick(*at) + u128::from(SLICES) > tick(now));
        let (all, bad) = recent.fold((0_u64, 0_u64), |(all, bad), seen| (all + 1, bad + u64::from(!seen.1)));
        all >= u64::from(rules.requests_min) && bad * 100 >= all * u64::from(rules.percent)
    }
}

/// One life: attempts begin, hang and end while endpoints are ill and well by turns.
fn live(seed: u64) {
    let mut random = Random::new(seed);
    let rules = ErrorRatio {
        percent: 1 + random.below(100) as u8,
        window: Duration::from_millis(10 * (1 + random.below(500))),
        requests_min: 1 + random.below(30) as u32,
        open_for: Duration::from_millis(1 + random.below(3_000)),
        trial_requests: 1 + random.below(5) as u32,
    };
    let circuit = Circuit::default();
    let mut now = Instant::now();
    let mut oracle = Oracle::default();
    let mut under_way: Vec<Admission> = Vec::new();
    let mut failing = 0;
    for step in 0..600 {
        now += Duration::from_micros(random.below(20_000));
        if random.below(100) == 0 {
            failing = [0, 5, 60, 100][random.below(4) as usize];
        }
        // In the end all is well, until it is closed.
        if step >= 500 {
            failing = 0;
            now += rules.open_for / 20;
        }
        let begins = random.below(2) == 0;
        let before = circuit.phase(now);
        if begins && let Some(admission) = circuit.admit(&rules, now) {
            assert_ne!(before, Phase::Open, "seed {seed}: let through while open");
            oracle.trials += u32::from(admission.is_trial);
            under_way.push(admission);
        }
        assert!(oracle.trials <= rules.trial_requests, "seed {seed}: {} trials at once", oracle.trials);
        oracle.phase = circuit.phase(now);
        if !begins && !under_way.is_empty() {
            let place = random.below(under_way.len() as u64) as usize;
            let mut ended = under_way.swap_remove(place);
            oracle.trials -= u32::from(ended.is_trial);
            if random.below(10) > 0 {
                tell(&circuit, (&rules, &mut ended), (&mut oracle, seed), (random.below(100) >= failing, now));
            }
            circuit.leave(&mut ended);
        }
    }
    for _ in 0..1_000 {
        now += rules.open_for;
        under_way.drain(..).for_each(|mut admission| circuit.leave(&mut admission));
        if let Some(mut admission) = circuit.admit(&rules, now) {
            circuit.observe(&rules, &mut admission, true, now);
        }
    }
    assert_eq!(circuit.phase(now), Phase::Closed, "seed {seed}: it closes once all is well");
}

fn tell(
    circuit: &Circuit,
    (rules, ended): (&ErrorRatio, &mut Admission),
    (oracle, seed): (&mut Oracle, u64),
    (is_good, now): (bool, Instant),
) {
    let counts = oracle.phase == Phase::Closed && circuit.word.load(Ordering::Acquire) == ended.word;
    let is_trial = ended.is_trial;
    circuit.observe(rules, ended, is_good, now);
    let after = circuit.phase(now);
    if counts {
        oracle.begun.get_or_insert(now);
        oracle.seen.push((now, is_good));
        let opens = !is_good && oracle.must_open(rules, now);
        assert_eq!(after == Phase::Open, opens, "seed {seed}: it opens when share and number hold, and only then");
    } else if oracle.phase == Phase::Closed {
        assert_eq!(after, Phase::Closed, "seed {seed}: by something of an earlier era");
    } else if after == Phase::Closed {
        assert!(is_trial && is_good, "seed {seed}: only good trials close it");
    }
    if after != Phase::Closed {
        oracle.seen.clear();
    }
    oracle.phase = after;
}

#[test]
fn no_life_of_a_circuit_breaks_its_rules() {
    for seed in 0..2_000 {
        live(seed);
    }
}
