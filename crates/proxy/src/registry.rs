//! The connections of a worker, so that they can be ended.
//!
//! A connection registers once, and its task's waker is stored then. On the request path it only checks a flag.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use plan::limit::OpenPlace;

/// A connection that was accepted as its listener ended may still send a request within this time.
pub(crate) const LAST_CALL: Duration = Duration::from_millis(500);
/// The same for any request where another process has the listener: its client is asked to connect again.
pub(crate) const PARTING: Duration = Duration::from_secs(5);

/// Time between two records of refused connections of one listener and worker.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// One listener as the connections that it accepted see it, through every change of plan.
pub(crate) struct ListenerHandle {
    /// The listener's place in the worker's present plan.
    pub index: Cell<usize>,
    /// The listener is gone or the program is ending: finish what is begun, begin nothing.
    pub closing: Cell<bool>,
    /// Its socket is another process's, which takes what comes from now on.
    pub is_given: Cell<bool>,
    /// Its connections are told to come anew one after the other, so that not all come at once.
    pub parts: Cell<bool>,
    /// No plan in force has the listener any more; `index` is its place in the last that had it, which the worker keeps.
    pub is_gone: Cell<bool>,
    /// When a connection beyond the bounds of its address was last logged.
    refusal_logged: Cell<Option<Instant>>,
}

impl ListenerHandle {
    pub(crate) fn new(index: usize) -> Self {
        Self {
            index: Cell::new(index),
            closing: Cell::new(false),
            is_given: Cell::new(false),
            parts: Cell::new(false),
            is_gone: Cell::new(false),
            refusal_logged: Cell::new(None),
        }
    }

    /// Returns whether a refused connection is to be logged: at most one in a while, for a flood is to fill counters, not disks.
    pub(crate) fn logs_refusal(&self, now: Instant) -> bool {
        let last = self.refusal_logged.get();
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= REFUSAL_PAUSE);
        if is_due {
            self.refusal_logged.set(Some(now));
        }
        is_due
    }

    /// Returns how long who has a connection may take, once it is closing, to begin what may be on its way.
    pub(crate) fn last_call(&self) -> Duration {
        if self.is_given.get() { PARTING } else { LAST_CALL }
    }
}

/// What a connection and its worker share.
pub(crate) struct Registration {
    pub handle: Rc<ListenerHandle>,
    waker: RefCell<Option<Waker>>,
    /// End at once, whatever is in flight.
    cut: Cell<bool>,
    /// Its turn has come, where they part one after the other.
    is_told: Cell<bool>,
    subject: Subject,
    /// What it counts for among the connections of its address, where these are bounded or counted. Boxed, because it is rare.
    #[expect(clippy::box_collection, reason = "a connection that counts nowhere holds one word for it")]
    places: OnceCell<Box<Vec<OpenPlace>>>,
}

/// What is registered.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Client(Client),
    /// Something that the client's connection of that number carries.
    Carried(u64),
    /// Neither.
    Other,
}

/// A client's connection, as an administrator may ask for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// No other connection of this worker has, or had, this number.
    pub number: u64,
    pub peer: SocketAddr,
    pub since: Instant,
}

impl Registration {
    /// Returns whether no further exchange may begin.
    pub(crate) fn is_closing(&self) -> bool {
        self.handle.closing.get() && (!self.handle.parts.get() || self.is_told.get())
    }

    /// Returns whether to drop everything now.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Drops everything now.
    pub(crate) fn cut(&self) {
        self.cut.set(true);
        self.wake();
    }

    /// Returns a registration without a connection, for tests.
    #[cfg(test)]
    pub(crate) fn loose() -> Rc<Self> {
        Rc::new(Self::new(Rc::new(ListenerHandle::new(0)), Subject::Other))
    }

    fn new(handle: Rc<ListenerHandle>, subject: Subject) -> Self {
        let (waker, places) = (RefCell::new(None), OnceCell::new());
        Self { handle, waker, cut: Cell::new(false), is_told: Cell::new(false), subject, places }
    }

