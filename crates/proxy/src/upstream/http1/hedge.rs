//! The same request at another endpoint too, when the first takes long: the first response head wins, the others are
//! dropped with their connections. Nothing of this is touched while a cluster and a route have no `hedge`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use model::Fault;
use model::fault::Source;
use model::resilience::Hedge;
use plan::{Ask, EndpointPlan, Lease, Pass, Pick, Seen, Subset};
use tokio::time::Sleep;
use wire::http1::ResponseParsed;

use super::Conversation;
use crate::exchange::Exchange;
use crate::upstream::connect::connect_beside;
use crate::upstream::pool::UpstreamConnection;
use crate::worker_plan::{ClusterNow, EndpointNow};

/// The rules for an exchange, if it may be at more than one endpoint: the route's, else the cluster's.
pub(crate) fn rules<'p>(exchange: &Exchange<'p>, now: &'p ClusterNow) -> Option<&'p Hedge> {
    let own = exchange.told.route.and_then(|route| route.route.hedge.as_ref());
    let rules = own.or(now.plan.cluster.resilience.hedge.as_ref())?;
    let is_fit = rules.methods.allow(exchange.incoming.head.method) && !exchange.wants_upgrade();
    // What another endpoint would answer is not of the session, which would move there besides.
    let is_free = exchange.session.is_none_or(|session| session.pinned().is_none());
    (is_fit && is_free).then_some(rules)
}

/// Attempts of one exchange beside its first.
struct Race<'p> {
    rules: &'p Hedge,
    now: &'p ClusterNow,
    /// Rings when the next may begin; `None` when there is to be no other.
    alarm: Option<Pin<Box<Sleep>>>,
    after: Duration,
    rivals: Vec<Rival<'p>>,
    /// Slots of the endpoints that are asked.
    asked: Vec<u32>,
    /// How the first attempt failed, while others go on.
    failed: Option<Fault>,
}

/// An attempt beside the first.
struct Rival<'p> {
    endpoint: &'p EndpointPlan,
    side: &'p Rc<EndpointNow>,
    lease: Lease,
    pass: Option<Pass>,
    stage: Stage<'p>,
}

