//! A UDP socket of a worker with all the QUIC connections on it.
//!
//! ```text
//!              receive.rs            route.rs                       mod.rs                  send.rs
//!  datagrams ─► whole batches ─────► destination: Here ──────────► the endpoint of QUIC ──► what connections have to
//!                                      │                            │ a new client           say, in turns ─► datagrams
//!                                      ├► another worker's socket   └► the listener
//!                                      ├► the socket before or after this one at the address
//!                                      └► the process before        timers.rs: when connections want to be looked at
//! ```

mod receive;
mod route;
mod send;
mod timers;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use model::limits::HTTP3_RECEIVE_BATCH;
use quinn_proto::{ClientConfig, ConnectError, ConnectionHandle, Endpoint, EndpointConfig, Incoming, ServerConfig};
use quinn_udp::UdpSocketState;
use tokio::net::UdpSocket;
use wire::http3::code;

use self::receive::PIECE_BYTES;
use self::route::Routing;
use self::send::Output;
use self::timers::Timers;
use super::ids::{Hub, Ids};
use super::quic::Quic;
use crate::tls::Noted;

/// The only version that is spoken: drafts of it are not offered.
const QUIC_VERSION: u32 = 1;
/// When the kernel is asked for ICMP errors after the first datagram to an endpoint.
const FIRST_WORDS: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(100), Duration::from_millis(400)];
/// When nothing is to be done in time.
const FAR: Duration = Duration::from_secs(3600);

/// Decides about a client that wants a connection.
type OnIncoming = Box<dyn Fn(&Rc<Socket>, Incoming)>;

/// See the module.
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    endpoint: RefCell<Endpoint>,
    on_incoming: OnIncoming,
    /// By handle.
    connections: RefCell<Vec<Option<Rc<Quic>>>>,
    open: Cell<usize>,
    /// Its connections are those to endpoints.
    is_outgoing: bool,
    routing: Routing,
    timers: RefCell<Timers>,
    output: Output,
    /// Memory for what is received.
    room: RefCell<Box<[u8]>>,
    /// Datagrams that were dropped since this was last asked.
    dropped: Cell<u64>,
    waker: RefCell<Option<Waker>>,
    /// Its task has ended.
    is_over: Cell<bool>,
}