    /// The connection of a client that this is; `None`: it is something else.
    fn client(&self) -> Option<Client> {
        match self.subject {
            Subject::Client(client) => Some(client),
            Subject::Carried(_) | Subject::Other => None,
        }
    }

    /// Has the connection count among those of its address until it ends.
    pub(crate) fn hold(&self, places: Vec<OpenPlace>) {
        // Once: who its client is does not change.
        if !places.is_empty() {
            let _ = self.places.set(Box::new(places));
        }
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
    entries: RefCell<Vec<Option<Rc<Registration>>>>,
    free: RefCell<Vec<usize>>,
    /// Connections of clients so far.
    clients: Cell<u64>,
}

/// A place in the registry, given back on drop.
pub(crate) struct Registered {
    registry: Rc<Registry>,
    place: usize,
    pub registration: Rc<Registration>,
}

impl Registry {
    /// Registers a flow.
    pub(crate) fn register(self: &Rc<Self>, handle: Rc<ListenerHandle>) -> Registered {
        self.enter(Registration::new(handle, Subject::Other))
    }

    /// Something that a client's connection carries, and that ends with it.
    pub(crate) fn register_carried(self: &Rc<Self>, by: &Registration) -> Registered {
        let carried = Registration::new(
            by.handle.clone(),
            by.client().map_or(Subject::Other, |client| Subject::Carried(client.number)),
        );
        // It may have begun as the connection was ended.
        carried.cut.set(by.is_cut());
        self.enter(carried)
    }

    /// Registers a connection of a client.
    pub(crate) fn register_client(
        self: &Rc<Self>,
        handle: Rc<ListenerHandle>,
        peer: SocketAddr,
        since: Instant,
    ) -> Registered {
        let number = self.clients.get() + 1;
        self.clients.set(number);
        self.enter(Registration::new(handle, Subject::Client(Client { number, peer, since })))
    }

    fn enter(self: &Rc<Self>, registration: Registration) -> Registered {
        let registration = Rc::new(registration);
        let mut entries = self.entries.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or_else(|| {
            entries.push(None);
            entries.len() - 1
        });
        entries[place] = Some(registration.clone());
        Registered { registry: self.clone(), place, registration }
    }

    /// Wakes the connections of listeners that are closing, so that idle ones end.
    pub(crate) fn wake_closing(&self) {
        for registration in self.entries.borrow().iter().flatten().filter(|registration| registration.is_closing()) {
            registration.wake();
        }
    }

    /// Ends the connections of these listeners one after the other, spread evenly over `window`. Clients that connect again need a
    /// handshake; if all came at once, they would wait for each other.
    pub(crate) async fn part(self: Rc<Self>, handles: Vec<Rc<ListenerHandle>>, window: Duration) {
        let is_parting =
            |registration: &&Rc<Registration>| registration.client().is_some() && registration.handle.parts.get();
        let all: Vec<_> = self.entries.borrow().iter().flatten().filter(is_parting).map(Rc::downgrade).collect();
        let (begun, step) = (Instant::now(), window.div_f64(all.len().max(1) as f64));
        for (place, registration) in all.into_iter().enumerate() {
            tokio::time::sleep_until((begun + step.mul_f64(place as f64 + 0.5)).into()).await;
            if let Some(registration) = registration.upgrade() {
                registration.is_told.set(true);
                registration.wake();
            }
        }
        // What they carry, and who was just coming.
        let is_left = |registration: &&Rc<Registration>| registration.handle.parts.get() && !registration.is_told.get();
        let left: Vec<_> = self.entries.borrow().iter().flatten().filter(is_left).cloned().collect();
        handles.iter().for_each(|handle| handle.parts.set(false));
        left.iter().for_each(|registration| registration.wake());
    }

