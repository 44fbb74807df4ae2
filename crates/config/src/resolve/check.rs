//! Active checks.

use std::collections::BTreeMap;

use model::check::{CheckStep, GrpcCheck, HealthCheck, HealthCheckKind, ScriptStep};
use model::fields::{is_field_value, is_token};

use super::Resolver;
use crate::file;
use crate::units::{Time, show_duration};

/// What a check writes itself, or what would change how long its message is (RFC 9110 section 7.6.1, RFC 9112 section 6).
pub(super) const FRAMING_FIELDS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What a check over gRPC writes itself beside those.
const OWN_GRPC_FIELDS: [&str; 4] = ["host", "content-type", "grpc-timeout", "grpc-encoding"];

/// What is asked in one step, as it is written: in the check itself, or in one of its `steps`.
pub(super) struct Part<'a> {
    pub(super) at: String,
    tls: Option<&'a file::ClusterTlsSettings>,
    http: Option<&'a file::HttpCheck>,
    grpc: Option<&'a file::GrpcCheck>,
    script: Option<&'a Vec<file::ScriptStep>>,
    own_port: Option<u16>,
    /// Its own, or that of the check.
    pub(super) port: Option<u16>,
    timeout: Option<Time>,
}

impl<'a> Part<'a> {
    /// Returns all that the check at `at` asks, in order.
    pub(super) fn all(at: &str, check: &'a file::HealthCheck) -> Vec<Self> {
        let Some(steps) = &check.steps else {
            return vec![Self {
                at: at.to_owned(),
                tls: check.tls.as_ref(),
                http: check.http.as_ref(),
                grpc: check.grpc.as_ref(),
                script: check.script.as_ref(),
                own_port: check.port,
                port: check.port,
                timeout: None,
            }];
        };
        let part = |(index, step): (usize, &'a file::CheckStep)| Self {
            at: format!("{at}/steps/{index}"),
            tls: step.tls.as_ref(),
            http: step.http.as_ref(),
            grpc: step.grpc.as_ref(),
            script: step.script.as_ref(),
            own_port: step.port,
            port: step.port.or(check.port),
            timeout: step.timeout,
        };
        steps.iter().enumerate().map(part).collect()
    }

    fn name(&self) -> &'static str {
        match self {
            Self { http: Some(_), .. } => "http",
            Self { tls: Some(_), .. } => "tls",
            Self { grpc: Some(_), .. } => "grpc",
            Self { script: Some(_), .. } => "script",
            _ => "tcp",
        }
    }

    /// Returns whether it speaks HTTP, over any version.
    fn speaks_http(&self) -> bool {
        self.http.is_some() || self.grpc.is_some()
    }
}

