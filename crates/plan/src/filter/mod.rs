//! Filters: what a route does to a request before it is sent and to a response before it is passed on.
//!
//! A filter is one file and one line in [`FILTERS`]: a settings struct, its doc text, and the steps that the settings
//! compile to. `docs/guides/write-a-filter.md` walks through one. Steps are pure: they see heads and [`Facts`], and do no
//! I/O.
//!
//! # What the data plane calls, and when
//! A route's filters are compiled once into a [`Chain`].
//! 1. [`Chain::on_request`] after the route is known and before an endpoint is picked. [`Flow::Respond`] ends the
//!    exchange with that answer; no later request step runs.
//! 2. [`Chain::on_response`] for every final response on its way to the client, wherever it was made: by an endpoint, by
//!    the route itself (fixed answer, redirect), by a filter, or by the proxy because of a fault. For local answers the
//!    data plane builds a [`ResponseHead`] first. So CORS fields and security fields stand on error answers too.
//!    Interim (1xx) responses pass without it.
//!
//! Steps run in the order in which the route lists its filters, in both directions. All response steps run, also those of
//! filters listed after the one that answered.

mod add_request_header;
mod add_response_header;
mod address_list;
mod api_key;
mod ask_body;
mod aws_signature;
mod bandwidth_limit;
mod basic_auth;
pub mod body;
mod body_limit;
mod buffer;
mod cache;
mod cached;
mod chain;
mod challenge;
mod changes;
mod client_certificate;
mod client_credentials;
mod coding;
mod compiling;
mod compress;
mod concurrency_limit;
mod conditional;
mod cors;
mod credential;
mod csrf;
mod decompress;
mod deny;
mod ended;
mod error_page;
pub mod events;
mod ext_authz;
mod fault;
mod field_changes;
mod fields;
mod file_ask;
pub mod files;
mod follow_redirects;
mod form_call;
mod forward_auth;
mod grpc_call;
pub mod guarded;
mod header_names;
mod hold;
mod introspection;
mod jwt;
mod limit_key;
mod maintenance;
mod media_types;
mod mirror;
mod need;
pub mod notes;
mod oidc;
mod origins;
mod over;
mod paced;
mod passing;
pub mod pattern;
mod quality;
mod rate_limit;
mod rate_limit_service;
mod redirected;
mod remove_request_header;
mod remove_response_header;
mod replace_body;
mod replacement;
mod response_limit;
mod rewrite;
mod rewrite_cookie;
mod rewrite_header;
mod rewrite_location;
mod seen_body;
mod set_request_header;
mod set_response_header;
pub mod settings;
mod share;
mod shared_limit;
mod signed_url;
mod single_flight;
mod statuses;
mod streamed;
pub(crate) mod tables;
pub mod template;
mod timings;
mod token_cache;
mod token_endpoint;
mod trace;
mod track;
pub mod turn;
pub mod variables;

#[cfg(test)]
mod guide_examples;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use model::filter::{FilterSpec, FilterUse};
use model::{Fault, Issue, LocalResponse, Name, RequestHead, ResponseHead};
use serde_json::Value;

use crate::cache::Served;
pub use crate::content::Content;

pub use bandwidth_limit::pace_of_connection;
pub use body::{
    BadBody, Coded, Coder, Extent, MakeStage, Pace, Rank, RequestBodyStep, ResponseBodyStep, SlicedBody, Stage, Tap,
    Turning,
};
pub use cache::slices::{Asking, NextSlice, Slices};
pub use cached::Refresh;
pub use chain::Chain;
pub use compiling::Compiling;
pub use ended::{AtEnd, Ended};
pub use events::{Counted, EventCounter};
pub use file_ask::{DirectoryEntry, FileAsk, FileFound, FileRoot, OpenedFile, Symlinks};
pub use guarded::{Guarded, GuardedResponse, Noted};
pub use hold::{Hold, HoldCounts, Spool, Usage};
pub use mirror::{Mirror, MirrorEnd, MirrorPlace};
pub use need::{
    Apart, Awaited, Away, Beginning, Call, CalledCluster, Found, Job, Need, Reply, Spent, StoreAsk, StoreCost,
    StoreLogin, TakeReply, TooLong, Work,
};
pub use notes::{Carried, Note, Notes};
pub use redirected::{Followed, Redirected};
pub use settings::Settings;
pub use shared_limit::Charge;
pub use statuses::{CacheStatus, LimitStatus};
pub use streamed::{Part, StreamedResponse};
pub use template::Template;
pub use turn::Turn;

