//! The life of an exchange, whatever protocols are on its two sides.
//!
//! ```text
//! receive → admit → route → filters → pick (queue) → checkout → converse → finish
//!                      │        │        │               │          │
//!                      └────────┴────────┴── fault ──────┴──────────┴──► answered and recorded by finish, once
//! ```

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use model::facts::Caller;
use model::fields::Known;
use model::persistence::SessionPick;
use model::queue::Precedence;
use model::resilience::Hedge;
use model::snapshot::{HostMismatch, HttpListener};
use model::{Facts, Fault, FieldName, LocalResponse, Method, PickReason, RequestHead, ResponseHead, Scheme, Version};
use plan::filter::{Flow, ResponseSource, ResponseView, Turn};
use plan::{
    ActionPlan, Ask, ClusterChoice, ClusterPlan, EndpointPlan, Lease, ListenerTarget, Pass, RoutePlan, Session, Subset,
};
use telemetry::Phases;
use wire::http1::{Framing, RequestParsed};

use crate::admission::{Admission, Admitted, Aim, Entrant, Place};
use crate::connection::{Connection, Next};
use crate::grpc::Grpc;
use crate::persistence::seed;
use crate::random::RequestId;
use crate::registry::LAST_CALL;
use crate::request_head::{Arrival, NoRequest, receive};
use crate::retry::Replay;
use crate::upstream::Line;
use crate::upstream::connect::{Target, connect, line_beside};
use crate::upstream::conversation::Conversation;
use crate::upstream::hedge_connect::{self, line_to_either};
use crate::upstream::opening::{Opening, shown};
use crate::upstream::pool::UpstreamConnection;
use crate::worker::{Incoming, Worker};
use crate::worker_plan::{ClusterLocal, EndpointLocal, ListenerLocal, WorkerPlan};
use crate::{answer, finish};

/// Says of a request that it came before its handshake was over (RFC 8470 section 5.1).
static EARLY_DATA: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("early-data").unwrap_or_else(|_| unreachable!("a constant token")));

/// Stands for a request that could not be parsed: no body is expected, and nothing is kept alive.
const NO_REQUEST: RequestParsed = RequestParsed {
    head_len: 0,
    framing: Framing::None,
    keep_alive: false,
    expects_continue: false,
    upgrade: false,
    accepts_trailers: false,
    host_differs: false,
    awaits_end: false,
};

/// One exchange while it lives. `'p` is the plan that it follows from beginning to end.
pub(crate) struct Exchange<'p> {
    pub worker: &'p Worker,
    pub plan: &'p WorkerPlan,
    pub listener: &'p ListenerLocal,
    pub http: &'p HttpListener,
    pub connection: &'p mut Connection,
    pub incoming: Box<Incoming>,
    /// There once a response arrives or is made.
    pub response: Option<Box<ResponseHead>>,
    pub request: RequestParsed,
    /// Whether `incoming` holds a request.
    pub is_parsed: bool,
    /// Whether the request is read to its end, so that what the client sends next is another.
    pub is_read: bool,
    /// How the client has come to the first proxy that we trust, or to us.
    pub scheme: Scheme,
    pub client: IpAddr,
    pub request_id: RequestId,
    /// The place at the endpoint, held until the endpoint's part is done.
    pub lease: Option<Lease>,
    pub replay: Replay,
    /// What it holds of its cluster's bounds, if there are any.
    pub pass: Option<Pass>,
    /// What is known of its session, in a cluster that has any.
    pub session: Option<Session>,
    /// If it is gRPC.
    pub grpc: Option<Box<Grpc>>,
    pub progress: Progress<'p>,
}

/// What the record will tell.
pub(crate) struct Progress<'p> {
    pub begun: Instant,
    /// The time when it was last looked at. A look costs more than most steps do; see [`Progress::look`].
    pub now: Instant,
    pub route: Option<&'p RoutePlan>,
    pub cluster: Option<&'p Rc<ClusterLocal>>,
    pub endpoint: Option<(&'p EndpointPlan, &'p Rc<EndpointLocal>)>,
    /// Why it was picked.
    pub pick: Option<PickReason>,
    pub retries: u32,
    /// Attempts beside the first.
    pub hedges: u32,
    pub phases: Phases,
    /// What became of the session.
    pub session: Option<SessionPick>,
    /// Status of the final response head, once it is on its way.
    pub status: u16,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// A filter refused the request.
    pub is_refused: bool,
    /// An interim response is sent in part only.
    pub is_interim_cut: bool,
    /// The client takes the end of the connection for the end of the response.
    pub ends_by_close: bool,
    /// How the present attempt went has been told to passive health.
    pub is_witnessed: bool,
}

