//! One call for all exchanges that need the same answer at once.
//!
//! The exchange that begins calls, and the others wait a moment and look at the cache again, which the call fills. A flight ends with its
//! call, or with its exchange: a client that disconnects holds nobody up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{AtEnd, Ended, Flow, Need, Note, Turn};
use crate::filter::token_cache::Digest;

/// Flights at once, over all workers. Beyond it each exchange calls by itself.
const FLIGHTS_MAX: usize = 4_096;
/// Waits of one exchange. Each is twice as long as the one before.
const WAITS_MAX: u64 = 6;
/// Marks the note of an exchange that leads a flight; the other bits are the number of the flight.
const LEADS: u64 = 1 << 63;

/// See the module.
#[derive(Debug)]
pub(super) struct Flights {
    /// The number of the flight for each key.
    under_way: Mutex<HashMap<Digest, u64>>,
    numbers: AtomicU64,
    /// The first wait of an exchange.
    wait: Duration,
}

/// Waits take 630 ms together.
impl Default for Flights {
    fn default() -> Self {
        Self::waiting(Duration::from_millis(10))
    }
}

/// What an exchange does about an answer that it needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It calls.
    Calls,
    /// Another exchange calls: it waits and looks again.
    Waits(Flow),
    /// Another exchange still calls, and this one has waited as long as it may.
    HasWaited,
}

/// What ends a flight with its exchange.
struct Flight {
    flights: Arc<Flights>,
    key: Digest,
}

impl AtEnd for Flight {
    fn at_end(&self, number: u64, _: &Ended) {
        self.flights.remove(&self.key, number);
    }
}

impl Flights {
    /// Returns flights whose followers wait so long at first, and 63 times as long together.
    pub(super) fn waiting(wait: Duration) -> Self {
        Self { under_way: Mutex::default(), numbers: AtomicU64::new(0), wait }
    }

    /// Joins the flight of a key, or begins one. What the exchange did before stands under the note `part`.
    pub(super) fn join(self: &Arc<Self>, key: &Digest, part: usize, turn: &mut Turn<'_>) -> Part {
        let joined = self.join_apart(key, part, turn);
        if joined == Part::Calls
            && let Some(number) = Self::led(part, turn)
        {
            turn.notes.at_end(Arc::new(Flight { flights: Arc::clone(self), key: *key }), number);
        }
        joined
    }

    /// The same for a call that goes on when its exchange has ended. What takes its reply ends the flight: [`Self::remove`].
    pub(super) fn join_apart(&self, key: &Digest, part: usize, turn: &mut Turn<'_>) -> Part {
        if turn.is_rehearsal {
            return Part::Calls;
        }
        let waits = match turn.notes.get(part) {
            Note::Number(number) if number & LEADS == 0 => number,
            _ => 0,
        };
        let mut under_way = self.under_way();
        if under_way.contains_key(key) {
            drop(under_way);
            if waits >= WAITS_MAX {
                return Part::HasWaited;
            }
            turn.notes.set(part, Note::Number(waits + 1));
            let until: Instant = turn.now + self.wait * (1 << waits);
            return Part::Waits(Flow::Need(Need::Until(until)));
        }
        if under_way.len() < FLIGHTS_MAX {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            under_way.insert(*key, number);
            turn.notes.set(part, Note::Number(LEADS | number));
        }
        Part::Calls
    }

    /// Returns whether some exchange leads a flight of a key.
    pub(super) fn is_under_way(&self, key: &Digest) -> bool {
        self.under_way().contains_key(key)
    }

    /// Ends the flight of a key if this exchange leads it: its call has ended, and the cache has what came of it. An exchange that called
    /// beside the flight of another ends nothing.
    pub(super) fn end(&self, key: &Digest, part: usize, turn: &Turn<'_>) {
        if let Some(number) = Self::led(part, turn) {
            self.remove(key, number);
        }
    }

    /// Returns the number of the flight that this exchange leads, or has led.
    pub(super) fn led(part: usize, turn: &Turn<'_>) -> Option<u64> {
        match turn.notes.get(part) {
            Note::Number(number) if number & LEADS != 0 => Some(number & !LEADS),
            _ => None,
        }
    }

    /// Ends the flight of a key if it has this number.
    pub(super) fn remove(&self, key: &Digest, number: u64) {
        let mut under_way = self.under_way();
        if under_way.get(key) == Some(&number) {
            under_way.remove(key);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Digest, u64>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Beside, World};
    use super::*;

    const KEY: Digest = [1; 32];

    #[test]
    fn an_exchange_that_calls_by_itself_does_not_end_the_flight_of_another() {
        let flights = Arc::new(Flights::default());
        let world = World::new();
        let facts = world.facts();
        let (mut leader, mut late) = (Beside::new(), Beside::new());
        assert_eq!(flights.join(&KEY, 0, &mut leader.turn(&facts)), Part::Calls);
        let mut waited = Duration::ZERO;
        loop {
            let mut turn = late.turn(&facts);
            match flights.join(&KEY, 0, &mut turn) {
                Part::Waits(Flow::Need(Need::Until(until))) => waited += until - turn.now,
                other => break assert_eq!(other, Part::HasWaited),
            }
        }
        assert_eq!(waited, Duration::from_millis(630));
        flights.end(&KEY, 0, &late.turn(&facts));
        assert!(flights.under_way().contains_key(&KEY));
        flights.end(&KEY, 0, &leader.turn(&facts));
        assert!(!flights.under_way().contains_key(&KEY));
        // The end of a leader whose flight has ended does not end the one after it.
        assert_eq!(flights.join(&KEY, 0, &mut late.turn(&facts)), Part::Calls);
        flights.end(&KEY, 0, &leader.turn(&facts));
        assert!(flights.under_way().contains_key(&KEY));
    }
}
