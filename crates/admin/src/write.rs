//! Calls that change something.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::admin_state::STATES;
use control::canary::{TIME_MAX, Terms};
use control::{Change, Done, EndpointEdit, Order};
use serde_json::{Value, json};
use telemetry::log::{self, LEVELS};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::media_type;
use crate::entry::{self, Entered, Shared};
use crate::maps;
use crate::problem::Problem;
use crate::query::parameter;
use crate::read::{self, number};
use crate::table::{Body, Call, What};

/// Largest configuration that is taken.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Largest body of what is only a word or a number.
const SMALL_BODY_BYTES_MAX: usize = 4 << 10;
/// Longest time for a body to come, and for room for it.
const BODY_WITHIN: Duration = Duration::from_secs(15);
const ROOM_WITHIN: Duration = Duration::from_secs(15);
/// Largest weight; the configuration has the same bound.
const WEIGHT_MAX: u64 = model::limits::WEIGHT_MAX as u64;

/// Answers a call that changes something.
pub(crate) async fn answer(
    shared: &Shared,
    call: &Call,
    (parts, entered): (&[String], Entered),
    request: Request,
) -> Result<Response, Problem> {
    let what = call.what;
    let expected = expected(what, request.headers())?;
    let is_dry = match parameter(request.uri().query(), "dry_run").as_deref() {
        None | Some("false") => false,
        Some("true" | "") => true,
        Some(other) => {
            let message = format!("`dry_run` must be `true` or `false`, not `{other}`");
            return Err(Problem::new(StatusCode::BAD_REQUEST, message));
        }
    };
    let canary = if what.can_be_tried() { terms(request.uri().query())? } else { None };
    let (headers, secured) = (request.headers().clone(), entry::secured(&request));
    // Held until it is done: until then the body is somewhere.
    let mut _room = None;
    let text = match what.body() {
        Body::None => String::new(),
        body => {
            check_kind(body, &headers)?;
            let length = length(body, &headers)?;
            _room = room_for(length).await?;
            read(body, request).await?
        }
    };
    if what == What::SetLog {
        // The body took its time; who could not come in now is not heard.
        let caller = entry::allowed(shared, call, (&headers, secured.as_ref()))?.caller;
        return set_log(&text, &caller.name);
    }
    if what.changes_map() {
        let caller = entry::allowed(shared, call, (&headers, secured.as_ref()))?.caller;
        let value = if what == What::SetMapEntry { Some(value_of(&text)?) } else { None };
        let (view, parts) = (shared.view.clone(), parts.to_vec());
        let changed = tokio::task::spawn_blocking(move || maps::change(&view, (what, &parts), value, &caller.name));
        let failed = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this is not available now");
        return changed.await.map_err(failed)?;
    }
    let change = wanted(what, parts, text)?;
    let Entered { caller, under } = entered;
    let order = Order { change, author: caller.name, expected, is_dry, canary, is_trusted: caller.is_trusted, under };
    let done = shared.orders.place(order).await?;
    Ok(told(&done, is_dry))
}

/// Returns the terms of a canary, if one is requested.
pub(crate) fn terms(query: Option<&str>) -> Result<Option<Terms>, Problem> {
    const NAMES: [&str; 4] = ["for", "errors_max", "latency_max", "exchanges_min"];
    let wrong = |name: &str, wanted: &str| {
        let text = parameter(query, name).unwrap_or_default();
        Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` is {wanted}, not `{text}`"))
    };
    let number = |name: &str, default: f64, max: f64| match parameter(query, name) {
        None => Ok(default),
        Some(text) => {
            let number = text.trim_end_matches('%').parse::<f64>().ok().filter(|number| (0.0..=max).contains(number));
            number.ok_or_else(|| wrong(name, &format!("a number from 0 to {max}")))
        }
    };
    let Some(share) = parameter(query, "canary") else {
        if let Some(name) = NAMES.into_iter().find(|name| parameter(query, name).is_some()) {
            let problem = Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` has no effect without `canary`"));
            return Err(problem.suggest("add `canary=10%25`"));
        }
        return Ok(None);
    };
    let share = share.trim_end_matches('%').parse::<u8>().ok().filter(|share| (1..=99).contains(share));
    let defaults = Terms::default();
    let time = match parameter(query, "for") {
        None => defaults.time,
        Some(text) => config::units::parse_duration(&text)
            .ok()
            .filter(|time| !time.is_zero() && *time <= TIME_MAX)
            .ok_or_else(|| wrong("for", "a time of at most 1h, such as `60s`"))?,
    };
    Ok(Some(Terms {
        share_percent: share.ok_or_else(|| wrong("canary", "a share from 1% to 99%"))?,
        time,
        errors_max_percent: number("errors_max", defaults.errors_max_percent, 100.0)?,
        latency_max_percent: number("latency_max", defaults.latency_max_percent, 100_000.0)?,
        exchanges_min: number("exchanges_min", defaults.exchanges_min as f64, 1e9)?.max(1.0) as u64,
    }))
}

