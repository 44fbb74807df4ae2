//! A line to an endpoint that is got while another is waited for.

use std::time::Instant;

use model::Fault;
use plan::EndpointPlan;

use super::connect::{Connecting, Target, establish};
use super::connection::Line;
use super::shared::checkout::Checkout;
use crate::exchange::Exchange;
use crate::worker_plan::{ClusterLocal, EndpointLocal};

/// Gets a line beside what else is done for a client, within the time to connect: at once, or in a while. `at` is now if it may
/// be one that was idle.
pub(crate) fn line_beside<'p>(
    exchange: &Exchange<'p>,
    local: &'p ClusterLocal,
    (endpoint, endpoint_local): (&'p EndpointPlan, &'p EndpointLocal),
    at: Option<Instant>,
) -> Result<Line, Connecting<'p>> {
    if let Some(checkout) = Checkout::new(exchange, local, (endpoint, endpoint_local), at.is_none()) {
        return checkout.at_once(at.unwrap_or_else(Instant::now)).map_err(|missing| checkout.later(missing));
    }
    let (worker, timeout) = (exchange.worker.index, local.plan.cluster.timeouts.connect);
    let shard = endpoint_local.series.of(worker);
    if let Some(kept) = at.and_then(|at| exchange.kept_for(local, endpoint_local, at)) {
        shard.reused.add(1);
        return Ok(Line::Http1(kept));
    }
    let opening = exchange.opening(&local.plan);
    let socket = &local.plan.cluster.socket;
    let target = Target { endpoint: &endpoint.endpoint, socket, tls: local.tls.as_deref() };
    Err(Box::pin(async move {
        let work = tokio::time::timeout(timeout, establish(target, opening));
        let connected = work.await.unwrap_or(Err(Fault::ConnectTimeout));
        match &connected {
            Ok(_) => shard.connects_opened.add(1),
            Err(_) => shard.connects_failed.add(1),
        }
        connected.map(Line::Http1)
    }))
}
