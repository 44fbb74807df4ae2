//! The queue under simulation from seeds, and under threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::Wake;

use model::fitness::{FailureRate, PassiveHealth};
use model::snapshot::Balance::{LeastRequest, Random as ByChance, RoundRobin};
use model::snapshot::Cluster;

use super::*;
use crate::balance::tests::begin;
use crate::testing::{Bell, Worker, anywhere, bounded, cluster, endpoint, health_check, plan_of, queue, sessions};
use crate::{Outcome, Pick, Random};

/// The place that a ticket has been given, if it has.
fn poll(ticket: &Ticket, waker: &Waker) -> Option<Lease> {
    ticket.poll(waker, begin()).map(|answer| answer.unwrap())
}

fn queued(bounds: &[u32], requests_max: u32) -> Cluster {
    cluster("c", RoundRobin, bounded(bounds)).with(|it| {
        it.queue = queue(requests_max);
        it.persistence = sessions()
    })
}

#[test]
fn a_full_cluster_queues_in_arrival_order() {
    let plan = plan_of(queued(&[1], 10));
    let mut worker = Worker::new(1);
    let lease = worker.lease(&plan);
    let (bell_a, waker_a) = Bell::new();
    let (bell_b, waker_b) = Bell::new();
    let first = plan.enqueue(anywhere(), &waker_a).unwrap();
    let second = plan.enqueue(anywhere(), &waker_b).unwrap();
    assert_eq!((plan.state.waiting(), first.ahead(), second.ahead()), (2, 0, 1));
    assert!(poll(&first, &waker_a).is_none());
    drop(lease);
    assert_eq!((bell_a.rung(), bell_b.rung()), (1, 0));
    assert!(matches!(worker.pick(&plan), Pick::Full), "nobody overtakes the second");
    assert!(poll(&second, &waker_b).is_none());
    let lease = poll(&first, &waker_a).unwrap();
    assert!(poll(&first, &waker_a).is_none(), "a ticket gives one lease");
    drop(lease);
    assert_eq!(bell_b.rung(), 1);
    assert_eq!(poll(&second, &waker_b).unwrap().endpoint_index(), 0);
    drop((first, second));
    assert_eq!((plan.state.waiting(), plan.endpoints[0].state.in_flight()), (0, 0));
    drop(worker.lease(&plan));
}

#[test]
fn a_queue_is_bounded_and_a_cluster_without_one_has_none() {
    let plan = plan_of(queued(&[1], 2));
    let _held = Worker::new(1).lease(&plan);
    let (_, waker) = Bell::new();
    let first = plan.enqueue(anywhere(), &waker).unwrap();
    let _second = plan.enqueue(anywhere(), &waker).unwrap();
    assert_eq!(plan.enqueue(anywhere(), &waker).unwrap_err(), Refusal::Full);
    drop(first);
    let _third = plan.enqueue(anywhere(), &waker).unwrap();
    let none = plan_of(cluster("c", RoundRobin, bounded(&[0])));
    assert_eq!(none.enqueue(anywhere(), &waker).unwrap_err(), Refusal::Full);
}

#[test]
fn who_enqueues_just_after_a_place_came_free_gets_it_at_once() {
    let plan = plan_of(queued(&[1], 2));
    let (bell, waker) = Bell::new();
    drop(Worker::new(1).lease(&plan));
    let ticket = plan.enqueue(anywhere(), &waker).unwrap();
    assert_eq!(bell.rung(), 1);
    assert!(poll(&ticket, &waker).is_some());
}

#[test]
fn a_place_handed_to_someone_who_leaves_goes_to_the_next() {
    let plan = plan_of(queued(&[1], 10));
    let lease = Worker::new(1).lease(&plan);
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..4).map(|_| Bell::new()).unzip();
    let mut tickets: VecDeque<_> = wakers.iter().map(|waker| plan.enqueue(anywhere(), waker).unwrap()).collect();
    drop(tickets.remove(1));
    drop(lease);
    assert_eq!(bells[0].rung(), 1);
    drop(tickets.pop_front());
    assert_eq!((bells[1].rung(), bells[2].rung(), bells[3].rung()), (0, 1, 0));
    drop(tickets);
    assert_eq!(plan.endpoints[0].state.in_flight(), 0);
    assert_eq!(plan.state.waiting(), 0);
}

