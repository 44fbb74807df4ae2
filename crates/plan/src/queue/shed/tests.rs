//! Standing overload and bursts, in simulation.

use std::collections::VecDeque;

use model::queue::ShedFrom;

use super::*;
use crate::Random;
use crate::balance::tests::begin;

const MS: Duration = Duration::from_millis(1);

fn rules(from: ShedFrom) -> Shed {
    Shed { target: 20 * MS, interval: 100 * MS, from }
}

/// One endpoint that takes one exchange at a time.
struct Simulation {
    random: Random,
    rules: Shed,
    shedder: Shedder,
    /// Times of arrival, in milliseconds.
    waiting: VecDeque<f64>,
    busy_until: f64,
    waits: Vec<f64>,
    shed: usize,
}

impl Simulation {
    fn new(seed: u64, from: ShedFrom) -> Self {
        let (shedder, waiting) = (Shedder::default(), VecDeque::new());
        let (rules, random) = (rules(from), Random::new(seed));
        Self { random, rules, shedder, waiting, busy_until: 0.0, waits: Vec::new(), shed: 0 }
    }

    /// A time of this mean, as chance has it.
    fn draw(&mut self, mean: f64) -> f64 {
        let unit = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        -mean * (1.0 - unit).ln()
    }

    /// Serves whoever is to be served before `until`.
    fn serve(&mut self, until: f64, work: f64) {
        while let Some(&arrived) = self.waiting.front() {
            let begins = self.busy_until.max(arrived);
            if begins >= until {
                return;
            }
            self.waiting.pop_front();
            self.busy_until = begins + self.draw(work);
            self.waits.push(begins - arrived);
            self.shedder.hand_over(at(begins));
            self.shed(begins, begins - arrived);
        }
    }

    fn shed(&mut self, now: f64, waited: f64) {
        if self.waiting.is_empty() {
            return self.shedder.rest();
        }
        self.shedder.observe(&self.rules, at(now), MS.mul_f64(waited.max(0.0)));
        loop {
            let longest = self.waiting.front().map_or(0.0, |arrived| (now - arrived).max(0.0));
            let wait = match self.rules.from {
                ShedFrom::Oldest => MS.mul_f64(longest),
                ShedFrom::Newest => self.shedder.forecast(at(now), (self.waiting.len(), MS.mul_f64(longest))),
            };
            if !self.shedder.is_due(&self.rules, at(now), wait) {
                return;
            }
            match self.rules.from {
                ShedFrom::Oldest => self.waiting.pop_front(),
                ShedFrom::Newest => self.waiting.pop_back(),
            };
            self.shed += 1;
        }
    }

    /// Arrivals of this mean distance for a while.
    fn run(&mut self, (from, until): (f64, f64), distance: f64, work: f64) {
        let mut now = from;
        loop {
            now += self.draw(distance);
            if now > until {
                return;
            }
            self.serve(now, work);
            self.waiting.push_back(now);
            let longest = now - self.waiting[0];
            self.shed(now, longest);
        }
    }
}

fn at(millis: f64) -> Instant {
    begin() + MS.mul_f64(millis)
}

fn median(waits: &[f64]) -> f64 {
    let mut sorted = waits.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[test]
fn under_standing_overload_waits_stay_near_the_target_and_no_work_is_lost() {
    for from in [ShedFrom::Oldest, ShedFrom::Newest] {
        for overload in [1.1, 1.5, 2.0, 5.0] {
            let mut medians = Vec::new();
            let mut served = 0;
            let mut worst: f64 = 0.0;
            for seed in 0..20 {
                let mut simulation = Simulation::new(seed, from);
                simulation.run((0.0, 5_000.0), 2.0 / overload, 2.0);
                worst = simulation.waits.iter().copied().fold(worst, f64::max);
                simulation.waits.clear();
                simulation.run((5_000.0, 20_000.0), 2.0 / overload, 2.0);
                let median = median(&simulation.waits);
                assert!((5.0..80.0).contains(&median), "seed {seed}, {from:?}, {overload}: {median} ms");
                let count = simulation.waits.len();
                assert!(count > 6_900, "seed {seed}, {from:?}, {overload}: the endpoint was idle: {count} of 7500");
                medians.push(median);
                served += count;
            }
            medians.sort_by(f64::total_cmp);
            println!(
                "{from:?}, {overload} times: median wait {:.0} to {:.0} ms, longest in the first 5 s {worst:.0} ms, busy {:.1} %",
                medians[0],
                medians[19],
                100.0 * served as f64 / (20.0 * 7_500.0)
            );
        }
    }
}

#[test]
fn a_short_burst_is_borne_and_nobody_is_refused() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(seed, ShedFrom::Oldest);
        for burst in 0..5 {
            let begin = f64::from(burst) * 1_000.0;
            // Twenty at once make waits of 40 ms, and are gone before the interval is over.
            simulation.run((begin, begin + 4.0), 0.2, 2.0);
            simulation.run((begin + 4.0, begin + 1_000.0), 20.0, 2.0);
        }
        assert_eq!(simulation.shed, 0, "seed {seed}");
    }
}

#[test]
fn without_overload_nobody_is_refused() {
    for seed in 0..100 {
        let mut simulation = Simulation::new(seed, ShedFrom::Newest);
        simulation.run((0.0, 10_000.0), 4.0, 2.0);
        assert_eq!(simulation.shed, 0, "seed {seed}");
    }
}

#[test]
fn refusals_come_sooner_and_sooner_until_a_wait_is_short_and_go_on_from_there_when_it_comes_back() {
    let rules = rules(ShedFrom::Oldest);
    let mut shedder = Shedder::default();
    let watch = |shedder: &mut Shedder, from: u32, until: u32, wait: u32| {
        let mut times = Vec::new();
        for now in from..until {
            let at = begin() + now * MS;
            shedder.observe(&rules, at, wait * MS);
            while shedder.is_due(&rules, at, wait * MS) {
                times.push(now);
            }
        }
        times
    };
    assert_eq!(watch(&mut shedder, 0, 400, 50), [100, 200, 271, 329, 379]);
    shedder.observe(&rules, begin() + 400 * MS, 19 * MS);
    assert_eq!(watch(&mut shedder, 410, 700, 50), [510, 568, 618, 663], "it goes on at the rate of the third");
    shedder.observe(&rules, begin() + 700 * MS, 19 * MS);
    assert_eq!(watch(&mut shedder, 9_000, 9_250, 50), [9_100, 9_200], "long after, it begins anew");
    assert!(watch(&mut shedder, 9_250, 9_750, 500).len() > 20, "it hurries while waits are far too long");
}
