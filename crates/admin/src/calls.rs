//! All that can be asked, in one table: the listener answers to these and to nothing else, and the OpenAPI document is made
//! of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use control::admin_tls::{self, Secured};
use control::{OrderSender, View};
use model::Snapshot;
use model::snapshot::AdminRole;

use crate::access::{self, Caller};
use crate::bounded::Visit;
use crate::look;
use crate::openapi;
use crate::problem::Problem;

/// What every answer is made from.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) view: View,
    pub(crate) orders: OrderSender,
    /// The rules in force are not for this listener, or soon will not be.
    pub(crate) is_closed: Arc<AtomicBool>,
}

/// Something that can be asked.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Parts in braces take any one part of a path.
    pub(crate) path: &'static str,
    pub(crate) what: What,
    /// What the token must be good for. `None`: nobody is asked for one.
    pub(crate) needs: Option<AdminRole>,
    /// One sentence without a full stop.
    pub(crate) summary: &'static str,
    /// Parameters of the query, with what they do.
    pub(crate) query: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Delete,
}

impl Method {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Put => MethodFilter::PUT,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Page,
    Alive,
    Ready,
    Metrics,
    Status,
    Explain,
    OpenApi,
    Config,
    PutConfig,
    ResetConfig,
    Objects,
    Object,
    PutObject,
    DeleteObject,
    Changes,
    Providers,
    Reload,
    Generations,
    Generation,
    Rollback,
    Endpoints,
    AddEndpoint,
    Endpoint,
    RemoveEndpoint,
    Weigh,
    Wish,
    Connections,
    EndConnection,
    Canary,
    Promote,
    Abort,
    Log,
    SetLog,
    Upgrade,
}

impl What {
    /// Whether it replaces what is there, so that `if-match` has to say what that was.
    pub(crate) fn replaces(self) -> bool {
        matches!(self, Self::PutConfig | Self::PutObject)
    }

    /// Whether it is an order for the owner of the configuration.
    pub(crate) fn is_order(self) -> bool {
        use What::{AddEndpoint, DeleteObject, PutConfig, PutObject, Reload, RemoveEndpoint, ResetConfig, Rollback};
        let config = [PutConfig, PutObject, DeleteObject, ResetConfig, Rollback, Reload];
        let ends = [Self::Promote, Self::Abort].contains(&self);
        ends || config.contains(&self) || [AddEndpoint, RemoveEndpoint, Self::Weigh, Self::Wish].contains(&self)
    }

    /// Whether its answer is at hand, however much there is of everything.
    pub(crate) fn is_quick(self) -> bool {
        matches!(self, Self::Page | Self::Alive | Self::Ready | Self::Log)
    }

    /// Whether it can be rehearsed.
    #[cfg(test)]
    pub(crate) fn can_be_dry(self) -> bool {
        self.is_order() && ![Self::Promote, Self::Abort].contains(&self)
    }

    /// Whether it can be tried on a share of what comes in.
    pub(crate) fn can_be_tried(self) -> bool {
        use What::{AddEndpoint, DeleteObject, PutConfig, PutObject, RemoveEndpoint, Rollback, Weigh};
        [PutConfig, PutObject, DeleteObject, Rollback, AddEndpoint, RemoveEndpoint, Weigh].contains(&self)
    }

    /// What its body is.
    pub(crate) fn body(self) -> Body {
        match self {
            Self::PutConfig => Body::Configuration,
            Self::PutObject | Self::AddEndpoint => Body::Object,
            Self::Weigh => Body::Weight,
            Self::Wish => Body::State,
            Self::SetLog => Body::Level,
            _ => Body::None,
        }
    }
}

/// What a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    Configuration,
    Object,
    Weight,
    State,
    Level,
}

const AS: (&str, &str) = ("as", "`written`: as it was written, instead of with defaults filled in");
const DRY: (&str, &str) = ("dry_run", "`true`: tell what it would do, and change nothing");

const fn call(method: Method, path: &'static str, what: What, needs: Option<AdminRole>, summary: &'static str) -> Call {
    Call { method, path, what, needs, summary, query: &[] }
}

const fn read(path: &'static str, what: What, summary: &'static str) -> Call {
    call(Method::Get, path, what, Some(AdminRole::Read), summary)
}

const TRIED: &[(&str, &str)] = &[
    DRY,
    ("canary", "such as `10%`: try it on that share of exchanges and TCP connections first, 1 to 99"),
    ("for", "duration of the canary, such as `60s` (default), at most 1h"),
    ("errors_max", "so many in a hundred may fail more than by the configuration in force; 1 by default"),
    ("latency_max", "allowed increase of p90 latency, in percent (default 50)"),
    ("exchanges_min", "with fewer by the new configuration it does not come into force; 20 by default"),
];

/// A call that changes what is wished of endpoints, or what the files say.
const fn order(method: Method, path: &'static str, what: What, summary: &'static str) -> Call {
    Call { query: &[DRY], ..call(method, path, what, Some(AdminRole::Admin), summary) }
}

