//! The life of an exchange, whatever protocols are on its two sides.
//!
//! ```text
//! receive → admit → route → filters → pick (queue) → checkout → converse → finish
//!                      │        │        │               │          │
//!                      └────────┴────────┴── fault ──────┴──────────┴──► answered and recorded by finish, once
//! ```

mod await_client;
mod filters;
mod forward;
mod progress;
mod redirect;
mod route_by_body;
mod state;

use std::rc::Rc;
use std::sync::Arc;

use model::Fault;
use model::facts::Caller;
use model::snapshot::{HostMismatch, HttpListener};
use plan::filter::Flow;
use plan::{ActionPlan, ClusterChoice, ClusterPlan, ListenerTarget, RoutePlan};
use wire::http1::{Framing, RequestParsed};

use crate::connection::{Connection, Next};
use crate::grpc::Grpc;
use crate::random::RequestId;
use crate::request_head::{Arrival, NoRequest, receive};
use crate::worker::{Incoming, Worker};
use crate::worker_plan::{ListenerLocal, WorkerPlan};
use crate::{answer, finish};

pub(crate) use progress::Progress;
pub(crate) use state::{CallSite, Exchange, next_after};

/// A request that has arrived, or the fault in its place.
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
        Ok(parsed) => match exchange.begin(parsed) {
            Ok(route) => exchange.proceed(route).await,
            Err(fault) => Err(fault),
        },
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
        Err(fault) => Box::pin(exchange.end_or_go_on(fault)).await,
    };
    finish::finish(exchange, end)
}

impl<'p> Exchange<'p> {
    /// Finds the route of the request that is here.
    #[inline]
    fn begin(&mut self, parsed: RequestParsed) -> Result<&'p RoutePlan, Fault> {
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
        self.route()
    }

    /// The story. A fault is answered and recorded by the caller.
    async fn proceed(&mut self, route: &'p RoutePlan) -> Result<Next, Fault> {
        if self.connection.is_early {
            // Boxed: it is rare, and its state would make every exchange larger.
            Box::pin(self.settle_early(route)).await?;
        }
        if route.chain.has_request_steps() {
            let mut place = 0;
            let mut flow = self.filter_request(route, &mut place);
            if let Flow::Need(need) = flow {
                // Boxed: it is rare, and its state would make every exchange larger.
                flow = Box::pin(self.meet_needs(route, &mut place, need)).await?;
            }
            if let Flow::Stored(served) = flow {
                // Boxed: it is rare, and its state would make every exchange larger.
                return Box::pin(self.give_stored(route, place, served)).await;
            }
            if let Flow::Stream(streamed) = flow {
                // Boxed: it is rare, and its state would make every exchange larger.
                return Box::pin(answer::stream(self, *streamed)).await;
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
                let local = {
                    let (facts, mut scratch) = (self.facts(), self.worker.scratch.borrow_mut());
                    redirect.respond(&self.incoming.head, self.noted(&facts), &mut scratch)
                };
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

    /// Sets the client, the request's id and the bound on its time, before anything is decided.
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
        // After removal of the client's own fields, of which one may have this name.
        if let Some(name) = &self.listener.identity
            && let Some(subject) = facts.tls.as_ref().and_then(|tls| tls.client_subject.as_ref())
        {
            head.fields.append(name, subject.as_bytes());
        }
    }

    fn route(&mut self) -> Result<&'p RoutePlan, Fault> {
        let ListenerTarget::Http(router) = &self.listener.plan.target else { return Err(Fault::NoRoute) };
        if router.has_expressions() {
            // Where the body is needed first, the search goes on as after a fault: see `end_or_go_on`.
            let route = self.look_up(router, true).ok().flatten().ok_or(Fault::NoRoute)?;
            self.take_route(route);
            return Ok(route);
        }
        let caller = Caller { client: self.client, sender: self.connection.facts.sender.as_deref(), seen: None };
        let mut scratch = self.worker.scratch.borrow_mut();
        let route = router.find(&self.incoming.head, caller, &mut scratch).ok_or(Fault::NoRoute)?;
        self.take_route(route);
        Ok(route)
    }

    /// Notes the route, and its bound on the time.
    #[inline]
    fn take_route(&mut self, route: &'p RoutePlan) {
        self.progress.route = Some(route);
        if route.timeout.is_some() || self.grpc.is_some() {
            let bound = route.timeout.map(|timeout| self.progress.begun + timeout);
            let bound = self.grpc.as_ref().map_or(bound, |grpc| grpc.bound(bound));
            self.connection.watch.set_bound(bound);
        }
    }

    /// The cluster of the route, if it has any.
    pub(crate) fn cluster_of(&self, route: &'p RoutePlan) -> Option<&'p Arc<ClusterPlan>> {
        match &route.action {
            ActionPlan::Cluster(cluster) => Some(cluster),
            ActionPlan::Weighted(clusters) => Some(self.choose_cluster(clusters)),
            ActionPlan::Choice(clusters) => self.named_cluster(clusters).ok(),
            ActionPlan::Respond(_) | ActionPlan::Redirect(_) => None,
        }
    }

    /// The cluster that the request names, of those that its route allows.
    fn named_cluster(&self, clusters: &'p ClusterChoice) -> Result<&'p Arc<ClusterPlan>, Fault> {
        let mut scratch = self.worker.scratch.borrow_mut();
        clusters.choose(&self.incoming.head, self.noted(&self.facts()), &mut scratch).ok_or(Fault::UnknownCluster)
    }
}
