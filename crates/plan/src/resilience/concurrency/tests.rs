//! The controller before model endpoints, from seeds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;
use crate::Random;

const INTERVAL: Duration = Duration::from_millis(100);

fn rules() -> AdaptiveConcurrency {
    AdaptiveConcurrency {
        min: 3,
        max: 1_000,
        tolerance_percent: 20,
        interval: INTERVAL,
        measure_every: Duration::from_secs(30),
    }
}

/// Endpoints that work on so many at once; the others wait there in order of arrival.
struct Model {
    random: Random,
    now: u64,
    workers: usize,
    work_micros: u64,
    /// Requests each second.
    rate: f64,
    busy: usize,
    /// When they came.
    waiting: VecDeque<u64>,
    /// When they end, and when they came.
    ending: BinaryHeap<Reverse<(u64, u64)>>,
    begun: Instant,
    controller: Controller,
    window: Window,
    window_begun: u64,
}

#[derive(Default)]
struct Seen {
    answers: u64,
    latency_micros: u64,
    refused: u64,
    least: u32,
    most: u32,
}

impl Model {
    fn new(seed: u64, workers: usize, work_micros: u64, load: f64) -> Self {
        let begun = Instant::now();
        Self {
            random: Random::new(seed),
            now: 0,
            workers,
            work_micros,
            rate: load * workers as f64 * 1e6 / work_micros as f64,
            busy: 0,
            waiting: VecDeque::new(),
            ending: BinaryHeap::new(),
            begun,
            controller: Controller::new(rules(), begun),
            window: Window::default(),
            window_begun: 0,
        }
    }

    fn capacity(&self, seconds: u64) -> f64 {
        self.workers as f64 * seconds as f64 * 1e6 / self.work_micros as f64
    }

    fn in_flight(&self) -> u32 {
        (self.busy + self.waiting.len()) as u32
    }

    /// Between half of the mean and half more.
    fn start(&mut self, came: u64) {
        self.busy += 1;
        let takes = self.work_micros / 2 + self.random.below(self.work_micros + 1);
        self.ending.push(Reverse((self.now + takes, came)));
    }

    fn arrive(&mut self, seen: &mut Seen) {
        if self.in_flight() >= self.controller.limit() {
            seen.refused += 1;
            return;
        }
        if self.busy < self.workers {
            self.start(self.now);
        } else {
            self.waiting.push_back(self.now);
        }
        self.window.in_flight = self.window.in_flight.max(self.in_flight());
    }

    fn end(&mut self, came: u64, seen: &mut Seen) {
        self.busy -= 1;
        let latency = self.now - came;
        seen.answers += 1;
        seen.latency_micros += latency;
        if let Some(next) = self.waiting.pop_front() {
            self.start(next);
        }
        if !self.controller.is_measuring() || came >= self.window_begun {
            self.window.answers += 1;
            self.window.total += Duration::from_micros(latency);
        }
        let is_over = self.now - self.window_begun >= INTERVAL.as_micros() as u64;
        let at = self.begun + Duration::from_micros(self.now);
        if is_over && self.controller.is_enough(&self.window, at) {
            let limit = self.controller.end_window(&self.window, at);
            self.window = Window { in_flight: self.in_flight(), ..Window::default() };
            self.window_begun = self.now;
            seen.least = seen.least.min(limit);
            seen.most = seen.most.max(limit);
        }
    }

    fn run(&mut self, seconds: u64) -> Seen {
        let mut seen = Seen { least: u32::MAX, ..Seen::default() };
        let end = self.now + seconds * 1_000_000;
        let mut next_arrival = self.now;
        while self.now < end {
            match self.ending.peek() {
                Some(&Reverse((at, came))) if at <= next_arrival => {
                    self.ending.pop();
                    self.now = at;
                    self.end(came, &mut seen);
                }
                _ => {
                    self.now = next_arrival;
                    self.arrive(&mut seen);
                    let drawn = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                    next_arrival += ((-(1.0 - drawn).ln() / self.rate) * 1e6) as u64 + 1;
                }
            }
        }
        seen
    }
}

/// What any good limit does under too much load.
fn expect_knee(model: &mut Model, seconds: u64, what: &str) {
    let seen = model.run(seconds);
    let throughput = seen.answers as f64 / model.capacity(seconds);
    let latency = seen.latency_micros as f64 / seen.answers as f64 / model.work_micros as f64;
    let (least, most) = (seen.least, seen.most);
    assert!(throughput >= 0.95, "{what}: {throughput:.3} of the capacity, limit {least} to {most}");
    assert!(latency <= 2.0, "{what}: {latency:.2} times the latency without load, limit {least} to {most}");
    assert!(seen.refused > 0, "{what}: nothing was refused");
}

fn model(seed: u64) -> Model {
    let mut random = Random::new(seed ^ 0xada9);
    let workers = 8 + random.below(60) as usize;
    let work_micros = 5_000 + random.below(45_000);
    Model::new(seed, workers, work_micros, 1.2 + random.below(20) as f64 / 10.0)
}

#[test]
fn under_too_much_load_the_limit_finds_the_knee() {
    for seed in 0..60 {
        let mut model = model(seed);
        model.run(15);
        let what = format!("seed {seed}, {} at once, {} µs", model.workers, model.work_micros);
        expect_knee(&mut model, 40, &what);
    }
}

#[test]
fn it_finds_it_again_after_endpoints_became_slower_and_faster() {
    for seed in 0..30 {
        let mut model = model(seed);
        model.run(15);
        let (workers, work) = (model.workers, model.work_micros);
        model.work_micros = work * 3;
        model.run(45);
        expect_knee(&mut model, 20, &format!("seed {seed}: slower"));
        model.work_micros = work;
        model.run(45);
        expect_knee(&mut model, 20, &format!("seed {seed}: as fast as before"));
        model.workers = workers / 2;
        model.run(45);
        expect_knee(&mut model, 20, &format!("seed {seed}: half as many"));
    }
}

#[test]
fn with_little_load_nothing_is_refused() {
    for seed in 0..30 {
        let mut model = model(seed);
        model.rate *= 0.2;
        model.run(15);
        let seen = model.run(40);
        let share = seen.refused as f64 / (seen.refused + seen.answers) as f64;
        assert!(share < 0.005, "seed {seed}: {share:.4} of requests refused, limit {} to {}", seen.least, seen.most);
    }
}

#[test]
fn whatever_is_told_the_limit_stays_within_its_bounds() {
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let min = 1 + random.below(20) as u32;
        let rules = AdaptiveConcurrency { min, max: min + random.below(100) as u32, ..rules() };
        let mut now = Instant::now();
        let mut controller = Controller::new(rules, now);
        for _ in 0..200 {
            now += Duration::from_millis(random.below(5_000));
            let longest = 1 << random.below(40);
            let window = Window {
                answers: random.below(100) as u32,
                total: Duration::from_micros(random.below(longest)),
                in_flight: random.below(200) as u32,
            };
            let limit = controller.end_window(&window, now);
            assert!((rules.min..=rules.max).contains(&limit), "seed {seed}: {limit}");
        }
    }
}
