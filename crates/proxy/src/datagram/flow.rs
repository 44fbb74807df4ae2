//! A client with its endpoint, and sending towards that.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use plan::{EndpointState, HealthState};
use socket2::SockRef;
use telemetry::Counter;
use tokio::net::UdpSocket;

use crate::sys::Batch;

/// A client with its endpoint, as the listener sees it.
pub(super) struct Flow {
    /// Connected to the endpoint.
    pub socket: UdpSocket,
    pub endpoint: Arc<EndpointState>,
    /// The plan that is known to have the endpoint.
    pub generation: Cell<u64>,
    pub begun: Instant,
    /// Its checks had failed already, and it was chosen all the same: in a panic, or by force.
    pub began_down: bool,
    /// When a datagram last moved.
    pub last: Cell<Instant>,
    /// Datagrams that the endpoint got.
    pub asked: Cell<u64>,
    pub received_bytes: Cell<u64>,
    /// So much has come at once that the kernel was asked to join it.
    pub is_joined: Cell<bool>,
    /// The endpoint failed when something was sent to it.
    pub broken: Cell<bool>,
    /// The client has another by now, or never gets one.
    pub is_over: Cell<bool>,
    pub waker: RefCell<Option<Waker>>,
}

/// Returns whether an error says that nothing listens at the endpoint, or that no way leads there.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

impl Flow {
    /// Returns a flow that begins now, by the plan of this generation.
    pub(super) fn new(socket: UdpSocket, endpoint: Arc<EndpointState>, generation: u64, begun: Instant) -> Self {
        let began_down = endpoint.health_state() == HealthState::Down;
        Self {
            socket,
            endpoint,
            generation: Cell::new(generation),
            begun,
            began_down,
            last: Cell::new(begun),
            asked: Cell::new(0),
            received_bytes: Cell::new(0),
            is_joined: Cell::new(false),
            broken: Cell::new(false),
            is_over: Cell::new(false),
            waker: RefCell::default(),
        }
    }

    /// Sends these datagrams to the endpoint. Returns how many of them are done with: all, or those before one that the endpoint
    /// refuses, which ends the flow.
    pub(super) fn pass_on(&self, batch: &Batch, places: Range<usize>, now: Instant, dropped: &Counter) -> usize {
        let mut next = places.start;
        while next < places.end {
            // Not by the runtime, which would wait for word that a new socket can be written to.
            match batch.send(self.socket.as_fd(), next..places.end, None) {
                Ok(count) => {
                    let sent = next..places.end.min(next + count);
                    next = sent.end;
                    self.asked.set(self.asked.get() + sent.len() as u64);
                    self.received_bytes.set(self.received_bytes.get() + batch.len_of(sent));
                    self.last.set(now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    dropped.add((places.end - next) as u64);
                    return places.len();
                }
                Err(error) if is_refusal(&error) => {
                    self.broken.set(true);
                    break;
                }
                // Want of memory, a firewall of ours, a datagram too large for the way: nothing that the endpoint did.
                Err(_) => {
                    dropped.add(1);
                    next += 1;
                }
            }
        }
        next - places.start
    }

    /// Sends one datagram that another process delivered.
    pub(super) fn pass_one(&self, bytes: &[u8], now: Instant, dropped: &Counter) {
        match SockRef::from(&self.socket).send(bytes) {
            Ok(_) => {
                self.asked.set(self.asked.get() + 1);
                self.received_bytes.set(self.received_bytes.get() + bytes.len() as u64);
                self.last.set(now);
            }
            Err(error) if is_refusal(&error) => {
                self.broken.set(true);
                if let Some(waker) = &*self.waker.borrow() {
                    waker.wake_by_ref();
                }
            }
            Err(_) => dropped.add(1),
        }
    }

    /// Ends the flow: its task records it and goes.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
