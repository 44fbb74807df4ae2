//! The whole queue in simulation from seeds: arrivals, departures, people who give up, endpoints that fail and come back,
//! changes of the plan. A failure names its seed.

use std::collections::{BTreeMap, VecDeque};

use model::fitness::AdminState;
use model::snapshot::Balance::{LeastRequest, Random as ByChance, RoundRobin};
use model::snapshot::{Cluster, Endpoint, HashKey};

use super::*;
use crate::balance::tests::begin;
use crate::testing::{Worker, bounded, cluster, endpoint, health_check, plan_of, queue, sessions};
use crate::{Ask, Outcome, Pick, Random};

const STEPS: u64 = 120;

/// Runs seeds. To replay one that failed, make it the only one: `simulate(1234)`.
fn for_seeds(count: u64, simulate: impl Fn(u64)) {
    (0..count).for_each(simulate);
}

struct Waits {
    /// Class, time with offset, arrival: by this those are served who could use the same place.
    rank: (i8, i64, u64),
    wait: Wait,
    origin: Arc<ClusterPlan>,
    ticket: Ticket,
}

/// What beside order the queue of a world knows.
#[derive(Clone, Copy)]
struct Rules {
    /// The cluster has a bound of its own.
    is_bounded: bool,
    /// Keys take turns.
    is_fair: bool,
    /// Some are refused while waiting is hopeless.
    sheds: bool,
}

/// One cluster and everyone who has to do with it.
struct World {
    seed: u64,
    rules: Rules,
    random: Random,
    plan: Arc<ClusterPlan>,
    worker: Worker,
    waiting: Vec<Waits>,
    leases: Vec<Lease>,
    now: Instant,
    came: u64,
    served: u64,
    refused: u64,
    left: u64,
    /// Of those refused who waited already: for want of hope, and for the key of a newcomer.
    shed: usize,
    displaced: usize,
}

