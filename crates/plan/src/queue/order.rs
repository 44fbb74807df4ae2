//! Whose turn it is.
//!
//! Lower classes come first. Within a class those of different keys take turns, one at a time; where nothing is fair, all
//! have the same key. Within a key the order is that of arrival, moved by the offset. Those whose lane has no free place
//! are passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use model::queue::ShedFrom;

/// Where one waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) id: u64,
    pub(super) class: i8,
    /// What turns are taken by.
    pub(super) key: Option<u64>,
    pub(super) lane: u64,
    /// Nanoseconds on the queue's own clock: the arrival, moved by the offset.
    pub(super) at: i64,
}

/// Everyone who waits, in order.
#[derive(Default)]
pub(super) struct Order {
    /// By class and turn.
    flows: BTreeMap<(i8, u64), Flow>,
    /// The turn of each flow, by class and key.
    turns: BTreeMap<(i8, Option<u64>), u64>,
    next_turn: u64,
    /// Every line: its lane, class, length and turn.
    lengths: BTreeSet<(u64, i8, usize, u64)>,
    /// Every flow: its class, how many are in it, and its turn.
    sizes: BTreeSet<(i8, usize, u64)>,
}

/// Those of one class and key.
#[derive(Default)]
struct Flow {
    waiting: usize,
    /// By lane; none of them is empty.
    lines: BTreeMap<u64, Line>,
}

/// Those of a flow that are in one lane.
#[derive(Default)]
struct Line {
    /// By time, then by id.
    waiting: BTreeMap<(i64, u64), Waker>,
    /// The same by arrival.
    ids: BTreeSet<u64>,
}

/// Who is refused while waiting in a lane is hopeless.
pub(super) struct Victim {
    pub(super) id: u64,
    pub(super) class: i8,
    /// How many wait in the same line.
    pub(super) length: usize,
}

impl Order {
    pub(super) fn insert(&mut self, spot: &Spot, waker: Waker) {
        let turn = *self.turns.entry((spot.class, spot.key)).or_insert_with(|| {
            self.next_turn += 1;
            self.next_turn
        });
        let flow = self.flows.entry((spot.class, turn)).or_default();
        self.sizes.remove(&(spot.class, flow.waiting, turn));
        flow.waiting += 1;
        self.sizes.insert((spot.class, flow.waiting, turn));
        let line = flow.lines.entry(spot.lane).or_default();
        self.lengths.remove(&(spot.lane, spot.class, line.ids.len(), turn));
        line.waiting.insert((spot.at, spot.id), waker);
        line.ids.insert(spot.id);
        self.lengths.insert((spot.lane, spot.class, line.ids.len(), turn));
    }

    pub(super) fn remove(&mut self, spot: &Spot) -> Option<Waker> {
        let turn = *self.turns.get(&(spot.class, spot.key))?;
        let flow = self.flows.get_mut(&(spot.class, turn))?;
        let line = flow.lines.get_mut(&spot.lane)?;
        let waker = line.waiting.remove(&(spot.at, spot.id))?;
        self.sizes.remove(&(spot.class, flow.waiting, turn));
        flow.waiting -= 1;
        self.lengths.remove(&(spot.lane, spot.class, line.ids.len(), turn));
        line.ids.remove(&spot.id);
        if line.ids.is_empty() {
            flow.lines.remove(&spot.lane);
        } else {
            self.lengths.insert((spot.lane, spot.class, line.ids.len(), turn));
        }
        if flow.waiting == 0 {
            self.flows.remove(&(spot.class, turn));
            self.turns.remove(&(spot.class, spot.key));
        } else {
            self.sizes.insert((spot.class, flow.waiting, turn));
        }
        Some(waker)
    }

    /// Returns the waker of one who waits.
    pub(super) fn waker(&mut self, spot: &Spot) -> Option<&mut Waker> {
        let turn = *self.turns.get(&(spot.class, spot.key))?;
        self.flows.get_mut(&(spot.class, turn))?.lines.get_mut(&spot.lane)?.waiting.get_mut(&(spot.at, spot.id))
    }

