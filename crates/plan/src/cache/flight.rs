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
    wakers: Vec<Waker>,
}

impl Flight {
    /// Ready when it is over: what came of it is in the store, if it may be there.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_over || state.wakers.len() >= WAITING_MAX {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|known| known.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn end(&self) {
        let wakers = {
            let mut state = self.state();
            state.is_over = true;
            std::mem::take(&mut state.wakers)
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
