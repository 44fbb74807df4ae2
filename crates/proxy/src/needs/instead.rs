//! What filters answer in the place of a response.

use model::{Fault, LocalResponse};
use plan::RoutePlan;
use plan::filter::{Answers, Flow, Need, ResponseSource, TooLong};

use wire::http1::Framing;

use super::Met;
use super::body::Begun;
use crate::answer;
use crate::exchange::Exchange;
use crate::grpc;
use crate::respond::Instead;

impl<'p> Exchange<'p> {
    /// The answer of a filter in the place of one that is made here, because of the fault if there is one. Calls of gRPC keep theirs.
    ///
    /// # Errors
    /// A filter closes the exchange; what it needs cannot be had.
    pub(crate) async fn instead_of_local(
        &mut self,
        local: &LocalResponse,
        fault: Option<Fault>,
    ) -> Result<Option<Instead>, Fault> {
        let Some(route) = self.route_that_answers(Answers::Local) else { return Ok(None) };
        answer::fill_head(self, local);
        // Boxed: it is rare, and its state would make every exchange larger.
        Box::pin(self.instead(route, ResponseSource::Local(fault))).await
    }

    /// Whether a filter may answer in the place of the endpoint's response that is here.
    pub(crate) fn may_be_replaced(&self) -> bool {
        let is_grpc = || self.response.as_deref().is_none_or(grpc::is_grpc);
        // What was asked of the endpoint is not what the client has asked for.
        let is_slice = || self.incoming.notes.asks_for_slice() || self.connection.io.is_piped();
        self.route_that_answers(Answers::All).is_some() && (!is_grpc() || is_slice())
    }

    /// The answer of a filter in the place of the endpoint's response that is here.
    ///
    /// # Errors
    /// As [`Self::instead_of_local`].
    pub(crate) async fn instead_of_endpoint(&mut self) -> Result<Option<Instead>, Fault> {
        match self.route_that_answers(Answers::All) {
            Some(route) => self.instead(route, ResponseSource::Endpoint).await,
            None => Ok(None),
        }
    }

    fn route_that_answers(&self, of: Answers) -> Option<&'p RoutePlan> {
        self.progress.route.filter(|route| route.chain.answers() >= of && self.grpc.is_none())
    }

    async fn instead(&mut self, route: &RoutePlan, source: ResponseSource) -> Result<Option<Instead>, Fault> {
        self.approve_piped(false);
        let instead = self.ask_steps(route, source).await?;
        match &instead {
            Some(Instead::Stored(_)) => self.approve_piped(true),
            // Nothing but what the cache has found to be the slice may become a part of a body.
            _ if self.connection.io.is_piped() => return Err(Fault::ClosedByFilter),
            _ => {}
        }
        // It is not sent again from here on: filters see what the client has asked for.
        let incoming = &mut *self.incoming;
        incoming.notes.leave_slices(&mut incoming.head);
        Ok(instead)
    }

    fn approve_piped(&self, is_approved: bool) {
        if let Some(pipe) = self.connection.io.pipe() {
            pipe.approve(is_approved);
        }
    }

    async fn ask_steps(&mut self, route: &RoutePlan, source: ResponseSource) -> Result<Option<Instead>, Fault> {
        let has_content = !matches!(self.request.framing, Framing::None | Framing::Length(0));
        if has_content {
            // The response may follow from more than what a cache knows it by.
            self.incoming.notes.store_nothing();
        }
        let mut place = 0;
        let answered =
            self.with_response(source, |head, view, turn| route.chain.answer(&mut place, (head, view), turn));
        let mut flow = answered.unwrap_or(Flow::Continue);
        for _ in 0..Need::PER_STEP_MAX {
            let need = match flow {
                Flow::Need(need) => need,
                Flow::Continue => return Ok(None),
                Flow::Respond(local) => return Ok(Some(Instead::Local(*local))),
                Flow::Stored(served) => return Ok(Some(Instead::Stored(served))),
                // No step that answers in the place of a response has one.
                Flow::Stream(_) => return Ok(None),
                Flow::Close => return Err(Fault::ClosedByFilter),
            };
            let met = match need {
                // The body is on its way by now: only what is held of it can be had.
                Need::Body { max } => Met::Body(self.held_within(max)),
                Need::Again if source == ResponseSource::Endpoint && self.leave_slices() => {
                    return Err(Fault::Redirected);
                }
                Need::Beginning { .. } => Met::Beginning(Begun::Unread),
                Need::Redirect(to) if source == ResponseSource::Endpoint && self.follow(&to) => {
                    return Err(Fault::Redirected);
                }
                need => self.meet(need).await?,
            };
            self.progress.look();
            flow = self.with_found(met, |exchange, found| {
                let resumed = exchange.with_response(source, |head, view, turn| {
                    route.chain.resume_answer(&mut place, found, (head, view), turn)
                });
                resumed.unwrap_or(Flow::Continue)
            });
        }
        Err(Fault::VerificationFull)
    }

    /// Makes the request what the client has asked for, to be sent to the same cluster again.
    fn leave_slices(&mut self) -> bool {
        let incoming = &mut *self.incoming;
        let is_left = incoming.notes.leave_slices(&mut incoming.head);
        incoming.notes.set_again(is_left);
        is_left
    }

    fn held_within(&self, max: u32) -> Result<(), TooLong> {
        let held = self.replay.body.as_ref().filter(|held| held.is_within(max as usize));
        held.map(|_| ()).ok_or(TooLong)
    }
}
