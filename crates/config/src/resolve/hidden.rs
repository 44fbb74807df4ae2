//! Routes that no request reaches, since one that is asked before them holds whenever they would.

use std::collections::HashMap;

use model::Name;
use model::matching::{Match, PathMatch, ValueMatch};
use model::snapshot::Route;

use super::Resolver;

/// Routes that are remembered for one match; each has listeners of its own.
const SAME_MAX: usize = 64;

/// What a route asks but for its host: two with the same hold for the same requests of a host.
#[derive(PartialEq, Eq, Hash)]
struct Asked<'a> {
    path: Option<(u8, &'a str)>,
    methods: Vec<&'a str>,
    sources: Vec<String>,
    values: [Vec<String>; 4],
}

impl<'a> Asked<'a> {
    fn of(route: &'a Route) -> Self {
        // Named one by one, so that no condition is forgotten. Hosts are compared by the caller.
        let Match { hosts: _, path, methods, headers, query, cookies, proxy_tlvs, sources } = &route.matches;
        let path = path.as_ref().and_then(|path| match path {
            PathMatch::Exact(path) => Some((0, path.as_str())),
            // As the router has them: without one slash at the end, and nothing is left of `/`.
            PathMatch::Prefix(path) => {
                Some((1, path.strip_suffix('/').unwrap_or(path))).filter(|(_, path)| !path.is_empty())
            }
            PathMatch::Regex(path) => Some((2, path.as_str())),
        });
        let values = |all: &[ValueMatch], is_small: bool| {
            let name = |value: &ValueMatch| if is_small { value.name.to_ascii_lowercase() } else { value.name.clone() };
            let mut all: Vec<String> = all.iter().map(|value| format!("{}={:?}", name(value), value.test)).collect();
            all.sort_unstable();
            all
        };
        let mut methods: Vec<&str> = methods.iter().map(String::as_str).collect();
        let mut sources: Vec<String> = sources.iter().map(|source| format!("{source:?}")).collect();
        methods.sort_unstable();
        methods.dedup();
        sources.sort_unstable();
        sources.dedup();
        let values = [values(headers, true), values(query, false), values(cookies, false), values(proxy_tlvs, false)];
        Self { path, methods, sources, values }
    }
}

/// Whether the listeners of one route have those of another among them. None are all.
fn covers(one: &[Name], other: &[Name]) -> bool {
    one.is_empty() || (!other.is_empty() && other.iter().all(|name| one.contains(name)))
}

impl Resolver<'_> {
    /// Warns of each route of which another one with the same match comes first. Which routes hide others by a wider match is not looked
    /// for: the more specific one is asked first anyway.
    pub(super) fn warn_of_hidden(&mut self, routes: &[std::sync::Arc<Route>]) {
        // In the order in which they are asked: the sort is stable.
        let mut order: Vec<usize> = (0..routes.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(routes[index].priority));
        let mut seen: HashMap<(Option<String>, Asked<'_>), Vec<usize>> = HashMap::new();
        let mut hidden = Vec::new();
        for index in order {
            let route = &routes[index];
            let hosts: Vec<Option<String>> = match route.matches.hosts.as_slice() {
                [] => vec![None],
                hosts => hosts.iter().map(|host| Some(host.to_string())).collect(),
            };
            let mut firsts = Vec::new();
            for host in &hosts {
                let before = seen.entry((host.clone(), Asked::of(route))).or_default();
                let first =
                    before.iter().find(|&&first| first != index && covers(&routes[first].listeners, &route.listeners));
                firsts.push(first.copied());
                if first.is_none() && before.len() < SAME_MAX {
                    before.push(index);
                }
            }
            // One that is first for any of its hosts is reached.
            if let Some(firsts) = firsts.into_iter().collect::<Option<Vec<_>>>()
                && let Some(first) = firsts.first()
            {
                hidden.push((index, *first));
            }
        }
        hidden.sort_unstable();
        for (index, first) in hidden {
            self.warn_of_one_hidden((index, &routes[index]), (first, &routes[first]));
        }
    }

    fn warn_of_one_hidden(&mut self, (index, route): (usize, &Route), (first, other): (usize, &Route)) {
        let at = format!("routes/{index}");
        let place = self.place_of(&format!("routes/{first}"), &at);
        let reason = if other.priority > route.priority { "has a higher `priority`" } else { "comes first" };
        let message = format!(
            "no request reaches route `{}`: route `{}` in {place} takes the same requests and {reason}",
            route.name, other.name
        );
        let mend = "give it another `match`, or take it out".to_owned();
        self.warn_at_key(&at, "match", message, Some(mend));
    }
}