    /// Clients' connections whose numbers come after `after` and that are `wanted`, at most `max`, by number.
    pub(crate) fn clients(
        &self,
        after: u64,
        max: usize,
        wanted: impl Fn(&ListenerHandle) -> bool,
    ) -> Vec<(Client, Rc<ListenerHandle>)> {
        let entries = self.entries.borrow();
        // The least numbers so far, the greatest of them on top: a worker with many connections must not sort them all.
        let mut least: BinaryHeap<(u64, usize)> = BinaryHeap::with_capacity(max + 1);
        for (place, registration) in entries.iter().enumerate() {
            let Some((registration, client)) =
                registration.as_ref().and_then(|registration| Some((registration, registration.client()?)))
            else {
                continue;
            };
            let has_place = least.len() < max || least.peek().is_some_and(|(top, _)| client.number < *top);
            if client.number > after && has_place && wanted(&registration.handle) {
                least.push((client.number, place));
                if least.len() > max {
                    least.pop();
                }
            }
        }
        let of = |(_, place): (u64, usize)| {
            entries[place].as_ref().and_then(|registration| Some((registration.client()?, registration.handle.clone())))
        };
        least.into_sorted_vec().into_iter().filter_map(of).collect()
    }

    /// Ends one client's connection at once, with all that it carries. `false`: it is not there.
    pub(crate) fn cut_client(&self, number: u64) -> bool {
        let mut is_there = false;
        for registration in self.entries.borrow().iter().flatten() {
            match registration.subject {
                Subject::Client(client) if client.number == number => is_there = true,
                Subject::Carried(carrier) if carrier == number => {}
                _ => continue,
            }
            registration.cut();
        }
        is_there
    }

    /// Ends every connection at once.
    pub(crate) fn cut_all(&self) {
        for registration in self.entries.borrow().iter().flatten() {
            registration.cut();
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.entries.borrow_mut()[self.place] = None;
        self.registry.free.borrow_mut().push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_by_number_however_places_are_taken_and_given_back() {
        let registry = Rc::new(Registry::default());
        let handles = [Rc::new(ListenerHandle::new(0)), Rc::new(ListenerHandle::new(1))];
        let peer = ([127, 0, 0, 1], 1).into();
        let enter = |handle: &Rc<ListenerHandle>| registry.register_client(handle.clone(), peer, Instant::now());
        let mut held: Vec<_> = (0..20).map(|at| enter(&handles[at % 2])).collect();
        // Places of the first are used again by later numbers.
        held.drain(..5);
        held.extend((0..5).map(|_| enter(&handles[0])));
        let _carried = registry.register(handles[0].clone());
        let numbers = |after, max, index| -> Vec<u64> {
            let told = registry.clients(after, max, |handle| index == 9 || handle.index.get() == index);
            told.iter().map(|(client, _)| client.number).collect()
        };
        assert_eq!(numbers(0, 4, 9), [6, 7, 8, 9]);
        assert_eq!(numbers(9, 100, 9), (10..=25).collect::<Vec<_>>());
        assert_eq!(numbers(6, 3, 1), [8, 10, 12]);
        assert_eq!((numbers(25, 5, 9), numbers(0, 0, 9)), (vec![], vec![]));
        assert!(registry.cut_client(25) && !registry.cut_client(3) && !registry.cut_client(26));
        assert!(held.last().is_some_and(|last| last.registration.is_cut()));
    }

    #[test]
    fn what_a_clients_connection_carries_ends_with_it_and_nothing_else_does() {
        let registry = Rc::new(Registry::default());
        let handle = Rc::new(ListenerHandle::new(0));
        let enter = || registry.register_client(handle.clone(), ([127, 0, 0, 1], 1).into(), Instant::now());
        let (one, other) = (enter(), enter());
        let carried = [&one, &one, &other].map(|by| registry.register_carried(&by.registration));
        let flow = registry.register(handle.clone());
        assert!(registry.cut_client(1));
        assert_eq!(carried.each_ref().map(|carried| carried.registration.is_cut()), [true, true, false]);
        assert!(one.registration.is_cut() && !other.registration.is_cut() && !flow.registration.is_cut());
        assert!(registry.register_carried(&one.registration).registration.is_cut(), "it began as the other ended");
        drop(one);
        assert!(!registry.cut_client(1), "what it carried may be there for a moment more");
    }
}
