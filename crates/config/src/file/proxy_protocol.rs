//! The PROXY protocol, towards clients and towards endpoints.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Time;

/// Peers that are trusted to send a PROXY protocol header.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptProxy {
    /// Addresses and networks of the senders (version 1 or 2), such as `10.0.0.0/8`. Bytes of other peers are never read as a
    /// header.
    #[schemars(length(min = 1))]
    pub from: Vec<String>,
    /// Require the header: connections of these peers without one are closed. With `false` it is optional: then a client whose
    /// bytes they pass on can forge one.
    #[serde(default = "required")]
    pub required: bool,
    /// Time-out for the header.
    #[serde(default = "timeout")]
    pub timeout: Time,
}

/// PROXY protocol towards endpoints: its version, or settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum SendProxy {
    /// This version, addresses only.
    Version(ProxyVersion),
    /// Settings.
    Settings(SendProxySettings),
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// PROXY protocol towards endpoints.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SendProxy")]
pub struct SendProxySettings {
    /// The version.
    pub version: ProxyVersion,
    /// TLVs that version 2 carries in addition to the addresses.
    #[serde(default)]
    pub tlvs: Vec<ProxyTlv>,
    /// TLVs of your own, by a type from `0xe0` to `0xef`. Values may contain variables, such as `{client_ip}`; an empty value,
    /// or one longer than 256 bytes, is left out. Write braces as `{{` and `}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, String>,
}

/// A TLV of PROXY protocol version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyTlv {
    /// Application protocol (ALPN) of the client's TLS connection.
    Alpn,
    /// Server name (SNI) that the client requested.
    Authority,
    /// CRC-32C checksum of the header.
    Crc32c,
    /// TLS version and cipher of the client, and the common name of its verified certificate; of several the most specific.
    Ssl,
    /// Id of the request that the connection is opened for.
    UniqueId,
}

fn required() -> bool {
    true
}

fn timeout() -> Time {
    Time(limits::PROXY_HEADER)
}