enum Stage<'p> {
    Connecting(Pin<Box<dyn Future<Output = Result<UpstreamConnection, Fault>> + 'p>>),
    Talking(Box<Conversation<'p>>),
}

impl<'p> Conversation<'p> {
    /// As `await_head`, with others beside it when it takes long. The conversation is then that with whoever won.
    pub(super) async fn await_first(
        &mut self,
        exchange: &mut Exchange<'p>,
        (rules, now): (&'p Hedge, &'p ClusterNow),
    ) -> Result<ResponseParsed, Fault> {
        let begun = exchange.told.now;
        let after = now.hedging.borrow().after(rules);
        let first = exchange.told.endpoint.map(|(endpoint, _)| endpoint.state.slot);
        let alarm = after.map(|after| Box::pin(tokio::time::sleep_until((begun + after).into())));
        let (rivals, asked) = (Vec::new(), first.into_iter().collect());
        let after = after.unwrap_or_default();
        let mut race = Race { rules, now, alarm, after, rivals, asked, failed: None };
        self.begin_waiting(exchange);
        let outcome = poll_fn(|cx| race.poll(cx, self, exchange)).await;
        for rival in race.rivals.drain(..) {
            rival.abandon(exchange);
        }
        let parsed = outcome?;
        self.note_first_byte(exchange);
        let took = exchange.told.now.saturating_duration_since(begun);
        now.hedging.borrow_mut().observe(rules, took);
        Ok(parsed)
    }

    /// Ends an attempt that lost. What the client sent ahead is kept.
    fn abandon(mut self, exchange: &mut Exchange<'p>) {
        let buffers = &exchange.worker.buffers;
        if let Some(leftover) = self.upload.take_leftover() {
            exchange.connection.received = Some(leftover);
        }
        self.upload.stop(buffers);
        if let Some(buffer) = self.inbound.take() {
            buffers.give(buffer);
        }
    }
}

impl<'p> Race<'p> {
    /// Ready when one has won and is the `first`, or all have failed.
    fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        first: &mut Conversation<'p>,
        exchange: &mut Exchange<'p>,
    ) -> Poll<Result<ResponseParsed, Fault>> {
        if self.failed.is_none()
            && let Poll::Ready(outcome) = first.poll_answer(cx, exchange)
        {
            match outcome {
                Err(fault) if fault.consequence().source == Source::Upstream && !self.rivals.is_empty() => {
                    exchange.witness_fault(fault);
                    exchange.lease = None;
                    first.upstream = None;
                    self.failed = Some(fault);
                }
                decided => return Poll::Ready(decided),
            }
        }
        // While an interim response of the first is on its way to the client, nobody else may answer.
        if first.interim.0.is_empty() {
            if let Some(parsed) = self.poll_rivals(cx, exchange) {
                let rival = self.rivals.remove(parsed.0);
                self.crown(rival, first, exchange);
                return Poll::Ready(Ok(parsed.1));
            }
            while self.rings(cx) {
                self.add_rival(exchange);
                if let Some(parsed) = self.poll_rivals(cx, exchange) {
                    let rival = self.rivals.remove(parsed.0);
                    self.crown(rival, first, exchange);
                    return Poll::Ready(Ok(parsed.1));
                }
            }
        }
        match self.failed {
            Some(fault) if self.rivals.is_empty() => Poll::Ready(Err(fault)),
            _ => first.poll_patience(cx, exchange).map(Err),
        }
    }

    fn rings(&mut self, cx: &mut TaskContext<'_>) -> bool {
        self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready())
    }

    /// The place of the rival that has a response head, and what it says. Those that failed go.
    fn poll_rivals(
        &mut self,
        cx: &mut TaskContext<'_>,
        exchange: &mut Exchange<'p>,
    ) -> Option<(usize, ResponseParsed)> {
        let mut place = 0;
        while place < self.rivals.len() {
            match self.rivals[place].poll(cx, exchange, self.now) {
                Poll::Pending => place += 1,
                Poll::Ready(Ok(parsed)) => {
                    let status = exchange.response().status;
                    // An error is no help while the first may still answer.
                    if status < 500 || self.failed.is_some() {
                        return Some((place, parsed));
                    }
                    let rival = self.rivals.remove(place);
                    rival.witness(exchange, self.now, Seen::Answered { status, latency: self.after });
                    rival.abandon(exchange);
                }
                Poll::Ready(Err(fault)) => {
                    let rival = self.rivals.remove(place);
                    rival.side.series.of(exchange.worker.index).fault(fault);
                    if fault.consequence().against_health {
                        rival.witness(exchange, self.now, Seen::Failed);
                    }
                    rival.abandon(exchange);
                }
            }
        }
        None
    }

    /// Sends the request to one more endpoint, if there is another with room and the budget allows it.
    fn add_rival(&mut self, exchange: &mut Exchange<'p>) {
        let at = exchange.told.look();
        self.alarm = None;
        let Some((lease, pass)) = self.take_place(exchange) else { return };
        let now = self.now;
        let endpoint = &now.plan.endpoints[lease.endpoint_index()];
        let Some(side) = exchange.plan.endpoint(&endpoint.state) else { return };
        let shard = now.series.of(exchange.worker.index);
        if !now.hedging.borrow_mut().spend(self.rules, at) {
            shard.hedges_refused.add(1);
            return;
        }
        shard.hedges.add(1);
        exchange.told.hedges += 1;
        self.asked.push(endpoint.state.slot);
        let stage = match side.pool.take(at) {
            Some(kept) => {
                side.series.of(exchange.worker.index).reused.add(1);
                match Conversation::begin(exchange, (&now.plan, endpoint, side), kept) {
                    Ok(conversation) => Stage::Talking(Box::new(conversation.beside())),
                    Err(_) => return,
                }
            }
            None => connecting(now, endpoint),
        };
        self.rivals.push(Rival { endpoint, side, lease, pass, stage });
        if exchange.told.hedges + 1 < self.rules.attempts_max {
            self.alarm = Some(Box::pin(tokio::time::sleep_until((at + self.after).into())));
        }
    }

    /// A place at an endpoint that is not asked yet, within the bounds of the cluster. Nothing is waited for.
    fn take_place(&self, exchange: &Exchange<'p>) -> Option<(Lease, Option<Pass>)> {
        let (plan, worker, head) = (&self.now.plan, exchange.worker, &exchange.incoming.head);
        let ask = Ask {
            tried: &self.asked,
            key: plan.key(head, exchange.client),
            now: exchange.told.now,
            subset: exchange.told.route.map_or(Subset::ALL, |route| plan.subset(route, head)),
            pinned: None,
        };
        let mut pass = None;
        plan.let_in(&mut pass, ask.now).and_then(|()| plan.occupy(&mut pass)).ok()?;
        match plan.pick(&mut self.now.cache.borrow_mut(), &mut || worker.random.next(), &ask) {
            Pick::Endpoint(lease) if !self.asked.contains(&lease.state().slot) => Some((lease, pass)),
            _ => None,
        }
    }

    /// From here on the exchange is that with `rival`.
    fn crown(&mut self, rival: Rival<'p>, first: &mut Conversation<'p>, exchange: &mut Exchange<'p>) {
        let Stage::Talking(conversation) = rival.stage else { return };
        let index = exchange.worker.index;
        if let (Some(fault), Some((_, side))) = (self.failed, exchange.told.endpoint) {
            side.series.of(index).fault(fault);
        }
        std::mem::replace(first, *conversation).abandon(exchange);
        if let Some(session) = &exchange.session {
            exchange.told.session = session.outcome(Some(rival.lease.endpoint_index()));
        }
        exchange.lease = Some(rival.lease);
        exchange.pass = rival.pass;
        exchange.told.endpoint = Some((rival.endpoint, rival.side));
        exchange.told.is_witnessed = false;
        self.now.series.of(index).hedges_won.add(1);
    }
}