/// Lets a new program take over.
pub(crate) async fn upgrade(shared: &Shared, Entered { caller, under }: Entered) -> Result<Response, Problem> {
    let (author, is_trusted) = (caller.name, caller.is_trusted);
    let order =
        Order { change: Change::Upgrade, author, expected: None, is_dry: false, is_trusted, under, canary: None };
    let done = shared.orders.place(order).await?;
    Ok(Json(json!({ "successor": done.successor, "generation": done.generation })).into_response())
}

/// Ends a connection.
pub(crate) async fn end_connection(shared: Shared, parts: &[String], author: Arc<str>) -> Result<Response, Problem> {
    let text = parts[0].clone();
    let missing = || Problem::new(StatusCode::NOT_FOUND, format!("there is no connection `{text}`"));
    let id: u64 = text.parse().map_err(|_| missing())?;
    let view = shared.view;
    let ended = tokio::task::spawn_blocking(move || view.connections().is_some_and(|all| (all.end)(id))).await;
    if !ended.unwrap_or(false) {
        return Err(missing());
    }
    log::info("a connection was closed by the API", &[("id", &id), ("by", &author)]);
    Ok(Json(json!({ "id": id })).into_response())
}

/// Reserves memory for a body and its parsed form, from the budget of all bodies. Small bodies always get memory, so that slow senders of
/// large ones do not delay others.
async fn room_for(bytes: usize) -> Result<Option<SemaphorePermit<'static>>, Problem> {
    static ROOM: Semaphore = Semaphore::const_new(4 * BODY_BYTES_MAX);
    const SMALL: usize = 64 << 10;
    if bytes <= SMALL {
        return Ok(None);
    }
    let busy = || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many large changes at once");
    let bytes = u32::try_from(bytes).map_err(|_| busy())?;
    match tokio::time::timeout(ROOM_WITHIN, ROOM.acquire_many(bytes)).await {
        Ok(Ok(room)) => Ok(Some(room)),
        _ => Err(busy()),
    }
}

/// Returns the revisions that `if-match` names, any of which will do (RFC 9110 section 13.1.1).
fn expected(what: What, headers: &HeaderMap) -> Result<Option<Vec<u64>>, Problem> {
    let mut fields = headers.get_all(header::IF_MATCH).iter().peekable();
    if fields.peek().is_none() {
        if !what.replaces() {
            return Ok(None);
        }
        let message = "`if-match` is required, so that no one else's change is overwritten";
        let mend = "send the `etag` of a GET in `if-match`; `if-match: *` overwrites unconditionally";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, message).suggest(mend));
    }
    let mut found = Vec::new();
    for tag in fields.flat_map(|field| field.to_str().unwrap_or_default().split(',')).map(str::trim) {
        if tag == "*" {
            return Ok(None);
        }
        // A tag that is not ours fits nothing.
        found.extend(read::revision(tag));
    }
    Ok(Some(found))
}

fn check_kind(body: Body, headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or("?"));
    let takes_yaml = matches!(body, Body::Configuration | Body::Object);
    match kind.map(media_type) {
        Some(Some("json")) => Ok(()),
        Some(Some(_)) if takes_yaml => Ok(()),
        _ => {
            let wanted = if takes_yaml { "`application/json` or `application/yaml`" } else { "`application/json`" };
            let message = format!("the `content-type` must be {wanted}");
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
    }
}

fn bytes_max(body: Body) -> usize {
    match body {
        Body::Configuration | Body::Object => BODY_BYTES_MAX,
        // A value of the longest, with every character escaped.
        Body::Value => 8 * model::map::VALUE_BYTES_MAX,
        _ => SMALL_BODY_BYTES_MAX,
    }
}

fn too_large(max: usize) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have at most {max} bytes"))
}

/// Returns the limit on the length of a body.
fn length(body: Body, headers: &HeaderMap) -> Result<usize, Problem> {
    let max = bytes_max(body);
    let said = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    match said {
        Some(said) if said > max as u64 => Err(too_large(max)),
        Some(said) => Ok(said as usize),
        None => Ok(max),
    }
}

async fn read(body: Body, request: Request) -> Result<String, Problem> {
    let max = bytes_max(body);
    let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
    let read = tokio::time::timeout(BODY_WITHIN, to_bytes(request.into_body(), max)).await.map_err(late)?;
    let bytes = read.map_err(|_| too_large(max))?;
    String::from_utf8(bytes.into()).map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8"))
}

