//! Access logs.

use model::Address;
use model::limits::SYSLOG_TAG_BYTES_MAX;
use model::snapshot::{self, SyslogAddress};

use super::Resolver;
use crate::file;

impl Resolver<'_> {
    pub(super) fn access_log(&mut self, index: usize, log: &mut file::AccessLog) -> Option<snapshot::AccessLog> {
        let at = format!("access_logs/{index}");
        if log.format == file::LogFormat::Json && self.has(&at, "line") {
            let span = self.key_span(&at, "line");
            self.sink.push(span, "`line` has no meaning with `format: json`", Some("leave one of them out".to_owned()));
        } else if let Err(message) = model::template::parse(&log.line) {
            self.report(&format!("{at}/line"), message, None);
        } else if log.line.contains(['\n', '\r']) {
            self.report(&format!("{at}/line"), "a line of a log cannot hold a line end", None);
        }
        let format = match log.format {
            file::LogFormat::Json => snapshot::LogFormat::Json,
            file::LogFormat::Line => snapshot::LogFormat::Line(log.line.clone()),
        };
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
        Some(snapshot::AccessLog { target, format })
    }

    fn syslog(&mut self, at: &str, written: &file::Syslog) -> Option<snapshot::Syslog> {
        let to = self.syslog_address(&format!("{at}/to"), &written.to);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
        if written.tag.is_empty() || written.tag.len() > SYSLOG_TAG_BYTES_MAX || !written.tag.bytes().all(is_plain) {
            let message = format!("`{}` cannot be the name of a program in a syslog message", written.tag);
            let mend = format!("take letters, digits and `_-./`, {SYSLOG_TAG_BYTES_MAX} at most");
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
                self.report(path, format!("`{text}` does not say how the receiver is reached"), Some(mend));
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
