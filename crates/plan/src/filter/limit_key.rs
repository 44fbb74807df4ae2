//! What a limit or a table counts by: the setting `key`.

use std::fmt;

use model::{Issue, RequestHead};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::{Compiling, Turn};
use crate::expression::{self, Scope, Subject, ValueText};
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

/// What a limit on requests counts by, as it is written: also the value of an expression.
#[derive(Clone, Debug)]
pub(super) enum RequestKeySetting {
    Known(KeySetting),
    Expression(ValueText),
}

impl Default for RequestKeySetting {
    fn default() -> Self {
        Self::Known(KeySetting::default())
    }
}

impl<'de> Deserialize<'de> for RequestKeySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if value.get("expression").is_some() {
            return serde_json::from_value(value).map(Self::Expression).map_err(de::Error::custom);
        }
        KeySetting::read(&value).map(Self::Known).map_err(|_| {
            de::Error::custom(format!(
                "{value} is not a key: write `client`, {{ header: NAME }} or {{ expression: CEL }}"
            ))
        })
    }
}

impl JsonSchema for RequestKeySetting {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RequestKey".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = KeySetting::json_schema(generator);
        let expression = json_schema!({
            "type": "object",
            "properties": { "expression": {
                "type": "string",
                "description": "A CEL expression whose value is counted.",
            } },
            "required": ["expression"],
            "additionalProperties": false,
        });
        if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
            choices.push(expression.to_value());
        }
        schema
    }
}

impl RequestKeySetting {
    /// Joins a key with the bits of an IPv6 address that identify a client.
    ///
    /// # Errors
    /// As [`KeySetting::compile`], and what is wrong with an expression.
    pub(super) fn compile(self, ipv6_prefix: Option<u8>, compiling: &mut Compiling<'_>) -> Result<RequestKey, Issue> {
        match (self, ipv6_prefix) {
            (Self::Known(key), prefix) => key.compile(prefix).map(RequestKey::Known),
            (Self::Expression(_), Some(_)) => {
                let issue = Issue::at("ipv6_prefix", "`ipv6_prefix` has no effect with `key: { expression: … }`");
                Err(issue.suggest("leave it out"))
            }
            (Self::Expression(text), None) => {
                let value = text.compile(Scope::Request, compiling).map_err(|issue| issue.below("key"))?;
                Ok(RequestKey::Expression(value))
            }
        }
    }
}

/// What a limit on requests counts by. Equal keys are shown alike.
pub(crate) enum RequestKey {
    Known(Key),
    Expression(expression::Value),
}

impl RequestKey {
    /// Calls with the bytes that stand for the key of a request, which are none if an expression has no value.
    pub(super) fn with<T>(
        &self,
        head: &RequestHead,
        turn: &mut Turn<'_>,
        call: impl FnOnce(&[u8], &mut Turn<'_>) -> T,
    ) -> T {
        match self {
            Self::Known(key) => key.with(head, turn.facts.client, |key| call(key, turn)),
            Self::Expression(value) => value.with_request(head, turn, call),
        }
    }

    /// Calls with the same bytes for a subject; with none if there is no request.
    pub(super) fn with_subject<T>(&self, of: Subject<'_>, scratch: &mut Vec<u8>, call: impl FnOnce(&[u8]) -> T) -> T {
        match (self, of.request()) {
            (Self::Known(key), Some(head)) => key.with(head, of.client(), call),
            (Self::Known(_), None) => call(b""),
            (Self::Expression(value), _) => value.with(of, scratch, call),
        }
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(key) => key.fmt(f),
            Self::Expression(value) => value.fmt(f),
        }
    }
}
