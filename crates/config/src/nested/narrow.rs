//! The conditions of a nested route together with those of the route above: both must hold.

use model::{Cidr, HostPattern};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::Extractor;

use super::closed::is_closed;
use crate::diagnostic::Sink;
use crate::tree::{Key, Kind, Node, Scalar};

/// Joins conditions, and reports those that contradict one another.
pub(super) struct Narrowing<'a> {
    pub(super) route: &'a str,
    pub(super) sink: &'a mut Sink,
}

/// What two conditions come to.
enum Both {
    /// That of the route.
    Own,
    /// That of the route above.
    Above,
    /// They contradict.
    Neither,
    /// They cannot be written as one.
    Unjoined,
}

impl Narrowing<'_> {
    /// Returns the conditions of a route and of the one above it as one. What is no condition is left for the validator.
    pub(super) fn all(&mut self, above: &Node, own: &Node) -> Node {
        if !matches!((&above.kind, &own.kind), (Kind::Map(_), Kind::Map(_))) {
            return own.clone();
        }
        let mut joined: Vec<(Key, Node)> = own.entries().to_vec();
        for (key, value) in above.entries() {
            match joined.iter_mut().find(|(known, _)| known.text == key.text) {
                Some((_, node)) => *node = self.one(&key.text, value, node),
                None => joined.push((key.clone(), value.clone())),
            }
        }
        Node { span: own.span, kind: Kind::map(joined) }
    }

    fn one(&mut self, key: &str, above: &Node, own: &Node) -> Node {
        match key {
            "host" => self.list((above, own), "host", host),
            "method" => {
                self.list((above, own), "method", |above, own| if above == own { Both::Own } else { Both::Neither })
            }
            "source" => self.list((above, own), "network", network),
            "path" => self.path(above, own),
            "headers" => self.values((above, own), "header field", true),
            "query" | "cookies" | "proxy_tlvs" => self.values((above, own), "value", false),
            "body" => self.body(above, own),
            "expression" => self.expression(above, own),
            _ => own.clone(),
        }
    }

    /// Joins what is asked of the body.
    fn body(&mut self, above: &Node, own: &Node) -> Node {
        let mut joined = own.entries().to_vec();
        for (key, value) in above.entries() {
            match joined.iter_mut().find(|(known, _)| known.text == key.text) {
                Some((_, node)) if key.text != "max" => *node = self.values((value, node), "value", false),
                Some(_) => {}
                None => joined.push((key.clone(), value.clone())),
            }
        }
        Node { span: own.span, kind: Kind::map(joined) }
    }

    /// Joins expressions. Each must be whole in itself: a bracket that closes one opened above would take the condition above away.
    fn expression(&mut self, above: &Node, own: &Node) -> Node {
        for node in [above, own] {
            if let Some(text) = node.text().filter(|text| !is_closed(text)) {
                let what =
                    if text.trim().is_empty() { "is empty" } else { "has a bracket or quote without its counterpart" };
                let mend = "each expression of nested routes must be complete by itself".to_owned();
                self.sink.push(node.span, format!("the expression {what}"), Some(mend));
            }
        }
        expression(above, own)
    }

    fn never(&mut self, at: &Node, why: &str, mend: &str) {
        let message = format!("route `{}` can never match: {why}", self.route);
        self.sink.push(at.span, message, Some(mend.to_owned()));
    }

    /// Returns what is in both lists, any item of which may hold.
    fn list(&mut self, (above, own): (&Node, &Node), what: &str, both: fn(&str, &str) -> Both) -> Node {
        let (wide, narrow) = (one_or_many(above), one_or_many(own));
        if wide.is_empty() || narrow.is_empty() {
            return if narrow.is_empty() { above.clone() } else { own.clone() };
        }
        let mut found: Vec<Node> = Vec::new();
        for item in narrow {
            let Some(text) = item.text() else { return own.clone() };
            let before = found.len();
            for outer in wide {
                match outer.text().map(|outer| both(outer, text)) {
                    Some(Both::Own) => {
                        found.truncate(before);
                        found.push(item.clone());
                        break;
                    }
                    Some(Both::Above) => found.push(outer.clone()),
                    Some(Both::Neither) => {}
                    // One of them is wrong, which the validator says of both.
                    Some(Both::Unjoined) | None => found.extend([outer.clone(), item.clone()]),
                }
            }
            if found.len() == before {
                let list: Vec<String> = wide.iter().map(|outer| format!("`{}`", shown(outer))).collect();
                let why = format!("the {what} `{}` is outside {} of the route above", shown(item), list.join(" and "));
                self.never(item, &why, &format!("name a {what} within it, or write the route one level up"));
                found.push(item.clone());
            }
        }
        Node { span: own.span, kind: Kind::list(found) }
    }

    fn path(&mut self, above: &Node, own: &Node) -> Node {
        let (Some(wide), Some(narrow)) = (single(above), single(own)) else { return own.clone() };
        match paths(wide, narrow) {
            Both::Own => own.clone(),
            Both::Above => above.clone(),
            Both::Neither => {
                let (at, path) = (narrow.1, shown(narrow.1));
                let why = format!("the path `{path}` is outside {} `{}` of the route above", wide.0, shown(wide.1));
                let prefix = shown(wide.1).trim_end_matches('/');
                let mend = match wide.0 == "prefix" && !path.starts_with(prefix) && path.starts_with('/') {
                    true => format!("write the whole path: `{prefix}{path}`"),
                    false => "write a path within it, or the route one level up".to_owned(),
                };
                self.never(at, &why, &mend);
                own.clone()
            }
            Both::Unjoined => {
                let (kind, path) = (wide.0, shown(wide.1));
                let (message, mend) = match narrow.0 == "regex" && kind == "prefix" {
                    true => (
                        format!("the expression must begin with `{path}`, the path of the route above"),
                        format!("write `{}/…`", regex_syntax::escape(path.trim_end_matches('/'))),
                    ),
                    false => (
                        format!("a route below `{kind}: {path}` cannot have another path"),
                        "use `prefix` in the route above, or an `expression` here".to_owned(),
                    ),
                };
                self.sink.push(narrow.1.span, message, Some(mend));
                own.clone()
            }
        }
    }

    /// Joins conditions on values with names, all of which must hold.
    fn values(&mut self, (above, own): (&Node, &Node), what: &str, is_case_ignored: bool) -> Node {
        let same =
            |one: &str, other: &str| if is_case_ignored { one.eq_ignore_ascii_case(other) } else { one == other };
        let mut joined = own.entries().to_vec();
        for (key, test) in above.entries() {
            let Some((_, node)) = joined.iter_mut().find(|(known, _)| same(&known.text, &key.text)) else {
                joined.push((key.clone(), test.clone()));
                continue;
            };
            match tests(test, node) {
                Both::Own => {}
                Both::Above => *node = test.clone(),
                Both::Neither => {
                    let why = format!("the condition on the {what} `{}` contradicts that of the route above", key.text);
                    self.never(node, &why, "leave one of the conditions out");
                }
                Both::Unjoined => {
                    let message = format!("the route above has a condition on the {what} `{}` too", key.text);
                    let mend = "write one of the two as `expression`".to_owned();
                    self.sink.push(node.span, message, Some(mend));
                }
            }
        }
        Node { span: own.span, kind: Kind::map(joined) }
    }
}

