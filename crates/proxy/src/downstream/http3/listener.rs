//! Decides which clients may begin a connection of QUIC.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use model::Fault;
use model::limits::HTTP3_HANDSHAKES_MAX;
use quinn_proto::Incoming;

use super::handshakes::{Handshake, Handshakes};
use super::session::serve;
use crate::connection::ConnectionFacts;
use crate::datagram::REFUSAL_PAUSE;
use crate::http3::{Hub, Socket, local_of};
use crate::registry::ListenerHandle;
use crate::worker::{Open, Worker};
use crate::worker_plan::ListenerLocal;

/// Accepts clients at the UDP side of a listener until it ends; accepted connections continue to their end. `waker` takes the waker of
/// this task, and `ended` is called when no more are accepted.
///
/// # Errors
/// The kernel does not take a setting.
pub(crate) fn open(
    worker: &Rc<Worker>,
    (socket, hub): (std::net::UdpSocket, Hub),
    handle: Rc<ListenerHandle>,
    waker: Rc<RefCell<Option<Waker>>>,
    ended: impl FnOnce() + 'static,
) -> io::Result<Rc<Socket>> {
    let (handshakes, logged_at) = (Rc::default(), Cell::default());
    let listener = QuicListener { worker: worker.clone(), handle: handle.clone(), handshakes, logged_at };
    let plan = worker.plan_of(&handle);
    let config = plan.listeners.get(handle.index.get()).and_then(|listener| listener.tls.as_ref()?.quic.clone());
    let socket = Socket::new(socket, hub, config, Box::new(move |socket, incoming| listener.accept(socket, incoming)))?;
    let (worker, opened) = (worker.clone(), socket.clone());
    let mut ended = Some(ended);
    let mut generation = plan.plan.generation;
    tokio::task::spawn_local(async move {
        poll_fn(|cx| {
            *waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        let driven = socket.clone();
        socket
            .drive(|| {
                let plan = worker.plan_of(&handle);
                let Some(listener) = plan.listeners.get(handle.index.get()) else { return !driven.is_needed() };
                let dropped = driven.take_dropped();
                if dropped > 0 {
                    listener.series.of(worker.index).datagrams_dropped.add(dropped);
                }
                if handle.closing.get() {
                    if let Some(ended) = ended.take() {
                        ended();
                    }
                    return !driven.is_needed();
                }
                if std::mem::replace(&mut generation, plan.plan.generation) != plan.plan.generation {
                    driven.configure(listener.tls.as_ref().and_then(|tls| tls.quic.clone()));
                }
                false
            })
            .await;
    });
    Ok(opened)
}

/// Decides who is let in.
struct QuicListener {
    worker: Rc<Worker>,
    handle: Rc<ListenerHandle>,
    handshakes: Rc<Handshakes>,
    /// When a refused client was last logged.
    logged_at: Cell<Option<Instant>>,
}

impl QuicListener {
    fn accept(&self, socket: &Rc<Socket>, incoming: Incoming) {
        let (worker, handle) = (&self.worker, &self.handle);
        let plan = worker.plan_of(handle);
        let found = plan.listeners.get(handle.index.get());
        let Some((listener, (http, tls))) = found.and_then(|now| Some((now, (now.http()?, now.tls.as_ref()?)))) else {
            return socket.refuse(incoming);
        };
        let shard = listener.series.of(worker.index);
        let (under_way, is_proven) = (self.handshakes.under_way(), incoming.remote_address_validated());
        if handle.closing.get() {
            return socket.refuse(incoming);
        }
        if !listener.plan.admits(incoming.remote_address().ip()) {
            self.tell_kept_out(socket, listener, &incoming);
            return socket.refuse(incoming);
        }
        // It counts once its handshake has proven where it comes from: a datagram can say anything.
        if listener.plan.per_address.as_ref().is_some_and(|bounds| bounds.is_full(incoming.remote_address().ip())) {
            shard.connections_refused.add(1);
            shard.fault(Fault::AddressFull);
            if handle.logs_refusal(Instant::now()) {
                worker.log_failure(&introduce(socket, listener, &incoming), Fault::AddressFull);
            }
            return socket.refuse(incoming);
        }
        if under_way >= (http.http3.unproven_max as usize).min(HTTP3_HANDSHAKES_MAX) && !is_proven {
            if under_way < HTTP3_HANDSHAKES_MAX {
                shard.http3_retries.add(1);
                return socket.ask_again(incoming);
            }
            shard.connections_refused.add(1);
            return socket.refuse(incoming);
        }
        if !listener.plan.state.try_open(listener.plan.listener.connections_max) {
            shard.connections_refused.add(1);
            shard.fault(Fault::ListenerFull);
            return socket.refuse(incoming);
        }
        shard.connections_opened.add(1);
        let open = Open::new(worker, listener);
        let facts = introduce(socket, listener, &incoming);
        let handshake = Handshake::begin(&self.handshakes, is_proven);
        let Some(quic) = socket.accept(incoming, tls.quic.clone()) else {
            shard.handshakes_failed.add(1);
            shard.fault(Fault::HandshakeFailed);
            worker.log_failure(&facts, Fault::HandshakeFailed);
            return;
        };
        tokio::task::spawn_local(serve(worker.clone(), quic, handle.clone(), (facts, handshake), open));
    }

    /// Counts a rejected client, and logs at most one in a while: source addresses of datagrams can be forged, and a flood must fill
    /// counters, not disks.
    fn tell_kept_out(&self, socket: &Socket, listener: &ListenerLocal, incoming: &Incoming) {
        listener.series.of(self.worker.index).fault(Fault::KeptOut);
        let now = Instant::now();
        if self.logged_at.get().is_none_or(|last| now.saturating_duration_since(last) >= REFUSAL_PAUSE) {
            self.logged_at.set(Some(now));
            self.worker.log_failure(&introduce(socket, listener, incoming), Fault::KeptOut);
        }
    }
}

/// Returns what is known of a connection as it begins.
fn introduce(socket: &Socket, listener: &ListenerLocal, incoming: &Incoming) -> ConnectionFacts {
    let (peer, configured) = (incoming.remote_address(), &listener.plan.listener);
    let local = local_of(socket, incoming.local_ip(), configured.bind.or_local());
    let (listener, authenticated_at) = (configured.name.clone(), Cell::default());
    ConnectionFacts { peer, local, tls: None, sender: None, listener, authenticated_at }
}
