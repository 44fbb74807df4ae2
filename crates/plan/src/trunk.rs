//! Which HTTP/2 or HTTP/3 connection to an endpoint carries a request.
//!
//! As few connections as will do: the oldest with room. A connection that is being made is waited for by as many as it will
//! probably carry, so that a crowd does not open one each; only those beyond open another.

/// What one connection carries, and may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Streams under way.
    pub open: u32,
    /// Streams at once.
    pub max: u32,
}

impl Room {
    /// Whether one more fits.
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
    /// As many as we want, until the endpoint says something else.
    pub fn new(most: u32) -> Self {
        Self { max: most, most, answers: 0 }
    }

    /// Streams at once from now on. 0: the connection is of no more use.
    pub fn max(self) -> u32 {
        self.max
    }

    /// The endpoint has refused a stream that began beside `others`. How many are under way when it is noticed says nothing: of a
    /// burst that was too large, some may be answered by then.
    pub fn refuse(&mut self, others: u32) {
        self.max = self.max.min(others);
        self.answers = 0;
    }

    /// It has answered one. Endpoints refuse for a while, so one more is dared for every round of answers.
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

#[cfg(test)]
mod tests {
    use super::*;
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
            let (mut trunks, mut dials): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                match dice.below(4) {
                    0 | 1 => {
                        let room = trunks.iter().map(|&open| Room { open, max });
                        match choose(room, dials.iter().copied(), max) {
                            Choice::Take(place) => trunks[place] += 1,
                            Choice::Wait(place) => dials[place] += 1,
                            Choice::Dial => {
                                let spare = trunks.iter().any(|&open| open < max);
                                assert!(!spare && dials.iter().all(|&waiting| waiting == max), "seed {seed}");
                                dials.push(1);
                            }
                        }
                    }
                    2 if !dials.is_empty() => trunks.push(dials.remove(0)),
                    _ if !trunks.is_empty() => {
                        let place = dice.below(trunks.len() as u64) as usize;
                        trunks[place] = trunks[place].saturating_sub(1);
                    }
                    _ => {}
                }
                assert!(trunks.iter().all(|&open| open <= max), "seed {seed}");
                assert!(dials.iter().all(|&waiting| waiting <= max), "seed {seed}");
            }
        }
    }
}
