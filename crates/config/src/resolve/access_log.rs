//! Access logs.

use model::Address;
use model::limits::{LOG_VALUES_MAX, SYSLOG_TAG_BYTES_MAX};
use model::snapshot::{self, SyslogAddress};

use serde_json::Value;

use super::Resolver;
use crate::diagnostic::did_you_mean;
use crate::file::{self, KnownLogFormat, LOG_FORMATS};
use crate::tree::Node;

/// Longest name of a value in an access log.
const VALUE_NAME_BYTES_MAX: usize = 64;

impl Resolver<'_> {
    pub(super) fn access_log(&mut self, index: usize, log: &mut file::AccessLog) -> Option<snapshot::AccessLog> {
        let at = format!("access_logs/{index}");
        let format = self.log_format(&at, log);
        let target = match &log.path {
            Some(path) if path.is_empty() => {
                self.report(&format!("{at}/path"), "the path is empty", None);
                return None;
            }
            Some(path) => snapshot::LogTarget::File(self.beside(path)),
            None => match &log.syslog {
                Some(syslog) => snapshot::LogTarget::Syslog(self.syslog(&format!("{at}/syslog"), syslog)?),
                None => snapshot::LogTarget::Stdout,
            },
        };
        let when = log.when.as_ref().map(|when| when.expression.clone());
        let format = format?;
        let values = self.log_values(&at, log, &format);
        Some(snapshot::AccessLog { target, format, when, values })
    }

    /// Checks the names of values. The expressions are compiled later.
    fn log_values(&mut self, at: &str, log: &file::AccessLog, format: &snapshot::LogFormat) -> Vec<(String, String)> {
        if matches!(format, snapshot::LogFormat::Clf | snapshot::LogFormat::Combined) && !log.values.is_empty() {
            let span = self.key_span(at, "values");
            let message = "`values` has no effect with a format that is fixed".to_owned();
            let mend = "use `format: line` with a `line` that names them, such as `{value:NAME}`, or `format: json`";
            self.sink.push(span, message, Some(mend.to_owned()));
        }
        if log.values.len() > LOG_VALUES_MAX {
            let message = format!("{} values are too many", log.values.len());
            self.report(&format!("{at}/values"), message, Some(format!("one log has at most {LOG_VALUES_MAX}")));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        for name in log.values.keys() {
            if name.is_empty() || name.len() > VALUE_NAME_BYTES_MAX || !name.bytes().all(is_plain) {
                let message = format!("`{}` cannot be the name of a value", name.escape_debug());
                let mend = format!("use letters, digits and `_`, {VALUE_NAME_BYTES_MAX} at most");
                self.report(&format!("{at}/values"), message, Some(mend));
            }
        }
        log.values.iter().map(|(name, text)| (name.clone(), text.clone())).collect()
    }

    fn log_format(&mut self, at: &str, log: &file::AccessLog) -> Option<snapshot::LogFormat> {
        let known = match &log.format {
            file::LogFormat::Known(known) => *known,
            file::LogFormat::Named(name) => {
                self.refuse_line(at, name);
                return self.named_format(&format!("{at}/format"), name);
            }
        };
        if let Some((name, _)) =
            KnownLogFormat::ALL.iter().find(|(_, one)| *one == known && known != KnownLogFormat::Line)
        {
            self.refuse_line(at, name);
        }
        Some(match known {
            KnownLogFormat::Line => {
                self.check_template(&format!("{at}/line"), &log.line);
                snapshot::LogFormat::Line(log.line.clone())
            }
            KnownLogFormat::Json => snapshot::LogFormat::Json,
            KnownLogFormat::Clf => snapshot::LogFormat::Clf,
            KnownLogFormat::Combined => snapshot::LogFormat::Combined,
        })
    }

    fn refuse_line(&mut self, at: &str, format: &str) {
        if self.has(at, "line") {
            let span = self.key_span(at, "line");
            let message = format!("`line` has no effect with `format: {format}`");
            self.sink.push(span, message, Some("leave one of them out".to_owned()));
        }
    }

    /// Finds a format of the file, by name.
    fn named_format(&mut self, at: &str, name: &str) -> Option<snapshot::LogFormat> {
        let formats = self.tree.get(LOG_FORMATS);
        match formats.and_then(|formats| formats.get(name)).map(|node| node.text().map(str::to_owned)) {
            Some(text) => text.map(snapshot::LogFormat::Line),
            None => {
                let known = KnownLogFormat::ALL.iter().map(|(name, _)| *name);
                let named = formats.map_or(&[][..], Node::entries).iter().map(|(name, _)| name.text.as_str());
                let mend = did_you_mean(name, known.chain(named));
                self.report(at, format!("there is no log format `{name}`"), mend);
                None
            }
        }
    }

    /// Checks the formats of the file, whether or not a log uses them; gives them as they are shown.
    pub(super) fn log_formats(&mut self) -> Option<Value> {
        let formats = self.tree.get(LOG_FORMATS)?;
        for (name, node) in formats.entries() {
            if KnownLogFormat::ALL.iter().any(|(known, _)| name.text == *known) {
                let message = format!("`{}` is a built-in format", name.text);
                self.sink.push(name.span, message, Some("choose another name".to_owned()));
            }
            if let Some(text) = node.text() {
                self.check_template(&format!("{LOG_FORMATS}/{}", name.text), text);
            }
        }
        Some(formats.to_value())
    }

    fn check_template(&mut self, at: &str, text: &str) {
        if let Err(message) = model::template::parse(text) {
            self.report(at, message, None);
        } else if text.contains(['\n', '\r']) {
            self.report(at, "a log line cannot contain a line break", None);
        }
    }

    fn syslog(&mut self, at: &str, written: &file::Syslog) -> Option<snapshot::Syslog> {
        let to = self.syslog_address(&format!("{at}/to"), &written.to);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        if written.tag.is_empty() || written.tag.len() > SYSLOG_TAG_BYTES_MAX || !written.tag.bytes().all(is_plain) {
            let message = format!("`{}` cannot be the name of a program in a syslog message", written.tag);
            let mend = format!("use letters, digits and `_-./`, {SYSLOG_TAG_BYTES_MAX} at most");
            self.report(&format!("{at}/tag"), message, Some(mend));
        }
        let to = to?;
        let style = match written.style {
            Some(file::SyslogStyle::Rfc3164) => snapshot::SyslogStyle::Rfc3164,
            Some(file::SyslogStyle::Rfc5424) => snapshot::SyslogStyle::Rfc5424,
            None if matches!(to, SyslogAddress::Unix(_)) => snapshot::SyslogStyle::Rfc3164,
            None => snapshot::SyslogStyle::Rfc5424,
        };
        let priority = (written.facility as u8) << 3 | written.severity as u8;
        Some(snapshot::Syslog { to, priority, tag: written.tag.clone(), style })
    }

    fn syslog_address(&mut self, path: &str, text: &str) -> Option<SyslogAddress> {
        let address = match text.split_once(':') {
            Some(("unix", rest)) => self.unix_path(path, rest)?,
            Some(("udp" | "tcp", rest)) if !rest.starts_with("unix:") => self.endpoint_address(path, rest)?,
            _ => {
                let is_bare = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                let mend = match text {
                    path if path.starts_with('/') => format!("write `unix:{path}`"),
                    bare if is_bare && !bare.contains('/') => format!("write `udp:{bare}` or `tcp:{bare}`"),
                    _ => "write it like `udp:192.0.2.1:514`, `tcp:192.0.2.1:514` or `unix:/dev/log`".to_owned(),
                };
                self.report(path, format!("`{text}` has no protocol"), Some(mend));
                return None;
            }
        };
        Some(match address {
            Address::Unix(path) => SyslogAddress::Unix(path.to_string()),
            Address::Ip(address) if text.starts_with("tcp") => SyslogAddress::Tcp(address),
            Address::Ip(address) => SyslogAddress::Udp(address),
        })
    }
}
