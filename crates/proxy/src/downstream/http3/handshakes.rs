//! Bounds the handshakes in progress.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use model::limits::HTTP3_FAILED_HANDSHAKE;

/// Handshakes of clients that have or have not proven where they are.
#[derive(Default)]
pub(super) struct Handshakes {
    /// Those that failed a moment ago included: they have cost as much as others.
    under_way: Cell<usize>,
    /// When those count no more.
    failed: RefCell<VecDeque<Instant>>,
}

impl Handshakes {
    pub(super) fn under_way(&self) -> usize {
        let mut failed = self.failed.borrow_mut();
        if !failed.is_empty() {
            let now = Instant::now();
            while failed.pop_front_if(|until| *until <= now).is_some() {
                self.under_way.set(self.under_way.get() - 1);
            }
        }
        self.under_way.get()
    }
}

/// Counts a handshake as in progress until it is dropped, and for a moment longer if it has failed.
pub(super) struct Handshake {
    all: Rc<Handshakes>,
    begun: Instant,
    /// The client is where it says.
    is_proven: Cell<bool>,
}

impl Handshake {
    /// It is over: the client is where it says.
    pub(super) fn prove(&self) {
        self.is_proven.set(true);
    }

    pub(super) fn begin(all: &Rc<Handshakes>, is_proven: bool) -> Self {
        all.under_way.set(all.under_way.get() + 1);
        Self { all: all.clone(), begun: Instant::now(), is_proven: Cell::new(is_proven) }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let until = self.begun + HTTP3_FAILED_HANDSHAKE;
        if self.is_proven.get() || until <= Instant::now() {
            self.all.under_way.set(self.all.under_way.get() - 1);
        } else {
            self.all.failed.borrow_mut().push_back(until);
        }
    }
}
