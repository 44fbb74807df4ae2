//! What providers give: whole objects, which stand beside those of the files, and endpoints of clusters.
//!
//! Names are unique over files and providers: who comes second is refused, and told who was first. Routes of providers stand
//! behind those of the files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use model::snapshot::Endpoint;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::diagnostic::{Bond, Diagnostics, Sink};
use crate::file::{self, EndpointSettings};
use crate::given;
use crate::host::Loader;
use crate::interpolate::take_types;
use crate::loaded::{FilesAlone, ProvidedEndpoints};
use crate::paths;
use crate::read::{Access, read_part};
use crate::resolve::Resolver;
use crate::schema::{cached, tidied};
use crate::source::{Document, Documents, PROVIDER, Span};
use crate::tree::{Kind, Node};
use crate::validate::validate;

/// What a provider may give, beside `version`.
const KEYS: [&str; 4] = ["listeners", "routes", "clusters", "endpoints"];

/// Everything that one provider gives as texts.
#[derive(Clone, Debug, Default)]
pub struct Provided {
    /// Its name.
    pub provider: String,
    /// YAML or JSON.
    pub texts: Vec<ProvidedText>,
}

/// One text of a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProvidedText {
    /// What diagnostics call it, behind the name of the provider.
    pub name: String,
    /// Where relative paths in it start; by default at the folder of the main file.
    pub folder: Option<PathBuf>,
    /// The text.
    pub text: Arc<str>,
}

/// The schema of what the endpoints of a provider are.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct GivenEndpoints {
    /// Endpoints by key.
    #[allow(dead_code, reason = "only its schema is used")]
    endpoints: BTreeMap<String, Vec<file::Endpoint>>,
}

/// Joins files and providers.
struct Joining<'a> {
    documents: Documents,
    tree: Node,
    /// Who has a name already: the place of it.
    places: HashMap<(String, String), Span>,
    /// By provider and key.
    endpoints: Vec<(String, String, Node)>,
    sink: &'a mut Sink,
}

