//! TCP listeners: a connection is passed on as bytes, to a cluster or by the server name of its TLS ClientHello.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use model::facts::TlsFacts;
use model::limits::{ATTEMPTS_MAX, CLIENT_HELLO_BYTES_MAX};
use model::persistence::SessionPick;
use model::proxy_protocol::{SendProxy, Tlvs};
use model::snapshot::{Protocol, TcpListener, TcpTarget};
use model::{Fault, PickReason};
use plan::filter::{Extent, Stage, pace_of_connection};
use plan::retry::is_for_backup;
use plan::{Ask, ClusterPlan, LastResort, Lease, ListenerTarget, Pass, Seen, Session, Subset};
use telemetry::{EndpointShard, Kind, Phases, Record, WorkerSeries};
use wire::client_hello::{Hello, client_hello};
use wire::rdp::{Request, request};

use crate::admission::{Admission, Admitted, Aim, Entrant, Gate, Place};
use crate::connection::Connection;
use crate::persistence::{keep_session_of_client, seed, session_of_client, session_of_rdp};
use crate::random::RequestId;
use crate::relay::{Pump, Side, Stages, Tunnel, TunnelEnd};
use crate::retry::is_refusal;
use crate::upstream::UpstreamConnection;
use crate::upstream::connect::{Target, connect};
use crate::upstream::opening::Opening;
use crate::worker::Worker;
use crate::worker_plan::{ClusterLocal, ListenerLocal, WorkerPlan};

/// How long a client of Remote Desktop may take for its first message.
const RDP_REQUEST: Duration = Duration::from_secs(10);

/// What a ClientHello says: facts for the log, and the application protocols that it offers.
type TlsHello = (Box<TlsFacts>, Vec<Box<[u8]>>);

/// One TCP stream while it lives.
struct Stream<'p> {
    worker: &'p Worker,
    plan: &'p WorkerPlan,
    listener: &'p ListenerLocal,
    connection: &'p mut Connection,
    cluster: Option<&'p Rc<ClusterLocal>>,
    aim: Option<Aim<'p>>,
    pick: Option<PickReason>,
    retries: u32,
    phases: Phases,
    session: Option<SessionPick>,
    received_bytes: u64,
    sent_bytes: u64,
    /// What it holds of its cluster's bounds, if there are any.
    pass: Option<Pass>,
    /// Made only where an endpoint is told of it.
    id: RequestId,
}

/// Carries a stream to its end, following the plan that was in force when it came.
pub(crate) async fn serve(worker: &Rc<Worker>, connection: &mut Connection) {
    let plan = worker.plan_to_carry(&connection.registration.handle);
    let Some(listener) = plan.listeners.get(connection.registration.handle.index.get()) else { return };
    let Protocol::Tcp(settings) = &listener.plan.listener.protocol else { return };
    let begun = Instant::now();
    let mut stream = Stream {
        worker,
        plan: &plan,
        listener,
        connection,
        cluster: None,
        aim: None,
        pick: None,
        retries: 0,
        phases: Phases::default(),
        session: None,
        received_bytes: 0,
        sent_bytes: 0,
        pass: None,
        id: RequestId::NONE,
    };
    let outcome = stream.proceed(settings).await;
    stream.phases.total = begun.elapsed();
    stream.record(outcome.err());
}

/// What holds one direction to so many bytes per second.
fn paced(rate: Option<u64>) -> Option<Box<Stages>> {
    let pace = Stage::Pace(pace_of_connection(rate?, Instant::now()));
    // Whatever is sent is wanted at once.
    Stages::new(vec![pace], Extent::Unknown, true)
}

