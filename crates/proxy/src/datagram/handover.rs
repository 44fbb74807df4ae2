//! Datagrams between this process and its predecessor or successor ([`crate::predecessor`]).

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use socket2::SockRef;

use super::route::Source;
use super::socket::Socket;
use crate::predecessor::{self, End, Message, PassOutcome, Predecessor, PredecessorLink, Says};
use crate::sys::{Batch, Envelope};

impl Socket {
    /// Listens to the predecessor, if there is one.
    ///
    /// # Errors
    /// A way to it cannot be waited for.
    pub(super) fn hear_predecessor(self: &Rc<Self>) -> io::Result<()> {
        if let Some(PredecessorLink { predecessor, number, sockets }) = &self.predecessor {
            for (other, end) in predecessor.ends(*number, *sockets) {
                tokio::task::spawn_local(self.clone().hear(predecessor.clone(), other, end?));
            }
        }
        Ok(())
    }

    /// Reads from the predecessor which of its flows are over, and what it gives back.
    async fn hear(self: Rc<Self>, predecessor: Arc<Predecessor>, other: u32, mut end: End) {
        poll_fn(|cx| {
            loop {
                match end.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Ready(Some(message)) => {
                        predecessor.forget(&message.envelope);
                        if self.is_paused.get() {
                            self.tell_successor(&message);
                        } else if message.says == Says::Back {
                            self.take_one(message.envelope, message.bytes, Source::Predecessor);
                        }
                    }
                }
            }
        })
        .await;
        predecessor.forget_all(other);
    }

    /// Returns the number of the socket of the predecessor that has a flow of this client.
    pub(super) fn predecessor_of(&self, envelope: &Envelope) -> Option<u32> {
        self.predecessor.as_ref().and_then(|link| link.predecessor.socket_of(envelope))
    }

    /// Passes datagrams of a client on to the predecessor. Returns how many are on their way, or dropped; if that process is
    /// gone, its flows are forgotten and the rest is for this one.
    pub(super) fn pass_back(&self, socket: u32, envelope: Envelope, batch: &Batch, places: Range<usize>) -> usize {
        let Some(PredecessorLink { predecessor, .. }) = &self.predecessor else { return 0 };
        let mut scratch = self.scratch.borrow_mut();
        for place in places.clone() {
            let message = Message { says: Says::Passed, envelope, ecn: 0, bytes: batch.bytes(place) };
            if predecessor.pass(socket as usize, &message, &mut scratch) == PassOutcome::NotTaken {
                predecessor.forget_all(socket);
                return place - places.start;
            }
        }
        places.len()
    }

    /// Passes one datagram on to the predecessor. Returns `false` if that is gone.
    pub(super) fn pass_one_back(&self, socket: u32, envelope: Envelope, bytes: &[u8]) -> bool {
        let Some(PredecessorLink { predecessor, .. }) = &self.predecessor else { return false };
        let message = Message { says: Says::Passed, envelope, ecn: 0, bytes };
        predecessor.pass(socket as usize, &message, &mut self.scratch.borrow_mut()) != PassOutcome::NotTaken
    }

    /// Takes what the successor passes on.
    async fn take_handed(self: Rc<Self>, mut end: End) {
        poll_fn(|cx| {
            loop {
                match end.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Ready(Some(Message { envelope, bytes, .. })) => {
                        self.take_one(envelope, bytes, Source::Successor);
                    }
                }
            }
        })
        .await;
    }

    /// Gives a datagram back to the successor, which may begin a flow for it.
    pub(super) fn give_back(&self, envelope: Envelope, bytes: &[u8]) {
        self.tell_successor(&Message { says: Says::Back, envelope, ecn: 0, bytes });
    }

    /// Reports to the successor that a flow is over.
    pub(super) fn report_over(&self, envelope: Envelope) {
        self.tell_successor(&Message { says: Says::Over, envelope, ecn: 0, bytes: b"" });
    }

    fn tell_successor(&self, message: &Message<'_>) {
        if let Some(way) = &*self.said.borrow() {
            message.write(&mut self.scratch.borrow_mut());
            // Should it be lost, what comes is passed on, and given back.
            let _ = SockRef::from(way).send(&self.scratch.borrow());
        }
    }

    /// Opens a way by which another process can pass on what is for flows of this one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn open_way(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = predecessor::way()?;
        *self.said.borrow_mut() = Some(ours.duplicate()?);
        *self.handed.borrow_mut() = Some(ours);
        Ok(theirs)
    }

    /// Sets whether another process reads the socket. Returns the flows that there are, those of a process before this one included.
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
        let before = self.predecessor.as_ref().map(|link| link.predecessor.flows_of(link.number, link.sockets));
        own.chain(before.unwrap_or_default()).collect()
    }
}
