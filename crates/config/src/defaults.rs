//! Defaults of listeners, routes and clusters, joined with the objects of a tree before these are understood.
//!
//! Whatever is joined keeps its place: a mistake in a default is shown where the default stands. An object without anything from
//! the defaults stays the very same, and so does one that was joined before with the very same defaults.
//!
//! Pure: from trees to trees.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::changes::{NAMED, moved};
use crate::diagnostic::Sink;
use crate::faulty::Faulty;
use crate::file::{DEFAULTS, DEFAULTS_KEY as KEY, HTTP_KEYS};
use crate::listener_filters;
use crate::nested::{self, Flat};
use crate::source::{Document, Documents, Span};
use crate::tree::{ByName, Key, Kind, Node, Text};
use crate::validate::{validate_joined, validate_part};

/// Steps into a schema, and maps inside one another: a schema that refers to itself ends here.
const DEPTH_MAX: usize = 32;
/// Keys of a route that mean nothing unless it forwards.
const FORWARD_ONLY: [&str; 4] = ["retry", "hedge", "subset", "queue"];

/// A tree before and after its defaults were joined with its objects.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    /// As it was written.
    pub(crate) written: Arc<Node>,
    /// With flat routes and without `defaults`. The very same where nothing is nested and there are none.
    pub(crate) joined: Arc<Node>,
    /// As it is meant: the same where routes begin with the filters of their listeners.
    pub(crate) merged: Arc<Node>,
    /// For each route of `merged` how many filters it has from its listeners. Empty: none has any.
    pub(crate) spread: Vec<usize>,
    /// For each route of `merged` the names of those that it is nested in, outermost first. Empty: none is nested.
    pub(crate) above: Vec<Vec<Text>>,
    /// For each route of `merged` how many filters it has from those. Empty: none is nested.
    pub(crate) filters_above: Vec<usize>,
}

impl Trees {
    /// Checks the joined tree. `known` was found right by the same schema.
    pub(crate) fn validate(&self, schema: &Value, known: Option<&Self>, sink: &mut Sink) -> Faulty {
        let known = known.map(|known| &*known.merged);
        let faulty = validate_joined(schema, (&self.merged, self.keys_of_defaults()), known, sink);
        if !self.above.is_empty() {
            self.validate_groups(schema, sink);
        }
        faulty
    }

    /// Checks what routes say that hold others. A mistake in it may be in no flat route, because those below have their own.
    fn validate_groups(&self, schema: &Value, sink: &mut Sink) {
        let (kind, definition, _) = DEFAULTS[1];
        let Some(routes) = self.written.get(kind) else { return };
        let mut object = schema["$defs"][definition].clone();
        if let Some(map) = object.as_object_mut() {
            map.remove("oneOf");
        }
        let groups = Node { span: routes.span, kind: Kind::list(nested::groups(routes)) };
        let key = Key { text: kind.into(), span: routes.span };
        let tree = Node { span: routes.span, kind: Kind::map(vec![(key, groups)]) };
        let mut found = Sink::default();
        let own = json!({ "properties": { kind: { "items": object } } });
        validate_part((schema, &own), &tree, &mut found);
        sink.absorb_elsewhere(found);
    }

    /// Joins the objects of a tree with its defaults. What is wrong with the defaults themselves is reported, and is not joined.
    pub(crate) fn of(
        schema: &Value,
        written: Arc<Node>,
        documents: &Documents,
        before: Option<&Self>,
        sink: &mut Sink,
    ) -> Self {
        let flat = flat_routes(schema, &written, documents, sink);
        let (merged, above, filters_above) = match flat {
            Some((merged, flat)) => (Arc::new(merged), flat.above, flat.filters_above),
            None => (Arc::clone(&written), Vec::new(), Vec::new()),
        };
        let joined = Self::with_defaults(schema, (&written, merged), documents, before, sink);
        let mut merged = Arc::clone(&joined);
        let has_filters = |(_, listener): &(Key, Node)| listener.get("filters").is_some();
        let spread = match merged.get("listeners").is_some_and(|all| all.entries().iter().any(has_filters)) {
            true => listener_filters::spread(Arc::make_mut(&mut merged)),
            false => Vec::new(),
        };
        Self { written, joined, merged, spread, above, filters_above }
    }

