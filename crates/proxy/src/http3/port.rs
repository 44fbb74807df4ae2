//! A UDP socket of a worker with all the QUIC connections on it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use model::limits::{HTTP3_RECEIVE_BATCH, HTTP3_SEGMENTS_MAX, HTTP3_TURNS_MAX};
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, EndpointEvent,
    Incoming, ServerConfig, Transmit,
};
use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Sleep;
use wire::http3::code;

use super::ids::{Generation, Ids, Keys, Mesh, Owner, Passed, is_after, owner};
use super::quic::{Quic, Told};
use crate::past::{self, End, Fate, Message, Says};
use crate::sys::{self, Envelope};
use crate::tls::Noted;

/// Room for what one system call yields: with GRO the kernel joins many datagrams into one piece.
const PIECE_BYTES: usize = 64 * 1024;
/// Transmissions of one connection before others get a turn.
const TRANSMITS_PER_TURN_MAX: usize = 8;
/// Transmissions of all connections before the socket is read again, and other work of the worker gets a turn.
const TRANSMITS_PER_PORT_TURN_MAX: usize = 64;
/// The only version that is spoken: drafts of it are not offered.
const QUIC_VERSION: u32 = 1;
/// Pause after errors of the socket that do not end.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// When the kernel is asked what the network says of the first datagram to an endpoint.
const FIRST_WORDS: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(100), Duration::from_millis(400)];
/// How often it is looked whether the ports before are over, once there is nothing else to do.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// No connection has this number.
const NOBODY: usize = usize::MAX;
/// When nothing is to be done in time.
const FAR: Duration = Duration::from_secs(3600);

/// Who is told of a client that wants a connection.
type Door = Box<dyn Fn(&Rc<Port>, Incoming)>;

/// See the module.
pub(crate) struct Port {
    socket: UdpSocket,
    state: UdpSocketState,
    mesh: RefCell<Mesh>,
    endpoint: RefCell<Endpoint>,
    door: Door,
    /// By handle.
    connections: RefCell<Vec<Option<Rc<Quic>>>>,
    open: Cell<usize>,
    /// Its connections are those to endpoints.
    is_outgoing: bool,
    /// Those that have something to say.
    dirty: RefCell<Vec<Rc<Quic>>>,
    /// Memory for the same.
    spare: RefCell<Vec<Rc<Quic>>>,
    /// When a connection wants to be looked at, which may be earlier than it now needs.
    timers: RefCell<BTreeSet<(Instant, usize)>>,
    waker: RefCell<Option<Waker>>,
    /// What the socket has not taken yet.
    blocked: RefCell<Option<(Transmit, Vec<u8>)>>,
    out: RefCell<Vec<u8>>,
    room: RefCell<Box<[u8]>>,
    /// Datagrams that were dropped since this was last asked.
    dropped: Cell<u64>,
    /// Nobody drives it any more.
    is_over: Cell<bool>,
    /// Another process, or a port that followed this one, reads the socket, and passes on what is for connections of this one.
    is_paused: Cell<bool>,
    handed: RefCell<Option<End>>,
    /// That of the same worker which lets in who comes to its address, once its own listener is gone.
    next: RefCell<Weak<Port>>,
    /// When to look whether the ports before are over.
    look_at: Cell<Instant>,
    scratch: RefCell<Vec<u8>>,
}

