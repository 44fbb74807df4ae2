//! Checks a line out for an exchange with an endpoint that may speak HTTP/2 or HTTP/3: a stream on a connection that others use too,
//! or a connection of its own.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Fault;
use model::snapshot::Endpoint;
use model::socket::ClusterSocket;
use plan::EndpointPlan;

use super::connections::{Found, SharedConnections, Waiting};
use super::dial::{Dialing, dial};
use super::permit::StreamPermit;
use crate::buffer::BufferPool;
use crate::connection::ConnectionFacts;
use crate::exchange::Exchange;
use crate::http2::websocket;
use crate::http3::Outgoing;
use crate::tls::ClusterTls;
use crate::upstream::Line;
use crate::upstream::connect::{Connecting, Target, establish};
use crate::upstream::opening::Opening;
use crate::worker_plan::{ClusterLocal, EndpointLocal};

/// Connections that one attempt waits for, one after the other.
const ROUNDS_MAX: u32 = 8;

/// What a line is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    Message,
    WebSocket,
    /// Another protocol, which a stream has no way to ask for.
    Upgrade,
}

impl Aim {
    fn of(exchange: &Exchange<'_>) -> Self {
        match exchange.wants_upgrade() {
            false => Self::Message,
            true if websocket::is_asked_for(&exchange.incoming.head, exchange.request.framing) => Self::WebSocket,
            true => Self::Upgrade,
        }
    }
}

/// What it takes to check out a line to an endpoint.
pub(crate) struct Checkout<'p> {
    worker: usize,
    buffers: &'p Rc<BufferPool>,
    client: Rc<ConnectionFacts>,
    endpoint: &'p EndpointPlan,
    endpoint_local: &'p EndpointLocal,
    connections: &'p Rc<SharedConnections>,
    socket: &'p ClusterSocket,
    tls: Option<&'p Arc<ClusterTls>>,
    outgoing: &'p Rc<Outgoing>,
    pub(super) timeout: Duration,
    aim: Aim,
    /// No idle connection, which may be dead.
    is_fresh: bool,
    /// Another exchange that waited for the same connection has reported its failure.
    pub(super) is_known: Cell<bool>,
}

/// What the exchange waits for when no line is ready.
pub(crate) enum NotReady {
    Connection(Waiting),
    /// One of HTTP/1.1, which is the caller's alone: what the endpoint has chosen before.
    Http1,
    /// The same, because HTTP/2 does not serve the purpose there.
    Http1Only,
}

impl<'p> Checkout<'p> {
    /// `None`: the endpoint speaks HTTP/1.1 only.
    pub(crate) fn new(
        exchange: &Exchange<'p>,
        local: &'p ClusterLocal,
        (endpoint, endpoint_local): (&'p EndpointPlan, &'p EndpointLocal),
        is_fresh: bool,
    ) -> Option<Self> {
        let cluster = &local.plan.cluster;
        Some(Self {
            worker: exchange.worker.index,
            buffers: &exchange.worker.buffers,
            client: exchange.connection.facts.clone(),
            endpoint,
            endpoint_local,
            connections: endpoint_local.pool.shared.as_ref()?,
            socket: &cluster.socket,
            tls: local.tls.as_ref(),
            outgoing: &exchange.worker.outgoing,
            timeout: cluster.timeouts.connect,
            aim: Aim::of(exchange),
            is_fresh,
            is_known: Cell::new(false),
        })
    }