fn one_or_many(node: &Node) -> &[Node] {
    match &node.kind {
        Kind::List(items) => items,
        _ => std::slice::from_ref(node),
    }
}

/// The text as it may be shown.
fn shown(node: &Node) -> &str {
    match &node.kind {
        Kind::Scalar(scalar) => scalar.shown(),
        _ => "",
    }
}

/// Returns the only entry of a map, of which the value is a text.
fn single(node: &Node) -> Option<(&str, &Node)> {
    match node.entries() {
        [(key, value)] if value.text().is_some() => Some((&key.text, value)),
        _ => None,
    }
}

fn host(above: &str, own: &str) -> Both {
    let (Ok(wide), Ok(narrow)) = (above.parse::<HostPattern>(), own.parse::<HostPattern>()) else {
        return Both::Unjoined;
    };
    if holds_host(&wide, &narrow) {
        Both::Own
    } else if holds_host(&narrow, &wide) {
        Both::Above
    } else {
        Both::Neither
    }
}

fn holds_host(wide: &HostPattern, narrow: &HostPattern) -> bool {
    let is_below = |name: &str, suffix: &str| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    match (wide, narrow) {
        (HostPattern::Suffix(suffix), HostPattern::Suffix(other)) => suffix == other || is_below(other, suffix),
        (HostPattern::Suffix(suffix), HostPattern::Exact(name)) => is_below(name, suffix),
        (HostPattern::Exact(one), HostPattern::Exact(other)) => one == other,
        (HostPattern::Exact(_), HostPattern::Suffix(_)) => false,
    }
}

