//! From a request to its answer: the router over the [`table`](crate::table), and what handles each call.

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, on};

use crate::bounded::Visit;
use crate::entry::{Shared, allowed, secured};
use crate::openapi;
use crate::problem::Problem;
use crate::query::{check_parameters, path_parts};
use crate::read;
use crate::table::{CALLS, Call, What};
use crate::write;
use crate::{caches, tables};

/// Returns the router of all calls.
pub(crate) fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    let mut done: Vec<&str> = Vec::new();
    for call in CALLS {
        if done.contains(&call.path) {
            continue;
        }
        done.push(call.path);
        let methods =
            CALLS.iter().filter(|other| other.path == call.path).fold(MethodRouter::new(), |methods, call| {
                let shared = shared.clone();
                methods.merge(on(call.method.filter(), move |request: Request| answer(shared, call, request)))
            });
        router = router.route(call.path, methods);
    }
    router.fallback(unknown)
}

async fn unknown(request: Request) -> Problem {
    let path = request.uri().path();
    let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no `{path}`"));
    let paths = CALLS.iter().map(|call| call.path);
    match config::did_you_mean(path, paths).filter(|text| text.starts_with("did")) {
        Some(suggestion) => problem.suggest(suggestion),
        None => problem.suggest("`/api/openapi.json` lists all calls"),
    }
}

async fn answer(shared: Shared, call: &'static Call, request: Request) -> Response {
    let secured = secured(&request);
    let entered = match allowed(&shared, call, (request.headers(), secured.as_ref())) {
        Ok(entered) => entered,
        Err(problem) => return with_challenge(problem),
    };
    // An answer takes the time that it takes; the connection waits for it.
    let _busy = request.extensions().get::<ConnectInfo<Visit>>().map(|ConnectInfo(visit)| visit.busy.begin());
    if let Err(problem) = check_parameters(call, request.uri().query()) {
        return problem.into_response();
    }
    let parts = path_parts(call.path, request.uri().path());
    let done = match call.what {
        what if what.is_order() || what.changes_map() || what == What::SetLog => {
            write::answer(&shared, call, (&parts, entered), request).await
        }
        What::Connections => read::connections(shared, request.uri().query()).await,
        What::EndConnection => write::end_connection(shared, &parts, entered.caller.name).await,
        what if what.changes_table() => tables::change(shared, (what, parts), request, entered.caller.name).await,
        What::PurgeCache => {
            caches::purge(shared, parts, request.uri().query().map(str::to_owned), entered.caller.name).await
        }
        What::Upgrade => write::upgrade(&shared, entered).await,
        What::Explain => read::explained(shared, request.uri().query()).await,
        What::OpenApi => Ok(axum::Json(openapi::document()).into_response()),
        what if what.is_quick() => read::answer(&shared.view, what, &parts, request.uri().query()),
        what => read::answered(shared, (what, parts), request.uri().query()).await,
    };
    done.unwrap_or_else(IntoResponse::into_response)
}

/// Adds the challenge of RFC 6750 section 3 to a rejection. If the time limit was the cause, another connection may succeed.
fn with_challenge(problem: Problem) -> Response {
    let mut answer = problem.into_response();
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        let close = axum::http::HeaderValue::from_static("close");
        answer.headers_mut().insert(axum::http::header::CONNECTION, close);
    }
    if answer.status() == StatusCode::UNAUTHORIZED {
        let challenge = axum::http::HeaderValue::from_static("Bearer realm=\"equipoise\"");
        answer.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, challenge);
    }
    answer
}
