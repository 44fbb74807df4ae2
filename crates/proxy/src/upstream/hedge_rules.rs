//! Whether an exchange may be at more than one endpoint, and at which other.

use model::PickReason;
use model::resilience::Hedge;
use plan::{Ask, LastResort, Lease, Pass, Pick, Subset};
use wire::authentication::is_brought;

use crate::exchange::Exchange;
use crate::worker_plan::ClusterLocal;

/// The rules for an exchange, if it may be at more than one endpoint: the route's, else the cluster's.
pub(crate) fn rules<'p>(exchange: &Exchange<'p>, local: &'p ClusterLocal) -> Option<&'p Hedge> {
    let rules = rules_of(exchange, local)?;
    (rules.methods.allow(exchange.incoming.head.method) && !exchange.wants_upgrade()).then_some(rules)
}

/// The rules for an exchange that may go to any endpoint.
pub(crate) fn rules_of<'p>(exchange: &Exchange<'p>, local: &'p ClusterLocal) -> Option<&'p Hedge> {
    let own = exchange.progress.route.and_then(|route| route.route.hedge.as_ref());
    let rules = own.or(local.plan.cluster.resilience.hedge.as_ref())?;
    // What another endpoint would answer is not of the session, which would move there besides.
    let is_free = exchange.session.is_none_or(|session| session.pinned().is_none());
    (is_free && !authenticates(exchange, local)).then_some(rules)
}

/// Whether an endpoint authenticates the client by its connection, or is about to: another knows nothing of that, and would win with
/// its 401, while the connection that counts is dropped.
fn authenticates(exchange: &Exchange<'_>, local: &ClusterLocal) -> bool {
    exchange.authenticated_at(&local.plan).is_some() || is_brought(&exchange.incoming.head.fields)
}

/// A place at an endpoint that is none of those with the slots `asked`, within the bounds of the cluster. Nothing is waited
/// for.
pub(crate) fn take_place<'p>(
    exchange: &Exchange<'p>,
    local: &'p ClusterLocal,
    asked: &[u32],
) -> Option<(Lease, Option<Pass>)> {
    let (plan, worker, head) = (&local.plan, exchange.worker, &exchange.incoming.head);
    let ask = Ask {
        tried: asked,
        key: plan.key(head, exchange.client),
        now: exchange.progress.now,
        subset: exchange.progress.route.map_or(Subset::ALL, |route| route.subset(plan, head)),
        pinned: None,
        last_resort: LastResort::Nothing,
    };
    let mut pass = None;
    plan.let_in(&mut pass, ask.now).and_then(|()| plan.occupy(&mut pass)).ok()?;
    match plan.pick(&mut local.cache.borrow_mut(), &mut || worker.random.next(), &ask) {
        Pick::Endpoint(lease) if !asked.contains(&lease.state().slot) => Some((lease.because(PickReason::Hedge), pass)),
        _ => None,
    }
}
