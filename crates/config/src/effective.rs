//! The configuration as it may be shown: defaults filled in, secrets left out.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use model::filter::FilterSpec;
use serde_json::{Map, Value};

use crate::defaults::Trees;
use crate::file::{self, DEFAULTS_KEY, HTTP_KEYS};
use crate::tree::{HIDDEN, Key, Kind, Node};

/// Header fields, cookies and settings that carry credentials.
const SECRET_NAMES: [&str; 8] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "password", "secret", "token"];
/// In names of header fields, each of these says that what the field carries is secret.
const SECRET_WORDS: [&str; 5] = ["token", "secret", "passw", "credential", "apikey"];
/// The same, as a word of its own.
const SECRET_PARTS: [&str; 3] = ["key", "auth", "session"];
/// Makes the serialized configuration fit to be shown. What is secret is sealed: see [`unsealed`].
pub(crate) fn shown(effective: Map<String, Value>, trees: &Trees, secret: &HashSet<String>) -> Value {
    let mut value = Value::Object(effective);
    // They are shown too: sent back without them, objects would lose them.
    if let Some(defaults) = trees.written.get(DEFAULTS_KEY) {
        let shown = value.as_object_mut().map(|map| map.entry(DEFAULTS_KEY).or_insert_with(|| defaults.to_value()));
        shown.into_iter().for_each(|shown| as_written(shown, defaults));
    }
    for listener in value["listeners"].as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
        let is_http = listener["protocol"] == "http";
        let other: &[&str] = if is_http { &["idle_timeout"] } else { &HTTP_KEYS };
        if let Some(map) = listener.as_object_mut() {
            map.retain(|key, _| !other.contains(&key.as_str()));
        }
    }
    for log in value["access_logs"].as_array_mut().into_iter().flatten() {
        if log["format"] != "line"
            && let Some(map) = log.as_object_mut()
        {
            map.remove("line");
        }
    }
    as_written(&mut value, &trees.merged);
    gather_filters(&mut value, trees);
    hide(&mut value, secret, (At::Root, &seal));
    value
}

/// Shows the filters of listeners where they were written, and not in each route: sent back, they would apply twice.
fn gather_filters(value: &mut Value, trees: &Trees) {
    let routes = value["routes"].as_array_mut().into_iter().flatten();
    for (route, count) in routes.zip(&trees.spread) {
        if let Some(filters) = route["filters"].as_array_mut() {
            filters.drain(..(*count).min(filters.len()));
        }
    }
    if trees.spread.is_empty() {
        return;
    }
    for (name, listener) in trees.joined.get("listeners").map_or(&[][..], Node::entries) {
        if let (Some(filters), Some(shown)) = (listener.get("filters"), value["listeners"][&*name.text].as_object_mut())
        {
            let mut filters_shown = filters.to_value();
            as_written(&mut filters_shown, filters);
            shown.insert("filters".to_owned(), filters_shown);
        }
    }
}

/// Returns the clusters of a tree without problems that are `wanted`, as [`shown`] would show them. There may be very many, so that they
/// are made when they are asked for.
pub(crate) fn clusters(tree: &Node, secret: &HashSet<String>, wanted: impl Fn(&Key, &Node) -> bool) -> Value {
    let written = tree.get("clusters").map_or(&[][..], Node::entries);
    let shown = |(key, node): &(Key, Node)| {
        let typed = serde_json::from_value::<file::Cluster>(node.to_value());
        let mut value = typed.and_then(serde_json::to_value).unwrap_or_default();
        as_written(&mut value, node);
        (key.text.to_string(), value)
    };
    let all = written.iter().filter(|(key, node)| wanted(key, node)).map(shown);
    let mut all = Value::Object(all.collect());
    hide(&mut all, secret, (At::Clusters, &seal));
    all
}

/// Returns a secret that is not shown, but can be distinguished from another: by a hash that only this process can compute.
fn seal(secret: &Value) -> String {
    static SEAL: OnceLock<RandomState> = OnceLock::new();
    format!("{HIDDEN}{:016x}", SEAL.get_or_init(RandomState::new).hash_one(secret.to_string()))
}

/// Returns the same without seals: every secret is `(hidden)`.
pub(crate) fn unsealed(mut value: Value) -> Value {
    fn open(value: &mut Value) {
        match value {
            Value::String(text) if is_sealed(text) => text.truncate(HIDDEN.len()),
            Value::Object(map) => map.values_mut().for_each(open),
            Value::Array(items) => items.iter_mut().for_each(open),
            _ => {}
        }
    }
    open(&mut value);
    value
}