#[test]
fn an_endpoint_that_comes_up_serves_those_who_wait() {
    let checked = queued(&[1, 2], 10).with(|it| it.health_check = health_check(1, 1));
    let plan = plan_of(checked);
    plan.observe(1, Outcome::Failure);
    let _held = Worker::new(1).lease(&plan);
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..3).map(|_| Bell::new()).unzip();
    let tickets: Vec<_> = wakers.iter().map(|waker| plan.enqueue(anywhere(), waker).unwrap()).collect();
    plan.observe(1, Outcome::Success);
    assert_eq!(bells.iter().map(|bell| bell.rung()).collect::<Vec<_>>(), [1, 1, 0]);
    let leases: Vec<_> = tickets.iter().filter_map(|ticket| poll(ticket, Waker::noop())).collect();
    assert!(leases.len() == 2 && leases.iter().all(|lease| lease.endpoint_index() == 1));
}

/// A plan of the same cluster that takes effect after `old`.
fn change(old: &Arc<ClusterPlan>, config: Cluster) -> Arc<ClusterPlan> {
    let new = Arc::new(ClusterPlan::compile(Arc::new(config), Some(old)));
    new.take_effect();
    new
}

#[test]
fn who_waits_by_an_old_plan_keeps_the_order_and_does_not_block_what_only_the_new_plan_has() {
    let config = queued(&[1], 10);
    let old = plan_of(config.clone());
    let mut wider = config;
    wider.endpoints.insert(0, endpoint(7, 1, Some(1)));
    let held = Worker::new(1).lease(&old);
    let (old_bell, old_waker) = Bell::new();
    let waits = old.enqueue(anywhere(), &old_waker).unwrap();
    let new = change(&old, wider);
    let (new_bell, new_waker) = Bell::new();
    assert!(matches!(Worker::new(1).pick(&new), Pick::Full));
    let got = new.enqueue(anywhere(), &new_waker).unwrap();
    assert_eq!(new_bell.rung(), 1);
    let lease = poll(&got, &new_waker).unwrap();
    assert_eq!((lease.endpoint_index(), old_bell.rung()), (0, 0), "the old plan does not know this endpoint");
    let (late_bell, late_waker) = Bell::new();
    let _late = new.enqueue(anywhere(), &late_waker).unwrap();
    drop(held);
    assert_eq!((old_bell.rung(), late_bell.rung()), (1, 0));
    let lease = poll(&waits, &old_waker).unwrap();
    assert_eq!(lease.endpoint_index(), 0, "its place in the plan by which it came");
    drop(lease);
    assert_eq!(late_bell.rung(), 1);
}

#[test]
fn a_bound_that_is_raised_serves_those_who_wait_at_once_and_one_that_is_lowered_holds_for_them() {
    let plan = plan_of(queued(&[1], 10));
    let held = Worker::new(1).lease(&plan);
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..4).map(|_| Bell::new()).unzip();
    let tickets: Vec<_> = wakers.iter().map(|waker| plan.enqueue(anywhere(), waker).unwrap()).collect();
    let rung = || bells.iter().map(|bell| bell.rung()).collect::<Vec<_>>();
    let three = change(&plan, queued(&[3], 10));
    assert_eq!(rung(), [1, 1, 0, 0]);
    let leases: Vec<_> = tickets[..2].iter().filter_map(|ticket| poll(ticket, Waker::noop())).collect();
    let _two = change(&three, queued(&[2], 10));
    drop(held);
    assert_eq!(rung(), [1, 1, 0, 0], "two are in flight, as many as there may be now");
    drop(leases);
    assert_eq!(rung(), [1, 1, 1, 1]);
}

#[test]
fn a_queue_that_is_taken_away_turns_nobody_away_and_leaves_nobody_behind() {
    let config = queued(&[1], 10);
    let old = plan_of(config.clone());
    let held = Worker::new(1).lease(&old);
    let (bell, waker) = Bell::new();
    let waits = old.enqueue(anywhere(), &waker).unwrap();
    let mut open = config.with(|it| it.queue = None);
    open.endpoints[0].connections_max = None;
    let new = change(&old, open);
    let more = Worker::new(1).lease(&new);
    assert_eq!((new.endpoints[0].state.in_flight(), bell.rung()), (3, 1));
    drop((held, more));
    assert!(poll(&waits, &waker).is_some());
}

#[test]
fn who_waits_for_endpoints_that_are_gone_still_gets_them() {
    let old = plan_of(queued(&[1], 10));
    let held = Worker::new(1).lease(&old);
    let waits = old.enqueue(anywhere(), Waker::noop()).unwrap();
    let _new = change(&old, Cluster { endpoints: vec![endpoint(7, 1, Some(1))], ..queued(&[1], 10) });
    assert!(poll(&waits, Waker::noop()).is_none());
    drop(held);
    assert!(poll(&waits, Waker::noop()).is_some());
}

