//! New connections: limits, TLS, and on to the protocol of the listener.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use model::limits::ACCEPTS_PER_TURN_MAX;
use model::snapshot::ALPN_H2;
use model::socket::ListenerSocket;
use model::{Fault, Name};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::bound::{Bound, Opened};
use crate::byte_stream::ByteStream;
use crate::connection::{Connection, ConnectionFacts};
use crate::datagram;
use crate::downstream;
use crate::downstream::http1::Over;
use crate::http3::{self, Keys};
use crate::io::Io;
use crate::listen::Transport;
use crate::per_address;
use crate::proxy_header;
use crate::registry::{ListenerHandle, Registered, Registration};
use crate::socket::Acceptor;
use crate::stream;
use crate::sys::Envelope;
use crate::tls::{self, ListenerTls};
use crate::watch::Watch;
use crate::worker::{Open, Worker};
use crate::worker_plan::ListenerLocal;

/// Pause after an accept failed for want of descriptors or memory, so that a full process does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener on which a worker accepts.
pub(crate) struct Accepting {
    pub name: Name,
    pub bound: Bound,
    pub handle: Rc<ListenerHandle>,
    /// Until it is told to end.
    socket: RefCell<Option<Taking>>,
    waker: Rc<RefCell<Option<Waker>>>,
    done: Rc<RefCell<Option<Sender<()>>>>,
}

/// Where connections or datagrams are taken.
enum Taking {
    Streams(Rc<Acceptor>),
    Datagrams(Rc<datagram::Socket>),
    Quic(Rc<http3::Socket>),
}

impl Accepting {
    /// Accepts on `socket`, or takes its datagrams, until told to end.
    pub(crate) fn start(worker: &Rc<Worker>, bound: Bound, index: usize, opened: Opened) -> io::Result<Self> {
        let Opened { name, transport, socket, hub, predecessor, .. } = opened;
        let handle = Rc::new(ListenerHandle::new(index));
        let (waker, done) = AcceptSignals::default();
        let taking = match (transport, hub) {
            (Transport::Quic, Some(hub)) => {
                let done = done.clone();
                let ended = move || drop(done.take());
                let socket =
                    downstream::http3::open(worker, (socket.into(), hub), handle.clone(), waker.clone(), ended)?;
                Some(Taking::Quic(socket))
            }
            (Transport::Datagram | Transport::Quic, _) => {
                let socket = datagram::Socket::open(worker, socket.into(), (handle.clone(), predecessor))?;
                let kept = socket.clone();
                let (waker, done) = (waker.clone(), done.clone());
                tokio::task::spawn_local(async move {
                    socket.serve(waker).await;
                    drop(done.take());
                });
                Some(Taking::Datagrams(kept))
            }
            (Transport::Stream, _) => {
                let acceptor = Rc::new(Acceptor::new(socket, &bound.bind)?);
                let kept = acceptor.clone();
                tokio::task::spawn_local(accept(
                    worker.clone(),
                    acceptor,
                    handle.clone(),
                    (waker.clone(), done.clone()),
                ));
                Some(Taking::Streams(kept))
            }
        };
        Ok(Self { name, bound, handle, socket: RefCell::new(taking), waker, done })
    }

    /// Sets the socket up as configured now.
    pub(crate) fn tune(&self, settings: &ListenerSocket) {
        match &*self.socket.borrow() {
            Some(Taking::Streams(acceptor)) => acceptor.tune(settings),
            Some(Taking::Datagrams(socket)) => socket.tune(settings),
            Some(Taking::Quic(_)) | None => {}
        }
    }

    /// Another plan is in force: of connections, each sees it with its next request.
    pub(crate) fn review(&self) {
        if let Some(Taking::Datagrams(socket)) = &*self.socket.borrow() {
            socket.review();
        }
    }

    /// The same socket for another process.
    pub(crate) fn duplicate(&self) -> Option<io::Result<OwnedFd>> {
        Some(match &*self.socket.borrow() {
            Some(Taking::Streams(acceptor)) => acceptor.duplicate(),
            Some(Taking::Datagrams(socket)) => socket.duplicate(),
            Some(Taking::Quic(socket)) => socket.duplicate(),
            None => return None,
        })
    }

    /// A way by which another process can pass on what is for connections or flows of this one; nothing for streams.
    pub(crate) fn open_way(&self) -> io::Result<Option<OwnedFd>> {
        match &*self.socket.borrow() {
            Some(Taking::Datagrams(socket)) => socket.open_way().map(Some),
            Some(Taking::Quic(socket)) => socket.open_way().map(Some),
            Some(Taking::Streams(_)) | None => Ok(None),
        }
    }