impl Loader<'_> {
    /// Files with what providers give beside them, in the order in which the files name them. Others give nothing.
    ///
    /// # Errors
    /// What a provider gives cannot be read, or is not its to give: the texts, for the places in the sink. What is wrong in the
    /// objects is found later.
    pub(crate) fn join(
        &self,
        files: &FilesAlone,
        provided: &[Provided],
        sink: &mut Sink,
    ) -> Result<FilesAlone, Documents> {
        if provided.is_empty() {
            return Ok(FilesAlone::new(files.own.0.clone(), Arc::clone(&files.own.1)));
        }
        let mut problems = Sink::default();
        let own = Arc::clone(&files.own);
        let (documents, tree) = (own.0.clone(), Node::clone(&own.1));
        let mut joining =
            Joining { documents, tree, places: HashMap::new(), endpoints: Vec::new(), sink: &mut problems };
        joining.note_names();
        let mut is_whole = true;
        for (name, settings) in own.1.get("providers").map_or(&[][..], Node::entries) {
            let Some(from) = provided.iter().find(|from| name.text == *from.provider) else { continue };
            is_whole &= joining.add_all(from, self, settings.get("file").is_some());
        }
        let Joining { documents, tree, endpoints, .. } = joining;
        let mut given = ProvidedEndpoints::new();
        for (provider, key, list) in endpoints {
            let list = self.endpoints_of(&documents, (&key, list), &mut problems);
            given.insert((provider, key), list.into());
        }
        let is_good = is_whole && problems.is_empty();
        sink.absorb(problems);
        if is_good {
            Ok(FilesAlone { documents, tree: Arc::new(tree), own, endpoints: Arc::new(given) })
        } else {
            Err(documents)
        }
    }

    /// Reads the endpoints that a provider gives for a key.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn endpoints(
        &self,
        provider: &str,
        key: &str,
        list: &[EndpointSettings],
    ) -> Result<Arc<[Endpoint]>, Diagnostics> {
        given::at_once(list).map_or_else(|| self.endpoints_in_words(provider, key, list), Ok)
    }

    /// Returns the same by way of a text, which says where something is wrong.
    pub(crate) fn endpoints_in_words(
        &self,
        provider: &str,
        key: &str,
        list: &[EndpointSettings],
    ) -> Result<Arc<[Endpoint]>, Diagnostics> {
        let lines: Vec<String> = list.iter().map(|one| serde_json::to_string(one).unwrap_or_default()).collect();
        let text = format!("[\n{}\n]", lines.join(",\n"));
        let (mut documents, mut sink) = (Documents::default(), Sink::default());
        let name = place_of(provider, &format!("endpoints/{key}"));
        let part = Document { name, folder: PathBuf::new(), text: text.into(), on_disk: false };
        let node = read_part(&mut documents, part, &|_| None, &mut sink);
        let found = node.map(|node| self.endpoints_of(&documents, (key, node), &mut sink)).unwrap_or_default();
        if sink.is_empty() { Ok(found.into()) } else { Err(sink.finish(&documents)) }
    }

    /// Returns the endpoints by key in a text that has nothing else and nothing wrong.
    pub fn endpoints_alone(
        &self,
        text: &str,
        has_environment: bool,
    ) -> Option<BTreeMap<String, Vec<EndpointSettings>>> {
        let (mut documents, mut sink) = (Documents::default(), Sink::default());
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let part = Document { name: String::new(), folder: PathBuf::new(), text: text.into(), on_disk: false };
        let environment = if has_environment { self.environment } else { &|_: &str| None };
        let mut node = read_part(&mut documents, part, environment, &mut sink)?;
        take_types(given_schema(), &[], &mut node);
        let is_known = |(key, node): &(crate::tree::Key, Node)| match key.text.as_str() {
            "version" => node.text() == Some("1"),
            "endpoints" => matches!(node.kind, Kind::Map(_)),
            _ => false,
        };
        if !node.entries().iter().all(is_known) {
            return None;
        }
        let mut all = BTreeMap::new();
        for (key, list) in node.get("endpoints")?.entries() {
            let (written, is_plain) = given::settings_in(list)?;
            if !is_plain || given::at_once(&written).is_none() {
                self.endpoints_of(&documents, (&key.text, list.clone()), &mut sink);
            }
            all.insert(key.text.to_string(), written);
        }
        sink.is_empty().then_some(all)
    }

    /// Returns the names of listeners and clusters in a text, with their kinds, whatever else is in it.
    pub fn names_in(&self, text: &str) -> Vec<(&'static str, String)> {
        let (mut documents, mut sink) = (Documents::default(), Sink::default());
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let part = Document { name: String::new(), folder: PathBuf::new(), text: text.into(), on_disk: false };
        let Some(node) = read_part(&mut documents, part, &|_| None, &mut sink) else { return Vec::new() };
        let named = |kind: &'static str| {
            let entries = node.get(kind).map_or(&[][..], Node::entries).iter();
            entries.map(move |(name, _)| (kind, name.text.to_string()))
        };
        named("listeners").chain(named("clusters")).collect()
    }

    fn endpoints_of(&self, documents: &Documents, (key, list): (&str, Node), sink: &mut Sink) -> Vec<Endpoint> {
        let schema = given_schema();
        let span = list.span;
        let entry = |text: &str| crate::tree::Key { text: text.into(), span };
        let by_key = Node { span, kind: Kind::map(vec![(entry(key), list)]) };
        let mut tree = Node { span, kind: Kind::map(vec![(entry("endpoints"), by_key)]) };
        take_types(schema, &[], &mut tree);
        let mut own = Sink::default();
        let faulty = validate(schema, &tree, None, &mut own);
        let mut found = Vec::new();
        if own.is_empty() {
            let mut resolver = Resolver::new(self, Access::None, (documents, &tree), &faulty, &mut own);
            found = resolver.given_endpoints(key);
        }
        sink.absorb(own);
        found
    }
}