    fn with_defaults(
        schema: &Value,
        (written, flat): (&Node, Arc<Node>),
        documents: &Documents,
        before: Option<&Self>,
        sink: &mut Sink,
    ) -> Arc<Node> {
        let Some(entry) = written.entry(KEY) else { return flat };
        let defaults = sound(schema, entry, sink);
        let mut merged = Node::clone(&flat);
        if let Kind::Map(entries) = &mut merged.kind {
            let entries = Arc::make_mut(entries);
            entries.retain(|(key, _)| key.text != KEY);
            for (key, objects) in entries {
                let Some((kind, definition, _)) = DEFAULTS.iter().find(|(kind, ..)| key.text == *kind) else {
                    continue;
                };
                let Some(default) = defaults.get(kind) else { continue };
                let known = before.and_then(|before| before.with(kind, default));
                if let Some(object) = schema.pointer(&format!("/$defs/{definition}")).and_then(Value::as_object) {
                    Joining { root: schema, object, kind, default, documents }.all(objects, known);
                }
            }
        }
        Arc::new(merged)
    }

    /// Returns the places of all keys below `defaults`, which keys of joined objects have too.
    pub(crate) fn keys_of_defaults(&self) -> HashSet<Span> {
        fn gather(node: &Node, found: &mut HashSet<Span>) {
            match &node.kind {
                Kind::Map(entries) => entries.iter().for_each(|(key, node)| {
                    found.insert(key.span);
                    gather(node, found);
                }),
                Kind::List(items) => items.iter().for_each(|item| gather(item, found)),
                Kind::Scalar(_) | Kind::Invalid => {}
            }
        }
        let mut found = HashSet::new();
        self.written.get(KEY).into_iter().for_each(|defaults| gather(defaults, &mut found));
        found
    }

    /// Its objects of a kind, as they were written and as they were joined, if that was with the very same defaults.
    fn with(&self, kind: &str, default: &Node) -> Option<(&Node, &Node)> {
        let is_same = self.written.get(KEY)?.get(kind)?.is_very_same(default);
        (is_same && NAMED.contains(&kind)).then_some((self.written.get(kind)?, self.joined.get(kind)?))
    }
}

/// Returns the tree with flat routes, and these with what they have from those that they are nested in, unless all are flat.
fn flat_routes(schema: &Value, tree: &Node, documents: &Documents, sink: &mut Sink) -> Option<(Node, Flat)> {
    let (kind, definition, _) = DEFAULTS[1];
    let object = schema.pointer(&format!("/$defs/{definition}")).and_then(Value::as_object)?;
    let inherit = |above: &Node, route: &Node| {
        let joining = Joining { root: schema, object, kind, default: above, documents };
        let fitting = Node { span: above.span, kind: Kind::map(joining.fit_for(route)) };
        joining.join(object, (&fitting, route), None, DEPTH_MAX)
    };
    let flat = nested::flatten(tree.get(kind)?, &inherit, sink)?;
    let mut entries = tree.entries().to_vec();
    entries.iter_mut().filter(|(key, _)| key.text == kind).for_each(|(_, routes)| *routes = flat.list.clone());
    Some((Node { span: tree.span, kind: Kind::map(entries) }, flat))
}

/// The defaults without the keys that have something wrong in them.
fn sound(root: &Value, (key, defaults): (&Key, &Node), sink: &mut Sink) -> Node {
    let alone = Node { span: defaults.span, kind: Kind::map(vec![(key.clone(), defaults.clone())]) };
    let schema = json!({ "properties": { KEY: { "$ref": "#/$defs/Defaults" } } });
    let faulty = validate_part((root, &schema), &alone, sink);
    let faulty = faulty.keys_in(KEY);
    let mut sound = defaults.clone();
    if let Kind::Map(kinds) = &mut sound.kind
        && !faulty.is_empty()
    {
        let kinds = Arc::make_mut(kinds);
        kinds.retain(|(kind, _)| !faulty.contains(&(kind.text.as_str(), None)));
        for (kind, node) in kinds {
            if let Kind::Map(entries) = &mut node.kind {
                Arc::make_mut(entries)
                    .retain(|(key, _)| !faulty.contains(&(kind.text.as_str(), Some(key.text.as_str()))));
            }
        }
    }
    sound
}