#[test]
fn who_knows_none_of_those_that_get_work_now_goes_where_the_others_end_within_the_bounds_of_the_newest_plan() {
    use model::fitness::AdminState;
    let kept = |alter: &dyn Fn(&mut model::snapshot::Endpoint)| {
        let old = plan_of(queued(&[2], 10));
        let mut worker = Worker::new(1);
        let held = [worker.lease(&old), worker.lease(&old)];
        let waits = old.enqueue(anywhere(), Waker::noop()).unwrap();
        let mut config = queued(&[1], 10);
        alter(&mut config.endpoints[0]);
        config.endpoints.insert(0, endpoint(7, 1, Some(1)));
        let new = change(&old, config);
        let [first, second] = held;
        drop(first);
        assert!(poll(&waits, Waker::noop()).is_none(), "the bound is 1 now");
        drop(second);
        let lease = poll(&waits, Waker::noop());
        assert!(new.endpoints[0].state.in_flight() == 0, "it does not know this one");
        lease.map(|lease| lease.endpoint_index())
    };
    assert_eq!(kept(&|endpoint| endpoint.state = AdminState::Drain), Some(0));
    assert_eq!(kept(&|endpoint| endpoint.weight = 0), Some(0));
    assert_eq!(kept(&|endpoint| endpoint.placement.is_backup = true), Some(0));
    assert_eq!(kept(&|endpoint| endpoint.state = AdminState::Down), None);
}

fn pinned_to(endpoint: u32) -> Wait {
    Wait { pinned: Some(endpoint), ..anywhere() }
}

#[test]
fn who_is_pinned_waits_in_line_with_the_others_and_holds_up_nobody_who_can_go_elsewhere() {
    let plan = plan_of(queued(&[1, 1], 10));
    let mut worker = Worker::new(1);
    let held: BTreeMap<usize, Lease> =
        (0..2).map(|_| worker.lease(&plan)).map(|lease| (lease.endpoint_index(), lease)).collect();
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..5).map(|_| Bell::new()).unzip();
    let waits = [pinned_to(0), anywhere(), pinned_to(1), pinned_to(0), anywhere()];
    let tickets: Vec<_> = waits.iter().zip(&wakers).map(|(wait, waker)| plan.enqueue(*wait, waker).unwrap()).collect();
    let rung = || bells.iter().map(|bell| bell.rung()).collect::<Vec<_>>();
    let mut held = held.into_values();
    let (first, second) = (held.next(), held.next());
    drop(second);
    assert_eq!(rung(), [0, 1, 0, 0, 0], "the one before waits for the other endpoint");
    drop(poll(&tickets[1], Waker::noop()));
    assert_eq!(rung(), [0, 1, 1, 0, 0], "the pinned one came before the last");
    drop(first);
    assert_eq!(rung(), [1, 1, 1, 0, 0]);
    let lease = poll(&tickets[0], Waker::noop()).unwrap();
    assert_eq!(lease.endpoint_index(), 0);
    drop(lease);
    assert_eq!(rung(), [1, 1, 1, 1, 0]);
    drop(poll(&tickets[2], Waker::noop()));
    assert_eq!(rung(), [1, 1, 1, 1, 1]);
}

#[test]
fn a_request_that_can_go_at_once_does_so_even_if_the_queue_is_full_of_those_who_are_pinned_elsewhere() {
    let plan = plan_of(queued(&[1, 1], 2));
    let mut worker = Worker::new(1);
    let Pick::Endpoint(held) = worker.pick_pinned(&plan, 0) else { panic!("it has room") };
    let waiting = [pinned_to(0), pinned_to(0)].map(|wait| plan.enqueue(wait, Waker::noop()).unwrap());
    assert!(matches!(worker.pick_pinned(&plan, 0), Pick::Full), "others wait for that");
    let Pick::Endpoint(other) = worker.pick_pinned(&plan, 1) else { panic!("nobody waits for that") };
    drop(other);
    assert_eq!(plan.enqueue(pinned_to(0), Waker::noop()).unwrap_err(), Refusal::Full);
    let free = plan.enqueue(anywhere(), Waker::noop()).unwrap();
    let lease = poll(&free, Waker::noop()).unwrap();
    assert_eq!((lease.endpoint_index(), held.endpoint_index(), plan.state.waiting()), (1, 0, 2));
    drop(waiting);
}