/// A call that changes the configuration, and may be tried first.
const fn change(method: Method, path: &'static str, what: What, summary: &'static str) -> Call {
    Call { query: TRIED, ..call(method, path, what, Some(AdminRole::Admin), summary) }
}

const fn asking(call: Call, query: &'static [(&'static str, &'static str)]) -> Call {
    Call { query, ..call }
}

const EXPLAIN: &[(&str, &str)] = &[
    ("request", "`GET https://host/path`, or a URL alone; needed"),
    ("client", "the address of the client"),
    ("header", "a field, `name: value`; several times for several"),
    ("listener", "the listener; by default the one that fits scheme and port"),
];

const PAGE: &[(&str, &str)] = &[
    ("after", "the `next` of the page before"),
    ("limit", "at most so many, 100 by default and 1,000 at most"),
    ("listener", "those of this listener alone"),
];

/// Every call there is.
pub(crate) const CALLS: &[Call] = &[
    call(Method::Get, "/", What::Page, None, "The page"),
    call(Method::Get, "/healthz", What::Alive, None, "Whether the process is alive"),
    call(
        Method::Get,
        "/readyz",
        What::Ready,
        None,
        "Whether a configuration is in force and the program is not ending",
    ),
    read("/metrics", What::Metrics, "Metrics for Prometheus"),
    read("/api/status", What::Status, "All that is known of what runs"),
    asking(read("/api/explain", What::Explain, "What would become of a request, and why"), EXPLAIN),
    read("/api/openapi.json", What::OpenApi, "This document"),
    asking(read("/api/config", What::Config, "The configuration in force"), &[AS]),
    change(Method::Put, "/api/config", What::PutConfig, "Replace the configuration"),
    order(Method::Delete, "/api/config", What::ResetConfig, "Take back all changes by the API: the files decide again"),
    asking(read("/api/config/{kind}", What::Objects, "All listeners, routes or clusters"), &[AS]),
    asking(read("/api/config/{kind}/{name}", What::Object, "One listener, route or cluster"), &[AS]),
    change(Method::Put, "/api/config/{kind}/{name}", What::PutObject, "Add or replace one listener, route or cluster"),
    change(Method::Delete, "/api/config/{kind}/{name}", What::DeleteObject, "Take one listener, route or cluster out"),
    read("/api/changes", What::Changes, "What stands beside the files: changed objects and wishes for endpoints"),
    read(
        "/api/providers",
        What::Providers,
        "Providers: whether they answer, what of theirs is in force, what was refused and why",
    ),
    order(Method::Post, "/api/reload", What::Reload, "Read the files again, as SIGHUP does"),
    call(
        Method::Post,
        "/api/upgrade",
        What::Upgrade,
        Some(AdminRole::Admin),
        "Start the program anew and let it take over, as SIGUSR2 does",
    ),
    read("/api/generations", What::Generations, "The last generations, newest first: who changed what, and when"),
    read("/api/generations/{generation}", What::Generation, "One generation"),
    change(
        Method::Post,
        "/api/generations/{generation}/rollback",
        What::Rollback,
        "Go back to the configuration of a generation",
    ),
    read("/api/clusters/{cluster}/endpoints", What::Endpoints, "The endpoints of a cluster as they are now"),
    change(
        Method::Post,
        "/api/clusters/{cluster}/endpoints",
        What::AddEndpoint,
        "Add an endpoint to the configuration",
    ),
    read("/api/clusters/{cluster}/endpoints/{endpoint}", What::Endpoint, "One endpoint as it is now"),
    change(
        Method::Delete,
        "/api/clusters/{cluster}/endpoints/{endpoint}",
        What::RemoveEndpoint,
        "Take an endpoint out of the configuration",
    ),
    change(
        Method::Put,
        "/api/clusters/{cluster}/endpoints/{endpoint}/weight",
        What::Weigh,
        "Set the weight of an endpoint in the configuration",
    ),
    order(
        Method::Put,
        "/api/clusters/{cluster}/endpoints/{endpoint}/state",
        What::Wish,
        "Wish that an endpoint drains, is worked on, is taken for up or down; `ready` takes the wish back",
    ),
    asking(read("/api/connections", What::Connections, "Open connections of clients, in pages"), PAGE),
    call(
        Method::Delete,
        "/api/connections/{connection}",
        What::EndConnection,
        Some(AdminRole::Admin),
        "End a connection at once, whatever is in flight",
    ),
    read("/api/canary", What::Canary, "The running canary, and earlier ones"),
    call(Method::Post, "/api/canary/promote", What::Promote, Some(AdminRole::Admin), "Promote the canary now"),
    call(Method::Delete, "/api/canary", What::Abort, Some(AdminRole::Admin), "Roll the canary back"),
    read("/api/log", What::Log, "The level of the program's own log"),
    call(Method::Put, "/api/log", What::SetLog, Some(AdminRole::Admin), "Set the level of the program's own log"),
];

/// Everything that is answered.
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

