//! The JSON Schema (draft 2020-12) of the file format: editors complete from it, and files are checked against it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use model::filter::FilterSpec;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::defaults;
use crate::file::{FILTER_DEFINITION, File};

/// Returns the schema of a whole file as it is written, with the settings of these filters.
pub fn schema(filters: &[FilterSpec]) -> Value {
    let mut root = joined(filters);
    // A route may have its target from the route that it is nested in, or only hold others.
    if let Some(targets) = root["$defs"]["Route"]["oneOf"].as_array_mut() {
        let any = targets.clone();
        targets.push(json!({ "not": { "anyOf": any } }));
    }
    root
}

/// Returns that of a file whose objects were joined with what they inherit.
fn joined(filters: &[FilterSpec]) -> Value {
    // It does not change while the program runs, and every load needs it.
    static BASE: OnceLock<Value> = OnceLock::new();
    let mut root = BASE.get_or_init(base).clone();
    for filter in filters {
        add_filter(&mut root, filter);
    }
    root
}

/// Returns the same, made once for each list of filters.
pub(crate) fn cached(filters: &[FilterSpec]) -> Arc<Value> {
    static KNOWN: Mutex<Vec<(Vec<usize>, Arc<Value>)>> = Mutex::new(Vec::new());
    // A program has one list; tests have a few.
    const KNOWN_MAX: usize = 8;
    let id: Vec<usize> = filters.iter().map(|filter| filter.schema as usize).collect();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, schema)) = known.iter().find(|(known, _)| *known == id) {
        return Arc::clone(schema);
    }
    let made = Arc::new(joined(filters));
    if known.len() < KNOWN_MAX {
        known.push((id, Arc::clone(&made)));
    }
    made
}

fn base() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = generator.into_root_schema_for::<File>().to_value();
    tidy(&mut root);
    defaults::add_to(&mut root);
    root["title"] = json!("Equipoise configuration");
    root
}

/// Returns a schema of ours as files are checked against it.
pub(crate) fn tidied(mut schema: Value) -> Value {
    tidy(&mut schema);
    schema
}

/// Removes `null` from the schema: this format omits the key, and `null` is a forgotten value.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("default") == Some(&Value::Null) {
                map.remove("default");
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                // Comments are wrapped for the source; a page or an editor wraps for itself.
                *text = text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [one] = types.as_slice() {
                    map["type"] = one.clone();
                }
            }
            unwrap_nullable(map);
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// Turns `anyOf: [X, null]` into `X`; an `enum` or a list of branches loses its `null`.
fn unwrap_nullable(map: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(branches)) = map.get_mut("anyOf") else { return };
    branches.retain(|branch| branch != &json!({ "type": "null" }));
    if branches.len() == 1
        && let Some(Value::Array(mut branches)) = map.remove("anyOf")
        && let Some(Value::Object(only)) = branches.pop()
    {
        for (key, value) in only {
            map.entry(key).or_insert(value);
        }
    }
}

/// Adds a filter under `$defs`, its own definitions renamed so that they meet no others.
fn add_filter(root: &mut Value, filter: &FilterSpec) {
    let prefix = format!("filter_{}", filter.name);
    let mut settings = (filter.schema)();
    tidy(&mut settings);
    let mut own = Map::new();
    if let Value::Object(map) = &mut settings {
        map.remove("$schema");
        for name in ["$defs", "definitions"] {
            if let Some(Value::Object(definitions)) = map.remove(name) {
                own.extend(definitions.into_iter().map(|(name, schema)| (format!("{prefix}.{name}"), schema)));
            }
        }
    }
    own.insert(prefix.clone(), settings);
    for (name, mut schema) in own {
        rename_references(&mut schema, &prefix);
        root["$defs"][name] = schema;
    }
    let reference = json!({ "$ref": format!("#/$defs/{prefix}"), "description": filter.doc });
    root["$defs"][FILTER_DEFINITION]["properties"][filter.name] = reference;
}

fn rename_references(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref") {
                let name = reference.strip_prefix("#/$defs/").or_else(|| reference.strip_prefix("#/definitions/"));
                *reference = match name {
                    Some(name) => format!("#/$defs/{prefix}.{name}"),
                    None => format!("#/$defs/{prefix}"),
                };
            }
            map.values_mut().for_each(|value| rename_references(value, prefix));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| rename_references(value, prefix)),
        _ => {}
    }
}
