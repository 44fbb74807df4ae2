//! Routes that need more than the head of a request: expressions, and conditions on its body.

use std::cell::Cell;

use model::Fault;
use model::facts::{BodySeen, Seen};
use plan::route::router::Router;
use plan::{ListenerTarget, RoutePlan};
use wire::http1::Framing;

use super::state::Exchange;
use crate::connection::Next;
use crate::needs;

impl<'p> Exchange<'p> {
    /// Finds the route of the request as far as its body is known.
    ///
    /// # Errors
    /// A route needs the body, of at most so many bytes. Never unless it `may_read` it.
    pub(super) fn look_up(&self, router: &'p Router, may_read: bool) -> Result<Option<&'p RoutePlan>, u32> {
        let wanted = Cell::new(0);
        let held = self.replay.body.as_ref().filter(|held| held.file.is_none() && !held.is_coded);
        let body = match (self.request.framing, held) {
            (Framing::None, _) => BodySeen::Whole(&[]),
            (_, Some(held)) => BodySeen::Whole(&held.bytes),
            _ if !may_read => BodySeen::Unknown,
            (Framing::Length(length), _) => BodySeen::Unread { length: Some(length), wanted: &wanted },
            _ => BodySeen::Unread { length: None, wanted: &wanted },
        };
        let seen = Seen { facts: self.facts(), now: self.progress.now, body };
        let found = router.find(&self.incoming.head, seen.caller(), &mut self.worker.scratch.borrow_mut());
        match wanted.get() {
            0 => Ok(found.map(|route| &**route)),
            max => Err(max),
        }
    }

    /// Goes on with a request for which no route was found, if one of them needs the body first.
    ///
    /// # Errors
    /// There is no route all the same; the body breaks off, or is too long though its head did not say so.
    pub(super) async fn go_on_by_body(&mut self) -> Result<Next, Fault> {
        let ListenerTarget::Http(router) = &self.listener.plan.target else { return Err(Fault::NoRoute) };
        if !self.is_parsed || !router.has_expressions() {
            return Err(Fault::NoRoute);
        }
        let route = match self.look_up(router, true) {
            Ok(route) => route,
            Err(max) => {
                // One that upgrades has none.
                let is_held = needs::body::held(self, max).await?.is_ok();
                self.look_up(router, false).ok().flatten().filter(|_| is_held || self.replay.body.is_none())
            }
        };
        let route = route.ok_or(Fault::NoRoute)?;
        self.take_route(route);
        Box::pin(self.proceed(route)).await
    }
}