/// A request that is here, or what came instead of one.
pub(crate) struct Arrived {
    pub incoming: Box<Incoming>,
    pub arrival: Arrival,
    pub parsed: Result<RequestParsed, Fault>,
}

/// Carries the next exchange of an HTTP/1 connection: from the first byte of a request to the record of its end.
pub(crate) async fn run(worker: &Rc<Worker>, connection: &mut Connection) -> Next {
    let plan = worker.plan_to_carry(&connection.registration.handle);
    let Some((listener, http)) = plan.http_listener(&connection.registration) else { return Next::Linger };
    let mut incoming = worker.take_request();
    let mut arrival = Arrival::default();
    let parsed = match receive(worker, connection, http, (&mut incoming, &mut arrival)).await {
        Ok(mut parsed) => {
            if let Some(agents) = &listener.plan.no_keep_alive
                && agents.holds(&incoming.head)
            {
                connection.is_cut_short = std::mem::replace(&mut parsed.keep_alive, false);
            }
            Ok(parsed)
        }
        Err(NoRequest::Fault(fault)) => Err(fault),
        Err(NoRequest::Other(next)) => {
            worker.give_request(incoming);
            return next;
        }
    };
    connection.requests += 1;
    carry(worker, (&plan, listener, http), connection, Arrived { incoming, arrival, parsed }).await
}

/// Carries an exchange whose request is here, to the record of its end.
pub(crate) async fn carry(
    worker: &Worker,
    (plan, listener, http): (&WorkerPlan, &ListenerLocal, &HttpListener),
    connection: &mut Connection,
    arrived: Arrived,
) -> Next {
    let Arrived { incoming, arrival, parsed } = arrived;
    let (client, scheme) = (connection.facts.peer.ip(), connection.facts.scheme());
    let site = CallSite { worker, plan, listener, http, scheme, client, request_id: RequestId::NONE };
    let mut exchange = Exchange::new(site, connection, incoming, Progress::new(&arrival));
    let outcome = match parsed {
        Ok(parsed) => exchange.proceed(parsed).await,
        Err(fault) => {
            if exchange.connection.io.is_message() {
                // As far as it was read, it may say that it is a call all the same.
                exchange.grpc = Grpc::of(&exchange.incoming.head, exchange.progress.begun);
            }
            Err(fault)
        }
    };
    let end = match outcome {
        Ok(next) => (next, exchange.progress.is_refused.then_some(Fault::Refused)),
        // Boxed: it is rare, and its state would make every exchange larger.
        Err(fault) => (Box::pin(finish::settle(&mut exchange, fault)).await, Some(fault)),
    };
    finish::finish(exchange, end)
}

/// What an exchange has of its listener and its client, and a call that a filter of it makes.
pub(crate) struct CallSite<'p> {
    pub worker: &'p Worker,
    pub plan: &'p WorkerPlan,
    listener: &'p ListenerLocal,
    http: &'p HttpListener,
    scheme: Scheme,
    client: IpAddr,
    request_id: RequestId,
}

impl<'p> Exchange<'p> {
    fn new(
        site: CallSite<'p>,
        connection: &'p mut Connection,
        incoming: Box<Incoming>,
        progress: Progress<'p>,
    ) -> Self {
        let CallSite { worker, plan, listener, http, scheme, client, request_id } = site;
        Self {
            worker,
            plan,
            listener,
            http,
            connection,
            incoming,
            response: None,
            request: NO_REQUEST,
            is_parsed: false,
            is_read: false,
            scheme,
            client,
            request_id,
            lease: None,
            replay: Replay::default(),
            pass: None,
            session: None,
            grpc: None,
            progress,
        }
    }