/// The methods that a path knows, as `allow` lists them.
pub(crate) fn methods_of(path: &str) -> String {
    let fits = |template: &str| {
        let same = |(part, text): (&str, &str)| part.starts_with('{') || part == text;
        template.split('/').count() == path.split('/').count() && template.split('/').zip(path.split('/')).all(same)
    };
    let mut names = Vec::new();
    for call in CALLS.iter().filter(|call| fits(call.path)) {
        names.push(call.method.as_str().to_uppercase());
        if call.method == Method::Get {
            names.push("HEAD".to_owned());
        }
    }
    names.join(", ")
}

async fn unknown(request: Request) -> Problem {
    let path = request.uri().path();
    let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no `{path}`"));
    let paths = CALLS.iter().map(|call| call.path);
    match config::did_you_mean(path, paths).filter(|text| text.starts_with("did")) {
        Some(suggestion) => problem.suggest(suggestion),
        None => problem.suggest("`/api/openapi.json` tells all there is"),
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
        what if what.is_order() || what == What::SetLog => {
            crate::change::answer(&shared, call, (&parts, entered), request).await
        }
        What::Connections => look::connections(shared, request.uri().query()).await,
        What::EndConnection => crate::change::end_connection(shared, &parts, entered.caller.name).await,
        What::Upgrade => crate::change::upgrade(&shared, entered).await,
        What::Explain => look::explained(shared, request.uri().query()).await,
        What::OpenApi => Ok(axum::Json(openapi::document()).into_response()),
        what if what.is_quick() => look::answer(&shared.view, what, &parts, request.uri().query()),
        what => look::answered(shared, (what, parts), request.uri().query()).await,
    };
    done.unwrap_or_else(IntoResponse::into_response)
}

/// Who was let in, and by the rules of what.
pub(crate) struct Entered {
    pub(crate) caller: Caller,
    pub(crate) under: Option<Arc<Snapshot>>,
}

/// How the connection of a request is encrypted, if it is.
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
        let message = "the rules by which this connection began hold no longer";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, message).suggest("connect anew"));
    }
    let caller = access::enter(admin, needs, (headers, secured.and_then(Secured::shown)))?;
    Ok(Entered { caller, under: Some(Arc::clone(&plan.snapshot)) })
}

/// RFC 6750 section 3: who is not let in is told how to ask. Where it is the time that is wrong, another connection may find a
/// better one.
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

/// What stands in a path where the template has braces, decoded, in order.
fn path_parts(template: &str, path: &str) -> Vec<String> {
    let pairs = template.split('/').zip(path.split('/'));
    pairs.filter(|(part, _)| part.starts_with('{')).map(|(_, text)| decoded(text)).collect()
}

/// Percent-decodes (RFC 3986 section 2.1); what is not encoded well stays as it is.
pub(crate) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let byte = hex
            .filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A call that changes something takes no parameter that it does not know: with `dry-run=true` it would be carried out.
fn check_parameters(call: &Call, query: Option<&str>) -> Result<(), Problem> {
    if call.needs != Some(AdminRole::Admin) {
        return Ok(());
    }
    let keys = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let known = call.query.iter().map(|(name, _)| *name);
    for key in keys.map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key)) {
        if known.clone().any(|name| name == key) {
            continue;
        }
        let problem = Problem::new(StatusCode::BAD_REQUEST, format!("there is no parameter `{key}` here"));
        return Err(match config::did_you_mean(&decoded(key).replace('-', "_"), known.clone()) {
            Some(suggestion) => problem.suggest(suggestion),
            None => problem.suggest("this call takes none"),
        });
    }
    Ok(())
}

/// The value of a parameter of a query.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_decoded() {
        let template = "/api/clusters/{cluster}/endpoints/{endpoint}/state";
        let parts = path_parts(template, "/api/clusters/a/endpoints/unix%3A%2Frun%2Fx.sock/state");
        assert_eq!(parts, ["a", "unix:/run/x.sock"]);
        assert_eq!(path_parts("/api/status", "/api/status"), [""; 0]);
        for (encoded, plain) in
            [("%41b%2f", "Ab/"), ("%", "%"), ("%4", "%4"), ("%zz", "%zz"), ("%+1", "%+1"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(decoded(encoded), plain, "{encoded}");
        }
        assert_eq!(parameter(Some("a=1&as=writ%74en&b"), "as").as_deref(), Some("written"));
        assert_eq!((parameter(Some("b"), "b").as_deref(), parameter(None, "b")), (Some(""), None));
    }

    #[test]
    fn every_call_that_changes_something_needs_the_role_for_it() {
        for call in CALLS {
            let changes = call.method != Method::Get;
            assert_eq!(call.needs == Some(AdminRole::Admin), changes, "{}", call.path);
            assert_eq!(
                changes,
                call.what.is_order() || [What::SetLog, What::EndConnection, What::Upgrade].contains(&call.what),
                "{}",
                call.path
            );
            assert!(
                !call.summary.ends_with('.')
                    && call.query.iter().any(|(name, _)| *name == "dry_run") == call.what.can_be_dry()
                    && call.query.iter().any(|(name, _)| *name == "canary") == call.what.can_be_tried()
            );
        }
    }
}