impl<'p> Stream<'p> {
    async fn proceed(&mut self, settings: &TcpListener) -> Result<(), Fault> {
        let cluster = self.choose_cluster(settings).await?;
        let local = self.plan.cluster(cluster).ok_or(Fault::NoEndpoint)?;
        self.cluster = Some(local);
        let (mut upstream, _lease) = self.reach(local).await?;
        let (mut up, mut down) = (Pump::tunnel(), Pump::tunnel());
        up.pass(paced(settings.bandwidth.upload));
        down.pass(paced(settings.bandwidth.download));
        if let Some(early) = self.connection.received.take() {
            up.begin(b"", early, &self.worker.buffers).map_err(|_| Fault::NoServerName)?;
        }
        let mut tunnel = Tunnel::new(up, down);
        let timing = (&mut self.connection.watch, settings.idle_timeout);
        let end = tunnel.run(&mut self.connection.io, &mut upstream.io, &self.worker.buffers, timing).await;
        self.received_bytes = tunnel.up.moved_bytes();
        self.sent_bytes = tunnel.down.sent_bytes();
        if matches!(end, TunnelEnd::Broken(_)) {
            // An end in good order would make what was cut short look whole.
            self.connection.io.reset_on_close();
            upstream.io.reset_on_close();
        }
        match end {
            TunnelEnd::Closed => Ok(()),
            TunnelEnd::Timeout(fault) => Err(fault),
            TunnelEnd::Broken(Side::Downstream) => Err(Fault::ClosedInResponse),
            TunnelEnd::Broken(Side::Upstream) => Err(Fault::ResponseBodyClosed),
        }
    }