    /// Where a filter of this exchange calls from.
    pub(crate) fn call_site(&self) -> CallSite<'p> {
        let Self { worker, plan, listener, http, scheme, client, request_id, .. } = *self;
        CallSite { worker, plan, listener, http, scheme, client, request_id }
    }

    /// A call of a filter, whose request is whole.
    pub(crate) fn of_call(site: CallSite<'p>, connection: &'p mut Connection, incoming: Box<Incoming>) -> Self {
        let exchange = Self::new(site, connection, incoming, Progress::new(&Arrival::default()));
        Self { is_parsed: true, is_read: true, ..exchange }
    }
}

impl<'p> Progress<'p> {
    fn new(arrival: &Arrival) -> Self {
        let begun = arrival.begun.unwrap_or_else(Instant::now);
        let receive = arrival.whole.map_or(Duration::ZERO, |whole| whole - begun);
        Self {
            begun,
            now: begun + receive,
            route: None,
            cluster: None,
            endpoint: None,
            pick: None,
            retries: 0,
            hedges: 0,
            phases: Phases { receive, ..Phases::default() },
            session: None,
            status: 0,
            is_refused: false,
            is_interim_cut: false,
            received_bytes: 0,
            sent_bytes: 0,
            ends_by_close: false,
            is_witnessed: false,
        }
    }
}

impl Progress<'_> {
    /// Looks at the clock.
    pub(crate) fn look(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }
}

impl<'p> Exchange<'p> {
    /// The story. A fault is answered and recorded by the caller.
    async fn proceed(&mut self, parsed: RequestParsed) -> Result<Next, Fault> {
        self.request = parsed;
        self.is_parsed = true;
        self.is_read = parsed.framing == Framing::None;
        self.admit();
        if parsed.host_differs && self.http.host_mismatch == HostMismatch::Refuse {
            return Err(Fault::BadRequest);
        }
        if let Some(paths) = &self.http.paths {
            wire::path::normalise(&mut self.incoming.head, paths, &mut self.worker.scratch.borrow_mut())?;
        }
        let route = self.route()?;
        if self.connection.is_early {
            // Boxed: it is rare, and its state would make every exchange larger.
            Box::pin(self.settle_early(route)).await?;
        }
        if route.chain.has_request_steps() {
            let mut place = 0;
            let mut flow = self.filter_request(route, &mut place);
            if let Flow::Need(need) = flow {
                // Boxed: it is rare, and its state would make every exchange larger.
                flow = Box::pin(self.meet_needs(route, place, need)).await?;
            }
            if let Some(local) = self.after_filters(flow)? {
                self.progress.is_refused = local.status >= 400;
                return answer::answer(self, &local).await;
            }
        }
        let cluster = match &route.action {
            ActionPlan::Cluster(cluster) => cluster,
            ActionPlan::Weighted(clusters) => self.choose_cluster(clusters),
            ActionPlan::Choice(clusters) => self.named_cluster(clusters)?,
            ActionPlan::Respond(local) => return answer::answer(self, local).await,
            ActionPlan::Redirect(redirect) => {
                let facts = self.facts();
                let local = redirect.respond(&self.incoming.head, &facts);
                return answer::answer(self, &local).await;
            }
        };
        let local = self.plan.cluster(cluster).ok_or(Fault::NoEndpoint)?;
        self.progress.cluster = Some(local);
        self.begin_request_body(route);
        if self.request.awaits_end {
            // Boxed: it is rare, and its state would make every exchange larger.
            Box::pin(self.await_end()).await?;
        }
        self.forward(local).await
    }

