//! Routes below routes, made flat before they are understood: a route with its conditions, filters and settings joined with those of the
//! routes that it is nested in. The router sees flat routes alone.
//!
//! Whatever is joined keeps its place: a mistake in what a route inherits is shown where it stands.
//!
//! Pure: from trees to trees.

mod closed;
mod narrow;

use std::collections::HashSet;

use crate::diagnostic::Sink;
use crate::file::ROUTE_TARGETS;
use crate::source::Span;
use crate::tree::{Key, Kind, Node, Scalar, Text};
use narrow::Narrowing;

/// Levels of routes inside one another, the outermost included.
const DEPTH_MAX: usize = 8;
/// Keys that a route does not inherit as they are.
const APART: [&str; 5] = [NAME, MATCH, FILTERS, LISTENERS, ROUTES];
const NAME: &str = "name";
const MATCH: &str = "match";
const FILTERS: &str = "filters";
const LISTENERS: &str = "listeners";
const ROUTES: &str = "routes";

/// Joins the settings of a route, which come second, with those that it inherits.
pub(crate) type Inherit<'a> = dyn Fn(&Node, &Node) -> Node + 'a;

/// Flat routes.
pub(crate) struct Flat {
    /// The list.
    pub(crate) list: Node,
    /// For each of them the names of the routes that it is nested in, outermost first.
    pub(crate) above: Vec<Vec<Text>>,
    /// For each of them how many of its filters are of those.
    pub(crate) filters_above: Vec<usize>,
}

/// Returns the same routes flat, or `None` if they are. What contradicts what it is nested in is reported.
pub(crate) fn flatten(routes: &Node, inherit: &Inherit<'_>, sink: &mut Sink) -> Option<Flat> {
    if !routes.items().iter().any(|route| !below(route).is_empty()) {
        return None;
    }
    let mut flattening =
        Flattening { inherit, sink, list: Vec::new(), above: Vec::new(), filters_above: Vec::new(), way: Vec::new() };
    let mut groups = Vec::new();
    for (index, route) in routes.items().iter().enumerate() {
        let name = name_of(route, || format!("route-{}", index + 1));
        flattening.add((route, 0), name, &mut groups);
    }
    flattening.unique_groups(&groups);
    let Flattening { list, above, filters_above, .. } = flattening;
    Some(Flat { list: Node { span: routes.span, kind: Kind::list(list) }, above, filters_above })
}

/// Returns the routes that hold others, at every level, without those.
pub(crate) fn groups(routes: &Node) -> Vec<Node> {
    fn gather(routes: &[Node], depth: usize, found: &mut Vec<Node>) {
        for route in routes.iter().filter(|route| depth > 0 && !below(route).is_empty()) {
            found.push(without(route, &[ROUTES]));
            gather(below(route), depth - 1, found);
        }
    }
    let mut found = Vec::new();
    gather(routes.items(), DEPTH_MAX, &mut found);
    found
}

/// Routes directly below a route.
fn below(route: &Node) -> &[Node] {
    route.get(ROUTES).map_or(&[], Node::items)
}

fn name_of(route: &Node, otherwise: impl FnOnce() -> String) -> Text {
    let given = route.get(NAME).and_then(Node::text);
    given.map_or_else(|| otherwise().into(), Text::from)
}

fn has_target(route: &Node) -> bool {
    ROUTE_TARGETS.iter().any(|key| route.get(key).is_some())
}

struct Flattening<'a> {
    inherit: &'a Inherit<'a>,
    sink: &'a mut Sink,
    list: Vec<Node>,
    above: Vec<Vec<Text>>,
    filters_above: Vec<usize>,
    /// The names of the routes that the next is nested in.
    way: Vec<Text>,
}

