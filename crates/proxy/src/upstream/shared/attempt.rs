//! Attempts at an endpoint that may speak HTTP/2 or HTTP/3.

use model::Fault;
use model::limits::REFUSED_STREAMS_MAX;
use plan::{ClusterPlan, EndpointPlan};

use super::checkout::{Checkout, NotReady};
use crate::connection::Next;
use crate::exchange::Exchange;
use crate::upstream::Line;
use crate::upstream::connect::attended;
use crate::upstream::hedge_connect::{self, line_to_either};
use crate::worker_plan::{ClusterLocal, EndpointLocal};

impl<'p> Exchange<'p> {
    /// As `attempt`, for an endpoint that may speak HTTP/2 or HTTP/3. A request whose stream was refused, or which is beyond the last
    /// stream of a GOAWAY, is sent again whatever its method (RFC 9113 section 8.7, RFC 9114 section 4.1.1).
    pub(crate) async fn attempt_shared(
        &mut self,
        (cluster, local): (&'p ClusterPlan, &'p ClusterLocal),
        (endpoint, endpoint_local): (&'p EndpointPlan, &'p EndpointLocal),
    ) -> Result<Next, Fault> {
        let (mut anew, mut is_fresh) = (0, false);
        loop {
            // A hedge may have moved it to another endpoint.
            let (endpoint, endpoint_local) = self
                .progress
                .endpoint
                .map_or((endpoint, endpoint_local), |(endpoint, endpoint_local)| (endpoint, &**endpoint_local));
            let line = self.line(local, (endpoint, endpoint_local), is_fresh).await?;
            let (endpoint, endpoint_local) = self
                .progress
                .endpoint
                .map_or((endpoint, endpoint_local), |(endpoint, endpoint_local)| (endpoint, &**endpoint_local));
            // Without its place, all its attempts have failed.
            let may_go_on = |exchange: &Self| anew < REFUSED_STREAMS_MAX && exchange.lease.is_some();
            match self.converse(cluster, line, (endpoint, endpoint_local)).await {
                Err(Fault::StreamRefused) if self.is_replayable() && may_go_on(self) => {}
                Err(Fault::StaleConnection) if self.may_send_again() && may_go_on(self) => is_fresh = true,
                other => return other,
            }
            anew += 1;
            self.progress.received_bytes = 0;
            self.progress.look();
        }
    }

    /// A line to an endpoint that may speak HTTP/2 or HTTP/3, or to another that is connected sooner.
    async fn line(
        &mut self,
        local: &'p ClusterLocal,
        to: (&'p EndpointPlan, &'p EndpointLocal),
        is_fresh: bool,
    ) -> Result<Line, Fault> {
        let checkout = Checkout::new(self, local, to, is_fresh).ok_or(Fault::NoEndpoint)?;
        let missing = match checkout.at_once(self.progress.now) {
            Ok(line) => return Ok(line),
            Err(missing) => missing,
        };
        match hedge_connect::rules(self, local) {
            None => self.wait_for_line(&checkout, missing).await,
            // Boxed: it is rare, and its state would make every exchange larger.
            Some(rules) => Box::pin(line_to_either(self, local, rules, to, checkout.later(missing))).await,
        }
    }

    async fn wait_for_line(&mut self, checkout: &Checkout<'_>, missing: NotReady) -> Result<Line, Fault> {
        let begun = self.progress.now;
        // Boxed: connecting is rare, and its state would make every exchange larger.
        let mut work = Box::pin(checkout.wait(missing));
        let line = attended(work.as_mut(), self.connection, checkout.timeout).await;
        let now = self.progress.look();
        self.progress.phases.connect += now - begun;
        if matches!(line, Err(Fault::TotalTimeout)) {
            self.witness_lateness();
        }
        if line.is_err() && checkout.is_known.get() {
            self.witness_known();
        }
        line
    }
}
