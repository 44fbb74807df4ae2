//! From the settings of a filter, as JSON, to its steps.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use model::Issue;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Value, json};

use super::{Compiling, Steps};
use crate::units;

/// What a person writes under a filter's name.
pub trait Settings: DeserializeOwned + JsonSchema {
    /// Checks what the schema cannot say and builds the steps.
    ///
    /// # Errors
    /// The first thing that is wrong, with its path below the settings.
    fn compile(self, compiling: &mut Compiling<'_>) -> Result<Steps, Issue>;
}

pub(super) fn compile<S: Settings>(value: &Value, compiling: &mut Compiling<'_>) -> Result<Steps, Issue> {
    // What the schema forbids the configuration crate has told already, with its place; serde only says what, not where.
    S::deserialize(value).map_err(|error| Issue::at("", error.to_string()))?.compile(compiling)
}

pub(super) fn check<S: Settings>(value: &Value) -> Result<(), Issue> {
    compile::<S>(value, &mut Compiling::alone()).map(drop)
}

/// Returns the schema of the settings alone, ready to stand anywhere in a larger one.
pub(super) fn schema<S: Settings>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<S>();
    schema.remove("title");
    schema.to_value()
}

/// Choices that are listed whole.
const CHOICES_MAX: usize = 8;
/// Of more choices, how many are named.
const CHOICES_NAMED: usize = 3;

/// Adds the nearest of `names` to an issue about `name`, or all of them when none is near; of many the nearest few.
pub fn suggest_nearest<'a>(issue: Issue, name: &str, names: impl Iterator<Item = &'a str> + Clone) -> Issue {
    suggest_nearest_on("", issue, name, names)
}

/// Returns the same, which says on which page all of many are.
pub(crate) fn suggest_nearest_on<'a>(
    page: &str,
    issue: Issue,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Issue {
    let distance = |known: &&str| strsim::osa_distance(name, known);
    let Some(nearest) = names.clone().min_by_key(distance) else { return issue };
    if distance(&nearest) <= nearest.len().max(3) / 3 {
        return issue.suggest(format!("did you mean `{nearest}`?"));
    }
    let mut names: Vec<&str> = names.collect();
    let count = names.len();
    if count <= CHOICES_MAX {
        return issue.suggest(format!("known: {}", names.join(", ")));
    }
    names.sort_by(|one, other| strsim::jaro_winkler(name, other).total_cmp(&strsim::jaro_winkler(name, one)));
    let named = names[..CHOICES_NAMED].join("`, `");
    let all = if page.is_empty() { String::new() } else { format!("; all are in {page}") };
    issue.suggest(format!("there are {count}, such as `{named}`{all}"))
}

/// Returns what a schema says of a mapping that takes exactly one of these keys.
pub(super) fn one_of(keys: &[&str]) -> Value {
    keys.iter().map(|key| json!({ "required": [key] })).collect()
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

/// A length of time as the configuration writes all of them: `250ms`, `2s`, `5m`, `1h` or `1m30s`, longer than nothing and
/// at most a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(pub Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refuse = || D::Error::custom(format!("`{text}` is not a duration such as 250ms, 2s or 1m30s"));
        units::duration(&text).map(Self).ok_or_else(refuse)
    }
}

/// A text that stands in a file of its own. The configuration has read it; see [`model::filter::FILE_FORMAT`].
#[derive(Clone, Debug, Deserialize)]
pub struct FileText {
    /// The file as it was named.
    pub name: String,
    /// What it holds.
    pub text: String,
}

impl JsonSchema for FileText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "File".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": model::filter::FILE_FORMAT, "minLength": 1 })
    }
}

/// A size in bytes as the configuration writes all of them: `16KiB`, `1MB` or `100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeText(pub u64);

impl SizeText {
    const UNITS: [(&str, u64); 9] = [
        ("", 1),
        ("B", 1),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];

    pub(super) fn parse(text: &str) -> Option<u64> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let unit = text[digits..].trim_start_matches(' ');
        let (_, factor) = Self::UNITS.iter().find(|(name, _)| *name == unit)?;
        text[..digits].parse::<u64>().ok()?.checked_mul(*factor)
    }
}

impl<'de> Deserialize<'de> for SizeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let refuse =
            |text: &dyn fmt::Display| D::Error::custom(format!("`{text}` is not a size such as 16KiB, 1MB or 100"));
        match Value::deserialize(deserializer)? {
            Value::Number(number) => number.as_u64().map(Self).ok_or_else(|| refuse(&number)),
            Value::String(text) => Self::parse(&text).map(Self).ok_or_else(|| refuse(&text)),
            other => Err(refuse(&other)),
        }
    }
}

impl JsonSchema for SizeText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    /// Returns the format is the one by which the configuration crate knows its own sizes.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "format": "equipoise-size",
            "pattern": "^[0-9]+ *(B|kB|KB|MB|GB|KiB|MiB|GiB)?$",
            "minimum": 0,
        })
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    /// Returns the format is the one by which the configuration crate knows its own durations.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "equipoise-duration",
            "pattern": "^(?=.)([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
        })
    }
}
