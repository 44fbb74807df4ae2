//! A second endpoint beside one that is slow to connect: the request goes to the first that is connected. Nothing was sent to the other,
//! so this is safe for all methods. Nothing of this is touched while a cluster and a route have no `hedge`.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use model::Fault;
use model::resilience::Hedge;
use plan::{EndpointPlan, Lease, Pass, Seen};
use tokio::time::Sleep;

use super::Line;
use super::connect::Connecting;
use super::hedge_line::line_beside;
use super::hedge_rules::{self, rules_of, take_place};
use crate::exchange::Exchange;
use crate::worker_plan::{ClusterLocal, EndpointLocal};

/// The rules for a connection that is made for an exchange, and how long it may take alone.
pub(crate) fn rules<'p>(exchange: &Exchange<'p>, local: &'p ClusterLocal) -> Option<(&'p Hedge, Duration)> {
    let rules = rules_of(exchange, local)?;
    let is_first = exchange.progress.retries == 0 && exchange.progress.hedges == 0;
    if !is_first || local.plan.endpoints.len() < 2 {
        return None;
    }
    let after = local.hedging.borrow().after(rules)?;
    Some((rules, after))
}

/// Waits for the `first` line, to the endpoint that was picked, and asks another one too when that takes longer than `after`. The
/// exchange is then at the one whose line is given, [`crate::exchange::Progress::endpoint`].
///
/// # Errors
/// As [`super::connect::connect`]; that of the first endpoint when both fail.
pub(crate) async fn line_to_either<'p>(
    exchange: &mut Exchange<'p>,
    local: &'p ClusterLocal,
    (rules, after): (&'p Hedge, Duration),
    (endpoint, endpoint_local): (&'p EndpointPlan, &'p EndpointLocal),
    first: Connecting<'p>,
) -> Result<Line, Fault> {
    let begun = exchange.progress.now;
    if hedge_rules::rules(exchange, local).is_none() || !exchange.is_replayable() {
        // Others that may be hedged have earned their share of the budget already.
        local.hedging.borrow_mut().earn(rules);
    }
    // Each of both has a time of its own, which ends first.
    let connect = local.plan.cluster.timeouts.connect;
    exchange.connection.watch.set(begun, after.saturating_add(connect.saturating_mul(2)));
    let alarm = Some(Box::pin(tokio::time::sleep_until((begun + after).into())));
    let mut race =
        Race { rules, local, endpoint, endpoint_local, alarm, first: Some(first), failed: None, rival: None };
    let outcome = poll_fn(|cx| race.poll(cx, exchange)).await;
    let at = exchange.progress.look();
    exchange.progress.phases.connect += at - begun;
    if matches!(outcome, Err(Fault::TotalTimeout)) {
        exchange.witness_lateness();
        race.witness_lateness(exchange);
    }
    outcome
}

/// Two lines on their way.
struct Race<'p> {
    rules: &'p Hedge,
    local: &'p ClusterLocal,
    endpoint: &'p EndpointPlan,
    endpoint_local: &'p EndpointLocal,
    /// Rings when another may be asked.
    alarm: Option<Pin<Box<Sleep>>>,
    first: Option<Connecting<'p>>,
    /// How the first failed, while the rival goes on.
    failed: Option<Fault>,
    rival: Option<Rival<'p>>,
}

struct Rival<'p> {
    endpoint: &'p EndpointPlan,
    endpoint_local: &'p Rc<EndpointLocal>,
    lease: Lease,
    pass: Option<Pass>,
    line: Result<Line, Connecting<'p>>,
}

impl<'p> Race<'p> {
    fn poll(&mut self, cx: &mut TaskContext<'_>, exchange: &mut Exchange<'p>) -> Poll<Result<Line, Fault>> {
        if let Some(first) = &mut self.first
            && let Poll::Ready(done) = first.as_mut().poll(cx)
        {
            match done {
                Ok(line) => return Poll::Ready(Ok(line)),
                Err(fault) => self.lose_first(exchange, fault),
            }
        }
        if let Some(line) = self.poll_rival(cx, exchange) {
            return Poll::Ready(Ok(line));
        }
        if self.first.is_some() && self.rings(cx) {
            self.alarm = None;
            self.add_rival(exchange);
            if let Some(line) = self.poll_rival(cx, exchange) {
                return Poll::Ready(Ok(line));
            }
        }
        match self.failed {
            Some(fault) if self.rival.is_none() => Poll::Ready(Err(fault)),
            _ => poll_patience(cx, exchange).map(Err),
        }
    }

