//! All that can be asked, in one table: the listener answers to these and to nothing else, and the OpenAPI document is made
//! of them.

use axum::routing::MethodFilter;
use model::snapshot::AdminRole;

/// Something that can be asked.
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Parts in braces take any one part of a path.
    pub(crate) path: &'static str,
    pub(crate) what: What,
    /// What the token must be good for. `None`: no one is asked for one.
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

    pub(crate) fn filter(self) -> MethodFilter {
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
    Peers,
    Tables,
    Table,
    Entry,
    SetEntry,
    ClearEntry,
    ClearTable,
    Caches,
    Cache,
    PurgeCache,
    Maps,
    Map,
    MapEntry,
    SetMapEntry,
    DeleteMapEntry,
    ResetMapEntry,
    ResetMap,
}

impl What {
    /// Returns whether the call replaces an object, so that it needs `if-match`.
    pub(crate) fn replaces(self) -> bool {
        matches!(self, Self::PutConfig | Self::PutObject)
    }

    /// Returns whether the call goes to the owner of the configuration.
    pub(crate) fn is_order(self) -> bool {
        use What::{AddEndpoint, DeleteObject, PutConfig, PutObject, Reload, RemoveEndpoint, ResetConfig, Rollback};
        let config = [PutConfig, PutObject, DeleteObject, ResetConfig, Rollback, Reload];
        let ends = [Self::Promote, Self::Abort].contains(&self);
        ends || config.contains(&self) || [AddEndpoint, RemoveEndpoint, Self::Weigh, Self::Wish].contains(&self)
    }

    /// Returns whether the response needs constant time, whatever the number of objects.
    pub(crate) fn is_quick(self) -> bool {
        matches!(self, Self::Page | Self::Alive | Self::Ready | Self::Log)
    }

    /// Returns whether the call changes entries of a map.
    pub(crate) fn changes_map(self) -> bool {
        [Self::SetMapEntry, Self::DeleteMapEntry, Self::ResetMapEntry, Self::ResetMap].contains(&self)
    }

    /// Returns whether the call supports `dry_run`.
    #[cfg(test)]
    pub(crate) fn can_be_dry(self) -> bool {
        self.is_order() && ![Self::Promote, Self::Abort].contains(&self)
    }

    /// Returns whether the change can be a canary.
    pub(crate) fn can_be_tried(self) -> bool {
        use What::{AddEndpoint, DeleteObject, PutConfig, PutObject, RemoveEndpoint, Rollback, Weigh};
        [PutConfig, PutObject, DeleteObject, Rollback, AddEndpoint, RemoveEndpoint, Weigh].contains(&self)
    }

    /// Returns whether the call changes entries of a table.
    pub(crate) fn changes_table(self) -> bool {
        matches!(self, Self::SetEntry | Self::ClearEntry | Self::ClearTable)
    }

