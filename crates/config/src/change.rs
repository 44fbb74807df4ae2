//! From what someone asks for to [`Changes`]: a whole configuration, one object, or one endpoint.

use std::sync::Arc;

use serde_json::Value;

use crate::changes::{self, Changes, difference, is_same, put, restore, written};
use crate::defaults::Trees;
use crate::diagnostic::{Diagnostics, Sink};
use crate::host::Loader;
use crate::interpolate::take_types;
use crate::load::{Texts, document};
use crate::loaded::Loaded;
use crate::read::{Access, Reading, read, read_part};
use crate::schema::cached;
use crate::source::Documents;
use crate::tree::{Key, Kind, Node, Scalar};

/// What diagnostics call a text that was sent.
const SENT: &str = "request";
const ROUTES: &str = "routes";

/// A change of the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointEdit {
    /// One more: its address or its settings, as YAML or JSON.
    Add(String),
    /// Without the one of this name.
    Remove(String),
    /// Another weight for the one of this name.
    Weight(String, u32),
}

impl Loader<'_> {
    /// Returns what makes of the files of `loaded` the configuration in `text`. Objects in it that are just as `loaded` shows them, with
    /// defaults filled in and secrets hidden, are as they are there.
    ///
    /// # Errors
    /// Everything that is wrong with it, by the lines of the text.
    pub fn replace(&self, loaded: &Loaded, text: &str) -> Result<Changes, Diagnostics> {
        self.replace_with(loaded, text, keep_admin)
    }

    /// Returns the same for a text that was active before; its listener of the administrator stays in the past.
    ///
    /// # Errors
    /// Everything that is wrong with it now.
    pub fn go_back(&self, loaded: &Loaded, text: &str) -> Result<Changes, Diagnostics> {
        self.replace_with(loaded, text, |tree, loaded, _| put_admin(tree, loaded))
    }

    fn replace_with(
        &self,
        loaded: &Loaded,
        text: &str,
        admin: impl FnOnce(&mut Node, &Loaded, &mut Sink),
    ) -> Result<Changes, Diagnostics> {
        let files = &loaded.files_alone;
        let folder = files.documents.main().map(|main| main.folder.clone()).unwrap_or_default();
        let sent = document(SENT, text, &folder);
        let Reading { documents, tree, whole, mut sink } =
            read(files.documents.clone(), sent, &|name| self.variable(name), Access::None);
        let Some(mut tree) = tree else { return Err(sink.finish(&documents)) };
        take_types(&cached(self.filters), &[], &mut tree);
        if whole {
            let before = sent_from(&tree, &loaded.trees);
            keep_unchanged(&mut tree, loaded);
            admin(&mut tree, loaded, &mut sink);
            restore(&mut tree, Some(&before), &mut sink);
        }
        self.refuse_beyond(&tree)?;
        let schema = cached(self.filters);
        let trees = Trees::of(&schema, Arc::new(tree), &documents, None, &mut sink);
        let faulty = trees.validate(&schema, None, &mut sink);
        if !whole || !sink.is_empty() {
            return Err(self.all_wrong(loaded, (documents, trees), faulty, sink));
        }
        let changes = difference(&files.tree, &trees.written);
        let texts = Texts { documents, trees, files_alone: files.clone(), objects: Arc::default() };
        self.resolve(texts, (&faulty, None), (sink, Access::Disk))?;
        Ok(changes)
    }

    /// Reports also the mistakes that are found only when the configuration is resolved.
    fn all_wrong(
        &self,
        loaded: &Loaded,
        (documents, trees): (Documents, Trees),
        faulty: crate::faulty::Faulty,
        sink: Sink,
    ) -> Diagnostics {
        let texts = Texts { documents, trees, files_alone: loaded.files_alone.clone(), objects: Arc::default() };
        match self.resolve(texts, (&faulty, None), (sink, Access::Disk)) {
            Err(diagnostics) => diagnostics,
            // There was something wrong before.
            Ok(_) => Diagnostics::default(),
        }
    }

    /// `changes` with the object in `text` at `listeners/NAME`, `clusters/NAME` or `routes/NAME`; `None` takes it out.
    ///
    /// # Errors
    /// The text cannot be read. Whether the object is right is found when the whole is loaded.
    pub fn replace_object(
        &self,
        loaded: &Loaded,
        changes: &Changes,
        (kind, name): (&str, &str),
        text: Option<&str>,
    ) -> Result<Changes, Diagnostics> {
        let mut documents = Documents::default();
        let mut sink = Sink::default();
        let mut object = match text {
            Some(text) => {
                let sent = document(SENT, text, "".as_ref());
                match read_part(&mut documents, sent, &|name| self.variable(name), &mut sink) {
                    Some(mut object) => {
                        take_types(&cached(self.filters), &[kind, name], &mut object);
                        Some(object)
                    }
                    None => return Err(sink.finish(&documents)),
                }
            }
            None => None,
        };
        let routes = loaded.trees.written.get(ROUTES).map_or(&[][..], Node::items);
        let known = routes.iter().enumerate().position(|(index, route)| route_name(index, route) == name);
        let old = if kind == ROUTES {
            known.map(|at| &routes[at])
        } else {
            loaded.trees.written.get(kind).and_then(|all| all.get(name))
        };
        // As it was sent, comments included, unless something has to be put back into it.
        let mut sent = text;
        if let Some(object) = &mut object {
            let before = object.clone();
            restore(object, old, &mut sink);
            sent = sent.filter(|_| is_same(&before, object));
            if kind == ROUTES {
                keep_below(object, old);
                name_route(object, name, &mut sink);
            }
        }
        if !sink.is_empty() {
            return Err(sink.finish(&documents));
        }
        if kind != ROUTES {
            let place = format!("{kind}/{name}");
            let changes = changes.with(&loaded.files_alone.tree, &place, object.as_ref());
            return Ok(changes.said_as(&place, sent));
        }
        let mut list = routes.to_vec();
        match (known, object) {
            (Some(at), Some(object)) => list[at] = object,
            (Some(at), None) => {
                keep_names(&mut list, at + 1);
                drop(list.remove(at));
            }
            (None, Some(object)) => list.push(object),
            (None, None) => {}
        }
        let list = Node { span: loaded.trees.written.span, kind: Kind::list(list) };
        Ok(changes.with(&loaded.files_alone.tree, ROUTES, Some(&list)))
    }

    /// `changes` with other endpoints in a cluster. `None`: there is no such cluster, or no such endpoint in it.
    ///
    /// # Errors
    /// The endpoint cannot be read.
    pub fn edit_endpoints(
        &self,
        loaded: &Loaded,
        changes: &Changes,
        cluster: &str,
        edit: &EndpointEdit,
    ) -> Result<Option<Changes>, Diagnostics> {
        let Some(mut object) = loaded.trees.written.get("clusters").and_then(|all| all.get(cluster)).cloned() else {
            return Ok(None);
        };
        let span = object.span;
        let Kind::Map(entries) = &mut object.kind else { return Ok(None) };
        let Some((_, Node { kind: Kind::List(list), .. })) =
            Arc::make_mut(entries).iter_mut().find(|(key, _)| key.text == "endpoints")
        else {
            return Ok(None);
        };
        let list = Arc::make_mut(list);
        let named = |list: &[Node], name: &str| {
            let address = |node: &Node| node.get("address").unwrap_or(node).text() == Some(name);
            list.iter().position(address)
        };
        match edit {
            EndpointEdit::Add(text) => {
                let (mut documents, mut sink) = (Documents::default(), Sink::default());
                let sent = document(SENT, text, "".as_ref());
                match read_part(&mut documents, sent, &|name| self.variable(name), &mut sink) {
                    Some(mut node) if sink.is_empty() => {
                        take_types(&cached(self.filters), &["clusters", cluster, "endpoints", ""], &mut node);
                        list.push(node);
                    }
                    _ => return Err(sink.finish(&documents)),
                }
            }
            EndpointEdit::Remove(name) => match named(list, name) {
                Some(at) => drop(list.remove(at)),
                None => return Ok(None),
            },
            EndpointEdit::Weight(name, weight) => match named(list, name) {
                Some(at) => weigh(&mut list[at], *weight),
                None => return Ok(None),
            },
        }
        object.span = span;
        Ok(Some(changes.with(&loaded.files_alone.tree, &format!("clusters/{cluster}"), Some(&object))))
    }
}

