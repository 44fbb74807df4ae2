//! Shedding by the whole queue, in simulation: who is refused, and what does not save anyone from it.

use std::collections::VecDeque;

use model::snapshot::Balance::{
    First, Hash as ByHash, LeastRequest, PeakEwma, PowerOfTwo, Random as ByChance, RoundRobin,
};
use model::snapshot::{Balance, HashKey};

use super::*;
use crate::balance::tests::begin;
use crate::testing::{Worker, anywhere, bounded, cluster, plan_of, queue, sessions, weighted};
use crate::{Pick, Random};

const MS: Duration = Duration::from_millis(1);

fn at(millis: f64) -> Instant {
    begin() + MS.mul_f64(millis)
}

/// Endpoints of these bounds, with a queue that sheds beyond a wait of 20 ms for 100 ms.
fn shedding(bounds: &[u32], from: ShedFrom) -> Arc<ClusterPlan> {
    let mut settings = queue(100_000).unwrap();
    settings.shed = Some(Shed { target: 20 * MS, interval: 100 * MS, from });
    settings.fair_by = vec![HashKey::Source];
    plan_of(cluster("c", RoundRobin, bounded(bounds)).with(|it| {
        it.queue = Some(settings);
        it.persistence = sessions()
    }))
}

/// A request from time to time beside the flood.
#[derive(Clone, Copy)]
struct Beside {
    every: f64,
    wait: Wait,
}

/// One endpoint that takes one exchange at a time, and who waits for it: the flood, and those beside it.
struct Simulation {
    random: Random,
    plan: Arc<ClusterPlan>,
    flood: Wait,
    beside: Option<Beside>,
    /// With times of arrival, in milliseconds.
    lines: [VecDeque<(f64, Ticket)>; 2],
    held: Option<Lease>,
    busy_until: f64,
    /// Of the flood.
    waits: Vec<f64>,
    shed: [usize; 2],
}

impl Simulation {
    fn new(seed: u64, from: ShedFrom) -> Self {
        let plan = shedding(&[1, 1], from);
        let flood = Wait { pinned: Some(0), ..anywhere() };
        let random = Random::new(seed);
        let (lines, held, waits) = (Default::default(), None, Vec::new());
        Self { random, plan, flood, beside: None, lines, held, busy_until: 0.0, waits, shed: [0; 2] }
    }

    fn draw(&mut self, mean: f64) -> f64 {
        let unit = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        -mean * (1.0 - unit).ln()
    }

