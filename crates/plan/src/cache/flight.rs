//! One fetch for all requests of a key that come meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Exchanges that wait for one flight; those beyond fetch by themselves.
const WAITING_MAX: usize = 65_536;

/// A fetch that others wait for.
#[derive(Default)]
pub struct Flight(Mutex<State>);

#[derive(Default)]
struct State {
    is_over: bool,
    /// Of each waiter by its place, once it was polled.
    wakers: Vec<Option<Waker>>,
    /// Places whose waiters have left.
    free: Vec<usize>,
}

impl Flight {
    /// Returns a place among those that wait for it. None: there are too many.
    pub fn wait(self: &Arc<Self>) -> Option<Waiter> {
        let mut state = self.state();
        let place = match state.free.pop() {
            Some(place) => place,
            None if state.wakers.len() >= WAITING_MAX => return None,
            None => {
                state.wakers.push(None);
                state.wakers.len() - 1
            }
        };
        drop(state);
        Some(Waiter { flight: Arc::clone(self), place })
    }

    fn end(&self) {
        let wakers = {
            let mut state = self.state();
            state.is_over = true;
            // Places stay: their waiters give them back.
            state.wakers.iter_mut().filter_map(Option::take).collect::<Vec<_>>()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flight")
    }
}

/// A place among those that wait for a flight, which is given back when it is dropped.
pub struct Waiter {
    flight: Arc<Flight>,
    place: usize,
}

impl Waiter {
    /// Ready when the flight is over: what came of it is in the store, if it may be there.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.flight.state();
        if state.is_over {
            return Poll::Ready(());
        }
        match &mut state.wakers[self.place] {
            Some(known) => known.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.flight.state();
        let waker = state.wakers[self.place].take();
        state.free.push(self.place);
        // Not under the lock: it may run code of the runtime.
        drop(state);
        drop(waker);
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

/// The flights of a store by hash of their key. Each belongs to an exchange, which bounds them.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<u64, Arc<Flight>>>);

impl Flights {
    /// Begins a flight, or returns that of another exchange.
    pub(super) fn begin(self: &Arc<Self>, hash: u64) -> Result<Pilot, Arc<Flight>> {
        let mut all = self.all();
        if let Some(flight) = all.get(&hash) {
            return Err(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        all.insert(hash, Arc::clone(&flight));
        Ok(Pilot { flights: Arc::clone(self), hash, flight })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The exchange that has this fetches. The flight is over when it is dropped.
pub struct Pilot {
    flights: Arc<Flights>,
    hash: u64,
    flight: Arc<Flight>,
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.flights.all().remove(&self.hash);
        self.flight.end();
    }
}

impl fmt::Debug for Pilot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pilot")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn waiters_are_woken_once_and_leave_nothing_behind() {
        let flights = Arc::new(Flights::default());
        let pilot = flights.begin(1).unwrap();
        let flight = flights.begin(1).unwrap_err();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        for _ in 0..1_000 {
            let gone = flight.wait().unwrap();
            assert!(gone.poll_over(cx).is_pending() && gone.poll_over(cx).is_pending());
        }
        assert_eq!((flight.state().wakers.len(), Arc::strong_count(&count)), (1, 2), "those who left are forgotten");
        let [first, second, never_polled] = [(); 3].map(|()| flight.wait().unwrap());
        assert!(first.poll_over(cx).is_pending() && second.poll_over(cx).is_pending());
        drop(pilot);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert!([&first, &second, &never_polled].iter().all(|waiter| waiter.poll_over(cx).is_ready()));
        drop((first, second, never_polled));
        assert_eq!((flight.state().free.len(), Arc::strong_count(&count)), (3, 2));
        assert!(flight.wait().unwrap().poll_over(cx).is_ready(), "it is over");
        assert!(flights.begin(1).is_ok());
    }

    #[test]
    fn a_full_flight_has_no_place_until_a_waiter_leaves() {
        let flight = Arc::new(Flight::default());
        let mut all: Vec<_> = std::iter::from_fn(|| flight.wait()).collect();
        assert_eq!(all.len(), WAITING_MAX);
        all.pop();
        assert!(flight.wait().is_some());
    }
}
