//! From the settings of a filter, as JSON, to its steps: reading, schema, and errors that name the place.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use model::Issue;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::Steps;

/// What a person writes under a filter's name.
pub trait Settings: DeserializeOwned + JsonSchema {
    /// Checks what the schema cannot say and builds the steps.
    ///
    /// # Errors
    /// The first thing that is wrong, with its path below the settings.
    fn compile(self) -> Result<Steps, Issue>;
}

pub(super) fn compile<S: Settings>(value: &Value) -> Result<Steps, Issue> {
    match S::deserialize(value) {
        Ok(settings) => settings.compile(),
        Err(error) => Err(locate(value, &schema::<S>()).unwrap_or_else(|| Issue::at("", error.to_string()))),
    }
}

pub(super) fn check<S: Settings>(value: &Value) -> Result<(), Issue> {
    compile::<S>(value).map(drop)
}

/// The schema of the settings alone, ready to stand anywhere in a larger one.
pub(super) fn schema<S: Settings>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<S>();
    schema.remove("title");
    schema.to_value()
}

/// Adds the nearest of `names` to an issue about `name`, or all of them when none is near.
pub fn suggest_nearest<'a>(issue: Issue, name: &str, names: impl Iterator<Item = &'a str> + Clone) -> Issue {
    let distance = |known: &&str| strsim::osa_distance(name, known);
    match names.clone().min_by_key(distance) {
        Some(nearest) if distance(&nearest) <= nearest.len().max(3) / 3 => {
            issue.suggest(format!("did you mean `{nearest}`?"))
        }
        Some(_) => issue.suggest(format!("known: {}", names.collect::<Vec<_>>().join(", "))),
        None => issue,
    }
}

/// Finds the first place where a value does not fit its schema. It knows just the shapes that settings take, and is asked
/// only when reading has failed already: serde says what is wrong, but not where.
fn locate(value: &Value, schema: &Value) -> Option<Issue> {
    if let Some(variants) = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array) {
        return locate_variant(value, variants);
    }
    let types = types_of(schema);
    if !types.is_empty() && !types.iter().any(|name| is_type(value, name)) {
        return Some(wrong_type(value, &types));
    }
    match value {
        Value::Object(map) => locate_in_object(map, schema),
        Value::Array(list) => {
            let items = schema.get("items")?;
            list.iter().enumerate().find_map(|(place, item)| below(place, locate(item, items)))
        }
        Value::String(text) => locate_in_text(text, schema),
        _ => None,
    }
}

fn locate_in_text(text: &str, schema: &Value) -> Option<Issue> {
    if let Some(known) = schema.get("enum").and_then(Value::as_array) {
        let known = known.iter().filter_map(Value::as_str);
        let is_known = known.clone().any(|name| name == text);
        return (!is_known).then(|| suggest_nearest(Issue::at("", format!("`{text}` is not known here")), text, known));
    }
    let pattern = schema.get("pattern").and_then(Value::as_str)?;
    let fits = regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    let examples: Vec<_> = schema.get("examples")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let issue = || Issue::at("", format!("`{text}` does not have the right form"));
    (!fits).then(|| issue().suggest(format!("write it like {}", examples.join(" or "))))
}

fn locate_in_object(map: &Map<String, Value>, schema: &Value) -> Option<Issue> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let others = schema.get("additionalProperties");
    for (key, value) in map {
        let issue = match (properties.get(key), others) {
            (Some(schema), _) => locate(value, schema),
            (None, Some(Value::Bool(false))) => {
                let names = properties.keys().map(String::as_str);
                Some(suggest_nearest(Issue::at("", format!("unknown key `{key}`")), key, names))
            }
            (None, Some(schema)) => locate(value, schema),
            (None, None) => None,
        };
        if issue.is_some() {
            return below(key, issue);
        }
    }
    let required = schema.get("required").and_then(Value::as_array)?;
    let missing = required.iter().filter_map(Value::as_str).find(|key| !map.contains_key(*key))?;
    Some(Issue::at("", format!("`{missing}` is missing")))
}

/// Variants are told apart by type or, all being mappings, by their one key.
fn locate_variant(value: &Value, variants: &[Value]) -> Option<Issue> {
    let fitting = || variants.iter().filter(|variant| types_of(variant).iter().any(|name| is_type(value, name)));
    match (fitting().count(), value) {
        (0, _) => Some(wrong_type(value, &variants.iter().flat_map(types_of).collect::<Vec<_>>())),
        (1, _) => locate(value, fitting().next()?),
        (_, Value::Object(map)) => {
            let keys = || fitting().filter_map(|variant| variant.get("properties")?.as_object()?.keys().next());
            let names = keys().map(String::as_str);
            let [(key, _)] = map.iter().collect::<Vec<_>>()[..] else {
                return Some(Issue::at(
                    "",
                    format!("exactly one of {} is needed", names.collect::<Vec<_>>().join(", ")),
                ));
            };
            if !keys().any(|known| known == key) {
                let issue = Issue::at(key.as_str(), format!("unknown key `{key}`"));
                return Some(suggest_nearest(issue, key, names.collect::<Vec<_>>().into_iter()));
            }
            locate(value, fitting().find(|variant| variant["properties"].get(key).is_some())?)
        }
        _ => None,
    }
}

fn below(part: impl fmt::Display, issue: Option<Issue>) -> Option<Issue> {
    issue.map(|issue| issue.below(&part.to_string()))
}

fn types_of(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_type(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(number) => name == "number" || (name == "integer" && !number.is_f64()),
        Value::String(_) => name == "string",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
    }
}

fn wrong_type(value: &Value, wanted: &[&str]) -> Issue {
    let word = |name: &&str| match *name {
        "string" => "text",
        "array" => "a list",
        "object" => "a mapping",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        _ => "nothing",
    };
    let is = ["null", "boolean", "number", "string", "array", "object"].into_iter().find(|name| is_type(value, name));
    let wanted_words: Vec<_> = wanted.iter().filter(|name| **name != "null").map(word).collect();
    let message = format!("{} is needed here, not {}", wanted_words.join(" or "), word(&is.unwrap_or_default()));
    let issue = Issue::at("", message);
    match value {
        Value::Number(_) | Value::Bool(_) if wanted.contains(&"string") => {
            issue.suggest(format!("put it in quotes: \"{value}\""))
        }
        _ => issue,
    }
}

/// A mapping from names to values in the order of the file.
#[derive(Clone, Debug)]
pub struct Ordered<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Ordered(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Ordered<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Ordered_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>(), "minProperties": 1 })
    }
}

/// A length of time as files write it: a whole number and a unit, such as `250ms`, `2s`, `5m`, `1h` or `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(pub Duration);

impl DurationText {
    fn parse(text: &str) -> Option<Duration> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = text[..digits].parse().ok()?;
        let seconds = |unit: u64| number.checked_mul(unit).map(Duration::from_secs);
        match &text[digits..] {
            "ms" => Some(Duration::from_millis(number)),
            "s" => seconds(1),
            "m" => seconds(60),
            "h" => seconds(60 * 60),
            "d" => seconds(24 * 60 * 60),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refuse = || D::Error::custom(format!("`{text}` is not a duration such as 250ms, 2s or 5m"));
        Self::parse(&text).map(Self).ok_or_else(refuse)
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$", "examples": ["250ms", "2s", "5m"] })
    }
}
