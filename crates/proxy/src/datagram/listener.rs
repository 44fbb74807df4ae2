//! Taking datagrams of clients, and beginning flows for them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use model::Fault;
use model::limits::DATAGRAMS_PER_TURN_MAX;
use model::snapshot::Protocol;
use plan::ListenerTarget;
use telemetry::{Kind, Record};

use super::flow::Flow;
use super::flow_task::FlowTask;
use super::receive::{BATCHES_PER_TURN_MAX, take};
use super::route::{Destination, Source, destination};
use super::socket::Socket;
use crate::connection::ConnectionFacts;
use crate::predecessor::PredecessorLink;
use crate::registry::ListenerHandle;
use crate::sys::{Batch, Envelope};
use crate::worker::Worker;
use crate::worker_plan::ListenerLocal;

/// Pause after the kernel refused to hand over what it has, so that a worker does not spin.
const PAUSE: Duration = Duration::from_millis(50);

impl Socket {
    /// Sets up a bound socket. Its datagrams are taken by [`Self::serve`].
    ///
    /// # Errors
    /// The kernel does not take a setting, or no descriptors are left.
    pub(crate) fn open(
        worker: &Rc<Worker>,
        socket: std::net::UdpSocket,
        (handle, predecessor): (Rc<ListenerHandle>, Option<PredecessorLink>),
    ) -> io::Result<Rc<Self>> {
        let socket = Self::new(worker, socket, (handle, predecessor))?;
        socket.hear_predecessor()?;
        Ok(socket)
    }

