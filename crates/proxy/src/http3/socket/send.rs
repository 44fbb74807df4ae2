//! Sends what connections have to say, in turns that are fair to all of them.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::Context as TaskContext;
use std::time::Instant;

use model::limits::HTTP3_SEGMENTS_MAX;
use quinn_proto::{EndpointEvent, Transmit};
use tokio::io::Interest;

use super::Socket;
use crate::http3::quic::{Notified, Quic};

/// Transmissions of one connection before others get a turn.
const TRANSMITS_PER_TURN_MAX: usize = 8;
/// Transmissions of all connections before the socket is read again, and other work of the worker gets a turn.
const TRANSMITS_OF_ALL_PER_TURN_MAX: usize = 64;

/// What waits to be sent.
#[derive(Default)]
pub(super) struct Output {
    /// Connections that have something to say.
    pub dirty: RefCell<Vec<Rc<Quic>>>,
    /// Memory for the same.
    spare: RefCell<Vec<Rc<Quic>>>,
    /// What the socket has not taken yet.
    blocked: RefCell<Option<(Transmit, Vec<u8>)>>,
    /// Memory for what is sent next.
    pub bytes: RefCell<Vec<u8>>,
}

impl Socket {
    /// Sends what connections have to say. True: some have more.
    pub(super) fn send_all(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        if !self.send_blocked(cx) {
            return false;
        }
        let now = Instant::now();
        // Two lists in turn, so that neither has to grow again.
        let mut list = self.output.spare.take();
        std::mem::swap(&mut list, &mut *self.output.dirty.borrow_mut());
        let is_more = self.send_each(&mut list, now, cx);
        list.clear();
        self.output.spare.replace(list);
        is_more
    }

    fn send_each(self: &Rc<Self>, waiting: &mut Vec<Rc<Quic>>, now: Instant, cx: &mut TaskContext<'_>) -> bool {
        let mut waiting = waiting.drain(..);
        let mut is_more = false;
        let mut budget = TRANSMITS_OF_ALL_PER_TURN_MAX;
        while let Some(quic) = waiting.next() {
            is_more |= self.settle(&quic, now, &mut budget);
            if budget == 0 {
                // Those that have not had their turn come first in the next.
                let later = std::mem::take(&mut *self.output.dirty.borrow_mut());
                let mut dirty = self.output.dirty.borrow_mut();
                dirty.extend(waiting);
                dirty.extend(later);
                return self.output.blocked.borrow().is_none() || self.send_blocked(cx);
            }
            if self.output.blocked.borrow().is_some() {
                self.output.dirty.borrow_mut().extend(waiting);
                // The socket wakes us.
                return self.send_blocked(cx);
            }
        }
        is_more | !self.output.dirty.borrow().is_empty()
    }

    /// Sends what the socket would not take before. True: it has.
    fn send_blocked(&self, cx: &mut TaskContext<'_>) -> bool {
        loop {
            if self.output.blocked.borrow().is_none() {
                return true;
            }
            if self.socket.poll_send_ready(cx).is_pending() {
                return false;
            }
            if let Some((transmit, bytes)) = self.output.blocked.take() {
                self.send(&transmit, &bytes);
            }
        }
    }

    /// Tells a connection's news and sends what it has to say. True: there is more.
    fn settle(self: &Rc<Self>, quic: &Rc<Quic>, now: Instant, budget: &mut usize) -> bool {
        // It is over, and its number may be another's.
        let known = self.connections.borrow().get(quic.handle().0).cloned().flatten();
        if !known.is_some_and(|known| Rc::ptr_eq(&known, quic)) {
            return false;
        }
        let told = quic.tell(&self.endpoint);
        if told == Notified::Drained {
            self.remove(quic);
            return false;
        }
        if quic.is_abandoned() {
            self.endpoint.borrow_mut().handle_event(quic.handle(), EndpointEvent::drained());
            self.remove(quic);
            return false;
        }
        if told == Notified::Tasks && quic.put_off() {
            return true;
        }
        quic.send_now();
        let segments = self.state.max_gso_segments().min(HTTP3_SEGMENTS_MAX);
        for _ in 0..TRANSMITS_PER_TURN_MAX.min(*budget) {
            let mut out = self.output.bytes.borrow_mut();
            out.clear();
            let Some(transmit) = quic.poll_transmit(now, segments, &mut out) else {
                drop(out);
                return quic.set_timer();
            };
            self.send(&transmit, &out);
            drop(out);
            *budget -= 1;
            if self.output.blocked.borrow().is_some() {
                break;
            }
        }
        quic.touch();
        true
    }

    /// Sends what lies in `out`, or remembers it until the socket takes it; one at a time, and more is dropped.
    pub(super) fn send(&self, transmit: &Transmit, out: &[u8]) {
        let mut blocked = self.output.blocked.borrow_mut();
        if blocked.is_some() {
            self.note_dropped();
            return;
        }
        let contents = &out[..transmit.size.min(out.len())];
        let datagrams = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let sent = self.socket.try_io(Interest::WRITABLE, || self.state.send((&self.socket).into(), &datagrams));
        if let Err(error) = sent
            && error.kind() == io::ErrorKind::WouldBlock
        {
            let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
            *blocked = Some((Transmit { destination, ecn, size, segment_size, src_ip }, contents.to_vec()));
        }
    }
}
