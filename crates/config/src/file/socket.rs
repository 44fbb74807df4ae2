//! How sockets are set up.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::units::Time;

/// Socket options of a listener.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerSocket {
    /// Listen backlog of each worker: connections that the kernel holds until they are accepted; 4096 by default. The system's
    /// `net.core.somaxconn` may lower it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub backlog: Option<u32>,
    /// TCP keep-alive towards clients. Off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// TCP user time-out: time without acknowledgement of sent data after which a connection is closed. By default the
    /// kernel's, about 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<Time>,
    /// DSCP of sent packets (RFC 2474). HTTP/3 ignores it, because its packets carry ECN.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub dscp: Option<u8>,
    /// TCP Fast Open (RFC 7413): returning clients may send data with their first packet. The value is the number of such
    /// pending connections for each worker. Off by default. Needs `net.ipv4.tcp_fastopen=3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub fast_open: Option<u32>,
    /// Bind an address that this machine does not have yet (`IP_FREEBIND`), such as a floating address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub freebind: bool,
    /// Unix sockets: file permissions, in octal, such as `"0660"`. By default they follow the umask of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Unix sockets: user that owns the file, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Unix sockets: group of the file, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Socket options of connections to endpoints.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSocket {
    /// Source address of connections, or one of each family; `client` uses the address of the client (transparent proxy), which
    /// needs `CAP_NET_ADMIN` and routes that bring the responses back. By default the kernel chooses.
    pub source_address: OneOrMany,
    /// TCP Fast Open (RFC 7413): the first data are sent with the first packet, to endpoints that support it. The network may
    /// duplicate such a packet, so an endpoint may see a request twice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fast_open: bool,
    /// TCP keep-alive towards endpoints. Off by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// TCP user time-out: time without acknowledgement of sent data after which a connection is closed. By default the
    /// kernel's, about 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<Time>,
    /// DSCP of sent packets (RFC 2474). HTTP/3 ignores it, because its packets carry ECN.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub dscp: Option<u8>,
}

/// TCP keep-alive probes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// Silence before the first probe, in whole seconds.
    pub idle: Time,
    /// Time between probes, in whole seconds.
    pub interval: Time,
    /// Unanswered probes after which the connection is closed.
    #[schemars(range(min = 1, max = 127))]
    pub count: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: Time(limits::KEEPALIVE_IDLE),
            interval: Time(limits::KEEPALIVE_INTERVAL),
            count: limits::KEEPALIVES,
        }
    }
}
