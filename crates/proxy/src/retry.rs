//! Attempts after the first: what [`plan::retry`] needs to decide, and what it takes to carry the decision out.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use model::Fault;
use model::fault::{Phase, Source};
use model::retry::Retry;
use plan::retry::{Attempted, Failure, Verdict, decide, is_for_backup, take_back};
use plan::{LastResort, Session, Subset};
use wire::http1::Framing;

use crate::admission::{Gate, Place};
use crate::exchange::Exchange;
use crate::grpc;
use crate::needs;
use crate::upstream::hedge_rules;
use crate::worker_plan::ClusterLocal;

/// Returns the rules for one exchange: the route's, else the cluster's.
pub(crate) fn policy<'p>(exchange: &Exchange<'p>, local: &'p ClusterLocal) -> &'p Retry {
    let own = exchange.progress.route.and_then(|route| route.route.retry.as_ref());
    own.unwrap_or(&local.plan.cluster.retry)
}

/// Returns whether an attempt could not be made only because we did not let it: then what came of the one before is told.
pub(crate) fn is_refusal(fault: Fault) -> bool {
    let told = fault.consequence();
    told.source == Source::Local && told.phase == Phase::Pick
}

impl<'p> Exchange<'p> {
    /// Before the first attempt: the request's share of the budget, and its body if that may be needed again.
    pub(crate) async fn prepare_retries(&mut self, local: &'p ClusterLocal) -> Result<(), Fault> {
        let policy = policy(self, local);
        if let Some(budget) = policy.budget {
            local.savings.borrow_mut().earn(budget);
            self.replay.began_ms = millis(self.progress.now - self.progress.begun);
        }
        let hedge = hedge_rules::rules(self, local);
        let length = match self.request.framing {
            Framing::Length(length) if self.keeps_body(policy, hedge.is_some(), length) => Some(length),
            _ => None,
        };
        if let Some(rules) =
            hedge.filter(|_| length.is_some() || self.request.framing == Framing::None || self.replay.body.is_some())
        {
            local.hedging.borrow_mut().earn(rules);
        }
        match length {
            // Boxed: it is rare, and its state would make every exchange larger.
            Some(_) => Box::pin(self.keep_body()).await,
            None => Ok(()),
        }
    }

    async fn keep_body(&mut self) -> Result<(), Fault> {
        needs::body::hold(self, u64::MAX).await?;
        self.replay.began_ms = millis(self.progress.now - self.progress.begun);
        Ok(())
    }

    fn keeps_body(&self, policy: &Retry, is_hedged: bool, length: u64) -> bool {
        self.replay.body.is_none()
            && length <= policy.body_bytes_max as u64
            && (is_hedged || policy.attempts_max > 1 && policy.on.hold_after_sending())
            && (is_hedged || policy.methods.allow(self.incoming.head.method))
            // Such a client sends its body only once an endpoint has asked for it.
            && !self.request.expects_continue
    }

    /// Returns whether the request, or what is left of it, can be sent whole once more.
    pub(crate) fn is_replayable(&self) -> bool {
        !self.replay.is_taken || self.request.framing == Framing::None || self.replay.body.is_some()
    }

    /// Returns whether the response that is here is thrown away for another attempt; if so, says after which pause.
    pub(crate) fn retries_status(&mut self, local: &'p ClusterLocal) -> bool {
        let policy = policy(self, local);
        let status = self.response.as_ref().map_or(0, |response| response.status);
        let failure = if policy.on.holds_status(status) {
            Failure::Status(status)
        } else if let Some(status) = self.retried_grpc(policy) {
            Failure::Grpc(status)
        } else {
            return false;
        };
        self.replay.after_status = self.verdict(local, failure);
        self.replay.after_status.is_some()
    }

    fn retried_grpc(&self, policy: &Retry) -> Option<u8> {
        if self.grpc.is_none() || policy.on.grpc_statuses.is_empty() {
            return None;
        }
        let status = self.response.as_ref().and_then(|response| grpc::status_of(response));
        status.filter(|status| policy.on.holds_grpc(*status))
    }

    /// Returns the pause before another attempt, if there is to be one.
    ///
    /// # Errors
    /// The fault, when it is final.
    pub(crate) fn pause_after(&mut self, local: &'p ClusterLocal, fault: Fault) -> Result<Duration, Fault> {
        let pause = match fault {
            Fault::RetriedStatus => self.replay.after_status.take(),
            Fault::Redirected => None,
            // Half an interim response cannot be taken back.
            _ if self.progress.is_interim_cut || self.progress.status != 0 => None,
            _ => self.verdict(local, Failure::Fault(fault)),
        };
        if self.progress.retries == 0 {
            self.replay.began_ms = self.replay.began_ms.saturating_add(millis(self.progress.phases.queue));
        }
        pause.ok_or(fault)
    }

