//! What a person writes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::{FieldName, Issue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::steps::{Cache, CacheStep, Counts};
use crate::cache::fresh::{Rules, Ttl};
use crate::cache::key::Parameters;
use crate::cache::slice::{SLICE_BYTES_MAX, SLICE_BYTES_MIN};
use crate::cache::store::FILLING_SHARE;
use crate::cache::{CacheStore, Disk};
use crate::expression::{ConditionText, Scope, ValueText};
use crate::filter::settings::{DurationText, Ordered, Settings, SizeText, suggest_nearest};
use crate::filter::{Compiling, FilterEntry, Flow, RequestStep, Steps, Turn};

pub(in crate::filter) const ENTRY: FilterEntry = FilterEntry::of::<CacheSettings>("cache", DOC);

const DOC: &str = r#"Stores responses in a cache of `caches`, and answers later requests from it (RFC 9111).

GET and HEAD are answered from stored responses to GET: with 304 if the client has the response, with 206 for one range of it. Filters before this one run
for every request; filters behind it, only for requests that go to an endpoint. A response is stored as the endpoint has sent it,
and all response filters of the route run each time that it is served.

For how long a response is fresh follows from `CDN-Cache-Control` (RFC 9213), or else from `Cache-Control` (`s-maxage`, `max-age`) and `Expires`. `ttl` applies
to responses that state nothing, by status or `any`. `override_ttl` applies whatever they state. Without any of these, a tenth of
the time since `Last-Modified` is taken, at most `heuristic_max` (24h). These are never stored, whatever a lifetime says: `no-store`, `private`,
`Vary: *`, responses with `Set-Cookie` (see `store_set_cookie`), responses to requests with `Authorization` or a verified user unless they say `public`,
`s-maxage` or `must-revalidate`, parts (206), responses whose end is that of the connection, and bodies larger than `body_max` (16MiB).

The key is scheme, host, path and query. `key` leaves parameters out, or adds values of expressions. Fields of a request are no part of the key,
unless `Vary` names them, or `key` does: an endpoint that answers by another field, such as `X-Forwarded-Host`, must say so by `Vary`. Routes never share a response.

Once a response is stale, it is validated with `If-None-Match` and `If-Modified-Since`. Within `stale_while_revalidate` it is served at once, and fetched
again in the background. Within `stale_if_error` it is served if the endpoint cannot be reached, does not answer in time, or answers
500, 502, 503 or 504. Both apply to responses that state neither, and never to those with `must-revalidate`, `proxy-revalidate` or `no-cache`.

Of several requests for a response that is not stored, one goes to an endpoint. The others wait for at most `lock` (5s) and are answered by what it brings.
With `slice`, responses are fetched from the endpoint in ranges of this size, and each is stored by itself. A request needs an endpoint only for the slices
that are not stored. Filters behind this one run for each slice: list limits before it. An endpoint that answers the first of them without 206, or without a strong validator, has its responses handled whole.

POST, PUT, PATCH, DELETE and unknown methods remove what is stored under their URL, if they succeed.

`bypass` is a condition on requests that neither read the cache nor fill it, `no_store` one on responses that are not stored. `tags` names the field of
responses with their tags, by which they are purged; it is not passed on to clients. `{cache_status}` is `hit`, `miss`, `expired`, `revalidated`, `stale` or `bypass`.
`equipoise_filter_events_total` counts the same.

```yaml
filters:
  - cache: { store: pages, stale_while_revalidate: 30s, stale_if_error: 1h }
```
"#;

const BODY_MAX: u64 = 16 << 20;
const LOCK: Duration = Duration::from_secs(5);
const HEURISTIC_MAX: Duration = Duration::from_secs(24 * 3_600);

/// What is stored, and for how long.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CacheSettings {
    /// Name of the cache.
    store: String,
    /// What the key has beside scheme, host and path.
    #[serde(default)]
    key: KeySettings,
    /// Lifetimes of responses that state none, by status or `any`.
    ttl: Option<Ordered<DurationText>>,
    /// Lifetimes of responses whatever they state, by status or `any`.
    override_ttl: Option<Ordered<DurationText>>,
    /// Upper bound on lifetimes that follow from `Last-Modified`; 24h by default.
    heuristic_max: Option<DurationText>,
    /// Time for which a stale response is served while it is fetched again, for responses that do not state it.
    stale_while_revalidate: Option<DurationText>,
    /// Time for which a stale response is served if the endpoint fails, for responses that do not state it.
    stale_if_error: Option<DurationText>,
    /// Longest body that is stored; 16MiB by default.
    body_max: Option<SizeText>,
    /// Fetch and store responses in ranges of this size, from 64KiB to 64MiB, if the endpoint has ranges. Without it, whole.
    slice: Option<SizeText>,
    /// How long a request waits for another one that fetches the same; 5s by default.
    lock: Option<DurationText>,
    /// Requests for a key until its response is stored, from 1 to 1000; 1 by default.
    #[schemars(range(min = 1, max = 1000))]
    min_uses: Option<u32>,
    /// Condition on requests that neither read the cache nor fill it.
    bypass: Option<ConditionText>,
    /// Condition on responses that are not stored.
    no_store: Option<ConditionText>,
    /// Field of responses with the tags by which they are purged, separated by commas or spaces.
    tags: Option<String>,
    /// Add `Cache-Status` (RFC 9211) to responses.
    #[serde(default)]
    status_field: bool,
    /// Store responses with `Set-Cookie`, and give the same cookies to all clients.
    #[serde(default)]
    store_set_cookie: bool,
    /// Follow `Cache-Control` and `Pragma` of requests, with which clients can have every request go to an endpoint.
    #[serde(default)]
    client_directives: bool,
}