    /// What ids of QUIC are made with, and the number of this process.
    pub(crate) fn keys(&self) -> Option<(Keys, u8)> {
        match &*self.socket.borrow() {
            Some(Taking::Quic(socket)) => Some(socket.keys()),
            _ => None,
        }
    }

    /// Whether another process reads the socket, if it is one of datagrams; and the flows that there are.
    pub(crate) fn pause(&self, is_paused: bool) -> Vec<Envelope> {
        match &*self.socket.borrow() {
            Some(Taking::Datagrams(socket)) => socket.pause(is_paused),
            Some(Taking::Quic(socket)) => {
                socket.pause(is_paused);
                Vec::new()
            }
            Some(Taking::Streams(_)) | None => Vec::new(),
        }
    }

    /// Returns the socket of QUIC.
    pub(crate) fn quic(&self) -> Option<Rc<http3::Socket>> {
        match &*self.socket.borrow() {
            Some(Taking::Quic(socket)) => Some(socket.clone()),
            _ => None,
        }
    }

    /// Returns the socket of flows.
    pub(crate) fn datagrams(&self) -> Option<Rc<datagram::Socket>> {
        match &*self.socket.borrow() {
            Some(Taking::Datagrams(socket)) => Some(socket.clone()),
            _ => None,
        }
    }

