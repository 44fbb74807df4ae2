//! Other instances.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bind, Certificate, PATH_FORMAT};

/// Other instances of the program, which replicate tables with `replicate: true` to each other: each sends what it counts to all others.
/// All instances may have the same `members`: each finds itself among them and leaves itself out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// Address and port that peers connect to. `tls` is required, unless this and all `members` are loopback addresses.
    pub listen: Bind,
    /// The instances: `ip:port` or `name:port`. A name is resolved again and again, and each of its addresses is an instance.
    #[schemars(length(min = 1, max = 64))]
    pub members: Vec<String>,
    /// Mutual TLS: each instance shows its certificate, whether it connects or is connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<PeersTls>,
    /// Speak in clear beyond loopback addresses, and with every host that reaches `listen`. Everyone there can read keys and change what limits
    /// count: use it only in a network that is encrypted and closed by other means.
    #[serde(default)]
    pub insecure: bool,
}

/// Mutual TLS between instances. Only TLS 1.3 is spoken.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeersTls {
    /// The certificate of this instance, which it shows on connections of both directions.
    pub certificate: Certificate,
    /// CA certificates that peers are verified with, a PEM file. Use a CA of its own.
    #[schemars(extend("format" = PATH_FORMAT))]
    pub authorities: String,
    /// Name that the certificates of peers must contain, on connections of both directions. By default the host of the member; a peer that
    /// connects must have the host of any member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}
