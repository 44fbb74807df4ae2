//! Where datagrams come from: the socket, other workers, and the process that has followed this one.

use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use model::limits::{HTTP3_RECEIVE_BATCH, HTTP3_TURNS_MAX};
use quinn_proto::{DatagramEvent, EcnCodepoint};
use quinn_udp::RecvMeta;
use tokio::io::Interest;

use super::Socket;
use crate::http3::ids::Passed;
use crate::predecessor::Message;
use crate::sys;

/// Room for what one system call yields: with GRO the kernel joins many datagrams into one piece.
pub(super) const PIECE_BYTES: usize = 64 * 1024;
/// Pause after errors of the socket that do not end.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

impl Socket {
    /// Receives from the socket.
    pub(super) fn take_in(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        let mut is_broken = true;
        for _ in 0..HTTP3_TURNS_MAX {
            if self.socket.poll_recv_ready(cx).is_pending() {
                return false;
            }
            let mut metas = [RecvMeta::default(); HTTP3_RECEIVE_BATCH];
            let mut room = self.room.borrow_mut();
            let received = self.socket.try_io(Interest::READABLE, || {
                let mut pieces = room.chunks_exact_mut(PIECE_BYTES);
                let mut slices: [IoSliceMut<'_>; HTTP3_RECEIVE_BATCH] =
                    std::array::from_fn(|_| IoSliceMut::new(pieces.next().unwrap_or_default()));
                self.state.recv((&self.socket).into(), &mut slices, &mut metas)
            });
            let Ok(count) = received else {
                // Of something that was sent before, or nothing: it says nothing of what comes next.
                drop(room);
                self.take_undelivered();
                continue;
            };
            is_broken = false;
            let now = Instant::now();
            for (meta, piece) in metas[..count].iter().zip(room.chunks_exact(PIECE_BYTES)) {
                let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                // Each has memory of its own, so that none that is kept keeps those that came with it.
                for bytes in piece[..meta.len].chunks(meta.stride.max(1)) {
                    let bytes = BytesMut::from(bytes);
                    self.arrive(Passed { remote: meta.addr, local_ip: meta.dst_ip, ecn, bytes }, now);
                }
            }
        }
        if is_broken {
            // Nothing but errors: that may last, and others are to have their turn.
            self.set_alarm(Instant::now() + ERROR_PAUSE);
        }
        !is_broken
    }

    /// The network may have said that some endpoint is not there. It is nobody's word, so that connections only ask.
    pub(super) fn take_undelivered(&self) {
        sys::undelivered(self.socket.as_fd(), |address| {
            for quic in self.connections.borrow().iter().flatten().filter(|quic| quic.remote() == address) {
                quic.doubt();
            }
        });
    }

    /// Takes what the process that follows this one got.
    pub(super) fn take_handed(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        let now = Instant::now();
        for _ in 0..HTTP3_TURNS_MAX * HTTP3_RECEIVE_BATCH {
            let mut handed = self.routing.handed.borrow_mut();
            let Some(end) = &mut *handed else { return false };
            let datagram = match end.poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => {
                    *handed = None;
                    return false;
                }
                Poll::Ready(Some(Message { envelope, ecn, bytes, .. })) => Passed {
                    remote: envelope.from,
                    local_ip: envelope.to,
                    ecn: EcnCodepoint::from_bits(ecn),
                    bytes: BytesMut::from(bytes),
                },
            };
            drop(handed);
            self.arrive(datagram, now);
        }
        true
    }

    /// Takes what other workers got.
    pub(super) fn take_passed(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        let now = Instant::now();
        for _ in 0..HTTP3_TURNS_MAX * HTTP3_RECEIVE_BATCH {
            let passed = self.routing.hub.borrow_mut().own.poll_recv(cx);
            match passed {
                Poll::Ready(Some(datagram)) => self.handle(datagram, now),
                _ => return false,
            }
        }
        true
    }

    pub(super) fn handle(self: &Rc<Self>, datagram: Passed, now: Instant) {
        let Passed { remote, local_ip, ecn, bytes } = datagram;
        let mut out = self.output.bytes.borrow_mut();
        out.clear();
        let event = self.endpoint.borrow_mut().handle(now, remote, local_ip, ecn, bytes, &mut out);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let quic = self.connections.borrow().get(handle.0).cloned().flatten();
                if let Some(quic) = quic {
                    quic.take_in(event, now);
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.send(&transmit, &out),
            Some(DatagramEvent::NewConnection(incoming)) => {
                drop(out);
                (self.on_incoming)(self, incoming);
            }
        }
    }
}
