//! The variables that a [template](super::template) may name, and what each stands for.
//!
//! A variable that has no value in an exchange (no TLS, no such field) is empty text.

use std::io::Write;
use std::net::IpAddr;

use model::facts::{ClientNames, TlsFacts};
use model::proxy_protocol::TlvName;
use model::{Facts, FieldName, Fields, Issue, Known, Name, RequestHead, ResponseHead};

use super::{LimitStatus, Notes, ResponseView, settings};
use crate::jose::Claims;
use crate::route::query;

/// From when on a variable has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Once the request head is there: in request steps and after.
    Request,
    /// Once there is a response: in response steps only.
    Response,
}

/// A variable, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is described in VARIABLES, where its name is")]
pub enum Variable {
    ClientIp,
    ClientPort,
    PeerIp,
    SenderIp,
    SenderId,
    LocalIp,
    LocalPort,
    Scheme,
    Host,
    ReceivedHost,
    Method,
    Path,
    Query,
    Uri,
    Listener,
    RequestId,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    TlsClientSubject,
    TlsClientIssuer,
    TlsClientDns,
    TlsClientUri,
    User,
    LimitStatus,
    RequestHeader(FieldName),
    QueryParam(Box<str>),
    Cookie(Box<str>),
    Claim(Box<str>),
    ProxyTlv(TlvName),
    Status,
    ResponseHeader(FieldName),
    Cluster,
    Endpoint,
}

/// How a variable comes to be from what was written.
#[derive(Clone, Debug)]
pub enum Form {
    /// `{name}`.
    Plain(Variable),
    /// `{name:argument}`; the function checks the argument.
    WithArgument(fn(&str) -> Result<Variable, String>),
}

/// One variable of the language.
#[derive(Clone, Debug)]
pub struct VariableSpec {
    /// Before the colon.
    pub name: &'static str,
    /// With or without argument.
    pub form: Form,
    /// From when on it has a value.
    pub stage: Stage,
    /// What it stands for, one sentence; the reference page shows it.
    pub doc: &'static str,
}

const fn plain(name: &'static str, variable: Variable, stage: Stage, doc: &'static str) -> VariableSpec {
    VariableSpec { name, form: Form::Plain(variable), stage, doc }
}

const fn with_argument(
    name: &'static str,
    make: fn(&str) -> Result<Variable, String>,
    stage: Stage,
    doc: &'static str,
) -> VariableSpec {
    VariableSpec { name, form: Form::WithArgument(make), stage, doc }
}

/// Every variable there is.
pub const VARIABLES: &[VariableSpec] = &[
    plain("client_ip", Variable::ClientIp, Stage::Request, "Address of the client, as trusted proxies report it."),
    plain(
        "client_port",
        Variable::ClientPort,
        Stage::Request,
        "Port of the client; empty when a proxy reported the client's address.",
    ),
    plain(
        "peer_ip",
        Variable::PeerIp,
        Stage::Request,
        "Address of the peer of the connection, or the one in its PROXY header.",
    ),
    plain(
        "sender_ip",
        Variable::SenderIp,
        Stage::Request,
        "Address of the proxy that sent a PROXY header; empty without one.",
    ),
    plain(
        "sender_id",
        Variable::SenderId,
        Stage::Request,
        "The unique id that the sender of a PROXY header gave to the connection; empty without one.",
    ),
    plain(
        "local_ip",
        Variable::LocalIp,
        Stage::Request,
        "Local address of the connection, or the one in its PROXY header.",
    ),
    plain(
        "local_port",
        Variable::LocalPort,
        Stage::Request,
        "Local port of the connection, or the one in its PROXY header.",
    ),
    plain("scheme", Variable::Scheme, Stage::Request, "`http` or `https`."),
    plain("host", Variable::Host, Stage::Request, "The requested host without port."),
    plain(
        "received_host",
        Variable::ReceivedHost,
        Stage::Request,
        "The host as the client requested it, with its port if given, before filters.",
    ),
    plain("method", Variable::Method, Stage::Request, "The current method, as earlier filters left it."),
    plain("path", Variable::Path, Stage::Request, "The current path, as earlier filters left it, without query."),
    plain("query", Variable::Query, Stage::Request, "The current query, as earlier filters left it, without `?`."),
    plain("uri", Variable::Uri, Stage::Request, "Path and query."),
    plain("listener", Variable::Listener, Stage::Request, "Name of the listener."),
    plain("request_id", Variable::RequestId, Stage::Request, "The request id; empty when ids are off."),
    plain("tls_version", Variable::TlsVersion, Stage::Request, "Such as `TLSv1.3`; empty without TLS."),
    plain("tls_cipher", Variable::TlsCipher, Stage::Request, "The cipher suite; empty without TLS."),
    plain("tls_server_name", Variable::TlsServerName, Stage::Request, "The server name (SNI) the client asked for."),
    plain(
        "tls_client_subject",
        Variable::TlsClientSubject,
        Stage::Request,
        "Subject of the verified client certificate, as RFC 4514 writes it.",
    ),
    plain(
        "tls_client_issuer",
        Variable::TlsClientIssuer,
        Stage::Request,
        "Issuer of the verified client certificate, as RFC 4514 writes it.",
    ),
    plain(
        "tls_client_dns",
        Variable::TlsClientDns,
        Stage::Request,
        "The first DNS name of the verified client certificate.",
    ),
    plain(
        "tls_client_uri",
        Variable::TlsClientUri,
        Stage::Request,
        "The first URI of the verified client certificate, such as a SPIFFE ID.",
    ),
    plain("user", Variable::User, Stage::Request, "Name of the user that a filter has verified, such as `basic_auth`."),
    plain(
        "limit_status",
        Variable::LimitStatus,
        Stage::Request,
        "What earlier limits did with the request: `passed`, `delayed`, `marked` (beyond a limit with `over: mark`), or empty without any.",
    ),
    with_argument(
        "request_header",
        |name| Ok(Variable::RequestHeader(FieldName::new(name)?)),
        Stage::Request,
        "A request header field; several of one name are joined by a comma.",
    ),
    with_argument(
        "query_param",
        |name| Ok(Variable::QueryParam(name.into())),
        Stage::Request,
        "The first query parameter of this name, as sent (percent-encoding kept).",
    ),
    with_argument("cookie", |name| Ok(Variable::Cookie(name.into())), Stage::Request, "The first cookie of this name."),
    with_argument(
        "claim",
        |name| Ok(Variable::Claim(name.into())),
        Stage::Request,
        "A claim of the token that a filter such as `jwt` has verified; dots lead into objects (`realm_access.roles`).",
    ),
    with_argument(
        "proxy_tlv",
        |name| Ok(Variable::ProxyTlv(TlvName::parse(name)?)),
        Stage::Request,
        "A value of the PROXY header of version 2 that the connection began with, by name (`authority`) or type (`0xea`).",
    ),
    plain("status", Variable::Status, Stage::Response, "Status of the response."),
    with_argument(
        "response_header",
        |name| Ok(Variable::ResponseHeader(FieldName::new(name)?)),
        Stage::Response,
        "A response header field; several of one name are joined by a comma.",
    ),
    plain("cluster", Variable::Cluster, Stage::Response, "Name of the cluster; empty for an answer made here."),
    plain("endpoint", Variable::Endpoint, Stage::Response, "Name of the endpoint; empty for an answer made here."),
];