/// A configuration as chance has it; the endpoint that comes and goes is the first, so that the places of others move.
fn draw(random: &mut Random, rules: Rules) -> Cluster {
    let bounds: Vec<u32> = (0..3).map(|_| random.below(3) as u32).collect();
    let mut endpoints = bounded(&bounds);
    if random.below(2) == 0 {
        endpoints.insert(0, endpoint(9, 1, Some(1 + random.below(2) as u32)));
    }
    if random.below(4) == 0 {
        let last = endpoints.len() - 1;
        endpoints[last].state = AdminState::Drain;
    }
    for endpoint in &mut endpoints {
        endpoint.placement.is_backup = random.below(4) == 0;
    }
    let use_backups = random.below(2) == 0;
    // With a bound of the cluster alone, who has a place there has room at any of them.
    if rules.is_bounded && random.below(3) == 0 {
        endpoints.iter_mut().for_each(|endpoint| endpoint.connections_max = None);
    }
    let balance = [RoundRobin, ByChance, LeastRequest][random.below(3) as usize].clone();
    let from = [ShedFrom::Oldest, ShedFrom::Newest][random.below(2) as usize];
    let millis = |most: u64, random: &mut Random| Duration::from_millis(1 + random.below(most));
    let shed = rules.sheds.then(|| Shed { target: millis(30, random), interval: millis(60, random), from });
    let fair_by = if rules.is_fair { vec![HashKey::Source] } else { Vec::new() };
    cluster("c", balance, endpoints).with(|it| {
        it.health_check = health_check(1, 1);
        it.queue = queue(12).map(|queue| model::queue::Queue { fair_by, shed, use_backups, ..queue });
        it.persistence = sessions();
        it.connections_max = rules.is_bounded.then(|| 1 + random.below(5) as u32)
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let rules = Rules { is_bounded: seed & 1 > 0, is_fair: seed & 2 > 0, sheds: seed & 4 > 0 };
        let plan = plan_of(draw(&mut random, rules));
        plan.take_effect();
        let (waiting, leases) = (Vec::new(), Vec::new());
        let (worker, now) = (Worker::new(seed), begin());
        Self {
            seed,
            rules,
            random,
            plan,
            worker,
            waiting,
            leases,
            now,
            came: 0,
            served: 0,
            refused: 0,
            left: 0,
            shed: 0,
            displaced: 0,
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.random.below(20));
        match self.random.below(12) {
            0..6 => self.arrive(),
            6..9 if !self.leases.is_empty() => {
                let at = self.random.below(self.leases.len() as u64) as usize;
                drop(self.leases.swap_remove(at));
            }
            9 if !self.waiting.is_empty() => {
                let at = self.random.below(self.waiting.len() as u64) as usize;
                drop(self.waiting.remove(at));
                self.left += 1;
            }
            10 => {
                let at = self.random.below(self.plan.endpoints.len() as u64) as usize;
                let outcome = if self.random.below(3) > 0 { Outcome::Success } else { Outcome::Failure };
                self.plan.observe(at, outcome);
            }
            11 if self.random.below(2) == 0 => {
                let config = draw(&mut self.random, self.rules);
                let next = Arc::new(ClusterPlan::compile(Arc::new(config), Some(&self.plan)));
                next.succeed(&self.plan);
                self.plan = next;
                self.plan.take_effect();
            }
            _ => {}
        }
        // Who fetches a place may shed others, who learn it then.
        while self.collect() {}
        self.check_bounds();
        self.check_no_place_is_idle();
    }

    fn arrive(&mut self) {
        let pinned = (self.random.below(3) == 0).then(|| self.random.below(self.plan.endpoints.len() as u64) as u32);
        let class = self.random.below(3) as i8 - 1;
        let offset_ms = if self.random.below(3) == 0 { self.random.below(200) as i32 - 100 } else { 0 };
        let precedence = Precedence { class, offset_ms };
        // A further attempt of one that has met some of them already.
        let slots = self.plan.endpoints.iter().map(|plan| plan.state.slot);
        let is_retry = pinned.is_none() && self.random.below(4) == 0;
        let tried: Vec<u32> = slots.filter(|_| is_retry && self.random.below(2) == 0).collect();
        let ask = Ask { pinned, tried: &tried, ..Ask::new(self.now) };
        let pinned = self.plan.pinned_in_queue(&ask);
        let key = Some(self.random.below(4)).filter(|key| self.rules.is_fair && *key > 0);
        let wait = Wait { pinned, tried: Tried::new(&tried), precedence, key, ..Wait::new(self.now) };
        self.came += 1;
        match self.worker.pick_for(&self.plan, &ask) {
            Pick::Endpoint(lease) => {
                let place = lease.endpoint_index();
                let overtaken = self.waiting.iter().any(|waits| self.could_use(waits, place));
                assert!(!overtaken, "seed {}: overtaken", self.seed);
                assert!(self.is_for(pinned, place, &tried), "seed {}: {place} is not for it", self.seed);
                self.leases.push(lease);
                self.served += 1;
            }
            Pick::None => self.refused += 1,
            Pick::Full => {
                let alone = self.waiting.iter().all(|waits| self.waits_alone(waits));
                let mut places = 0..self.plan.endpoints.len();
                let room = places.find(|place| self.is_for(pinned, *place, &tried) && self.has_room(*place));
                assert!(!alone || room.is_none(), "seed {}: it has to wait beside {room:?}", self.seed);
                let before = self.waiting.len();
                match self.plan.enqueue(wait, Waker::noop()) {
                    Ok(ticket) => {
                        let since = (self.now - begin()).as_millis() as i64;
                        let rank = (class, since + i64::from(offset_ms), self.came);
                        self.waiting.push(Waits { rank, wait, origin: self.plan.clone(), ticket });
                    }
                    Err(refusal) => {
                        let is_right = self.may_refuse(refusal) || (refusal == Refusal::Full && before == 12);
                        assert!(is_right, "seed {}: {refusal:?} with {before} before it", self.seed);
                        self.refused += 1;
                    }
                }
            }
        }
    }

    /// Whether one who waits already, or comes to a queue with room, may meet this.
    fn may_refuse(&self, refusal: Refusal) -> bool {
        match refusal {
            Refusal::Full => self.rules.is_fair,
            Refusal::Crowded => false,
            Refusal::Shed => self.rules.sheds,
        }
    }

    /// Fetches what was handed over, and says whether there was anything. No one who is left could have used a place that one
    /// behind him got.
    fn collect(&mut self) -> bool {
        let mut served = Vec::new();
        let mut refused = Vec::new();
        let now = self.now;
        let mut origins = Vec::new();
        self.waiting.retain(|waits| match waits.ticket.poll(Waker::noop(), now) {
            None => true,
            Some(Ok(lease)) => {
                let place = &waits.origin.endpoints[lease.endpoint_index()];
                origins.push(Arc::ptr_eq(&place.state, lease.state()));
                served.push((waits.rank, waits.wait.key, lease));
                false
            }
            Some(Err(refusal)) => {
                refused.push(refusal);
                false
            }
        });
        assert!(refused.iter().all(|refusal| self.may_refuse(*refusal)), "seed {}: {refused:?}", self.seed);
        assert!(origins.iter().all(|right| *right), "seed {}: a lease of another endpoint than it says", self.seed);
        for (rank, key, lease) in &served {
            let place = self.plan.endpoints.iter().position(|plan| Arc::ptr_eq(&plan.state, lease.state()));
            let Some(place) = place else { panic!("seed {}: an endpoint that is gone", self.seed) };
            for waits in &self.waiting {
                // Of one class, those of different keys take turns: how, is another test.
                let is_before = waits.rank < *rank && (waits.rank.0 < rank.0 || waits.wait.key == *key);
                let overtaken = is_before && self.could_use(waits, place);
                assert!(!overtaken, "seed {}: {:?} was overtaken by {rank:?}", self.seed, waits.rank);
            }
        }
        self.served += served.len() as u64;
        self.refused += refused.len() as u64;
        let shed = refused.iter().filter(|refusal| **refusal == Refusal::Shed).count();
        self.shed += shed;
        self.displaced += refused.len() - shed;
        let is_any = !served.is_empty() || !refused.is_empty();
        self.leases.extend(served.into_iter().map(|(_, _, lease)| lease));
        is_any
    }

    /// Whether a newcomer may go to an endpoint.
    fn is_for(&self, pinned: Option<u32>, place: usize, tried: &[u32]) -> bool {
        let roll = self.plan.roll();
        let keeps = |at: usize| roll.keeps_sessions(at, &self.plan.cluster, &self.plan.endpoints[at]);
        match pinned.map(|pinned| pinned as usize).filter(|pinned| keeps(*pinned)) {
            Some(pinned) => pinned == place,
            None => self.is_open_to(place, tried),
        }
    }

    /// Whether an endpoint gets work from one for whom these have failed: a backup only in place of all others, or as the queue
    /// allows it.
    fn is_open_to(&self, place: usize, tried: &[u32]) -> bool {
        let (roll, endpoints) = (self.plan.roll(), &self.plan.endpoints);
        let is_regular = |at: usize| !endpoints[at].endpoint.placement.is_backup;
        let has_failed = |at: usize| tried.contains(&endpoints[at].state.slot);
        if roll.weight(place) == 0 || has_failed(place) {
            return false;
        }
        let lends = self.plan.cluster.queue.as_ref().is_some_and(|queue| queue.use_backups);
        let mut regular = (0..endpoints.len()).filter(|at| is_regular(*at) && roll.weight(*at) > 0);
        is_regular(place) || lends || regular.all(has_failed)
    }

    /// Whether one who waits does so for one endpoint and no other.
    fn waits_alone(&self, waits: &Waits) -> bool {
        let roll = self.plan.roll();
        waits.wait.pinned.is_some_and(|endpoint| {
            let state = &waits.origin.endpoints[endpoint as usize].state;
            let found = self.plan.endpoints.iter().position(|plan| Arc::ptr_eq(&plan.state, state));
            found.is_some_and(|found| roll.keeps_sessions(found, &self.plan.cluster, &self.plan.endpoints[found]))
        })
    }

    /// Whether one who waits may go to an endpoint of the active plan, if it has room.
    fn could_use(&self, waits: &Waits, place: usize) -> bool {
        let roll = self.plan.roll();
        let state = &self.plan.endpoints[place].state;
        let pinned = waits.wait.pinned.and_then(|endpoint| {
            let state = &waits.origin.endpoints[endpoint as usize].state;
            let found = self.plan.endpoints.iter().position(|plan| Arc::ptr_eq(&plan.state, state));
            found.filter(|found| roll.keeps_sessions(*found, &self.plan.cluster, &self.plan.endpoints[*found]))
        });
        match pinned {
            Some(pinned) => pinned == place,
            None => {
                let known = waits.origin.endpoints.iter().any(|plan| Arc::ptr_eq(&plan.state, state));
                known && self.is_open_to(place, waits.wait.tried.slots())
            }
        }
    }

    fn has_room(&self, place: usize) -> bool {
        let Endpoint { connections_max, .. } = &*self.plan.endpoints[place].endpoint;
        let within = self.plan.cluster.connections_max.is_none_or(|max| (self.leases.len() as u32) < max);
        within && connections_max.is_none_or(|max| self.plan.endpoints[place].state.in_flight() < max)
    }

    fn check_no_place_is_idle(&self) {
        for place in (0..self.plan.endpoints.len()).filter(|place| self.has_room(*place)) {
            let idle = self.waiting.iter().find(|waits| self.could_use(waits, place));
            let idle = idle.map(|waits| waits.rank);
            assert!(idle.is_none(), "seed {}: {idle:?} waits beside a free place at {place}", self.seed);
        }
    }

    fn check_bounds(&self) {
        assert!(self.waiting.len() <= 12, "seed {}", self.seed);
        assert_eq!(self.plan.state.waiting() as usize, self.waiting.len(), "seed {}", self.seed);
        let alone = self.waiting.iter().filter(|waits| self.waits_alone(waits)).count();
        let anywhere = self.plan.state.waiting_anywhere().load(std::sync::atomic::Ordering::SeqCst) as usize;
        assert_eq!(anywhere + alone, self.waiting.len(), "seed {}", self.seed);
        let of = |state: &Arc<_>| self.leases.iter().filter(|lease| Arc::ptr_eq(lease.state(), state)).count();
        for plan in &self.plan.endpoints {
            assert_eq!(plan.state.in_flight() as usize, of(&plan.state), "seed {}", self.seed);
        }
        let ended = self.served + self.refused + self.left;
        assert_eq!(self.came, ended + self.waiting.len() as u64, "seed {}: a waiter is lost", self.seed);
    }
}

#[test]
fn nobody_is_lost_or_overtaken_and_no_place_is_idle_whatever_happens() {
    for_seeds(3_000, |seed| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        let World { plan, leases, waiting, .. } = world;
        drop((leases, waiting));
        assert!(plan.endpoints.iter().all(|endpoint| endpoint.state.in_flight() == 0), "seed {seed}");
        assert!(plan.state.enter(1), "seed {seed}: a place of the cluster is lost");
        assert_eq!(Arc::strong_count(&plan), 1, "seed {seed}: a queue that is empty holds no plan");
    });
}

