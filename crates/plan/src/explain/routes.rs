//! Which routes are asked for a request, and what each says.

use std::collections::HashSet;

use model::RequestHead;
use model::facts::Seen;
use model::matching::{Match, PathMatch, ValueTest};
use serde::{Deserialize, Serialize};

use super::Question;
use crate::route::router::Router;

/// A route whose host and path fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteExplanation {
    /// Its name.
    pub name: String,
    /// Names of the routes that it is nested in, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested_in: Vec<String>,
    /// What it asks of host and path, and its priority if it has one.
    pub asks: String,
    /// Whether all its conditions hold.
    pub holds: bool,
    /// The first condition that does not hold.
    pub unmet: Option<String>,
}

/// Asks all routes that come into question, in order.
pub(super) fn ask(
    router: &Router,
    (head, seen): (&RequestHead, &Seen<'_>),
    question: &Question,
    scratch: &mut Vec<u8>,
) -> Vec<RouteExplanation> {
    let mut asked: HashSet<usize> = HashSet::new();
    let mut told = Vec::new();
    router.walk(head, scratch, &mut |route, scratch| {
        // One that names several hosts may stand in several tables.
        if asked.insert(route.index) {
            let matches = &route.route.matches;
            let hides = question.hides_values;
            let test = |test: &ValueTest| if hides { "does not match".to_owned() } else { test.unmet() };
            let unmet = route.conditions.unmet((matches, &test), (head, seen.caller()), scratch);
            told.push(RouteExplanation {
                name: route.name().to_string(),
                nested_in: route.route.above.iter().map(ToString::to_string).collect(),
                asks: asks(matches, route.route.priority),
                holds: unmet.is_none(),
                unmet,
            });
        }
        false
    });
    told
}

impl RouteExplanation {
    /// Returns its name with those of the routes that it is nested in before it: `shop > admin`.
    pub fn way(&self) -> String {
        self.nested_in.iter().map(|above| format!("{above} > ")).collect::<String>() + &self.name
    }
}

fn asks(matches: &Match, priority: i32) -> String {
    let mut parts = Vec::new();
    if !matches.hosts.is_empty() {
        let hosts: Vec<String> = matches.hosts.iter().map(ToString::to_string).collect();
        parts.push(format!("host {}", hosts.join(" or ")));
    }
    match &matches.path {
        Some(PathMatch::Exact(path)) => parts.push(format!("path {path}")),
        Some(PathMatch::Prefix(prefix)) => parts.push(format!("paths below {prefix}")),
        Some(PathMatch::Regex(pattern)) => parts.push(format!("paths that match {pattern}")),
        None => {}
    }
    if parts.is_empty() {
        parts.push("any host and path".to_owned());
    }
    let others = usize::from(!matches.methods.is_empty())
        + matches.headers.len()
        + matches.query.len()
        + matches.cookies.len()
        + matches.proxy_tlvs.len()
        + usize::from(!matches.sources.is_empty())
        + usize::from(matches.expression.is_some())
        + matches.body.as_ref().map_or(0, |body| body.len());
    if others > 0 {
        parts.push(format!("{others} more condition{}", if others == 1 { "" } else { "s" }));
    }
    if priority != 0 {
        parts.push(format!("priority {priority}"));
    }
    parts.join(", ")
}
