//! Runs a route's filters over the heads of an exchange.

use model::{Fault, LocalResponse, RequestHead, ResponseHead};
use plan::RoutePlan;
use plan::filter::{Flow, ResponseSource, ResponseView, Turn};

use super::state::Exchange;
use crate::persistence::since_1970;
use crate::worker::Incoming;

impl Exchange<'_> {
    pub(crate) fn filter_request(&mut self, route: &RoutePlan, place: &mut usize) -> Flow {
        self.in_turn(|head, _, turn| route.chain.on_request_from(place, head, turn))
    }

    pub(super) fn after_filters(&self, flow: Flow) -> Result<Option<LocalResponse>, Fault> {
        match flow {
            // Before anything of it is asked for, or sent on.
            Flow::Continue if self.is_body_too_large() => Err(Fault::BodyTooLarge),
            Flow::Continue => Ok(None),
            Flow::Respond(local) => Ok(Some(*local)),
            Flow::Close => Err(Fault::ClosedByFilter),
            // What is streamed or stored is sent before.
            Flow::Need(_) | Flow::Stream(_) | Flow::Stored(_) => Err(Fault::VerificationFull),
        }
    }

    /// Runs the route's response steps over the head of a response from `source`.
    pub(crate) fn filter_response(&mut self, source: ResponseSource) {
        let Some(route) = self.progress.route else { return };
        // A slice is changed when it is put together with others.
        if !route.chain.has_response_steps() || self.connection.io.is_piped() {
            return;
        }
        self.with_response(source, |head, view, turn| route.chain.on_response(head, view, turn));
        if !self.incoming.notes.charges.is_empty() {
            self.begin_charges();
        }
    }

    /// Runs filters on the response head, with everything that they may read beside it. Returns `None` if there is no response.
    pub(crate) fn with_response<R>(
        &mut self,
        source: ResponseSource,
        run: impl FnOnce(&mut ResponseHead, &ResponseView<'_>, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let cluster = self.progress.cluster.map(|cluster| &cluster.plan.cluster.name);
        let endpoint = self.progress.endpoint.map(|(endpoint, _)| &endpoint.endpoint.name);
        let elapsed = self.progress.elapsed();
        self.in_turn(|request, response, turn| {
            Some(run(response?, &ResponseView { request, cluster, endpoint, source, elapsed }, turn))
        })
    }

    /// Runs filters on the heads, with everything that steps have beside them.
    #[inline]
    pub(crate) fn in_turn<R>(
        &mut self,
        run: impl FnOnce(&mut RequestHead, Option<&mut ResponseHead>, &mut Turn<'_>) -> R,
    ) -> R {
        let facts = self.connection.facts.facts_by(self.scheme, self.client, self.request_id.as_str());
        let Incoming { head, notes, .. } = &mut *self.incoming;
        let mut turn = Turn {
            facts: &facts,
            now: self.progress.now,
            wall_clock: &since_1970,
            chance: &mut || self.worker.random.next(),
            notes,
            scratch: &mut self.worker.scratch.borrow_mut(),
            is_rehearsal: false,
        };
        run(head, self.response.as_deref_mut(), &mut turn)
    }
}
