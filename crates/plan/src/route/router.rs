//! Which route a request takes.
//!
//! # Precedence
//! Of all routes whose conditions hold, the first by these rules wins. They are those of the Kubernetes Gateway API, with
//! `priority` before them and a few ties broken that it leaves open:
//!
//! 1. higher `priority`;
//! 2. host: an exact name, then a longer wildcard, then a shorter one, then no host condition;
//! 3. path: exact, then a longer prefix, then a regular expression, then no path condition. The prefix `/` asks for
//!    nothing that a request does not have, so it counts as no condition: otherwise no expression could ever win
//!    beside a catch-all;
//! 4. a condition on the method before none;
//! 5. more conditions on header fields;
//! 6. more conditions on query parameters;
//! 7. more conditions on cookies;
//! 8. more conditions on values of a PROXY header;
//! 9. a condition on the client's network before none;
//! 10. an expression before none;
//! 11. more conditions on the body;
//! 12. the order of the file.
//!
//! If the routes of the most specific host or path fail by another condition, less specific ones are tried: a request
//! gets no answer 404 while any route matches it.
//!
//! # What is compared
//! The host is compared without port, without the root's dot at its end, in lower case. The path is compared in the form into
//! which its listener brings it, and which endpoints are sent: `/%61dmin` and `/x/../admin` are `/admin`, unless that is switched
//! off. Case counts. A prefix means whole segments, and a slash at its end means nothing. A header condition holds if one of
//! several fields of its name passes. Regular expressions must match the whole.
//!
//! # Cost
//! One table per priority, in it one per host pattern, in it hash tables of exact paths and prefixes. A request costs a
//! hash lookup of its host, of its path, and of each prefix of the path no deeper than the deepest configured one; the
//! number of routes does not matter, but for expressions of the same host and for routes that differ in nothing but
//! other conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::facts::Caller;
use model::matching::PathMatch;
use model::{HostPattern, RequestHead};

use crate::hash::FastMap;
use crate::route::conditions::trimmed;
use crate::route::hosts::{self, HostMap};
use crate::route::plan::RoutePlan;

/// The routes of a listener, compiled for finding one.
pub struct Router {
    /// Those of this listener, in the order of the file.
    routes: Box<[Arc<RoutePlan>]>,
    /// By falling priority.
    tiers: Box<[Tier]>,
    has_expressions: bool,
    /// The same with those that no client reaches, if there are any.
    with_internal: Option<Box<Self>>,
}

/// Places in [`Router::routes`], the most specific first.
type Candidates = Box<[u32]>;

/// The routes of one priority.
#[derive(Default)]
struct Tier {
    hosts: HostMap<u32>,
    /// The table of routes without a host condition.
    any: Option<u32>,
    tables: Vec<Table>,
}

/// The routes of one host pattern.
#[derive(Default)]
struct Table {
    exact: FastMap<Box<[u8]>, Candidates>,
    prefixes: Prefixes,
    regexes: Candidates,
    rest: Candidates,
    /// The table of the next less specific pattern that fits every host that this one fits.
    wider: Option<u32>,
}

/// Routes by prefix, kept without the slash at its end.
#[derive(Default)]
struct Prefixes {
    /// Place in `entries`.
    by_text: FastMap<Box<[u8]>, u32>,
    entries: Box<[PrefixEntry]>,
    /// Segments of the deepest.
    depth_max: usize,
    /// Length of the longest.
    bytes_max: usize,
}

struct PrefixEntry {
    candidates: Candidates,
    /// The next shorter prefix of this one.
    shorter: Option<u32>,
}

impl Router {
    /// Compiles the tables of `routes`, which are in the order of the file.
    pub(crate) fn new(routes: Vec<Arc<RoutePlan>>) -> Self {
        let is_internal = |route: &Arc<RoutePlan>| route.route.is_internal;
        let with_internal = routes.iter().any(is_internal).then(|| Box::new(Self::of(routes.clone(), |_| true)));
        Self { with_internal, ..Self::of(routes, |route| !is_internal(route)) }
    }