impl Port {
    /// `config` is that of clients that come; without one none are let in.
    ///
    /// # Errors
    /// The kernel does not take a setting.
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        mesh: Mesh,
        config: Option<Arc<ServerConfig>>,
        door: Door,
    ) -> io::Result<Rc<Self>> {
        let state = UdpSocketState::new((&socket).into())?;
        let (owner, keys) = (mesh.owner(), mesh.keys.clone());
        let mut endpoint = EndpointConfig::new(mesh.keys.resets.clone());
        endpoint.supported_versions(vec![QUIC_VERSION]);
        endpoint.cid_generator(move || Box::new(Ids { owner, keys: keys.clone() }));
        let is_outgoing = config.is_none();
        let endpoint = Endpoint::new(Arc::new(endpoint), config, !state.may_fragment(), None);
        Ok(Rc::new(Self {
            socket: UdpSocket::from_std(socket)?,
            state,
            mesh: mesh.into(),
            endpoint: endpoint.into(),
            door,
            connections: RefCell::default(),
            open: Cell::new(0),
            is_outgoing,
            dirty: RefCell::default(),
            spare: RefCell::default(),
            timers: RefCell::default(),
            waker: RefCell::default(),
            blocked: RefCell::default(),
            out: RefCell::default(),
            room: RefCell::new(vec![0; PIECE_BYTES * HTTP3_RECEIVE_BATCH].into_boxed_slice()),
            dropped: Cell::new(0),
            is_over: Cell::new(false),
            is_paused: Cell::new(false),
            handed: RefCell::default(),
            next: RefCell::default(),
            look_at: Cell::new(Instant::now()),
            scratch: RefCell::default(),
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

    /// Whether anything is left to do: connections of its own, or of ports before this one, for which it is the way.
    pub(crate) fn is_needed(&self) -> bool {
        self.open() > 0 || self.is_way()
    }

    /// Whether there are ports before this one, of this process or another. They end without a word, so that is looked at once in a
    /// while.
    fn is_way(&self) -> bool {
        let mut mesh = self.mesh.borrow_mut();
        if mesh.past.is_none() && mesh.before.is_empty() {
            return false;
        }
        let now = Instant::now();
        if now < self.look_at.get() {
            return true;
        }
        if !mesh.before.iter().any(Generation::is_there) && mesh.past.as_ref().is_none_or(|past| past.is_gone()) {
            (mesh.past, mesh.before) = (None, Arc::default());
            return false;
        }
        self.look_at.set(now + LOOK_PAUSE);
        self.set_alarm(now + LOOK_PAUSE);
        true
    }

    /// Its number among the ports of its listener.
    pub(crate) fn place(&self) -> usize {
        self.mesh.borrow().port
    }

    /// Whether somebody else reads the socket.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// Datagrams that were dropped since this was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.take()
    }

    /// The same socket for another process.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Lets a client in. `None`: what it sent was no beginning of a connection.
    pub(crate) fn accept(self: &Rc<Self>, incoming: Incoming, config: Option<Arc<ServerConfig>>) -> Option<Rc<Quic>> {
        let mut out = self.out.borrow_mut();
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
        let mut out = self.out.borrow_mut();
        out.clear();
        let mut endpoint = self.endpoint.borrow_mut();
        match endpoint.retry(incoming, &mut out) {
            Ok(transmit) => self.send(&transmit, &out),
            Err(error) => endpoint.ignore(error.into_incoming()),
        }
    }

    /// Tells a client that it is not let in.
    pub(crate) fn refuse(&self, incoming: Incoming) {
        let mut out = self.out.borrow_mut();
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
            self.timers.borrow_mut().extend(FIRST_WORDS.map(|after| (now + after, NOBODY)));
        }
        connected.map(|(handle, connection)| self.add(handle, connection))
    }

    /// Whether nobody drives it any more.
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

    /// Says that a connection has something to send, or to be told.
    pub(super) fn note(&self, quic: Rc<Quic>) {
        if !self.is_over.get() {
            self.dirty.borrow_mut().push(quic);
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
        self.dirty.borrow_mut().clear();
        self.connections.borrow_mut().clear();
        // Who passes on what is for them sees that nobody is there.
        self.handed.take();
    }

    /// Does what can be done. True: there may be more.
    fn turn(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        self.expire(Instant::now());
        let mut is_more = if self.is_paused.get() { self.take_handed(cx) } else { self.take_in(cx) };
        is_more |= self.take_passed(cx);
        is_more | self.send_all(cx)
    }

    fn sleep_until_next(&self, sleep: &mut Pin<Box<Sleep>>, cx: &mut TaskContext<'_>) {
        let Some(next) = self.timers.borrow().first().map(|(at, _)| *at) else { return };
        if sleep.deadline() != next.into() {
            sleep.as_mut().reset(next.into());
        }
        if sleep.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    fn expire(self: &Rc<Self>, now: Instant) {
        let is_due = self.timers.borrow().first().is_some_and(|(at, _)| *at <= now);
        if is_due && self.is_outgoing {
            // The runtime does not wake us for it.
            self.take_undelivered();
        }
        loop {
            let mut timers = self.timers.borrow_mut();
            let Some((at, handle)) = timers.first().copied().filter(|(at, _)| *at <= now) else { return };
            timers.pop_first();
            drop(timers);
            let quic = self.connections.borrow().get(handle).cloned().flatten();
            if let Some(quic) = quic {
                quic.expire(at, now);
            }
        }
    }

    /// Says that a connection wants to be looked at.
    pub(super) fn set_timer(&self, at: Instant, handle: ConnectionHandle) {
        self.timers.borrow_mut().insert((at, handle.0));
    }

    /// Says when to look around, whatever connections want.
    fn set_alarm(&self, at: Instant) {
        self.timers.borrow_mut().insert((at, NOBODY));
    }

    /// Receives from the socket.
    fn take_in(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
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
    fn take_undelivered(&self) {
        sys::undelivered(self.socket.as_fd(), |address| {
            for quic in self.connections.borrow().iter().flatten().filter(|quic| quic.remote() == address) {
                quic.doubt();
            }
        });
    }

    fn arrive(self: &Rc<Self>, datagram: Passed, now: Instant) {
        if !is_answerable(datagram.remote) {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        let mesh = self.mesh.borrow();
        let back = match owner(&datagram.bytes, &mesh.keys) {
            Some(other) if other.process != mesh.process => self.pass_on(&mesh, other, datagram, now),
            Some(other) if usize::from(other.port) != mesh.port => match mesh.others.get(usize::from(other.port)) {
                Some(way) => self.pass_by(way, datagram),
                None => Some(datagram),
            },
            Some(_) => Some(datagram),
            None => self.pass_ahead(datagram, now),
        };
        drop(mesh);
        if let Some(datagram) = back {
            self.handle(datagram, now);
        }
    }

    /// Passes on what is for a connection of ports before this one, or behind it. What comes back is for nobody else.
    fn pass_on(self: &Rc<Self>, mesh: &Mesh, other: Owner, datagram: Passed, now: Instant) -> Option<Passed> {
        match Generation::find(&mesh.before, other) {
            Some(Some(way)) => return self.pass_by(&way, datagram),
            // It is over, and so are all its connections: who does not know that is told.
            Some(None) => return Some(datagram),
            None => {}
        }
        // Whoever follows this port knows of all that are there.
        let datagram = self.pass_ahead(datagram, now)?;
        if is_after(other.process, mesh.process) {
            // It is not known who follows. What is sent again comes to the right one, where a reset would end it.
            self.dropped.set(self.dropped.get() + 1);
            return None;
        }
        // Should it be gone, this process resets its connections, by the keys that both have (RFC 9000 section 10.3).
        let Some(past) = &mesh.past else { return Some(datagram) };
        let Passed { remote, local_ip, ecn, bytes } = &datagram;
        let envelope = Envelope { from: *remote, to: *local_ip };
        let ecn = ecn.map_or(0, |ecn| ecn as u8);
        let message = Message { says: Says::Passed, envelope, ecn, bytes };
        match past.pass_by_any(usize::from(other.port), &message, &mut self.scratch.borrow_mut()) {
            Fate::Passed => None,
            Fate::Dropped => {
                self.dropped.set(self.dropped.get() + 1);
                None
            }
            Fate::Ours => Some(datagram),
        }
    }

    /// Passes on what is for another port of this process, which may be over.
    fn pass_by(&self, way: &Sender<Passed>, datagram: Passed) -> Option<Passed> {
        match way.try_send(datagram) {
            Ok(()) => None,
            Err(TrySendError::Full(_)) => {
                self.dropped.set(self.dropped.get() + 1);
                None
            }
            // It is over, and so are all its connections: who does not know that is told.
            Err(TrySendError::Closed(back)) => Some(back),
        }
    }

    /// Passes on what is for none of its connections, where another port lets in who comes.
    fn pass_ahead(&self, datagram: Passed, now: Instant) -> Option<Passed> {
        let next = self.next.borrow().upgrade().filter(|next| !next.is_over());
        let Some(next) = next else { return Some(datagram) };
        next.arrive(datagram, now);
        next.wake();
        None
    }

    /// Its listener is gone: from now on `next` lets in who comes to its address.
    pub(crate) fn make_way(&self, next: Weak<Self>) {
        *self.next.borrow_mut() = next;
    }

    /// Another port reads the socket from now on, and knows itself the ways to those before: this one is there for its own connections
    /// alone.
    pub(crate) fn give_way(&self) {
        let mut mesh = self.mesh.borrow_mut();
        (mesh.past, mesh.before) = (None, Arc::default());
        drop(mesh);
        self.pause(true);
    }

    /// Takes what the process that follows this one got.
    fn take_handed(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        let now = Instant::now();
        for _ in 0..HTTP3_TURNS_MAX * HTTP3_RECEIVE_BATCH {
            let mut handed = self.handed.borrow_mut();
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

    /// A way by which another process can pass on what is for connections of this one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn open_way(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = past::way()?;
        *self.handed.borrow_mut() = Some(ours);
        Ok(theirs)
    }

    /// What its ids are made with, and the number of this process.
    pub(crate) fn keys(&self) -> (Keys, u8) {
        let mesh = self.mesh.borrow();
        (mesh.keys.clone(), mesh.process)
    }

    /// Whether another process reads the socket.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.set(is_paused);
        if !is_paused {
            *self.handed.borrow_mut() = None;
        }
        self.wake();
    }

    /// Takes what other workers got.
    fn take_passed(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        let now = Instant::now();
        for _ in 0..HTTP3_TURNS_MAX * HTTP3_RECEIVE_BATCH {
            let passed = self.mesh.borrow_mut().own.poll_recv(cx);
            match passed {
                Poll::Ready(Some(datagram)) => self.handle(datagram, now),
                _ => return false,
            }
        }
        true
    }

    fn handle(self: &Rc<Self>, datagram: Passed, now: Instant) {
        let Passed { remote, local_ip, ecn, bytes } = datagram;
        let mut out = self.out.borrow_mut();
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
                (self.door)(self, incoming);
            }
        }
    }

    /// Sends what connections have to say. True: some have more.
    fn send_all(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> bool {
        if !self.send_blocked(cx) {
            return false;
        }
        let now = Instant::now();
        // Two lists in turn, so that neither has to grow anew.
        let mut list = self.spare.take();
        std::mem::swap(&mut list, &mut *self.dirty.borrow_mut());
        let is_more = self.send_each(&mut list, now, cx);
        list.clear();
        self.spare.replace(list);
        is_more
    }

    fn send_each(self: &Rc<Self>, waiting: &mut Vec<Rc<Quic>>, now: Instant, cx: &mut TaskContext<'_>) -> bool {
        let mut waiting = waiting.drain(..);
        let mut is_more = false;
        let mut budget = TRANSMITS_PER_PORT_TURN_MAX;
        while let Some(quic) = waiting.next() {
            is_more |= self.settle(&quic, now, &mut budget);
            if budget == 0 {
                // Those that have not had their turn come first in the next.
                let later = std::mem::take(&mut *self.dirty.borrow_mut());
                let mut dirty = self.dirty.borrow_mut();
                dirty.extend(waiting);
                dirty.extend(later);
                return self.blocked.borrow().is_none() || self.send_blocked(cx);
            }
            if self.blocked.borrow().is_some() {
                self.dirty.borrow_mut().extend(waiting);
                // The socket wakes us.
                return self.send_blocked(cx);
            }
        }
        is_more | !self.dirty.borrow().is_empty()
    }

    /// Sends what the socket would not take before. True: it has.
    fn send_blocked(&self, cx: &mut TaskContext<'_>) -> bool {
        loop {
            if self.blocked.borrow().is_none() {
                return true;
            }
            if self.socket.poll_send_ready(cx).is_pending() {
                return false;
            }
            if let Some((transmit, bytes)) = self.blocked.take() {
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
        if told == Told::Drained {
            self.remove(quic);
            return false;
        }
        if quic.is_stillborn() {
            self.endpoint.borrow_mut().handle_event(quic.handle(), EndpointEvent::drained());
            self.remove(quic);
            return false;
        }
        if told == Told::Tasks && quic.put_off() {
            return true;
        }
        quic.send_now();
        let segments = self.state.max_gso_segments().min(HTTP3_SEGMENTS_MAX);
        for _ in 0..TRANSMITS_PER_TURN_MAX.min(*budget) {
            let mut out = self.out.borrow_mut();
            out.clear();
            let Some(transmit) = quic.poll_transmit(now, segments, &mut out) else {
                drop(out);
                return quic.set_timer();
            };
            self.send(&transmit, &out);
            drop(out);
            *budget -= 1;
            if self.blocked.borrow().is_some() {
                break;
            }
        }
        quic.touch();
        true
    }

    /// Forgets a connection that is over.
    fn remove(&self, quic: &Quic) {
        let handle = quic.handle().0;
        let Some(_) = self.connections.borrow_mut().get_mut(handle).and_then(Option::take) else { return };
        self.open.set(self.open.get() - 1);
        let mut timers = self.timers.borrow_mut();
        for at in quic.take_timers() {
            timers.remove(&(at, handle));
        }
    }

    /// Sends what lies in `out`, or remembers it until the socket takes it; one at a time, and more is dropped.
    fn send(&self, transmit: &Transmit, out: &[u8]) {
        let mut blocked = self.blocked.borrow_mut();
        if blocked.is_some() {
            self.dropped.set(self.dropped.get() + 1);
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

/// Whether anything can be sent to whom a datagram says that it is from. The kernel refuses port 0 with an error that the
/// library takes for that of a feature which is missing.
fn is_answerable(remote: SocketAddr) -> bool {
    let is_someone = match remote.ip().to_canonical() {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    };
    remote.port() != 0 && is_someone
}

/// Where a datagram came to, as far as the kernel says.
pub(crate) fn local_of(port: &Port, ip: Option<IpAddr>, bound: SocketAddr) -> SocketAddr {
    let local = port.local_address().unwrap_or(bound);
    ip.map_or(local, |ip| SocketAddr::new(ip, local.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_answered_who_cannot_be_sent_to() {
        for good in ["192.0.2.1:1", "[2001:db8::1]:65535", "[::ffff:192.0.2.1]:9", "127.0.0.1:443"] {
            assert!(is_answerable(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "192.0.2.1:0",
            "[2001:db8::1]:0",
            "0.0.0.0:1",
            "[::]:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "[ff02::1]:1",
            "[::ffff:0.0.0.0]:1",
        ] {
            assert!(!is_answerable(bad.parse().unwrap()), "{bad}");
        }
    }
}
