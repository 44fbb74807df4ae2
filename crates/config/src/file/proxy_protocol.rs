//! The PROXY protocol, towards clients and towards endpoints.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Time;

/// Whose word about the client of a connection is believed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptProxy {
    /// Addresses and networks of those who send a header (version 1 or 2), such as `10.0.0.0/8`. What anybody else sends
    /// is taken for what it is, never for a header.
    #[schemars(length(min = 1))]
    pub from: Vec<String>,
    /// Close connections of theirs that begin without a header. With `false` a header may be missing: then a client
    /// whose bytes they pass on can write one itself.
    #[serde(default = "required")]
    pub required: bool,
    /// Time for the header to arrive.
    #[serde(default = "timeout")]
    pub timeout: Time,
}

/// What endpoints are told by the PROXY protocol: its version, or settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum SendProxy {
    /// This version with its addresses.
    Version(ProxyVersion),
    /// More.
    Settings(SendProxySettings),
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// What endpoints are told by the PROXY protocol.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SendProxy")]
pub struct SendProxySettings {
    /// The version.
    pub version: ProxyVersion,
    /// What version 2 tells beside the addresses.
    #[serde(default)]
    pub tlvs: Vec<ProxyTlv>,
    /// Values of your own, by a type from `0xe0` to `0xef`. They may hold variables, such as `{client_ip}`; a value that turns out empty, or
    /// longer than 256 bytes, is left out. `{{` and `}}` are braces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, String>,
}

/// Something that version 2 of the PROXY protocol tells beside the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyTlv {
    /// Application protocol of the client's connection, if it came by TLS.
    Alpn,
    /// Host name that the client asked for by TLS SNI.
    Authority,
    /// A checksum.
    Crc32c,
    /// TLS version and cipher of the client, and the common name in its verified certificate, of several the most specific.
    Ssl,
    /// Id of the request for which the connection is made.
    UniqueId,
}

fn required() -> bool {
    true
}

fn timeout() -> Time {
    Time(limits::PROXY_HEADER)
}