    fn rings(&mut self, cx: &mut TaskContext<'_>) -> bool {
        self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready())
    }

    fn lose_first(&mut self, exchange: &mut Exchange<'p>, fault: Fault) {
        self.first = None;
        self.failed = Some(fault);
        if self.rival.is_some() {
            exchange.witness_fault(fault);
            exchange.leave_endpoint();
        }
    }

    /// The line of the rival, to which the exchange then goes.
    fn poll_rival(&mut self, cx: &mut TaskContext<'_>, exchange: &mut Exchange<'p>) -> Option<Line> {
        let Rival { lease, pass, line, endpoint, endpoint_local } = self.rival.take()?;
        let done = match line {
            Ok(line) => Ok(line),
            Err(mut connecting) => match connecting.as_mut().poll(cx) {
                Poll::Ready(done) => done,
                Poll::Pending => {
                    self.rival = Some(Rival { lease, pass, line: Err(connecting), endpoint, endpoint_local });
                    return None;
                }
            },
        };
        match done {
            Ok(line) => {
                self.crown(exchange, (endpoint, endpoint_local), lease, pass);
                Some(line)
            }
            Err(fault) => {
                self.lose_rival(exchange, (endpoint, endpoint_local), pass, fault);
                None
            }
        }
    }

    fn lose_rival(
        &self,
        exchange: &mut Exchange<'p>,
        (endpoint, endpoint_local): (&EndpointPlan, &EndpointLocal),
        mut pass: Option<Pass>,
        fault: Fault,
    ) {
        endpoint_local.series.of(exchange.worker.index).fault(fault);
        exchange.replay.tried.push(endpoint.state.slot);
        let at = exchange.progress.look();
        if fault.consequence().against_health {
            self.local.plan.witness(&endpoint.state, Seen::Failed, at);
            self.local.plan.tell_circuit(&mut pass, false, at);
        }
    }

    /// Asks one more endpoint, if there is another with room and the budget allows it.
    fn add_rival(&mut self, exchange: &mut Exchange<'p>) {
        let at = exchange.progress.look();
        let local = self.local;
        let shard = local.series.of(exchange.worker.index);
        if !local.hedging.borrow_mut().affords(self.rules, at) {
            shard.hedges_refused.add(1);
            return;
        }
        let Some((lease, pass)) = take_place(exchange, local, &[self.endpoint.state.slot]) else { return };
        let endpoint = &local.plan.endpoints[lease.endpoint_index()];
        let Some(endpoint_local) = exchange.plan.endpoint(&endpoint.state) else { return };
        let is_paid = local.hedging.borrow_mut().spend(self.rules, at);
        debug_assert!(is_paid, "no other task takes from it meanwhile");
        shard.hedges.add(1);
        shard.picked(lease.reason());
        exchange.progress.hedges += 1;
        // Not one that was idle, of which nobody knows whether it still works.
        let line = line_beside(exchange, local, (endpoint, endpoint_local), None);
        self.rival = Some(Rival { endpoint, endpoint_local, lease, pass, line });
    }

    /// From here on the exchange is at the rival's endpoint.
    fn crown(
        &self,
        exchange: &mut Exchange<'p>,
        (endpoint, endpoint_local): (&'p EndpointPlan, &'p Rc<EndpointLocal>),
        lease: Lease,
        pass: Option<Pass>,
    ) {
        let index = exchange.worker.index;
        if let Some(fault) = self.failed {
            self.endpoint_local.series.of(index).fault(fault);
        }
        if let Some(session) = &exchange.session {
            exchange.progress.session = session.outcome(Some(lease.endpoint_index()));
        }
        exchange.replay.tried.push(self.endpoint.state.slot);
        exchange.progress.pick = Some(lease.reason());
        exchange.lease = Some(lease);
        exchange.pass = pass;
        exchange.progress.endpoint = Some((endpoint, endpoint_local));
        exchange.progress.is_witnessed = false;
        self.local.series.of(index).hedges_won.add(1);
    }

    /// The rival kept the client waiting as well, and was let in by itself.
    fn witness_lateness(&mut self, exchange: &mut Exchange<'p>) {
        if let Some(rival) = &mut self.rival
            && !exchange.is_bounded_by_client()
        {
            self.local.plan.tell_circuit(&mut rival.pass, false, exchange.progress.look());
        }
    }
}

/// Ready when the client has gone or the time for the whole exchange is over.
fn poll_patience(cx: &mut TaskContext<'_>, exchange: &mut Exchange<'_>) -> Poll<Fault> {
    let connection = &mut *exchange.connection;
    if connection.io.poll_reset(cx).is_ready() {
        return Poll::Ready(Fault::ClosedInWait);
    }
    connection.watch.poll(cx).map(|()| connection.watch.fault(Fault::ConnectTimeout))
}
