//! How an exchange gets to an endpoint that may speak HTTP/2: a stream on a connection that others use too.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use model::Fault;
use model::limits::REFUSED_STREAMS_MAX;
use model::socket::ClusterSocket;
use plan::{ClusterPlan, EndpointPlan};

use super::dial::{Dialing, dial};
use super::trunk::{Found, Trunks, Waiting};
use crate::downstream::http1::Next;
use crate::exchange::Exchange;
use crate::tls::UpstreamTlsNow;
use crate::upstream::Line;
use crate::upstream::connect::{Target, attended, establish};
use crate::upstream::hedge_connect::{self, line_to_either};
use crate::upstream::opening::Opening;
use crate::worker_plan::{ClusterNow, EndpointNow};

/// Connections that one attempt waits for, one after the other.
const ROUNDS_MAX: u32 = 8;

/// What is needed to get to an endpoint.
pub(crate) struct Wanted<'p> {
    pub worker: usize,
    pub endpoint: &'p EndpointPlan,
    pub side: &'p EndpointNow,
    pub trunks: &'p Rc<Trunks>,
    pub socket: &'p ClusterSocket,
    pub tls: Option<&'p Arc<UpstreamTlsNow>>,
    pub timeout: Duration,
}

/// What is to be waited for where there is no line at once.
pub(crate) enum Missing {
    Connection(Waiting),
    /// One of HTTP/1.1, which is the caller's alone.
    Http1,
}

impl Wanted<'_> {
    /// A line that is there.
    pub(crate) fn at_once(&self, now: std::time::Instant) -> Result<Line, Missing> {
        let shard = self.side.series.of(self.worker);
        // Where endpoints choose the version, some have chosen HTTP/1.1.
        if let Some(kept) = self.side.pool.take_shared(now) {
            shard.reused.add(1);
            return Ok(Line::Http1(kept));
        }
        match self.trunks.find() {
            Found::Berth(berth) => {
                if berth.is_reused {
                    shard.reused.add(1);
                }
                Ok(Line::Http2(berth))
            }
            Found::Waiting(waiting) => Err(Missing::Connection(waiting)),
            Found::Dial(waiting, begun) => {
                let how = Dialing {
                    endpoint: self.endpoint.endpoint.clone(),
                    socket: self.socket.clone(),
                    tls: self.tls.cloned(),
                    timeout: self.timeout,
                    series: self.side.series.clone(),
                    worker: self.worker,
                };
                dial(self.trunks, begun, how);
                Err(Missing::Connection(waiting))
            }
            Found::Http1 => Err(Missing::Http1),
        }
    }

    /// Waits until there is a line. The caller bounds the time.
    ///
    /// # Errors
    /// The connection that was waited for could not be made, or others took its room, again and again.
    pub(crate) async fn wait(&self, mut missing: Missing) -> Result<Line, Fault> {
        for _ in 0..ROUNDS_MAX {
            match missing {
                Missing::Connection(waiting) => {
                    poll_fn(|cx| waiting.poll(cx)).await?;
                    if let Some(connection) = waiting.take_http1() {
                        return Ok(Line::Http1(connection));
                    }
                }
                Missing::Http1 => {
                    if let Some(line) = self.connect_http1().await? {
                        return Ok(line);
                    }
                }
            }
            match self.at_once(std::time::Instant::now()) {
                Ok(line) => return Ok(line),
                Err(other) => missing = other,
            }
        }
        Err(Fault::StreamRefused)
    }

    /// `None`: this time the endpoint has chosen HTTP/2.
    async fn connect_http1(&self) -> Result<Option<Line>, Fault> {
        let tls = self.tls.map(|tls| &**tls);
        let target = Target { endpoint: &self.endpoint.endpoint, socket: self.socket, tls };
        let connected = establish(target, Opening::default()).await;
        let shard = self.side.series.of(self.worker);
        match &connected {
            Ok(_) => shard.connects_opened.add(1),
            Err(_) => shard.connects_failed.add(1),
        }
        let connection = connected?;
        if connection.io.has_chosen_http2() {
            self.trunks.forget_http1();
            return Ok(None);
        }
        Ok(Some(Line::Http1(connection)))
    }
}

impl<'p> Exchange<'p> {
    /// As `attempt`, for an endpoint that may speak HTTP/2. A request whose stream the endpoint refused, or that it will
    /// not look at since it has said goodbye, is sent anew whatever its method (RFC 9113 section 8.7).
    pub(crate) async fn attempt_http2(
        &mut self,
        (cluster, now): (&'p ClusterPlan, &'p ClusterNow),
        (endpoint, side): (&'p EndpointPlan, &'p EndpointNow),
        trunks: &'p Rc<Trunks>,
    ) -> Result<Next, Fault> {
        let (worker, timeout) = (self.worker.index, cluster.cluster.timeouts.connect);
        let socket = &cluster.cluster.socket;
        let wanted = Wanted { worker, endpoint, side, trunks, socket, tls: now.tls.as_ref(), timeout };
        let mut anew = 0;
        loop {
            let line = match wanted.at_once(self.told.now) {
                Ok(line) => line,
                Err(missing) => match hedge_connect::rules(self, now) {
                    None => self.wait_for_line(&wanted, missing).await?,
                    // Boxed: it is rare, and its state would make every exchange larger.
                    Some(rules) => Box::pin(line_to_either(self, now, rules, (endpoint, side))).await?,
                },
            };
            if let Some((other, side)) = self.told.endpoint.filter(|(other, _)| !std::ptr::eq(*other, endpoint)) {
                // A hedge has moved it to another endpoint.
                return self.converse(cluster, line, (other, side)).await;
            }
            match self.converse(cluster, line, (endpoint, side)).await {
                Err(Fault::StreamRefused) if self.is_replayable() && anew < REFUSED_STREAMS_MAX => {}
                Err(Fault::StaleConnection) if self.may_send_again() && anew < REFUSED_STREAMS_MAX => {}
                other => return other,
            }
            anew += 1;
            self.told.received_bytes = 0;
            self.told.look();
        }
    }

    async fn wait_for_line(&mut self, wanted: &Wanted<'_>, missing: Missing) -> Result<Line, Fault> {
        let begun = self.told.now;
        // Boxed: connecting is rare, and its state would make every exchange larger.
        let mut work = Box::pin(wanted.wait(missing));
        let line = attended(work.as_mut(), self.connection, wanted.timeout).await;
        let now = self.told.look();
        self.told.phases.connect += now - begun;
        if matches!(line, Err(Fault::TotalTimeout)) {
            self.witness_lateness();
        }
        line
    }
}
