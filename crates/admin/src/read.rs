//! Calls that only look.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::history::Entry;
use control::{Shown, View};
use model::connections::Page;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::entry::Shared;
use crate::problem::Problem;
use crate::query::parameter;
use crate::table::{KINDS, What};
use crate::{PAGE, VERSION, caches, explain, json, maps, tables};

/// Answers that are made at once, beside those that are at hand.
const LOOKS_MAX: usize = 2;

/// Answers everything but explanations.
pub(crate) fn answer(view: &View, what: What, parts: &[String], query: Option<&str>) -> Result<Response, Problem> {
    Ok(match what {
        What::Page => ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE).into_response(),
        What::Alive => "alive\n".into_response(),
        What::Ready => ready(view),
        What::Metrics => metrics(view),
        What::Status => Json(json::status(&view.status(), VERSION)).into_response(),
        What::Config => {
            let shown = view.shown();
            tagged(&shown, Json(chosen(&shown, query)?))
        }
        What::Objects | What::Object => objects(view, parts, query)?,
        What::Changes => changes(view),
        What::Providers => {
            let all: Vec<Value> = view.providers().iter().map(json::provider).collect();
            Json(json!({ "providers": all })).into_response()
        }
        What::Generations => {
            let all: Vec<Value> = view.generations().iter().map(json::generation_in_full).collect();
            Json(json!({ "generations": all })).into_response()
        }
        What::Generation => Json(json::generation_in_full(&generation(view, parts)?)).into_response(),
        What::Endpoints | What::Endpoint => endpoints(view, parts)?,
        What::Canary => {
            let all: Vec<Value> = view.canaries().iter().map(json::canary).collect();
            Json(json!({ "canaries": all })).into_response()
        }
        What::Maps | What::Map | What::MapEntry => maps::answer(view, what, parts, query)?,
        What::Log => Json(json!({ "level": telemetry::log::level().as_str() })).into_response(),
        What::Peers => Json(json::peers(view.peers().as_ref())).into_response(),
        What::Caches | What::Cache => caches::look(view, parts)?,
        What::Tables | What::Table | What::Entry => tables::look(view, what, parts, query)?,
        _ => return Err(Problem::new(StatusCode::NOT_FOUND, "there is no such call")),
    })
}

/// Computes a response on another thread, because it takes time in proportion to the number of objects, and this thread answers health
/// probes.
pub(crate) async fn answered(
    shared: Shared,
    (what, parts): (What, Vec<String>),
    query: Option<&str>,
) -> Result<Response, Problem> {
    static TURNS: Semaphore = Semaphore::const_new(LOOKS_MAX);
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this is not available now");
    let turn = TURNS.acquire().await.map_err(|_| busy())?;
    let query = query.map(str::to_owned);
    let made = tokio::task::spawn_blocking(move || {
        // Also when no request waits for it any more.
        let _turn = turn;
        answer(&shared.view, what, &parts, query.as_deref())
    });
    made.await.map_err(|_| busy())?
}

/// Returns the etag of a configuration of this process.
pub(crate) fn tag(revision: u64) -> String {
    format!("\"{}-{revision}\"", started())
}

/// Returns the revision of an etag from [`tag`], or `None` if it is not from this process.
pub(crate) fn revision(tag: &str) -> Option<u64> {
    let inside = tag.strip_prefix('"')?.strip_suffix('"')?;
    inside.strip_prefix(started())?.strip_prefix('-')?.parse().ok()
}

/// Generations are counted from 1 by every process.
fn started() -> &'static str {
    static STARTED: OnceLock<String> = OnceLock::new();
    STARTED.get_or_init(|| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        format!("{:x}", since.as_millis())
    })
}

fn tagged(shown: &Shown, body: impl IntoResponse) -> Response {
    let mut answer = body.into_response();
    if let Ok(tag) = HeaderValue::from_str(&tag(shown.revision)) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

fn chosen(shown: &Shown, query: Option<&str>) -> Result<Value, Problem> {
    match parameter(query, "as").as_deref() {
        None | Some("effective") => Ok(shown.effective()),
        Some("written") => Ok(shown.written()),
        Some(other) => {
            Err(Problem::new(StatusCode::BAD_REQUEST, format!("`as` must be `effective` or `written`, not `{other}`")))
        }
    }
}

/// Returns the kind of objects that a part of a path names.
pub(crate) fn kind(text: &str) -> Result<&'static str, Problem> {
    let found = KINDS.into_iter().find(|kind| *kind == text);
    found.ok_or_else(|| {
        let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no kind of objects called `{text}`"));
        config::did_you_mean(text, KINDS).into_iter().fold(problem, Problem::suggest)
    })
}

fn objects(view: &View, parts: &[String], query: Option<&str>) -> Result<Response, Problem> {
    let shown = view.shown();
    let kind = kind(&parts[0])?;
    let mut all = chosen(&shown, query)?;
    let found = all.get_mut(kind).map(Value::take).unwrap_or_default();
    let Some(name) = parts.get(1) else { return Ok(tagged(&shown, Json(found))) };
    let effective = shown.effective();
    let names: Vec<&str> = match &effective[kind] {
        Value::Object(map) => map.keys().map(String::as_str).collect(),
        Value::Array(items) => items.iter().filter_map(|item| item["name"].as_str()).collect(),
        _ => Vec::new(),
    };
    let object = match &found {
        Value::Array(items) => names.iter().position(|known| known == name).and_then(|at| items.get(at)),
        map => map.get(name.as_str()),
    };
    match object {
        Some(object) => Ok(tagged(&shown, Json(object.clone()))),
        None => {
            let kind = kind.trim_end_matches('s');
            let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no {kind} `{name}`"));
            Err(config::did_you_mean(name, names).into_iter().fold(problem, Problem::suggest))
        }
    }
}

