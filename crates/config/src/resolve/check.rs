//! Active checks.

use std::collections::BTreeMap;

use model::check::{GrpcCheck, HealthCheck, HealthCheckKind, HttpCheck, ScriptStep};
use model::fields::{is_field_value, is_token};

use super::Resolver;
use super::cluster::status_range;
use crate::file;

/// What a check writes itself, or what would change how long its message is.
const OWN_FIELDS: [&str; 5] = ["host", "connection", "content-length", "transfer-encoding", "upgrade"];
/// The same of a check by gRPC, beside those.
const OWN_GRPC_FIELDS: [&str; 6] =
    ["te", "content-type", "grpc-timeout", "grpc-encoding", "keep-alive", "proxy-connection"];

impl Resolver<'_> {
    pub(super) fn health_check(&mut self, at: &str, written: &file::HealthCheck) -> Option<HealthCheck> {
        let kind = if let Some(http) = &written.http {
            HealthCheckKind::Http(self.http_check(&format!("{at}/http"), http))
        } else if let Some(tls) = &written.tls {
            HealthCheckKind::Tls(self.upstream_tls(&format!("{at}/tls"), tls))
        } else if let Some(grpc) = &written.grpc {
            HealthCheckKind::Grpc(self.grpc_check(&format!("{at}/grpc"), grpc))
        } else if let Some(steps) = &written.script {
            HealthCheckKind::Script(self.script(&format!("{at}/script"), steps))
        } else {
            HealthCheckKind::Tcp
        };
        if written.reuse_connection && !matches!(kind, HealthCheckKind::Http(_)) {
            let path = format!("{at}/reuse_connection");
            self.report(&path, "only checks by `http` can use a connection again", Some("leave it out".to_owned()));
        }
        Some(HealthCheck {
            kind,
            port: written.port,
            interval: written.interval.0,
            interval_down: written.interval_down.unwrap_or(written.interval).0,
            interval_changing: written.interval_changing.unwrap_or(written.interval).0,
            jitter_percent: written.jitter.0,
            timeout: written.timeout.0,
            rise: written.rise,
            fall: written.fall,
            held_out: written.start == file::CheckStart::HeldOut,
            reuses_connection: written.reuse_connection,
        })
    }

    fn http_check(&mut self, at: &str, written: &file::HttpCheck) -> HttpCheck {
        let path = &written.path;
        if !path.starts_with('/') {
            let mend = Some(format!("write `/{path}`"));
            self.report(&format!("{at}/path"), format!("the path `{path}` does not begin with `/`"), mend);
        } else if path.bytes().any(|b| b <= b' ' || b >= 0x7f || b == b'#') {
            let message = format!("the path `{path}` holds a character that no request has");
            self.report(&format!("{at}/path"), message, None);
        }
        self.check_host(at, written.host.as_ref());
        let mut statuses = Vec::new();
        for (index, status) in written.statuses.iter().enumerate() {
            match status_range(&status.to_string()) {
                Some(range) => statuses.push(range),
                None => {
                    let mend =
                        "write a status such as 200, a class such as 2xx, or a range such as 200-299, from 100 to 599"
                            .to_owned();
                    let message = format!("`{status}` is not a status, nor a range of them");
                    self.report(&format!("{at}/statuses/{index}"), message, Some(mend));
                }
            }
        }
        let is_head = written.method == file::CheckMethod::HEAD;
        if is_head && written.expect_body.is_some() {
            let message = "an answer to HEAD has no body";
            self.report(&format!("{at}/expect_body"), message, Some("leave out `method: HEAD`".to_owned()));
        }
        HttpCheck {
            is_head,
            path: path.clone(),
            host: written.host.clone(),
            fields: self.check_fields(&format!("{at}/headers"), &written.headers, &OWN_FIELDS),
            statuses,
            expected_fields: self.check_fields(&format!("{at}/expect_headers"), &written.expect_headers, &[]),
            expected_body: written.expect_body.clone(),
        }
    }

    fn check_host(&mut self, at: &str, host: Option<&String>) {
        if let Some(host) = host {
            let authority = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
            self.host(&format!("{at}/host"), authority.map_or(host, |(host, _)| host));
        }
    }

    fn grpc_check(&mut self, at: &str, written: &file::GrpcCheck) -> GrpcCheck {
        self.check_host(at, written.host.as_ref());
        let own = [&OWN_FIELDS[..], &OWN_GRPC_FIELDS].concat();
        GrpcCheck {
            name: written.name.clone(),
            host: written.host.clone(),
            fields: self.check_fields(&format!("{at}/headers"), &written.headers, &own),
        }
    }

    fn check_fields(&mut self, at: &str, written: &BTreeMap<String, String>, own: &[&str]) -> Vec<(String, String)> {
        for (name, value) in written {
            let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            if !is_token(name.as_bytes()) {
                self.report(&path, format!("`{name}` is not the name of a header field"), None);
            } else if own.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                self.report(&path, format!("`{name}` is written by the check itself"), None);
            } else if !is_field_value(value.as_bytes()) {
                self.report(&path, format!("the value of `{name}` holds a character that no header field has"), None);
            }
        }
        written.iter().map(|(name, value)| (name.clone(), value.trim().to_owned())).collect()
    }

    fn script(&mut self, at: &str, written: &[file::ScriptStep]) -> Vec<ScriptStep> {
        let mut steps = Vec::new();
        for (index, step) in written.iter().enumerate() {
            let mut hex = |key: &str, text: &str| {
                let bytes = from_hex(text);
                if bytes.is_none() {
                    let mend = Some("write two digits for each byte, as in `0d0a`".to_owned());
                    self.report(&format!("{at}/{index}/{key}"), format!("`{text}` is not hexadecimal"), mend);
                }
                bytes.unwrap_or_default()
            };
            steps.push(match step {
                file::ScriptStep { send: Some(text), .. } => ScriptStep::Send(text.clone().into_bytes()),
                file::ScriptStep { send_hex: Some(text), .. } => ScriptStep::Send(hex("send_hex", text)),
                file::ScriptStep { expect: Some(text), .. } => ScriptStep::Expect(text.clone().into_bytes()),
                file::ScriptStep { expect_hex, .. } => {
                    ScriptStep::Expect(hex("expect_hex", expect_hex.as_deref().unwrap_or_default()))
                }
            });
        }
        steps
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>().filter(|bytes| !bytes.is_empty())
}
