//! Filters of a listener: they stand before those of each of its routes.
//!
//! A route that other listeners have too gets them with a condition on the listener.
//!
//! Pure: from trees to trees.

use crate::file::{Protocol, WHEN};
use crate::source::Span;
use crate::tree::{Key, Kind, Node, Scalar};

const FILTERS: &str = "filters";
const LISTENERS: &str = "listeners";
const ROUTES: &str = "routes";

/// Has the routes of a tree begin with the filters of their listeners, which are taken out of these. Returns for each route how many it got;
/// nothing if no listener has any.
pub(crate) fn spread(tree: &mut Node) -> Vec<usize> {
    let all = tree.get(LISTENERS).map_or(&[][..], Node::entries);
    let speaks_http = |node: &Node| Protocol::has_routes(node.get("protocol").and_then(Node::text));
    let http: Vec<&(Key, Node)> = all.iter().filter(|(_, node)| speaks_http(node)).collect();
    let names: Vec<String> = http.iter().map(|(key, _)| key.text.to_string()).collect();
    let with_filters: Vec<(String, Node)> = http
        .iter()
        .filter_map(|(key, node)| Some((key.text.to_string(), node.get(FILTERS)?.clone())))
        .filter(|(_, filters)| !filters.items().is_empty())
        .collect();
    if with_filters.is_empty() {
        return Vec::new();
    }
    let mut counts = Vec::new();
    let mut used = vec![false; with_filters.len()];
    let mut spread = |route: &Node, used: &mut Vec<bool>| {
        let own: Vec<&str> = route.get(LISTENERS).map_or(&[][..], Node::items).iter().filter_map(Node::text).collect();
        let of_route: Vec<&str> = if own.is_empty() { names.iter().map(String::as_str).collect() } else { own };
        let mut first: Vec<Node> = Vec::new();
        for (place, (name, filters)) in with_filters.iter().enumerate() {
            if of_route.contains(&name.as_str()) {
                used[place] = true;
                let is_only = of_route.iter().all(|other| other == name);
                first.extend(
                    filters.items().iter().map(|filter| if is_only { filter.clone() } else { on(name, filter) }),
                );
            }
        }
        counts.push(first.len());
        begin_with(route, first)
    };
    let Kind::Map(entries) = &mut tree.kind else { return Vec::new() };
    let mut entries = entries.to_vec();
    for (_, routes) in entries.iter_mut().filter(|(key, _)| key.text == ROUTES) {
        routes.kind = Kind::list(routes.items().iter().map(|route| spread(route, &mut used)).collect());
    }
    let used: Vec<&str> =
        with_filters.iter().zip(used).filter(|(_, used)| *used).map(|((name, _), _)| name.as_str()).collect();
    for (_, listeners) in entries.iter_mut().filter(|(key, _)| key.text == LISTENERS) {
        let taken = |(key, node): &(Key, Node)| match used.contains(&key.text.as_str()) {
            true => (key.clone(), without_filters(node)),
            false => (key.clone(), node.clone()),
        };
        listeners.kind = Kind::map(listeners.entries().iter().map(taken).collect());
    }
    tree.kind = Kind::map(entries);
    counts
}

fn without_filters(listener: &Node) -> Node {
    let kept = listener.entries().iter().filter(|(key, _)| key.text != FILTERS);
    Node { span: listener.span, kind: Kind::map(kept.cloned().collect()) }
}

fn begin_with(route: &Node, mut first: Vec<Node>) -> Node {
    let Kind::Map(entries) = &route.kind else { return route.clone() };
    let Some(begin) = first.first().map(|filter| filter.span) else { return route.clone() };
    let mut entries = entries.to_vec();
    match entries.iter_mut().find(|(key, _)| key.text == FILTERS) {
        // What is no list is left for the validator.
        Some((_, own)) if matches!(own.kind, Kind::List(_)) => {
            first.extend(own.items().iter().cloned());
            own.kind = Kind::list(first);
        }
        Some(_) => {}
        None => entries.push(entry(FILTERS, begin, Kind::list(first))),
    }
    Node { span: route.span, kind: Kind::map(entries) }
}

/// Returns a filter that applies on one listener only.
fn on(listener: &str, filter: &Node) -> Node {
    let Kind::Map(entries) = &filter.kind else { return filter.clone() };
    let text = |text: String| Kind::Scalar(Scalar { text: text.into(), plain: false, written: None });
    let mut entries = entries.to_vec();
    let is_here = entry("expression", filter.span, text(format!("listener.name == \"{listener}\"")));
    let is_here = Node { span: filter.span, kind: Kind::map(vec![is_here]) };
    match entries.iter_mut().find(|(key, _)| key.text == WHEN) {
        Some((_, when)) => {
            let both = Kind::list(vec![is_here, when.clone()]);
            when.kind = Kind::map(vec![entry("all", when.span, both)]);
        }
        None => entries.push((Key { text: WHEN.into(), span: filter.span }, is_here)),
    }
    Node { span: filter.span, kind: Kind::map(entries) }
}

fn entry(key: &str, span: Span, kind: Kind) -> (Key, Node) {
    (Key { text: key.into(), span }, Node { span, kind })
}
