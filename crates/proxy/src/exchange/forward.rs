//! Forwards an exchange: picks an endpoint, gets a connection to it, sends the request and relays the response, and again if the
//! rules for retries say so.

use std::rc::Rc;
use std::time::Duration;

use model::Fault;
use model::queue::Precedence;
use model::resilience::Hedge;
use plan::{Ask, ClusterPlan, EndpointPlan, Subset};

use super::state::Exchange;
use crate::admission::{Admission, Admitted, Aim, Entrant, Place};
use crate::connection::Next;
use crate::persistence::seed;
use crate::upstream::connect::{Target, connect};
use crate::upstream::conversation::Conversation;
use crate::upstream::hedge_connect::{self, line_to_either};
use crate::upstream::hedge_line::line_beside;
use crate::upstream::{Line, UpstreamConnection};
use crate::worker_plan::{ClusterLocal, EndpointLocal};

impl<'p> Exchange<'p> {
    /// Tries endpoints until one has answered, or the rules for retries end it.
    pub(crate) async fn forward(&mut self, local: &'p Rc<ClusterLocal>) -> Result<Next, Fault> {
        if self.is_given_up().await {
            return Err(Fault::ClosedInWait);
        }
        let cluster = &*local.plan;
        let head = &self.incoming.head;
        let key = cluster.key(head, self.client);
        let subset = self.progress.route.map_or(Subset::ALL, |route| route.subset(cluster, head));
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
            if !self.incoming.notes.mirrors.is_empty() {
                self.begin_mirrors();
            }
            let fault = match self.attempt(aim).await {
                Ok(next) => return Ok(next),
                Err(Fault::Redirected) if self.incoming.notes.set_again(false) => {
                    // Once: it is no longer one for a slice.
                    self.leave_endpoint();
                    failed = None;
                    continue;
                }
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
}