    /// Time since the first attempt began, `waited` being its wait for an endpoint if that is not in `began_ms` yet.
    fn since_first(&self, waited: Duration) -> Duration {
        let before = Duration::from_millis(self.replay.began_ms.into()) + waited;
        (self.progress.now - self.progress.begun).saturating_sub(before)
    }

    /// Returns how a further attempt waits for an endpoint: as the first one did, but no longer than a new attempt may begin.
    pub(crate) fn place_again(&self, local: &ClusterLocal, place: Place) -> Place {
        let policy = policy(self, local);
        let left = policy.time_max.map(|max| millis(max.saturating_sub(self.since_first(Duration::ZERO))));
        let last_resort = match policy {
            policy if is_for_backup(policy, self.progress.retries + 1) => LastResort::OnlyBackups,
            policy if policy.same_endpoint => LastResort::Repeat,
            _ => LastResort::Backups,
        };
        Place { patience_ms: left.unwrap_or(u32::MAX), last_resort, ..place }
    }

    fn verdict(&mut self, local: &'p ClusterLocal, failure: Failure) -> Option<Duration> {
        let attempts = self.progress.retries + 1;
        let subset = self.progress.route.map_or(Subset::ALL, |route| route.subset(&local.plan, &self.incoming.head));
        let present = self.progress.endpoint.map(|(endpoint, _)| endpoint.state.slot);
        let is_tried = |slot| present == Some(slot) || self.replay.tried.contains(&slot);
        let pinned = self.session.as_ref().and_then(Session::pinned);
        let at = self.progress.look();
        let waited = if self.progress.retries == 0 { self.progress.phases.queue } else { Duration::ZERO };
        let is_last = is_for_backup(policy(self, local), attempts);
        let (has_untried, has_untried_backup) = {
            let cache = &mut local.cache.borrow_mut();
            let has_untried = local.plan.has_untried(cache, subset, pinned, is_tried);
            (has_untried, is_last && local.plan.has_untried_backup(cache, subset, pinned, is_tried))
        };
        let attempted = Attempted {
            failure,
            method: self.incoming.head.method,
            is_replayable: self.is_replayable(),
            attempts,
            since_first: self.since_first(waited),
            has_untried,
            has_untried_backup,
        };
        let savings = &mut local.savings.borrow_mut();
        match decide(policy(self, local), &attempted, savings, at, &mut || self.worker.random.next()) {
            Verdict::Again(pause) => {
                let gate = Gate { worker: self.worker, local };
                let may_retry = gate.may_retry(&mut self.pass);
                if !may_retry {
                    take_back(policy(self, local), failure, savings);
                }
                may_retry.then_some(pause)
            }
            Verdict::GiveUp => None,
            Verdict::NoBudget => {
                local.series.of(self.worker.index).retries_refused.add(1);
                None
            }
        }
    }

    /// Another attempt is made. Until here, the one that `failed` could have been the last.
    pub(crate) fn begin_retry(&mut self, failed: Fault) {
        self.count_failed(failed);
        self.progress.retries += 1;
        self.progress.received_bytes = 0;
    }

    /// Why it ends when no attempt follows the one that `failed`, if there was one.
    pub(crate) fn end_by(&self, failed: Option<Fault>, because: Fault) -> Fault {
        let Some(failed) = failed else { return because };
        if is_refusal(because) {
            return failed;
        }
        self.count_failed(failed);
        because
    }

    /// What ends the exchange is counted with its record, this is not.
    pub(crate) fn count_failed(&self, fault: Fault) {
        if let Some((_, endpoint_local)) = self.progress.endpoint {
            endpoint_local.series.of(self.worker.index).fault(fault);
        }
    }

    /// Waits before another attempt, unless the client goes or the time for all attempts ends.
    pub(crate) async fn pause(&mut self, pause: Duration) -> Result<(), Fault> {
        // What the watch says when it was this pause that ended.
        const OVER: Fault = Fault::RetriedStatus;
        let connection = &mut *self.connection;
        connection.watch.set(self.progress.now, pause);
        poll_fn(|cx| {
            if connection.io.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Fault::ClosedInWait));
            }
            connection.watch.poll(cx).map(|()| match connection.watch.fault(OVER) {
                OVER => Ok(()),
                ended => Err(ended),
            })
        })
        .await?;
        self.progress.look();
        Ok(())
    }
}

/// As many whole milliseconds as there is room for.
fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
