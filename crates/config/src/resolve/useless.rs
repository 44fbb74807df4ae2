//! Settings that are allowed but do nothing, or not what whoever wrote them will expect. They are told as warnings: the
//! configuration is good, and runs.

use std::collections::{HashMap, HashSet};

use model::Name;
use model::filter::FilterUse;
use model::fitness::Fitness;
use model::persistence::{WhenAway, WhenFull};
use model::provider::ProviderKind;
use model::retry::{Methods, Retry};
use model::snapshot::{Balance, Cluster, Route, Snapshot};

use super::Resolver;
use crate::source::Span;
use crate::tree::ByName;

/// Statuses from here on tell of a failure.
const FAILURES_FROM: u16 = 400;

impl Resolver<'_> {
    /// Looks at a configuration that is whole.
    pub(super) fn warn_of_useless(&mut self, snapshot: &Snapshot) {
        // Providers may bring what leads to a cluster, and listeners. Of some it is known that they bring endpoints alone.
        let may_be_brought = snapshot.providers.iter().any(|one| !matches!(one.kind, ProviderKind::Dns(_)));
        // By the API of an administrator all of it may come.
        let is_bare = snapshot.admin.is_some() && snapshot.routes.is_empty() && snapshot.clusters.is_empty();
        if snapshot.listeners.is_empty() && !may_be_brought && !is_bare {
            let mend = "add one: `listeners: { web: { bind: \"127.0.0.1:8080\" } }`".to_owned();
            self.warnings.push(
                Span::whole(self.tree.span.file),
                "there are no listeners: no connection is accepted",
                Some(mend),
            );
        }
        self.warn_of_hidden(&snapshot.routes);
        let used = used(snapshot);
        let targets = snapshot.clusters.iter().filter(|cluster| used.contains(&cluster.name));
        let clusters: HashMap<&Name, &Cluster> = targets.map(|cluster| (&cluster.name, &**cluster)).collect();
        for (index, route) in snapshot.routes.iter().enumerate() {
            self.useless_in_route(&format!("routes/{index}"), route, &clusters);
        }
        let tree = self.tree;
        let written = ByName::of(tree.get("clusters"));
        for cluster in &snapshot.clusters {
            if !may_be_brought
                && !used.contains(&cluster.name)
                && let Some(key) = written.place(&cluster.name).and_then(|place| written.key(place))
            {
                // Without a mend: there may be one for each of very many clusters, and all of them are kept.
                let message = || format!("no route and no listener uses the cluster `{}`", cluster.name);
                self.warnings.push_with(key.span, message);
            }
            if cluster.endpoints.is_empty() && cluster.endpoints_from.is_none() {
                // What suits no endpoints now may suit those that come.
                self.lasting_emptiness(snapshot, cluster);
                continue;
            }
            if !may_be_useless(cluster) {
                continue;
            }
            let at = format!("clusters/{}", cluster.name);
            self.useless_queue(&at, cluster);
            self.useless_health(&at, cluster);
            self.useless_attempts(&at, cluster);
        }
    }

    /// An empty cluster to which nothing can add endpoints while the program runs, but another file.
    fn lasting_emptiness(&mut self, snapshot: &Snapshot, cluster: &Cluster) {
        let api_adds = snapshot.admin.as_ref().is_some_and(|admin| admin.changes_allowed);
        if api_adds || !snapshot.providers.is_empty() {
            return;
        }
        let message =
            format!("the cluster `{}` has no endpoints, and neither the API nor a provider can add any", cluster.name);
        let mend = "add endpoints, or an `admin` address for the API".to_owned();
        self.warn_at_key(&format!("clusters/{}", cluster.name), "endpoints", message, Some(mend));
    }

    fn useless_in_route(&mut self, at: &str, route: &Route, clusters: &HashMap<&Name, &Cluster>) {
        let targets: Vec<&Cluster> =
            route.action.clusters().into_iter().filter_map(|name| clusters.get(name).copied()).collect();
        if let Some(guard) = guard_behind_cache(&route.filters) {
            let message = format!("`{guard}` stands behind `cache`: it does not protect stored responses");
            self.warn_at_key(at, "filters", message, Some(format!("list `{guard}` before `cache`")));
        }
        if let Some(limit) = limit_behind_slices(&route.filters) {
            let message =
                format!("`{limit}` stands behind `cache`: it counts each slice of a download, and may cut it");
            self.warn_at_key(at, "filters", message, Some(format!("list `{limit}` before `cache`")));
        }
        // What a route does that forwards nowhere is told elsewhere.
        if targets.is_empty() {
            return;
        }
        if self.has(at, "queue") && targets.iter().all(|cluster| cluster.queue.is_none()) {
            let mend = format!("give the cluster `{}` a `queue`", targets[0].name);
            self.warn_at_key(at, "queue", "no request of this route waits: its cluster has no queue", Some(mend));
        }
        if route.hedge.is_some() && targets.iter().all(|cluster| cluster.endpoints.len() == 1) {
            self.warn_at_key(at, "hedge", "with one endpoint there is no other to send a request to", None);
        }
        if let Some(retry) = &route.retry {
            self.useless_conditions(&format!("{at}/retry"), retry);
        }
        if let Some((by, field)) = copied_token(&route.filters) {
            let message = format!("the copies of `mirror` hold the token that `{by}` sets");
            let mend = format!("replace it: `set_headers: {{ {field}: none }}` in `mirror`");
            self.warn_at_key(at, "filters", message, Some(mend));
        }
    }

    fn useless_queue(&mut self, at: &str, cluster: &Cluster) {
        let has_bound = cluster.connections_max.is_some()
            || cluster.endpoints_from.is_some()
            || cluster.resilience.concurrency.is_some()
            || cluster.endpoints.iter().any(|endpoint| endpoint.connections_max.is_some());
        let breaker = cluster.resilience.breaker.as_ref();
        let pending_max = breaker.and_then(|breaker| breaker.pending_max);
        let sessions = cluster.persistence.as_ref().map(|sessions| sessions.when_full);
        if cluster.queue.is_none()
            && sessions == Some(WhenFull::Wait)
            && self.has(&format!("{at}/persistence"), "when_full")
        {
            let mend = Some("give the cluster a `queue`".to_owned());
            let message = "no request waits here: the cluster has no queue";
            self.warn_at_key(&format!("{at}/persistence"), "when_full", message, mend);
        }
        let may_wait = cluster.queue.is_some()
            && cluster
                .persistence
                .as_ref()
                .is_some_and(|it| it.when_full == WhenFull::Wait || it.otherwise == WhenAway::Refuse);
        for (index, _) in cluster.endpoints.iter().enumerate().filter(|(_, it)| it.queue_max.is_some() && !may_wait) {
            let mend = "give the cluster a `queue`, and a `persistence` whose sessions wait".to_owned();
            let message = "nothing waits for this endpoint alone";
            self.warn_at_key(&format!("{at}/endpoints/{index}"), "queue_max", message, Some(mend));
        }
        let Some(queue) = &cluster.queue else { return };
        if !has_bound {
            let message = "no request ever waits in this queue: neither the cluster nor an endpoint has a limit";
            let mend = "give the cluster or its endpoints a `connections_max`".to_owned();
            self.warn_at_key(at, "queue", message, Some(mend));
        }
        let has_backup = cluster.endpoints.iter().any(|endpoint| endpoint.placement.is_backup);
        if queue.use_backups && !has_backup && cluster.endpoints_from.is_none() {
            let mend = "give an endpoint `backup: true`".to_owned();
            self.warn_at_key(
                &format!("{at}/queue"),
                "use_backups",
                "no endpoint of this cluster is a backup",
                Some(mend),
            );
        }
        if let Some(pending) = pending_max.filter(|pending| *pending > queue.requests_max) {
            let message = format!("the queue holds {} at most, so {pending} never wait", queue.requests_max);
            self.warn_at_key(&format!("{at}/circuit_breaker"), "pending_max", message, None);
        }
    }

    fn useless_health(&mut self, at: &str, cluster: &Cluster) {
        let fitness = &cluster.fitness;
        if let Some(passive) = fitness.passive.as_ref().filter(|_| cluster.endpoints_from.is_none()) {
            let eligible = cluster.endpoints.len();
            if eligible * usize::from(passive.ejected_percent_max) < 100 || eligible == 1 {
                let of = if eligible == 1 { "one endpoint".to_owned() } else { format!("{eligible} endpoints") };
                let message = format!("no endpoint is ever ejected: {}% of {of} is none", passive.ejected_percent_max);
                let mend = (eligible > 1).then(|| format!("write {}% or more", 100_usize.div_ceil(eligible)));
                let (at, key) = match self.has(&format!("{at}/passive_health"), "ejected_max") {
                    true => (format!("{at}/passive_health"), "ejected_max"),
                    false => (at.to_owned(), "passive_health"),
                };
                let message = if eligible == 1 { "the only endpoint is never ejected".to_owned() } else { message };
                self.warn_at_key(&at, key, message, mend);
            }
        }
        if fitness.slow_start.is_some() {
            let message = match &cluster.balance {
                Balance::Hash(_) => Some("slow start does not apply to hash balancers: keys would keep moving"),
                _ if cluster.endpoints.len() == 1 => Some("the only endpoint gets all requests from the start"),
                _ => None,
            };
            if let Some(message) = message {
                self.warn_at_key(at, "slow_start", message, None);
            }
        }
        if fitness.agent.is_none() {
            for (index, _) in cluster.endpoints.iter().enumerate().filter(|(_, end)| end.agent_port.is_some()) {
                let mend = Some("give the cluster an `agent_check`".to_owned());
                let at = format!("{at}/endpoints/{index}");
                self.warn_at_key(&at, "agent_port", "no agent is queried there", mend);
            }
        }
    }

    fn useless_attempts(&mut self, at: &str, cluster: &Cluster) {
        if cluster.resilience.hedge.is_some() && cluster.endpoints.len() == 1 {
            self.warn_at_key(at, "hedge", "with one endpoint there is no other to send a request to", None);
        }
        let retry = &cluster.retry;
        let is_written = retry.budget.is_some() && retry.attempts_max > 1 && self.has(at, "retry");
        if is_written && !retry.same_endpoint && cluster.endpoints.len() == 1 && cluster.endpoints_from.is_none() {
            let mend = "add `same_endpoint: true` to try it again".to_owned();
            self.warn_at_key(at, "retry", "with one endpoint there is no other to try", Some(mend));
        }
        self.useless_conditions(&format!("{at}/retry"), retry);
    }

    fn useless_conditions(&mut self, at: &str, retry: &Retry) {
        if !retry.on.grpc_statuses.is_empty() && retry.methods == Methods::Idempotent {
            let message = "a gRPC call is a POST, which is not retried once an endpoint may have processed it";
            self.warn_at_key(at, "on", message, Some("add `methods: any` if that does no harm".to_owned()));
        }
        if let Some((first, _)) = retry.on.statuses.iter().find(|(first, _)| *first < FAILURES_FROM) {
            let message = format!("{first} is not a failure: a good response would be discarded and requested again");
            self.warn_at_key(at, "on", message, Some(format!("list statuses from {FAILURES_FROM} on")));
        }
    }

    pub(super) fn warn_at_key(
        &mut self,
        path: &str,
        key: &str,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        let span = self.key_span(path, key);
        // A default that does nothing for one object may be for others.
        if !self.defaults.contains(&span) {
            self.warnings.push(span, message, suggestion);
        }
    }
}

