//! Access logs.

use std::collections::BTreeMap;

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_LINE, one_of};

/// Where formats have names.
pub(crate) const LOG_FORMATS: &str = "log_formats";

/// Where an access log is written: `path`, `stdout: true` or `syslog`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["path", "stdout", "syslog"])))]
pub struct AccessLog {
    /// A file, opened for appending and reopened on SIGUSR1. Relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub path: Option<String>,
    /// Standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub stdout: Option<bool>,
    /// A syslog receiver; each record is one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog: Option<Syslog>,
    /// Format of a record: one of these, or a name from `log_formats`.
    #[serde(default)]
    pub format: LogFormat,
    /// The line, with variables in braces, when `format` is `line`.
    #[serde(default = "log_line")]
    pub line: String,
    /// Which exchanges are written; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<LogWhen>,
    /// Values of CEL expressions, by names of letters, digits and `_`: `{value:NAME}` in a line, and in `values` of a JSON record. They
    /// are computed once the exchange is over, such as `tables.abuse.requests_rate`. At most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, String>,
}

/// Which exchanges an access log contains.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogWhen {
    /// A CEL expression that must be true, such as `response.code >= 500 || request.duration > duration("1s")`.
    #[schemars(length(min = 1))]
    pub expression: String,
}

/// Format of a record: a built-in one, or one of `log_formats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum LogFormat {
    /// A built-in format.
    Known(KnownLogFormat),
    /// One of `log_formats`, by name.
    Named(String),
}

impl Default for LogFormat {
    fn default() -> Self {
        Self::Known(KnownLogFormat::Line)
    }
}

/// A built-in format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "LogFormat")]
pub enum KnownLogFormat {
    /// A line of text with variables.
    Line,
    /// One JSON object on a line.
    Json,
    /// The Common Log Format: client, user, time, request, status and bytes.
    #[serde(rename = "common")]
    Clf,
    /// The Combined Log Format of Apache and nginx: the same, with `referer` and `user-agent`.
    Combined,
}

impl KnownLogFormat {
    /// All of them, with their names.
    pub(crate) const ALL: [(&str, Self); 4] =
        [("line", Self::Line), ("json", Self::Json), ("common", Self::Clf), ("combined", Self::Combined)];
}

/// A syslog receiver.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Syslog {
    /// `udp:HOST:PORT`, `tcp:HOST:PORT` or `unix:PATH`, such as `unix:/dev/log`. A host name is resolved when the configuration
    /// is read.
    pub to: String,
    /// Syslog facility of the messages.
    #[serde(default)]
    pub facility: Facility,
    /// Syslog severity of the messages.
    #[serde(default)]
    pub severity: Severity,
    /// The tag (program name) of the messages: letters, digits and `_-./`, 32 at most.
    #[serde(default = "tag")]
    pub tag: String,
    /// Syslog format. By default RFC 5424 over the network, and RFC 3164 to a Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<SyslogStyle>,
}

/// Syslog format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyslogStyle {
    /// The older one: `<134>Nov 22 09:05:07 host equipoise[71]: …`, in UTC; without the host to a Unix socket. Over TCP each
    /// message ends with a line feed (RFC 6587 section 3.4.2).
    Rfc3164,
    /// The newer one: `<134>1 2026-11-22T09:05:07.123Z host equipoise 71 - - …`. Over TCP each message is preceded by its length
    /// (RFC 6587 section 3.4.1).
    Rfc5424,
}

/// Syslog facility (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Facility {
    /// The kernel.
    Kern = 0,
    /// User programs.
    User = 1,
    /// Mail.
    Mail = 2,
    /// System daemons.
    Daemon = 3,
    /// Security and authentication.
    Auth = 4,
    /// Syslog itself.
    Syslog = 5,
    /// Printing.
    Lpr = 6,
    /// Network news.
    News = 7,
    /// UUCP.
    Uucp = 8,
    /// Clock daemon (cron).
    Cron = 9,
    /// Security and authentication, private.
    Authpriv = 10,
    /// FTP.
    Ftp = 11,
    /// For local use.
    #[default]
    Local0 = 16,
    /// For local use.
    Local1 = 17,
    /// For local use.
    Local2 = 18,
    /// For local use.
    Local3 = 19,
    /// For local use.
    Local4 = 20,
    /// For local use.
    Local5 = 21,
    /// For local use.
    Local6 = 22,
    /// For local use.
    Local7 = 23,
}

/// Syslog severity (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// System unusable.
    Emerg = 0,
    /// Immediate action required.
    Alert = 1,
    /// Critical.
    Crit = 2,
    /// An error.
    Err = 3,
    /// A warning.
    Warning = 4,
    /// Normal, but significant.
    Notice = 5,
    /// Informational.
    #[default]
    Info = 6,
    /// Debugging.
    Debug = 7,
}

fn log_line() -> String {
    DEFAULT_LINE.to_owned()
}

fn tag() -> String {
    limits::SYSLOG_TAG.to_owned()
}
