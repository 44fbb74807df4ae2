//! Datagrams of flows that are another process's: what goes to the one before, and what comes from the one that follows.
//!
//! A relay is a port at a socket of the process before whose address covers that of the listener here, or is covered by it
//! (`192.0.2.1:53`, `0.0.0.0:53`): the kernel prefers the socket of the one address, whoever has it. It reads there until the process
//! before has ended, passes on what is for flows of that, and gives what comes anew to the port of the listener that has this address
//! now. So it has no flows.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use socket2::SockRef;

use super::Port;
use crate::accept::Accepting;
use crate::handover::Beside;
use crate::kernel::{Batch, Envelope};
use crate::past::{self, End, Fate, Message, Past, Says};

/// How often it is looked whether the process before has ended.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Reads at a socket of the process before until that has ended.
pub(crate) async fn relay(port: Rc<Port>) {
    let Some(Beside { past, .. }) = &port.beside else { return };
    let mut look = tokio::time::interval(LOOK_PAUSE);
    loop {
        let ready = poll_fn(|cx| {
            *port.waker.borrow_mut() = Some(cx.waker().clone());
            if port.is_paused.get() { Poll::Pending } else { port.socket.poll_recv_ready(cx) }
        });
        tokio::select! {
            _ = ready => {
                port.take_in();
                tokio::task::yield_now().await;
            }
            _ = look.tick() => if past.is_gone() { break },
        }
    }
    // Of this process there is somebody else who reads there from now on.
    if !port.is_paused.get() {
        port.take_in();
    }
}

impl Port {
    /// Passes on what is for a flow of the process before, and says how many of these have their way, or have none.
    pub(super) fn pass_back(
        &self,
        past: &Past,
        (port, envelope): (u32, Envelope),
        batch: &Batch,
        places: Range<usize>,
    ) -> usize {
        let mut scratch = self.scratch.borrow_mut();
        for place in places.clone() {
            let message = Message { says: Says::Passed, envelope, ecn: 0, bytes: batch.bytes(place) };
            if past.pass(port as usize, &message, &mut scratch) == Fate::Ours {
                past.forget_all(port);
                return place - places.start;
            }
        }
        places.len()
    }

    /// Hears of flows of the process before that are over.
    pub(super) async fn hear(self: Rc<Self>, past: Arc<Past>, other: u32, mut end: End) {
        poll_fn(|cx| {
            loop {
                match end.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Ready(Some(message)) => {
                        past.forget(&message.envelope);
                        if self.is_paused.get() {
                            self.tell_successor(&message);
                        } else if message.says == Says::Back {
                            self.take_one(message.envelope, message.bytes, true);
                        }
                    }
                }
            }
        })
        .await;
        past.forget_all(other);
    }

    /// Takes what the process that follows this one passes on.
    pub(super) async fn take_handed(self: Rc<Self>, mut end: End) {
        poll_fn(|cx| {
            loop {
                match end.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Ready(Some(Message { envelope, bytes, .. })) => {
                        if !self.take_one(envelope, bytes, false) && !self.pass_further(envelope, bytes) {
                            let back = Message { says: Says::Back, envelope, ecn: 0, bytes };
                            self.tell_successor(&back);
                        }
                    }
                }
            }
        })
        .await;
    }

    /// Passes on what is for a flow of a process before this one.
    pub(super) fn pass_further(&self, envelope: Envelope, bytes: &[u8]) -> bool {
        let Some(Beside { past, .. }) = &self.beside else { return false };
        let Some(port) = past.port_of(&envelope) else { return false };
        let message = Message { says: Says::Passed, envelope, ecn: 0, bytes };
        past.pass(port as usize, &message, &mut self.scratch.borrow_mut()) != Fate::Ours
    }

    /// Says something to the process that follows this one.
    pub(super) fn tell_successor(&self, message: &Message<'_>) {
        if let Some(way) = &*self.said.borrow() {
            message.write(&mut self.scratch.borrow_mut());
            // Should it be lost, what comes is passed on, and given back.
            let _ = SockRef::from(way).send(&self.scratch.borrow());
        }
    }

    /// Whether another process reads the socket.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// A way by which another process can pass on what is for flows of this one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn open_way(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = past::way()?;
        *self.said.borrow_mut() = Some(ours.duplicate()?);
        *self.handed.borrow_mut() = Some(ours);
        Ok(theirs)
    }

    /// Whether another process reads the socket; and the flows that there are, those of a process before this one among them.
    pub(crate) fn pause(self: &Rc<Self>, is_paused: bool) -> Vec<Envelope> {
        self.is_paused.set(is_paused);
        match self.handed.take() {
            Some(end) if is_paused => drop(tokio::task::spawn_local(self.clone().take_handed(end))),
            _ => {}
        }
        if !is_paused {
            *self.said.borrow_mut() = None;
            if let Some(waker) = &*self.waker.borrow() {
                waker.wake_by_ref();
            }
        }
        let flows = self.flows.borrow();
        let own = flows.iter().filter(|(_, flow)| !flow.is_over.get()).map(|(envelope, _)| *envelope);
        let before = self.beside.as_ref().map(|beside| beside.past.flows_of(beside.port, beside.ports));
        own.chain(before.unwrap_or_default()).collect()
    }

    /// Passes on what is for a flow of the process before at another address, which covers this one; a relay gives what comes anew to
    /// the port of its listener. Says how many of these have their way, or have none.
    pub(super) fn pass_beside(self: &Rc<Self>, envelope: Envelope, batch: &Batch, places: Range<usize>) -> usize {
        let relays = self.worker.relays.borrow();
        if relays.is_empty() {
            return 0;
        }
        let (to, listening) = (self.destination(&envelope), self.worker.listening.borrow());
        let ports =
            relays.iter().map(|relay| relay.port.clone()).chain(listening.iter().filter_map(Accepting::datagrams));
        let others: Vec<Rc<Self>> = ports.filter(|port| !Rc::ptr_eq(port, self) && port.covers(to, self)).collect();
        drop((relays, listening));
        for other in others {
            let Some(Beside { past, .. }) = &other.beside else { continue };
            let known = other.envelope(envelope, to);
            if let Some(port) = past.port_of(&known) {
                return self.pass_back(past, (port, known), batch, places);
            }
        }
        if self.is_relay { places.filter(|place| self.pass_ahead(envelope, batch.bytes(*place))).count() } else { 0 }
    }

    /// Gives what comes anew to who takes it at this address now. `false`: nobody does, or there is no place.
    pub(super) fn pass_ahead(&self, envelope: Envelope, bytes: &[u8]) -> bool {
        let to = self.destination(&envelope);
        let listening = self.worker.listening.borrow();
        let mut ports = listening.iter().filter_map(Accepting::datagrams);
        let next = ports.find(|port| port.covers(to, self));
        drop(ports);
        drop(listening);
        next.is_some_and(|next| next.take_one(next.envelope(envelope, to), bytes, true))
    }

    /// Whether what is sent to this address, and the port of another, may come here.
    fn covers(&self, to: IpAddr, other: &Self) -> bool {
        let (own, port) = (self.local.ip(), self.local.port());
        port == other.local.port() && own.is_ipv4() == to.is_ipv4() && (own.is_unspecified() || own == to)
    }

    fn destination(&self, envelope: &Envelope) -> IpAddr {
        envelope.to.unwrap_or(self.local.ip())
    }

    /// As it is here: only where there are several addresses it is known to which of them something came.
    fn envelope(&self, envelope: Envelope, to: IpAddr) -> Envelope {
        Envelope { to: self.local.ip().is_unspecified().then_some(to), ..envelope }
    }
}