#[test]
fn in_these_worlds_some_are_shed_and_some_are_displaced() {
    let mut met = (0, 0);
    (0..200).map(World::new).for_each(|mut world| {
        (0..STEPS).for_each(|_| world.step());
        met = (met.0 + world.shed, met.1 + world.displaced);
    });
    assert!(met.0 > 100 && met.1 > 20, "{met:?}");
}

/// A bound that is never exceeded, whatever is done: looked at the moment a place is granted.
#[test]
fn no_bound_is_ever_exceeded_by_a_grant() {
    for_seeds(500, |seed| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            let before: Vec<u32> = world.plan.endpoints.iter().map(|plan| plan.state.in_flight()).collect();
            let (plan, total) = (world.plan.clone(), world.leases.len());
            world.step();
            if !Arc::ptr_eq(&plan, &world.plan) {
                continue;
            }
            for (plan, before) in plan.endpoints.iter().zip(before) {
                let max = plan.endpoint.connections_max.unwrap_or(u32::MAX);
                assert!(plan.state.in_flight() <= max.max(before), "seed {seed}");
            }
            let max = plan.cluster.connections_max.map_or(usize::MAX, |max| max as usize);
            assert!(world.leases.len() <= max.max(total), "seed {seed}");
        }
    });
}

/// Keys that take turns, as anyone would write it: a circle of keys for each class.
#[derive(Default)]
struct Circles {
    /// By class: the keys with those of each that wait, in the order of their turns.
    circles: BTreeMap<i8, VecDeque<Keyed>>,
}