    /// Stops accepting, once what the kernel holds already is taken; connections end when they are idle. `done` is
    /// dropped when the socket is closed.
    pub(crate) fn end(&self, done: Option<Sender<()>>) {
        self.handle.closing.set(true);
        *self.socket.borrow_mut() = None;
        *self.done.borrow_mut() = done;
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

async fn accept(worker: Rc<Worker>, acceptor: Rc<Acceptor>, handle: Rc<ListenerHandle>, (waker, done): AcceptSignals) {
    let mut turn = 0;
    while !handle.closing.get() {
        let accepted = poll_fn(|cx| {
            waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
            if handle.closing.get() { Poll::Ready(None) } else { acceptor.poll_accept(cx).map(Some) }
        });
        match accepted.await {
            Some(Ok((tcp, peer))) => on_accept(&worker, tcp, peer, &handle),
            Some(Err(error)) => {
                telemetry::log::warn("accept failed", &[("error", &error.to_string())]);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            None => break,
        }
        turn += 1;
        if turn % ACCEPTS_PER_TURN_MAX == 0 {
            tokio::task::yield_now().await;
        }
    }
    // What the kernel holds for a socket that is to be closed would be reset otherwise; another process takes it.
    if let Some(acceptor) = Rc::into_inner(acceptor).filter(|_| !handle.is_given.get()) {
        acceptor.drain(|tcp, peer| on_accept(&worker, tcp, peer, &handle));
    }
    drop(done.take());
}

/// How the task that accepts is woken, and what it drops when its socket is closed.
type AcceptSignals = (Rc<RefCell<Option<Waker>>>, Rc<RefCell<Option<Sender<()>>>>);

fn on_accept(worker: &Rc<Worker>, tcp: TcpStream, peer: SocketAddr, handle: &Rc<ListenerHandle>) {
    let plan = worker.plan_of(handle);
    let Some(listener) = plan.listeners.get(handle.index.get()) else { return };
    let shard = listener.series.of(worker.index);
    let proxied = listener.plan.listener.proxy_protocol.as_ref();
    let is_proxied = proxied.is_some_and(|accepted| accepted.trusts(peer.ip()));
    if !is_proxied && !listener.plan.admits(peer.ip()) {
        let facts = plain_facts(listener, &tcp, peer);
        return keep_out(worker, listener, (&tcp, &facts), Fault::KeptOut);
    }
    let now = Instant::now();
    let opened = if is_proxied { Ok(Vec::new()) } else { per_address::open(worker, listener, peer.ip(), now) };
    let Ok(places) = opened else { return refuse_address(worker, (listener, handle), (&tcp, peer), now) };
    if !listener.plan.state.try_open(listener.plan.listener.connections_max) {
        shard.connections_refused.add(1);
        shard.fault(Fault::ListenerFull);
        return;
    }
    shard.connections_opened.add(1);
    let open = Open::new(worker, listener);
    let registered = worker.registry.register_client(handle.clone(), peer, now);
    registered.registration.hold(places);
    let held = Held { registered, _open: open };
    if listener.tls.is_some() || is_proxied {
        tokio::task::spawn_local(begin(worker.clone(), tcp, peer, held));
    } else {
        // Nothing has to be waited for, so that it costs no task of its own; cell `no-keepalive` of `lab cost` pays for it.
        let registration = held.registered.registration.clone();
        let (facts, watch, _) = introduce(listener, &tcp, peer, (&registration, now));
        let connection = connection(listener, Io::Connection(ByteStream::Plain(tcp)), facts, (watch, registration));
        tokio::task::spawn_local(carry(worker.clone(), connection, held));
    }
}

/// What a connection of a client holds until its end.
struct Held {
    registered: Registered,
    _open: Open,
}

impl Held {
    /// Has the worker wake this task from now on when the connection is told something.
    async fn listen(&self) {
        poll_fn(|cx| {
            self.registered.registration.set_waker(cx.waker());
            Poll::Ready(())
        })
        .await;
    }
}

/// Carries a connection to its end. What is here is all that it holds while it idles, and cell `idle-5k` of `lab cost` pays
/// for that: an `async fn` would hold what it is given twice, so this gives a block, which uses it in place.
#[expect(clippy::manual_async_fn, reason = "it is not the same")]
fn carry(worker: Rc<Worker>, mut connection: Connection, held: Held) -> impl Future<Output = ()> {
    async move {
        held.listen().await;
        if worker.plan_of(&connection.registration.handle).http_listener(&connection.registration).is_none() {
            return Box::pin(stream::serve(&worker, &mut connection)).await;
        }
        if connection.io.has_agreed_on(ALPN_H2)
            || downstream::http1::serve(&worker, &mut connection).await == Over::Http2
        {
            Box::pin(downstream::http2::serve(&worker, connection)).await;
        }
    }
}

/// Closes the connection of somebody who is not let in, by a reset as HAProxy does: the client knows at once, and whoever comes
/// again and again leaves nothing behind that waits here for the other side (RFC 9293 section 3.6), as an end in good order would.
fn keep_out(worker: &Worker, listener: &ListenerLocal, (tcp, facts): (&TcpStream, &ConnectionFacts), fault: Fault) {
    let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    listener.series.of(worker.index).fault(fault);
    worker.log_failure(facts, fault);
}

/// Closes the connection of an address that has too many, as [`keep_out`] does, and logs one in a while.
#[cold]
fn refuse_address(
    worker: &Worker,
    (listener, handle): (&ListenerLocal, &ListenerHandle),
    (tcp, peer): (&TcpStream, SocketAddr),
    now: Instant,
) {
    let shard = listener.series.of(worker.index);
    shard.connections_refused.add(1);
    if handle.logs_refusal(now) {
        return keep_out(worker, listener, (tcp, &plain_facts(listener, tcp, peer)), Fault::AddressFull);
    }
    let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    shard.fault(Fault::AddressFull);
}

/// What is known of a connection of which nothing was read.
fn plain_facts(listener: &ListenerLocal, tcp: &TcpStream, peer: SocketAddr) -> ConnectionFacts {
    let (local, listener) = (local_of(listener, tcp), listener.plan.listener.name.clone());
    ConnectionFacts { peer, local, tls: None, sender: None, listener, authenticated_at: Cell::default() }
}

/// Where a client has connected to.
fn local_of(listener: &ListenerLocal, tcp: &TcpStream) -> SocketAddr {
    // One system call less where the address says it already.
    let bind = listener.plan.listener.bind.or_local();
    if bind.ip().is_unspecified() || bind.port() == 0 { tcp.local_addr().unwrap_or(bind) } else { bind }
}

/// What is known of a connection at once, the watch over it, and how long it may take until its first request.
fn introduce(
    listener: &ListenerLocal,
    tcp: &TcpStream,
    peer: SocketAddr,
    (registration, now): (&Rc<Registration>, Instant),
) -> (ConnectionFacts, Watch, Duration) {
    let configured = &listener.plan.listener;
    let first =
        if registration.is_closing() { registration.handle.last_call() } else { configured.protocol.idle_timeout() };
    let facts = plain_facts(listener, tcp, peer);
    (facts, Watch::new(now, first, registration.clone()), first)
}

fn connection(
    listener: &ListenerLocal,
    io: Io,
    facts: ConnectionFacts,
    (watch, registration): (Watch, Rc<Registration>),
) -> Connection {
    let leaves_by_end = listener.plan.listener.protocol.has_routes();
    let facts = Rc::new(facts);
    Connection {
        io,
        facts,
        watch,
        received: None,
        registration,
        requests: 0,
        leaves_by_end,
        is_early: false,
        is_cut_short: false,
    }
}

/// From an accepted socket to a connection that can carry requests, where that takes a header of the PROXY protocol or a
/// handshake. A task of its own, so that a connection that idles does not carry the room of its own beginning.
async fn begin(worker: Rc<Worker>, tcp: TcpStream, peer: SocketAddr, held: Held) {
    held.listen().await;
    let registration = held.registered.registration.clone();
    let plan = worker.plan_of(&registration.handle);
    let Some(listener) = plan.listeners.get(registration.handle.index.get()) else { return };
    let (mut facts, mut watch, first) = introduce(listener, &tcp, peer, (&registration, Instant::now()));
    let shard = listener.series.of(worker.index);
    let failed = |facts: &ConnectionFacts, fault| {
        shard.fault(fault);
        worker.log_failure(facts, fault);
    };
    let mut early = Vec::new();
    if let Some(accepted) = &listener.plan.listener.proxy_protocol
        && accepted.trusts(peer.ip())
    {
        match proxy_header::receive(&tcp, accepted, &mut facts, (&mut watch, &registration)).await {
            Ok(Some(taken)) => early = taken,
            Ok(None) => return,
            Err(fault) => return failed(&facts, fault),
        }
        watch.set(Instant::now(), first);
    }
    // Who the client is may be known only now, and the list may be another since it came.
    if !listener.plan.admits(facts.peer.ip()) {
        return keep_out(&worker, listener, (&tcp, &facts), Fault::KeptOut);
    }
    if facts.sender.is_some() {
        let (handle, now) = (&registration.handle, Instant::now());
        match per_address::open(&worker, listener, facts.peer.ip(), now) {
            Ok(places) => registration.hold(places),
            Err(_) => return refuse_address(&worker, (listener, handle), (&tcp, facts.peer), now),
        }
    }
    let io = match &listener.tls {
        None => ByteStream::Plain(tcp),
        Some(tls) => match handshake(tls, tcp, &mut watch, &early).await {
            Ok(io) => {
                let (_, session) = io.get_ref();
                match session.handshake_kind() {
                    Some(rustls::HandshakeKind::Resumed) => shard.handshakes_resumed.add(1),
                    _ => shard.handshakes_full.add(1),
                }
                facts.tls = Some(Box::new(tls::facts_of(session)));
                watch.set(Instant::now(), first);
                ByteStream::Accepted(io)
            }
            Err(fault) => {
                shard.handshakes_failed.add(1);
                facts.tls = None;
                return failed(&facts, fault);
            }
        },
    };
    let mut connection = connection(listener, Io::Connection(io), facts, (watch, registration));
    if !early.is_empty() {
        let mut buffer = worker.buffers.take();
        buffer.room()[..early.len()].copy_from_slice(&early);
        buffer.filled(early.len());
        connection.received = Some(buffer);
    }
    tokio::task::spawn_local(carry(worker.clone(), connection, held));
}

async fn handshake(
    tls: &ListenerTls,
    tcp: TcpStream,
    watch: &mut Watch,
    early: &[u8],
) -> Result<Box<tokio_rustls::server::TlsStream<TcpStream>>, Fault> {
    if !early.is_empty() {
        // It began like a header, so it is no TLS.
        return Err(Fault::HandshakeFailed);
    }
    watch.set(Instant::now(), tls.handshake_timeout);
    let mut shaking = pin!(tls.acceptor.accept(tcp));
    poll_fn(|cx| match shaking.as_mut().poll(cx) {
        Poll::Ready(Ok(stream)) => Poll::Ready(Ok(Box::new(stream))),
        Poll::Ready(Err(_)) => Poll::Ready(Err(Fault::HandshakeFailed)),
        Poll::Pending => watch.poll(cx).map(|()| Err(Fault::HandshakeTimeout)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<F: Future>(_made_by: impl FnOnce(Rc<Worker>, Connection, Held) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_connection_holds_while_it_idles_stays_small() {
        // With what the runtime puts around it, 384 bytes: a class of sizes of the allocator.
        let bytes = bytes_of(carry);
        assert!(bytes <= 272, "{bytes} bytes");
    }
}
