//! The task of a flow: passes answers back, ends the flow, records it.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant, SystemTime};

use model::Fault;
use model::persistence::SessionPick;
use model::snapshot::UdpListener;
use plan::{Ask, ClusterPlan, EndpointPlan, LastResort, Lease, Pass, Seen};
use telemetry::{Kind, ListenerSeries, Phases, Record, WorkerSeries};

use super::flow::Flow;
use super::receive::{BATCHES_PER_TURN_MAX, take};
use super::socket::Socket;
use crate::admission::{Admission, Admitted, Aim};
use crate::connection::ConnectionFacts;
use crate::persistence::{keep_session_of_client, session_of_client};
use crate::registry::{LAST_CALL, Registered};
use crate::socket;
use crate::sys::{self, Batch, Envelope, Taken};
use crate::watch::Watch;
use crate::worker::Open;
use crate::worker_plan::{ClusterLocal, EndpointLocal, ListenerLocal};

/// A flow as its own task sees it: what it holds, and what its record will have.
pub(super) struct FlowTask {
    socket: Rc<Socket>,
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

impl FlowTask {
    /// Counts the flow as open until this is dropped.
    pub(super) fn new(
        socket: Rc<Socket>,
        envelope: Envelope,
        facts: ConnectionFacts,
        (listener, settings): (&ListenerLocal, &UdpListener),
    ) -> Self {
        let open = Open::new(&socket.worker, listener);
        Self {
            socket,
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
            _open: open,
        }
    }

    /// Picks an endpoint and opens a socket towards it.
    pub(super) fn reach(&mut self, cluster: &ClusterPlan, at: Instant) -> Result<Rc<Flow>, Fault> {
        let worker = self.socket.worker.clone();
        let plan = worker.plan_of(&self.socket.handle);
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
        Ok(Rc::new(Flow::new(socket, state, plan.plan.generation, at)))
    }

    /// Passes answers back until the flow is over.
    pub(super) async fn run(mut self, flow: Rc<Flow>, registered: Registered) {
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
        self.socket.forget_flow(&self.envelope, &flow);
        self.socket.report_over(self.envelope);
        if fault.is_some_and(|fault| fault.consequence().against_health) {
            self.witness(Seen::Failed, Instant::now());
        } else if fault.is_none() && self.is_one_way(&flow) {
            self.tell_circuit(true, Instant::now());
        }
        self.record(Some(&flow), fault, true);
    }

    /// Returns whether no answer came, and none had to: then it is good enough that the endpoint refused nothing. If that were not
    /// reported, a circuit that lets a trial pass would never close.
    fn is_one_way(&self, flow: &Flow) -> bool {
        self.answers == 0 && self.settings.responses_max.is_none() && flow.asked.get() > 0
    }

    /// Passes answers back. Ready when the flow is over, with what went wrong.
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
            let socket = self.socket.clone();
            let batch = &mut *socket.batch.borrow_mut();
            match take(&flow.socket, batch, false) {
                Ok(Taken { count, is_all }) => {
                    // Most flows have one answer, for which this is not worth a system call.
                    if !is_all && !flow.is_joined.replace(true) {
                        sys::join(flow.socket.as_fd());
                    }
                    let wanted = expected.map_or(u64::MAX, |expected| expected - self.answers);
                    self.answer(flow, batch, count.min(usize::try_from(wanted).unwrap_or(count)));
                }
                // The endpoint's machine says that nothing listens there.
                Err(_) => return Poll::Ready(Some(Fault::ConnectFailed)),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sends the first `count` of a batch back to the client.
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
        let dropped = &self.listener.of(self.socket.worker.index).datagrams_dropped;
        let mut next = 0;
        while next < count {
            match batch.send(self.socket.socket.as_fd(), next..count, Some(&self.envelope)) {
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

    /// Returns the endpoint of the flow, if it has got one.
    fn endpoint(&self) -> Option<&EndpointPlan> {
        let (lease, _) = self.reached.as_ref()?;
        self.cluster.as_ref()?.plan.endpoints.get(lease.endpoint_index())
    }

    pub(super) fn record(&self, flow: Option<&Flow>, fault: Option<Fault>, is_logged: bool) {
        let worker = &self.socket.worker;
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
            cache: "",
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
            worker.tell(&record, &series, (0, None));
        } else {
            telemetry::count(&record, &series);
        }
    }
}
