//! How sockets are set up.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use crate::units::Time;

/// How the sockets of a listener are set up.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerSocket {
    /// Connections that the kernel holds for each worker until it takes them; 4096 by default. The system's
    /// `net.core.somaxconn` may lower it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub backlog: Option<u32>,
    /// Ask clients that are silent whether they are still there. By default they are not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// Time after which a connection is given up whose data are not acknowledged. By default the kernel's, about 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<Time>,
    /// Class of what is sent, the DSCP of RFC 2474. HTTP/3 does not heed it: its packets say of themselves whether there is a jam.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub dscp: Option<u8>,
    /// TCP Fast Open (RFC 7413): clients that were here before may send data with their first packet. So many of these connections
    /// at once, for each worker. By default none. Needs `net.ipv4.tcp_fastopen=3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub fast_open: Option<u32>,
    /// Listen at an address that this machine does not have yet, such as one that moves between two machines.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub freebind: bool,
    /// Unix sockets: permissions of the file, in octal, such as `"0660"`. By default as the process makes files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Unix sockets: user that owns the file, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Unix sockets: group of the file, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// How connections to endpoints are set up.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSocket {
    /// Address from which connections are made, or one of each family; `client` makes them from the address of the client,
    /// which needs `CAP_NET_ADMIN` and routes that bring the answers back. By default the kernel chooses.
    pub source_address: OneOrMany,
    /// TCP Fast Open (RFC 7413): the first data go with the first packet, to endpoints that take it. The network may bring such a
    /// packet twice, so an endpoint may see a request twice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fast_open: bool,
    /// Ask endpoints that are silent whether they are still there. By default they are not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
    /// Time after which a connection is given up whose data are not acknowledged. By default the kernel's, about 15 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_timeout: Option<Time>,
    /// Class of what is sent, the DSCP of RFC 2474. HTTP/3 does not heed it: its packets say of themselves whether there is a jam.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 63))]
    pub dscp: Option<u8>,
}

/// When the other side of a silent connection is asked whether it is still there.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// Silence before the first question, in whole seconds.
    pub idle: Time,
    /// Time between questions, in whole seconds.
    pub interval: Time,
    /// Questions without an answer after which the connection is given up.
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