#[test]
fn so_many_wait_for_one_endpoint_as_may_and_the_next_is_sent_elsewhere() {
    let mut config = queued(&[1, 1], 10);
    config.endpoints[0].queue_max = std::num::NonZeroU32::new(2);
    let plan = plan_of(config.clone());
    let mut worker = Worker::new(1);
    let Pick::Endpoint(held) = worker.pick_pinned(&plan, 0) else { panic!("it has room") };
    let (bell, waker) = Bell::new();
    let mut waiting: Vec<Ticket> = (0..2).map(|_| plan.enqueue(pinned_to(0), &waker).unwrap()).collect();
    assert_eq!(plan.enqueue(pinned_to(0), Waker::noop()).unwrap_err(), Refusal::Crowded);
    assert_eq!((plan.state.waiting(), bell.rung()), (2, 0), "nothing is left of it, and the others wait on");
    let Pick::Endpoint(other) = worker.pick(&plan) else { panic!("the other endpoint has room") };
    assert_eq!(other.endpoint_index(), 1);
    let elsewhere = plan.enqueue(anywhere(), &waker).unwrap();
    drop(waiting.pop());
    waiting.push(plan.enqueue(pinned_to(0), &waker).unwrap());
    drop(held);
    assert_eq!(poll(&waiting[0], &waker).unwrap().endpoint_index(), 0);
    drop(other);
    assert_eq!(poll(&elsewhere, &waker).map(|lease| lease.endpoint_index()), Some(0), "it came before the last");
    drop((waiting, elsewhere));
    assert_eq!((plan.state.waiting(), plan.endpoints[0].state.awaiting().load(Ordering::SeqCst)), (0, 0));
    config.persistence.as_mut().unwrap().otherwise = model::persistence::WhenAway::Refuse;
    let strict = plan_of(config);
    let Pick::Endpoint(_held) = worker.pick_pinned(&strict, 0) else { panic!("it has room") };
    let _waiting = [pinned_to(0), pinned_to(0)].map(|wait| strict.enqueue(wait, &waker).unwrap());
    assert_eq!(strict.enqueue(pinned_to(0), &waker).unwrap_err(), Refusal::Full, "it may go nowhere else");
    let _free = strict.enqueue(pinned_to(1), &waker).unwrap();
}

#[test]
fn one_whose_attempts_have_failed_waits_for_an_endpoint_that_it_has_not_asked() {
    let plan = plan_of(queued(&[1, 1], 10));
    let tried = crate::Tried::new(&[plan.endpoints[0].state.slot]);
    let mut worker = Worker::new(1);
    let Pick::Endpoint(held) = worker.pick_pinned(&plan, 1) else { panic!("it has room") };
    let (bell, waker) = Bell::new();
    let retry = plan.enqueue(Wait { tried, ..anywhere() }, &waker).unwrap();
    assert_eq!(bell.rung(), 0, "the one that has failed is free");
    let other = plan.enqueue(anywhere(), Waker::noop()).unwrap();
    let lease = poll(&other, Waker::noop()).unwrap();
    assert_eq!(lease.endpoint_index(), 0, "which holds nobody else up");
    drop(lease);
    assert_eq!(bell.rung(), 0);
    drop(held);
    assert_eq!(poll(&retry, &waker).unwrap().endpoint_index(), 1);
}

#[test]
fn one_whose_attempts_have_failed_at_all_regular_endpoints_waits_for_a_backup_and_others_do_not() {
    for use_backups in [false, true] {
        let mut config = queued(&[1, 1], 10).with(|it| it.persistence = None);
        config.endpoints[1].placement.is_backup = true;
        config.queue = config.queue.clone().map(|queue| model::queue::Queue { use_backups, ..queue });
        let plan = plan_of(config);
        let slot = [plan.endpoints[0].state.slot];
        let mut worker = Worker::new(1);
        let held = worker.lease(&plan);
        let Pick::Endpoint(backup) = worker.pick_but(&plan, &slot) else { panic!("the backup is free") };
        assert_eq!((held.endpoint_index(), backup.endpoint_index()), (0, 1));
        let (bell, waker) = Bell::new();
        let first = plan.enqueue(anywhere(), &waker).unwrap();
        let retry = plan.enqueue(Wait { tried: crate::Tried::new(&slot), ..anywhere() }, Waker::noop()).unwrap();
        drop(backup);
        assert_eq!(bell.rung(), usize::from(use_backups), "it waits for a regular endpoint unless told otherwise");
        let lease = poll(&retry, Waker::noop()).map(|lease| lease.endpoint_index());
        assert_eq!(lease, if use_backups { None } else { Some(1) });
        drop((held, first, retry));
        assert_eq!(plan.state.waiting(), 0);
    }
}