fn changes(view: &View) -> Response {
    let shown = view.shown();
    let objects: Vec<Value> = shown
        .desired
        .changes
        .places()
        .map(|(place, stands)| json!({ "place": place, "change": if stands { "set" } else { "removed" } }))
        .collect();
    let wishes: Vec<_> = shown.desired.wishes.iter().collect();
    let kept = view.plan().and_then(|plan| plan.snapshot.admin.as_ref()?.state.clone());
    tagged(&shown, Json(json!({ "objects": objects, "wishes": wishes, "kept_in": kept })))
}

/// Returns the number in a path.
pub(crate) fn number(parts: &[String]) -> Result<u64, Problem> {
    let text = &parts[0];
    text.parse().map_err(|_| Problem::new(StatusCode::NOT_FOUND, format!("`{text}` is not the number of a generation")))
}

fn generation(view: &View, parts: &[String]) -> Result<Entry, Problem> {
    let wanted = number(parts)?;
    let found = view.generations().into_iter().find(|entry| entry.generation == wanted);
    found.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("generation {wanted} is not in the history")))
}

fn endpoints(view: &View, parts: &[String]) -> Result<Response, Problem> {
    let status = view.status();
    let missing = |message: String, name: &str, names: Vec<&str>| {
        let problem = Problem::new(StatusCode::NOT_FOUND, message);
        config::did_you_mean(name, names).into_iter().fold(problem, Problem::suggest)
    };
    let name = &parts[0];
    let Some(cluster) = status.clusters.iter().find(|cluster| cluster.name.as_str() == name) else {
        let names = status.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        return Err(missing(format!("there is no cluster `{name}`"), name, names));
    };
    let Some(wanted) = parts.get(1) else {
        let all: Vec<Value> = cluster.endpoints.iter().map(json::endpoint).collect();
        return Ok(Json(json!({ "cluster": name, "endpoints": all })).into_response());
    };
    match cluster.endpoints.iter().find(|endpoint| endpoint.name.as_str() == wanted) {
        Some(endpoint) => Ok(Json(json::endpoint(endpoint)).into_response()),
        None => {
            let names = cluster.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
            Err(missing(format!("the cluster `{name}` has no endpoint `{wanted}`"), wanted, names))
        }
    }
}

/// Returns 200 while a plan is active and the program is not shutting down.
fn ready(view: &View) -> Response {
    let state = view.state();
    let status = if state == control::State::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{}\n", state.as_str())).into_response()
}

fn metrics(view: &View) -> Response {
    let mut text = String::with_capacity(16 * 1024);
    view.expose(VERSION, &mut text);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Answers `/api/connections`.
pub(crate) async fn connections(shared: Shared, query: Option<&str>) -> Result<Response, Problem> {
    const LIMIT: u64 = 100;
    let number = |name: &str, default: u64| match parameter(query, name) {
        None => Ok(default),
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` is a number, not `{text}`"))),
    };
    let max = number("limit", LIMIT)?.clamp(1, 1_000) as usize;
    let page = Page { after: number("after", 0)?, max, listener: parameter(query, "listener") };
    let view = shared.view;
    if let Some(name) = &page.listener {
        let plan = view.plan();
        let listeners = plan.iter().flat_map(|plan| &plan.listeners).map(|plan| plan.listener.name.as_str());
        let names: Vec<&str> = listeners.collect();
        if !names.contains(&name.as_str()) {
            let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no listener `{name}`"));
            return Err(config::did_you_mean(name, names).into_iter().fold(problem, Problem::suggest));
        }
    }
    // Each worker looks at all of its connections for this: never twice at a time.
    static ONE: Semaphore = Semaphore::const_new(1);
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "a worker is busy; try again");
    let turn = ONE.acquire().await.map_err(|_| busy())?;
    let listed = tokio::task::spawn_blocking(move || {
        // Also when no request waits for it any more.
        let _turn = turn;
        view.connections().map(|all| (all.list)(&page))
    });
    // A page without those of a worker that is late would look whole.
    let all = listed.await.map_err(|_| busy())?.unwrap_or_else(|| Some(Vec::new())).ok_or_else(busy)?;
    let next = all.last().filter(|_| all.len() == max).map(|last| last.id);
    let told: Vec<Value> = all
        .iter()
        .map(|one| {
            json!({
                "id": one.id,
                "listener": one.listener.as_str(),
                "peer": one.peer.to_string(),
                "open_for_s": one.open_for.as_secs_f64(),
                "worker": one.worker,
                "is_ending": one.is_ending,
            })
        })
        .collect();
    Ok(Json(json!({ "connections": told, "next": next })).into_response())
}

/// Answers `/api/explain`.
pub(crate) async fn explained(shared: Shared, query: Option<&str>) -> Result<Response, Problem> {
    // It looks at all of a cluster: never on this thread, which answers for the health of the process, and never twice at
    // a time.
    static ONE: Semaphore = Semaphore::const_new(1);
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this cannot be explained at the moment");
    let turn = ONE.acquire().await.map_err(|_| busy())?;
    let query = query.unwrap_or_default().to_owned();
    let made = tokio::task::spawn_blocking(move || {
        // Also when no request waits for it any more.
        let _turn = turn;
        explain::explain(&shared.view, &query)
    });
    match made.await {
        Ok(Ok(explanation)) => Ok(Json(explanation).into_response()),
        Ok(Err(refused)) => Ok(refused.into_response()),
        Err(_) => Err(busy()),
    }
}