fn network(above: &str, own: &str) -> Both {
    let (Ok(wide), Ok(narrow)) = (above.parse::<Cidr>(), own.parse::<Cidr>()) else { return Both::Unjoined };
    let holds = |outer: &Cidr, inner: &Cidr| {
        let ((first, last), (begin, end)) = (outer.range(), inner.range());
        outer.is_v4() == inner.is_v4() && first <= begin && end <= last
    };
    if holds(&wide, &narrow) {
        Both::Own
    } else if holds(&narrow, &wide) {
        Both::Above
    } else {
        Both::Neither
    }
}

fn paths((wide, above): (&str, &Node), (narrow, own): (&str, &Node)) -> Both {
    let (above, own) = (above.text().unwrap_or_default(), own.text().unwrap_or_default());
    match (wide, narrow) {
        (one, other) if one == other && above == own => Both::Own,
        ("prefix", "prefix" | "exact") if is_within(above, own) => Both::Own,
        // One that is wider adds nothing.
        ("prefix" | "exact", "prefix") if is_within(own, above) => Both::Above,
        ("prefix", "regex") if begins_within(above, own) => Both::Own,
        ("prefix", "prefix" | "exact") | ("exact", "exact" | "prefix") => Both::Neither,
        _ => Both::Unjoined,
    }
}

/// Returns whether a path lies below a prefix, by whole segments.
fn is_within(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether all that an expression matches lies below a prefix: the answer `true` is certain.
fn begins_within(prefix: &str, pattern: &str) -> bool {
    let Ok(parsed) = ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern) else {
        // The resolver says what is wrong with it.
        return true;
    };
    let found = Extractor::new().extract(&parsed);
    let prefix = prefix.trim_end_matches('/').as_bytes();
    found.literals().is_some_and(|literals| {
        literals.iter().all(|literal| {
            let rest = literal.as_bytes().strip_prefix(prefix);
            rest.is_some_and(|rest| rest.first().map_or(literal.is_exact() || prefix.is_empty(), |byte| *byte == b'/'))
        })
    })
}

/// Returns the key of a test and its text; `exact` for a text alone.
fn test_of(node: &Node) -> Option<(&str, &str)> {
    match &node.kind {
        Kind::Scalar(scalar) => Some(("exact", &scalar.text)),
        _ => single(node).map(|(key, value)| (key, value.text().unwrap_or_default())),
    }
}

fn tests(above: &Node, own: &Node) -> Both {
    let (Some(wide), Some(narrow)) = (test_of(above), test_of(own)) else { return Both::Own };
    match (wide, narrow) {
        (one, other) if one == other => Both::Own,
        (("absent", _), _) | (_, ("absent", _)) | (("exact", _), ("exact", _)) => Both::Neither,
        (("present", _), _) => Both::Own,
        (_, ("present", _)) => Both::Above,
        _ => Both::Unjoined,
    }
}

/// Returns one expression of two. The place is that of the route's own.
fn expression(above: &Node, own: &Node) -> Node {
    let (Kind::Scalar(first), Kind::Scalar(then)) = (&above.kind, &own.kind) else { return own.clone() };
    // A comment ends with its line.
    let both = |one: &str, other: &str| format!("({one}\n) && ({other}\n)");
    let written = (first.written.is_some() || then.written.is_some()).then(|| both(first.shown(), then.shown()));
    let text = both(&first.text, &then.text).into();
    let scalar = Scalar { text, plain: false, written: written.map(|text| Box::new(text.into())) };
    Node { span: own.span, kind: Kind::Scalar(scalar) }
}