impl Loaded {
    /// Returns the names of all routes, as they are counted where they have none.
    pub fn route_names(&self) -> Vec<String> {
        let routes = self.trees.written.get(ROUTES).map_or(&[][..], Node::items);
        routes.iter().enumerate().map(|(index, route)| route_name(index, route)).collect()
    }
}

fn route_name(index: usize, route: &Node) -> String {
    route.get("name").and_then(Node::text).map_or_else(|| format!("route-{}", index + 1), str::to_owned)
}

/// Routes from this place on that have no name get the one that they are counted by: it stays theirs when one before them goes.
fn keep_names(routes: &mut [Node], from: usize) {
    for (index, route) in routes.iter_mut().enumerate().skip(from) {
        if route.get("name").is_some() {
            continue;
        }
        let name = scalar(&route_name(index, route), false, route.span);
        if let Kind::Map(entries) = &mut route.kind {
            put(Arc::make_mut(entries), "name", Some(name));
        }
    }
}

/// Keeps the routes that are nested in a route that is sent without `routes`. An empty list takes them out.
fn keep_below(route: &mut Node, old: Option<&Node>) {
    let span = route.span;
    let sent = route.get(ROUTES).map(|below| below.items().is_empty() && matches!(below.kind, Kind::List(_)));
    let kept = match sent {
        Some(false) => return,
        Some(true) => None,
        None => old.and_then(|old| old.get(ROUTES)).map(|below| changes::moved(below, span)),
    };
    if let Kind::Map(entries) = &mut route.kind {
        put(Arc::make_mut(entries), ROUTES, kept);
    }
}

