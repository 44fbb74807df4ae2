//! Which HTTP/2 or HTTP/3 connection to an endpoint carries a request.
//!
//! As few connections as will do: the oldest with room. A connection that is being made is waited for by as many as it will
//! probably carry, so that a crowd does not open one each; only those beyond open another.

use std::time::{Duration, Instant};

use model::limits::{UPSTREAM_FAR, UPSTREAM_ROUND_TRIPS_MIN};

/// What one connection carries, and may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Streams in flight.
    pub open: u32,
    /// Streams at once.
    pub max: u32,
}

impl Room {
    /// Returns whether one more fits.
    pub fn is_there(self) -> bool {
        self.open < self.max
    }
}

/// What a request does that needs a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It goes on this connection, by its place in the order of age.
    Take(usize),
    /// It waits for this one, by its place among those that are being made.
    Wait(usize),
    /// It opens another.
    Dial,
}

/// Decides for one request. `rooms` are those of the connections, oldest first; `waiting` says for each connection that is
/// being made how many wait for it already; `expected` is how many streams a new one will probably carry.
pub fn choose(mut rooms: impl Iterator<Item = Room>, mut waiting: impl Iterator<Item = u32>, expected: u32) -> Choice {
    match (rooms.position(Room::is_there), waiting.position(|waiting| waiting < expected)) {
        (Some(place), _) => Choice::Take(place),
        (None, Some(place)) => Choice::Wait(place),
        (None, None) => Choice::Dial,
    }
}

/// How many streams at once an endpoint bears on one connection, as far as its refusals tell (RFC 9113 section 8.7, RFC 9114
/// section 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bearing {
    max: u32,
    most: u32,
    /// Since `max` was changed last.
    answers: u32,
}

impl Bearing {
    /// Starts with our own limit, until the endpoint reports another one.
    pub fn new(most: u32) -> Self {
        Self { max: most, most, answers: 0 }
    }

    /// Streams at once from now on. 0: the connection is of no more use.
    pub fn max(self) -> u32 {
        self.max
    }

    /// The endpoint has refused a stream that began beside `others`. How many are in flight when it is noticed says nothing: of a
    /// burst that was too large, some may be answered by then.
    pub fn refuse(&mut self, others: u32) {
        self.max = self.max.min(others);
        self.answers = 0;
    }

    /// Notes a response. Endpoints refuse for a while, so the limit grows by one for every round of responses.
    pub fn answer(&mut self) {
        if self.max == self.most {
            return;
        }
        self.answers += 1;
        if self.answers >= self.max {
            self.max += 1;
            self.answers = 0;
        }
    }
}

/// How far an endpoint may send ahead of the reader of one response: little at first, and more where the way there and back is so
/// long that it would stand still most of the time, as long as readers take what comes. A reader that is slow makes nothing grow.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    bytes: u32,
    max: u32,
    /// The shortest that was measured: what takes longer has waited for something.
    round_trip: Duration,
    measured: u32,
    filled_at: Option<Instant>,
}

/// What is to be done when a reader has taken as much as the window holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// The round trip is to be measured.
    Measure,
    /// The window is as large from now on; and the round trip is to be measured again.
    Grow(u32),
}

impl Window {
    /// Returns a window that begins with `bytes`, and grows to `max` at most.
    pub fn new(bytes: u32, max: u32) -> Self {
        Self { bytes, max, round_trip: Duration::MAX, measured: 0, filled_at: None }
    }

    /// Returns how much it holds.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Notes a measured round-trip time.
    pub fn note_round_trip(&mut self, took: Duration) {
        self.round_trip = self.round_trip.min(took);
        self.measured = self.measured.saturating_add(1);
    }