    /// Takes datagrams until the listener ends. Notes in `waker` the task that is to be woken then.
    pub(crate) async fn serve(self: Rc<Self>, waker: Rc<RefCell<Option<Waker>>>) {
        while !self.handle.closing.get() {
            let ready = poll_fn(|cx| {
                waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
                self.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
                match () {
                    () if self.handle.closing.get() => Poll::Ready(None),
                    () if self.is_paused.get() => Poll::Pending,
                    () => self.socket.poll_recv_ready(cx).map(Some),
                }
            });
            match ready.await {
                None => return,
                Some(Ok(())) => self.take_in(),
                Some(Err(error)) => {
                    telemetry::log::warn("a UDP socket failed", &[("error", &error.to_string())]);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn take_in(self: &Rc<Self>) {
        let batch = &mut *self.batch.borrow_mut();
        let mut sum = 0;
        for _ in 0..BATCHES_PER_TURN_MAX {
            // An error is one of something that was sent before; it says nothing about what comes next.
            if let Ok(taken) = take(&self.socket, batch, true) {
                self.pass_on_all(batch, taken.count);
                sum += taken.count;
                if taken.is_all || sum >= DATAGRAMS_PER_TURN_MAX {
                    return;
                }
            }
        }
    }

    /// Passes on together what came one after the other from one client.
    fn pass_on_all(self: &Rc<Self>, batch: &Batch, count: usize) {
        let now = Instant::now();
        let mut begin = 0;
        while let Some(envelope) = (begin..count).find_map(|place| {
            begin = place;
            batch.envelope(place)
        }) {
            let other = |place: &usize| batch.envelope(*place) != Some(envelope);
            let end = (begin + 1..count).find(other).unwrap_or(count);
            self.pass_on(envelope, (batch, begin..end), now);
            begin = end;
        }
    }

    /// Passes datagrams of one client to where they go. What is left when the flow there is over goes to the next destination.
    fn pass_on(self: &Rc<Self>, envelope: Envelope, (batch, mut places): (&Batch, Range<usize>), now: Instant) {
        let plan = self.worker.plan_of(&self.handle);
        let Some(listener) = plan.listeners.get(self.handle.index.get()) else { return };
        let dropped = &listener.series.of(self.worker.index).datagrams_dropped;
        while !places.is_empty() {
            let flow = self.flow_of(&envelope);
            match (destination(Source::Client, flow.is_some(), || self.predecessor_of(&envelope)), flow) {
                (Destination::Flow, Some(flow)) => {
                    places.start += flow.pass_on(batch, places.clone(), now, dropped);
                    if !places.is_empty() {
                        self.end_flow(&envelope, &flow);
                    }
                }
                (Destination::Predecessor(socket), _) => {
                    places.start += self.pass_back(socket, envelope, batch, places.clone());
                }
                (Destination::NewFlow | Destination::Flow | Destination::Successor, _) => {
                    if let Some(flow) = self.begin(envelope, listener, now) {
                        places.start += flow.pass_on(batch, places.clone(), now, dropped);
                        self.flows.borrow_mut().insert(envelope, flow);
                    }
                    dropped.add(places.len() as u64);
                    return;
                }
            }
        }
    }

    /// Passes one datagram, which another process delivered, to where it goes.
    pub(super) fn take_one(self: &Rc<Self>, envelope: Envelope, bytes: &[u8], source: Source) {
        let now = Instant::now();
        let plan = self.worker.plan_of(&self.handle);
        let listener = plan.listeners.get(self.handle.index.get());
        let flow = listener.and_then(|_| self.flow_of(&envelope));
        let flow = match destination(source, flow.is_some(), || self.predecessor_of(&envelope)) {
            Destination::Flow => flow,
            Destination::NewFlow => listener.and_then(|listener| {
                let flow = self.begin(envelope, listener, now)?;
                self.flows.borrow_mut().insert(envelope, flow.clone());
                Some(flow)
            }),
            Destination::Predecessor(socket) if self.pass_one_back(socket, envelope, bytes) => return,
            Destination::Predecessor(_) | Destination::Successor => return self.give_back(envelope, bytes),
        };
        if let (Some(flow), Some(listener)) = (flow, listener) {
            flow.pass_one(bytes, now, &listener.series.of(self.worker.index).datagrams_dropped);
        }
    }

    /// Begins a flow. Returns `None` if there is no place for it, which is counted and logged.
    fn begin(self: &Rc<Self>, envelope: Envelope, listener: &ListenerLocal, now: Instant) -> Option<Rc<Flow>> {
        let Protocol::Udp(settings) = &listener.plan.listener.protocol else { return None };
        let ListenerTarget::Tcp(cluster) = &listener.plan.target else { return None };
        let shard = listener.series.of(self.worker.index);
        let facts = ConnectionFacts {
            peer: envelope.from,
            local: SocketAddr::new(envelope.to.unwrap_or(self.local.ip()), self.local.port()),
            tls: None,
            sender: None,
            listener: listener.plan.listener.name.clone(),
            authenticated_at: Cell::default(),
        };
        if !listener.plan.admits(envelope.from.ip()) {
            shard.fault(Fault::KeptOut);
            self.tell_kept_out(&facts, now);
            return None;
        }
        if !listener.plan.state.try_open(listener.plan.listener.connections_max) {
            shard.connections_refused.add(1);
            shard.fault(Fault::ListenerFull);
            return None;
        }
        shard.connections_opened.add(1);
        let mut task = FlowTask::new(self.clone(), envelope, facts, (listener, settings));
        match task.reach(cluster, now) {
            Ok(flow) => {
                let registered = self.worker.registry.register(self.handle.clone());
                tokio::task::spawn_local(task.run(flow.clone(), registered));
                Some(flow)
            }
            Err(fault) => {
                let is_logged = self.refusals.is_due(fault, now);
                task.record(None, Some(fault), is_logged);
                None
            }
        }
    }

    /// Logs a client that is not admitted, which the counters have already.
    fn tell_kept_out(&self, facts: &ConnectionFacts, now: Instant) {
        if !self.refusals.is_due(Fault::KeptOut, now) {
            return;
        }
        if let Some(log) = &mut *self.worker.logs.borrow_mut() {
            let facts = facts.facts(facts.peer.ip(), "");
            let (fault, at) = (Some(Fault::KeptOut), SystemTime::now());
            log.write(&Record { fault, at, ..Record::empty(&facts, Kind::Flow) }, None);
        }
    }
}
