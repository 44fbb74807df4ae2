//! Changes that somebody made to a running configuration, beside its files: whole objects, which stand in the place of those
//! in the files. What is not named in them follows the files.
//!
//! ```text
//! merge(files, difference(files, wanted)) = wanted
//! ```
//!
//! Pure: from trees to trees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::diagnostic::Sink;
use crate::source::Span;
use crate::tree::{ByName, HIDDEN, Key, Kind, Node, Scalar};

/// Keys whose objects have names, and are changed each by itself.
pub(crate) const NAMED: [&str; 2] = ["listeners", "clusters"];
/// Keys that only files decide.
const OF_FILES: [&str; 6] = ["version", "include", "admin", "peers", "providers", "watch"];

/// What is changed beside the files. By place (`listeners/web`, `clusters/site`, or `routes` and other keys as a whole): the
/// text of the object, in YAML; `None` takes it out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Changes(BTreeMap<String, Option<String>>);

impl Changes {
    /// Whether the files alone decide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The places that are changed, and whether an object stands there still.
    pub fn places(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.iter().map(|(place, text)| (place.as_str(), text.is_some()))
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(place, text)| (place.as_str(), text.as_deref()))
    }

    /// With `object` at `place`, or without any there. What is as the files have it is no change.
    pub(crate) fn with(&self, files: &Node, place: &str, object: Option<&Node>) -> Self {
        let mut changes = self.clone();
        changes.note(place, at(files, place), object);
        changes
    }

    /// The change at a place in these words, which say the same. They are what diagnostics show.
    pub(crate) fn said_as(mut self, place: &str, text: Option<&str>) -> Self {
        if let (Some(Some(known)), Some(text)) = (self.0.get_mut(place), text) {
            text.clone_into(known);
        }
        self
    }

    fn note(&mut self, place: &str, before: Option<&Node>, after: Option<&Node>) {
        let is_same = match (before, after) {
            (Some(before), Some(after)) => is_same(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if is_same {
            self.0.remove(place);
        } else {
            self.0.insert(place.to_owned(), after.map(text));
        }
    }
}

/// The object at a place.
pub(crate) fn at<'a>(tree: &'a Node, place: &str) -> Option<&'a Node> {
    match place.split_once('/') {
        Some((kind, name)) => tree.get(kind)?.get(name),
        None => tree.get(place),
    }
}

/// The files with these objects in the place of theirs.
pub(crate) fn merge(files: &Node, objects: Vec<(String, Option<Node>)>) -> Node {
    let mut tree = files.clone();
    let whole = tree.span;
    let Kind::Map(entries) = &mut tree.kind else { return tree };
    let entries = Arc::make_mut(entries);
    for (place, object) in objects {
        let Some((kind, name)) = place.split_once('/') else {
            put(entries, &place, object);
            continue;
        };
        if !entries.iter().any(|(key, _)| key.text == kind) {
            put(entries, kind, Some(Node { span: whole, kind: Kind::map(Vec::new()) }));
        }
        let found = entries.iter_mut().find(|(key, _)| key.text == kind);
        if let Some((_, Node { kind: Kind::Map(named), .. })) = found {
            put(Arc::make_mut(named), name, object);
        }
    }
    tree
}

/// Sets, adds or takes out one entry of a map.
pub(crate) fn put(entries: &mut Vec<(Key, Node)>, name: &str, node: Option<Node>) {
    let known = entries.iter().position(|(key, _)| key.text == name);
    match (known, node) {
        (Some(place), Some(node)) => entries[place] = (Key { text: name.into(), span: node.span }, node),
        (Some(place), None) => drop(entries.remove(place)),
        (None, Some(node)) => entries.push((Key { text: name.into(), span: node.span }, node)),
        (None, None) => {}
    }
}

/// What makes `wanted` of the files.
pub(crate) fn difference(files: &Node, wanted: &Node) -> Changes {
    let mut changes = Changes::default();
    for key in keys(Some(files), Some(wanted)).into_iter().filter(|key| !OF_FILES.contains(key)) {
        let (before, after) = (files.get(key), wanted.get(key));
        if !NAMED.contains(&key) {
            changes.note(key, before, after);
            continue;
        }
        for name in keys(before, after) {
            let of = |map: Option<&Node>| map.and_then(|map| map.get(name)).cloned();
            changes.note(&format!("{key}/{name}"), of(before).as_ref(), of(after).as_ref());
        }
    }
    changes
}

fn keys<'a>(one: Option<&'a Node>, other: Option<&'a Node>) -> BTreeSet<&'a str> {
    let both = one.into_iter().chain(other);
    both.flat_map(Node::entries).map(|(key, _)| key.text.as_str()).collect()
}