impl Flattening<'_> {
    /// Adds a route that was joined with those above, of which it has so many filters, after those below it. One without a target only holds
    /// others: it goes to `groups`.
    fn add(&mut self, (route, inherited): (&Node, usize), name: Text, groups: &mut Vec<(Text, Span)>) {
        let children = below(route);
        if children.is_empty() {
            return self.push((route.clone(), inherited), name);
        }
        let own = without(route, &[ROUTES]);
        if self.way.len() + 1 >= DEPTH_MAX {
            let span = route.entry(ROUTES).map_or(route.span, |(key, _)| key.span);
            let message = format!("routes are nested at most {DEPTH_MAX} levels deep");
            self.sink.push(span, message, Some("write these routes one level up".to_owned()));
            return self.push((own, inherited), name);
        }
        let filters = own.get(FILTERS).map_or(0, |filters| filters.items().len());
        self.way.push(name.clone());
        for (index, child) in children.iter().enumerate() {
            let own_name = name_of(child, || format!("{name}.{}", index + 1));
            match &child.kind {
                Kind::Map(_) => {
                    let joined = self.join(&own, child, &own_name);
                    self.add((&joined, filters), own_name, groups);
                }
                // The validator says that this is no route.
                _ => self.push((child.clone(), 0), own_name),
            }
        }
        self.way.pop();
        match has_target(&own) {
            true => self.push((own, inherited), name),
            false => groups.push((name, route.get(NAME).map_or(route.span, |name| name.span))),
        }
    }

    fn push(&mut self, (mut route, inherited): (Node, usize), name: Text) {
        if let Kind::Map(entries) = &mut route.kind
            && !entries.iter().any(|(key, _)| key.text == NAME)
        {
            let mut named = entries.to_vec();
            let text = Scalar { text: name, plain: false, written: None };
            named.push((
                Key { text: NAME.into(), span: route.span },
                Node { span: route.span, kind: Kind::Scalar(text) },
            ));
            route.kind = Kind::map(named);
        }
        self.list.push(route);
        self.above.push(self.way.clone());
        self.filters_above.push(inherited);
    }

    /// Reports names that a route without a target shares with another route; those of all others are compared when they are resolved.
    fn unique_groups(&mut self, groups: &[(Text, Span)]) {
        if groups.is_empty() {
            return;
        }
        let leaves = self.list.iter().filter_map(|route| route.get(NAME)?.text());
        let mut seen: HashSet<String> = leaves.map(str::to_owned).collect();
        for (name, span) in groups {
            if !seen.insert(name.to_string()) {
                let message = format!("the name `{name}` is already used by another route");
                self.sink.push(*span, message, Some("give one of them another name".to_owned()));
            }
        }
    }

    /// Joins a route with the one directly above, which was joined before.
    fn join(&mut self, above: &Node, route: &Node, name: &str) -> Node {
        let apart = |key: &str| APART.contains(&key) || ROUTE_TARGETS.contains(&key);
        let mut start = route.clone();
        if !has_target(route) {
            let targets = above.entries().iter().filter(|(key, _)| ROUTE_TARGETS.contains(&key.text.as_str()));
            start = with(start, targets.cloned());
        }
        let settings = above.entries().iter().filter(|(key, _)| !apart(&key.text)).cloned().collect();
        let settings = Node { span: above.span, kind: Kind::map(settings) };
        let mut joined = (self.inherit)(&settings, &start);
        for key in [MATCH, FILTERS, LISTENERS] {
            let Some((inherited, value)) = above.entry(key) else { continue };
            let made = match route.entry(key) {
                Some((own, node)) => {
                    let node = match key {
                        MATCH => Narrowing { route: name, sink: self.sink }.all(value, node),
                        FILTERS => filters(value, node),
                        _ => self.listeners(name, value, node),
                    };
                    (own.clone(), node)
                }
                None => (inherited.clone(), value.clone()),
            };
            joined = with(without(&joined, &[key]), [made]);
        }
        joined
    }

    fn listeners(&mut self, name: &str, above: &Node, own: &Node) -> Node {
        let known: Vec<&str> = above.items().iter().filter_map(Node::text).collect();
        // An empty list stands for all that the route above has.
        if own.items().is_empty() && matches!(own.kind, Kind::List(_)) {
            return above.clone();
        }
        for listener in own.items() {
            if let Some(text) = listener.text().filter(|text| !known.is_empty() && !known.contains(text)) {
                let message = format!("route `{name}` can never match: the route above has no listener `{text}`");
                self.sink.push(listener.span, message, Some("add it there, or leave it out".to_owned()));
            }
        }
        own.clone()
    }
}

/// Returns the filters of a route, with those above before them.
fn filters(above: &Node, own: &Node) -> Node {
    match (&above.kind, &own.kind) {
        (Kind::List(first), Kind::List(then)) => {
            Node { span: own.span, kind: Kind::list(first.iter().chain(then.iter()).cloned().collect()) }
        }
        _ => own.clone(),
    }
}

fn without(node: &Node, keys: &[&str]) -> Node {
    let kept = node.entries().iter().filter(|(key, _)| !keys.contains(&key.text.as_str()));
    Node { span: node.span, kind: Kind::map(kept.cloned().collect()) }
}

fn with(node: Node, more: impl IntoIterator<Item = (Key, Node)>) -> Node {
    let mut entries = node.entries().to_vec();
    entries.extend(more);
    Node { span: node.span, kind: Kind::map(entries) }
}