/// A key, and those of it that wait.
type Keyed = (Option<u64>, VecDeque<u64>);

impl Circles {
    fn push(&mut self, class: i8, key: Option<u64>, id: u64) {
        let circle = self.circles.entry(class).or_default();
        match circle.iter_mut().find(|(known, _)| *known == key) {
            Some((_, waiting)) => waiting.push_back(id),
            None => circle.push_back((key, [id].into())),
        }
    }

    fn take(&mut self) -> Option<u64> {
        let circle = self.circles.values_mut().find(|circle| !circle.is_empty())?;
        let (key, mut waiting) = circle.pop_front()?;
        let first = waiting.pop_front();
        if !waiting.is_empty() {
            circle.push_back((key, waiting));
        }
        first
    }

    fn remove(&mut self, id: u64) {
        for circle in self.circles.values_mut() {
            for (_, waiting) in circle.iter_mut() {
                waiting.retain(|waiting| *waiting != id);
            }
            circle.retain(|(_, waiting)| !waiting.is_empty());
        }
    }

    /// The last of the largest, if that is larger than the newcomer's.
    fn displaced(&self, class: i8, key: Option<u64>) -> Option<u64> {
        let own = self.circles.get(&class)?.iter().find(|(known, _)| *known == key).map_or(1, |(_, all)| all.len());
        let largest = self.circles.range(class..).flat_map(|(_, circle)| circle).map(|(_, all)| all.len()).max()?;
        if largest <= own {
            return None;
        }
        let mut of_size =
            self.circles.range(class..).flat_map(|(_, circle)| circle).filter(|(_, all)| all.len() == largest);
        of_size.next_back().and_then(|(_, all)| all.back().copied())
    }
}

