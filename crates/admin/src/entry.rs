//! What every answer is made from, and who may have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, StatusCode};
use control::admin_tls::{self, Secured};
use control::{OrderSender, View};
use model::Snapshot;

use crate::access::{self, Caller};
use crate::bounded::Visit;
use crate::problem::Problem;
use crate::table::Call;

/// What every answer is made from.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) view: View,
    pub(crate) orders: OrderSender,
    /// The active rules are not for this listener, or soon will not be.
    pub(crate) is_closed: Arc<AtomicBool>,
}

/// Who was let in, and by the rules of what.
pub(crate) struct Entered {
    pub(crate) caller: Caller,
    pub(crate) under: Option<Arc<Snapshot>>,
}

/// Returns how the connection of a request is encrypted, if it is.
pub(crate) fn secured(request: &Request) -> Option<Secured> {
    let ConnectInfo(visit) = request.extensions().get::<ConnectInfo<Visit>>()?;
    visit.secured.clone()
}

pub(crate) fn allowed(
    shared: &Shared,
    call: &Call,
    (headers, secured): (&HeaderMap, Option<&Secured>),
) -> Result<Entered, Problem> {
    let Some(needs) = call.needs else {
        return Ok(Entered { caller: Caller { name: "".into(), is_trusted: false }, under: None });
    };
    let closed = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this listener is about to close");
    let plan = shared.view.plan();
    // Looked at after the plan was taken: it is set before the first plan whose rules are not for this listener.
    if shared.is_closed.load(Ordering::SeqCst) {
        return Err(closed());
    }
    let Some(plan) = plan else { return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "nothing runs yet")) };
    let Some(admin) = plan.snapshot.admin.as_ref() else { return Err(closed()) };
    if !admin_tls::still_holds(secured, admin.tls.as_ref()) {
        let message = "the access rules have changed since this connection began";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, message).suggest("reconnect"));
    }
    let caller = access::enter(admin, needs, (headers, secured.and_then(Secured::shown)))?;
    Ok(Entered { caller, under: Some(Arc::clone(&plan.snapshot)) })
}