    fn of(routes: Vec<Arc<RoutePlan>>, is_wanted: impl Fn(&Arc<RoutePlan>) -> bool) -> Self {
        let mut tiers = BTreeMap::<i32, TierBuilder<'_>>::new();
        for (place, route) in (0..).zip(&routes).filter(|(_, route)| is_wanted(route)) {
            tiers.entry(route.route.priority).or_default().add(place, route);
        }
        let tiers = tiers.into_values().rev().map(|tier| tier.build(&routes)).collect();
        let has_expressions = routes.iter().any(|route| route.conditions.asks_more());
        Self { routes: routes.into(), tiers, has_expressions, with_internal: None }
    }

    /// Returns the same with the routes that no client reaches, for requests that an endpoint sends on.
    pub fn with_internal(&self) -> &Self {
        self.with_internal.as_deref().unwrap_or(self)
    }

    /// Returns the routes it was made of, in the order of the file.
    pub fn routes(&self) -> &[Arc<RoutePlan>] {
        &self.routes
    }

    /// Returns whether a route has an expression, or asks for the body. Then [`Caller::seen`] must be there.
    #[inline]
    pub fn has_expressions(&self) -> bool {
        self.has_expressions
    }

    /// Returns the route that a request takes, or `None`. `caller` is compared with conditions on networks and PROXY headers. `scratch` is
    /// overwritten; nothing is allocated once it has its working size.
    pub fn find<'a>(
        &self,
        head: &RequestHead,
        caller: impl Into<Caller<'a>>,
        scratch: &mut Vec<u8>,
    ) -> Option<&Arc<RoutePlan>> {
        let caller = caller.into();
        self.walk(head, scratch, &mut |route, scratch| route.conditions.hold(head, caller, scratch))
    }

    /// Goes through the routes whose host and path fit, in the order in which they are asked, to the first that is
    /// wanted. One that names several hosts may come several times.
    #[inline]
    pub(crate) fn walk(
        &self,
        head: &RequestHead,
        scratch: &mut Vec<u8>,
        is_wanted: &mut impl FnMut(&RoutePlan, &mut Vec<u8>) -> bool,
    ) -> Option<&Arc<RoutePlan>> {
        hosts::normalise(head.host(), scratch);
        let host_len = scratch.len();
        for tier in &self.tiers {
            let mut next = tier.hosts.find(&scratch[..host_len]).copied().or(tier.any);
            while let Some(table) = next.and_then(|place| tier.tables.get(place as usize)) {
                if let Some(route) = self.walk_in(table, head.path(), scratch, is_wanted) {
                    return Some(route);
                }
                next = table.wider;
            }
        }
        None
    }

    fn walk_in(
        &self,
        table: &Table,
        path: &[u8],
        scratch: &mut Vec<u8>,
        is_wanted: &mut impl FnMut(&RoutePlan, &mut Vec<u8>) -> bool,
    ) -> Option<&Arc<RoutePlan>> {
        let mut first_of = |candidates: &[u32]| {
            let routes = candidates.iter().filter_map(|&place| self.routes.get(place as usize));
            routes.into_iter().find(|route| is_wanted(route, scratch))
        };
        if !table.exact.is_empty()
            && let Some(candidates) = table.exact.get(path)
            && let Some(route) = first_of(candidates)
        {
            return Some(route);
        }
        let mut prefix = table.prefixes.longest(path);
        while let Some(entry) = prefix {
            if let Some(route) = first_of(&entry.candidates) {
                return Some(route);
            }
            prefix = entry.shorter.and_then(|place| table.prefixes.entries.get(place as usize));
        }
        first_of(&table.regexes).or_else(|| first_of(&table.rest))
    }
}

impl Prefixes {
    /// Returns the longest that fits a path.
    #[inline]
    fn longest(&self, path: &[u8]) -> Option<&PrefixEntry> {
        if self.entries.is_empty() {
            return None;
        }
        let mut best = None;
        for end in segment_ends(path, self.bytes_max).take(self.depth_max) {
            best = self.by_text.get(&path[..end]).or(best);
        }
        self.entries.get(*best? as usize)
    }
}

/// Returns where the whole segments of a path end, up to `bytes_max`: before each slash but a first one, and at the end.
fn segment_ends(path: &[u8], bytes_max: usize) -> impl Iterator<Item = usize> {
    let inner = path.len().min(bytes_max.saturating_add(1));
    let ends = (1..inner).filter(|&at| path[at] == b'/');
    ends.chain((!path.is_empty() && path.len() <= bytes_max).then_some(path.len()))
}