impl Variable {
    /// Returns whether there is a variable of this name.
    pub fn is_known(name: &str) -> bool {
        VARIABLES.iter().any(|spec| spec.name == name)
    }

    /// Finds a variable that has a value at `stage`.
    ///
    /// # Errors
    /// An unknown name (with the nearest one), a missing or surplus argument, a response variable in a request step.
    pub fn find(name: &str, argument: Option<&str>, stage: Stage) -> Result<Self, Issue> {
        let Some(spec) = VARIABLES.iter().find(|spec| spec.name == name) else {
            let issue = Issue::at("", format!("there is no variable `{{{name}}}`"));
            let names = VARIABLES.iter().filter(|spec| spec.stage <= stage).map(|spec| spec.name);
            return Err(settings::suggest_nearest_on("docs/reference/filters.md", issue, name, names));
        };
        if spec.stage > stage {
            let issue = Issue::at("", format!("`{{{name}}}` has no value before there is a response"));
            return Err(issue.suggest("use it in a filter for responses, such as set_response_header"));
        }
        match (&spec.form, argument) {
            (Form::Plain(variable), None) => Ok(variable.clone()),
            (Form::Plain(_), Some(_)) => {
                Err(Issue::at("", format!("`{{{name}}}` takes no argument")).suggest(format!("write {{{name}}}")))
            }
            (Form::WithArgument(make), Some(text)) if !text.is_empty() => make(text).map_err(|e| Issue::at("", e)),
            (Form::WithArgument(_), _) => {
                Err(Issue::at("", format!("`{{{name}}}` needs a name")).suggest(format!("write {{{name}:NAME}}")))
            }
        }
    }
}

/// Where variables get their values from.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    request: &'a RequestHead,
    facts: &'a Facts<'a>,
    response: Option<&'a ResponseHead>,
    status: u16,
    cluster: Option<&'a Name>,
    endpoint: Option<&'a Name>,
    user: Option<&'a [u8]>,
    claims: Option<&'a Claims>,
    limit: LimitStatus,
}

impl<'a> Values<'a> {
    /// Values before there is a response.
    pub fn of_request(request: &'a RequestHead, facts: &'a Facts<'a>) -> Self {
        Self {
            request,
            facts,
            response: None,
            status: 0,
            cluster: None,
            endpoint: None,
            user: facts.user,
            claims: None,
            limit: LimitStatus::None,
        }
    }

    /// Values once there is a response.
    pub fn of_response(response: &'a ResponseHead, view: &ResponseView<'a>, facts: &'a Facts<'a>) -> Self {
        Self { response: Some(response), ..Self::of_view(view, facts, response.status) }
    }

    /// Returns the same with what filters of the same chain have noted.
    pub(crate) fn with_notes(self, notes: &'a Notes) -> Self {
        Self { user: notes.user(), claims: notes.claims(), limit: notes.limit_status(), ..self }
    }