/// Sets the name of a route that was sent to an address with a name.
fn name_route(route: &mut Node, name: &str, sink: &mut Sink) {
    let span = route.span;
    if let Some(Kind::Scalar(given)) = route.get("name").map(|node| &node.kind)
        && *given.text != *name
    {
        // What comes from the environment is not told.
        let given = given.shown();
        let message = format!("the route is called `{given}` here and `{name}` in the address");
        sink.push(route.get("name").map_or(span, |node| node.span), message, Some("leave `name` out".to_owned()));
    } else if let Kind::Map(entries) = &mut route.kind {
        put(Arc::make_mut(entries), "name", Some(scalar(name, false, span)));
    }
}

fn scalar(text: &str, plain: bool, span: crate::source::Span) -> Node {
    Node { span, kind: Kind::Scalar(Scalar { text: text.into(), plain, written: None }) }
}

/// Sets the weight of an endpoint, which may be an address alone.
fn weigh(endpoint: &mut Node, weight: u32) {
    let span = endpoint.span;
    if !matches!(endpoint.kind, Kind::Map(_)) {
        let address = (Key { text: "address".into(), span }, endpoint.clone());
        *endpoint = Node { span, kind: Kind::map(vec![address]) };
    }
    if let Kind::Map(entries) = &mut endpoint.kind {
        put(Arc::make_mut(entries), "weight", Some(scalar(&weight.to_string(), true, span)));
    }
}

/// Returns what a tree was made from that was sent: nested routes are shown flat, but are kept as they were written.
fn sent_from(sent: &Node, trees: &Trees) -> Node {
    let mut before = Node::clone(&trees.written);
    let is_nested = |route: &Node| route.get(ROUTES).is_some();
    let sends_nested = sent.get(ROUTES).is_some_and(|routes| routes.items().iter().any(is_nested));
    if !trees.above.is_empty()
        && !sends_nested
        && let (Kind::Map(entries), Some(flat)) = (&mut before.kind, trees.joined.get(ROUTES))
    {
        put(Arc::make_mut(entries), ROUTES, Some(flat.clone()));
    }
    before
}