impl Resolver<'_> {
    pub(super) fn health_check(&mut self, at: &str, written: &file::HealthCheck) -> HealthCheck {
        let parts = Part::all(at, written);
        if written.reuse_connection && (parts.len() > 1 || parts.iter().any(|part| part.http.is_none())) {
            let path = format!("{at}/reuse_connection");
            let message = match parts.len() {
                0 | 1 => "only `http` checks can reuse a connection",
                _ => "a check of several steps opens a connection for each of them",
            };
            self.report(&path, message, Some("leave it out".to_owned()));
        }
        HealthCheck {
            steps: parts.iter().map(|part| self.check_step(part, written.timeout)).collect(),
            is_listed: written.steps.is_some(),
            interval: written.interval.0,
            interval_down: written.interval_down.unwrap_or(written.interval).0,
            interval_changing: written.interval_changing.unwrap_or(written.interval).0,
            jitter_percent: written.jitter.0,
            timeout: written.timeout.0,
            rise: written.rise,
            fall: written.fall,
            held_out: written.start == file::CheckStart::HeldOut,
            reuses_connection: written.reuse_connection,
        }
    }

    fn check_step(&mut self, part: &Part<'_>, whole: Time) -> CheckStep {
        let at = &part.at;
        if let Some(timeout) = part.timeout.filter(|timeout| timeout.0 > whole.0) {
            let (own, whole) = (show_duration(timeout.0), show_duration(whole.0));
            let message = format!("this step may take {own}, but the whole check ends after {whole}");
            let mend = format!("write {whole} or less, or raise `timeout` of the check");
            self.report(&format!("{at}/timeout"), message, Some(mend));
        }
        let kind = match part {
            Part { http: Some(http), .. } => HealthCheckKind::Http(self.http_check(&format!("{at}/http"), http)),
            Part { tls: Some(tls), .. } => HealthCheckKind::Tls(self.upstream_tls(&format!("{at}/tls"), tls)),
            Part { grpc: Some(grpc), .. } => HealthCheckKind::Grpc(self.grpc_check(&format!("{at}/grpc"), grpc)),
            Part { script: Some(lines), .. } => HealthCheckKind::Script(self.script(&format!("{at}/script"), lines)),
            _ => HealthCheckKind::Tcp,
        };
        CheckStep { kind, port: part.port, timeout: part.timeout.map(|timeout| timeout.0) }
    }

    /// Refuses what cannot be asked of endpoints that speak HTTP/2 or HTTP/3 alone: they are asked over that, on a new connection
    /// each time. Another port is one of TCP, and of whatever listens there.
    pub(super) fn check_fits_version(
        &mut self,
        at: &str,
        name: &str,
        check: &file::HealthCheck,
        only: file::HttpVersion,
    ) {
        let (parts, is_http3) = (Part::all(at, check), only == file::HttpVersion::H3);
        for part in parts.iter().filter(|part| is_http3 && part.port.is_none() && !part.speaks_http()) {
            let kind = part.name();
            let message = format!("a check over `{kind}` goes over TCP, and cluster `{name}` speaks HTTP/3 over UDP");
            let mend = "use an `http` or `grpc` check, which goes over HTTP/3 there, or set a TCP `port`".to_owned();
            let span = self.key_span(&part.at, kind);
            self.sink.push(span, message, Some(mend));
        }
        let asks_there = |part: &Part<'_>| part.http.is_some() && part.port.is_none();
        if check.reuse_connection && parts.len() == 1 && parts.iter().any(asks_there) {
            let version = if is_http3 { "HTTP/3" } else { "HTTP/2" };
            let message = format!("cluster `{name}` speaks only {version}, and each check opens a new connection");
            let path = format!("{at}/reuse_connection");
            self.report(&path, message, Some("leave it out, or check at a `port` that speaks HTTP/1.1".to_owned()));
        }
    }

    /// Refuses ports where an endpoint is a Unix socket.
    pub(super) fn check_fits_unix(&mut self, at: &str, check: &file::HealthCheck, endpoint: &str) {
        let listed = Part::all(at, check).into_iter().filter(|part| part.own_port.is_some()).map(|part| part.at);
        let whole = check.port.filter(|_| check.steps.is_some()).map(|_| at.to_owned());
        for at in listed.chain(whole) {
            let message = format!("`{endpoint}` has no ports, so `port` has no effect for it");
            self.report(&format!("{at}/port"), message, Some("leave it out".to_owned()));
        }
    }

    pub(super) fn check_host(&mut self, at: &str, host: Option<&String>) {
        if let Some(host) = host {
            let authority = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
            self.host(at, authority.map_or(host, |(host, _)| host));
        }
    }

    fn grpc_check(&mut self, at: &str, written: &file::GrpcCheck) -> GrpcCheck {
        self.check_host(&format!("{at}/host"), written.host.as_ref());
        GrpcCheck {
            name: written.name.clone(),
            host: written.host.clone(),
            fields: self.check_fields(&format!("{at}/headers"), &written.headers, &OWN_GRPC_FIELDS),
        }
    }

    /// Returns the fields that a check sends. `own`: what it writes itself beside the framing.
    pub(super) fn check_fields(
        &mut self,
        at: &str,
        written: &BTreeMap<String, String>,
        own: &[&str],
    ) -> Vec<(String, String)> {
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in written {
            let path = format!("{at}/{name}");
            let is_one_of = |names: &[&str]| names.iter().any(|one| name.eq_ignore_ascii_case(one));
            if !is_token(name.as_bytes()) {
                self.report(&path, format!("`{name}` is not the name of a header field"), None);
            } else if is_one_of(&FRAMING_FIELDS) {
                let message = format!("`{name}` belongs to the framing, which the check sets itself");
                let mend = match name.eq_ignore_ascii_case("content-length") {
                    true => "leave it out: it follows from the body",
                    false => "leave it out",
                };
                self.report(&path, message, Some(mend.to_owned()));
            } else if is_one_of(own) {
                self.report(&path, format!("`{name}` is set by the check itself"), None);
            } else if is_one_of(&seen) {
                self.report(&path, format!("`{name}` is listed twice"), None);
            } else if !is_field_value(value.as_bytes()) {
                self.report(
                    &path,
                    format!("the value of `{name}` contains a character that no header field may have"),
                    None,
                );
            }
            seen.push(name);
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