/// Returns the order that a call makes.
fn wanted(what: What, parts: &[String], text: String) -> Result<Change, Problem> {
    let part = |at: usize| parts.get(at).cloned().unwrap_or_default();
    Ok(match what {
        What::PutConfig => Change::Replace(text),
        What::ResetConfig => Change::Reset,
        What::Reload => Change::Reload,
        What::Promote => Change::EndCanary { promotes: true },
        What::Abort => Change::EndCanary { promotes: false },
        What::PutObject => Change::ReplaceObject { kind: read::kind(&part(0))?, name: part(1), text: Some(text) },
        What::DeleteObject => Change::ReplaceObject { kind: read::kind(&part(0))?, name: part(1), text: None },
        What::Rollback => Change::Rollback(number(parts)?),
        What::AddEndpoint => Change::Endpoints { cluster: part(0), edit: EndpointEdit::Add(text) },
        What::RemoveEndpoint => Change::Endpoints { cluster: part(0), edit: EndpointEdit::Remove(part(1)) },
        What::Weigh => {
            let weight = field(&text, "weight")?;
            let number =
                weight.as_u64().filter(|weight| *weight <= WEIGHT_MAX).and_then(|weight| weight.try_into().ok());
            let weight =
                number.ok_or_else(|| bad(format!("`weight` must be a number from 0 to {WEIGHT_MAX}, not {weight}")))?;
            Change::Endpoints { cluster: part(0), edit: EndpointEdit::Weight(part(1), weight) }
        }
        _ => {
            let state = field(&text, "state")?;
            let known = STATES.into_iter().map(|(name, _)| name).find(|name| state == *name);
            if known.is_none() && state != "ready" {
                let names = STATES.map(|(name, _)| name).into_iter().chain(["ready"]);
                let problem = bad(format!("`state` cannot be {state}"));
                let wished = state.as_str().unwrap_or_default();
                return Err(config::did_you_mean(wished, names).into_iter().fold(problem, Problem::suggest));
            }
            Change::Wish { cluster: part(0), endpoint: part(1), state: known }
        }
    })
}

fn bad(message: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message)
}

/// Returns the only field of a small body.
fn field(text: &str, name: &str) -> Result<Value, Problem> {
    let shape = || bad(format!("the body is not `{{ \"{name}\": … }}`"));
    let Ok(Value::Object(mut map)) = serde_json::from_str(text) else { return Err(shape()) };
    match map.remove(name) {
        Some(value) if map.is_empty() => Ok(value),
        _ => Err(shape()),
    }
}

/// Returns the value of an entry: a text, a number or a truth value.
fn value_of(text: &str) -> Result<String, Problem> {
    match field(text, "value")? {
        Value::String(text) => Ok(text),
        value @ (Value::Number(_) | Value::Bool(_)) => Ok(value.to_string()),
        other => Err(bad(format!("`value` must be a text, a number or a truth value, not {other}"))),
    }
}

fn set_log(text: &str, author: &str) -> Result<Response, Problem> {
    let wanted = field(text, "level")?;
    let Some(level) = LEVELS.into_iter().find(|level| wanted == level.as_str()) else {
        let problem = bad(format!("`level` cannot be {wanted}"));
        let names = LEVELS.map(log::Level::as_str);
        let mend = config::did_you_mean(wanted.as_str().unwrap_or_default(), names);
        return Err(mend.into_iter().fold(problem, Problem::suggest));
    };
    let before = log::level();
    if before != level {
        let pairs: log::Pairs<'_> = &[("from", &before.as_str()), ("to", &level.as_str()), ("by", &author)];
        // Told whatever the level is: all that is not told after this is not told because of it.
        log::error("the level of this log was set by the API", pairs);
    }
    log::set_level(level);
    Ok(Json(json!({ "level": level.as_str() })).into_response())
}

fn told(done: &Done, is_dry: bool) -> Response {
    let mut body = json!({
        "generation": done.generation,
        "changed": done.is_changed,
        "dry_run": is_dry,
        "canary": done.is_tried,
        "differences": done.differences.list,
        "differences_left_out": done.differences.left_out,
        "effects": done.effects,
        "warnings": done.warnings,
    });
    if let Some(reason) = &done.not_kept {
        body["not_kept"] = reason.as_str().into();
    }
    let mut answer = Json(body).into_response();
    if let Ok(tag) = HeaderValue::from_str(&read::tag(done.revision)) {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn terms_of_a_canary_are_read_or_refused() {
        let read = |query: &str| terms(Some(query)).map_err(|problem| problem.status().as_u16());
        assert_eq!(read("dry_run=true"), Ok(None));
        let all = read("canary=5%25&for=90s&errors_max=0.5%25&latency_max=20&exchanges_min=7").unwrap().unwrap();
        let wanted = Terms {
            share_percent: 5,
            time: Duration::from_secs(90),
            errors_max_percent: 0.5,
            latency_max_percent: 20.0,
            exchanges_min: 7,
        };
        assert_eq!(all, wanted);
        assert_eq!(read("canary=10").unwrap().unwrap(), Terms::default());
        for wrong in [
            "canary=0",
            "canary=100%25",
            "canary=",
            "canary=x",
            "canary=10&for=0s",
            "canary=10&for=2h",
            "canary=10&for=5",
            "canary=10&errors_max=-1",
            "canary=10&errors_max=NaN",
            "canary=10&latency_max=inf",
            "canary=10&exchanges_min=x",
            "for=60s",
            "errors_max=1",
        ] {
            assert_eq!(read(wrong), Err(400), "{wrong}");
        }
    }
}
