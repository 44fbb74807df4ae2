//! How sockets are set up. The default leaves everything to the kernel.

use std::net::IpAddr;
use std::time::Duration;

use crate::limits;

/// The sockets of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSocket {
    /// Connections that the kernel holds for one worker until it accepts them.
    pub backlog: u32,
    /// Bind though the address is not there yet.
    pub freebind: bool,
    /// Take data that come with the first packet of a connection (RFC 7413): so many such connections at once, for one worker.
    pub fast_open: Option<u32>,
    /// Of accepted connections.
    pub stream: StreamSocket,
    /// Of the file of a Unix socket.
    pub file: SocketFile,
}

impl Default for ListenerSocket {
    fn default() -> Self {
        let (stream, file) = (StreamSocket::default(), SocketFile::default());
        Self { backlog: limits::BACKLOG, freebind: false, fast_open: None, stream, file }
    }
}

/// Connections to the endpoints of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSocket {
    /// What the other side sees.
    pub source: Source,
    /// Send the first data with the first packet, to endpoints that take it (RFC 7413).
    pub fast_open: bool,
    /// The connections themselves.
    pub stream: StreamSocket,
}

/// From which address connections to endpoints are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// As routes of the kernel have it.
    #[default]
    Kernel,
    /// This one; one of each family at most.
    Address(Vec<IpAddr>),
    /// That of the client (`IP_TRANSPARENT`).
    Client,
}

/// A TCP connection. What is not given is up to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSocket {
    /// Ask whether the other side is still there.
    pub keepalive: Option<Keepalive>,
    /// Time that data may be without an acknowledgement (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// The DSCP of RFC 2474, 0 to 63.
    pub dscp: Option<u8>,
}

impl StreamSocket {
    /// Returns whether no option is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// When a silent connection is asked whether it is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first question. Whole seconds.
    pub idle: Duration,
    /// Between questions. Whole seconds.
    pub interval: Duration,
    /// Questions without an answer after which the connection is gone.
    pub count: u32,
}

/// The file of a Unix socket. What is not given is as the process makes files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketFile {
    /// Permissions.
    pub mode: Option<u32>,
    /// A user's name or number.
    pub owner: Option<String>,
    /// A group's name or number.
    pub group: Option<String>,
}
