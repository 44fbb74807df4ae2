//! Instances without sockets: whatever is counted, cut and delivered in between, all have the same sums in the end.

use std::collections::{HashMap, VecDeque};

use model::table::{Counter, Reading, TableKey};

use super::super::state::Collected;
use super::*;

const KEYS: u8 = 4;

fn table(keys_max: u32, name: &str) -> Arc<Table> {
    let settings = model::table::Table {
        name: name.into(),
        key: TableKey::Header("x-key".to_owned()),
        keys_max,
        expire: Duration::from_secs(36_000),
        counters: vec![Counter::Requests],
        rates: vec![(Counter::Requests, Duration::from_secs(10))],
        is_replicated: true,
    };
    Arc::new(Table::compile(&Arc::new(settings), None).unwrap())
}

struct Node {
    engine: Engine,
    table: Arc<Table>,
}

/// A connection from one instance to another: what is on its way, and how far the sender is.
#[derive(Default)]
struct Wire {
    is_up: bool,
    is_asked: bool,
    epoch: u64,
    position: Option<u64>,
    frames: VecDeque<Vec<u8>>,
    state: Option<Collected>,
}

struct World {
    nodes: Vec<Node>,
    wires: HashMap<(usize, usize), Wire>,
    now: Instant,
    journal: usize,
    instances: u128,
}

impl World {
    fn new(count: usize, journal: usize) -> Self {
        let now = Instant::now() + Duration::from_secs(100_000);
        let mut world = Self { nodes: Vec::new(), wires: HashMap::new(), now, journal, instances: 0 };
        for place in 0..count {
            let node = world.node();
            world.nodes.push(node);
            (0..count)
                .filter(|other| *other != place)
                .for_each(|other| _ = world.wires.insert((place, other), Wire::default()));
        }
        world
    }

    fn node(&mut self) -> Node {
        self.instances += 1;
        let table = table(100_000, "t");
        let mut engine = Engine::new(self.instances, self.now).with_journal(self.journal);
        engine.follow(vec![table.clone()]);
        Node { engine, table }
    }

    fn count(&self, node: usize, key: u64, amount: u64) {
        let amounts = [(Counter::Requests, amount)];
        self.nodes[node].table.count(&key.to_be_bytes(), &amounts, self.now, &mut || 7);
    }

    fn sum(&self, node: usize, key: u64) -> u64 {
        let reading = Reading { counter: Counter::Requests, is_rate: false };
        self.nodes[node].table.get(&key.to_be_bytes(), reading, self.now)
    }

    fn cut(&mut self, way: (usize, usize)) {
        let me = self.nodes[way.0].engine.me();
        self.nodes[way.1].engine.leave(me);
        let receiver = self.nodes[way.1].engine.me();
        self.nodes[way.0].engine.part(receiver);
        self.wires.insert(way, Wire::default());
    }

    /// The receiver asks, if it has not or something has changed.
    fn ask(&mut self, way: (usize, usize)) {
        let (me, receiver) = (self.nodes[way.0].engine.me(), self.nodes[way.1].engine.me());
        let wire = self.wires.get_mut(&way).unwrap();
        let engine = &mut self.nodes[way.1].engine;
        let is_good = wire.is_asked && wire.epoch == engine.epoch() && !engine.wants_teaching_by(me);
        if is_good || wire.state.is_some() {
            return;
        }
        let Some(asked) = engine.ask(me, self.now) else { return };
        (wire.is_asked, wire.epoch) = (true, engine.epoch());
        match asked {
            Frame::Follow { after, known } => {
                match self.nodes[way.0].engine.begin(receiver, (after, &known), self.now) {
                    Ok(()) => wire.position = Some(after),
                    Err(Gap) => {
                        (wire.is_asked, wire.position) = (false, None);
                        let known = self.nodes[way.0].engine.known();
                        self.nodes[way.1].engine.lacks(me, &known, self.now);
                    }
                }
            }
            _ => match self.nodes[way.0].engine.state(self.now) {
                Some(frames) => {
                    (wire.position, wire.state) = (None, Some(Collected::default()));
                    wire.frames.extend(frames);
                }
                None => {
                    wire.is_asked = false;
                    self.nodes[way.1].engine.not_yet(me, self.now);
                }
            },
        }
    }

