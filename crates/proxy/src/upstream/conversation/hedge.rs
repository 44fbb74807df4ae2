//! The same request at another endpoint too, when the first takes long: the first response head wins, the others are
//! dropped with their connections. Nothing of this is touched while a cluster and a route have no `hedge`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use model::Fault;
use model::fault::Source;
use model::limits::REFUSED_STREAMS_MAX;
use model::resilience::Hedge;
use plan::{EndpointPlan, Lease, Pass, Seen};
use tokio::time::Sleep;
use wire::http1::ResponseParsed;

use super::Conversation;
use crate::exchange::Exchange;
use crate::upstream::connect::Connecting;
use crate::upstream::hedge_line::line_beside;
use crate::upstream::hedge_rules::take_place;
use crate::worker_plan::{ClusterLocal, EndpointLocal};

/// Attempts of one exchange beside its first.
struct Race<'p> {
    rules: &'p Hedge,
    local: &'p ClusterLocal,
    /// Rings when the next may begin; `None` when there is to be no other.
    alarm: Option<Pin<Box<Sleep>>>,
    after: Duration,
    rivals: Vec<Rival<'p>>,
    /// When the last attempt began.
    latest: Instant,
    /// When that began which has won, unless it was the first.
    won: Option<Instant>,
    /// Slots of the endpoints that are asked.
    asked: Vec<u32>,
    /// How the first attempt failed, while others go on.
    failed: Option<Fault>,
}

/// An attempt beside the first.
struct Rival<'p> {
    endpoint: &'p EndpointPlan,
    endpoint_local: &'p Rc<EndpointLocal>,
    lease: Lease,
    pass: Option<Pass>,
    stage: Stage<'p>,
    /// When it was sent; before that, when it began to connect.
    begun: Instant,
    /// Times that it was sent anew.
    anew: u32,
}