impl<'p> Rival<'p> {
    fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        exchange: &mut Exchange<'p>,
        now: &'p ClusterNow,
    ) -> Poll<Result<ResponseParsed, Fault>> {
        loop {
            match &mut self.stage {
                Stage::Connecting(work) => {
                    let Poll::Ready(connected) = work.as_mut().poll(cx) else { return Poll::Pending };
                    let shard = self.side.series.of(exchange.worker.index);
                    match &connected {
                        Ok(_) => shard.connects_opened.add(1),
                        Err(_) => shard.connects_failed.add(1),
                    }
                    exchange.told.look();
                    let conversation =
                        Conversation::begin(exchange, (&now.plan, self.endpoint, self.side), connected?)?;
                    self.stage = Stage::Talking(Box::new(conversation.beside()));
                }
                Stage::Talking(conversation) => match conversation.poll_answer(cx, exchange) {
                    // Nothing of the request was seen there; the kept connection was closed.
                    Poll::Ready(Err(Fault::StaleConnection)) => self.stage = connecting(now, self.endpoint),
                    other => return other,
                },
            }
        }
    }

    fn witness(&self, exchange: &mut Exchange<'p>, now: &ClusterNow, seen: Seen) {
        now.plan.witness(&self.endpoint.state, seen, exchange.told.now);
    }

    fn abandon(self, exchange: &mut Exchange<'p>) {
        if let Stage::Talking(conversation) = self.stage {
            conversation.abandon(exchange);
        }
    }
}

fn connecting<'p>(now: &'p ClusterNow, endpoint: &'p EndpointPlan) -> Stage<'p> {
    let timeout = now.plan.cluster.timeouts.connect;
    Stage::Connecting(Box::pin(connect_beside(&endpoint.endpoint, now.tls.as_deref(), timeout)))
}
