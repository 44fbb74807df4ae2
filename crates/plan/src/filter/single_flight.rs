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
/// The first wait; each further one is twice as long.
const WAIT: Duration = Duration::from_millis(10);
/// Waits of one exchange, 630 ms together. Then it calls by itself.
const WAITS_MAX: u64 = 6;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// The number of the flight for each key.
    under_way: Mutex<HashMap<Digest, u64>>,
    numbers: AtomicU64,
}

/// What ends a flight with its exchange.
struct Flight {
    flights: Arc<Flights>,
    key: Digest,
}

impl AtEnd for Flight {
    fn at_end(&self, number: u64, _: &Ended) {
        let mut under_way = self.flights.under_way();
        if under_way.get(&self.key) == Some(&number) {
            under_way.remove(&self.key);
        }
    }
}

impl Flights {
    /// Returns how to wait for the flight of another exchange, or `None` if this one calls. Its waits are counted under the note `waited`.
    pub(super) fn wait(self: &Arc<Self>, key: &Digest, waited: usize, turn: &mut Turn<'_>) -> Option<Flow> {
        let waits = if let Note::Number(waits) = turn.notes.get(waited) { waits } else { 0 };
        if turn.is_rehearsal {
            return None;
        }
        let mut under_way = self.under_way();
        if under_way.contains_key(key) {
            drop(under_way);
            return (waits < WAITS_MAX).then(|| {
                turn.notes.set(waited, Note::Number(waits + 1));
                let until: Instant = turn.now + WAIT * (1 << waits);
                Flow::Need(Need::Until(until))
            });
        }
        if under_way.len() < FLIGHTS_MAX {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            under_way.insert(*key, number);
            turn.notes.at_end(Arc::new(Flight { flights: Arc::clone(self), key: *key }), number);
        }
        None
    }

    /// Ends the flight of a key: its call has ended, and the cache has what came of it.
    pub(super) fn end(&self, key: &Digest) {
        self.under_way().remove(key);
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Digest, u64>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
