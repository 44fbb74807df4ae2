//! How fast the bytes of connections move.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes per second of each connection of a TCP listener, from 1B/s to 1000GB/s. Both directions are unlimited by default. Bytes that must
/// wait stay at their sender: the proxy reads no faster than it sends. A PROXY header and TLS records are not counted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// To the client, such as `1MB/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]+ *(B|kB|KB|MB|GB|KiB|MiB|GiB)?/s$"))]
    pub download: Option<String>,
    /// To the endpoint, such as `500kB/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]+ *(B|kB|KB|MB|GB|KiB|MiB|GiB)?/s$"))]
    pub upload: Option<String>,
}