    fn of_view(view: &ResponseView<'a>, facts: &'a Facts<'a>, status: u16) -> Self {
        let (cluster, endpoint) = (view.cluster, view.endpoint);
        Self { status, cluster, endpoint, ..Self::of_request(view.request, facts) }
    }

    fn client_name(&self, part: impl FnOnce(&'a ClientNames) -> Option<&'a str>) -> &'a str {
        self.facts.tls.and_then(|tls| tls.client_names.as_deref()).and_then(part).unwrap_or_default()
    }

    fn tls(&self, part: impl FnOnce(&'a TlsFacts) -> Option<&'a str>) -> &'a str {
        self.facts.tls.and_then(part).unwrap_or_default()
    }
}

impl Variable {
    /// Appends the value.
    pub fn write(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        let (request, facts) = (values.request, values.facts);
        match self {
            Self::ClientIp => write_ip(facts.client, out),
            Self::ClientPort => {
                if facts.client.to_canonical() == facts.peer.ip().to_canonical() {
                    write_number(facts.peer.port(), out);
                }
            }
            Self::PeerIp => write_ip(facts.peer.ip(), out),
            Self::SenderIp => {
                if let Some(sender) = facts.sender {
                    write_ip(sender.address.ip(), out);
                }
            }
            Self::SenderId => {
                out.extend_from_slice(facts.sender.and_then(|sender| sender.unique_id.as_deref()).unwrap_or_default());
            }
            Self::LocalIp => write_ip(facts.local.ip(), out),
            Self::LocalPort => write_number(facts.local.port(), out),
            Self::Scheme => write_text(facts.scheme.as_str(), out),
            Self::Host => out.extend_from_slice(request.host()),
            Self::ReceivedHost => out.extend_from_slice(request.received_authority()),
            Self::Method => out.extend_from_slice(request.method_bytes()),
            Self::Path => out.extend_from_slice(request.path()),
            Self::Query => out.extend_from_slice(request.query().unwrap_or_default()),
            Self::Uri => write_uri(request, out),
            Self::Listener => write_text(facts.listener, out),
            Self::RequestId => write_text(facts.request_id, out),
            Self::TlsVersion => write_text(values.tls(|tls| Some(tls.version)), out),
            Self::TlsCipher => write_text(values.tls(|tls| Some(tls.cipher)), out),
            Self::TlsServerName => write_text(values.tls(|tls| tls.server_name.as_deref()), out),
            Self::TlsClientSubject => write_text(values.tls(|tls| tls.client_subject.as_deref()), out),
            Self::TlsClientIssuer => write_text(values.client_name(|names| names.issuer.as_deref()), out),
            Self::TlsClientDns => write_text(values.client_name(|names| names.dns.first().map(String::as_str)), out),
            Self::TlsClientUri => write_text(values.client_name(|names| names.uris.first().map(String::as_str)), out),
            Self::User => out.extend_from_slice(values.user.unwrap_or_default()),
            Self::LimitStatus => write_text(values.limit.as_str(), out),
            Self::RequestHeader(name) => write_joined(&request.fields, name, out),
            Self::QueryParam(name) => {
                let value = query::parameter(request.query().unwrap_or_default(), name.as_bytes());
                out.extend_from_slice(value.unwrap_or_default());
            }
            Self::Cookie(name) => {
                let mut fields = request.fields.all_known(Known::Cookie);
                let value = fields.find_map(|field| query::cookie(field, name.as_bytes()));
                out.extend_from_slice(value.unwrap_or_default());
            }
            Self::Claim(name) => {
                if let Some(text) = values.claims.and_then(|claims| claims.text(name)) {
                    write_text(&text, out);
                }
            }
            Self::ProxyTlv(name) => {
                out.extend_from_slice(facts.sender.and_then(|sender| sender.tlvs.find(*name)).unwrap_or_default());
            }
            Self::Status => write_number(values.status, out),
            Self::ResponseHeader(name) => {
                if let Some(head) = values.response {
                    write_joined(&head.fields, name, out);
                }
            }
            Self::Cluster => write_text(values.cluster.map_or("", Name::as_str), out),
            Self::Endpoint => write_text(values.endpoint.map_or("", Name::as_str), out),
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
}

/// Writes a number. Writing into memory cannot fail, so the result is ignored.
fn write_number(number: u16, out: &mut Vec<u8>) {
    let _ = write!(out, "{number}");
}

fn write_ip(address: IpAddr, out: &mut Vec<u8>) {
    let _ = write!(out, "{}", address.to_canonical());
}

fn write_uri(request: &RequestHead, out: &mut Vec<u8>) {
    out.extend_from_slice(request.path());
    if let Some(query) = request.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

/// Writes the values of fields of one name, joined: that means the same (RFC 9110 section 5.2; cookies: RFC 9113 section 8.2.3).
fn write_joined(fields: &Fields, name: &FieldName, out: &mut Vec<u8>) {
    let separator: &[u8] = if name.known() == Known::Cookie { b"; " } else { b", " };
    for (place, value) in fields.all(name).enumerate() {
        if place > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
    }
}