/// Every filter there is, in the order of the reference page. Adding one is a line here.
pub const FILTERS: &[FilterEntry] = &[
    set_request_header::ENTRY,
    add_request_header::ENTRY,
    remove_request_header::ENTRY,
    set_response_header::ENTRY,
    add_response_header::ENTRY,
    remove_response_header::ENTRY,
    header_names::ENTRY,
    rewrite_header::ENTRY,
    rewrite::ENTRY,
    rewrite_location::ENTRY,
    rewrite_cookie::ENTRY,
    cors::ENTRY,
    body_limit::ENTRY,
    address_list::ENTRY,
    deny::ENTRY,
    error_page::ENTRY,
    follow_redirects::ENTRY,
    basic_auth::ENTRY,
    api_key::ENTRY,
    jwt::ENTRY,
    introspection::ENTRY,
    oidc::ENTRY,
    client_certificate::ENTRY,
    signed_url::ENTRY,
    csrf::ENTRY,
    forward_auth::ENTRY,
    ext_authz::ENTRY,
    client_credentials::ENTRY,
    aws_signature::ENTRY,
    rate_limit::ENTRY,
    rate_limit_service::ENTRY,
    concurrency_limit::ENTRY,
    bandwidth_limit::ENTRY,
    track::ENTRY,
    compress::ENTRY,
    decompress::ENTRY,
    replace_body::ENTRY,
    fault::ENTRY,
    mirror::ENTRY,
    buffer::ENTRY,
    files::ENTRY,
    cache::ENTRY,
    maintenance::ENTRY,
    response_limit::ENTRY,
    timings::ENTRY,
];

/// One filter of the registry.
#[derive(Clone, Copy)]
pub struct FilterEntry {
    /// The key under `filters:`.
    pub name: &'static str,
    /// Markdown: first line a summary, then explanation and a fenced `yaml` example.
    pub doc: &'static str,
    /// JSON Schema of the settings, without references.
    pub schema: fn() -> Value,
    /// Whether the settings compile. Paths of issues are below the settings.
    pub check: fn(&Value) -> Result<(), Issue>,
    /// Settings to steps. Paths of issues are below the settings.
    pub compile: fn(&Value, &mut Compiling<'_>) -> Result<Steps, Issue>,
}

impl FilterEntry {
    /// The entry of the filter whose settings are `S`.
    pub const fn of<S: Settings>(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, schema: settings::schema::<S>, check: settings::check::<S>, compile: settings::compile::<S> }
    }
}

impl fmt::Debug for FilterEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterEntry({})", self.name)
    }
}

/// The registry in the form that the configuration crate takes.
pub fn specs() -> Vec<FilterSpec> {
    let spec =
        |entry: &FilterEntry| FilterSpec { name: entry.name, doc: entry.doc, schema: entry.schema, check: entry.check };
    FILTERS.iter().map(spec).collect()
}

/// What one filter does, compiled from its settings.
#[derive(Default)]
pub struct Steps {
    /// On the way to the endpoint.
    pub request: Option<Box<dyn RequestStep>>,
    /// On the way to the client.
    pub response: Option<Box<dyn ResponseStep>>,
    /// On the body of the request.
    pub request_body: Option<Box<dyn RequestBodyStep>>,
    /// On the body of the response.
    pub response_body: Option<Box<dyn ResponseBodyStep>>,
    /// Fields of the request that it decides: a client must not bring them as trailers either.
    pub guarded: Vec<Guarded>,
    /// Fields of the response that it decides: an endpoint must not bring them as trailers either.
    pub guarded_response: GuardedResponse,
}

impl Steps {
    /// A filter that only touches requests.
    pub fn of_request(step: impl RequestStep + 'static) -> Self {
        Self { request: Some(Box::new(step)), ..Self::default() }
    }

    /// A filter that only touches responses.
    pub fn of_response(step: impl ResponseStep + 'static) -> Self {
        Self { response: Some(Box::new(step)), ..Self::default() }
    }

    /// A filter that only touches the bodies of requests.
    pub fn of_request_body(step: impl RequestBodyStep + 'static) -> Self {
        Self { request_body: Some(Box::new(step)), ..Self::default() }
    }

    /// A filter that only touches the bodies of responses.
    pub fn of_response_body(step: impl ResponseBodyStep + 'static) -> Self {
        Self { response_body: Some(Box::new(step)), ..Self::default() }
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request, response) = (self.request.is_some(), self.response.is_some());
        let bodies = (self.request_body.is_some(), self.response_body.is_some());
        let mut shown = f.debug_struct("Steps");
        shown.field("request", &request).field("response", &response).field("bodies", &bodies).finish()
    }
}