/// Whether both say the same, wherever they stand.
pub(crate) fn is_same(one: &Node, other: &Node) -> bool {
    if one.is_very_same(other) {
        return true;
    }
    match (&one.kind, &other.kind) {
        (Kind::Map(first), Kind::Map(second)) => {
            let has = |(key, node): &(Key, Node)| other.get(&key.text).is_some_and(|twin| is_same(node, twin));
            first.len() == second.len() && first.iter().all(has)
        }
        (Kind::List(first), Kind::List(second)) => {
            first.len() == second.len() && first.iter().zip(second.iter()).all(|(one, other)| is_same(one, other))
        }
        (Kind::Scalar(first), Kind::Scalar(second)) => {
            first.written == second.written && first.value() == second.value()
        }
        _ => false,
    }
}

/// Whether both say the same in the same order: they have the same [`text`].
pub(crate) fn is_alike(one: &Node, other: &Node) -> bool {
    if one.is_very_same(other) {
        return true;
    }
    match (&one.kind, &other.kind) {
        (Kind::Map(first), Kind::Map(second)) => {
            let pair = |((key, node), (other, twin)): (&(Key, Node), &(Key, Node))| {
                key.text == other.text && is_alike(node, twin)
            };
            first.len() == second.len() && first.iter().zip(second.iter()).all(pair)
        }
        (Kind::List(first), Kind::List(second)) => {
            first.len() == second.len() && first.iter().zip(second.iter()).all(|(one, other)| is_alike(one, other))
        }
        (Kind::Scalar(first), Kind::Scalar(second)) => {
            let is_same = first.text == second.text && first.plain == second.plain && first.written == second.written;
            is_same || scalar_text(first) == scalar_text(second)
        }
        (Kind::Invalid, Kind::Invalid) => true,
        _ => false,
    }
}

/// What of a tree is not the very same in another: whole objects, and all else that stands at the top.
pub(crate) fn news(tree: &Node, other: &Node) -> Node {
    let mut news = tree.clone();
    let Kind::Map(entries) = &mut news.kind else { return news };
    let entries = Arc::make_mut(entries);
    entries.retain(|(key, node)| !other.get(&key.text).is_some_and(|twin| twin.is_very_same(node)));
    for (key, node) in entries.iter_mut().filter(|(key, _)| NAMED.contains(&key.text.as_str())) {
        let others = ByName::of(other.get(&key.text));
        let fresh = node.entries().iter().filter(|(key, node)| others.same(key, node).is_none());
        let fresh = Kind::map(fresh.cloned().collect());
        if matches!(node.kind, Kind::Map(_)) {
            node.kind = fresh;
        }
    }
    news
}