#[test]
fn while_some_wait_for_one_endpoint_alone_the_balancer_goes_on_without_it() {
    let mut config = queued(&[1, 100, 100], 10);
    config.endpoints[2].weight = 3;
    let plan = plan_of(config);
    let mut worker = Worker::new(1);
    let Pick::Endpoint(held) = worker.pick_pinned(&plan, 0) else { panic!("it has room") };
    let (bell, waker) = Bell::new();
    let waits = plan.enqueue(pinned_to(0), &waker).unwrap();
    let mut counts = [0; 3];
    let leases: Vec<Lease> = (0..40).map(|_| worker.lease(&plan)).collect();
    leases.iter().for_each(|lease| counts[lease.endpoint_index()] += 1);
    assert_eq!(counts, [0, 10, 30], "by weight, and no place that somebody waits for");
    let tried = [plan.endpoints[2].state.slot];
    let Pick::Endpoint(again) = worker.pick_but(&plan, &tried) else { panic!("there is room") };
    assert_eq!(again.endpoint_index(), 1, "what was tried is left out");
    drop((again, leases));
    assert_eq!((bell.rung(), plan.state.waiting()), (0, 1));
    drop(held);
    assert_eq!((bell.rung(), plan.state.waiting()), (1, 0));
    assert_eq!(poll(&waits, &waker).unwrap().endpoint_index(), 0);
    let mut counts = [0; 3];
    let leases: Vec<Lease> = (0..5).map(|_| worker.lease(&plan)).collect();
    leases.iter().for_each(|lease| counts[lease.endpoint_index()] += 1);
    assert_eq!(counts, [1, 1, 3], "as ever");
}

#[test]
fn who_waits_for_an_endpoint_that_is_ejected_in_comparison_with_others_gets_another() {
    let second = Duration::from_secs(1);
    let mut config = queued(&[1, 1], 10);
    config.fitness.passive = Some(PassiveHealth {
        consecutive_failures: None,
        consecutive_5xx: None,
        failure_rate: Some(FailureRate { percent_max: 50, requests_min: 5 }),
        success_rate: None,
        latency: None,
        interval: 10 * second,
        ejection_time: 30 * second,
        ejection_time_max: 300 * second,
        ejected_percent_max: 50,
    });
    let plan = plan_of(config);
    let Pick::Endpoint(_held) = Worker::new(1).pick_pinned(&plan, 0) else { panic!("it has room") };
    let (bell, waker) = Bell::new();
    let waits = plan.enqueue(pinned_to(0), &waker).unwrap();
    plan.tick(begin());
    for _ in 0..20 {
        plan.witness(&plan.endpoints[0].state, crate::Seen::Failed, begin());
    }
    assert_eq!(bell.rung(), 0);
    plan.tick(begin() + 10 * second);
    assert_eq!(bell.rung(), 1);
    assert_eq!(poll(&waits, &waker).unwrap().endpoint_index(), 1);
}

#[test]
fn who_is_pinned_goes_elsewhere_once_the_endpoint_is_down_but_not_while_it_is_drained() {
    let config = queued(&[1, 1], 10).with(|it| it.health_check = health_check(1, 1));
    let plan = plan_of(config.clone());
    let mut worker = Worker::new(1);
    let Pick::Endpoint(_held) = worker.pick_pinned(&plan, 0) else { panic!("it has room") };
    let (bell, waker) = Bell::new();
    let waits = plan.enqueue(pinned_to(0), &waker).unwrap();
    let mut drained = config;
    drained.endpoints[0].state = model::fitness::AdminState::Drain;
    let new = change(&plan, drained);
    assert_eq!(bell.rung(), 0);
    assert!(matches!(Worker::new(1).pick_pinned(&new, 0), Pick::Full));
    new.observe(0, Outcome::Failure);
    assert_eq!(bell.rung(), 1);
    assert_eq!(poll(&waits, &waker).unwrap().endpoint_index(), 1);
}