/// What the key has beside scheme, host and path.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct KeySettings {
    /// Query parameters that do not count. `utm_*` stands for all that begin with `utm_`.
    ignore: Vec<String>,
    /// The only query parameters that count. `id*` stands for all that begin with `id`.
    only: Option<Vec<String>>,
    /// Expressions whose values are parts of the key, at most 8.
    add: Vec<ValueText>,
}

impl Settings for CacheSettings {
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
        let parameters = parameters(&self.key).map_err(|issue| issue.below("key"))?;
        if self.key.add.len() > 8 {
            return Err(Issue::at("key/add", "a key has at most 8 expressions"));
        }
        let mut adds = Vec::new();
        for (place, text) in self.key.add.iter().enumerate() {
            let added = text.compile(Scope::Request, compiling);
            adds.push(added.map_err(|issue| issue.below(&format!("key/add/{place}")))?);
        }
        let bypass = self.bypass.as_ref().map(|text| text.compile(Scope::Request, compiling)).transpose();
        let no_store = self.no_store.as_ref().map(|text| text.compile(Scope::Response, compiling)).transpose();
        let tags = self.tags.as_deref().map(FieldName::new).transpose();
        let min_uses = self.min_uses.unwrap_or(1);
        if !(1..=1000).contains(&min_uses) {
            return Err(Issue::at("min_uses", format!("{min_uses} is not from 1 to 1000")));
        }
        let rules = self.rules()?;
        let found = compiling.known_cache(&self.store).map_err(|names| no_cache(&self.store, &names))?;
        let body_max = self.body_max.as_ref().map_or(BODY_MAX, |size| size.0);
        if let Some(slice) = &self.slice {
            check_slice(slice.0, found.as_deref())?;
            check_behind(compiling)?;
        }
        if let Some(store) = found.as_deref() {
            check_disk(store, body_max, self.body_max.is_some())?;
        }
        let cache = Cache {
            note: compiling.note(),
            partition: partition(found.as_deref(), &self.key, compiling),
            parameters,
            adds: adds.into(),
            rules,
            body_max,
            lock: self.lock.map_or(LOCK, |time| time.0),
            min_uses,
            bypass: bypass.map_err(|issue| issue.below("bypass"))?,
            no_store: no_store.map_err(|issue| issue.below("no_store"))?,
            tags: tags.map_err(|message| Issue::at("tags", message))?,
            has_status_field: self.status_field,
            follows_clients: self.client_directives,
            slice: self.slice.as_ref().map(|size| size.0),
            counts: counts(compiling, self.slice.is_some()),
        };
        let Some(store) = found else { return Ok(Steps::of_request(NoStep)) };
        let step = CacheStep(Arc::new(cache), store);
        Ok(Steps {
            response: Some(Box::new(step.clone())),
            response_body: Some(Box::new(step.clone())),
            ..Steps::of_request(step)
        })
    }
}

impl CacheSettings {
    fn rules(&self) -> Result<Rules, Issue> {
        let seconds = |time: Option<DurationText>| time.map_or(0, |time| time.0.as_secs());
        Ok(Rules {
            ttl: ttl(self.ttl.as_ref()).map_err(|issue| issue.below("ttl"))?,
            override_ttl: ttl(self.override_ttl.as_ref()).map_err(|issue| issue.below("override_ttl"))?,
            heuristic_max: self.heuristic_max.map_or(HEURISTIC_MAX, |time| time.0).as_secs(),
            stale_while_revalidate: seconds(self.stale_while_revalidate),
            stale_if_error: seconds(self.stale_if_error),
            stores_cookies: self.store_set_cookie,
        })
    }
}

fn counts(compiling: &mut Compiling<'_>, has_slices: bool) -> Counts {
    Counts {
        hit: compiling.counter("hit"),
        missed: compiling.counter("missed"),
        expired: compiling.counter("expired"),
        revalidated: compiling.counter("revalidated"),
        stale: compiling.counter("stale"),
        bypassed: compiling.counter("bypassed"),
        slices: has_slices.then(|| compiling.counter("slice_fetched")),
    }
}

/// Of settings that are only checked, where caches are not known.
struct NoStep;

impl RequestStep for NoStep {
    fn apply(&self, _: &mut model::RequestHead, _: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }
}