/// The value as it was written: what comes from the environment stands as `${NAME}`.
pub(crate) fn written(node: &Node) -> Value {
    match &node.kind {
        Kind::Map(entries) => {
            let pairs = entries.iter().map(|(key, node)| (key.text.to_string(), written(node)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Kind::List(items) => Value::Array(items.iter().map(written).collect()),
        Kind::Scalar(Scalar { written: Some(text), .. }) => Value::String(text.to_string()),
        Kind::Scalar(scalar) => match scalar.value() {
            Value::String(text) => Value::String(text.replace("${", "$${")),
            value => value,
        },
        Kind::Invalid => Value::Null,
    }
}

/// The tree as YAML, in block style: there, `${NAME}` needs no quotes, which would make text of a number.
pub(crate) fn text(node: &Node) -> String {
    let mut out = String::new();
    write(node, 0, &mut out);
    out.trim_start().to_owned()
}

/// Recursion is bounded by the depth that the parser allows.
fn write(node: &Node, indent: usize, out: &mut String) {
    match &node.kind {
        Kind::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        Kind::List(items) if items.is_empty() => out.push_str(" []\n"),
        Kind::Map(entries) => {
            out.push('\n');
            for (key, node) in entries.iter() {
                out.push_str(&format!("{:indent$}{}:", "", quoted(&key.text)));
                write(node, indent + 2, out);
            }
        }
        Kind::List(items) => {
            out.push('\n');
            for node in items.iter() {
                out.push_str(&format!("{:indent$}-", ""));
                write(node, indent + 2, out);
            }
        }
        Kind::Scalar(scalar) => out.push_str(&format!(" {}\n", scalar_text(scalar))),
        Kind::Invalid => out.push_str(" null\n"),
    }
}

fn scalar_text(scalar: &Scalar) -> String {
    match &scalar.written {
        Some(written) if scalar.plain && !written.contains(['\n', '\r']) => written.to_string(),
        Some(written) => quoted(written),
        None if scalar.plain && scalar.text.is_empty() => "null".to_owned(),
        None if scalar.plain && !scalar.value().is_string() => scalar.text.to_string(),
        None => quoted(&scalar.text.replace("${", "$${")),
    }
}

/// In double quotes (YAML 1.2 section 7.3.1); what YAML does not allow as itself is escaped.
fn quoted(text: &str) -> String {
    let json = Value::String(text.to_owned()).to_string();
    let plain =
        |c: char| !c.is_control() && !matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{2028}' | '\u{2029}');
    let escaped = |c: char| if plain(c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) };
    json.chars().map(escaped).collect()
}

/// A copy whose every part is said to stand at `span`.
pub(crate) fn moved(node: &Node, span: Span) -> Node {
    let kind = match &node.kind {
        Kind::Map(entries) => {
            let moved = |(key, node): &(Key, Node)| (Key { text: key.text.clone(), span }, moved(node, span));
            Kind::map(entries.iter().map(moved).collect())
        }
        Kind::List(items) => Kind::list(items.iter().map(|node| moved(node, span)).collect()),
        other => other.clone(),
    };
    Node { span, kind }
}

/// Puts back what is shown as `(hidden)`: it is kept as it is in `old`. Items of lists are found by [`counterparts`].
pub(crate) fn restore(node: &mut Node, old: Option<&Node>, sink: &mut Sink) {
    let span = node.span;
    match &mut node.kind {
        Kind::Scalar(scalar) if scalar.text == HIDDEN => match old {
            Some(old) => *node = moved(old, span),
            None => {
                let mend = "write the secret itself, or `${NAME}` to take it from the environment".to_owned();
                sink.push(span, format!("`{HIDDEN}` keeps a secret, and there is none here"), Some(mend));
            }
        },
        Kind::Map(entries) => {
            let entries = Arc::make_mut(entries).iter_mut();
            entries.for_each(|(key, node)| restore(node, old.and_then(|old| old.get(&key.text)), sink));
        }
        Kind::List(items) => {
            let counterparts = counterparts(items, old.map_or(&[][..], Node::items));
            Arc::make_mut(items).iter_mut().zip(counterparts).for_each(|(item, old)| restore(item, old, sink));
        }
        Kind::Scalar(_) | Kind::Invalid => {}
    }
}

/// For each item of a list the one before whose secrets it keeps: of its name; or the one that it is but for what is hidden,
/// wherever that stood; or, when it was changed, the one at its place, unless another item is that. Secrets follow their item:
/// one that changes places takes them along.
fn counterparts<'a>(items: &[Node], before: &'a [Node]) -> Vec<Option<&'a Node>> {
    let name = |node: &Node| node.get("name").and_then(Node::text).map(str::to_owned);
    let twin = |(index, item): (usize, &Node)| {
        if let Some(name_of) = name(item) {
            return before.iter().find(|old| name(old).as_ref() == Some(&name_of));
        }
        let at_its_place = before.get(index);
        let is_but_hidden = matches!(&item.kind, Kind::Scalar(scalar) if scalar.text == HIDDEN);
        let moved = || {
            let mut same = before.iter().filter(|old| !is_but_hidden && is_but_for_hidden(item, old));
            same.next().filter(|_| same.next().is_none())
        };
        let changed = || {
            let old = at_its_place.filter(|_| before.len() == items.len())?;
            let taken = !is_but_hidden && items.iter().any(|other| is_but_for_hidden(other, old));
            (!taken && name(old).is_none()).then_some(old)
        };
        at_its_place.filter(|old| !is_but_hidden && is_but_for_hidden(item, old)).or_else(moved).or_else(changed)
    };
    items.iter().enumerate().map(twin).collect()
}

/// Whether a node is what it was before, or could be where it says `(hidden)`.
fn is_but_for_hidden(node: &Node, old: &Node) -> bool {
    match (&node.kind, &old.kind) {
        (Kind::Scalar(scalar), _) if scalar.text == HIDDEN => true,
        (Kind::Scalar(scalar), Kind::Scalar(old)) => scalar.text == old.text,
        (Kind::Map(entries), Kind::Map(before)) => {
            let kept = |(key, node): &(Key, Node)| old.get(&key.text).is_some_and(|old| is_but_for_hidden(node, old));
            entries.len() == before.len() && entries.iter().all(kept)
        }
        (Kind::List(items), Kind::List(before)) => {
            items.len() == before.len()
                && items.iter().zip(before.iter()).all(|(node, old)| is_but_for_hidden(node, old))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