/// Whether a cluster has any of what is looked at; of very many most have nothing.
fn may_be_useless(cluster: &Cluster) -> bool {
    let on = &cluster.retry.on;
    cluster.queue.is_some()
        || cluster.persistence.is_some()
        || cluster.health_check.is_some()
        || cluster.fitness != Fitness::default()
        || cluster.resilience.hedge.is_some()
        || !on.grpc_statuses.is_empty()
        || !on.statuses.is_empty()
        || cluster.retry.budget.is_some()
        || cluster.endpoints.iter().any(|endpoint| endpoint.agent_port.is_some() || endpoint.queue_max.is_some())
}

/// Filters that let some requests pass and others not, by who sends them.
const GUARDS: [&str; 11] = [
    "address_list",
    "api_key",
    "basic_auth",
    "client_certificate",
    "deny",
    "ext_authz",
    "forward_auth",
    "introspection",
    "jwt",
    "oidc",
    "signed_url",
];

/// Filters that bound requests by their number.
const LIMITS: [&str; 3] = ["concurrency_limit", "rate_limit", "rate_limit_service"];

/// The first of those behind a cache, which answers without asking it.
fn guard_behind_cache(filters: &[FilterUse]) -> Option<&str> {
    let behind = filters.iter().skip_while(|filter| filter.name != "cache").skip(1);
    behind.map(|filter| &*filter.name).find(|name| GUARDS.contains(name))
}

