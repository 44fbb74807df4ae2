//! UDP listeners: what comes from one port of one client goes to one endpoint, and what that answers goes back.
//!
//! ```text
//!             ┌ Port: the listener's socket in this worker ┐
//!  client ──► │ flow of this client? ── no ─► pick, socket  │ ──► endpoint
//!         ◄── │        └─ yes ─► its socket                 │ ◄──
//!             └─────────────────────────────────────────────┘
//! ```
//! A flow ends when nothing moves for a while, when all answers that are expected have come, or when its endpoint refuses; the
//! client's next datagram then begins another. The kernel hands all datagrams of a client's port to the same worker, so
//! flows are the worker's own. Nothing waits: what finds no place, or a full socket, is dropped and counted, as any network
//! may do with it. What has come together is taken, and sent on, by one system call ([`crate::sys`]).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use model::Fault;
use model::limits::{DATAGRAMS_PER_BATCH_MAX, DATAGRAMS_PER_TURN_MAX};
use model::persistence::SessionPick;
use model::snapshot::{Protocol, UdpListener};
use model::socket::ListenerSocket;
use plan::{Ask, ClusterPlan, EndpointPlan, EndpointState, HealthState, LastResort, Lease, ListenerTarget, Pass, Seen};
use socket2::SockRef;
use telemetry::{Counter, Kind, ListenerSeries, Phases, Record, WorkerSeries};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::admission::{Admission, Admitted, Aim};
use crate::connection::ConnectionFacts;
use crate::listen;
use crate::past::{self, Beside, End, Fate, Message, Past, Says};
use crate::persistence::{keep_session_of_client, session_of_client};
use crate::registry::{LAST_CALL, ListenerHandle, Registered};
use crate::socket;
use crate::sys::{self, Batch, Envelope, Taken, tell_destinations};
use crate::watch::Watch;
use crate::worker::{Open, Worker};
use crate::worker_plan::{ClusterLocal, EndpointLocal, ListenerNow};

/// Pause after the kernel would not give us what it has, so that a worker does not spin.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two records of flows that never began, for one and the same fault: a flood is to fill counters, not disks.
pub(crate) const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// Batches taken from one socket before other work of the worker gets a turn.
const BATCHES_PER_TURN_MAX: usize = DATAGRAMS_PER_TURN_MAX / DATAGRAMS_PER_BATCH_MAX;

/// The socket of a UDP listener in one worker, and the flows that came by it. It lives as long as any of them.
pub(crate) struct Port {
    worker: Rc<Worker>,
    socket: UdpSocket,
    handle: Rc<ListenerHandle>,
    /// Where it is bound.
    local: SocketAddr,
    /// By client, and by which of several addresses of ours it asked.
    flows: RefCell<HashMap<Envelope, Rc<Flow>>>,
    /// Where datagrams lie while they are passed on, which takes no time.
    batch: RefCell<Batch>,
    /// When a flow that never began was last told of, by fault.
    refusals: RefCell<Vec<(Fault, Instant)>>,
    /// Flows of the process before.
    beside: Option<Beside>,
    /// Another process reads the socket.
    is_paused: Cell<bool>,
    /// The way by which it passes on what is for flows of this one.
    handed: RefCell<Option<End>>,
    /// The same, to say that a flow is over.
    said: RefCell<Option<OwnedFd>>,
    /// Who serves it.
    waker: RefCell<Option<Waker>>,
    scratch: RefCell<Vec<u8>>,
}

