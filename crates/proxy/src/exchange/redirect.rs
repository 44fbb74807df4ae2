//! Redirects of endpoints that are followed here: the request goes on along another route of its listener.

use model::fields::{FieldName, Known};
use model::head::host_without_port;
use model::{Fault, RequestHead};
use plan::filter::Redirected;
use plan::{ListenerTarget, RoutePlan};
use wire::http1::Framing;

use super::state::Exchange;
use crate::connection::Next;
use crate::finish;

/// What another host must not see: it is for the one that the client has asked.
const SECRETS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
/// What describes a body that is not sent.
const OF_BODY: [&str; 6] =
    ["content-type", "content-encoding", "content-language", "content-location", "expect", "trailer"];

impl<'p> Exchange<'p> {
    /// Makes the request the one that goes on, if it can. False: nothing has changed.
    #[cold]
    pub(crate) fn follow(&mut self, to: &Redirected) -> bool {
        // What stages have made of a body was for the endpoint of one route.
        let is_coded = self.replay.body.as_ref().is_some_and(|kept| kept.is_coded);
        let may_go_on = self.incoming.notes.redirects() < to.max && self.is_replayable() && !is_coded;
        if !may_go_on || self.wants_upgrade() || self.connection.io.is_memory() || self.progress.is_interim_cut {
            return false;
        }
        let mut head = self.incoming.head.clone();
        self.incoming.notes.leave_slices(&mut head);
        if change(&mut head, to).is_none() {
            return false;
        }
        if let Some(paths) = &self.http.paths
            && wire::path::normalise(&mut head, paths, &mut self.worker.scratch.borrow_mut()).is_err()
        {
            return false;
        }
        let before = std::mem::replace(&mut self.incoming.head, head);
        let Some(route) = self.route_of_redirect(to) else {
            self.incoming.head = before;
            return false;
        };
        if to.by_get {
            (self.request.framing, self.request.expects_continue) = (Framing::None, false);
        }
        // Nothing of the one before is asked for any more.
        self.progress.route = Some(route);
        self.incoming.notes.count_redirect();
        to.followed.note();
        true
    }

    fn route_of_redirect(&self, to: &Redirected) -> Option<&'p RoutePlan> {
        let ListenerTarget::Http(router) = &self.listener.plan.target else { return None };
        let router = if to.is_internal { router.with_internal() } else { router };
        // A body that is not held was sent away.
        self.look_up(router, false).ok().flatten()
    }

    /// Tells the client of a fault, unless the request goes on along another route.
    #[cold]
    pub(super) async fn end_or_go_on(&mut self, fault: Fault) -> (Next, Option<Fault>) {
        let outcome = match fault {
            Fault::Redirected => Err(fault),
            Fault::NoRoute => self.go_on_by_body().await,
            fault => Err(fault),
        };
        let outcome = match outcome {
            Err(Fault::Redirected) => self.go_on_elsewhere().await,
            outcome => outcome,
        };
        match outcome {
            Ok(next) => (next, self.progress.is_refused.then_some(Fault::Refused)),
            Err(fault) => (finish::settle(self, fault).await, Some(fault)),
        }
    }

    /// Goes on along the routes to which endpoints redirect, until a response is on its way or a fault ends it. How often is bounded by the
    /// filters that ask for it.
    async fn go_on_elsewhere(&mut self) -> Result<Next, Fault> {
        loop {
            let route = self.leave_route()?;
            match Box::pin(self.proceed(route)).await {
                Err(Fault::Redirected) => {}
                outcome => return outcome,
            }
        }
    }

    /// Forgets what belongs to the route and the cluster before. Returns the route on which the request goes on.
    ///
    /// # Errors
    /// The client has not sent all of a body that is sent no more: what follows on its connection is not the next request.
    fn leave_route(&mut self) -> Result<&'p RoutePlan, Fault> {
        let route = self.progress.route.ok_or(Fault::NoRoute)?;
        if self.request.framing == Framing::None {
            if !self.is_read {
                return Err(Fault::ClosedInBody);
            }
            self.replay.body = None;
        }
        self.count_failed(Fault::Redirected);
        self.request.awaits_end = false;
        self.connection.watch.set_bound(None);
        self.replay.begin_again();
        self.incoming.body_steps.clear();
        self.incoming.notes.leave_route();
        (self.pass, self.session, self.lease) = (None, None, None);
        let progress = &mut self.progress;
        (progress.cluster, progress.endpoint, progress.pick) = (None, None, None);
        (progress.retries, progress.hedges, progress.is_witnessed) = (0, 0, false);
        self.take_route(route);
        Ok(route)
    }
}

/// Makes a head that of the next request.
fn change(head: &mut RequestHead, to: &Redirected) -> Option<()> {
    if let Some(authority) = &to.authority {
        if !host_without_port(authority).eq_ignore_ascii_case(head.host()) {
            SECRETS.iter().for_each(|secret| head.fields.remove_named(secret.as_bytes()));
        }
        head.set_authority(&FieldName::new("host").ok()?, authority);
    }
    if to.by_get {
        head.set_method(b"GET");
        head.fields.remove_known(Known::ContentLength);
        head.fields.remove_known(Known::TransferEncoding);
        OF_BODY.iter().for_each(|field| head.fields.remove_named(field.as_bytes()));
    }
    let span = head.fields.write_span(|arena| arena.extend_from_slice(&to.target));
    head.set_target(span);
    Some(())
}