enum Stage<'p> {
    Connecting(Connecting<'p>),
    Talking(Box<Conversation<'p>>),
}

impl<'p> Conversation<'p> {
    /// As `await_head`, with others beside it when it takes long. The conversation is then that with whoever won.
    pub(super) async fn await_first(
        &mut self,
        exchange: &mut Exchange<'p>,
        (rules, local): (&'p Hedge, &'p ClusterLocal),
    ) -> Result<ResponseParsed, Fault> {
        let begun = exchange.progress.now;
        let after = local.hedging.borrow().after(rules);
        let first = exchange.progress.endpoint.map(|(endpoint, _)| endpoint.state.slot);
        let alarm = after.map(|after| Box::pin(tokio::time::sleep_until((begun + after).into())));
        let (rivals, asked) = (Vec::new(), first.into_iter().collect());
        let after = after.unwrap_or_default();
        let mut race = Race { rules, local, alarm, after, rivals, latest: begun, won: None, asked, failed: None };
        self.begin_waiting(exchange);
        let outcome = poll_fn(|cx| race.poll(cx, self, exchange)).await;
        for rival in race.rivals.drain(..) {
            rival.stage.abandon(exchange);
        }
        if exchange.progress.hedges > 0 {
            exchange.replay.tried = std::mem::take(&mut race.asked);
        }
        let parsed = outcome?;
        self.note_first_byte(exchange);
        race.learn(begun, exchange.progress.now);
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
                Err(fault) if self.may_lose(first, fault) => self.lose_first(first, exchange, fault),
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
            _ => self.poll_patience(cx, first, exchange).map(Err),
        }
    }

    /// Ready when the client has gone or the time is over. That of the others begins when they are sent.
    fn poll_patience(
        &mut self,
        cx: &mut TaskContext<'_>,
        first: &mut Conversation<'p>,
        exchange: &mut Exchange<'p>,
    ) -> Poll<Fault> {
        let fault = ready!(first.poll_patience(cx, exchange));
        if fault == Fault::TotalTimeout && !exchange.is_bounded_by_client() {
            // All of them kept it waiting, each let in by itself.
            let local = self.local;
            let at = exchange.progress.look();
            self.rivals.iter_mut().for_each(|rival| local.plan.tell_circuit(&mut rival.pass, false, at));
        }
        match self.failed {
            _ if fault.consequence().source != Source::Upstream => Poll::Ready(fault),
            Some(failed) => {
                for mut rival in self.rivals.drain(..) {
                    rival.fail(exchange, self.local, fault);
                    rival.stage.abandon(exchange);
                }
                Poll::Ready(failed)
            }
            None if self.may_lose(first, fault) => {
                self.lose_first(first, exchange, fault);
                // Once more only, for now it has failed.
                self.poll_patience(cx, first, exchange)
            }
            None => Poll::Ready(fault),
        }
    }

    /// Whether others may still answer when the first has failed.
    fn may_lose(&self, first: &Conversation<'p>, fault: Fault) -> bool {
        fault.consequence().source == Source::Upstream && !self.rivals.is_empty() && first.interim.0.is_empty()
    }

    fn lose_first(&mut self, first: &mut Conversation<'p>, exchange: &mut Exchange<'p>, fault: Fault) {
        exchange.witness_fault(fault);
        // Should all fail, another connection may take the place of one that was stale, or a stream that of one refused.
        if !matches!(fault, Fault::StaleConnection | Fault::StreamRefused) {
            exchange.leave_endpoint();
        }
        first.upstream = None;
        let timeout = first.head_timeout(exchange);
        exchange.connection.watch.set(self.latest, timeout);
        self.failed = Some(fault);
    }

    /// Learns how long answers take. When another has won, the first is known to take at least so long: left out, what is
    /// slow would be forgotten because it is hedged.
    fn learn(&self, begun: Instant, now: Instant) {
        let hedging = &mut *self.local.hedging.borrow_mut();
        if self.failed.is_none() {
            hedging.observe(self.rules, now.saturating_duration_since(begun));
        }
        if let Some(begun) = self.won {
            hedging.observe(self.rules, now.saturating_duration_since(begun));
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
            match self.rivals[place].poll(cx, exchange, self.local) {
                Poll::Pending => place += 1,
                Poll::Ready(Ok(parsed)) => {
                    let status = exchange.response().status;
                    // An error is no help while the first may still answer.
                    if status < 500 || self.failed.is_some() {
                        return Some((place, parsed));
                    }
                    let mut rival = self.rivals.remove(place);
                    let latency = exchange.progress.look().saturating_duration_since(rival.begun);
                    rival.witness(exchange, self.local, Seen::Answered { status, latency });
                    rival.stage.abandon(exchange);
                }
                Poll::Ready(Err(fault)) => {
                    let mut rival = self.rivals.remove(place);
                    rival.fail(exchange, self.local, fault);
                    rival.stage.abandon(exchange);
                }
            }
        }
        None
    }

    /// Sends the request to one more endpoint, if there is another with room and the budget allows it.
    fn add_rival(&mut self, exchange: &mut Exchange<'p>) {
        let at = exchange.progress.look();
        self.alarm = None;
        let local = self.local;
        if self.asked.len() >= local.plan.endpoints.len() {
            return;
        }
        let shard = local.series.of(exchange.worker.index);
        // First, for what is taken only to be given back is missing elsewhere for that moment.
        if !local.hedging.borrow_mut().affords(self.rules, at) {
            shard.hedges_refused.add(1);
            return;
        }
        let Some((lease, pass)) = take_place(exchange, local, &self.asked) else { return };
        let endpoint = &local.plan.endpoints[lease.endpoint_index()];
        let Some(endpoint_local) = exchange.plan.endpoint(&endpoint.state) else { return };
        let stage = match line_beside(exchange, local, (endpoint, endpoint_local), Some(at)) {
            Ok(line) => match Conversation::begin(exchange, (&local.plan, endpoint, endpoint_local), line) {
                Ok(conversation) => Stage::Talking(Box::new(conversation.beside())),
                Err(_) => return,
            },
            Err(connecting) => Stage::Connecting(connecting),
        };
        let is_paid = local.hedging.borrow_mut().spend(self.rules, at);
        debug_assert!(is_paid, "no other task takes from it meanwhile");
        shard.hedges.add(1);
        shard.picked(lease.reason());
        exchange.progress.hedges += 1;
        self.asked.push(endpoint.state.slot);
        self.latest = at;
        self.rivals.push(Rival { endpoint, endpoint_local, lease, pass, stage, begun: at, anew: 0 });
        if exchange.progress.hedges + 1 < self.rules.attempts_max {
            self.alarm = Some(Box::pin(tokio::time::sleep_until((at + self.after).into())));
        }
    }

    /// From here on the exchange is that with `rival`.
    fn crown(&mut self, rival: Rival<'p>, first: &mut Conversation<'p>, exchange: &mut Exchange<'p>) {
        let Stage::Talking(conversation) = rival.stage else { return };
        let index = exchange.worker.index;
        if let (Some(fault), Some((_, endpoint_local))) = (self.failed, exchange.progress.endpoint) {
            endpoint_local.series.of(index).fault(fault);
        }
        std::mem::replace(first, *conversation).abandon(exchange);
        if let Some(session) = &exchange.session {
            exchange.progress.session = session.outcome(Some(rival.lease.endpoint_index()));
        }
        first.is_beside = false;
        self.won = Some(rival.begun);
        exchange.progress.pick = Some(rival.lease.reason());
        exchange.lease = Some(rival.lease);
        exchange.pass = rival.pass;
        exchange.progress.endpoint = Some((rival.endpoint, rival.endpoint_local));
        exchange.progress.is_witnessed = false;
        self.local.series.of(index).hedges_won.add(1);
    }
}

