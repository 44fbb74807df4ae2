//! Routes that no request reaches, since one that is asked before them holds whenever they would.
//!
//! Which of two routes is asked first is certain where their priorities differ, and where they ask for the same host and path: then the
//! number of their other conditions decides, and the order of the file. Of everything else nothing is said.

use std::cmp::Reverse;
use std::collections::HashMap;

use model::matching::{Match, PathMatch, ValueMatch, ValueTest};
use model::snapshot::Route;
use model::{Cidr, HostPattern, Name};

use super::Resolver;

/// Routes that are remembered for one host and path.
const SAME_MAX: usize = 64;

/// The kind and the text of a path, as the router has them: without one slash at the end, and `None` for `/` as for no path.
type PathKey<'a> = Option<(u8, &'a str)>;

const EXACT: u8 = 0;
const PREFIX: u8 = 1;
const REGEX: u8 = 2;

/// Where a route is asked: under a host, or a suffix of hosts, and a path. A route under the same has the same rank but for its other
/// conditions.
type Place<'a> = (Option<(bool, &'a str)>, PathKey<'a>);

fn path_key(path: Option<&PathMatch>) -> PathKey<'_> {
    match path? {
        PathMatch::Exact(path) => Some((EXACT, path)),
        PathMatch::Prefix(path) => {
            Some((PREFIX, path.strip_suffix('/').unwrap_or(path))).filter(|(_, path)| !path.is_empty())
        }
        PathMatch::Regex(path) => Some((REGEX, path)),
    }
}

fn host_key(host: &HostPattern) -> (bool, &str) {
    match host {
        HostPattern::Exact(name) => (false, name),
        HostPattern::Suffix(suffix) => (true, suffix),
    }
}

/// Returns its own place first, then all that hold its requests too.
fn places_around(place: Place<'_>) -> Vec<Place<'_>> {
    let (host, path) = place;
    let mut hosts = vec![host];
    if let Some((_, name)) = host {
        let dots = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
        hosts.extend(dots.filter(|suffix| !suffix.is_empty()).map(|suffix| Some((true, suffix))));
        hosts.push(None);
    }
    let mut paths = vec![path];
    if let Some((kind, text)) = path {
        if kind != REGEX {
            let inner = text.match_indices('/').map(|(at, _)| &text[..at]).filter(|prefix| !prefix.is_empty());
            paths.extend(inner.chain([text]).map(|prefix| Some((PREFIX, prefix))));
        }
        paths.push(None);
    }
    hosts.iter().flat_map(|host| paths.iter().map(move |path| (*host, *path))).collect()
}

/// Returns how the router ranks routes of one host and path; the smaller is asked first.
fn rank(asked: &Match) -> (bool, [Reverse<usize>; 4], bool, bool, Reverse<usize>) {
    let counts = [&asked.headers, &asked.query, &asked.cookies, &asked.proxy_tlvs].map(|list| Reverse(list.len()));
    let of_body = Reverse(asked.body.as_ref().map_or(0, |body| body.len()));
    (asked.methods.is_empty(), counts, asked.sources.is_empty(), asked.expression.is_none(), of_body)
}

/// Returns whether `one` holds for all requests that `other` holds for, of which host and path are at one of the [places
/// around](places_around) that of `other`.
fn covers(one: &Route, other: &Route) -> bool {
    let listeners = |one: &[Name], other: &[Name]| {
        one.is_empty() || (!other.is_empty() && other.iter().all(|name| one.contains(name)))
    };
    // Named one by one, so that no condition is forgotten.
    let Match { hosts: _, path, methods, headers, query, cookies, proxy_tlvs, sources, expression, body } =
        &one.matches;
    let asked = &other.matches;
    let takes_methods = methods.is_empty()
        || (!asked.methods.is_empty() && asked.methods.iter().all(|method| methods.contains(method)));
    let takes_sources = sources.is_empty()
        || (!asked.sources.is_empty() && asked.sources.iter().all(|inner| sources.iter().any(|it| holds(it, inner))));
    // A client passes by one that is internal.
    (!one.is_internal || other.is_internal)
        && listeners(&one.listeners, &other.listeners)
        && (path.is_none() || path_key(path.as_ref()).is_some() || begins_with_slash(asked))
        && takes_methods
        && takes_sources
        && (expression.is_none() || *expression == asked.expression)
        && (body.is_none() || *body == asked.body)
        && values_cover((headers, &asked.headers), true)
        && values_cover((query, &asked.query), false)
        && values_cover((cookies, &asked.cookies), false)
        && values_cover((proxy_tlvs, &asked.proxy_tlvs), false)
}

/// Returns whether no request with `*` in the place of a path is meant, which no path of a route but an expression holds.
fn begins_with_slash(asked: &Match) -> bool {
    let names_path = matches!(asked.path, Some(PathMatch::Exact(_) | PathMatch::Prefix(_)));
    names_path || !asked.methods.is_empty() && !asked.methods.iter().any(|method| method == "OPTIONS")
}

/// Returns whether a network holds all addresses of another.
fn holds(outer: &Cidr, inner: &Cidr) -> bool {
    let ((first, last), (begin, end)) = (outer.range(), inner.range());
    outer.is_v4() == inner.is_v4() && first <= begin && end <= last
}

/// Returns whether each condition follows from one of the others.
fn values_cover((wide, narrow): (&[ValueMatch], &[ValueMatch]), is_case_ignored: bool) -> bool {
    let same_name = |one: &str, other: &str| match is_case_ignored {
        true => one.eq_ignore_ascii_case(other),
        false => one == other,
    };
    let follows = |wanted: &ValueTest, given: &ValueTest| {
        wanted == given || (*wanted == ValueTest::Present && matches!(given, ValueTest::Exact(_) | ValueTest::Regex(_)))
    };
    wide.iter().all(|wanted| {
        narrow.iter().any(|given| same_name(&wanted.name, &given.name) && follows(&wanted.test, &given.test))
    })
}

/// What is asked first by its priority, and of equal ones in the file.
#[derive(Default)]
struct Asked<'a>(HashMap<Place<'a>, Vec<usize>>);