fn no_cache(name: &str, names: &[String]) -> Issue {
    let issue = Issue::at("store", format!("there is no cache `{name}`"));
    match names.is_empty() {
        true => issue.suggest("define it in `caches` at the top level"),
        false => suggest_nearest(issue, name, names.iter().map(String::as_str)),
    }
}

/// Reports bodies that are longer than the disk of the cache.
fn check_disk(store: &CacheStore, body_max: u64, is_given: bool) -> Result<(), Issue> {
    let Some(disk) = store.disk().map(Disk::settings).filter(|disk| disk.max < body_max) else { return Ok(()) };
    let message =
        format!("`body_max` is {body_max} bytes, and the disk of cache `{}` holds {}", store.settings().name, disk.max);
    let issue = Issue::at(if is_given { "body_max" } else { "store" }, message);
    Err(issue.suggest("raise `disk.max` of the cache, or lower `body_max`"))
}

/// Reports slices that are too small or too large, or that the cache could not store.
fn check_slice(size: u64, store: Option<&CacheStore>) -> Result<(), Issue> {
    if !(SLICE_BYTES_MIN..=SLICE_BYTES_MAX).contains(&size) {
        let issue = Issue::at("slice", format!("a slice of {size} bytes is not from 64KiB to 64MiB"));
        return Err(issue.suggest("write a size such as 1MiB"));
    }
    let Some(store) = store else { return Ok(()) };
    let (memory, name) = (store.settings().memory, &store.settings().name);
    if store.disk().is_none() && size > memory / FILLING_SHARE {
        let message = format!(
            "a slice of {size} bytes is more than a quarter of the {memory} bytes of cache `{name}`: none could be stored"
        );
        return Err(Issue::at("slice", message).suggest("lower it, or raise `memory` of the cache"));
    }
    match store.disk().map(Disk::settings).filter(|disk| disk.max < size) {
        Some(disk) => {
            let message = format!("a slice has {size} bytes, and the disk of cache `{name}` holds {}", disk.max);
            Err(Issue::at("slice", message).suggest("raise `disk.max` of the cache, or lower `slice`"))
        }
        None => Ok(()),
    }
}

/// Reports filters that would answer the ranges of slices in the place of an endpoint, as if the client had asked for them.
fn check_behind(compiling: &Compiling<'_>) -> Result<(), Issue> {
    let Some(name) = compiling.listed_behind(&["cache", "files"]) else { return Ok(()) };
    let issue =
        Issue::at("slice", format!("`{name}` stands behind this `cache` and would answer the ranges of its slices"));
    Err(issue.suggest(match name {
        "cache" => "remove one `cache`, or remove `slice`".to_owned(),
        _ => format!("list `{name}` before `cache`, or remove `slice`"),
    }))
}

/// The first part of the keys, of this filter of this route alone. In memory it stays with those that take its place in later plans. On disk
/// it outlives the process, so that it follows from what the route is.
/// Neither survives a change of what the key is made of: the same key would mean another response.
fn partition(store: Option<&CacheStore>, key: &KeySettings, compiling: &mut Compiling<'_>) -> u64 {
    let key = canonical(key);
    // For a disk, too: a filter keeps its place among those that keep something.
    let number = *compiling.kept(&format!("partition {key}"), next_partition);
    if store.is_some_and(|store| store.disk().is_some()) { compiling.stable_id(&key) } else { number }
}

/// The settings of a key as text, equal for those that make the same keys.
fn canonical(key: &KeySettings) -> String {
    let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
    let adds: Vec<_> = key.add.iter().map(|text| text.expression.as_str()).collect();
    format!("{:?} {:?} {adds:?}", set(&key.ignore), key.only.as_deref().map(set))
}

/// A number that no other filter of the process has.
fn next_partition() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn parameters(key: &KeySettings) -> Result<Parameters, Issue> {
    let named = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect();
    match &key.only {
        Some(_) if !key.ignore.is_empty() => {
            Err(Issue::at("ignore", "`ignore` has no effect beside `only`").suggest("leave it out"))
        }
        Some(only) => Ok(Parameters::Only(named(only))),
        None if key.ignore.is_empty() => Ok(Parameters::All),
        None => Ok(Parameters::Ignore(named(&key.ignore))),
    }
}

fn ttl(written: Option<&Ordered<DurationText>>) -> Result<Ttl, Issue> {
    let (mut by_status, mut any) = (Vec::new(), None);
    for (status, time) in written.map_or(&[][..], |ttl| &ttl.0) {
        match status.parse() {
            _ if status == "any" => any = Some(time.0.as_secs()),
            Ok(status @ 200..=599) => by_status.push((status, time.0.as_secs())),
            _ => {
                let issue = Issue::at(status, format!("`{status}` is not a status"));
                return Err(issue.suggest("write one from 200 to 599, or `any`"));
            }
        }
    }
    Ok(Ttl { by_status: by_status.into(), any })
}

#[cfg(test)]
pub(super) fn canonical_of(key: serde_json::Value) -> String {
    canonical(&serde_json::from_value(key).expect("settings"))
}
