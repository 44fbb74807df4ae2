//! The socket of a UDP listener in one worker, and what its flows share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use model::socket::ListenerSocket;
use plan::HealthState;
use socket2::SockRef;
use tokio::net::UdpSocket;

use super::flow::Flow;
use super::refusals::Refusals;
use crate::listen;
use crate::predecessor::{End, PredecessorLink};
use crate::registry::ListenerHandle;
use crate::sys::{self, Batch, Envelope, tell_destinations};
use crate::worker::Worker;

/// The socket of a UDP listener in one worker, and the flows on it. It lives as long as any of them.
pub(crate) struct Socket {
    pub(super) worker: Rc<Worker>,
    pub(super) socket: UdpSocket,
    pub(super) handle: Rc<ListenerHandle>,
    /// Where it is bound.
    pub(super) local: SocketAddr,
    /// By client, and by which of several addresses of ours it asked.
    pub(super) flows: RefCell<HashMap<Envelope, Rc<Flow>>>,
    /// Where datagrams lie while they are passed on, which takes no time.
    pub(super) batch: RefCell<Batch>,
    pub(super) refusals: Refusals,
    /// Has flows of its own, which this socket passes datagrams on to.
    pub(super) predecessor: Option<PredecessorLink>,
    /// Another process reads the socket.
    pub(super) is_paused: Cell<bool>,
    /// The way by which it passes on what is for flows of this one.
    pub(super) handed: RefCell<Option<End>>,
    /// The same, to say that a flow is over.
    pub(super) said: RefCell<Option<OwnedFd>>,
    /// The task that takes datagrams.
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) scratch: RefCell<Vec<u8>>,
}

impl Socket {
    /// # Errors
    /// The kernel does not take a setting.
    pub(super) fn new(
        worker: &Rc<Worker>,
        socket: std::net::UdpSocket,
        (handle, predecessor): (Rc<ListenerHandle>, Option<PredecessorLink>),
    ) -> io::Result<Rc<Self>> {
        let local = socket.local_addr()?;
        if local.ip().is_unspecified() {
            // Answers are to leave from the address that was asked, not from the one that the route would have.
            tell_destinations(socket.as_fd(), local.is_ipv4())?;
        }
        sys::join(socket.as_fd());
        Ok(Rc::new(Self {
            worker: worker.clone(),
            socket: UdpSocket::from_std(socket)?,
            handle,
            local,
            flows: RefCell::default(),
            batch: RefCell::new(Batch::new()),
            refusals: Refusals::default(),
            predecessor,
            is_paused: Cell::new(false),
            handed: RefCell::default(),
            said: RefCell::default(),
            waker: RefCell::default(),
            scratch: RefCell::default(),
        }))
    }

    /// Duplicates the descriptor, for another process.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Sets the socket up as configured now. What cannot be set stays as it was.
    pub(crate) fn tune(&self, settings: &ListenerSocket) {
        if let Err(error) =
            listen::retune(&SockRef::from(&self.socket), &listen::of_datagrams(settings), self.local.is_ipv4())
        {
            telemetry::log::warn("a UDP socket cannot be reconfigured", &[("error", &error.to_string())]);
        }
    }

    /// Ends flows whose endpoint is not in the new plan, though their clients are silent.
    pub(crate) fn review(&self) {
        self.flows.borrow().values().filter(|flow| !self.is_in_force(flow)).for_each(|flow| flow.end());
    }

    /// Ends all flows, though they wait for the last of their answers: the listener is gone, and the address is wanted.
    pub(crate) fn free(&self) {
        self.flows.borrow().values().for_each(|flow| flow.end());
    }

    /// Returns the client's flow if it may go on. Ends one that may not: the client gets another, here or in the successor.
    pub(super) fn flow_of(&self, envelope: &Envelope) -> Option<Rc<Flow>> {
        let flow = self.flows.borrow().get(envelope).cloned()?;
        if self.is_in_force(&flow) {
            return Some(flow);
        }
        self.end_flow(envelope, &flow);
        None
    }

    /// Ends a flow, so that the client's next datagram begins another.
    pub(super) fn end_flow(&self, envelope: &Envelope, flow: &Flow) {
        self.flows.borrow_mut().remove(envelope);
        flow.end();
    }

    /// Forgets a flow whose task ends, unless the client has another by now.
    pub(super) fn forget_flow(&self, envelope: &Envelope, flow: &Rc<Flow>) {
        let mut flows = self.flows.borrow_mut();
        if flows.get(envelope).is_some_and(|present| Rc::ptr_eq(present, flow)) {
            flows.remove(envelope);
        }
    }

    /// Returns whether a flow may go on: its endpoint is still configured, and its checks have not failed.
    fn is_in_force(&self, flow: &Flow) -> bool {
        if flow.is_over.get() {
            return false;
        }
        let plan = self.worker.plan_of(&self.handle);
        let generation = plan.plan.generation;
        if flow.generation.get() != generation {
            let kept = plan.endpoint(&flow.endpoint).is_some_and(|local| Arc::ptr_eq(&local.state, &flow.endpoint));
            if !kept {
                return false;
            }
            flow.generation.set(generation);
        }
        flow.began_down || flow.endpoint.health_state() != HealthState::Down
    }
}