impl<'a> Asked<'a> {
    /// Returns the route that takes all requests of another at a place; that one is remembered there if there is none.
    fn first_at(&mut self, place: Place<'a>, index: usize, routes: &[std::sync::Arc<Route>]) -> Option<usize> {
        let route = &routes[index];
        let is_first = |before: &usize, is_own: bool| {
            let other = &routes[*before];
            *before != index && (is_own || other.priority > route.priority) && covers(other, route)
        };
        let found = places_around(place).into_iter().find_map(|around| {
            let before = self.0.get(&around)?;
            before.iter().copied().find(|before| is_first(before, around == place))
        });
        if found.is_none() {
            let own = self.0.entry(place).or_default();
            if own.len() < SAME_MAX {
                own.push(index);
            }
        }
        found
    }
}

/// Returns routes by expression, each with the route above it that takes all its requests by a prefix of the same hosts.
fn hidden_by_prefix(routes: &[std::sync::Arc<Route>]) -> Vec<(usize, usize)> {
    let is_prefix = |route: &Route| matches!(path_key(route.matches.path.as_ref()), Some((PREFIX, _)));
    let find = |index: usize| {
        let route = &routes[index];
        let hides = |other: &Route| {
            route.above.contains(&other.name)
                && is_prefix(other)
                && other.priority == route.priority
                && other.matches.hosts == route.matches.hosts
        };
        let nested = !route.above.is_empty() && matches!(route.matches.path, Some(PathMatch::Regex(_)));
        let first = nested.then(|| routes.iter().position(|other| hides(other)))?;
        first.map(|first| (index, first))
    };
    (0..routes.len()).filter_map(find).collect()
}

impl Resolver<'_> {
    /// Warns of each route all of whose requests another one takes that is asked before it.
    pub(super) fn warn_of_hidden(&mut self, routes: &[std::sync::Arc<Route>]) {
        let mut order: Vec<usize> = (0..routes.len()).collect();
        // The sort is stable.
        order.sort_by_key(|&index| (Reverse(routes[index].priority), rank(&routes[index].matches)));
        let (mut asked, mut hidden) = (Asked::default(), Vec::new());
        for index in order {
            let Match { hosts, path, .. } = &routes[index].matches;
            let path = path_key(path.as_ref());
            let hosts: Vec<_> =
                if hosts.is_empty() { vec![None] } else { hosts.iter().map(|host| Some(host_key(host))).collect() };
            let firsts: Vec<_> = hosts.into_iter().map(|host| asked.first_at((host, path), index, routes)).collect();
            // One that is first for any of its hosts is reached.
            if let Some(firsts) = firsts.into_iter().collect::<Option<Vec<_>>>()
                && let Some(first) = firsts.first()
            {
                hidden.push((index, *first));
            }
        }
        hidden.sort_unstable();
        for (index, first) in hidden.into_iter().chain(hidden_by_prefix(routes)) {
            self.warn_of_one_hidden((index, &routes[index]), (first, &routes[first]));
        }
    }

    fn warn_of_one_hidden(&mut self, (index, route): (usize, &Route), (first, other): (usize, &Route)) {
        let at = format!("routes/{index}");
        let place = self.place_of(&format!("routes/{first}"), &at);
        let is_nested = route.above.contains(&other.name);
        let reason = match other.priority > route.priority {
            true => "has a higher `priority`",
            false if is_nested => "has a prefix, which comes before a regular expression",
            false => "comes first",
        };
        let message = format!(
            "no request reaches route `{}`: route `{}` in {place} matches the same requests and {reason}",
            route.name, other.name
        );
        let mend = match is_nested {
            true => format!("give it `priority: {}`", other.priority.saturating_add(1)),
            false => "give it another `match`, or take it out".to_owned(),
        };
        self.warn_at_key(&at, "match", message, Some(mend));
    }
}
