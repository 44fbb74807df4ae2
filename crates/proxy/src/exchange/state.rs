//! The state of an exchange, and what follows from it alone.

use std::net::IpAddr;
use std::time::Instant;

use model::fields::Known;
use model::snapshot::HttpListener;
use model::{Facts, Method, ResponseHead, Scheme, Version};
use plan::filter::Noted;
use plan::{ClusterPlan, Lease, Pass, Session};
use wire::http1::{Framing, RequestParsed};

use super::progress::Progress;
use crate::connection::{Connection, Next};
use crate::grpc::Grpc;
use crate::random::RequestId;
use crate::replay::Replay;
use crate::request_head::Arrival;
use crate::upstream::UpstreamConnection;
use crate::upstream::opening::{Opening, shown};
use crate::worker::{Incoming, Worker};
use crate::worker_plan::{ClusterLocal, EndpointLocal, ListenerLocal, WorkerPlan};

/// In place of a request that could not be parsed: no body is expected, and the connection is not kept alive.
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

/// One exchange in flight. `'p` is the plan that it follows from beginning to end.
pub(crate) struct Exchange<'p> {
    pub worker: &'p Worker,
    pub plan: &'p WorkerPlan,
    pub listener: &'p ListenerLocal,
    pub http: &'p HttpListener,
    pub connection: &'p mut Connection,
    pub incoming: Box<Incoming>,
    /// Set once a response arrives or is made.
    pub response: Option<Box<ResponseHead>>,
    pub request: RequestParsed,
    /// Whether `incoming` holds a request.
    pub is_parsed: bool,
    /// The request is read to its end, so that the client's next bytes are another request.
    pub is_read: bool,
    /// The scheme that the client used with the first trusted proxy, or with us.
    pub scheme: Scheme,
    pub client: IpAddr,
    pub request_id: RequestId,
    /// The place at the endpoint, held until the endpoint's part is done.
    pub lease: Option<Lease>,
    pub replay: Replay,
    /// Its share of the cluster's limits, if there are any.
    pub pass: Option<Pass>,
    /// Its session, in a cluster that has any.
    pub session: Option<Session>,
    /// Set if it is a call of gRPC.
    pub grpc: Option<Box<Grpc>>,
    pub progress: Progress<'p>,
}

/// The listener and client of an exchange, as a call of one of its filters needs them.
pub(crate) struct CallSite<'p> {
    pub worker: &'p Worker,
    pub plan: &'p WorkerPlan,
    pub listener: &'p ListenerLocal,
    pub http: &'p HttpListener,
    pub scheme: Scheme,
    pub client: IpAddr,
    pub request_id: RequestId,
}

impl<'p> Exchange<'p> {
    pub(super) fn new(
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

    /// Returns what a call of a filter of this exchange needs.
    pub(crate) fn call_site(&self) -> CallSite<'p> {
        let Self { worker, plan, listener, http, scheme, client, request_id, .. } = *self;
        CallSite { worker, plan, listener, http, scheme, client, request_id }
    }

    /// Returns an exchange for a call of a filter, whose request is whole.
    pub(crate) fn of_call(site: CallSite<'p>, connection: &'p mut Connection, incoming: Box<Incoming>) -> Self {
        let exchange = Self::new(site, connection, incoming, Progress::new(&Arrival::default()));
        Self { is_parsed: true, is_read: true, ..exchange }
    }
}

impl Exchange<'_> {
    /// The facts of the exchange beside its heads.
    pub(super) fn facts(&self) -> Facts<'_> {
        let facts = self.connection.facts.facts_by(self.scheme, self.client, self.request_id.as_str());
        Facts { user: self.incoming.notes.user(), ..facts }
    }

    /// Returns what is known beside its head, with what filters have noted.
    pub(super) fn noted<'n>(&'n self, facts: &'n Facts<'n>) -> Noted<'n> {
        Noted { facts, notes: &self.incoming.notes, now: self.progress.now }
    }

    /// The endpoint of this cluster that authenticates the client by its connection: all steps of that must go to the same endpoint.
    pub(crate) fn authenticated_at(&self, cluster: &ClusterPlan) -> Option<u32> {
        let slot = self.connection.facts.authenticated_at.get()?;
        let place = cluster.endpoints.iter().position(|endpoint| endpoint.state.slot == slot)?;
        u32::try_from(place).ok()
    }

    /// Returns what a new connection to an endpoint of `cluster` begins with.
    pub(crate) fn opening(&self, cluster: &ClusterPlan) -> Opening {
        let request = (&self.incoming.head, &self.incoming.notes);
        Opening::new(cluster, &self.connection.facts, &self.facts(), Some(request))
    }

    /// Takes an idle connection to an endpoint of this cluster, if there is one that this exchange may use.
    pub(crate) fn kept_for(
        &self,
        local: &ClusterLocal,
        endpoint_local: &EndpointLocal,
        at: Instant,
    ) -> Option<UpstreamConnection> {
        let shows = || shown(&local.plan, &self.facts(), (&self.incoming.head, &self.incoming.notes));
        endpoint_local.pool.take(at, &self.connection.facts, shows)
    }

    /// Returns whether the request may be sent again after its connection died: it is idempotent, and nothing of it is gone.
    pub(crate) fn may_send_again(&self) -> bool {
        self.incoming.head.method.is_idempotent() && self.is_replayable()
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
        // A stream has its method even if the rest is malformed.
        let head = &self.incoming.head;
        (self.is_parsed || head.version >= Version::Http2) && head.received_method() == Method::Head
    }

    /// The response head.
    pub(crate) fn response(&mut self) -> &mut ResponseHead {
        self.response.get_or_insert_with(|| self.worker.take_response())
    }

    /// Whether the request asks for another protocol that a tunnel could carry.
    pub(crate) fn wants_upgrade(&self) -> bool {
        self.request.upgrade && self.incoming.head.fields.has_known(Known::Upgrade)
    }
}

/// Returns what follows on the client's connection after a response. `keeps_alive` is what the response said.
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