fn is_sealed(text: &str) -> bool {
    text.strip_prefix(HIDDEN).is_some_and(|seal| seal.len() == 16 && seal.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns a whole configuration without what is secret by its name.
pub(crate) fn hidden(mut value: Value, filters: &[FilterSpec]) -> Value {
    hide(&mut value, &secret_names(filters), (At::Root, &|_| HIDDEN.to_owned()));
    value
}

pub(crate) fn secret_names(filters: &[FilterSpec]) -> HashSet<String> {
    let mut secret: HashSet<String> = SECRET_NAMES.iter().map(|name| (*name).to_owned()).collect();
    for filter in filters {
        write_only(&(filter.schema)(), &mut secret);
    }
    secret
}

/// Puts `${NAME}` back where a text came from the environment: the variable may be secret.
fn as_written(value: &mut Value, node: &Node) {
    match &node.kind {
        Kind::Scalar(scalar) => {
            if let Some(written) = &scalar.written {
                *value = Value::String(written.to_string());
            } else if let Value::String(text) = value
                && text.contains("${")
            {
                // Sent back, it would be taken for a variable.
                *text = text.replace("${", "$${");
            }
        }
        Kind::Map(entries) => {
            for (key, child) in entries.iter() {
                if let Some(value) = value.get_mut(key.text.as_str()) {
                    as_written(value, child);
                }
            }
        }
        Kind::List(items) => {
            for (index, child) in items.iter().enumerate() {
                if let Some(value) = value.get_mut(index) {
                    as_written(value, child);
                }
            }
        }
        Kind::Invalid => {}
    }
}

/// Returns the properties that a filter's schema marks `writeOnly`.
fn write_only(schema: &Value, names: &mut HashSet<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let marked = properties.iter().filter(|(_, property)| property.get("writeOnly") == Some(&Value::Bool(true)));
        names.extend(marked.map(|(name, _)| name.to_lowercase()));
    }
    match schema {
        Value::Object(map) => map.values().for_each(|value| write_only(value, names)),
        Value::Array(items) => items.iter().for_each(|value| write_only(value, names)),
        _ => {}
    }
}

/// Where a value stands, as far as that decides what its keys mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Root,
    /// What objects have where they do not say it themselves.
    Defaults,
    /// By name, whatever these are.
    Clusters,
    Cluster,
    /// The same.
    Providers,
    Provider,
    /// The settings of its kind.
    Source,
    /// Header fields that a provider is asked with, each of which may be a credential.
    Sent,
    /// Header fields.
    Fields,
    Elsewhere,
}

impl At {
    fn below(self, key: &str) -> Self {
        match self {
            Self::Root if key == "clusters" => Self::Clusters,
            Self::Root if key == "providers" => Self::Providers,
            Self::Root if key == DEFAULTS_KEY => Self::Defaults,
            Self::Defaults if key == "clusters" => Self::Cluster,
            Self::Clusters => Self::Cluster,
            Self::Providers => Self::Provider,
            Self::Provider => Self::Source,
            Self::Source if key == "headers" => Self::Sent,
            _ if key == "headers" || key.ends_with("_header") => Self::Fields,
            _ => Self::Elsewhere,
        }
    }

    /// Returns whether what stands here under this key is secret, although its name is none of those that always are.
    fn is_secret(self, key: &str, value: &Value) -> bool {
        // What came from the environment is shown by the name that it has there.
        let is_open = || value.as_str().is_some_and(has_variable);
        match self {
            Self::Sent => !is_open(),
            Self::Fields => is_credential(&key.to_lowercase()) && !is_open(),
            // A query may carry credentials.
            Self::Source if key == "url" => value.as_str().is_some_and(|url| url.contains('?')) && !is_open(),
            _ => false,
        }
    }
}

/// Returns whether the name of a header field says that it carries a credential: `x-vault-token`, `api-key`, `x-auth`.
fn is_credential(name: &str) -> bool {
    let mut parts = name.split(['-', '_']);
    SECRET_WORDS.iter().any(|word| name.contains(word)) || parts.any(|part| SECRET_PARTS.contains(&part))
}

/// Returns whether a text as it is shown names a variable; `$${` stands for the signs themselves.
fn has_variable(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| !text[..at].ends_with('$'))
}

fn hide(value: &mut Value, secret: &HashSet<String>, (at, cover): (At, &dyn Fn(&Value) -> String)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if secret.contains(&key.to_lowercase()) || at.is_secret(key, value) {
                    *value = Value::String(cover(value));
                } else if at == At::Cluster && key == "persistence" {
                    // There, `cookie` holds a name and settings.
                    hide(value, &HashSet::from(["secret".to_owned()]), (At::Elsewhere, cover));
                } else {
                    hide(value, secret, (at.below(key), cover));
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| hide(value, secret, (At::Elsewhere, cover))),
        _ => {}
    }
}