    async fn choose_cluster(&mut self, settings: &TcpListener) -> Result<&'p Arc<ClusterPlan>, Fault> {
        match (&self.listener.plan.target, &settings.target) {
            (ListenerTarget::Tcp(cluster), _) => Ok(cluster),
            (ListenerTarget::Sni(table), TcpTarget::Sni { hello_timeout, .. }) => {
                let (tls, alpn) = self.read_hello(*hello_timeout).await?.unzip();
                let name = tls.as_ref().and_then(|tls| tls.server_name.as_deref());
                let cluster = table.find(name, alpn.iter().flatten().map(|protocol| &**protocol));
                if let Some(facts) = Rc::get_mut(&mut self.connection.facts) {
                    facts.tls = tls;
                }
                cluster.ok_or(Fault::NoServerName)
            }
            _ => Err(Fault::NoRoute),
        }
    }

    /// Reads the ClientHello, which stays in `connection.received` to be passed on. `None`: it is not TLS.
    async fn read_hello(&mut self, timeout: Duration) -> Result<Option<TlsHello>, Fault> {
        self.read_first(timeout, Fault::NoServerName, |bytes| match client_hello(bytes) {
            Hello::Found { server_name, alpn } => {
                let tls = TlsFacts { server_name, ..TlsFacts::default() };
                Some(Ok(Some((Box::new(tls), alpn))))
            }
            Hello::NotTls => Some(Ok(None)),
            Hello::NeedMore if bytes.len() > CLIENT_HELLO_BYTES_MAX => Some(Err(Fault::NoServerName)),
            Hello::NeedMore => None,
        })
        .await
    }

    /// Waits for the first message of a client of Remote Desktop, which stays in `connection.received` to be passed on.
    async fn await_rdp(&mut self) -> Result<(), Fault> {
        self.read_first(RDP_REQUEST, Fault::ClosedInWait, |bytes| {
            (request(bytes) != Request::NeedMore).then_some(Ok(()))
        })
        .await
    }

    /// Reads the first bytes until `look` knows what they are. `closed`: what it is if the client leaves before.
    async fn read_first<T>(
        &mut self,
        timeout: Duration,
        closed: Fault,
        mut look: impl FnMut(&[u8]) -> Option<Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let connection = &mut *self.connection;
        connection.watch.set(Instant::now(), timeout);
        poll_fn(|cx| {
            loop {
                if let Some(found) = connection.received.as_ref().and_then(|buffer| look(buffer.data())) {
                    return Poll::Ready(found);
                }
                match connection.read_more(&self.worker.buffers, cx) {
                    Poll::Ready(Some(count)) if count > 0 => {}
                    Poll::Ready(_) => return Poll::Ready(Err(closed)),
                    Poll::Pending => {
                        connection.pack_received(&self.worker.buffers);
                        let expired = connection.watch.poll(cx);
                        return expired.map(|()| Err(connection.watch.fault(Fault::HandshakeTimeout)));
                    }
                }
            }
        })
        .await
    }

    /// Returns what is known of the client's session, by its address or by what it says first.
    async fn find_session(&mut self, cluster: &ClusterPlan) -> Result<Option<Session>, Fault> {
        if !cluster.persistence.as_ref().is_some_and(|persistence| persistence.is_by_rdp()) {
            return Ok(session_of_client(cluster, self.connection.facts.peer.ip(), Instant::now()));
        }
        self.await_rdp().await?;
        let received = self.connection.received.as_ref().map_or(&[][..], |buffer| buffer.data());
        Ok(session_of_rdp(cluster, received, Instant::now()))
    }

    /// Connects to an endpoint, trying others while that fails.
    async fn reach(&mut self, local: &'p Rc<ClusterLocal>) -> Result<(UpstreamConnection, Lease), Fault> {
        // One more than the rules allow may go to a backup.
        let mut tried = [u32::MAX; ATTEMPTS_MAX as usize + 1];
        let cluster = &local.plan;
        let client = self.connection.facts.peer.ip();
        let (key, fair_key) = (cluster.key_of_client(client), cluster.fair_key_of_client(client, &mut seed));
        let session = self.find_session(cluster).await?;
        self.session = session.and_then(|session| session.outcome(None));
        let pinned = session.and_then(|session| session.pinned());
        let admission = Admission { worker: self.worker, plan: self.plan, local };
        let (mut attempt, mut failed, mut first) = (0, None, None);
        let mut place = Place { key: fair_key, ..Place::default() };
        loop {
            let mut now = Instant::now();
            let ask = Ask { tried: &tried[..attempt], key, pinned, last_resort: place.last_resort, ..Ask::new(now) };
            let (pass, queued) = (&mut self.pass, &mut self.phases.queue);
            let entrant = Entrant { connection: self.connection, pass, now: &mut now, queued };
            let admitted = admission.admit(entrant, &ask, &place).await;
            let Admitted { lease, aim } = admitted.map_err(|because| end_by(failed, because))?;
            self.session = session.and_then(|session| session.outcome(Some(lease.endpoint_index())));
            if let Some((fault, shard)) = failed {
                shard.fault(fault);
                self.retries += 1;
            }
            self.aim = Some(aim);
            self.pick = Some(lease.reason());
            let begun = Instant::now();
            let first = *first.get_or_insert(begun);
            let connected = self.connect(aim).await;
            let done = Instant::now();
            self.phases.connect += done - begun;
            let shard = aim.endpoint_local.series.of(self.worker.index);
            let fault = match connected {
                Ok(upstream) => {
                    shard.connects_opened.add(1);
                    self.witness(aim, Seen::Answered { status: 0, latency: done - begun }, done);
                    keep_session_of_client(cluster, session.as_ref(), lease.endpoint_index(), done);
                    return Ok((upstream, lease));
                }
                Err(fault) => fault,
            };
            shard.connects_failed.add(1);
            if fault.consequence().against_health {
                self.witness(aim, Seen::Failed, done);
            }
            tried[attempt] = aim.endpoint.state.slot;
            attempt += 1;
            let may = self.may_try_another(local, (fault, pinned), &tried[..attempt]);
            place = place_again(cluster, place, (attempt, done - first)).filter(|_| may).ok_or(fault)?;
            failed = Some((fault, shard));
        }
    }

    async fn connect(&mut self, aim: Aim<'_>) -> Result<UpstreamConnection, Fault> {
        let settings = &aim.cluster().cluster;
        let tls = aim.local.tls.as_deref();
        let target = Target { endpoint: &aim.endpoint.endpoint, socket: &settings.socket, tls };
        connect(target, self.opening(aim.cluster()), self.connection, settings.timeouts.connect).await
    }

    /// Returns whether another endpoint is asked after a connection that failed. There is no pause in which one of those that were `tried`
    /// could have changed: none is asked again.
    fn may_try_another(&mut self, local: &ClusterLocal, (fault, pinned): (Fault, Option<u32>), tried: &[u32]) -> bool {
        let cluster = &local.plan;
        let retry = &cluster.cluster.retry;
        let is_tried = |slot| tried.contains(&slot);
        let has_untried = {
            let cache = &mut local.cache.borrow_mut();
            match tried.len() as u32 {
                attempts if attempts < retry.attempts_max => cluster.has_untried(cache, Subset::ALL, pinned, is_tried),
                attempts if is_for_backup(retry, attempts) => {
                    cluster.has_untried_backup(cache, Subset::ALL, pinned, is_tried)
                }
                _ => false,
            }
        };
        retry.on.holds_fault(fault) && has_untried && Gate { worker: self.worker, local }.may_retry(&mut self.pass)
    }

    fn opening(&mut self, cluster: &ClusterPlan) -> Opening {
        let own = |tlvs: &Tlvs| tlvs.unique_id || tlvs.custom.iter().any(|own| own.value.contains("{request_id}"));
        let wants_id = matches!(&cluster.cluster.proxy_protocol, Some(SendProxy::V2(tlvs)) if own(tlvs));
        if wants_id && self.id.as_bytes().is_empty() {
            self.id = RequestId::new(&self.worker.random);
        }
        let connection = &self.connection.facts;
        let facts = connection.facts(connection.peer.ip(), self.id.as_str());
        let opening = Opening::new(cluster, connection, &facts, None);
        Opening { may_wait: true, ..opening }
    }

    fn witness(&mut self, aim: Aim<'_>, seen: Seen, at: Instant) {
        let cluster = aim.cluster();
        cluster.witness(&aim.endpoint.state, seen, at);
        cluster.tell_circuit(&mut self.pass, seen.is_good(), at);
    }

    fn record(&self, fault: Option<Fault>) {
        let facts = self.connection.facts.facts(self.connection.facts.peer.ip(), self.id.as_str());
        let record = Record {
            fault,
            cluster: self.cluster.map(|cluster| &cluster.plan.cluster.name),
            endpoint: self.aim.map(|aim| &aim.endpoint.endpoint.name),
            endpoint_address: self.aim.map(|aim| &aim.endpoint.endpoint.address),
            pick: self.pick,
            retries: self.retries,
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
            phases: self.phases,
            session: self.session,
            cache: "",
            at: SystemTime::now(),
            ..Record::empty(&facts, Kind::Stream)
        };
        let index = self.worker.index;
        let series = WorkerSeries {
            listener: Some(self.listener.series.of(index)),
            route: None,
            cluster: self.cluster.map(|cluster| cluster.series.of(index)),
            endpoint: self.aim.map(|aim| aim.endpoint_local.series.of(index)),
        };
        self.worker.tell(&record, &series, (self.plan.plan.generation, None));
    }
}

