//! What a limit or a table counts by: the setting `key`.

use model::Issue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::limit::{Key, Network};

/// What is counted, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KeySetting {
    #[default]
    Client,
    Header(String),
}

impl KeySetting {
    /// Reads `client` or `{ header: NAME }`.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(text) if text == "client" => Ok(Self::Client),
            Value::Object(map) if map.len() == 1 => match map.get("header") {
                Some(Value::String(name)) => Ok(Self::Header(name.clone())),
                _ => Err(format!("{value} is not a key: write `client` or {{ header: NAME }}")),
            },
            _ => Err(format!("{value} is not a key: write `client` or {{ header: NAME }}")),
        }
    }
}

impl<'de> Deserialize<'de> for KeySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for KeySetting {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Key".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "enum": ["client"] },
            {
                "type": "object",
                "properties": { "header": {
                    "type": "string",
                    "description": "Name of the header field whose value is counted.",
                } },
                "required": ["header"],
                "additionalProperties": false,
            },
        ] })
    }
}

impl KeySetting {
    /// Joins a key with the bits of an IPv6 address that identify a client.
    ///
    /// # Errors
    /// Bits that are out of range or have no effect, or a name that is no field name. Paths are below the settings of the filter.
    pub(super) fn compile(self, ipv6_prefix: Option<u8>) -> Result<Key, Issue> {
        match (self, ipv6_prefix) {
            (Self::Client, prefix) => match prefix.unwrap_or(64) {
                bits @ 1..=128 => Ok(Key::Client(Network::new(32, bits))),
                bits => {
                    let issue = Issue::at("ipv6_prefix", format!("{bits} is not between 1 and 128"));
                    Err(issue.suggest("use 64, or 56 or 48 if clients get larger networks"))
                }
            },
            (Self::Header(_), Some(_)) => {
                let issue = Issue::at("ipv6_prefix", "`ipv6_prefix` has no effect with `key: { header: … }`");
                Err(issue.suggest("leave it out"))
            }
            (Self::Header(name), None) => Key::header(&name).map_err(|message| Issue::at("key/header", message)),
        }
    }
}
