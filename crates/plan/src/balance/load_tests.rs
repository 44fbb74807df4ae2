//! What the balancers promise that go by load and by time, in simulations with a clock of their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use model::snapshot::Balance;

use super::tests::{begin, shares};
use super::*;
use crate::testing::{Worker, bounded, cluster, plan_of, weighted};
use crate::{ClusterPlan, Lease, Pick, Seen};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn timed(keeps_peaks: bool) -> Balance {
    let half_life = 10 * SECOND;
    if keeps_peaks { Balance::PeakEwma { half_life } } else { Balance::LeastTime { half_life } }
}

#[test]
fn first_fills_one_endpoint_up_before_the_next_gets_work() {
    let plan = plan_of(cluster("c", Balance::First, bounded(&[2, 1, 3])));
    let mut worker = Worker::new(1);
    let mut held: Vec<Lease> = (0..6).map(|_| worker.lease(&plan)).collect();
    assert_eq!(held.iter().map(Lease::endpoint_index).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 2]);
    drop(held.remove(1));
    assert_eq!(worker.lease(&plan).endpoint_index(), 0);
}

#[test]
fn first_finds_a_place_far_in_front_after_some_requests_and_never_takes_one_far_behind() {
    let plan = plan_of(cluster("c", Balance::First, bounded(&[1; 2_000])));
    let mut worker = Worker::new(1);
    let mut held: Vec<Lease> = (0..1_500).map(|_| worker.lease(&plan)).collect();
    assert!((0..1_500).all(|place| held[place].endpoint_index() == place));
    drop(held.swap_remove(700));
    let found = (0..20).position(|_| {
        let lease = worker.lease(&plan);
        assert!(lease.endpoint_index() == 700 || lease.endpoint_index() == 1_500);
        lease.endpoint_index() == 700
    });
    assert!(found.is_some(), "twelve windows cover all that are full");
    drop(held.split_off(100));
    let last: Vec<usize> = (0..20).map(|_| worker.lease(&plan).endpoint_index()).collect();
    assert!(last[..18].iter().any(|place| *place < 300), "{last:?}");
}

#[test]
fn the_power_of_two_never_takes_the_busier_of_two() {
    let plan = plan_of(cluster("c", Balance::PowerOfTwo, weighted(&[1, 3])));
    let (mut worker, mut chance) = (Worker::new(1), crate::Random::new(3));
    let mut held = Vec::new();
    for _ in 0..5_000 {
        if !held.is_empty() && chance.below(2) == 0 {
            drop::<Lease>(held.swap_remove(chance.below(held.len() as u64) as usize));
            continue;
        }
        let bears = |place: usize| f64::from(plan.endpoints[place].state.in_flight()) / [1.0, 3.0][place];
        let least = bears(0).min(bears(1));
        let before = [bears(0), bears(1)];
        let lease = worker.lease(&plan);
        assert_eq!(before[lease.endpoint_index()], least);
        held.push(lease);
    }
}

#[test]
fn the_power_of_two_shares_idle_endpoints_by_weight_and_keeps_the_most_loaded_close_to_the_mean() {
    let weights = [1, 2, 3, 10];
    for seed in 0..10 {
        let plan = plan_of(cluster("c", Balance::PowerOfTwo, weighted(&weights)));
        let shares = shares(&plan, &mut Worker::new(seed), 16_000);
        let deviation = |(&seen, weight): (&usize, u32)| {
            let expected = 1_000.0 * f64::from(weight);
            (seen as f64 - expected).powi(2) / expected
        };
        let chi_square: f64 = shares.iter().zip(weights).map(deviation).sum();
        // Three degrees of freedom: above 21.1 in one of ten thousand cases.
        assert!(chi_square < 21.1, "seed {seed}: {shares:?} gives {chi_square}");
    }
    // As many balls as bins: log2 log2 1000 is 3.3; by chance alone the fullest would hold 5 or 6, often more.
    for (balance, most) in [(Balance::PowerOfTwo, 4), (Balance::LeastRequest, 2)] {
        let plan = plan_of(cluster("c", balance, weighted(&[1; 1_000])));
        let mut worker = Worker::new(4);
        let _held: Vec<Lease> = (0..1_000).map(|_| worker.lease(&plan)).collect();
        let fullest = plan.endpoints.iter().map(|endpoint| endpoint.state.in_flight()).max();
        assert!(fullest <= Some(most), "{fullest:?}");
    }
}

/// Requests that come at a steady rate to endpoints that take their time.
struct Simulation<'a> {
    plan: &'a ClusterPlan,
    worker: Worker,
    now: Instant,
    /// Those under way by the time of their end.
    under_way: BinaryHeap<Reverse<(Instant, usize)>>,
    leases: Vec<Option<(Lease, Duration)>>,
    shares: Vec<usize>,
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a ClusterPlan) -> Self {
        let (shares, leases) = (vec![0; plan.endpoints.len()], Vec::new());
        Self { plan, worker: Worker::new(7), now: begin(), under_way: BinaryHeap::new(), leases, shares }
    }

    /// Lets requests come for some time. `None`: the endpoint fails at once.
    fn run(&mut self, lasts: Duration, apart: Duration, takes: impl Fn(usize) -> Option<Duration>) -> Vec<usize> {
        self.shares.fill(0);
        let end = self.now + lasts;
        while self.now < end {
            self.now += apart;
            self.finish(&takes);
            let ask = Ask::new(self.now);
            let Pick::Endpoint(lease) = self.worker.pick_for(self.plan, &ask) else { panic!("no endpoint") };
            let place = lease.endpoint_index();
            self.shares[place] += 1;
            let took = takes(place).unwrap_or(MILLI);
            self.under_way.push(Reverse((self.now + took, self.leases.len())));
            self.leases.push(Some((lease, took)));
        }
        self.shares.clone()
    }

    fn finish(&mut self, takes: &impl Fn(usize) -> Option<Duration>) {
        while let Some(&Reverse((at, number))) = self.under_way.peek()
            && at <= self.now
        {
            self.under_way.pop();
            let Some((lease, latency)) = self.leases[number].take() else { continue };
            let seen = match takes(lease.endpoint_index()) {
                Some(_) => Seen::Answered { status: 200, latency },
                None => Seen::Failed,
            };
            self.plan.witness(lease.state(), seen, at);
        }
    }
}