impl<'p> Rival<'p> {
    fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        exchange: &mut Exchange<'p>,
        local: &'p ClusterLocal,
    ) -> Poll<Result<ResponseParsed, Fault>> {
        loop {
            match &mut self.stage {
                Stage::Connecting(work) => {
                    let Poll::Ready(connected) = work.as_mut().poll(cx) else { return Poll::Pending };
                    self.begun = exchange.progress.look();
                    let conversation =
                        Conversation::begin(exchange, (&local.plan, self.endpoint, self.endpoint_local), connected?)?;
                    self.stage = Stage::Talking(Box::new(conversation.beside()));
                }
                Stage::Talking(conversation) => match conversation.poll_answer(cx, exchange) {
                    // The kept connection was closed. Whether the request was seen there is not known.
                    Poll::Ready(Err(Fault::StaleConnection))
                        if exchange.may_send_again() && self.anew < REFUSED_STREAMS_MAX =>
                    {
                        self.connect_anew(exchange, local);
                    }
                    // There it was not seen, for certain.
                    Poll::Ready(Err(Fault::StreamRefused)) if self.anew < REFUSED_STREAMS_MAX => {
                        self.connect_anew(exchange, local);
                    }
                    other => return other,
                },
            }
        }
    }

    fn connect_anew(&mut self, exchange: &mut Exchange<'p>, local: &'p ClusterLocal) {
        self.anew += 1;
        let connecting = match line_beside(exchange, local, (self.endpoint, self.endpoint_local), None) {
            Ok(line) => Box::pin(std::future::ready(Ok(line))) as Connecting<'p>,
            Err(connecting) => connecting,
        };
        std::mem::replace(&mut self.stage, Stage::Connecting(connecting)).abandon(exchange);
    }

    fn witness(&mut self, exchange: &mut Exchange<'p>, local: &ClusterLocal, seen: Seen) {
        let at = exchange.progress.look();
        local.plan.witness(&self.endpoint.state, seen, at);
        local.plan.tell_circuit(&mut self.pass, seen.is_good(), at);
    }

    fn fail(&mut self, exchange: &mut Exchange<'p>, local: &ClusterLocal, fault: Fault) {
        self.endpoint_local.series.of(exchange.worker.index).fault(fault);
        if fault.consequence().against_health {
            self.witness(exchange, local, Seen::Failed);
        }
    }
}

impl<'p> Stage<'p> {
    fn abandon(self, exchange: &mut Exchange<'p>) {
        if let Self::Talking(conversation) = self {
            conversation.abandon(exchange);
        }
    }
}
