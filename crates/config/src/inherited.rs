//! Filters that routes have from their listeners and from the routes above: they do more than their one place suggests.

use std::collections::HashMap;
use std::sync::Arc;

use model::snapshot::Route;

use crate::defaults::Trees;
use crate::diagnostic::Sink;
use crate::source::Span;

/// Filters that count for each route.
const LIMITS: [&str; 3] = ["bandwidth_limit", "concurrency_limit", "rate_limit"];
/// Filters that spend an allowance, need credentials that are removed for another host, or add a field once more.
const ONCE: [&str; 13] = [
    "add_request_header",
    "api_key",
    "basic_auth",
    "concurrency_limit",
    "csrf",
    "ext_authz",
    "forward_auth",
    "introspection",
    "jwt",
    "oidc",
    "rate_limit",
    "rate_limit_service",
    "signed_url",
];

/// Warns of limits of a listener with several routes, and of filters that run again when a redirect is followed.
pub(crate) fn warn(trees: &Trees, routes: &[Arc<Route>], warnings: &mut Sink) {
    if trees.spread.is_empty() && trees.filters_above.is_empty() {
        return;
    }
    let place = |route: usize, filter: usize| trees.merged.locate(&format!("routes/{route}/filters/{filter}"));
    let mut limits: HashMap<(Span, &str), usize> = HashMap::new();
    for (index, route) in routes.iter().enumerate() {
        let of_listeners = trees.spread.get(index).copied().unwrap_or(0);
        let inherited = of_listeners + trees.filters_above.get(index).copied().unwrap_or(0);
        let follows = route.filters.iter().any(|used| used.name == "follow_redirects");
        for (at, used) in route.filters.iter().enumerate().take(inherited) {
            let name = used.name.as_str();
            if at < of_listeners && LIMITS.contains(&name) && used.settings.get("shared").is_none() {
                *limits.entry((place(index, at), name)).or_default() += 1;
            }
            if follows && ONCE.contains(&name) {
                let message =
                    format!("`{name}` runs again for each redirect that is followed to a route that has it too");
                let mend = "list it in the routes that need it, or leave out `follow_redirects`".to_owned();
                warnings.push(place(index, at), message, Some(mend));
            }
        }
    }
    for ((span, name), count) in limits.into_iter().filter(|(_, count)| *count > 1) {
        let message = format!("`{name}` of a listener counts for each of its {count} routes apart");
        let mend =
            "count all requests with `track` in a table, and reject them with `deny`, if they are to share a limit"
                .to_owned();
        warnings.push(span, message, Some(mend));
    }
}