/// Returns how another attempt after so many, so long after the first one began, waits for an endpoint. `None`: it is too late for one.
fn place_again(cluster: &ClusterPlan, place: Place, (attempts, since_first): (usize, Duration)) -> Option<Place> {
    let patience_ms = time_left(cluster, since_first)?;
    let is_last = is_for_backup(&cluster.cluster.retry, attempts as u32);
    let last_resort = if is_last { LastResort::OnlyBackups } else { place.last_resort };
    Some(Place { patience_ms, last_resort, ..place })
}

/// Returns the milliseconds left for another attempt to begin, so long after the first one did, or `None` if it is too late.
fn time_left(cluster: &ClusterPlan, since_first: Duration) -> Option<u32> {
    let Some(max) = cluster.cluster.retry.time_max else { return Some(u32::MAX) };
    let left = max.checked_sub(since_first)?;
    Some(u32::try_from(left.as_millis()).unwrap_or(u32::MAX))
}

/// Why a stream ends when no attempt follows one that failed.
fn end_by(failed: Option<(Fault, &EndpointShard)>, because: Fault) -> Fault {
    match failed {
        Some((fault, _)) if is_refusal(because) => fault,
        Some((fault, shard)) => {
            shard.fault(fault);
            because
        }
        None => because,
    }
}
