//! Bounds on the connections of each client address.

use model::filter::RATE_FORMAT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits on the connections of each client address: that of the peer, or the one in the PROXY header of a trusted peer. They
/// apply before TLS and before a byte is read, exactly over all workers. Connections beyond them are reset, and counted as the
/// fault `address_full`. HTTP/3 connections count once their handshake has proven the address.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsPerAddress {
    /// Open connections of one address. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max: Option<u32>,
    /// New connections of one address in the long run: `10/s`, `300/m`, `1000/h` or `5/10s`. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = RATE_FORMAT))]
    pub rate: Option<String>,
    /// New connections that one address may open at once, beside `rate`. By default what the rate gives in one second, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub burst: Option<u32>,
    /// Addresses and networks without these limits, such as your own load balancers and monitoring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Bits of an IPv4 address that identify a client.
    #[serde(default = "all_bits")]
    #[schemars(range(min = 1, max = 32))]
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address that identify a client. One client usually has 64 bits of its own.
    #[serde(default = "half_the_bits")]
    #[schemars(range(min = 1, max = 128))]
    pub ipv6_prefix: u8,
    /// Limit on addresses whose rate is remembered, with 16 bytes each. Beyond it, those with the most allowance left are forgotten.
    #[serde(default = "keys_max")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub keys_max: u32,
}

fn all_bits() -> u8 {
    32
}

fn half_the_bits() -> u8 {
    64
}

fn keys_max() -> u32 {
    100_000
}
