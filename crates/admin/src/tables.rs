//! Calls about tables of counters.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::View;
use control::tables::{TableProblem, TableRow, TableStatus};
use serde_json::{Map, Value, json};
use telemetry::log;

use crate::access::media_type;
use crate::entry::Shared;
use crate::problem::Problem;
use crate::query::parameter;
use crate::table::What;

/// Entries of a page.
const LIMIT: u64 = 100;
const LIMIT_MAX: u64 = 10_000;
const BODY_BYTES_MAX: usize = 4 << 10;
const BODY_WITHIN: Duration = Duration::from_secs(15);

/// Answers calls that only look.
pub(crate) fn look(view: &View, what: What, parts: &[String], query: Option<&str>) -> Result<Response, Problem> {
    let name = parts.first().map_or("", String::as_str);
    let body = match (what, parts.get(1)) {
        (What::Tables, _) => json!({ "tables": view.tables().iter().map(status).collect::<Vec<_>>() }),
        (_, Some(key)) => row(&view.table_row(name, key).map_err(|problem| refused(problem, name, key))?),
        (_, None) => {
            let by = parameter(query, "by");
            let max = match parameter(query, "limit") {
                None => LIMIT,
                Some(text) => text
                    .parse()
                    .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, format!("`limit` is a number, not `{text}`")))?,
            };
            let top = view.table_top(name, by.as_deref(), max.min(LIMIT_MAX) as usize);
            let (table, rows) = top.map_err(|problem| refused(problem, name, ""))?;
            let mut told = status(&table);
            told["rows"] = rows.iter().map(row).collect();
            told
        }
    };
    Ok(Json(body).into_response())
}

/// Answers calls that change entries.
pub(crate) async fn change(
    shared: Shared,
    (what, parts): (What, Vec<String>),
    request: Request,
    author: Arc<str>,
) -> Result<Response, Problem> {
    let values = if what == What::SetEntry { Some(values(request).await?) } else { None };
    let changed = tokio::task::spawn_blocking(move || changed(&shared.view, &parts, values, &author)).await;
    changed.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this is not available now"))?
}

fn changed(
    view: &View,
    parts: &[String],
    values: Option<Vec<(String, u64)>>,
    author: &Arc<str>,
) -> Result<Response, Problem> {
    let (name, key) = (parts.first().map_or("", String::as_str), parts.get(1).map(String::as_str));
    let told = |problem| refused(problem, name, key.unwrap_or_default());
    let (done, body) = match values {
        Some(values) => {
            let set = view.set_table_row(name, key.unwrap_or_default(), &values).map_err(told)?;
            ("an entry of a table was set by the API", row(&set))
        }
        None => {
            let count = view.clear_table(name, key).map_err(told)?;
            if count == 0 && key.is_some() {
                return Err(told(TableProblem::NoEntry));
            }
            ("entries of a table were cleared by the API", json!({ "cleared": count }))
        }
    };
    log::info(done, &[("table", &name), ("key", &key.unwrap_or("all")), ("by", &author)]);
    Ok(Json(body).into_response())
}

/// Reads a body that maps readings to numbers.
async fn values(request: Request) -> Result<Vec<(String, u64)>, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| media_type(kind.to_str().ok()?));
    if kind != Some("json") {
        let message = "the `content-type` must be `application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
    let read = tokio::time::timeout(BODY_WITHIN, to_bytes(request.into_body(), BODY_BYTES_MAX)).await.map_err(late)?;
    let too_large =
        |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have at most {BODY_BYTES_MAX} bytes"));
    let bytes = read.map_err(too_large)?;
    let shape = || {
        let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "the body is not a map of counters to numbers");
        problem.suggest("write `{ \"errors\": 0 }`")
    };
    let map: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|_| shape())?;
    if map.is_empty() {
        return Err(shape());
    }
    map.into_iter().map(|(name, value)| Ok((name, value.as_u64().ok_or_else(shape)?))).collect()
}

fn refused(problem: TableProblem, name: &str, key: &str) -> Problem {
    let near = |problem: Problem, text: &str, names: &[String]| {
        let names = names.iter().map(String::as_str);
        config::did_you_mean(text, names).into_iter().fold(problem, Problem::suggest)
    };
    match problem {
        TableProblem::NoTable(names) => {
            near(Problem::new(StatusCode::NOT_FOUND, format!("there is no table `{name}`")), name, &names)
        }
        TableProblem::NoReading(text, names) => {
            let message = format!("the table `{name}` does not count `{text}`");
            near(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message), &text, &names)
        }
        TableProblem::BadKey(message) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message),
        TableProblem::Level(text) => {
            let message = format!("`{text}` cannot be set: it is the number of connections that are open");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message)
        }
        TableProblem::NoEntry => {
            Problem::new(StatusCode::NOT_FOUND, format!("the table `{name}` has no entry `{key}`"))
        }
    }
}

fn status(table: &TableStatus) -> Value {
    json!({
        "name": table.name,
        "key": table.key,
        "keys_max": table.keys_max,
        "entries": table.entries,
        "evictions": table.evictions,
        "entry_bytes": table.entry_bytes,
        "expire_s": table.expire.as_secs_f64(),
        "readings": table.readings,
    })
}

fn row(row: &TableRow) -> Value {
    let values: Map<String, Value> = row.readings.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    json!({ "key": row.key, "idle_s": row.idle.as_secs_f64(), "values": values })
}