/// Nested routes that were all sent back as they were shown, flat and in their order, are kept as they were written, nested. Of others
/// each stays as it was sent: flat.
fn keep_nested(items: &[Node], shown: &[Value], trees: &Trees) -> Vec<Node> {
    let written = trees.written.get(ROUTES).map_or(&[][..], Node::items);
    let names: Vec<String> = written.iter().enumerate().map(|(index, route)| route_name(index, route)).collect();
    let flat = trees.joined.get(ROUTES).map_or(&[][..], Node::items);
    // For each route that is shown, the place of the outermost one that it is nested in, or its own.
    let places: Vec<Option<usize>> = flat
        .iter()
        .enumerate()
        .map(|(index, route)| {
            let outermost = trees.above.get(index).and_then(|above| above.first());
            let name = outermost.map_or_else(|| route_name(index, route), ToString::to_string);
            names.iter().position(|known| *known == name)
        })
        .collect();
    let values: Vec<Value> = items.iter().map(changes::written).collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        let first = shown.iter().position(|shown| *shown == values[at]);
        let place = first.and_then(|first| places.get(first).copied().flatten());
        let length = place.map_or(0, |place| places.iter().filter(|other| **other == Some(place)).count());
        let run = first.and_then(|first| Some((first, shown.get(first..first + length)?)));
        let is_first = |first: usize| first == 0 || places[first - 1] != place;
        let is_whole = |(first, run): &(usize, &[Value])| is_first(*first) && values[at..].starts_with(run);
        match (place, run.filter(is_whole)) {
            (Some(place), Some(_)) => {
                kept.push(changes::moved(&written[place], item.span));
                at += length;
            }
            _ => {
                kept.push(item.clone());
                at += 1;
            }
        }
    }
    kept
}

/// Objects that were sent back as they were shown, with defaults filled in, are kept as they were written.
fn keep_unchanged(tree: &mut Node, loaded: &Loaded) {
    let shown = loaded.effective();
    let Kind::Map(entries) = &mut tree.kind else { return };
    let entries = Arc::make_mut(entries);
    let mut gone = Vec::new();
    for (key, node) in entries.iter_mut() {
        let (old, shown) = (loaded.trees.written.get(&key.text), &shown[key.text.as_str()]);
        if shown.is_null() {
            continue;
        }
        if written(node) == *shown {
            match old {
                Some(old) => *node = changes::moved(old, node.span),
                // It is nothing but defaults.
                None => gone.push(key.text.clone()),
            }
            continue;
        }
        match &mut node.kind {
            Kind::Map(objects) if changes::NAMED.contains(&key.text.as_str()) => {
                Arc::make_mut(objects).iter_mut().for_each(|(name, node)| {
                    keep(node, old.and_then(|old| old.get(&name.text)), &shown[name.text.as_str()]);
                });
            }
            Kind::List(items) if key.text == ROUTES && !loaded.trees.above.is_empty() => {
                let shown = shown.as_array().map_or(&[][..], Vec::as_slice);
                *items = Arc::new(keep_nested(items, shown, &loaded.trees));
            }
            Kind::List(items) => {
                let olds = old.map_or(&[][..], Node::items);
                let shown = shown.as_array().map_or(&[][..], Vec::as_slice);
                for item in Arc::make_mut(items) {
                    let value = written(item);
                    if let Some(at) = shown.iter().position(|shown| *shown == value) {
                        keep(item, olds.get(at), &value);
                    }
                }
            }
            _ => {}
        }
    }
    entries.retain(|(key, _)| !gone.contains(&key.text));
}

