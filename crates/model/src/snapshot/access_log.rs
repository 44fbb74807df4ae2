//! Access logs: what is written, and where.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where records of exchanges are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// File, or standard output.
    pub target: LogTarget,
    /// How a record looks.
    pub format: LogFormat,
    /// An expression: only exchanges for which it holds are written. `None`: all.
    pub when: Option<String>,
    /// Names and expressions whose values a line may hold, in the order of their names; at most
    /// [`LOG_VALUES_MAX`](crate::limits::LOG_VALUES_MAX).
    pub values: Vec<(String, String)>,
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended; reopened on SIGUSR1.
    File(PathBuf),
    /// A message for each record.
    Syslog(Syslog),
}

/// A receiver of syslog messages, and what they say beside the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    /// Where it is.
    pub to: SyslogAddress,
    /// Facility times eight, and severity (RFC 5424 section 6.2.1).
    pub priority: u8,
    /// Name of the program, of letters, digits and `_-./`.
    pub tag: String,
    /// How messages are written.
    pub style: SyslogStyle,
}

/// Where a receiver of syslog messages is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A datagram for each message (RFC 5426).
    Udp(SocketAddr),
    /// A connection (RFC 6587).
    Tcp(SocketAddr),
    /// A Unix socket of datagrams: a path, or with `@` first a name in the abstract namespace.
    Unix(String),
}

impl fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// How syslog messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyslogStyle {
    /// RFC 3164, section 4.
    Rfc3164,
    /// RFC 5424, section 6.
    Rfc5424,
}

/// How a record looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// A template, see [`crate::template`].
    Line(String),
    /// The Common Log Format.
    Clf,
    /// The Combined Log Format of Apache and nginx.
    Combined,
}