/// Joins the objects of one kind with their defaults.
struct Joining<'a> {
    /// The schema of the whole file.
    root: &'a Value,
    /// That of one object.
    object: &'a Map<String, Value>,
    kind: &'static str,
    default: &'a Node,
    documents: &'a Documents,
}

impl<'a> Joining<'a> {
    /// `known` are objects as they were written and joined before.
    fn all(&self, objects: &mut Node, known: Option<(&Node, &Node)>) {
        match &mut objects.kind {
            Kind::Map(entries) => {
                let written = ByName::of(known.map(|(written, _)| written));
                let joined = |(key, node): &(Key, Node)| {
                    let place = written.same(key, node);
                    let known = place.zip(known).and_then(|(place, (_, joined))| joined.entries().get(place));
                    let joined = known.filter(|(known, _)| known.text == key.text).map(|(_, node)| node.clone());
                    (key.clone(), joined.unwrap_or_else(|| self.one(node)))
                };
                objects.kind = Kind::map(entries.iter().map(joined).collect());
            }
            Kind::List(items) => objects.kind = Kind::list(items.iter().map(|node| self.one(node)).collect()),
            Kind::Scalar(_) | Kind::Invalid => {}
        }
    }

    fn one(&self, object: &Node) -> Node {
        if !matches!(object.kind, Kind::Map(_)) || object.get(KEY).and_then(Node::text) == Some("false") {
            return object.clone();
        }
        // What is wrong with an object of a provider is wrong with that one, and not with the file.
        let is_given = self.documents.get(object.span.file).is_some_and(|document| !Document::shows_lines(document));
        let place = is_given.then_some(object.span);
        let default = Node { span: self.default.span, kind: Kind::map(self.fit_for(object)) };
        self.join(self.object, (&default, object), place, DEPTH_MAX)
    }

    /// The defaults that mean something for an object.
    fn fit_for(&self, object: &Node) -> Vec<(Key, Node)> {
        let fits = |(key, _): &&(Key, Node)| match self.kind {
            "listeners" => self.fits_listener(&key.text, object),
            "routes" => {
                let is_forwarding = object.get("redirect").is_none() && object.get("respond").is_none();
                is_forwarding || !FORWARD_ONLY.contains(&key.text.as_str())
            }
            _ => true,
        };
        self.default.entries().iter().filter(fits).cloned().collect()
    }

    fn fits_listener(&self, key: &str, listener: &Node) -> bool {
        let protocol = listener.get("protocol").and_then(Node::text).unwrap_or("http");
        let versions = listener.get("http_versions").or_else(|| self.default.get("http_versions"));
        let speaks_http3 = versions.is_some_and(|list| list.items().iter().any(|item| item.text() == Some("h3")));
        match (key, protocol) {
            ("http3", "http") => speaks_http3,
            ("idle_timeout", "http") => false,
            ("responses_max", _) => protocol == "udp",
            ("tls" | "proxy_protocol", "udp") => false,
            ("tls", _) => listener.get("sni").is_none(),
            (key, protocol) => protocol == "http" || !HTTP_KEYS.contains(&key),
        }
    }

