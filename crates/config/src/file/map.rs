//! Maps.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::one_of;

/// A table of keys and values that expressions look up: `map("NAME", request.host)`, or `request.host in maps.NAME`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["entries", "file"])))]
pub struct Map {
    /// How keys are compared.
    #[serde(default, rename = "match")]
    pub kind: MapKind,
    /// Keys with their values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<BTreeMap<String, MapValue>>,
    /// A file of entries: a key, white space and a value on each line; `#` at the beginning of a line starts a comment. Relative to the
    /// file that names it. It is read again when it changes; a file with a mistake changes nothing and is reported in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub file: Option<String>,
    /// The file is a MaxMind DB (`.mmdb`), such as GeoLite2-Country, and the value of a network is this field of it: `country.iso_code`.
    /// Items of lists have numbers: `subdivisions.0.iso_code`. Implies `match: cidr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub field: Option<String>,
    /// The value for all other keys. By default they have none, which is an empty string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<MapValue>,
}

/// How the keys of a map are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MapKind {
    /// The key is the text.
    #[default]
    Exact,
    /// The text begins with the key; the longest applies.
    Prefix,
    /// The key is a regular expression for the whole text; the first that matches applies. At most 1,000 entries.
    Regex,
    /// The key is an address or a network; the most specific that contains the address applies.
    Cidr,
}

/// A value as it is written: a text, a number or a truth value.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct MapValue(pub String);

impl<'de> Deserialize<'de> for MapValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            Value::Bool(flag) => Ok(Self(flag.to_string())),
            other => Err(de::Error::custom(format!("{other} is not a value of a map"))),
        }
    }
}

impl JsonSchema for MapValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MapValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}