/// The first limit behind a cache with slices, each of which is a request of its own to those behind.
fn limit_behind_slices(filters: &[FilterUse]) -> Option<&str> {
    let has_slices = |filter: &FilterUse| filter.name == "cache" && !filter.settings["slice"].is_null();
    let behind = filters.iter().skip_while(|filter| !has_slices(filter)).skip(1);
    behind.map(|filter| &*filter.name).find(|name| LIMITS.contains(name))
}

/// The filter whose token goes to a mirror as well, with the field that holds it.
fn copied_token(filters: &[FilterUse]) -> Option<(&str, &str)> {
    let mirrors = || filters.iter().filter(|filter| filter.name == "mirror");
    mirrors().next()?;
    filters.iter().find_map(|filter| {
        let field = match &*filter.name {
            "client_credentials" => filter.settings["header"].as_str().unwrap_or("authorization"),
            "oidc" if filter.settings["pass_access_token"] == true => "authorization",
            _ => return None,
        };
        let replaces = |mirror: &FilterUse| {
            let replaced = mirror.settings["set_headers"].as_object();
            replaced.is_some_and(|fields| fields.keys().any(|name| name.eq_ignore_ascii_case(field)))
        };
        mirrors().any(|mirror| !replaces(mirror)).then_some((&*filter.name, field))
    })
}