    /// Returns the kind of the call's body.
    pub(crate) fn body(self) -> Body {
        match self {
            Self::PutConfig => Body::Configuration,
            Self::PutObject | Self::AddEndpoint => Body::Object,
            Self::Weigh => Body::Weight,
            Self::Wish => Body::State,
            Self::SetLog => Body::Level,
            Self::SetEntry => Body::Values,
            Self::SetMapEntry => Body::Value,
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
    Values,
    Value,
}

/// What can be put and looked at one by one.
pub(crate) const KINDS: [&str; 3] = ["listeners", "routes", "clusters"];

const AS: (&str, &str) = ("as", "`written`: as it was written, instead of with defaults filled in");
const DRY: (&str, &str) = ("dry_run", "`true`: report what would change, and change nothing");

const fn call(method: Method, path: &'static str, what: What, needs: Option<AdminRole>, summary: &'static str) -> Call {
    Call { method, path, what, needs, summary, query: &[] }
}

const fn read(path: &'static str, what: What, summary: &'static str) -> Call {
    call(Method::Get, path, what, Some(AdminRole::Read), summary)
}

const TRIED: &[(&str, &str)] = &[
    DRY,
    ("canary", "canary: the share of exchanges and TCP connections that use it first, such as `10%`, from 1 to 99"),
    ("for", "duration of the canary, such as `60s` (default), at most 1h"),
    ("errors_max", "allowed increase of the error rate, in percentage points (default 1)"),
    ("latency_max", "allowed increase of p90 latency, in percent (default 50)"),
    ("exchanges_min", "with fewer exchanges the canary is rolled back (default 20)"),
];

/// Returns a call that sets a state of an endpoint, or reads the files again.
const fn order(method: Method, path: &'static str, what: What, summary: &'static str) -> Call {
    Call { query: &[DRY], ..call(method, path, what, Some(AdminRole::Admin), summary) }
}

/// Returns a call that changes the configuration, and may be a canary.
const fn change(method: Method, path: &'static str, what: What, summary: &'static str) -> Call {
    Call { query: TRIED, ..call(method, path, what, Some(AdminRole::Admin), summary) }
}

const fn asking(call: Call, query: &'static [(&'static str, &'static str)]) -> Call {
    Call { query, ..call }
}

const EXPLAIN: &[(&str, &str)] = &[
    ("request", "required: `GET https://host/path`, or a URL alone"),
    ("client", "the address of the client"),
    ("header", "a field, `name: value`; may be repeated"),
    ("listener", "the listener; by default the one that matches scheme and port"),
];

const ENTRIES: &[(&str, &str)] = &[
    ("containing", "only entries whose key contains this text"),
    ("after", "the `next` of the previous page"),
    ("limit", "page size, 10,000 at most (default 100)"),
];

/// Returns a call that changes entries of a map.
const fn edit(method: Method, path: &'static str, what: What, summary: &'static str) -> Call {
    call(method, path, what, Some(AdminRole::Admin), summary)
}

const PAGE: &[(&str, &str)] = &[
    ("after", "the `next` of the previous page"),
    ("limit", "page size, 1,000 at most (default 100)"),
    ("listener", "only those of this listener"),
];

const TOP: &[(&str, &str)] = &[
    ("by", "the counter or rate that orders the entries, such as `errors_rate`; by default the first of the table"),
    ("limit", "number of entries, 10,000 at most (default 100)"),
];

const PURGE: &[(&str, &str)] = &[
    ("url", "purge this URL, such as `https://shop.example/a?b`, with all its variants"),
    ("prefix", "purge all URLs that begin so, such as `https://shop.example/img/`"),
    ("tag", "purge the responses that have this tag"),
    ("soft", "`true`: keep them, and validate them before they are served again"),
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
        "Whether a configuration is active and the program is not shutting down",
    ),
    read("/metrics", What::Metrics, "Metrics for Prometheus"),
    read("/api/status", What::Status, "The state of listeners, routes, clusters and endpoints"),
    asking(read("/api/explain", What::Explain, "What would happen to a request, and why"), EXPLAIN),
    read("/api/openapi.json", What::OpenApi, "This document"),
    asking(read("/api/config", What::Config, "The active configuration"), &[AS]),
    change(Method::Put, "/api/config", What::PutConfig, "Replace the configuration"),
    order(Method::Delete, "/api/config", What::ResetConfig, "Drop all API changes: the files apply again"),
    asking(read("/api/config/{kind}", What::Objects, "All listeners, routes or clusters"), &[AS]),
    asking(read("/api/config/{kind}/{name}", What::Object, "One listener, route or cluster"), &[AS]),
    change(Method::Put, "/api/config/{kind}/{name}", What::PutObject, "Add or replace one listener, route or cluster"),
    change(Method::Delete, "/api/config/{kind}/{name}", What::DeleteObject, "Remove one listener, route or cluster"),
    read("/api/changes", What::Changes, "What overrides the files: changed objects and states of endpoints"),
    read(
        "/api/providers",
        What::Providers,
        "Providers: whether they are reachable, what is active, what was rejected and why",
    ),
    order(Method::Post, "/api/reload", What::Reload, "Reload the files, as SIGHUP does"),
    call(
        Method::Post,
        "/api/upgrade",
        What::Upgrade,
        Some(AdminRole::Admin),
        "Upgrade: start the installed program and let it take over, as SIGUSR2 does",
    ),
    read("/api/generations", What::Generations, "The last generations, newest first: who changed what, and when"),
    read("/api/generations/{generation}", What::Generation, "One generation"),
    change(
        Method::Post,
        "/api/generations/{generation}/rollback",
        What::Rollback,
        "Roll back to the configuration of a generation",
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
        "Remove an endpoint from the configuration",
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
        "Drain an endpoint, put it into maintenance, or force it up or down; `ready` ends the override",
    ),
    asking(read("/api/connections", What::Connections, "Open connections of clients, in pages"), PAGE),
    call(
        Method::Delete,
        "/api/connections/{connection}",
        What::EndConnection,
        Some(AdminRole::Admin),
        "Close a connection at once, whatever is in flight",
    ),
    read("/api/peers", What::Peers, "The instances that tables are replicated to, and how each is"),
    read("/api/tables", What::Tables, "Tables of counters: their sizes and what they count"),
    asking(read("/api/tables/{table}", What::Table, "A table and its entries, those that have most first"), TOP),
    read("/api/tables/{table}/entries/{key}", What::Entry, "One entry of a table"),
    call(
        Method::Put,
        "/api/tables/{table}/entries/{key}",
        What::SetEntry,
        Some(AdminRole::Admin),
        "Set counters and rates of an entry of a table, and make it if there is none",
    ),
    call(
        Method::Delete,
        "/api/tables/{table}/entries/{key}",
        What::ClearEntry,
        Some(AdminRole::Admin),
        "Forget an entry of a table",
    ),
    call(
        Method::Delete,
        "/api/tables/{table}/entries",
        What::ClearTable,
        Some(AdminRole::Admin),
        "Forget all entries of a table",
    ),
    read("/api/caches", What::Caches, "Caches: their sizes and what they have answered"),
    read("/api/caches/{cache}", What::Cache, "One cache"),
    asking(
        call(
            Method::Delete,
            "/api/caches/{cache}/entries",
            What::PurgeCache,
            Some(AdminRole::Admin),
            "Purge responses of a cache: all, or those of a URL, a prefix or a tag",
        ),
        PURGE,
    ),
    read("/api/canary", What::Canary, "The running canary, and earlier ones"),
    call(Method::Post, "/api/canary/promote", What::Promote, Some(AdminRole::Admin), "Promote the canary now"),
    call(Method::Delete, "/api/canary", What::Abort, Some(AdminRole::Admin), "Roll the canary back"),
    read("/api/maps", What::Maps, "Maps, with the number of their entries"),
    asking(read("/api/maps/{map}", What::Map, "The entries of a map, in pages"), ENTRIES),
    read("/api/maps/{map}/entries/{key}", What::MapEntry, "The value that applies to a key"),
    edit(Method::Put, "/api/maps/{map}/entries/{key}", What::SetMapEntry, "Set an entry of a map, in memory"),
    edit(Method::Delete, "/api/maps/{map}/entries/{key}", What::DeleteMapEntry, "Delete an entry of a map, in memory"),
    edit(
        Method::Delete,
        "/api/maps/{map}/edits/{key}",
        What::ResetMapEntry,
        "Take back what was set or deleted of an entry: the configuration applies again",
    ),
    edit(Method::Delete, "/api/maps/{map}/edits", What::ResetMap, "Take back all that was set or deleted of a map"),
    read("/api/log", What::Log, "The level of the program's own log"),
    call(Method::Put, "/api/log", What::SetLog, Some(AdminRole::Admin), "Set the level of the program's own log"),
];

/// Returns the methods of a path, as `allow` lists them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_changes_something_needs_the_role_for_it() {
        for call in CALLS {
            let changes = call.method != Method::Get;
            assert_eq!(call.needs == Some(AdminRole::Admin), changes, "{}", call.path);
            assert_eq!(
                changes,
                call.what.is_order()
                    || call.what.changes_table()
                    || call.what.changes_map()
                    || call.what == What::PurgeCache
                    || [What::SetLog, What::EndConnection, What::Upgrade].contains(&call.what),
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