    /// Waits until the stream of a request ends that has no content by its length. An endpoint that speaks HTTP/1.1 has all of
    /// such a request with its head, and must not get a malformed one (RFC 9113 section 8.1.1).
    async fn await_end(&mut self) -> Result<(), Fault> {
        let connection = &mut *self.connection;
        connection.watch.set(Instant::now(), self.http.stream_timeout);
        let ended = poll_fn(|cx| {
            let Some(stream) = connection.io.message() else { return Poll::Ready(Ok(())) };
            match stream.poll_read(cx, &mut [0]) {
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {
                    stream.refuse_malformed();
                    Poll::Ready(Err(Fault::BadRequestBody))
                }
                Poll::Ready(Err(_)) => Poll::Ready(Err(Fault::ClosedInBody)),
                Poll::Pending => {
                    connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::RequestBodyTimeout)))
                }
            }
        })
        .await;
        self.progress.look();
        ended
    }

    /// What is set before anything is decided: who the client is, the request's id, the bound on its time.
    fn admit(&mut self) {
        let head = &mut self.incoming.head;
        head.keep_received();
        self.grpc = Grpc::of(head, self.progress.begun);
        let facts = &self.connection.facts;
        let forwarding = &self.http.forwarding;
        let peer = facts.peer.ip();
        self.client = wire::forwarding::client_address(&head.fields, peer, &forwarding.trusted);
        if !forwarding.client_address.is_empty()
            && let Some(client) = wire::forwarding::told_address(&mut head.fields, peer, &forwarding.client_address)
        {
            self.client = client;
        }
        if !forwarding.trusted.is_empty()
            && let Some(scheme) = wire::forwarding::client_scheme(&head.fields, peer, &forwarding.trusted)
        {
            self.scheme = scheme;
        }
        if let Some(name) = &self.listener.request_id {
            let is_trusted = !forwarding.trusted.is_empty() && forwarding.trusted.iter().any(|net| net.contains(peer));
            let given = if is_trusted { head.fields.get(name).and_then(RequestId::adopt) } else { None };
            self.request_id = given.unwrap_or_else(|| RequestId::new(&self.worker.random));
            head.fields.set_alone(name, self.request_id.as_bytes());
        }
        if !self.plan.identities.is_empty() {
            head.fields.retain(|field| !self.plan.is_identity(field.name));
        }
        let told = (&facts.facts(self.client, ""), self.scheme);
        wire::forwarding::apply_forwarding(head, told, forwarding, &mut self.worker.scratch.borrow_mut());
        // After what is removed from a client that is not trusted, of which it may have the name.
        if let Some(name) = &self.listener.identity
            && let Some(subject) = facts.tls.as_ref().and_then(|tls| tls.client_subject.as_ref())
        {
            head.fields.append(name, subject.as_bytes());
        }
    }

    fn route(&mut self) -> Result<&'p RoutePlan, Fault> {
        let ListenerTarget::Http(router) = &self.listener.plan.target else { return Err(Fault::NoRoute) };
        let caller = Caller { client: self.client, sender: self.connection.facts.sender.as_deref() };
        let mut scratch = self.worker.scratch.borrow_mut();
        let route = router.find(&self.incoming.head, caller, &mut scratch).ok_or(Fault::NoRoute)?;
        self.progress.route = Some(route);
        if route.timeout.is_some() || self.grpc.is_some() {
            let bound = route.timeout.map(|timeout| self.progress.begun + timeout);
            let bound = self.grpc.as_ref().map_or(bound, |grpc| grpc.bound(bound));
            self.connection.watch.set_bound(bound);
        }
        Ok(route)
    }

    /// The cluster that the request names, of those that its route allows.
    fn named_cluster(&self, clusters: &'p ClusterChoice) -> Result<&'p Arc<ClusterPlan>, Fault> {
        let mut scratch = self.worker.scratch.borrow_mut();
        clusters.choose(&self.incoming.head, &self.facts(), &mut scratch).ok_or(Fault::UnknownCluster)
    }

    /// What came before its handshake was over, anybody who has seen it may have sent again. It waits until that is ruled out,
    /// unless its route takes it, and its method says that doing it twice does no harm (RFC 8470 sections 3 and 5).
    async fn settle_early(&mut self, route: &RoutePlan) -> Result<(), Fault> {
        let is_safe = matches!(self.incoming.head.method, Method::Get | Method::Head | Method::Options | Method::Trace);
        if route.route.early_data && is_safe {
            self.incoming.head.fields.set(&EARLY_DATA, b"1");
            return Ok(());
        }
        let patience = self.listener.tls.as_ref().map_or(LAST_CALL, |tls| tls.handshake_timeout);
        let connection = &mut *self.connection;
        connection.watch.set(Instant::now(), patience);
        let settled = poll_fn(|cx| {
            let Some(stream) = connection.io.message() else { return Poll::Ready(Ok(())) };
            match stream.poll_settled(cx) {
                Poll::Ready(settled) => Poll::Ready(settled.map_err(|_| Fault::HandshakeFailed)),
                Poll::Pending => {
                    connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::HandshakeTimeout)))
                }
            }
        })
        .await;
        self.progress.look();
        settled
    }

    fn filter_request(&mut self, route: &RoutePlan, place: &mut usize) -> Flow {
        self.in_turn(|head, _, turn| route.chain.on_request_from(place, head, turn))
    }

    /// Hands the heads to filters, with all that steps have beside them.
    #[inline]
    pub(crate) fn in_turn<R>(
        &mut self,
        run: impl FnOnce(&mut RequestHead, Option<&mut ResponseHead>, &mut Turn<'_>) -> R,
    ) -> R {
        let facts = self.connection.facts.facts_by(self.scheme, self.client, self.request_id.as_str());
        let Incoming { head, notes, .. } = &mut *self.incoming;
        let mut turn = Turn {
            facts: &facts,
            now: self.progress.now,
            chance: &mut || self.worker.random.next(),
            notes,
            scratch: &mut self.worker.scratch.borrow_mut(),
            is_rehearsal: false,
        };
        run(head, self.response.as_deref_mut(), &mut turn)
    }

    fn after_filters(&self, flow: Flow) -> Result<Option<LocalResponse>, Fault> {
        match flow {
            // Before anything of it is asked for, or sent on.
            Flow::Continue if self.is_body_too_large() => Err(Fault::BodyTooLarge),
            Flow::Continue => Ok(None),
            Flow::Respond(local) => Ok(Some(*local)),
            Flow::Close => Err(Fault::ClosedByFilter),
            Flow::Need(_) => Err(Fault::VerificationFull),
        }
    }

    /// Tries endpoints until one has answered, or the rules for retries end it.
    pub(crate) async fn forward(&mut self, local: &'p Rc<ClusterLocal>) -> Result<Next, Fault> {
        if self.is_given_up().await {
            return Err(Fault::ClosedInWait);
        }
        let cluster = &*local.plan;
        let head = &self.incoming.head;
        let key = cluster.key(head, self.client);
        let subset = self.progress.route.map_or(Subset::ALL, |route| cluster.subset(route, head));
        let precedence = self.progress.route.map_or(Precedence::default(), |route| route.route.precedence);
        let fair_key = cluster.fair_key(head, self.client, &mut seed);
        let mut place = Place { precedence, key: fair_key, ..Place::default() };
        let pinned = match &cluster.persistence {
            Some(persistence) => self.find_session(persistence).pinned(),
            None => self.authenticated_at(cluster),
        };
        self.prepare_retries(local).await?;
        let mut failed = None;
        loop {
            let (tried, last_resort) = (&self.replay.tried[..], place.last_resort);
            let ask = Ask { tried, key, now: self.progress.now, subset, pinned, last_resort };
            let entrant = Entrant {
                connection: self.connection,
                pass: &mut self.pass,
                now: &mut self.progress.now,
                queued: &mut self.progress.phases.queue,
            };
            let admission = Admission { worker: self.worker, plan: self.plan, local };
            let admitted = admission.admit(entrant, &ask, &place).await;
            let Admitted { lease, aim } = admitted.map_err(|because| self.end_by(failed, because))?;
            if let Some(failed) = failed {
                self.begin_retry(failed);
            }
            self.note_session(local, lease.endpoint_index(), subset);
            self.progress.endpoint = Some((aim.endpoint, aim.endpoint_local));
            self.progress.pick = Some(lease.reason());
            self.progress.is_witnessed = false;
            self.lease = Some(lease);
            let fault = match self.attempt(aim).await {
                Ok(next) => return Ok(next),
                Err(fault) => fault,
            };
            self.witness_fault(fault);
            self.leave_endpoint();
            let pause = self.pause_after(local, fault)?;
            failed = Some(fault);
            // A hedge may have moved it to another endpoint.
            self.replay.tried.extend(self.progress.endpoint.map(|(endpoint, _)| endpoint.state.slot));
            if !pause.is_zero() {
                // Boxed: it is rare, and its state would make every exchange larger.
                Box::pin(self.pause(pause)).await.map_err(|because| self.end_by(failed, because))?;
            }
            place = self.place_again(local, place);
        }
    }

    /// The endpoint of this cluster that authenticates the client by its connection: all steps of that must meet at one.
    pub(crate) fn authenticated_at(&self, cluster: &ClusterPlan) -> Option<u32> {
        let slot = self.connection.facts.authenticated_at.get()?;
        let place = cluster.endpoints.iter().position(|endpoint| endpoint.state.slot == slot)?;
        u32::try_from(place).ok()
    }

    /// One endpoint: a kept connection if there is one, else a new one. A kept connection that turns out to be closed
    /// is replaced by a new one when the request may be sent again (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1).
    async fn attempt(&mut self, mut aim: Aim<'p>) -> Result<Next, Fault> {
        let (cluster, local) = (&**aim.cluster(), aim.local);
        if aim.endpoint_local.pool.shared.is_some() {
            // Boxed, so that exchanges with endpoints that speak HTTP/1.1 are no larger for it.
            return Box::pin(self.attempt_shared((cluster, local), (aim.endpoint, aim.endpoint_local))).await;
        }
        if let Some(kept) = self.kept_for(local, aim.endpoint_local, self.progress.now) {
            aim.endpoint_local.series.of(self.worker.index).reused.add(1);
            match self.converse(cluster, Line::Http1(kept), (aim.endpoint, aim.endpoint_local)).await {
                Err(Fault::StaleConnection) if self.may_send_again() => {
                    self.progress.look();
                }
                other => return other,
            }
        }
        let line = match hedge_connect::rules(self, local) {
            None => self.connect(aim).await.map(Line::Http1),
            // Boxed: it is rare, and its state would make every exchange larger.
            Some(rules) => Box::pin(self.connect_to_either(aim, rules)).await,
        };
        if let Some((endpoint, endpoint_local)) = self.progress.endpoint {
            // A hedge may have moved it to another endpoint.
            aim = Aim { endpoint, endpoint_local, ..aim };
        }
        self.converse(cluster, line?, (aim.endpoint, aim.endpoint_local)).await
    }

    /// Whether the client has reset the stream of its request already, as it came or while others had their turn: an endpoint need not
    /// hear of it. Of a connection that is seen while the endpoint is at work.
    async fn is_given_up(&mut self) -> bool {
        let Some(stream) = self.connection.io.message() else { return false };
        poll_fn(|cx| Poll::Ready(stream.poll_reset(cx).is_ready())).await
    }

    async fn connect_to_either(&mut self, aim: Aim<'p>, rules: (&'p Hedge, Duration)) -> Result<Line, Fault> {
        let to = (aim.endpoint, &**aim.endpoint_local);
        match line_beside(self, aim.local, to, None) {
            Ok(line) => Ok(line),
            Err(first) => line_to_either(self, aim.local, rules, to, first).await,
        }
    }

    async fn connect(&mut self, aim: Aim<'_>) -> Result<UpstreamConnection, Fault> {
        let (cluster, tls) = (aim.cluster(), aim.local.tls.as_deref());
        let settings = &cluster.cluster;
        let begun = self.progress.now;
        let target = Target { endpoint: &aim.endpoint.endpoint, socket: &settings.socket, tls };
        let work = connect(target, self.opening(cluster), self.connection, settings.timeouts.connect);
        // Boxed: connecting is rare, and its state would make every exchange larger.
        let connected = Box::pin(work).await;
        let at = self.progress.look();
        self.progress.phases.connect += at - begun;
        if matches!(connected, Err(Fault::TotalTimeout)) {
            self.witness_lateness();
        }
        let shard = aim.endpoint_local.series.of(self.worker.index);
        match &connected {
            Ok(_) => shard.connects_opened.add(1),
            Err(_) => shard.connects_failed.add(1),
        }
        connected
    }

    /// What a new connection to an endpoint of `cluster` begins with.
    pub(crate) fn opening(&self, cluster: &ClusterPlan) -> Opening {
        Opening::new(cluster, &self.connection.facts, &self.facts(), Some(&self.incoming.head))
    }

    /// A connection to an endpoint of this cluster that was kept, if there is one that this exchange may use.
    pub(crate) fn kept_for(
        &self,
        local: &ClusterLocal,
        endpoint_local: &EndpointLocal,
        at: Instant,
    ) -> Option<UpstreamConnection> {
        let shows = || shown(&local.plan, &self.facts(), &self.incoming.head);
        endpoint_local.pool.take(at, &self.connection.facts, shows)
    }

    /// What is known of it beside its heads.
    fn facts(&self) -> Facts<'_> {
        let facts = self.connection.facts.facts_by(self.scheme, self.client, self.request_id.as_str());
        Facts { user: self.incoming.notes.user(), ..facts }
    }

    /// Whether the request, sent once to a connection that died, may be sent again: repeating it does no harm, and
    /// nothing of it is gone.
    pub(crate) fn may_send_again(&self) -> bool {
        self.incoming.head.method.is_idempotent() && self.is_replayable()
    }

    pub(crate) async fn converse(
        &mut self,
        cluster: &'p ClusterPlan,
        line: Line,
        (endpoint, endpoint_local): (&'p EndpointPlan, &'p EndpointLocal),
    ) -> Result<Next, Fault> {
        let mut conversation = Conversation::begin(self, (cluster, endpoint, endpoint_local), line)?;
        let outcome = conversation.run(self).await;
        conversation.end(self, outcome.as_ref().err().copied());
        outcome
    }

    /// Whether the connection may carry another request after this one.
    pub(crate) fn client_keeps_alive(&self) -> bool {
        let requests = self.connection.requests;
        self.request.keep_alive
            && !self.connection.registration.is_closing()
            && self.http.requests_per_connection_max.is_none_or(|max| requests < max)
    }

    /// Whether the response to this request has no body (RFC 9112 section 6.3). The client knows the method that it has used, and
    /// no other that a filter has sent.
    pub(crate) fn is_head(&self) -> bool {
        // What came by a stream tells its method even if the rest is wrong.
        let head = &self.incoming.head;
        (self.is_parsed || head.version >= Version::Http2) && head.received_method() == Method::Head
    }

    /// The response head.
    pub(crate) fn response(&mut self) -> &mut ResponseHead {
        self.response.get_or_insert_with(|| self.worker.take_response())
    }

    /// Runs the route's response steps over the head of a response from `source`.
    pub(crate) fn filter_response(&mut self, source: ResponseSource) {
        let Some(route) = self.progress.route else { return };
        if !route.chain.has_response_steps() {
            return;
        }
        self.with_response(source, |head, view, turn| route.chain.on_response(head, view, turn));
    }

    /// Hands the response head to filters, with all that may be looked at beside it. `None`: there is no response.
    pub(crate) fn with_response<R>(
        &mut self,
        source: ResponseSource,
        run: impl FnOnce(&mut ResponseHead, &ResponseView<'_>, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let cluster = self.progress.cluster.map(|cluster| &cluster.plan.cluster.name);
        let endpoint = self.progress.endpoint.map(|(endpoint, _)| &endpoint.endpoint.name);
        self.in_turn(|request, response, turn| {
            Some(run(response?, &ResponseView { request, cluster, endpoint, source }, turn))
        })
    }

    /// Whether the request asks for another protocol that a tunnel could carry.
    pub(crate) fn wants_upgrade(&self) -> bool {
        self.request.upgrade && self.incoming.head.fields.has_known(Known::Upgrade)
    }
}

/// The fields of these names, of those that are text.
pub(crate) fn fields_of(response: &ResponseHead, names: &[&[u8]]) -> Vec<(String, String)> {
    let is_asked = |name: &[u8]| names.iter().any(|asked| name.eq_ignore_ascii_case(asked));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let fields = response.fields.iter().filter(|field| is_asked(field.name));
    fields.filter_map(|field| Some((text(field.name)?, text(field.value)?))).collect()
}

/// What becomes of the client's connection after a response: `keeps_alive` is what the response said.
pub(crate) fn next_after(exchange: &Exchange<'_>, keeps_alive: bool, is_read: bool) -> Next {
    if keeps_alive && is_read {
        Next::KeepAlive
    } else if is_read && !exchange.request.keep_alive && !exchange.connection.is_cut_short {
        Next::Close
    } else {
        // The client may have sent more already, which a plain close would turn into a reset.
        Next::Linger
    }
}
