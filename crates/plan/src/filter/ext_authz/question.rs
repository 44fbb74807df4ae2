//! `envoy.service.auth.v3.CheckRequest`: what the service gets of a request.

use std::net::IpAddr;

use model::facts::TlsFacts;
use model::fields::Field;
use model::protobuf::Writer;
use model::{FieldName, Known, RequestHead, Version};

use crate::filter::Turn;
use crate::filter::template::Template;

/// What of a request is sent.
pub(super) struct Question {
    /// `None`: all fields.
    pub(super) request_headers: Option<Vec<FieldName>>,
    pub(super) extensions: Vec<(String, Template)>,
    /// The body may be anything, not only text.
    pub(super) is_body_raw: bool,
}

/// The body as far as it is sent.
#[derive(Clone, Copy)]
pub(super) struct SentBody<'b> {
    pub bytes: &'b [u8],
    /// It may be longer.
    pub is_part: bool,
}

impl Question {
    /// Writes it.
    pub(super) fn write(&self, out: &mut Writer, head: &RequestHead, body: Option<SentBody<'_>>, turn: &mut Turn<'_>) {
        let facts = turn.facts;
        let now = (turn.wall_clock)();
        // The port belongs to the peer, and not to a client that a proxy reports.
        let port = if facts.client == facts.peer.ip() { facts.peer.port() } else { 0 };
        out.message(1, |attributes| {
            attributes.message(1, |source| {
                write_address(source, facts.client, port);
                source.text(4, facts.tls.map_or("", principal).as_bytes());
            });
            attributes.message(2, |own| write_address(own, facts.local.ip(), facts.local.port()));
            attributes.message(4, |request| {
                request.message(1, |time| {
                    time.number(1, now.as_secs());
                    time.number(2, now.subsec_nanos().into());
                });
                request.message(2, |http| self.write_http(http, head, body, turn));
            });
            for (name, value) in &self.extensions {
                let (values, scratch) = turn.values(head);
                scratch.clear();
                value.write(&values, scratch);
                attributes.entry(10, name.as_bytes(), scratch);
            }
            if let Some(name) = facts.tls.and_then(|tls| tls.server_name.as_deref()) {
                attributes.message(12, |session| session.text(1, name.as_bytes()));
            }
        });
    }

    fn write_http(&self, http: &mut Writer, head: &RequestHead, body: Option<SentBody<'_>>, turn: &mut Turn<'_>) {
        let scheme = turn.facts.scheme.as_str().as_bytes();
        let path = &mut *turn.scratch;
        path.clear();
        path.extend_from_slice(head.path());
        if let Some(query) = head.query() {
            path.push(b'?');
            path.extend_from_slice(query);
        }
        http.text(1, turn.facts.request_id.as_bytes());
        http.text(2, head.method_bytes());
        for (name, value) in [
            (&b":authority"[..], head.authority()),
            (b":method", head.method_bytes()),
            (b":path", path),
            (b":scheme", scheme),
        ] {
            http.entry(3, name, value);
        }
        self.write_fields(http, head);
        if let Some(body) = body {
            // By this name programs for Envoy look for a body that is cut.
            http.entry(3, b"x-envoy-auth-partial-body", if body.is_part { b"true" } else { b"false" });
        }
        http.text(4, path);
        http.text(5, head.authority());
        http.text(6, scheme);
        http.number(9, size(head, body));
        http.text(10, head.version.as_str().as_bytes());
        let bytes = body.map_or(&[][..], |body| body.bytes);
        if self.is_body_raw {
            http.bytes(12, bytes);
        } else {
            http.text(11, bytes);
        }
    }

    fn write_fields(&self, http: &mut Writer, head: &RequestHead) {
        let is_wanted = |field: &Field<'_>| {
            let is_listed = |list: &Vec<FieldName>| {
                list.iter().any(|name| field.name.eq_ignore_ascii_case(name.as_str().as_bytes()))
            };
            // What the filter says of the body is not the client's to say.
            field.known != Known::Host
                && !field.known.is_hop_by_hop()
                && !field.name.eq_ignore_ascii_case(b"x-envoy-auth-partial-body")
                && self.request_headers.as_ref().is_none_or(is_listed)
        };
        let (mut name, mut value) = (Vec::new(), Vec::new());
        let wanted = head.fields.iter().filter(is_wanted);
        for (place, field) in wanted.clone().enumerate() {
            let is_same = |other: &Field<'_>| other.name.eq_ignore_ascii_case(field.name);
            if wanted.clone().take(place).any(|other| is_same(&other)) {
                continue;
            }
            name.clear();
            name.extend(field.name.iter().map(u8::to_ascii_lowercase));
            value.clear();
            for other in wanted.clone().skip(place).filter(is_same) {
                if !value.is_empty() {
                    // RFC 9113 section 8.2.3 for cookies.
                    value.extend_from_slice(if name == b"cookie" { b"; " } else { b"," });
                }
                value.extend_from_slice(other.value);
            }
            http.entry(3, &name, &value);
        }
    }
}

/// Returns the bytes of the body, -1 if they are not known.
fn size(head: &RequestHead, body: Option<SentBody<'_>>) -> u64 {
    const UNKNOWN: u64 = -1_i64 as u64;
    let length = || std::str::from_utf8(head.fields.get_known(Known::ContentLength)?).ok()?.parse().ok();
    let is_empty = head.version < Version::Http2 && !head.fields.has_known(Known::TransferEncoding);
    match body {
        Some(body) if !body.is_part => body.bytes.len() as u64,
        _ => length().unwrap_or(if is_empty { 0 } else { UNKNOWN }),
    }
}

fn write_address(peer: &mut Writer, address: IpAddr, port: u16) {
    let text = address.to_string();
    peer.message(1, |address| {
        address.message(1, |socket| {
            socket.text(2, text.as_bytes());
            socket.number(3, port.into());
        });
    });
}

/// Returns the name of a client, as Envoy takes it from its certificate.
fn principal(tls: &TlsFacts) -> &str {
    let names = tls.client_names.as_deref();
    let uri = names.and_then(|names| names.uris.first());
    let dns = || names.and_then(|names| names.dns.first());
    uri.or_else(dns).or(tls.client_subject.as_ref()).map_or("", String::as_str)
}