    /// One step of a connection.
    fn turn(&mut self, way: (usize, usize)) {
        self.ask(way);
        let receiver = self.nodes[way.1].engine.me();
        let wire = self.wires.get_mut(&way).unwrap();
        if let Some(position) = wire.position {
            match self.nodes[way.0].engine.next_after(receiver, position, self.now) {
                Ok(Some((frame, last))) => {
                    wire.position = Some(last);
                    wire.frames.push_back(frame);
                }
                Ok(None) => {}
                Err(Gap) => {
                    let (me, known) = (self.nodes[way.0].engine.me(), self.nodes[way.0].engine.known());
                    self.nodes[way.1].engine.lacks(me, &known, self.now);
                    (wire.is_asked, wire.position) = (false, None);
                }
            }
        }
        let Some(bytes) = wire.frames.pop_front() else { return };
        let (frame, _) = wire::peers::next(&bytes).unwrap().unwrap();
        let me = self.nodes[way.0].engine.me();
        let engine = &mut self.nodes[way.1].engine;
        match frame {
            Frame::Segment(segment) => match engine.take(me, &segment, self.now) {
                Taken::Has(number) => self.nodes[way.0].engine.acknowledged(receiver, number, self.now),
                Taken::Behind(_) => wire.is_asked = false,
                other => panic!("{other:?}"),
            },
            Frame::State(blocks) => wire.state.as_mut().unwrap().add((engine, me), blocks).unwrap(),
            Frame::StateEnd { head, vector } => {
                let totals = wire.state.take().unwrap().take();
                engine.adopt(me, (totals, head, &vector), self.now);
                wire.is_asked = false;
            }
            other => panic!("{other:?}"),
        }
    }

    fn drain(&mut self, node: usize) {
        let now = self.now;
        let engine = &mut self.nodes[node].engine;
        engine.drain(now);
        engine.settle_if_alone(false, now);
    }

    /// All are connected for long enough.
    fn rest(&mut self) {
        let mut ways: Vec<_> = self.wires.keys().copied().collect();
        ways.sort_unstable();
        for _ in 0..200 {
            self.now += Duration::from_millis(100);
            (0..self.nodes.len()).for_each(|node| self.drain(node));
            for way in &ways {
                self.wires.get_mut(way).unwrap().is_up = true;
                self.turn(*way);
            }
        }
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// Random steps among so many nodes; returns what was counted by key.
fn storm(world: &mut World, chance: &mut Chance, steps: usize, keys: u64) -> HashMap<u64, u64> {
    let mut all = HashMap::new();
    let count = world.nodes.len();
    for _ in 0..steps {
        world.now += Duration::from_millis(chance.below(200) as u64);
        let (one, other) = (chance.below(count), chance.below(count - 1));
        let way = (one, if other >= one { other + 1 } else { other });
        match chance.below(12) {
            0..4 => {
                let (key, amount) = (chance.below(keys as usize) as u64, 1 + chance.below(9) as u64);
                world.count(one, key, amount);
                *all.entry(key).or_default() += amount;
            }
            4 | 5 => world.drain(one),
            6 => world.cut(way),
            7 => world.wires.get_mut(&way).unwrap().is_up = true,
            _ if world.wires[&way].is_up => world.turn(way),
            _ => {}
        }
    }
    all
}

#[test]
fn whatever_is_cut_and_delivered_in_between_all_have_the_same_sums() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let mut world = World::new(2 + seed as usize % 3, 1 << 20);
        let all = storm(&mut world, &mut chance, 400, KEYS.into());
        world.rest();
        for node in 0..world.nodes.len() {
            for (key, sum) in &all {
                assert_eq!(world.sum(node, *key), *sum, "seed {seed} node {node} key {key}");
            }
        }
    }
}

#[test]
fn journals_that_join_segments_lose_and_double_nothing() {
    for seed in 0..100 {
        let mut chance = Chance(seed);
        let mut world = World::new(2 + seed as usize % 2, 4_000);
        let all = storm(&mut world, &mut chance, 2_000, KEYS.into());
        world.rest();
        for node in 0..world.nodes.len() {
            for (key, sum) in &all {
                assert_eq!(world.sum(node, *key), *sum, "seed {seed} node {node} key {key}");
            }
        }
    }
}

#[test]
fn one_that_died_is_taught_what_the_others_know() {
    for seed in 0..100 {
        let mut chance = Chance(seed);
        let mut world = World::new(3, 1 << 20);
        let mut all = storm(&mut world, &mut chance, 200, KEYS.into());
        world.rest();
        let node = world.node();
        world.nodes[1] = node;
        let ways: Vec<_> = world.wires.keys().copied().filter(|(one, other)| *one == 1 || *other == 1).collect();
        ways.into_iter().for_each(|way| world.cut(way));
        for (key, sum) in storm(&mut world, &mut chance, 200, KEYS.into()) {
            *all.entry(key).or_default() += sum;
        }
        world.rest();
        for node in 0..3 {
            for (key, sum) in &all {
                assert_eq!(world.sum(node, *key), *sum, "seed {seed} node {node} key {key}");
            }
        }
    }
}