/// A client with its endpoint, as the listener sees it.
struct Flow {
    /// Connected to the endpoint.
    socket: UdpSocket,
    endpoint: Arc<EndpointState>,
    /// The plan that is known to have the endpoint.
    generation: Cell<u64>,
    begun: Instant,
    /// Its checks had failed already, and it was chosen all the same: in a panic, or by force.
    began_down: bool,
    /// When a datagram last moved.
    last: Cell<Instant>,
    /// Datagrams that the endpoint got.
    asked: Cell<u64>,
    received_bytes: Cell<u64>,
    /// So much has come at once that the kernel was asked to join it.
    is_joined: Cell<bool>,
    /// How the endpoint failed when something was sent to it.
    broken: Cell<bool>,
    /// The client has another by now, or never gets one.
    is_over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Takes datagrams that a socket has. Only where where they come from is to be known they have envelopes.
///
/// # Errors
/// As the kernel says, but for [`io::ErrorKind::WouldBlock`], which is none here.
fn take(socket: &UdpSocket, batch: &mut Batch, is_addressed: bool) -> io::Result<Taken> {
    let mut taken = Taken { count: 0, is_all: true };
    let done = socket.try_io(Interest::READABLE, || {
        taken = batch.receive(socket.as_fd(), is_addressed)?;
        // There was room for more: that is known to be all, without another look.
        if taken.is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match done {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(taken),
    }
}

/// Whether the endpoint, or the way to it, has said that there is nobody.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

impl Flow {
    /// Passes these datagrams on, and says how many it is done with: all, or those before one that the endpoint refuses, so
    /// that the flow is over.
    fn pass_on(&self, batch: &Batch, places: Range<usize>, now: Instant, dropped: &Counter) -> usize {
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

    /// The same for one datagram that came otherwise.
    fn pass_one(&self, bytes: &[u8], now: Instant, dropped: &Counter) {
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

    fn end(&self) {
        self.is_over.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Port {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        socket: std::net::UdpSocket,
        (handle, beside): (Rc<ListenerHandle>, Option<Beside>),
    ) -> io::Result<Rc<Self>> {
        let local = socket.local_addr()?;
        if local.ip().is_unspecified() {
            // Answers are to leave from the address that was asked, not from the one that the route would have.
            tell_destinations(socket.as_fd(), local.is_ipv4())?;
        }
        sys::join(socket.as_fd());
        let port = Rc::new(Self {
            worker: worker.clone(),
            socket: UdpSocket::from_std(socket)?,
            handle,
            local,
            flows: RefCell::default(),
            batch: RefCell::new(Batch::new()),
            refusals: RefCell::default(),
            beside,
            is_paused: Cell::new(false),
            handed: RefCell::default(),
            said: RefCell::default(),
            waker: RefCell::default(),
            scratch: RefCell::default(),
        });
        if let Some(Beside { past, port: number, ports }) = &port.beside {
            for (other, end) in past.ends(*number, *ports) {
                tokio::task::spawn_local(port.clone().hear(past.clone(), other, end?));
            }
        }
        Ok(port)
    }

    /// The same socket for another process.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Sets the socket up as configured now. What cannot be set stays as it was.
    pub(crate) fn tune(&self, settings: &ListenerSocket) {
        if let Err(error) =
            listen::retune(&SockRef::from(&self.socket), &listen::of_datagrams(settings), self.local.is_ipv4())
        {
            telemetry::log::warn("a UDP socket cannot be reconfigured", &[("error", &error.to_string())]);
        }
    }

    /// The plan is another: flows end that it leaves without their endpoint, though their clients are silent.
    pub(crate) fn review(&self) {
        self.flows.borrow().values().filter(|flow| !self.is_in_force(flow)).for_each(|flow| flow.end());
    }

    /// Its address is wanted, and its listener gone: flows that wait for the last of their answers end now.
    pub(crate) fn free(&self) {
        self.flows.borrow().values().for_each(|flow| flow.end());
    }

    /// Takes datagrams until the listener ends. `waker` is where to say which task is to be told of that.
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

    /// What came one after the other from one client goes on together.
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

    fn pass_on(self: &Rc<Self>, envelope: Envelope, (batch, mut places): (&Batch, Range<usize>), now: Instant) {
        let plan = self.worker.plan_of(&self.handle);
        let Some(listener) = plan.listeners.get(self.handle.index.get()) else { return };
        let dropped = &listener.series.of(self.worker.index).datagrams_dropped;
        let known = self.flows.borrow().get(&envelope).cloned();
        if let Some(flow) = known {
            if self.is_in_force(&flow) {
                places.start += flow.pass_on(batch, places.clone(), now, dropped);
                if places.is_empty() {
                    return;
                }
            }
            self.flows.borrow_mut().remove(&envelope);
            flow.end();
        }
        if let Some(Beside { past, .. }) = &self.beside
            && let Some(port) = past.port_of(&envelope)
        {
            places.start += self.pass_back(past, (port, envelope), batch, places.clone());
            if places.is_empty() {
                return;
            }
        }
        if let Some(flow) = self.begin(envelope, listener, now) {
            places.start += flow.pass_on(batch, places.clone(), now, dropped);
            self.flows.borrow_mut().insert(envelope, flow);
        }
        dropped.add(places.len() as u64);
    }

    /// Passes on what is for a flow of the process before, and says how many of these have their way, or have none.
    fn pass_back(&self, past: &Past, (port, envelope): (u32, Envelope), batch: &Batch, places: Range<usize>) -> usize {
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
    async fn hear(self: Rc<Self>, past: Arc<Past>, other: u32, mut end: End) {
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
    async fn take_handed(self: Rc<Self>, mut end: End) {
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
    fn pass_further(&self, envelope: Envelope, bytes: &[u8]) -> bool {
        let Some(Beside { past, .. }) = &self.beside else { return false };
        let Some(port) = past.port_of(&envelope) else { return false };
        let message = Message { says: Says::Passed, envelope, ecn: 0, bytes };
        past.pass(port as usize, &message, &mut self.scratch.borrow_mut()) != Fate::Ours
    }

    /// Says something to the process that follows this one.
    fn tell_successor(&self, message: &Message<'_>) {
        if let Some(way) = &*self.said.borrow() {
            message.write(&mut self.scratch.borrow_mut());
            // Should it be lost, what comes is passed on, and given back.
            let _ = SockRef::from(way).send(&self.scratch.borrow());
        }
    }

    /// Takes one datagram for a flow that is there, or that may begin. `false`: there is none.
    fn take_one(self: &Rc<Self>, envelope: Envelope, bytes: &[u8], may_begin: bool) -> bool {
        let now = Instant::now();
        let plan = self.worker.plan_of(&self.handle);
        let Some(listener) = plan.listeners.get(self.handle.index.get()) else { return false };
        let known = self.flows.borrow().get(&envelope).cloned();
        let (flow, over) = match known {
            Some(flow) if self.is_in_force(&flow) => (Some(flow), None),
            over => (None, over),
        };
        if let Some(over) = over {
            // Its client has another from now on, here or in the process that follows.
            self.flows.borrow_mut().remove(&envelope);
            over.end();
        }
        let flow = flow.or_else(|| {
            let flow = may_begin.then(|| self.begin(envelope, listener, now)).flatten()?;
            self.flows.borrow_mut().insert(envelope, flow.clone());
            Some(flow)
        });
        let Some(flow) = flow else { return false };
        flow.pass_one(bytes, now, &listener.series.of(self.worker.index).datagrams_dropped);
        true
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

    /// Whether a flow may go on: its endpoint is configured still, and its checks have not failed.
    fn is_in_force(&self, flow: &Flow) -> bool {
        if flow.is_over.get() {
            return false;
        }
        let plan = self.worker.plan_of(&self.handle);
        let generation = plan.plan.generation;
        if flow.generation.get() != generation {
            let kept = plan.endpoint(&flow.endpoint).is_some_and(|local| Arc::ptr_eq(&local.state, &flow.endpoint));
            if !kept {
                return false;
            }
            flow.generation.set(generation);
        }
        flow.began_down || flow.endpoint.health_state() != HealthState::Down
    }

    /// Begins a flow, unless there is no place for it.
    fn begin(self: &Rc<Self>, envelope: Envelope, listener: &ListenerNow, now: Instant) -> Option<Rc<Flow>> {
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
        let mut life = Life {
            port: self.clone(),
            envelope,
            facts,
            settings: settings.clone(),
            listener: listener.series.clone(),
            cluster: None,
            reached: None,
            pass: None,
            session: None,
            first_answer: Duration::ZERO,
            answers: 0,
            sent_bytes: 0,
            _open: Open::new(&self.worker, listener),
        };
        match life.reach(cluster, now) {
            Ok(flow) => {
                let registered = self.worker.registry.register(self.handle.clone());
                tokio::task::spawn_local(life.live(flow.clone(), registered));
                Some(flow)
            }
            Err(fault) => {
                let is_logged = self.tells_refusal(fault, now);
                life.record(None, Some(fault), is_logged);
                None
            }
        }
    }

    /// Logs that somebody is not let in. The counters know of it already.
    fn tell_kept_out(&self, facts: &ConnectionFacts, now: Instant) {
        if !self.tells_refusal(Fault::KeptOut, now) {
            return;
        }
        if let Some(log) = &mut *self.worker.logs.borrow_mut() {
            let facts = facts.facts(facts.peer.ip(), "");
            let (fault, at) = (Some(Fault::KeptOut), SystemTime::now());
            log.write(&Record { fault, at, ..Record::empty(&facts, Kind::Flow) });
        }
    }

    /// Whether it is time to tell again of a flow that did not begin because of this.
    fn tells_refusal(&self, fault: Fault, now: Instant) -> bool {
        let mut refusals = self.refusals.borrow_mut();
        let Some((_, told)) = refusals.iter_mut().find(|(known, _)| *known == fault) else {
            refusals.push((fault, now));
            return true;
        };
        let is_due = now.saturating_duration_since(*told) >= REFUSAL_PAUSE;
        if is_due {
            *told = now;
        }
        is_due
    }
}

/// A flow as its own task sees it: what it holds, and what will be told of it.
struct Life {
    port: Rc<Port>,
    envelope: Envelope,
    facts: ConnectionFacts,
    settings: UdpListener,
    listener: Arc<ListenerSeries>,
    cluster: Option<Rc<ClusterLocal>>,
    reached: Option<(Lease, Rc<EndpointLocal>)>,
    pass: Option<Pass>,
    session: Option<SessionPick>,
    first_answer: Duration,
    answers: u64,
    sent_bytes: u64,
    _open: Open,
}

impl Life {
    /// Picks an endpoint and opens a socket towards it.
    fn reach(&mut self, cluster: &ClusterPlan, at: Instant) -> Result<Rc<Flow>, Fault> {
        let worker = self.port.worker.clone();
        let plan = worker.plan_of(&self.port.handle);
        let local = plan.cluster(cluster).ok_or(Fault::NoEndpoint)?;
        self.cluster = Some(local.clone());
        let client = self.envelope.from.ip();
        let session = session_of_client(cluster, client, at);
        let pinned = session.and_then(|session| session.pinned());
        let (key, last_resort) = (cluster.key_of_client(client), LastResort::BackupsAtOnce);
        let ask = Ask { key, pinned, last_resort, ..Ask::new(at) };
        let admission = Admission { worker: &worker, plan: &plan, local };
        let Admitted { lease, aim } = admission.admit_at_once(&mut self.pass, &ask)?;
        self.session = session.and_then(|session| session.outcome(Some(lease.endpoint_index())));
        keep_session_of_client(cluster, session.as_ref(), lease.endpoint_index(), at);
        let Aim { endpoint, endpoint_local, .. } = aim;
        let state = endpoint.state.clone();
        self.reached = Some((lease, endpoint_local.clone()));
        let shard = endpoint_local.series.of(worker.index);
        let address = endpoint.endpoint.address.ip().ok_or(Fault::NoEndpoint)?;
        let opened = socket::datagrams_to(address, &cluster.cluster.socket, client);
        let socket = opened.inspect_err(|_| shard.connects_failed.add(1)).map_err(|_| Fault::ConnectFailed)?;
        shard.connects_opened.add(1);
        Ok(Rc::new(Flow {
            socket,
            endpoint: state,
            generation: Cell::new(plan.plan.generation),
            begun: at,
            began_down: endpoint.state.health_state() == HealthState::Down,
            last: Cell::new(at),
            asked: Cell::new(0),
            received_bytes: Cell::new(0),
            is_joined: Cell::new(false),
            broken: Cell::new(false),
            is_over: Cell::new(false),
            waker: RefCell::default(),
        }))
    }

    /// Passes answers back until the flow is over.
    async fn live(mut self, flow: Rc<Flow>, registered: Registered) {
        let registration = registered.registration.clone();
        let idle = self.settings.idle_timeout;
        let mut watch = Watch::new(flow.begun, idle, registration.clone());
        let mut closing_since = None;
        let fault = poll_fn(|cx| {
            flow.waker.borrow_mut().get_or_insert_with(|| {
                registration.set_waker(cx.waker());
                cx.waker().clone()
            });
            if let Poll::Ready(end) = self.poll_answers(&flow, cx) {
                return Poll::Ready(end);
            }
            // Where another process goes on, what this one has begun ends in its own time.
            let is_closing = registration.is_closing() && !registration.handle.is_given.get();
            let patience = if is_closing { LAST_CALL.min(idle) } else { idle };
            if is_closing {
                // An endpoint that goes on speaking would hold the socket of a listener that is gone.
                let since = *closing_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= patience {
                    return Poll::Ready(None);
                }
            }
            loop {
                watch.set(flow.last.get(), patience);
                if watch.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                if registration.is_cut() {
                    return Poll::Ready(Some(Fault::DrainEnded));
                }
                if flow.last.get() + patience <= Instant::now() {
                    return Poll::Ready(None);
                }
            }
        })
        .await;
        let mut flows = self.port.flows.borrow_mut();
        if flows.get(&self.envelope).is_some_and(|present| Rc::ptr_eq(present, &flow)) {
            flows.remove(&self.envelope);
        }
        drop(flows);
        self.port.tell_successor(&Message { says: Says::Over, envelope: self.envelope, ecn: 0, bytes: b"" });
        if fault.is_some_and(|fault| fault.consequence().against_health) {
            self.witness(Seen::Failed, Instant::now());
        } else if fault.is_none() && self.is_one_way(&flow) {
            self.tell_circuit(true, Instant::now());
        }
        self.record(Some(&flow), fault, true);
    }

    /// Whether nothing ever came back, nor had to: then it is good enough that the endpoint refused nothing. Without a word
    /// of it a circuit that is tried would never close.
    fn is_one_way(&self, flow: &Flow) -> bool {
        self.answers == 0 && self.settings.responses_max.is_none() && flow.asked.get() > 0
    }

    fn poll_answers(&mut self, flow: &Flow, cx: &mut TaskContext<'_>) -> Poll<Option<Fault>> {
        for _ in 0..BATCHES_PER_TURN_MAX {
            if flow.broken.get() {
                return Poll::Ready(Some(Fault::ConnectFailed));
            }
            let expected = self.settings.responses_max.map(|max| u64::from(max) * flow.asked.get());
            if flow.is_over.get() || expected.is_some_and(|expected| self.answers >= expected) {
                return Poll::Ready(None);
            }
            match flow.socket.poll_recv_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(Some(Fault::ConnectFailed)),
                Poll::Ready(Ok(())) => {}
            }
            let port = self.port.clone();
            let batch = &mut *port.batch.borrow_mut();
            match take(&flow.socket, batch, false) {
                Ok(Taken { count, is_all }) => {
                    // Most flows have one answer, for which this is not worth a system call.
                    if !is_all && !flow.is_joined.replace(true) {
                        sys::join(flow.socket.as_fd());
                    }
                    let wanted = expected.map_or(u64::MAX, |expected| expected - self.answers);
                    self.answer(flow, batch, count.min(usize::try_from(wanted).unwrap_or(count)));
                }
                // The endpoint's machine says that nobody listens there.
                Err(_) => return Poll::Ready(Some(Fault::ConnectFailed)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes the first of a batch back to the client.
    fn answer(&mut self, flow: &Flow, batch: &Batch, count: usize) {
        if count == 0 {
            return;
        }
        let now = Instant::now();
        if self.answers == 0 {
            self.first_answer = now.saturating_duration_since(flow.begun);
            self.witness(Seen::Answered { status: 0, latency: self.first_answer }, now);
        }
        self.answers += count as u64;
        flow.last.set(now);
        let dropped = &self.listener.of(self.port.worker.index).datagrams_dropped;
        let mut next = 0;
        while next < count {
            match batch.send(self.port.socket.as_fd(), next..count, Some(&self.envelope)) {
                Ok(sent) => {
                    let sent = next..count.min(next + sent);
                    next = sent.end;
                    self.sent_bytes += batch.len_of(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    dropped.add((count - next) as u64);
                    return;
                }
                Err(_) => {
                    dropped.add(1);
                    next += 1;
                }
            }
        }
    }

    fn witness(&mut self, seen: Seen, at: Instant) {
        let (Some(cluster), Some((_, endpoint_local))) = (&self.cluster, &self.reached) else { return };
        cluster.plan.witness(&endpoint_local.state, seen, at);
        self.tell_circuit(seen.is_good(), at);
    }

    fn tell_circuit(&mut self, is_good: bool, at: Instant) {
        if let Some(cluster) = &self.cluster {
            cluster.plan.tell_circuit(&mut self.pass, is_good, at);
        }
    }

    /// The endpoint of a flow that has got one.
    fn endpoint(&self) -> Option<&EndpointPlan> {
        let (lease, _) = self.reached.as_ref()?;
        self.cluster.as_ref()?.plan.endpoints.get(lease.endpoint_index())
    }

    fn record(&self, flow: Option<&Flow>, fault: Option<Fault>, is_logged: bool) {
        let worker = &self.port.worker;
        let facts = self.facts.facts(self.envelope.from.ip(), "");
        let endpoint = self.endpoint().map(|endpoint| &endpoint.endpoint);
        let total = flow.map_or(Duration::ZERO, |flow| flow.begun.elapsed());
        let record = Record {
            fault,
            cluster: self.cluster.as_ref().map(|cluster| &cluster.plan.cluster.name),
            endpoint: endpoint.map(|endpoint| &endpoint.name),
            endpoint_address: endpoint.map(|endpoint| &endpoint.address),
            pick: self.reached.as_ref().map(|(lease, _)| lease.reason()),
            received_bytes: flow.map_or(0, |flow| flow.received_bytes.get()),
            sent_bytes: self.sent_bytes,
            phases: Phases { first_byte: self.first_answer, total, ..Phases::default() },
            session: self.session,
            at: SystemTime::now(),
            ..Record::empty(&facts, Kind::Flow)
        };
        let series = WorkerSeries {
            listener: Some(self.listener.of(worker.index)),
            route: None,
            cluster: self.cluster.as_ref().map(|cluster| cluster.series.of(worker.index)),
            endpoint: self.reached.as_ref().map(|(_, endpoint_local)| endpoint_local.series.of(worker.index)),
        };
        if is_logged {
            // Flows go by the plan in force, and say nothing of one that is tried.
            worker.tell(&record, &series, 0);
        } else {
            telemetry::count(&record, &series);
        }
    }
}
