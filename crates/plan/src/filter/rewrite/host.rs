//! What `rewrite` does to the host.

use model::{Issue, RequestHead, limits};
use regex::bytes::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::RegexRewrite;
use crate::filter::replacement::Replacement;
use crate::filter::template::Template;
use crate::filter::variables::{Stage, Values};

/// As it is written.
pub(super) enum HostRewrite {
    Text(String),
    Regex(RegexRewrite),
}

impl<'de> Deserialize<'de> for HostRewrite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Object(mut map) if map.len() == 1 && map.contains_key("regex") => {
                let regex = map.remove("regex").unwrap_or_default();
                RegexRewrite::deserialize(regex).map(Self::Regex).map_err(D::Error::custom)
            }
            other => Err(D::Error::custom(format!("{other} is not a host: write a text or {{ regex: … }}"))),
        }
    }
}

impl JsonSchema for HostRewrite {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostRewrite".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string" },
            {
                "type": "object",
                "properties": { "regex": generator.subschema_for::<RegexRewrite>() },
                "required": ["regex"],
                "additionalProperties": false,
            },
        ] })
    }
}

impl HostRewrite {
    /// Checks the settings and compiles them.
    pub(super) fn compile(self) -> Result<HostStep, Issue> {
        match self {
            Self::Text(text) => {
                let template = Template::compile(&text, Stage::Request)?;
                match template.as_literal() {
                    Some(host) if !is_host(host.as_bytes()) => Err(Issue::at("", format!("`{host}` is not a host"))
                        .suggest("write a name or address, such as `a.example:8080`")),
                    _ => Ok(HostStep::Text(template)),
                }
            }
            Self::Regex(RegexRewrite { pattern, replacement }) => {
                // On its own first, so that it cannot close the group.
                let alone = crate::route::expression::anywhere(&pattern);
                let alone = alone.map_err(|issue| issue.below("pattern").below("regex"))?;
                let template = |text: &str| Template::compile(text, Stage::Request);
                let replacement = Replacement::compile(&replacement, &alone, template);
                let replacement = replacement.map_err(|issue| issue.below("replacement").below("regex"))?;
                let pattern = crate::route::expression::anywhere(&format!("(?i:{pattern})"));
                Ok(HostStep::Regex { pattern: pattern.map_err(|issue| issue.below("regex"))?, replacement })
            }
        }
    }
}

/// What becomes of the host.
#[derive(Debug)]
pub(super) enum HostStep {
    /// It is this.
    Text(Template),
    /// Matches in it are replaced.
    Regex { pattern: Regex, replacement: Replacement<Template> },
}

impl HostStep {
    /// Writes the new host. False: it is the old one.
    pub(super) fn write(&self, head: &RequestHead, values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Text(template) => template.write(values, out),
            Self::Regex { pattern, replacement } => {
                if !pattern.is_match(head.authority()) {
                    return false;
                }
                let old = (head.authority(), limits::TARGET_BYTES_MAX);
                replacement.replace_all(pattern, old, out, |text, out| text.write(values, out));
            }
        }
        true
    }
}

/// Returns whether this is a name, an IPv4 address or a bracketed IPv6 address, with or without port (RFC 9110 section 7.2).
pub(super) fn is_host(text: &[u8]) -> bool {
    let host = model::head::host_without_port(text);
    let port_is_good = match &text[host.len()..] {
        [] => true,
        [b':', digits @ ..] => {
            digits.iter().all(u8::is_ascii_digit)
                && str::from_utf8(digits).is_ok_and(|text| text.parse::<u16>().is_ok())
        }
        _ => false,
    };
    let host_is_good = match host {
        [b'[', inner @ .., b']'] => {
            str::from_utf8(inner).is_ok_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
        }
        name => {
            (1..=253).contains(&name.len())
                && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
        }
    };
    port_is_good && host_is_good
}