#[test]
fn a_flood_of_keys_during_a_partition_ends_with_the_same_sums_and_none_doubled() {
    for seed in 0..30 {
        let mut world = World::new(2, 20_000);
        world.count(0, 1, 100);
        world.rest();
        world.cut((0, 1));
        world.cut((1, 0));
        for key in 0..3_000 {
            world.count(0, 1_000 + key, 1);
            if seed % 2 == 0 {
                world.count(1, 10_000 + key, 1);
            }
            world.count(0, 1, 1);
            world.count(1, 1, 1);
            if key % 10 == 0 {
                (0..2).for_each(|node| world.drain(node));
            }
        }
        world.rest();
        assert!(world.nodes.iter().any(|node| node.engine.figures.resyncs > 0));
        let sums = [world.sum(0, 1), world.sum(1, 1)];
        assert_eq!(sums[0], sums[1]);
        // If both have forgotten what they counted themselves, the greater stays.
        assert!(sums[0] <= 6_100 && sums[0] >= if seed % 2 == 0 { 3_100 } else { 6_100 }, "{seed} {sums:?}");
        for key in [1_000, 3_999, 10_000] {
            assert_eq!(world.sum(0, key), world.sum(1, key));
        }
    }
}

#[test]
fn the_process_that_follows_goes_on_where_the_one_before_is() {
    let mut world = World::new(2, 1 << 20);
    world.count(0, 1, 5);
    world.count(1, 1, 3);
    world.rest();
    world.count(0, 1, 1);
    world.nodes[0].engine.pause(true);
    let (vector, before) = (world.nodes[0].engine.hand_over(), Arc::clone(&world.nodes[0].table));
    let handed = before.hand_over(100, Duration::MAX, world.now);
    world.count(0, 1, 1);
    world.count(1, 1, 2);
    // The old one goes on as a third, which only sends.
    let old = std::mem::replace(&mut world.nodes[0], World::new(1, 1 << 20).nodes.remove(0));
    let mut node = world.node();
    node.table.inherit((&handed, None), world.now, &mut || 5);
    node.engine.inherit(&vector, world.now);
    world.nodes[0] = node;
    world.nodes.push(old);
    world.nodes[2].engine.retire();
    world.cut((0, 1));
    world.cut((1, 0));
    world.cut((2, 0));
    world.cut((2, 1));
    world.count(2, 1, 4);
    world.count(0, 1, 7);
    world.rest();
    assert_eq!([world.sum(0, 1), world.sum(1, 1)], [23, 23]);
}

#[test]
fn tables_that_count_something_else_are_passed_over_and_broken_segments_refused() {
    let mut world = World::new(2, 1 << 20);
    world.rest();
    let other = table(10, "other");
    world.nodes[0].engine.follow(vec![other.clone()]);
    other.count(b"a", &[(Counter::Requests, 1)], world.now, &mut || 7);
    world.rest();
    assert_eq!((world.nodes[1].engine.figures.skipped, world.nodes[1].engine.figures.received), (1, 0));
    let broken = Segment { first: 2, last: 9, age: 0, blocks: b"\x01tabc" };
    let (sender, now) = (world.nodes[0].engine.me(), world.now);
    assert_eq!(world.nodes[1].engine.take(sender, &broken, now), Taken::Broken);
    let strange = Segment { first: 7, ..broken };
    assert_eq!(world.nodes[1].engine.take(sender, &strange, now), Taken::Behind(1));
}

fn count_in(table: &Table, world: &World, amount: u64) {
    table.count(b"x", &[(Counter::Requests, amount)], world.now, &mut || 7);
}

fn sum_in(table: &Table, world: &World) -> u64 {
    table.get(b"x", Reading { counter: Counter::Requests, is_rate: false }, world.now)
}

#[test]
fn one_without_a_table_teaches_no_one_who_has_it_as_long_as_another_can() {
    // Not all orders: one that was taught in part, because no other was there, still teaches the table that it lacks.
    for seed in 0..16 {
        let (mut chance, mut world) = (Chance(seed), World::new(3, 1 << 20));
        let seconds = [table(1_000, "u"), table(1_000, "u")];
        let follow = |world: &mut World, node: usize, second: &Arc<Table>| {
            let tables = vec![Arc::clone(&world.nodes[node].table), Arc::clone(second)];
            world.nodes[node].engine.follow(tables);
        };
        follow(&mut world, 2, &seconds[0]);
        let mut all = storm(&mut world, &mut chance, 200, KEYS.into());
        count_in(&seconds[0], &world, 40);
        world.rest();
        // A new one, with all tables: the first to be asked is the one without.
        let node = world.node();
        world.nodes[1] = node;
        let ways: Vec<_> = world.wires.keys().copied().filter(|(one, other)| *one == 1 || *other == 1).collect();
        ways.into_iter().for_each(|way| world.cut(way));
        follow(&mut world, 1, &seconds[1]);
        if seed % 2 == 0 {
            world.ask((0, 1));
        }
        count_in(&seconds[1], &world, 2);
        for (key, sum) in storm(&mut world, &mut chance, 200, KEYS.into()) {
            *all.entry(key).or_default() += sum;
        }
        world.rest();
        for (key, sum) in &all {
            assert_eq!([0, 1, 2].map(|node| world.sum(node, *key)), [*sum; 3], "seed {seed} key {key}");
        }
        assert_eq!(seconds.each_ref().map(|second| sum_in(second, &world)), [42, 42], "seed {seed}");
    }
}