#[test]
fn keys_take_turns_exactly_as_a_circle_of_keys_does() {
    for_seeds(1_000, |seed| {
        let mut random = Random::new(seed);
        let mut settings = queue(8).unwrap();
        settings.fair_by = vec![HashKey::Source];
        let plan = plan_of(cluster("c", RoundRobin, bounded(&[1])).with(|it| it.queue = Some(settings)));
        let mut held = Some(Worker::new(seed).lease(&plan));
        let (mut circles, mut tickets) = (Circles::default(), BTreeMap::new());
        for id in 0..200 {
            match random.below(5) {
                0..3 => {
                    let (class, key) = (random.below(2) as i8, Some(random.below(3)).filter(|key| *key > 0));
                    let precedence = Precedence { class, offset_ms: 0 };
                    let ticket = plan.enqueue(Wait { precedence, key, ..Wait::new(begin()) }, Waker::noop());
                    circles.push(class, key, id);
                    if tickets.len() == 8 {
                        let gone = circles.displaced(class, key).unwrap_or(id);
                        circles.remove(gone);
                        assert_eq!(ticket.is_err(), gone == id, "seed {seed}");
                        if let Some(refused) = tickets.remove(&gone) {
                            let refused: Ticket = refused;
                            let told = refused.poll(Waker::noop(), begin()).map(|answer| answer.map(drop));
                            assert_eq!(told, Some(Err(Refusal::Full)), "seed {seed}");
                        }
                    }
                    if let Ok(ticket) = ticket {
                        tickets.insert(id, ticket);
                    }
                }
                3 => {
                    drop(held.take());
                    let next = circles.take();
                    let found =
                        tickets.iter().find_map(|(id, ticket)| Some((*id, ticket.poll(Waker::noop(), begin())?)));
                    let (served, lease) = match found {
                        Some((id, answer)) => (Some(id), Some(answer.unwrap())),
                        None => (None, None),
                    };
                    assert_eq!(served, next, "seed {seed}");
                    served.map(|id| tickets.remove(&id));
                    held = lease.or_else(|| Some(Worker::new(id).lease(&plan)));
                }
                _ => {
                    let at = random.below(tickets.len().max(1) as u64) as usize;
                    if let Some(id) = tickets.keys().nth(at).copied() {
                        circles.remove(id);
                        drop(tickets.remove(&id));
                    }
                }
            }
        }
    });
}
