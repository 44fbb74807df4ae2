//! The connections that a worker holds, so that they can be told to end.
//!
//! A connection registers once; its task's waker is stored then, so telling it costs the request path nothing but the
//! look at a flag.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use crate::worker_plan::WorkerPlan;

/// One listener as the connections that it accepted see it, through every change of plan.
pub(crate) struct Seat {
    /// The listener's place in the worker's present plan.
    pub index: Cell<usize>,
    /// The listener is gone or the program is ending: finish what is begun, begin nothing.
    pub closing: Cell<bool>,
    /// The last plan that had the listener, once it is gone; `index` is its place there.
    pub last_plan: RefCell<Option<Rc<WorkerPlan>>>,
}

impl Seat {
    pub(crate) fn new(index: usize) -> Self {
        Self { index: Cell::new(index), closing: Cell::new(false), last_plan: RefCell::new(None) }
    }
}

/// What a connection and its worker share.
pub(crate) struct Tether {
    pub seat: Rc<Seat>,
    waker: RefCell<Option<Waker>>,
    /// End at once, whatever is in flight.
    cut: Cell<bool>,
}

impl Tether {
    /// Whether to begin no further exchange.
    pub(crate) fn is_closing(&self) -> bool {
        self.seat.closing.get()
    }

    /// Whether to drop everything now.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// A tether of no connection, for tests.
    #[cfg(test)]
    pub(crate) fn loose() -> Rc<Self> {
        Rc::new(Self { seat: Rc::new(Seat::new(0)), waker: RefCell::new(None), cut: Cell::new(false) })
    }

    /// Says which task to wake; once per connection.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *self.waker.borrow_mut() = Some(waker.clone());
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// A worker's connections.
#[derive(Default)]
pub(crate) struct Registry {
    entries: RefCell<Vec<Option<Rc<Tether>>>>,
    free: RefCell<Vec<usize>>,
}

/// A place in the registry, given back on drop.
pub(crate) struct Registration {
    registry: Rc<Registry>,
    place: usize,
    pub tether: Rc<Tether>,
}

impl Registry {
    pub(crate) fn register(self: &Rc<Self>, seat: Rc<Seat>) -> Registration {
        let tether = Rc::new(Tether { seat, waker: RefCell::new(None), cut: Cell::new(false) });
        let mut entries = self.entries.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            entries.push(None);
            entries.len() - 1
        });
        entries[place] = Some(tether.clone());
        Registration { registry: self.clone(), place, tether }
    }

    /// Wakes the connections of listeners that are closing, so that idle ones end.
    pub(crate) fn wake_closing(&self) {
        for tether in self.entries.borrow().iter().flatten().filter(|tether| tether.is_closing()) {
            tether.wake();
        }
    }

    /// Ends every connection at once.
    pub(crate) fn cut_all(&self) {
        for tether in self.entries.borrow().iter().flatten() {
            tether.cut.set(true);
            tether.wake();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries.borrow_mut()[self.place] = None;
        self.registry.free.borrow_mut().push(self.place);
    }
}
