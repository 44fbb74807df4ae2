//! One call for all exchanges that need the same answer at once.
//!
//! The exchange that begins calls, and the others wait a moment and look at the cache again, which the call fills. The call goes on when its
//! exchange ends: a client that disconnects holds nobody up. A flight ends when the reply is taken, or when the call is dropped without one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::Fault;

use super::{Flow, Need, Note, Reply, TakeReply, Turn};
use crate::filter::token_cache::Digest;

/// Flights at once, over all workers. A call goes on when its exchange has ended, so that nothing else bounds them.
const FLIGHTS_MAX: usize = 4_096;
/// Exchanges that wait for flights at once, over all workers.
const WAITING_MAX: usize = 4_096;
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
    waiting: Arc<AtomicUsize>,
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
    /// As many wait for the calls of others as may, or as many call.
    Crowded,
}

/// A place among those that wait, given back when it is dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Flights {
    /// Returns flights whose followers wait so long at first, and 63 times as long together.
    pub(super) fn waiting(wait: Duration) -> Self {
        Self { under_way: Mutex::default(), numbers: AtomicU64::new(0), waiting: Arc::default(), wait }
    }

    /// Joins the flight of a key, or begins one, for which the exchange then makes a call with a [`Self::landing`]. What the exchange did
    /// before stands under the note `part`.
    pub(super) fn join(&self, key: &Digest, part: usize, turn: &mut Turn<'_>) -> Part {
        if turn.is_rehearsal {
            return Part::Calls;
        }
        Self::leave(part, turn);
        let waits = match turn.notes.get(part) {
            Note::Number(number) if number & LEADS == 0 => number,
            _ => 0,
        };
        let mut under_way = self.under_way();
        if under_way.contains_key(key) {
            drop(under_way);
            return self.follow(waits, part, turn);
        }
        if under_way.len() >= FLIGHTS_MAX {
            return Part::Crowded;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        under_way.insert(*key, number);
        turn.notes.set(part, Note::Number(LEADS | number));
        Part::Calls
    }

    fn follow(&self, waits: u64, part: usize, turn: &mut Turn<'_>) -> Part {
        if waits >= WAITS_MAX {
            return Part::HasWaited;
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.waiting));
        if others >= WAITING_MAX {
            return Part::Crowded;
        }
        turn.notes.keep(part, Box::new(place));
        turn.notes.set(part, Note::Number(waits + 1));
        let until: Instant = turn.now + self.wait * (1 << waits);
        Part::Waits(Flow::Need(Need::Until(until)))
    }

    /// Says that the exchange does not wait, or no longer.
    pub(super) fn leave(part: usize, turn: &mut Turn<'_>) {
        turn.notes.take::<Place>(part);
    }

    /// Returns whether some exchange leads a flight of a key.
    pub(super) fn is_under_way(&self, key: &Digest) -> bool {
        self.under_way().contains_key(key)
    }

    /// Returns what takes the reply to the call of this exchange: it calls `take`, once, with the moments when the call began and ended, and
    /// ends the flight if this exchange leads it. A call that is dropped without a reply has failed.
    pub(super) fn landing(
        self: &Arc<Self>,
        key: &Digest,
        part: usize,
        turn: &Turn<'_>,
        take: impl Fn(Result<Box<Reply>, Fault>, (Instant, Instant)) + Send + Sync + 'static,
    ) -> Arc<dyn TakeReply> {
        let number = match turn.notes.get(part) {
            Note::Number(number) if number & LEADS != 0 => Some(number & !LEADS),
            _ => None,
        };
        let (flights, begun) = (Arc::clone(self), turn.now);
        Arc::new(Landing { flights, key: *key, number, begun, is_over: AtomicBool::new(false), take })
    }

    /// Ends the flight of a key if it has this number.
    fn remove(&self, key: &Digest, number: u64) {
        let mut under_way = self.under_way();
        if under_way.get(key) == Some(&number) {
            under_way.remove(key);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Digest, u64>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a call.
struct Landing<F: Fn(Result<Box<Reply>, Fault>, (Instant, Instant))> {
    flights: Arc<Flights>,
    key: Digest,
    /// That of its flight; an exchange that called beside the flight of another ends nothing.
    number: Option<u64>,
    begun: Instant,
    is_over: AtomicBool,
    take: F,
}

impl<F: Fn(Result<Box<Reply>, Fault>, (Instant, Instant))> Landing<F> {
    fn end(&self, reply: Result<Box<Reply>, Fault>, now: Instant) {
        if self.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        (self.take)(reply, (self.begun, now));
        if let Some(number) = self.number {
            self.flights.remove(&self.key, number);
        }
    }
}

impl<F: Fn(Result<Box<Reply>, Fault>, (Instant, Instant)) + Send + Sync> TakeReply for Landing<F> {
    fn take(&self, reply: Result<Box<Reply>, Fault>, now: Instant) {
        self.end(reply, now);
    }
}

impl<F: Fn(Result<Box<Reply>, Fault>, (Instant, Instant))> Drop for Landing<F> {
    fn drop(&mut self) {
        self.end(Err(Fault::ClosedInWait), self.begun);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Beside, World};
    use super::*;
    use crate::filter::token_cache::digest_of;

    const KEY: Digest = [1; 32];

    #[test]
    fn an_exchange_that_calls_by_itself_does_not_end_the_flight_of_another() {
        let flights = Arc::new(Flights::default());
        let world = World::new();
        let facts = world.facts();
        let (mut leader, mut late) = (Beside::new(), Beside::new());
        assert_eq!(flights.join(&KEY, 0, &mut leader.turn(&facts)), Part::Calls);
        let first = flights.landing(&KEY, 0, &leader.turn(&facts), |_, _| {});
        let mut waited = Duration::ZERO;
        loop {
            let mut turn = late.turn(&facts);
            match flights.join(&KEY, 0, &mut turn) {
                Part::Waits(Flow::Need(Need::Until(until))) => waited += until - turn.now,
                other => break assert_eq!(other, Part::HasWaited),
            }
        }
        assert_eq!(waited, Duration::from_millis(630));
        drop(flights.landing(&KEY, 0, &late.turn(&facts), |_, _| {}));
        assert!(flights.is_under_way(&KEY));
        first.take(Err(Fault::ConnectFailed), leader.now);
        assert!(!flights.is_under_way(&KEY));
        // The end of a leader whose flight has ended does not end the one after it.
        assert_eq!(flights.join(&KEY, 0, &mut late.turn(&facts)), Part::Calls);
        drop(first);
        assert!(flights.is_under_way(&KEY));
    }

    #[test]
    fn a_call_that_is_dropped_has_failed_and_a_reply_is_taken_once() {
        let flights = Arc::new(Flights::default());
        let world = World::new();
        let facts = world.facts();
        let taken = Arc::new(Mutex::new(Vec::new()));
        for is_answered in [true, false] {
            let (mut beside, told) = (Beside::new(), Arc::clone(&taken));
            assert_eq!(flights.join(&KEY, 0, &mut beside.turn(&facts)), Part::Calls);
            let landing = flights.landing(&KEY, 0, &beside.turn(&facts), move |reply, _| {
                told.lock().unwrap().push(reply.map(|_| ()));
            });
            if is_answered {
                landing.take(Ok(Box::default()), beside.now);
            }
            drop(landing);
            assert!(!flights.is_under_way(&KEY));
        }
        assert_eq!(*taken.lock().unwrap(), [Ok(()), Err(Fault::ClosedInWait)]);
    }

    #[test]
    fn so_many_calls_are_in_progress_whether_their_exchanges_are_or_not() {
        let flights = Arc::new(Flights::default());
        let world = World::new();
        let facts = world.facts();
        let key = |place: usize| digest_of(&place.to_be_bytes());
        let join = |place: usize| flights.join(&key(place), 0, &mut Beside::new().turn(&facts));
        assert!((0..FLIGHTS_MAX).all(|place| join(place) == Part::Calls));
        assert_eq!(join(FLIGHTS_MAX), Part::Crowded);
        assert!(matches!(join(0), Part::Waits(_)));
        flights.remove(&key(0), 0);
        assert_eq!(join(FLIGHTS_MAX), Part::Calls);
    }

    #[test]
    fn so_many_wait_and_places_are_free_again_when_exchanges_end_or_wait_no_more() {
        let flights = Arc::new(Flights::default());
        let world = World::new();
        let facts = world.facts();
        let join = |beside: &mut Beside| flights.join(&KEY, 0, &mut beside.turn(&facts));
        assert_eq!(join(&mut Beside::new()), Part::Calls);
        let mut waiting: Vec<Beside> = (0..WAITING_MAX).map(|_| Beside::new()).collect();
        assert!(waiting.iter_mut().all(|beside| matches!(join(beside), Part::Waits(_))));
        assert_eq!(join(&mut Beside::new()), Part::Crowded);
        assert!(matches!(join(&mut waiting[0]), Part::Waits(_)), "one that waits goes on waiting");
        waiting.pop();
        assert!(matches!(join(&mut Beside::new()), Part::Waits(_)));
        Flights::leave(0, &mut waiting[0].turn(&facts));
        assert!(matches!(join(&mut Beside::new()), Part::Waits(_)));
        waiting.clear();
        assert_eq!(flights.waiting.load(Ordering::Relaxed), 0);
    }
}
