//! Calls about caches.

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::View;
use control::caches::{CacheProblem, CacheStatus, Purge};
use serde_json::{Map, Value, json};
use telemetry::log;

use crate::entry::Shared;
use crate::problem::Problem;
use crate::query::parameter;

/// Answers calls that only look.
pub(crate) fn look(view: &View, parts: &[String]) -> Result<Response, Problem> {
    let caches = view.caches();
    let Some(name) = parts.first() else {
        return Ok(Json(json!({ "caches": caches.iter().map(status).collect::<Vec<_>>() })).into_response());
    };
    match caches.iter().find(|cache| cache.name == *name) {
        Some(cache) => Ok(Json(status(cache)).into_response()),
        None => {
            let names = caches.into_iter().map(|cache| cache.name).collect();
            Err(refused(&CacheProblem::NoCache(names), name))
        }
    }
}

/// Purges responses.
pub(crate) async fn purge(
    shared: Shared,
    parts: Vec<String>,
    query: Option<String>,
    author: Arc<str>,
) -> Result<Response, Problem> {
    let name = parts.into_iter().next().unwrap_or_default();
    let (what, is_soft) = asked(query.as_deref())?;
    let purged = tokio::task::spawn_blocking(move || {
        let count = shared.view.purge_cache(&name, &what, is_soft).map_err(|problem| refused(&problem, &name))?;
        log::info("a cache was purged by the API", &[("cache", &name), ("responses", &count), ("by", &author)]);
        Ok(Json(json!({ "purged": count })).into_response())
    });
    purged.await.map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this is not available now"))?
}

/// Returns what is to be purged, and whether it stays to be validated.
fn asked(query: Option<&str>) -> Result<(Purge, bool), Problem> {
    let bad = |message: String| Problem::new(StatusCode::BAD_REQUEST, message);
    let is_soft = match parameter(query, "soft").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(bad(format!("`soft` is `true` or `false`, not `{other}`"))),
    };
    let given = ["url", "prefix", "tag"].map(|name| parameter(query, name));
    let what = match given {
        [None, None, None] => Purge::All,
        [Some(url), None, None] => Purge::Url(url),
        [None, Some(prefix), None] => Purge::Prefix(prefix),
        [None, None, Some(tag)] => Purge::Tag(tag),
        _ => {
            return Err(
                bad("`url`, `prefix` and `tag` exclude each other".to_owned()).suggest("purge one after the other")
            );
        }
    };
    Ok((what, is_soft))
}

fn refused(problem: &CacheProblem, name: &str) -> Problem {
    match problem {
        CacheProblem::NoCache(names) => {
            let told = Problem::new(StatusCode::NOT_FOUND, format!("there is no cache `{name}`"));
            let names = names.iter().map(String::as_str);
            config::did_you_mean(name, names).into_iter().fold(told, Problem::suggest)
        }
        CacheProblem::FilesLeft(count) => {
            let told = format!(
                "{count} responses of `{name}` are purged, but not all of their files are removed or marked yet"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, told)
                .suggest("purge again before a restart; the log says why files cannot be removed")
        }
        CacheProblem::BadUrl(url) => {
            let told = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("`{url}` is not a URL"));
            told.suggest("write scheme and host, such as `https://shop.example/a`")
        }
    }
}

fn status(cache: &CacheStatus) -> Value {
    let disk = cache.disk.as_ref().map(|disk| {
        json!({
            "path": disk.path,
            "max": disk.max,
            "bytes": disk.bytes,
            "entries": disk.entries,
            "hits": disk.hits,
            "evictions": disk.evictions,
            "failures": disk.failures.iter().map(|(reason, count)| ((*reason).to_owned(), json!(count))).collect::<Map<_, _>>(),
        })
    });
    json!({
        "name": cache.name,
        "memory": cache.memory,
        "bytes": cache.bytes,
        "entries": cache.entries,
        "hits": cache.hits,
        "misses": cache.misses,
        "evictions": cache.evictions,
        "purged": cache.purged,
        "disk": disk,
    })
}