#[test]
fn a_bound_of_the_cluster_holds_over_all_endpoints_and_serves_in_order_when_it_has_room() {
    let config = queued(&[2, 2, 2], 10).with(|it| it.connections_max = Some(2));
    let plan = plan_of(config.clone());
    let mut worker = Worker::new(1);
    let held = [worker.lease(&plan), worker.lease(&plan)];
    assert!(matches!(worker.pick(&plan), Pick::Full));
    let (bells, wakers): (Vec<_>, Vec<_>) = (0..3).map(|_| Bell::new()).unzip();
    let waits = [anywhere(), pinned_to(2), anywhere()];
    let tickets: Vec<_> = waits.iter().zip(&wakers).map(|(wait, waker)| plan.enqueue(*wait, waker).unwrap()).collect();
    let rung = || bells.iter().map(|bell| bell.rung()).collect::<Vec<_>>();
    assert_eq!(rung(), [0, 0, 0]);
    let [first, second] = held;
    drop(first);
    assert_eq!(rung(), [1, 0, 0]);
    let _wider = change(&plan, config.with(|it| it.connections_max = Some(3)));
    assert_eq!(rung(), [1, 1, 0]);
    drop(second);
    assert_eq!(rung(), [1, 1, 1]);
    drop(tickets);
    assert!(plan.state.enter(1), "no place is lost");
}

#[test]
fn a_changed_waker_is_the_one_that_is_woken() {
    let plan = plan_of(queued(&[1], 1));
    let held = Worker::new(1).lease(&plan);
    let ((before, waker_before), (after, waker_after)) = (Bell::new(), Bell::new());
    let ticket = plan.enqueue(anywhere(), &waker_before).unwrap();
    assert!(poll(&ticket, &waker_after).is_none());
    drop(held);
    assert_eq!((before.rung(), after.rung()), (0, 1));
}

/// The queue as anyone would write it for one thread.
struct Model {
    bounds: Vec<u32>,
    up: Vec<bool>,
    in_flight: Vec<u32>,
    waiting: VecDeque<u64>,
}

impl Model {
    fn has_room(&self) -> bool {
        (0..self.bounds.len()).any(|place| self.up[place] && self.in_flight[place] < self.bounds[place])
    }

    /// Whose turn it is when something comes free.
    fn serve(&mut self) -> Vec<u64> {
        let mut served = Vec::new();
        while !self.waiting.is_empty() {
            let Some(place) = (0..self.bounds.len()).find(|&p| self.up[p] && self.in_flight[p] < self.bounds[p]) else {
                break;
            };
            self.in_flight[place] += 1;
            served.extend(self.waiting.pop_front());
        }
        served
    }
}

/// One seed: arrivals, departures, people who give up and endpoints that go down and up, thousands of steps; at every step
/// the model and the queue agree on who is served.
fn simulate(seed: u64) {
    let mut random = Random::new(seed);
    let bounds: Vec<u32> = (0..1 + random.below(3)).map(|_| random.below(4) as u32).collect();
    let requests_max = 1 + random.below(20) as u32;
    let balance = [RoundRobin, ByChance, LeastRequest][random.below(3) as usize].clone();
    let checked = queued(&bounds, requests_max).with(|it| it.health_check = health_check(1, 1));
    let plan = plan_of(checked.with(|it| it.balance = balance));
    let mut worker = Worker::new(seed);
    let count = bounds.len();
    let mut model = Model { in_flight: vec![0; count], up: vec![true; count], waiting: VecDeque::new(), bounds };
    let mut tickets: Vec<(u64, Ticket)> = Vec::new();
    let mut leases: Vec<Lease> = Vec::new();
    for arrival in 0..3_000 {
        let mut served = Vec::new();
        match random.below(10) {
            0..5 => match worker.pick(&plan) {
                Pick::Endpoint(lease) => {
                    assert!(model.has_room() && model.waiting.is_empty(), "seed {seed}");
                    leases.push(lease);
                }
                Pick::None => assert!(!model.up.contains(&true)),
                Pick::Full => {
                    assert!(!model.has_room() || !model.waiting.is_empty());
                    match plan.enqueue(anywhere(), Waker::noop()) {
                        Ok(ticket) => {
                            tickets.push((arrival, ticket));
                            model.waiting.push_back(arrival);
                        }
                        Err(_) => assert_eq!(model.waiting.len(), requests_max as usize),
                    }
                }
            },
            5..8 if !leases.is_empty() => {
                drop(leases.swap_remove(random.below(leases.len() as u64) as usize));
            }
            8 if !tickets.is_empty() => {
                let (id, ticket) = tickets.remove(random.below(tickets.len() as u64) as usize);
                model.waiting.retain(|&waiting| waiting != id);
                drop(ticket);
            }
            9 => {
                let place = random.below(count as u64) as usize;
                let up = random.below(2) == 0;
                plan.observe(place, if up { Outcome::Success } else { Outcome::Failure });
                model.up[place] = up;
            }
            _ => {}
        }
        tickets.retain(|(id, ticket)| match poll(ticket, Waker::noop()) {
            Some(lease) => {
                leases.push(lease);
                served.push(*id);
                false
            }
            None => true,
        });
        // The model learns which endpoints hold what is not being handed over, and must hand over to the same people.
        model.in_flight = in_flight(&plan, &leases[..leases.len() - served.len()]);
        assert_eq!(model.serve(), served, "seed {seed}");
        assert_eq!(plan.state.waiting() as usize, model.waiting.len(), "seed {seed}");
        let held = in_flight(&plan, &leases);
        let counted: Vec<u32> = plan.endpoints.iter().map(|endpoint| endpoint.state.in_flight()).collect();
        assert_eq!(held, counted, "seed {seed}");
        assert!(held.iter().zip(&model.bounds).all(|(held, max)| held <= max));
    }
    drop((leases, tickets));
    assert!(plan.endpoints.iter().all(|endpoint| endpoint.state.in_flight() == 0));
    assert_eq!(Arc::strong_count(&plan), 1, "a queue that is empty holds no plan");
}