fn keep(node: &mut Node, old: Option<&Node>, shown: &Value) {
    if let Some(old) = old.filter(|_| written(node) == *shown) {
        *node = changes::moved(old, node.span);
    }
}

/// What the files alone decide, and what is reported about who would change it by the API.
const KEPT: [(&str, &str); 4] = [
    ("admin", "the API cannot change its own listener"),
    ("peers", "the API cannot change peers"),
    ("providers", "the API cannot change providers"),
    ("watch", "the API cannot change whether files are watched"),
];

/// Keeps the admin listener and providers as the files have them, so that no one locks themselves out or grants themselves a token.
fn keep_admin(tree: &mut Node, loaded: &Loaded, sink: &mut Sink) {
    let Kind::Map(entries) = &tree.kind else { return };
    for (key, message) in KEPT {
        let ours = loaded.files_alone.tree.get(key);
        let Some((_, sent)) = entries.iter().find(|(known, _)| known.text == key) else { continue };
        let mut whole = sent.clone();
        restore(&mut whole, ours, &mut Sink::default());
        if !ours.is_some_and(|ours| is_same(&whole, ours)) {
            let mend = format!("leave `{key}` out here, and change it in the file");
            sink.push(sent.span, message, Some(mend));
            break;
        }
    }
    put_admin(tree, loaded);
}

fn put_admin(tree: &mut Node, loaded: &Loaded) {
    let span = tree.span;
    if let Kind::Map(entries) = &mut tree.kind {
        let entries = Arc::make_mut(entries);
        for (key, _) in KEPT {
            let ours = loaded.files_alone.tree.get(key);
            put(entries, key, ours.map(|ours| changes::moved(ours, span)));
        }
    }
}

/// What someone sends to the API, by `choice` as a whole configuration, an object, or an endpoint, on top of a small site.
/// There is no environment, no filter and no name service. For fuzzing: whatever is taken must hold.
///
/// # Errors
/// Everything that is wrong with it.
///
/// # Panics
/// What was taken does not give what was wanted.
pub fn check_change(choice: u8, text: &str) -> Result<(), Diagnostics> {
    let no_names = |_: &model::provider::NameLookup, _: &str, _: u16| {
        Err(std::io::Error::other("host names are not resolved here"))
    };
    let loader =
        Loader { filters: &[], environment: &|_| None, resolve_host: &no_names, within: None, is_offline: false };
    let site = "version: 1\nlisteners: { web: { bind: '127.0.0.1:1' } }\nroutes: [{ name: main, cluster: a }]\nclusters:\n  \
                a: { endpoints: ['127.0.0.1:1', { address: '127.0.0.1:2', weight: 2 }] }\n";
    let loaded = loader.load_text("site", site, "".as_ref())?;
    let none = Changes::default();
    let (changes, is_whole) = match choice % 6 {
        0 => (loader.replace(&loaded, text)?, true),
        1 => (loader.go_back(&loaded, text)?, true),
        2 => (loader.replace_object(&loaded, &none, ("clusters", "a"), Some(text))?, false),
        3 => (loader.replace_object(&loaded, &none, (ROUTES, "main"), Some(text))?, false),
        4 => (loader.replace_object(&loaded, &none, ("listeners", text), None)?, false),
        _ => {
            let edit = EndpointEdit::Add(text.to_owned());
            (loader.edit_endpoints(&loaded, &none, "a", &edit)?.unwrap_or_default(), false)
        }
    };
    let changed = loader.load_changed(&loaded, &changes);
    assert!(!is_whole || changed.is_ok(), "a whole configuration was judged already");
    let changed = changed?;
    // What is active can be put again, by what is shown of it and by its text, and changes nothing.
    for again in [changed.text(), changed.written(loader.filters).to_string()] {
        let twice = loader.replace(&changed, &again);
        let same = twice.as_ref().is_ok_and(|twice| {
            loader.load_changed(&loaded, twice).is_ok_and(|twice| twice.effective() == changed.effective())
        });
        assert!(same, "{again}: {twice:?}");
    }
    Ok(())
}