impl Joining<'_> {
    fn note_names(&mut self) {
        for kind in crate::changes::NAMED {
            let named = self.tree.get(kind).map_or(&[][..], Node::entries).iter();
            self.places.extend(named.map(|(name, _)| ((kind.to_owned(), name.text.to_string()), name.span)));
        }
    }

    fn add_all(&mut self, from: &Provided, loader: &Loader<'_>, is_file: bool) -> bool {
        // What comes over a network must not read the environment of this machine.
        let environment = if is_file { loader.environment } else { &|_: &str| None };
        let schema = &cached(loader.filters);
        let mut is_whole = true;
        for text in &from.texts {
            let main = self.documents.main().map(|main| main.folder.clone()).unwrap_or_default();
            let folder = text.folder.clone().unwrap_or(main);
            let name = place_of(&from.provider, &text.name);
            let bare = text.text.strip_prefix('\u{feff}').map_or_else(|| Arc::clone(&text.text), Arc::from);
            let part = Document { name, folder, text: bare, on_disk: false };
            match read_part(&mut self.documents, part, environment, self.sink) {
                Some(mut node) => {
                    paths::settle(schema, &mut node, &self.documents);
                    take_types(schema, &[], &mut node);
                    self.add(&from.provider, node);
                }
                None => is_whole = false,
            }
        }
        is_whole
    }

    fn add(&mut self, provider: &str, node: Node) {
        let span = node.span;
        let entries = match node.kind {
            Kind::Map(entries) => Arc::unwrap_or_clone(entries),
            // A text without anything in it.
            Kind::Scalar(scalar) if scalar.plain && scalar.text.is_empty() => return,
            Kind::Invalid => return,
            Kind::List(_) | Kind::Scalar(_) => {
                let mend = "write `listeners:`, `routes:`, `clusters:` or `endpoints:`".to_owned();
                return self.sink.push(span, "the document of a provider must be a map", Some(mend));
            }
        };
        for (key, node) in entries {
            match (key.text.as_str(), node.kind) {
                ("version", Kind::Scalar(scalar)) if scalar.text == "1" => {}
                ("version", _) => {
                    self.sink.push(key.span, "the version of this format is 1", Some("write `version: 1`".to_owned()));
                }
                ("listeners" | "clusters", Kind::Map(named)) => {
                    self.add_named(&key.text, node.span, Arc::unwrap_or_clone(named));
                }
                ("routes", Kind::List(routes)) => self.add_routes(node.span, Arc::unwrap_or_clone(routes)),
                ("endpoints", Kind::Map(lists)) => {
                    Arc::unwrap_or_clone(lists)
                        .into_iter()
                        .for_each(|(key, list)| self.add_endpoints(provider, &key, list));
                }
                (_, Kind::Invalid) => {}
                ("listeners" | "clusters" | "endpoints", _) => {
                    self.sink.push(key.span, format!("`{}` must be a map", key.text), None);
                }
                ("routes", _) => self.sink.push(key.span, "`routes` must be a list", None),
                (other, _) => {
                    let mend = format!("a provider may deliver {}", KEYS.map(|key| format!("`{key}`")).join(", "));
                    self.sink.push(key.span, format!("a provider cannot deliver `{other}`"), Some(mend));
                }
            }
        }
    }

    fn add_endpoints(&mut self, provider: &str, key: &crate::tree::Key, list: Node) {
        let id = (format!("endpoints of {provider}"), key.text.to_string());
        if let Some(first) = self.places.insert(id, key.span) {
            let place = self.documents.get(first.file).map_or("", |document| &document.name);
            let message = format!("endpoints of `{}` are defined twice, first in {place}:{}", key.text, first.line);
            let (told, bond) = ((message, Some("put them in one place".to_owned())), Bond::Taken(place.to_owned()));
            return self.sink.push_bound(key.span, told, bond);
        }
        self.endpoints.push((provider.to_owned(), key.text.to_string(), list));
    }

    /// Returns the value of a key at the top of the files, which is made if it is not there.
    fn top(&mut self, key: &str, span: Span, empty: Kind) -> Option<&mut Kind> {
        let Kind::Map(entries) = &mut self.tree.kind else { return None };
        let entries = Arc::make_mut(entries);
        let at = entries.iter().position(|(known, _)| known.text == key).unwrap_or_else(|| {
            entries.push((crate::tree::Key { text: key.into(), span }, Node { span, kind: empty }));
            entries.len() - 1
        });
        Some(&mut entries[at].1.kind)
    }

    fn add_named(&mut self, kind: &str, span: Span, named: Vec<(crate::tree::Key, Node)>) {
        let mut fresh = Vec::new();
        for (name, node) in named {
            let id = (kind.to_owned(), name.text.to_string());
            if let Some(first) = self.places.get(&id) {
                let place = self.documents.get(first.file).map_or("", |document| &document.name);
                let what = kind.trim_end_matches('s');
                let message = format!("{what} `{}` is defined twice, first in {place}:{}", name.text, first.line);
                let mend = "the first one keeps the name: choose another here".to_owned();
                let bond = Bond::Taken(place.to_owned());
                self.sink.push_bound(name.span, (message, Some(mend)), bond);
                continue;
            }
            self.places.insert(id, name.span);
            fresh.push((name, node));
        }
        if let Some(Kind::Map(known)) = self.top(kind, span, Kind::map(Vec::new())) {
            Arc::make_mut(known).extend(fresh);
        }
    }

    fn add_routes(&mut self, span: Span, routes: Vec<Node>) {
        if let Some(Kind::List(known)) = self.top("routes", span, Kind::list(Vec::new())) {
            Arc::make_mut(known).extend(routes);
        }
    }
}

/// Returns the schema of endpoints that a provider gives.
fn given_schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        tidied(SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<GivenEndpoints>().to_value())
    })
}

/// Returns what diagnostics call a text of a provider.
pub fn place_of(provider: &str, name: &str) -> String {
    format!("{PROVIDER}{provider}:{name}")
}
