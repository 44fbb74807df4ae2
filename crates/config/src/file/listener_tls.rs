//! The keys of TLS towards clients.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Time;

/// TLS towards clients.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificates. The one that matches the requested server name (SNI) is used; the first one if none matches.
    #[schemars(length(min = 1))]
    pub certificates: Vec<Certificate>,
    /// Oldest accepted version of TLS.
    #[serde(default)]
    pub version_min: TlsVersion,
    /// Time-out of a handshake.
    #[serde(default = "handshake")]
    pub handshake_timeout: Time,
    /// Client certificates (mTLS).
    #[serde(default)]
    pub client: ClientAuth,
}

/// A certificate with its key. Paths are relative to the file that names them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Certificate chain, a PEM file: the certificate first, then its intermediates.
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub chain: String,
    /// Private key, a PEM file, without a passphrase.
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub key: String,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Client certificates (mTLS).
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientAuth {
    /// Whether client certificates are requested.
    #[serde(default)]
    pub mode: ClientAuthMode,
    /// CA certificates that clients are verified with, a PEM file. Required unless `mode` is `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub authorities: Option<String>,
    /// Request field with the subject of the verified certificate for endpoints, in the form of RFC 4514, such as
    /// `CN=ann,O=Acme`. Fields of this name that clients send are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_header: Option<String>,
}

/// Whether client certificates are requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuthMode {
    /// None is requested.
    #[default]
    Off,
    /// A certificate is optional; if one is sent, it is verified.
    Optional,
    /// A certificate is required.
    Required,
}

pub(super) fn handshake() -> Time {
    Time(limits::HANDSHAKE)
}