#[test]
fn a_table_that_no_peer_has_yet_changes_nothing_in_the_others() {
    for seed in 0..50 {
        let (mut chance, mut world) = (Chance(seed), World::new(2, 1 << 20));
        let mut all = storm(&mut world, &mut chance, 200, KEYS.into());
        world.rest();
        let second = table(1_000, "u");
        let tables = vec![Arc::clone(&world.nodes[1].table), Arc::clone(&second)];
        world.nodes[1].engine.follow(tables);
        count_in(&second, &world, 3);
        let taught = world.nodes[1].engine.figures.resyncs;
        for (key, sum) in storm(&mut world, &mut chance, 200, KEYS.into()) {
            *all.entry(key).or_default() += sum;
        }
        world.rest();
        for (key, sum) in &all {
            assert_eq!([0, 1].map(|node| world.sum(node, *key)), [*sum; 2], "seed {seed} key {key}");
        }
        assert_eq!((world.nodes[1].engine.figures.resyncs, sum_in(&second, &world)), (taught, 3));
    }
}

#[test]
fn what_was_not_handed_over_whole_is_learned_from_a_peer() {
    let mut world = World::new(2, 1 << 20);
    world.count(0, 1, 5);
    world.count(1, 1, 3);
    world.rest();
    let handed = PeersHandover { lacks_tables: true, ..world.nodes[0].engine.hand_over() };
    let mut node = world.node();
    node.engine.inherit(&handed, world.now);
    world.nodes[0] = node;
    world.cut((0, 1));
    world.cut((1, 0));
    world.count(0, 1, 4);
    world.rest();
    assert_eq!([world.sum(0, 1), world.sum(1, 1)], [12, 12]);
}

#[test]
fn what_a_table_counted_in_another_shape_is_not_added_to_what_it_counts_now() {
    let mut world = World::new(1, 1 << 20);
    world.count(0, 1, 500);
    world.drain(0);
    let mut settings = (**world.nodes[0].table.settings()).clone();
    settings.counters = vec![Counter::BytesOut, Counter::Requests];
    let other = Arc::new(Table::compile(&Arc::new(settings), None).unwrap());
    world.nodes[0].engine.follow(vec![Arc::clone(&other)]);
    let totals = HashMap::from([("t".to_owned(), Totals::from([(1_u64.to_be_bytes().to_vec(), (0, vec![1, 2, 0]))]))]);
    world.nodes[0].engine.adopt(9, (totals, 1, &[]), world.now);
    let read = |counter| other.get(&1_u64.to_be_bytes(), Reading { counter, is_rate: false }, world.now);
    assert_eq!([Counter::Requests, Counter::BytesOut].map(read).iter().sum::<u64>(), 3);
}

#[test]
fn a_receiver_with_segments_on_the_way_is_not_cut_off_when_the_journal_is_joined() {
    let mut world = World::new(1, 4_000);
    let (now, mut position) = (world.now, 0);
    world.nodes[0].engine.begin(9, (0, &[]), now).unwrap();
    for turn in 0..2_000 {
        world.count(0, turn % 4, 1);
        world.drain(0);
        if turn % 3 == 0
            && let Some((_, last)) = world.nodes[0].engine.next_after(9, position, now).unwrap()
        {
            position = last;
        }
    }
    assert_eq!(world.nodes[0].engine.dropped(), 0);
    assert!(position > 100, "{position}");
}

#[test]
fn patience_with_a_sender_begins_again_when_it_has_what_follows() {
    let mut world = World::new(1, 4_000);
    let (mut now, engine) = (world.now, &mut world.nodes[0].engine);
    engine.learning.patience = Duration::from_secs(30);
    let segment = |first| Segment { first, last: first, age: 0, blocks: b"" };
    assert_eq!((engine.take(7, &segment(1), now), engine.take(8, &segment(1), now)), (Taken::Has(1), Taken::Has(1)));
    engine.learning.is_settled = true;
    engine.lacks(8, &[], now);
    assert!(!engine.wants_teaching_by(8));
    assert_eq!(engine.take(8, &segment(2), now), Taken::Has(2));
    now += Duration::from_secs(31);
    engine.lacks(8, &[], now);
    assert!(!engine.wants_teaching_by(8), "that is another time");
    engine.lacks(8, &[], now + Duration::from_secs(31));
    assert!(engine.wants_teaching_by(8));
}