fn in_flight(plan: &ClusterPlan, leases: &[Lease]) -> Vec<u32> {
    let mut counts = vec![0; plan.endpoints.len()];
    for lease in leases {
        counts[lease.endpoint_index()] += 1;
    }
    counts
}

#[test]
fn in_simulation_from_seeds_the_queue_does_what_its_model_does() {
    for seed in 0..200 {
        simulate(seed);
    }
}

/// Wakes a thread that sleeps.
#[derive(Default)]
struct Parked {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Parked {
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

fn lease_or_wait(plan: &Arc<ClusterPlan>, worker: &mut Worker) -> Lease {
    match worker.pick(plan) {
        Pick::Endpoint(lease) => lease,
        Pick::None => unreachable!("no check is configured"),
        Pick::Full => wait(plan, anywhere()),
    }
}

fn wait(plan: &Arc<ClusterPlan>, wait: Wait) -> Lease {
    let parked = Arc::new(Parked::default());
    let waker = Waker::from(parked.clone());
    let ticket = plan.enqueue(wait, &waker).unwrap();
    loop {
        if let Some(lease) = poll(&ticket, &waker) {
            return lease;
        }
        parked.wait();
    }
}

/// If the two counts could miss each other, a thread would sleep for ever beside a free place.
#[test]
fn no_place_stays_free_while_a_thread_waits_for_it() {
    let plan = plan_of(queued(&[1, 1], 1_000));
    let (holding, done) = (AtomicU32::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (plan, holding, done) = (&plan, &holding, &done);
            scope.spawn(move || {
                let mut worker = Worker::new(seed);
                for _ in 0..3_000 {
                    let lease = lease_or_wait(plan, &mut worker);
                    assert!(holding.fetch_add(1, Ordering::SeqCst) < 2);
                    holding.fetch_sub(1, Ordering::SeqCst);
                    drop(lease);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 18_000);
    assert_eq!((plan.state.waiting(), Arc::strong_count(&plan)), (0, 1));
}

/// A place of the cluster that was taken in vain, because all endpoints were full, must not be missed by one who waits.
#[test]
fn no_thread_sleeps_beside_a_place_of_the_cluster_or_gets_one_too_many() {
    let plan = plan_of(queued(&[1, 1, 1], 1_000).with(|it| it.connections_max = Some(2)));
    let holding = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (plan, holding) = (&plan, &holding);
            scope.spawn(move || {
                let (mut worker, mut random) = (Worker::new(seed), Random::new(seed));
                for _ in 0..2_000 {
                    let pinned = (random.below(3) == 0).then(|| random.below(3) as u32);
                    let lease = match pinned {
                        Some(endpoint) => wait(plan, pinned_to(endpoint)),
                        None => lease_or_wait(plan, &mut worker),
                    };
                    assert!(pinned.is_none_or(|endpoint| lease.endpoint_index() == endpoint as usize));
                    assert!(holding.fetch_add(1, Ordering::SeqCst) < 2);
                    holding.fetch_sub(1, Ordering::SeqCst);
                    drop(lease);
                }
            });
        }
    });
    assert_eq!((plan.state.waiting(), Arc::strong_count(&plan)), (0, 1));
    assert!(plan.state.enter(1));
}

/// Anyone who gives a place back looks at the count of those who wait for its endpoint alone, and of those who wait for any.
#[test]
fn no_thread_sleeps_beside_a_place_that_it_alone_waits_for() {
    let plan = plan_of(queued(&[1, 1, 1], 1_000));
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let plan = &plan;
            scope.spawn(move || {
                let (mut worker, mut random) = (Worker::new(seed), Random::new(seed));
                for _ in 0..3_000 {
                    let pinned = (random.below(3) > 0).then(|| random.below(3) as u32);
                    let lease = match pinned.map(|endpoint| (endpoint, worker.pick_pinned(plan, endpoint))) {
                        Some((_, Pick::Endpoint(lease))) => lease,
                        Some((endpoint, _)) => wait(plan, pinned_to(endpoint)),
                        None => lease_or_wait(plan, &mut worker),
                    };
                    assert!(pinned.is_none_or(|endpoint| lease.endpoint_index() == endpoint as usize));
                }
            });
        }
    });
    assert_eq!((plan.state.waiting(), Arc::strong_count(&plan)), (0, 1));
    assert_eq!(plan.state.waiting_anywhere().load(Ordering::SeqCst), 0);
}