/// Something done to a request head. Shared by all workers, so whatever changes lives elsewhere.
pub trait RequestStep: Send + Sync {
    /// Changes the head, or answers.
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow;

    /// Goes on with what was found of the need that the step had. It may have another.
    fn resume(&self, _head: &mut RequestHead, _found: Found<'_>, _turn: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }

    /// Returns the number of its note, if it is a cache that has requests be sent beside the exchange.
    fn fetches_by(&self) -> Option<usize> {
        None
    }
}

/// Something done to a response head, or an answer in its place.
///
/// Answers come first: while no step has changed the response yet, those that answer are asked, and the first that does ends the
/// asking. What it answers takes the response's place for good, and then all response steps change that.
pub trait ResponseStep: Send + Sync {
    /// In the place of which responses it may answer.
    fn answers(&self) -> Answers {
        Answers::None
    }

    /// How much the client likes what it would answer, in thousandths. Of several steps the one that is liked best is asked first, and
    /// among equals the first of the list.
    fn liking(&self, _request: &RequestHead) -> u16 {
        quality::FULL
    }

    /// Answers in the response's place, or lets it be.
    fn answer(&self, _head: &ResponseHead, _view: &ResponseView<'_>, _turn: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }

    /// Goes on with what was found of the need that [`Self::answer`] had. It may have another.
    fn resume(&self, _head: &ResponseHead, _found: Found<'_>, _view: &ResponseView<'_>, _turn: &mut Turn<'_>) -> Flow {
        Flow::Continue
    }

    /// Changes the head.
    fn apply(&self, _head: &mut ResponseHead, _view: &ResponseView<'_>, _turn: &mut Turn<'_>) {}
}

/// In the place of which responses a step may answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answers {
    /// Of none.
    #[default]
    None,
    /// Of those that are made here.
    Local,
    /// Of those of endpoints too.
    All,
}

/// How an exchange goes on after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next step.
    Continue,
    /// With this answer, straight to the response steps.
    Respond(Box<LocalResponse>),
    /// With this answer, whose body is read while it is sent.
    Stream(Box<StreamedResponse>),
    /// With this stored response, through the response steps.
    Stored(Box<Served>),
    /// Not at all: the connection, or the stream, is closed without an answer.
    Close,
    /// Once this is there, which a step does not wait for itself; see [`Chain::resume`].
    Need(Need),
}

impl Flow {
    /// Answers with a status and a line of text.
    pub fn refuse(status: u16, text: &str) -> Self {
        let fields = vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())];
        Self::Respond(Box::new(LocalResponse { status, fields, body: format!("{text}\n").into_bytes() }))
    }
}

/// How long the phases of an exchange took until its response is forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Waiting for an endpoint.
    pub queue: Duration,
    /// Connecting to endpoints.
    pub connect: Duration,
    /// From the sent request to the first byte of the response; zero if the endpoint has answered before.
    pub first_byte: Duration,
    /// Since the first byte of the request.
    pub total: Duration,
}

/// What a response step may look at beside the response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseView<'a> {
    /// The request as the request steps left it. Conditions of filters go by what it was when it was their turn.
    pub request: &'a RequestHead,
    /// The cluster that was chosen; `None` for an answer made before that.
    pub cluster: Option<&'a Name>,
    /// The endpoint that was tried last; `None` for an answer made before that.
    pub endpoint: Option<&'a Name>,
    /// Where the response is from.
    pub source: ResponseSource,
    /// How long it took.
    pub elapsed: Elapsed,
}

/// Where a response is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseSource {
    /// An endpoint.
    Endpoint,
    /// It was made here, because of the fault if there is one.
    Local(Option<Fault>),
}

/// What one filter of a route does. Paths of issues are below its place in the list.
pub(crate) fn compile_one((place, used): (usize, &FilterUse), compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
    let Some(entry) = FILTERS.iter().find(|entry| entry.name == used.name) else {
        let issue = Issue::at(&used.name, format!("there is no filter `{}`", used.name));
        let names = FILTERS.iter().map(|entry| entry.name);
        return Err(settings::suggest_nearest_on("docs/reference/filters.md", issue, &used.name, names));
    };
    compiling.filter(place, entry.name);
    compiling.with_settings(&used.settings);
    let steps = (entry.compile)(&used.settings, compiling).map_err(|issue| issue.below(&used.name))?;
    let reads_body = compiling.take_reads_body();
    match &used.when {
        None if reads_body => Ok(Steps { request: Some(ask_body::first(steps.request)), ..steps }),
        None => Ok(steps),
        Some(when) => conditional::steps(when, (steps, reads_body), compiling).map_err(|issue| issue.below("when")),
    }
}
