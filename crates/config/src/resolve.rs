//! From what was written to what is meant: references, names, addresses, files. Everything that the schema cannot say
//! is checked here, and everything that is wrong is told.
//!
//! Objects with a problem that was found before are left out, but their names are known, so that nobody is told that
//! they are missing.

mod access_log;
mod address;
mod address_list;
mod admin;
mod balance;
mod bandwidth;
mod cache;
mod check;
mod cluster;
mod discovery;
mod expression;
mod filter;
mod health;
mod hidden;
mod http_check;
mod listener;
mod map;
mod objects;
mod path;
mod peers;
mod pem;
mod per_address;
mod persistence;
mod provider;
mod proxy_protocol;
mod queue;
mod resilience;
mod retry;
mod reuse;
mod route;
mod socket;
mod table;
mod useless;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::fields::{is_field_value, is_token};
use model::provider::NameLookup;
use model::snapshot::{Cluster, Snapshot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::diagnostic::{Bond, Sink, choose};
use crate::faulty::Faulty;
use crate::file;
use crate::host::Loader;
use crate::read::Access;
use crate::source::{Documents, Span};
use crate::tree::{ByName, Key, Kind, Node, Text};

pub(crate) use balance::placement_of;
pub(crate) use cluster::smaller;
pub(crate) use reuse::Before;

use objects::Objects;
use reuse::Reuse;

/// What resolving came to.
pub(crate) struct Resolved {
    pub(crate) snapshot: Snapshot,
    /// Every file that is named and was read, in order, each once.
    pub(crate) files: Vec<PathBuf>,
    /// The configuration with defaults filled in, but for clusters: see [`crate::effective::clusters`].
    pub(crate) effective: Map<String, Value>,
    /// Which clusters follow from what was written alone: nothing was read for them and no name looked up.
    pub(crate) contained: Vec<bool>,
    /// The zone of this instance.
    pub(crate) own_zone: Option<String>,
    /// What is allowed but does nothing.
    pub(crate) warnings: Sink,
}

/// Everything that resolving looks at.
pub(crate) struct Resolver<'a> {
    pub(crate) loader: &'a Loader<'a>,
    pub(crate) access: Access,
    pub(crate) documents: &'a Documents,
    pub(crate) tree: &'a Node,
    pub(crate) faulty: &'a Faulty,
    pub(crate) sink: &'a mut Sink,
    warnings: Sink,
    /// The places of keys that come from `defaults`.
    defaults: HashSet<Span>,
    /// The names of the routes that each route is nested in.
    above: &'a [Vec<Text>],
    /// What clusters take from an earlier configuration.
    reuse: Reuse<'a>,
    /// How host names of endpoints are looked up.
    names: NameLookup,
    pems: HashMap<PathBuf, Result<Arc<[u8]>, String>>,
    files: Vec<PathBuf>,
    /// The objects that others refer to.
    objects: Objects<'a>,
    /// The zone of this instance.
    own_zone: Option<String>,
    /// Addresses that listeners and the administrator take, whether for datagrams, and by whom.
    binds: HashMap<(model::Address, bool), address::Taker>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(
        loader: &'a Loader<'a>,
        access: Access,
        (documents, tree): (&'a Documents, &'a Node),
        faulty: &'a Faulty,
        sink: &'a mut Sink,
    ) -> Self {
        let (pems, files, binds) = (HashMap::new(), Vec::new(), HashMap::new());
        let written = tree.get("zone").and_then(Node::text).map(str::to_owned);
        let own_zone = written.or_else(|| (loader.environment)("EQUIPOISE_ZONE")).filter(|zone| !zone.is_empty());
        let warnings = Sink::default();
        Self {
            loader,
            access,
            documents,
            tree,
            faulty,
            sink,
            warnings,
            defaults: HashSet::new(),
            above: &[],
            reuse: Reuse::default(),
            names: NameLookup::default(),
            pems,
            files,
            objects: Objects::of(tree),
            own_zone,
            binds,
        }
    }

    /// Names the places of keys that objects have from `defaults`.
    pub(crate) fn with_defaults_at(mut self, defaults: HashSet<Span>) -> Self {
        self.defaults = defaults;
        self
    }

    /// Names the routes that each route is nested in.
    pub(crate) fn nested_in(mut self, above: &'a [Vec<Text>]) -> Self {
        self.above = above;
        self
    }

    /// Takes from an earlier tree what it came to, where that is the very same.
    pub(crate) fn knowing(mut self, before: Option<Before<'a>>) -> Self {
        let is_same = |one: Option<&Node>, other: Option<&Node>| match (one, other) {
            (Some(one), Some(other)) => one.is_very_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.reuse.before = before.filter(|before| {
            let providers = is_same(before.tree.get("providers"), self.tree.get("providers"));
            providers && before.own_zone == self.own_zone.as_deref()
        });
        self
    }

    /// Resolves the whole tree. Whether anything was wrong is in the sink.
    pub(crate) fn run(mut self) -> Resolved {
        let mut effective = Map::new();
        effective.insert("version".to_owned(), Value::from(1));
        let listeners = self.named("listeners", &mut effective, Self::listener);
        let tables = self.named("tables", &mut effective, Self::table);
        if self.tree.get("tables").is_none() {
            effective.shift_remove("tables");
        }
        let caches = self.named("caches", &mut effective, Self::cache);
        self.check_cache_folders(&caches);
        if caches.is_empty() {
            effective.shift_remove("caches");
        }
        let routes = self.listed("routes", &mut effective, Self::route);
        self.unique_route_names(&routes);
        // Clusters look names up by it.
        self.names = self.single("names", &mut effective, Self::name_lookup).unwrap_or_default();
        effective.insert("clusters".to_owned(), Value::Object(Map::new()));
        let (clusters, contained) = self.all_clusters();
        self.unique_cookies(&routes, &clusters);
        if let Some(zone) = &self.own_zone {
            effective.insert("zone".to_owned(), Value::from(zone.as_str()));
        }
        let maps = self.named("maps", &mut effective, Self::map);
        if maps.is_empty() {
            effective.shift_remove("maps");
        }
        let admin = self.single("admin", &mut effective, Self::admin);
        let peers = self.single("peers", &mut effective, Self::peers);
        let access_logs = self.listed("access_logs", &mut effective, Self::access_log);
        if let Some(formats) = self.log_formats() {
            effective.insert(file::LOG_FORMATS.to_owned(), formats);
        }
        let shutdown = self.shutdown(&mut effective);
        let providers = self.named("providers", &mut effective, Self::provider);
        let is_watched = self.tree.get("watch").is_some_and(|node| node.to_value() == Value::Bool(true));
        if is_watched {
            effective.insert("watch".to_owned(), Value::Bool(true));
        }
        if providers.is_empty() {
            effective.shift_remove("providers");
        }
        let snapshot = Snapshot {
            listeners: listeners.into_iter().map(Arc::new).collect(),
            routes: routes.into_iter().map(|(_, route)| Arc::new(route)).collect(),
            clusters,
            tables: tables.into_iter().map(Arc::new).collect(),
            caches: caches.into_iter().map(Arc::new).collect(),
            maps: maps.into_iter().map(Arc::new).collect(),
            admin: admin.flatten(),
            peers: peers.flatten(),
            access_logs: access_logs.into_iter().map(|(_, log)| log).collect(),
            providers: providers.into_iter().map(Arc::new).collect(),
            names: self.names.clone(),
            is_watched,
            drain_timeout: shutdown.drain_timeout.0,
            upgrade_timeout: shutdown.upgrade_timeout.0,
        };
        // What is wrong comes first; and what is left without it may seem useless.
        if self.sink.is_empty() {
            self.warn_of_useless(&snapshot);
        }
        let (files, warnings, own_zone) = (self.files, self.warnings, self.own_zone);
        Resolved { snapshot, files, effective, contained, own_zone, warnings }
    }

    /// Resolves the clusters, of which there may be very many and few that are new.
    fn all_clusters(&mut self) -> (Vec<Arc<Cluster>>, Vec<bool>) {
        let (tree, before) = (self.tree, self.reuse.before);
        let earlier = ByName::of(before.and_then(|before| before.tree.get("clusters")));
        let written = tree.get("clusters").map_or(&[][..], Node::entries);
        let (mut all, mut contained) = (Vec::with_capacity(written.len()), Vec::with_capacity(written.len()));
        for (key, node) in written {
            let known = before.zip(earlier.same(key, node)).and_then(|(before, place)| {
                let cluster = before.clusters.get(place).filter(|cluster| *cluster.name == *key.text)?;
                before.contained.get(place).is_some_and(|contained| *contained).then_some(cluster)
            });
            if let Some(known) = known {
                all.push(Arc::clone(known));
                contained.push(true);
                continue;
            }
            let Some(object) = self.typed(&format!("clusters/{}", key.text), node) else { continue };
            self.reuse.looks_outside = false;
            if let Some(mut cluster) = self.cluster(&key.text, &object) {
                take_names(&mut cluster, key, node);
                all.push(Arc::new(cluster));
                contained.push(!self.reuse.looks_outside);
            }
        }
        (all, contained)
    }

    /// Resolves each object of a map of objects.
    fn named<T: DeserializeOwned + Serialize, R>(
        &mut self,
        kind: &str,
        effective: &mut Map<String, Value>,
        resolve: impl Fn(&mut Self, &str, &mut T) -> Option<R>,
    ) -> Vec<R> {
        let tree = self.tree;
        let mut shown = Map::new();
        let mut all = Vec::new();
        for (key, node) in tree.get(kind).map_or(&[][..], Node::entries) {
            let Some(mut object) = self.typed::<T>(&format!("{kind}/{}", key.text), node) else { continue };
            all.extend(resolve(self, &key.text, &mut object));
            shown.insert(key.text.to_string(), serde_json::to_value(&object).unwrap_or_default());
        }
        effective.insert(kind.to_owned(), Value::Object(shown));
        all
    }

    /// Resolves each object of a list of objects; the number is its place.
    fn listed<T: DeserializeOwned + Serialize, R>(
        &mut self,
        kind: &str,
        effective: &mut Map<String, Value>,
        resolve: impl Fn(&mut Self, usize, &mut T) -> Option<R>,
    ) -> Vec<(usize, R)> {
        let tree = self.tree;
        let mut shown = Vec::new();
        let mut all = Vec::new();
        for (index, node) in tree.get(kind).map_or(&[][..], Node::items).iter().enumerate() {
            let Some(mut object) = self.typed::<T>(&format!("{kind}/{index}"), node) else { continue };
            all.extend(resolve(self, index, &mut object).map(|resolved| (index, resolved)));
            shown.push(serde_json::to_value(&object).unwrap_or_default());
        }
        effective.insert(kind.to_owned(), Value::Array(shown));
        all
    }

    /// Resolves an object that is there once or not at all.
    fn single<T: DeserializeOwned + Serialize, R>(
        &mut self,
        kind: &str,
        effective: &mut Map<String, Value>,
        resolve: impl Fn(&mut Self, &T) -> R,
    ) -> Option<R> {
        let tree = self.tree;
        let node = tree.get(kind)?;
        let object = self.typed::<T>(kind, node)?;
        effective.insert(kind.to_owned(), serde_json::to_value(&object).unwrap_or_default());
        Some(resolve(self, &object))
    }

    fn typed<T: DeserializeOwned>(&mut self, path: &str, node: &Node) -> Option<T> {
        let mut value = node.to_value();
        if !self.faulty.prune(path, &mut value) {
            return None;
        }
        match serde_json::from_value(value) {
            Ok(object) => Some(object),
            Err(error) => {
                // What was told already may leave too little to go on with.
                if self.sink.is_empty() {
                    self.report(path, error.to_string(), None);
                }
                None
            }
        }
    }

    fn shutdown(&mut self, effective: &mut Map<String, Value>) -> file::Shutdown {
        let given = self.single("shutdown", effective, |_, shutdown: &file::Shutdown| shutdown.clone());
        given.unwrap_or_else(|| {
            let default = file::Shutdown::default();
            effective.insert("shutdown".to_owned(), serde_json::to_value(&default).unwrap_or_default());
            default
        })
    }

    /// A path as it is meant: relative to the folder of the main file, see [`crate::paths`].
    fn beside(&self, path: &str) -> PathBuf {
        self.documents.main().map_or_else(|| PathBuf::from(path), |document| document.folder.join(path))
    }

    fn report(&mut self, path: &str, message: impl Into<String>, suggestion: Option<String>) {
        let (message, suggestion) = self.discreet(path, message.into(), suggestion);
        self.sink.push(self.tree.locate(path), message, suggestion);
    }

    /// The same of what is not on this machine, which is a warning where another machine is meant.
    fn report_absent(&mut self, path: &str, message: impl Into<String>, suggestion: Option<String>) {
        let (message, suggestion) = self.discreet(path, message.into(), suggestion);
        let span = self.tree.locate(path);
        let sink = if self.loader.is_offline { &mut self.warnings } else { &mut *self.sink };
        sink.push(span, message, suggestion);
    }

    /// Reports a file that cannot be read. Without discretion: where it was looked for is no secret, and what is wanted here.
    fn report_unread(&mut self, path: &str, file: &Path, why: &str) {
        let span = self.tree.locate(path);
        let sink = if self.loader.is_offline { &mut self.warnings } else { &mut *self.sink };
        sink.push(span, format!("cannot read `{}`: {why}", file.display()), None);
    }

    /// The same of what is allowed, but does not do what whoever wrote it will expect.
    fn warn(&mut self, path: &str, message: impl Into<String>, suggestion: Option<String>) {
        let (message, suggestion) = self.discreet(path, message.into(), suggestion);
        self.warnings.push(self.tree.locate(path), message, suggestion);
    }

    fn discreet(&self, path: &str, message: String, suggestion: Option<String>) -> (String, Option<String>) {
        match self.tree.scalar(path) {
            Some(scalar) => scalar.discreet(message, suggestion),
            None => (message, suggestion),
        }
    }

    /// Checks that a cluster exists.
    fn cluster_exists(&mut self, path: &str, name: &str) {
        let Some(clusters) = &self.objects.clusters else { return };
        if clusters.get(name).is_some() {
            return;
        }
        let suggestion = self.sink.wants_suggestions().then(|| {
            let mut names: Vec<&str> = clusters.keys().collect();
            names.sort_unstable();
            match names.is_empty() {
                true => Some("define it under `clusters`".to_owned()),
                false => choose(name, names, "all are under `clusters`"),
            }
        });
        let suggestion = suggestion.flatten();
        self.report_lack(path, ("clusters", name), suggestion);
    }

    /// Tells that an object of this kind is not there.
    fn report_lack(&mut self, path: &str, (kind, name): (&'static str, &str), suggestion: Option<String>) {
        let message = format!("there is no {} `{name}`", kind.trim_end_matches('s'));
        self.report_bound(path, (message, suggestion), Bond::Lacks(kind, name.to_owned()));
    }

    /// As [`Self::report`], of what has to do with another place.
    fn report_bound(&mut self, path: &str, (message, suggestion): (String, Option<String>), bond: Bond) {
        let told = self.discreet(path, message, suggestion);
        self.sink.push_bound(self.tree.locate(path), told, bond);
    }

    /// Checks the name of a header field that we write; gives it in lower case.
    fn field_name(&mut self, path: &str, name: &str) -> Option<String> {
        const OURS: [&str; 9] = [
            "host",
            "connection",
            "content-length",
            "transfer-encoding",
            "te",
            "trailer",
            "upgrade",
            "date",
            "keep-alive",
        ];
        if !is_token(name.as_bytes()) {
            self.report(path, format!("`{name}` is not the name of a header field"), None);
            return None;
        }
        let lower = name.to_ascii_lowercase();
        if OURS.contains(&lower.as_str()) {
            self.report(path, format!("`{name}` is set by the protocol and cannot be chosen"), None);
            return None;
        }
        Some(lower)
    }

    /// Checks the value of a header field that we write.
    fn field_value(&mut self, path: &str, value: &str) {
        if !is_field_value(value.as_bytes()) {
            self.report(path, "the value of a header field cannot contain control characters", None);
        }
    }

    /// Whether a key was written, right or wrong.
    fn has(&self, path: &str, key: &str) -> bool {
        self.key_span(path, key) != self.tree.locate(path)
    }

    /// The place of a key, for keys that should not be there.
    fn key_span(&self, path: &str, key: &str) -> Span {
        self.tree.locate_key(path, key)
    }
}

/// Has a cluster use the texts of the tree for its names.
fn take_names(cluster: &mut Cluster, key: &Key, node: &Node) {
    cluster.name = key.text.name();
    let written = node.get("endpoints").map_or(&[][..], Node::items);
    for (endpoint, node) in cluster.endpoints.iter_mut().zip(written) {
        match &node.get("address").unwrap_or(node).kind {
            Kind::Scalar(scalar) if *scalar.text == *endpoint.name => endpoint.name = scalar.text.name(),
            // One before it was left out, for it is wrong.
            _ => return,
        }
    }
}
