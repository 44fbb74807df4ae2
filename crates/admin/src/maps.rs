//! Maps: what is in them, and changes of single entries, which lie in memory only.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::View;
use control::maps::{Edit, MapPlan};
use serde_json::{Value, json};
use telemetry::log;

use crate::problem::Problem;
use crate::query::parameter;
use crate::table::What;

/// Entries of a page.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 10_000;

/// Answers a call that only looks.
pub(crate) fn answer(view: &View, what: What, parts: &[String], query: Option<&str>) -> Result<Response, Problem> {
    match what {
        What::Maps => {
            let all: Vec<Value> = all(view).iter().map(|map| told(map)).collect();
            Ok(Json(json!({ "maps": all })).into_response())
        }
        What::Map => entries(&*found(view, &parts[0])?, query),
        _ => entry(&*found(view, &parts[0])?, &parts[1]),
    }
}

fn all(view: &View) -> Vec<Arc<MapPlan>> {
    view.plan().map(|plan| plan.maps.clone()).unwrap_or_default()
}

fn found(view: &View, name: &str) -> Result<Arc<MapPlan>, Problem> {
    let all = all(view);
    match all.iter().find(|map| map.name().as_str() == name) {
        Some(map) => Ok(Arc::clone(map)),
        None => {
            let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no map `{name}`"));
            let names: Vec<&str> = all.iter().map(|map| map.name().as_str()).collect();
            Err(config::did_you_mean(name, names).into_iter().fold(problem, Problem::suggest))
        }
    }
}

fn told(map: &MapPlan) -> Value {
    let settings = map.map();
    json!({
        "name": settings.name.as_str(),
        "match": settings.kind.as_str(),
        "entries": map.len(),
        "edited": map.edited(),
        "file": settings.file,
        "default": settings.default,
    })
}

fn entries(map: &MapPlan, query: Option<&str>) -> Result<Response, Problem> {
    let number = |name: &str, default: usize| match parameter(query, name) {
        None => Ok(default),
        Some(text) => {
            let wrong = |_| Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` is a number, not `{text}`"));
            text.parse::<usize>().map_err(wrong)
        }
    };
    let (skipped, count) = (number("after", 0)?, number("limit", LIMIT)?.clamp(1, LIMIT_MAX));
    let shown = map.entries(&parameter(query, "containing").unwrap_or_default(), (skipped, count));
    let next = (shown.len() == count).then_some(skipped + count);
    let list: Vec<Value> = shown
        .iter()
        .map(|entry| json!({ "key": entry.key, "value": entry.value, "edited": entry.is_edited }))
        .collect();
    let mut body = told(map);
    body["list"] = list.into();
    body["next"] = next.into();
    Ok(Json(body).into_response())
}

/// What applies to a key, and the entry of that very key.
fn entry(map: &MapPlan, key: &str) -> Result<Response, Problem> {
    fits(map, key)?;
    let own = map.entry(key);
    let value = map.value_for(key);
    if own.is_none() && value.is_none() {
        let name = map.name();
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("the map `{name}` has no value for `{key}`")));
    }
    let is_edited = own.as_ref().is_some_and(|entry| entry.is_edited);
    let body = json!({
        "map": map.name().as_str(),
        "key": key,
        "value": value.or_else(|| own.as_ref().map(|entry| entry.value.clone())),
        "entry": own.as_ref().map(|entry| entry.value.as_str()),
        "edited": is_edited,
    });
    Ok(Json(body).into_response())
}

/// Says that a text can be no key of a map.
fn fits(map: &MapPlan, key: &str) -> Result<(), Problem> {
    let wrong = |message: String| {
        let message = format!("`{key}` cannot be a key of the map `{}`: {message}", map.name());
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    };
    map.map().kind.key(key).map(drop).map_err(wrong)
}

/// Carries out a call that changes an entry.
pub(crate) fn change(
    view: &View,
    (what, parts): (What, &[String]),
    value: Option<String>,
    author: &str,
) -> Result<Response, Problem> {
    let map = found(view, &parts[0])?;
    let key = parts.get(1).map(String::as_str);
    let refused = |message: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message);
    let name = map.name();
    key.map_or(Ok(()), |key| fits(&map, key))?;
    match (what, key) {
        (What::DeleteMapEntry, Some(key)) if map.entry(key).is_none() => {
            let problem = Problem::new(StatusCode::NOT_FOUND, format!("the map `{name}` has no entry `{key}`"));
            return Err(
                problem.suggest("only the key as it was written has an entry; `ctl map get` shows which value applies")
            );
        }
        (What::SetMapEntry, Some(key)) => map.edit(key, Edit::Set(value.unwrap_or_default())).map_err(refused)?,
        (What::DeleteMapEntry, Some(key)) => map.edit(key, Edit::Deleted).map_err(refused)?,
        (_, key) => {
            let count = map.reset(key);
            if let Some(key) = key.filter(|_| count == 0) {
                let message = format!("the entry `{key}` of the map `{name}` is as the configuration has it");
                return Err(Problem::new(StatusCode::NOT_FOUND, message));
            }
        }
    }
    let done = match what {
        What::SetMapEntry => "set",
        What::DeleteMapEntry => "deleted",
        _ => "reset",
    };
    let pairs: log::Pairs<'_> = &[("map", name), ("key", &key.unwrap_or("all")), ("change", &done), ("by", &author)];
    log::info("a map was changed by the API", pairs);
    Ok(Json(told(&map)).into_response())
}