    /// Fetches what the first of a line gets; those at an endpoint that no one else wants are done at once.
    fn fetch(&mut self, line: usize, now: f64) {
        while let Some((arrived, ticket)) = self.lines[line].front() {
            let arrived = *arrived;
            let Some(answer) = ticket.poll(Waker::noop(), at(now)) else { return };
            self.lines[line].pop_front();
            match answer {
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Shed);
                    self.shed[line] += 1;
                }
                Ok(lease) if lease.endpoint_index() == 0 => {
                    self.held = Some(lease);
                    if line == 0 {
                        self.waits.push(now - arrived);
                    }
                }
                Ok(lease) => drop(lease),
            }
        }
    }

    /// Serves anyone who is to be served before `until`.
    fn serve(&mut self, until: f64, work: f64) {
        while self.held.is_some() && self.busy_until <= until {
            let now = self.busy_until;
            drop(self.held.take());
            (0..2).for_each(|line| self.fetch(line, now));
            self.busy_until = now + self.draw(work);
        }
    }

    fn arrive(&mut self, line: usize, wait: Wait, now: f64) {
        match self.plan.enqueue(Wait { arrived: at(now), ..wait }, Waker::noop()) {
            Ok(ticket) => self.lines[line].push_back((now, ticket)),
            Err(_) => self.shed[line] += 1,
        }
        self.fetch(line, now);
    }

    /// Arrivals of this mean distance for a while.
    fn run(&mut self, (from, until): (f64, f64), distance: f64, work: f64) {
        let mut now = from;
        let mut next_beside = from;
        loop {
            now += self.draw(distance);
            if now > until {
                return;
            }
            while let Some(beside) = self.beside.filter(|_| next_beside <= now) {
                self.serve(next_beside, work);
                self.arrive_idle(1, beside.wait, (next_beside, work));
                next_beside += beside.every;
            }
            self.serve(now, work);
            self.arrive_idle(0, self.flood, (now, work));
        }
    }

    fn arrive_idle(&mut self, line: usize, wait: Wait, (now, work): (f64, f64)) {
        let was_idle = self.held.is_none();
        self.arrive(line, wait, now);
        if was_idle && self.held.is_some() {
            self.busy_until = now + self.draw(work);
        }
    }

    fn median(&self) -> f64 {
        let mut sorted = self.waits.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

/// How it ends under such a flood, with or without someone beside it: the median wait of the flood, how many of it were
/// served, and how many beside it were refused.
fn under_flood(seed: u64, from: ShedFrom, overload: f64, beside: Option<Beside>) -> (f64, usize, usize) {
    let mut simulation = Simulation::new(seed, from);
    simulation.beside = beside;
    simulation.run((0.0, 3_000.0), 2.0 / overload, 2.0);
    simulation.waits.clear();
    simulation.run((3_000.0, 8_000.0), 2.0 / overload, 2.0);
    (simulation.median(), simulation.waits.len(), simulation.shed[1])
}

#[test]
fn under_standing_overload_the_queue_keeps_waits_near_the_target_and_the_endpoint_busy() {
    for from in [ShedFrom::Oldest, ShedFrom::Newest] {
        for overload in [1.1, 1.5, 2.0, 5.0] {
            let (mut least, mut most, mut all) = (f64::MAX, 0.0_f64, 0);
            for seed in 0..4 {
                let (median, served, _) = under_flood(seed, from, overload, None);
                assert!((4.0..80.0).contains(&median), "seed {seed}, {from:?}, {overload}: {median} ms");
                assert!(served > 2_250, "seed {seed}, {from:?}, {overload}: the endpoint was idle: {served} of 2500");
                (least, most, all) = (least.min(median), most.max(median), all + served);
            }
            println!("{from:?}, {overload} times: median {least:.0} to {most:.0} ms, busy {:.1} %", all as f64 / 100.0);
        }
    }
}

#[test]
fn nobody_who_is_served_quickly_saves_a_flood_of_others_from_being_shed() {
    let better = Precedence { class: -1, offset_ms: 0 };
    let flood = Wait { pinned: Some(0), ..anywhere() };
    let others = [
        ("a better class", Wait { precedence: better, ..flood }),
        ("a key that asks for little", Wait { key: Some(7), ..flood }),
        ("another endpoint", Wait { pinned: Some(1), ..flood }),
    ];
    for (what, wait) in others {
        for (seed, from) in (0..4).flat_map(|seed| [(seed, ShedFrom::Oldest), (seed, ShedFrom::Newest)]) {
            let (median, served, refused) = under_flood(seed, from, 2.0, Some(Beside { every: 20.0, wait }));
            assert!((4.0..80.0).contains(&median), "{what}: seed {seed}, {from:?}: {median} ms");
            assert!(served > 1_900, "{what}: seed {seed}, {from:?}: {served} of 2500");
            // Of 400. Now and then the flood is so short that no one has more than they.
            assert!(refused <= 8, "{what}: seed {seed}, {from:?}: {refused} refused");
        }
    }
}

#[test]
fn without_overload_the_queue_refuses_nobody() {
    for seed in 0..10 {
        let mut simulation = Simulation::new(seed, ShedFrom::Newest);
        simulation.run((0.0, 5_000.0), 4.0, 2.0);
        assert_eq!(simulation.shed, [0, 0], "seed {seed}");
    }
}

#[test]
fn bursts_that_pass_by_are_borne_by_the_queue() {
    for seed in 0..40 {
        let mut simulation = Simulation::new(seed, ShedFrom::Oldest);
        for burst in 0..5 {
            let begin = f64::from(burst) * 1_000.0;
            simulation.run((begin, begin + 4.0), 0.2, 2.0);
            simulation.run((begin + 4.0, begin + 1_000.0), 20.0, 2.0);
        }
        assert_eq!(simulation.shed, [0, 0], "seed {seed}");
    }
}

#[test]
fn the_oldest_are_refused_by_arrival_and_not_by_how_they_are_favoured() {
    let plan = shedding(&[1], ShedFrom::Oldest);
    let _held = Worker::new(1).lease(&plan);
    let enqueue = |now: f64, offset_ms| {
        let precedence = Precedence { class: 0, offset_ms };
        plan.enqueue(Wait { precedence, ..Wait::new(at(now)) }, Waker::noop()).unwrap()
    };
    let tickets = [enqueue(0.0, 0), enqueue(5.0, -10_000), enqueue(30.0, -20_000), enqueue(131.0, 0)];
    let told = tickets.each_ref().map(|ticket| ticket.poll(Waker::noop(), at(132.0)).map(|answer| answer.map(drop)));
    assert_eq!(told, [Some(Err(Refusal::Shed)), None, None, None]);
}

#[test]
fn one_who_is_stuck_at_one_endpoint_gets_no_newcomer_refused_who_has_waited_for_nothing() {
    let plan = shedding(&[1, 1], ShedFrom::Newest);
    let mut worker = Worker::new(1);
    let _held = [worker.lease(&plan), worker.lease(&plan)];
    let stuck = plan.enqueue(Wait { pinned: Some(0), ..Wait::new(at(0.0)) }, Waker::noop()).unwrap();
    for now in [9_900.0, 10_050.0, 10_200.0, 10_350.0] {
        let newcomer = plan.enqueue(Wait::new(at(now)), Waker::noop());
        assert!(newcomer.is_ok(), "at {now} ms: {newcomer:?}");
    }
    assert!(stuck.poll(Waker::noop(), at(10_400.0)).is_none());
}

/// The bound of a cluster, and a queue that stands: where hand-overs go, of 400, to endpoints of weights 1, 1, 2 and 4.
fn handed_over(balance: Balance) -> [usize; 4] {
    let config = cluster("c", balance, weighted(&[1, 1, 2, 4]));
    let plan = plan_of(config.with(|it| {
        it.connections_max = Some(16);
        it.queue = queue(1_000)
    }));
    let mut worker = Worker::new(1);
    let mut held: VecDeque<Lease> = (0..16).map(|_| worker.lease(&plan)).collect();
    assert!(matches!(worker.pick(&plan), Pick::Full));
    let tickets: Vec<Ticket> = (0..400).map(|_| plan.enqueue(anywhere(), Waker::noop()).unwrap()).collect();
    let mut counts = [0; 4];
    for ticket in &tickets {
        drop(held.pop_front());
        let lease = crate::testing::fetched(ticket).unwrap();
        counts[lease.endpoint_index()] += 1;
        held.push_back(lease);
    }
    counts
}

#[test]
fn hand_overs_are_balanced_over_endpoints_as_requests_are() {
    let half_life = Duration::from_secs(10);
    let hash = model::snapshot::Hash {
        on: vec![HashKey::Source],
        algorithm: model::snapshot::HashAlgorithm::Maglev,
        load_max: None,
    };
    let spread = [RoundRobin, ByChance, LeastRequest, PowerOfTwo, PeakEwma { half_life }, ByHash(hash)];
    for balance in spread {
        let name = balance.name();
        let counts = handed_over(balance);
        let shares = counts.iter().zip([50_usize, 50, 100, 200]);
        assert!(shares.clone().all(|(count, share)| count.abs_diff(share) <= 10 + share / 3), "{name}: {counts:?}");
    }
    assert_eq!(handed_over(First), [400, 0, 0, 0]);
}