#[test]
fn least_time_gives_the_faster_endpoint_the_more_the_faster_it_is() {
    let plan = plan_of(cluster("c", timed(false), weighted(&[1, 1, 1])));
    let mut simulation = Simulation::new(&plan);
    let takes = |place: usize| Some([10, 20, 80][place] * MILLI);
    simulation.run(5 * SECOND, MILLI, takes);
    let shares = simulation.run(10 * SECOND, MILLI, takes);
    // Ten at once keep burdens alike: shares go with the squares of the speeds or so, and all stay in use.
    assert!(shares[0] > 3 * shares[1] && shares[1] > 3 * shares[2] && shares[2] > 0, "{shares:?}");
    let shares = simulation.run(10 * SECOND, 50 * MILLI, takes);
    assert!(shares[0] > 190, "one at a time the fastest does alone: {shares:?}");
}

#[test]
fn every_pick_by_least_time_is_of_the_least_burden() {
    let weights = [1, 2, 1, 5];
    let plan = plan_of(cluster("c", timed(false), weighted(&weights)));
    let mut simulation = Simulation::new(&plan);
    let timing = crate::balance::response_time::Timing::new(10 * SECOND, false);
    let takes = |place: usize| Some([10, 30, 20, 100][place] * MILLI);
    for _ in 0..2_000 {
        simulation.run(MILLI, MILLI, takes);
        simulation.finish(&takes);
        let now = crate::balance::response_time::Tick::of(simulation.now);
        let burden = |place: usize| {
            let state = &plan.endpoints[place].state;
            let (mean, in_flight) = (state.response_time().read(now, timing), state.in_flight() as f32);
            let time = if mean < 1.0 { 1e6 * in_flight } else { mean * (in_flight + 1.0) };
            f64::from(time) / f64::from(weights[place])
        };
        let before: Vec<f64> = (0..4).map(burden).collect();
        let ask = Ask::new(simulation.now);
        let Pick::Endpoint(lease) = simulation.worker.pick_for(&plan, &ask) else { panic!("no endpoint") };
        let least = before.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(before[lease.endpoint_index()], least, "{before:?}");
    }
}

#[test]
fn peak_ewma_leaves_an_endpoint_that_turns_slow_almost_at_once_and_returns_to_it() {
    let plan = plan_of(cluster("c", timed(true), weighted(&[1; 10])));
    let mut simulation = Simulation::new(&plan);
    let fast = |_: usize| Some(10 * MILLI);
    let slow = |place: usize| Some(if place == 4 { 500 * MILLI } else { 10 * MILLI });
    simulation.run(5 * SECOND, MILLI, fast);
    let even = simulation.run(5 * SECOND, MILLI, fast);
    assert!(even.iter().all(|share| (300..700).contains(share)), "{even:?}");
    let during = simulation.run(10 * SECOND, MILLI, slow);
    assert!(during[4] < 100, "a fair share would be 1,000: {during:?}");
    simulation.run(90 * SECOND, MILLI, fast);
    let after = simulation.run(5 * SECOND, MILLI, fast);
    assert!(after[4] > 200, "{after:?}");
}

#[test]
fn who_fails_fast_gets_little_work_by_time() {
    for keeps_peaks in [false, true] {
        let plan = plan_of(cluster("c", timed(keeps_peaks), weighted(&[1; 5])));
        let mut simulation = Simulation::new(&plan);
        let takes = |place: usize| (place != 2).then_some(20 * MILLI);
        simulation.run(5 * SECOND, MILLI, takes);
        let shares = simulation.run(10 * SECOND, MILLI, takes);
        assert!(shares[2] < 500, "a fair share would be 2,000: {shares:?}");
    }
}

#[test]
fn an_endpoint_of_which_nothing_is_known_gets_one_request_to_begin_with() {
    for keeps_peaks in [false, true] {
        let plan = plan_of(cluster("c", timed(keeps_peaks), weighted(&[1, 1])));
        let now = begin();
        let fast = Seen::Answered { status: 200, latency: MILLI };
        plan.witness(&plan.endpoints[0].state, fast, now);
        let mut worker = Worker::new(1);
        let held: Vec<usize> = (0..20)
            .map(|_| worker.lease(&plan))
            .map(|lease| {
                let place = lease.endpoint_index();
                std::mem::forget(lease);
                place
            })
            .collect();
        assert_eq!(held.iter().filter(|place| **place == 1).count(), 1, "{held:?}");
    }
}