    /// What `object` says, and of `default` what it does not. With `place`, that is said to stand there.
    fn join(
        &self,
        schema: &'a Map<String, Value>,
        (default, object): (&Node, &Node),
        place: Option<Span>,
        depth: usize,
    ) -> Node {
        let properties = schema.get("properties").and_then(Value::as_object);
        let mut joined: Option<Vec<(Key, Node)>> = None;
        for (key, value) in default.entries() {
            let below = properties.and_then(|all| all.get(key.text.as_str())).and_then(|one| self.settings(one, depth));
            let Some(own) = object.get(&key.text) else {
                if below.is_none_or(|below| is_whole(below, value)) {
                    let key = Key { span: place.unwrap_or(key.span), ..key.clone() };
                    let value = place.map_or_else(|| value.clone(), |place| moved(value, place));
                    joined.get_or_insert_with(|| object.entries().to_vec()).push((key, value));
                }
                continue;
            };
            let (Some(below), Kind::Map(_), Kind::Map(_)) = (below, &value.kind, &own.kind) else { continue };
            let inner = self.join(below, (value, own), place, depth - 1);
            if !inner.is_very_same(own) {
                let entries = joined.get_or_insert_with(|| object.entries().to_vec());
                entries
                    .iter_mut()
                    .filter(|(known, _)| known.text == key.text)
                    .for_each(|(_, node)| *node = inner.clone());
            }
        }
        joined.map_or_else(|| object.clone(), |entries| Node { span: object.span, kind: Kind::map(entries) })
    }

    /// The schema of a map with settings, which can be joined key by key. `None`: it is replaced as a whole.
    fn settings(&self, schema: &'a Value, depth: usize) -> Option<&'a Map<String, Value>> {
        let depth = depth.checked_sub(1)?;
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            return self.settings(self.root.pointer(target.strip_prefix('#')?)?, depth);
        }
        let map = schema.as_object()?;
        let branches = map.get("anyOf").and_then(Value::as_array);
        if map.contains_key("properties") {
            return (branches.is_none() && !map.contains_key("oneOf")).then_some(map);
        }
        let mut found = branches?.iter().filter_map(|branch| self.settings(branch, depth));
        found.next().filter(|_| found.next().is_none())
    }
}

/// Whether a map has every key that it needs.
fn is_whole(schema: &Map<String, Value>, node: &Node) -> bool {
    let mut needed = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    !matches!(node.kind, Kind::Map(_)) || needed.all(|key| node.get(key).is_some())
}

/// Adds to the schema of a file what defaults may be: objects without the keys that are their own, and maps with settings that need
/// not be whole.
pub(crate) fn add_to(root: &mut Value) {
    for (_, definition, own) in DEFAULTS {
        let mut object = root["$defs"][definition].clone();
        if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !own.contains(&name.as_str()));
        }
        if let Some(map) = object.as_object_mut() {
            map.remove("oneOf");
        }
        soften(root, &mut object, DEPTH_MAX);
        root["$defs"][format!("{definition}{PARTIAL}")] = object;
    }
}

/// What the name of a definition ends with that is one without the keys that have to be there.
const PARTIAL: &str = "Defaults";

/// Whether a definition is a copy of another one for the sake of defaults.
pub(crate) fn is_partial(name: &str) -> bool {
    name.strip_suffix(PARTIAL).is_some_and(|of| !of.is_empty())
}

/// Takes out of a map with settings that some have to be there, and of those below it.
fn soften(root: &mut Value, schema: &mut Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let is_choice = schema.get("oneOf").is_some() || schema.get("anyOf").is_some();
    let Some(map) = schema.as_object_mut().filter(|map| map.contains_key("properties") && !is_choice) else { return };
    map.remove("required");
    for property in
        map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|all| all.values_mut())
    {
        let branches = property.get_mut("anyOf").and_then(Value::as_array_mut);
        match branches {
            Some(branches) => branches.iter_mut().for_each(|branch| soften_reference(root, branch, depth)),
            None => soften_reference(root, property, depth),
        }
    }
}

/// Has a reference lead to a softened copy, where that is another.
fn soften_reference(root: &mut Value, property: &mut Value, depth: usize) {
    let Some(name) = property.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/")) else {
        return soften(root, property, depth);
    };
    let name = name.to_owned();
    let mut copy = root["$defs"][&name].clone();
    soften(root, &mut copy, depth);
    if copy != root["$defs"][&name] {
        let softened = format!("{name}{PARTIAL}");
        property["$ref"] = json!(format!("#/$defs/{softened}"));
        root["$defs"][softened] = copy;
    }
}