/// The clusters that something leads to.
fn used(snapshot: &Snapshot) -> HashSet<&Name> {
    let mut used: HashSet<&Name> = snapshot.routes.iter().flat_map(|route| route.action.clusters()).collect();
    let filters = snapshot.routes.iter().flat_map(|route| &route.filters);
    used.extend(filters.flat_map(|filter| &filter.calls));
    used.extend(snapshot.listeners.iter().flat_map(|listener| listener.protocol.clusters()));
    used
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_guard_stands_behind_a_cache_if_it_is_listed_after_it() {
        let of = |names: &[&str]| {
            let of_name = |name: &&str| FilterUse {
                name: (*name).to_owned(),
                settings: json!({}),
                when: None,
                calls: Vec::new(),
            };
            names.iter().map(of_name).collect::<Vec<_>>()
        };
        assert_eq!(guard_behind_cache(&of(&["cache", "cors", "jwt", "oidc"])), Some("jwt"));
        assert_eq!(guard_behind_cache(&of(&["jwt", "cache", "cors"])), None);
        assert_eq!(guard_behind_cache(&of(&["jwt"])), None);
    }

    #[test]
    fn a_limit_stands_behind_slices_if_it_is_listed_after_them() {
        let of = |name: &str, settings: Value| {
            let (name, calls) = (name.to_owned(), Vec::new());
            FilterUse { name, settings, when: None, calls }
        };
        let sliced = || of("cache", json!({ "store": "pages", "slice": "1MiB" }));
        let limit = || of("rate_limit", json!({}));
        assert_eq!(limit_behind_slices(&[sliced(), of("cors", json!({})), limit()]), Some("rate_limit"));
        assert_eq!(limit_behind_slices(&[limit(), sliced()]), None);
        assert_eq!(limit_behind_slices(&[of("cache", json!({ "store": "pages" })), limit()]), None);
    }

    #[test]
    fn a_token_is_copied_if_a_mirror_does_not_replace_its_field() {
        let of = |name: &str, settings: Value| {
            let (name, calls) = (name.to_owned(), Vec::new());
            FilterUse { name, settings, when: None, calls }
        };
        let replaces = || of("mirror", json!({ "set_headers": { "Authorization": "none" } }));
        let (plain, token) = (|| of("mirror", json!({})), || of("client_credentials", json!({})));
        let copied = Some(("client_credentials", "authorization"));
        for (filters, expected) in [
            (vec![token()], None),
            (vec![plain()], None),
            (vec![plain(), token()], copied),
            (vec![token(), replaces()], None),
            (vec![token(), replaces(), plain()], copied),
            (
                vec![of("client_credentials", json!({ "header": "x-token" })), replaces()],
                Some(("client_credentials", "x-token")),
            ),
            (vec![of("oidc", json!({})), plain()], None),
            (vec![of("oidc", json!({ "pass_access_token": true })), plain()], Some(("oidc", "authorization"))),
        ] {
            assert_eq!(copied_token(&filters), expected, "{filters:?}");
        }
    }
}