    /// Notes that the reader of one response has consumed a whole window since the last call.
    pub fn note_filled(&mut self, now: Instant) -> Step {
        let since = self.filled_at.replace(now);
        if self.bytes >= self.max {
            return Step::Rest;
        }
        if self.measured < UPSTREAM_ROUND_TRIPS_MIN {
            return Step::Measure;
        }
        let took = since.map(|since| now.saturating_duration_since(since));
        // A reader that takes what comes needs one round trip for it, or two and a little: a window is given back in halves, and one half
        // can wait for the other all the time. A third is for bytes that come in bursts.
        if self.round_trip < UPSTREAM_FAR || took.is_none_or(|took| took > self.round_trip * 3) {
            return Step::Rest;
        }
        self.bytes = self.bytes.saturating_mul(2).min(self.max);
        Step::Grow(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::tests::begin;
    use crate::random::Random;

    fn rooms(all: &[(u32, u32)]) -> impl Iterator<Item = Room> {
        all.iter().map(|&(open, max)| Room { open, max })
    }

    #[test]
    fn the_oldest_connection_with_room_is_taken() {
        assert_eq!(choose(rooms(&[(3, 3), (1, 3), (0, 3)]), [0].into_iter(), 9), Choice::Take(1));
    }

    #[test]
    fn a_crowd_waits_for_one_connection_and_only_what_it_will_not_carry_opens_another() {
        assert_eq!(choose(rooms(&[(3, 3)]), [].into_iter(), 3), Choice::Dial);
        assert_eq!(choose(rooms(&[(3, 3)]), [2].into_iter(), 3), Choice::Wait(0));
        assert_eq!(choose(rooms(&[(3, 3)]), [3, 1].into_iter(), 3), Choice::Wait(1));
        assert_eq!(choose(rooms(&[(3, 3)]), [3].into_iter(), 3), Choice::Dial);
    }

    #[test]
    fn an_endpoint_that_allows_no_stream_is_not_taken() {
        assert_eq!(choose(rooms(&[(0, 0)]), [].into_iter(), 1), Choice::Dial);
    }

    #[test]
    fn a_refusal_lowers_the_room_to_what_the_endpoint_had_already() {
        let after = |max, others| {
            let mut bearing = Bearing::new(max);
            bearing.refuse(others);
            bearing.max()
        };
        assert_eq!([after(100, 7), after(100, 0), after(4, 9)], [7, 0, 4]);
    }

    #[test]
    fn what_a_refusal_took_comes_back_with_answers_and_no_more() {
        let mut bearing = Bearing::new(5);
        bearing.refuse(2);
        let mut seen = Vec::new();
        for _ in 0..20 {
            bearing.answer();
            seen.push(bearing.max());
        }
        assert_eq!(seen[..10], [2, 3, 3, 3, 4, 4, 4, 4, 5, 5]);
        assert_eq!(seen.last(), Some(&5));
    }

    /// Bursts that are too large, whose answers and refusals are noticed in an order that chance gives.
    #[test]
    fn refusals_of_one_burst_find_what_the_endpoint_bears_in_whatever_order_they_come() {
        for seed in 0..500 {
            let mut dice = Random::new(seed);
            let (bears, burst) = (1 + dice.below(40) as u32, 41 + dice.below(60) as u32);
            let mut bearing = Bearing::new(100);
            let mut positions: Vec<u32> = (0..burst).collect();
            while !positions.is_empty() {
                let others = positions.swap_remove(dice.below(positions.len() as u64) as usize);
                if others < bears { bearing.answer() } else { bearing.refuse(others) }
            }
            let max = bearing.max();
            assert!((bears..=bears + 1).contains(&max), "seed {seed}: it bears {bears}, {max} are dared");
            for _ in 0..100 * 100 {
                bearing.answer();
            }
            assert_eq!(bearing.max(), 100, "seed {seed}");
        }
    }

    /// Requests come and go by chance at an endpoint whose connections are ready after a while.
    #[test]
    fn however_requests_come_no_connection_is_overfull_and_none_is_opened_needlessly() {
        for seed in 0..200 {
            let mut dice = Random::new(seed);
            let max = 1 + dice.below(8) as u32;
            let (mut connections, mut dials): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                match dice.below(4) {
                    0 | 1 => {
                        let room = connections.iter().map(|&open| Room { open, max });
                        match choose(room, dials.iter().copied(), max) {
                            Choice::Take(place) => connections[place] += 1,
                            Choice::Wait(place) => dials[place] += 1,
                            Choice::Dial => {
                                let spare = connections.iter().any(|&open| open < max);
                                assert!(!spare && dials.iter().all(|&waiting| waiting == max), "seed {seed}");
                                dials.push(1);
                            }
                        }
                    }
                    2 if !dials.is_empty() => connections.push(dials.remove(0)),
                    _ if !connections.is_empty() => {
                        let place = dice.below(connections.len() as u64) as usize;
                        connections[place] = connections[place].saturating_sub(1);
                    }
                    _ => {}
                }
                assert!(connections.iter().all(|&open| open <= max), "seed {seed}");
                assert!(dials.iter().all(|&waiting| waiting <= max), "seed {seed}");
            }
        }
    }

    const KIB: u32 = 1024;

    /// Returns how large a window is after `times` that a reader took as much as it holds, each in `takes`, with an endpoint at
    /// `round_trip`.
    fn grown(times: u32, takes: Duration, round_trip: Duration) -> u32 {
        let mut window = Window::new(128 * KIB, 1024 * KIB);
        let mut now = begin();
        for _ in 0..times {
            now += takes;
            if window.note_filled(now) != Step::Rest {
                window.note_round_trip(round_trip);
            }
        }
        window.bytes() / KIB
    }

    #[test]
    fn a_window_grows_up_to_its_bound_where_an_endpoint_is_far_away_and_its_readers_keep_up() {
        let far = Duration::from_millis(100);
        assert_eq!([1, 2, 3, 4, 5, 6, 50].map(|times| grown(times, far, far)), [128, 128, 256, 512, 1024, 1024, 1024]);
    }

    #[test]
    fn a_slow_reader_and_an_endpoint_nearby_leave_a_window_as_it_is() {
        let (near, far) = (Duration::from_millis(1), Duration::from_millis(100));
        assert_eq!(grown(50, far * 4, far), 128);
        assert_eq!(grown(50, near, near), 128);
    }

    #[test]
    fn a_window_whose_halves_wait_for_each_other_grows_too() {
        let far = Duration::from_millis(50);
        assert_eq!(grown(50, far * 2 + far / 5, far), 1024);
    }

    #[test]
    fn one_measure_that_waited_for_a_busy_worker_makes_nobody_far() {
        let mut window = Window::new(128 * KIB, 1024 * KIB);
        let now = begin();
        assert_eq!(window.note_filled(now), Step::Measure);
        window.note_round_trip(Duration::from_millis(50));
        assert_eq!(window.note_filled(now), Step::Measure);
        window.note_round_trip(Duration::from_micros(100));
        assert_eq!(window.note_filled(now), Step::Rest);
    }
}