#[derive(Default)]
struct TierBuilder<'a> {
    by_host: BTreeMap<Option<HostPattern>, TableBuilder<'a>>,
}

#[derive(Default)]
struct TableBuilder<'a> {
    exact: BTreeMap<&'a str, Vec<u32>>,
    prefixes: BTreeMap<&'a str, Vec<u32>>,
    regexes: Vec<u32>,
    rest: Vec<u32>,
}

impl<'a> TierBuilder<'a> {
    fn add(&mut self, place: u32, route: &'a RoutePlan) {
        let asked = &route.route.matches;
        if asked.hosts.is_empty() {
            self.by_host.entry(None).or_default().add(place, asked.path.as_ref());
        }
        for host in &asked.hosts {
            self.by_host.entry(Some(hosts::canonical(host))).or_default().add(place, asked.path.as_ref());
        }
    }

    fn build(self, routes: &[Arc<RoutePlan>]) -> Tier {
        let mut tier = Tier::default();
        for (host, table) in self.by_host {
            let place = tier.tables.len() as u32;
            match host {
                None => tier.any = Some(place),
                Some(host) => tier.hosts.insert(&host, place),
            }
            tier.tables.push(table.build(routes));
        }
        link_wider(&mut tier);
        tier
    }
}

/// Says of each table which is the next less specific one. Which patterns fit all hosts of a pattern does not depend on
/// the host: those whose suffix is a suffix of it.
fn link_wider(tier: &mut Tier) {
    let (hosts, any) = (&tier.hosts, tier.any);
    for (name, &place) in hosts.iter() {
        tier.tables[place as usize].wider = hosts.find_suffix(name).copied().or(any);
    }
}

impl<'a> TableBuilder<'a> {
    fn add(&mut self, place: u32, path: Option<&'a PathMatch>) {
        let list = match path {
            Some(PathMatch::Exact(path)) => self.exact.entry(path).or_default(),
            Some(PathMatch::Prefix(prefix)) if trimmed(prefix).is_empty() => &mut self.rest,
            Some(PathMatch::Prefix(prefix)) => self.prefixes.entry(trimmed(prefix)).or_default(),
            Some(PathMatch::Regex(_)) => &mut self.regexes,
            None => &mut self.rest,
        };
        list.push(place);
    }

    fn build(self, routes: &[Arc<RoutePlan>]) -> Table {
        let sort = |list| sorted(list, routes);
        let exact = self.exact.into_iter().map(|(path, list)| (path.as_bytes().into(), sort(list)));
        Table {
            exact: exact.collect(),
            prefixes: prefixes(self.prefixes, sort),
            regexes: sort(self.regexes),
            rest: sort(self.rest),
            wider: None,
        }
    }
}

fn prefixes(listed: BTreeMap<&str, Vec<u32>>, sort: impl Fn(Vec<u32>) -> Candidates) -> Prefixes {
    let by_text: FastMap<Box<[u8]>, u32> = listed.keys().map(|prefix| prefix.as_bytes().into()).zip(0..).collect();
    let bytes_max = listed.keys().map(|prefix| prefix.len()).max().unwrap_or(0);
    let depth_max = listed.keys().map(|prefix| segment_ends(prefix.as_bytes(), usize::MAX).count()).max().unwrap_or(0);
    let shorter = |prefix: &[u8]| {
        let inner = segment_ends(prefix, prefix.len()).filter(|&end| end < prefix.len());
        inner.filter_map(|end| by_text.get(&prefix[..end]).copied()).last()
    };
    let entries = listed
        .into_iter()
        .map(|(prefix, list)| PrefixEntry { candidates: sort(list), shorter: shorter(prefix.as_bytes()) })
        .collect();
    Prefixes { entries, depth_max, bytes_max, by_text }
}

fn sorted(mut list: Vec<u32>, routes: &[Arc<RoutePlan>]) -> Candidates {
    // Places grow with the order of the file, and the sort is stable.
    list.sort_by_key(|&place| routes[place as usize].conditions.rank());
    list.dedup();
    list.into()
}

#[cfg(test)]
mod tests;