/// People who give up race with those who hand over.
#[test]
fn no_place_is_lost_to_threads_that_give_up() {
    let plan = plan_of(queued(&[1], 1_000));
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let plan = &plan;
            scope.spawn(move || {
                let (mut worker, mut random) = (Worker::new(seed), Random::new(seed));
                for _ in 0..3_000 {
                    match worker.pick(plan) {
                        Pick::Endpoint(lease) => drop(lease),
                        _ => {
                            let ticket = plan.enqueue(anywhere(), Waker::noop()).unwrap();
                            for _ in 0..random.below(3) {
                                drop(poll(&ticket, Waker::noop()));
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!((plan.state.waiting(), plan.endpoints[0].state.in_flight()), (0, 0));
    drop(Worker::new(1).lease(&plan));
}

#[test]
fn one_who_waited_gets_the_endpoint_where_its_key_falls_if_that_is_free() {
    let hash = model::snapshot::Balance::Hash(model::snapshot::Hash::of_source());
    let config = cluster("c", hash, crate::testing::weighted(&[1; 8])).with(|it| {
        it.connections_max = Some(1);
        it.queue = queue(100)
    });
    let plan = plan_of(config);
    let mut worker = Worker::new(1);
    let ask = |key| crate::Ask { key: Some(key), ..crate::Ask::new(begin()) };
    let mut random = Random::new(7);
    for _ in 0..50 {
        let key = random.next_u64();
        let Pick::Endpoint(lease) = worker.pick_for(&plan, &ask(key)) else { panic!() };
        let own = lease.endpoint_index();
        assert!(matches!(worker.pick_for(&plan, &ask(key)), Pick::Full), "the bound of the cluster");
        let ticket = plan.enqueue(Wait { affinity: Some(key), ..anywhere() }, Waker::noop()).unwrap();
        drop(lease);
        assert_eq!(poll(&ticket, Waker::noop()).unwrap().endpoint_index(), own);
    }
}

#[test]
fn one_who_waited_takes_another_endpoint_when_that_of_its_key_is_full() {
    let hash = model::snapshot::Balance::Hash(model::snapshot::Hash::of_source());
    let plan = plan_of(cluster("c", hash, bounded(&[1, 1])).with(|it| it.queue = queue(100)));
    let mut worker = Worker::new(1);
    let held = [worker.lease(&plan), worker.lease(&plan)];
    let [one, other] = held.map(|lease| (lease.endpoint_index(), lease));
    let key = (0..).find(|&key| {
        let ask = crate::Ask { key: Some(key), ..crate::Ask::new(begin()) };
        // Where a key falls is found out on a plan like this one, with room.
        let like = plan_of((*plan.cluster).clone().with(|it| it.queue = None));
        let Pick::Endpoint(lease) = Worker::new(1).pick_for(&like, &ask) else { panic!() };
        lease.endpoint_index() == one.0
    });
    let ticket = plan.enqueue(Wait { affinity: key, ..anywhere() }, Waker::noop()).unwrap();
    drop(other.1);
    assert_eq!(poll(&ticket, Waker::noop()).unwrap().endpoint_index(), other.0, "nobody waits while there is room");
}