    /// Returns the id and lane of the next request in these lanes.
    pub(super) fn next(&self, lanes: &[u64]) -> Option<(u64, u64)> {
        let head = |flow: &Flow| {
            let heads = lanes.iter().filter_map(|lane| {
                let (&(at, id), _) = flow.lines.get(lane)?.waiting.first_key_value()?;
                Some((at, id, *lane))
            });
            heads.min().map(|(_, id, lane)| (id, lane))
        };
        if lanes.is_empty() { None } else { self.flows.values().find_map(head) }
    }

    /// Notes that one of these has had a turn: others of the class come first now.
    pub(super) fn turn_is_over(&mut self, class: i8, key: Option<u64>) {
        if self.flows.len() < 2 {
            return;
        }
        let Some(turn) = self.turns.get_mut(&(class, key)) else { return };
        if let Some(flow) = self.flows.remove(&(class, *turn)) {
            let before = *turn;
            self.next_turn += 1;
            *turn = self.next_turn;
            self.sizes.remove(&(class, flow.waiting, before));
            self.sizes.insert((class, flow.waiting, *turn));
            for (lane, line) in &flow.lines {
                self.lengths.remove(&(*lane, class, line.ids.len(), before));
                self.lengths.insert((*lane, class, line.ids.len(), *turn));
            }
            self.flows.insert((class, *turn), flow);
        }
    }

    /// Returns the request to reject while waiting in a lane is hopeless: of the last class there, of the key with the most waiting
    /// requests.
    pub(super) fn hopeless(&self, lane: u64, from: ShedFrom) -> Option<Victim> {
        let all = (lane, i8::MIN, 0, 0)..=(lane, i8::MAX, usize::MAX, u64::MAX);
        let &(_, class, length, latest) = self.lengths.range(all).next_back()?;
        // Of keys of which as many wait, that whose turn is next when the oldest go, and that whose turn is last otherwise.
        let turn = match from {
            ShedFrom::Oldest => self.lengths.range((lane, class, length, 0)..).next()?.3,
            ShedFrom::Newest => latest,
        };
        let line = self.flows.get(&(class, turn))?.lines.get(&lane)?;
        let id = match from {
            // By arrival: those who are favoured are not the oldest.
            ShedFrom::Oldest => *line.ids.first()?,
            ShedFrom::Newest => line.waiting.last_key_value()?.0.1,
        };
        Some(Victim { id, class, length })
    }

    /// Returns how many of this class and key wait in a lane.
    pub(super) fn length(&self, lane: u64, class: i8, key: Option<u64>) -> usize {
        let flow = self.turns.get(&(class, key)).and_then(|turn| self.flows.get(&(class, *turn)));
        flow.and_then(|flow| flow.lines.get(&lane)).map_or(0, |line| line.ids.len())
    }

    /// Who has to go, the queue being too full, where keys share it: the last of the key that has most in it, of the class
    /// of the newcomer and those behind. `None`: the newcomer, whose key has no less.
    pub(super) fn displaced(&self, class: i8, key: Option<u64>) -> Option<u64> {
        let own = self.turns.get(&(class, key)).and_then(|turn| self.flows.get(&(class, *turn)))?.waiting;
        let largest = self.largest(class)?;
        if largest.waiting > own { largest.last() } else { None }
    }

    /// Returns the flow of which most wait, of this class and those behind.
    fn largest(&self, class: i8) -> Option<&Flow> {
        let mut largest: Option<(usize, i8, u64)> = None;
        let mut end = (i8::MAX, usize::MAX, u64::MAX);
        // The largest of each class, from the last on: of equal ones the last.
        while let Some(&(of, waiting, turn)) = self.sizes.range((class, 0, 0)..end).next_back() {
            if largest.is_none_or(|(most, ..)| waiting > most) {
                largest = Some((waiting, of, turn));
            }
            end = (of, 0, 0);
        }
        let (_, of, turn) = largest?;
        self.flows.get(&(of, turn))
    }
}

impl Flow {
    fn last(&self) -> Option<u64> {
        let ends = self.lines.values().filter_map(|line| line.waiting.last_key_value());
        ends.map(|(spot, _)| *spot).max().map(|(_, id)| id)
    }
}