impl Socket {
    /// `config` is that of clients that come; without one none are let in.
    ///
    /// # Errors
    /// The kernel does not take a setting.
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        hub: Hub,
        config: Option<Arc<ServerConfig>>,
        on_incoming: OnIncoming,
    ) -> io::Result<Rc<Self>> {
        let state = UdpSocketState::new((&socket).into())?;
        let (owner, keys) = (hub.owner(), hub.keys.clone());
        let mut endpoint = EndpointConfig::new(hub.keys.resets.clone());
        endpoint.supported_versions(vec![QUIC_VERSION]);
        endpoint.cid_generator(move || Box::new(Ids { owner, keys: keys.clone() }));
        let is_outgoing = config.is_none();
        let endpoint = Endpoint::new(Arc::new(endpoint), config, !state.may_fragment(), None);
        Ok(Rc::new(Self {
            socket: UdpSocket::from_std(socket)?,
            state,
            endpoint: endpoint.into(),
            on_incoming,
            connections: RefCell::default(),
            open: Cell::new(0),
            is_outgoing,
            routing: Routing::new(hub),
            timers: RefCell::default(),
            output: Output::default(),
            room: RefCell::new(vec![0; PIECE_BYTES * HTTP3_RECEIVE_BATCH].into_boxed_slice()),
            dropped: Cell::new(0),
            waker: RefCell::default(),
            is_over: Cell::new(false),
        }))
    }

    /// Sets what clients that come from now on agree on.
    pub(crate) fn configure(&self, config: Option<Arc<ServerConfig>>) {
        self.endpoint.borrow_mut().set_server_config(config);
    }

    /// Connections that are there, those included that only wait for the last of what is on its way.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Returns whether anything is left to do: connections of its own, or of sockets before this one, for which it is the way.
    pub(crate) fn is_needed(&self) -> bool {
        self.open() > 0 || self.is_way()
    }

    /// Returns its number among the sockets of its listener.
    pub(crate) fn place(&self) -> usize {
        self.routing.hub.borrow().socket
    }

    /// Returns whether another process reads the socket.
    pub(crate) fn is_paused(&self) -> bool {
        self.routing.is_paused.get()
    }

    /// Datagrams that were dropped since this was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.take()
    }

    fn note_dropped(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }

    /// Returns the same socket for another process.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Lets a client in. `None`: what it sent was no beginning of a connection.
    pub(crate) fn accept(self: &Rc<Self>, incoming: Incoming, config: Option<Arc<ServerConfig>>) -> Option<Rc<Quic>> {
        let mut out = self.output.bytes.borrow_mut();
        out.clear();
        let _of_others = Noted::take();
        let accepted = self.endpoint.borrow_mut().accept(incoming, Instant::now(), &mut out, config);
        match accepted {
            Ok((handle, connection)) => Some(self.add(handle, connection)),
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.send(&transmit, &out);
                }
                None
            }
        }
    }

    /// Asks a client to prove that it is where it says (RFC 9000 section 8.1.2).
    pub(crate) fn ask_again(&self, incoming: Incoming) {
        let mut out = self.output.bytes.borrow_mut();
        out.clear();
        let mut endpoint = self.endpoint.borrow_mut();
        match endpoint.retry(incoming, &mut out) {
            Ok(transmit) => self.send(&transmit, &out),
            Err(error) => endpoint.ignore(error.into_incoming()),
        }
    }

    /// Tells a client that it is not let in.
    pub(crate) fn refuse(&self, incoming: Incoming) {
        let mut out = self.output.bytes.borrow_mut();
        out.clear();
        let transmit = self.endpoint.borrow_mut().refuse(incoming, &mut out);
        self.send(&transmit, &out);
    }

    /// Begins a connection to an endpoint, which is to be called `name`.
    ///
    /// # Errors
    /// There is nobody at such an address.
    pub(crate) fn connect(
        self: &Rc<Self>,
        config: ClientConfig,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Rc<Quic>, ConnectError> {
        let now = Instant::now();
        let connected = self.endpoint.borrow_mut().connect(now, config, remote, name);
        if self.is_outgoing {
            // By then the network may have said that nobody is there.
            FIRST_WORDS.iter().for_each(|after| self.set_alarm(now + *after));
        }
        connected.map(|(handle, connection)| self.add(handle, connection))
    }

    /// Returns whether its task has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Closes all connections, and sends what is to be said of it.
    pub(crate) fn close_all(self: &Rc<Self>) {
        let all: Vec<_> = self.connections.borrow().iter().flatten().cloned().collect();
        all.iter().for_each(|quic| quic.close(code::NO_ERROR));
        self.send_all(&mut TaskContext::from_waker(Waker::noop()));
    }

    fn add(self: &Rc<Self>, handle: ConnectionHandle, connection: quinn_proto::Connection) -> Rc<Quic> {
        let quic = Quic::new(self.clone(), handle, connection);
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= handle.0 {
            connections.resize_with(handle.0 + 1, || None);
        }
        connections[handle.0] = Some(quic.clone());
        self.open.set(self.open.get() + 1);
        drop(connections);
        quic.touch();
        quic
    }

    /// Forgets a connection that is over.
    fn remove(&self, quic: &Quic) {
        let handle = quic.handle().0;
        let Some(_) = self.connections.borrow_mut().get_mut(handle).and_then(Option::take) else { return };
        self.open.set(self.open.get() - 1);
        self.timers.borrow_mut().remove(handle, quic.take_timers());
    }

    /// Says that a connection has something to send, or to be told.
    pub(super) fn note(&self, quic: Rc<Quic>) {
        if !self.is_over.get() {
            self.output.dirty.borrow_mut().push(quic);
            self.wake();
        }
    }

    /// Wakes the task that drives this.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Takes datagrams in and sends others, until `is_over` says so, which is asked whenever something happened.
    pub(crate) async fn drive(self: &Rc<Self>, mut is_over: impl FnMut() -> bool) {
        let mut sleep = Box::pin(tokio::time::sleep(FAR));
        poll_fn(|cx| {
            if !self.waker.borrow().as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
            }
            if is_over() {
                return Poll::Ready(());
            }
            let is_more = self.turn(cx);
            if is_over() {
                return Poll::Ready(());
            }
            if is_more {
                cx.waker().wake_by_ref();
            } else {
                self.sleep_until_next(&mut sleep, cx);
            }
            Poll::Pending
        })
        .await;
        // Connections hold it as it holds them.
        self.is_over.set(true);
        self.output.dirty.borrow_mut().clear();
        self.connections.borrow_mut().clear();
        // Who passes on what is for them sees that nobody is there.
        self.routing.handed.take();
    }

    /// Does what can be done. True: there may be more.
    fn turn(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        self.expire(Instant::now());
        let mut is_more = if self.routing.is_paused.get() { self.take_handed(cx) } else { self.take_in(cx) };
        is_more |= self.take_passed(cx);
        is_more | self.send_all(cx)
    }
}

/// Returns where a datagram came to, as far as the kernel says.
pub(crate) fn local_of(socket: &Socket, ip: Option<IpAddr>, bound: SocketAddr) -> SocketAddr {
    let local = socket.local_address().unwrap_or(bound);
    ip.map_or(local, |ip| SocketAddr::new(ip, local.port()))
}
