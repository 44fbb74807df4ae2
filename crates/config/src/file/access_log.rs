//! Access logs.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_LINE, one_of};

/// Where formats have names.
pub(crate) const LOG_FORMATS: &str = "log_formats";

/// Where records of exchanges are written: `path`, `stdout: true` or `syslog`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["path", "stdout", "syslog"])))]
pub struct AccessLog {
    /// A file, which is appended to and reopened on SIGUSR1. Relative to the file that names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub path: Option<String>,
    /// Standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("const" = true))]
    pub stdout: Option<bool>,
    /// A receiver of syslog messages; each record is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog: Option<Syslog>,
    /// How a record looks: one of these, or a name from `log_formats`.
    #[serde(default)]
    pub format: LogFormat,
    /// The line, with variables in braces, when `format` is `line`.
    #[serde(default = "log_line")]
    pub line: String,
}

/// How a record looks: a format of the program, or one of `log_formats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum LogFormat {
    /// One of the program.
    Known(KnownLogFormat),
    /// One of `log_formats`, by name.
    Named(String),
}

impl Default for LogFormat {
    fn default() -> Self {
        Self::Known(KnownLogFormat::Line)
    }
}

/// A format of the program.
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

/// A receiver of syslog messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Syslog {
    /// `udp:HOST:PORT`, `tcp:HOST:PORT` or `unix:PATH`, such as `unix:/dev/log`. A name is looked up when the configuration
    /// is read.
    pub to: String,
    /// What kind of program speaks.
    #[serde(default)]
    pub facility: Facility,
    /// How serious a record is said to be.
    #[serde(default)]
    pub severity: Severity,
    /// The name of the program in the message: letters, digits and `_-./`, 32 at most.
    #[serde(default = "tag")]
    pub tag: String,
    /// How a message is written. By default as RFC 5424 says over the network, and as RFC 3164 does to a Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub style: Option<SyslogStyle>,
}

/// How a syslog message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyslogStyle {
    /// The older one: `<134>Nov 22 09:05:07 host equipoise[71]: …`, in UTC; without the host to a Unix socket. Over TCP a line
    /// end follows each message (RFC 6587 section 3.4.2).
    Rfc3164,
    /// The newer one: `<134>1 2026-11-22T09:05:07.123Z host equipoise 71 - - …`. Over TCP each message is preceded by its length
    /// (RFC 6587 section 3.4.1).
    Rfc5424,
}

/// What kind of program speaks (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Facility {
    /// The kernel.
    Kern = 0,
    /// A program of a user.
    User = 1,
    /// Mail.
    Mail = 2,
    /// A program in the background.
    Daemon = 3,
    /// Who comes in.
    Auth = 4,
    /// Syslog itself.
    Syslog = 5,
    /// Printing.
    Lpr = 6,
    /// Network news.
    News = 7,
    /// UUCP.
    Uucp = 8,
    /// What runs at a time.
    Cron = 9,
    /// Who comes in, not for everybody to read.
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

/// How serious a message is (RFC 5424 section 6.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Unusable.
    Emerg = 0,
    /// To be mended now.
    Alert = 1,
    /// Critical.
    Crit = 2,
    /// An error.
    Err = 3,
    /// A warning.
    Warning = 4,
    /// Normal, but worth a look.
    Notice = 5,
    /// To inform.
    #[default]
    Info = 6,
    /// To find mistakes.
    Debug = 7,
}

fn log_line() -> String {
    DEFAULT_LINE.to_owned()
}

fn tag() -> String {
    limits::SYSLOG_TAG.to_owned()
}