    /// A line that is there.
    pub(crate) fn at_once(&self, now: Instant) -> Result<Line, NotReady> {
        // Where endpoints choose the version, some have chosen HTTP/1.1.
        if !self.is_fresh
            && let Some(kept) = self.endpoint_local.pool.take(now, &self.client, || None)
        {
            self.endpoint_local.series.of(self.worker).reused.add(1);
            return Ok(Line::Http1(kept));
        }
        let serves = match self.aim {
            _ if self.connections.shared.is_only => true,
            Aim::Message => true,
            Aim::WebSocket => self.connections.offers_upgrades() != Some(false),
            Aim::Upgrade => false,
        };
        if !serves {
            return Err(NotReady::Http1Only);
        }
        match self.connections.find(!self.is_fresh) {
            Found::Permit(permit) => self.take(permit),
            Found::Waiting(waiting) => Err(NotReady::Connection(waiting)),
            Found::Dial(waiting, begun) => {
                let how = Dialing {
                    endpoint: Endpoint::clone(&self.endpoint.endpoint),
                    socket: self.socket.clone(),
                    tls: self.tls.cloned(),
                    timeout: self.timeout,
                    series: self.endpoint_local.series.clone(),
                    worker: self.worker,
                    buffers: self.buffers.clone(),
                    outgoing: self.outgoing.clone(),
                };
                dial(self.connections, begun, how);
                Err(NotReady::Connection(waiting))
            }
            Found::Http1 => Err(NotReady::Http1),
        }
    }

    /// Takes a permit, unless the exchange wants an upgrade that this endpoint offers over HTTP/1.1 only. If the endpoint speaks nothing
    /// else, the conversation fails later.
    fn take(&self, permit: Box<StreamPermit>) -> Result<Line, NotReady> {
        let serves = self.aim == Aim::Message || self.connections.shared.is_only || permit.offers_upgrades();
        if !serves {
            return Err(NotReady::Http1Only);
        }
        if permit.is_reused {
            self.endpoint_local.series.of(self.worker).reused.add(1);
        }
        Ok(Line::Shared(permit))
    }

    /// Waits until there is a line. The caller bounds the time.
    ///
    /// # Errors
    /// The connection that was waited for could not be made, or others took its room, again and again.
    pub(super) async fn wait(&self, mut missing: NotReady) -> Result<Line, Fault> {
        let mut has_failed = false;
        for _ in 0..ROUNDS_MAX {
            let got = match &missing {
                NotReady::Connection(waiting) => match poll_fn(|cx| waiting.poll(cx)).await {
                    Ok(got) => got,
                    // One failure is no reason that all who came for the connection fail.
                    Err(missed) if missed.is_known && !has_failed => {
                        has_failed = true;
                        None
                    }
                    Err(missed) => {
                        self.is_known.set(missed.is_known);
                        return Err(missed.fault);
                    }
                },
                NotReady::Http1 => self.connect_http1(false).await?,
                NotReady::Http1Only => self.connect_http1(true).await?,
            };
            let next = match got {
                Some(Line::Shared(permit)) => self.take(permit),
                Some(line) => return Ok(line),
                None => self.at_once(Instant::now()),
            };
            match next {
                Ok(line) => return Ok(line),
                Err(other) => missing = other,
            }
        }
        Err(Fault::ConnectTimeout)
    }

    /// The same for a hedge, within the time to connect.
    pub(crate) fn later(self, missing: NotReady) -> Connecting<'p> {
        Box::pin(async move {
            let waited = tokio::time::timeout(self.timeout, self.wait(missing)).await;
            waited.unwrap_or(Err(Fault::ConnectTimeout))
        })
    }

    /// `None`: this time the endpoint has chosen HTTP/2. If `only` HTTP/1.1 will do, it is not offered anything else.
    async fn connect_http1(&self, only: bool) -> Result<Option<Line>, Fault> {
        let tls = self.tls.map(|tls| if only { tls.http1() } else { &**tls });
        let target = Target { endpoint: &self.endpoint.endpoint, socket: self.socket, tls };
        let connected = establish(target, Opening::default()).await;
        let shard = self.endpoint_local.series.of(self.worker);
        match &connected {
            Ok(_) => shard.connects_opened.add(1),
            Err(_) => shard.connects_failed.add(1),
        }
        let connection = match connected {
            // It speaks HTTP/2, and nothing else.
            Err(Fault::UpstreamHandshakeFailed) if only && self.connections.offers_upgrades().is_some() => {
                return Err(Fault::UpgradeNotOffered);
            }
            connected => connected?,
        };
        if connection.io.has_chosen_http2() {
            self.connections.forget_http1();
            return Ok(None);
        }
        Ok(Some(Line::Http1(connection)))
    }
}
