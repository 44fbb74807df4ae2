//! Facts that expressions can name. The one list: the compiler finds names here, and the reference page is made of it.

use super::scope::Scope;

/// A fact of the language.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// As it is written, such as `request.path`.
    pub name: &'static str,
    /// From when on it is known.
    pub since: Scope,
    /// What it is, one sentence; the reference page shows it.
    pub doc: &'static str,
    /// As a variable of templates: its name, such as `client_ip`, and what it is then. `None`: it is none.
    pub(crate) variable: Option<(&'static str, &'static str)>,
    pub(super) fact: Fact,
}

/// Where the value of a fact comes from, by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Text(TextFact),
    /// The request's header field of this name.
    Header(&'static str),
    Number(NumberFact),
    Truth(TruthFact),
    Duration(TimeFact),
    Ip(IpFact),
    Table(Table),
}

impl Fact {
    fn kind(self) -> &'static str {
        match self {
            Self::Text(_) | Self::Header(_) => "string",
            Self::Number(_) => "int",
            Self::Truth(_) => "bool",
            Self::Duration(_) => "duration",
            Self::Ip(_) => "ip",
            Self::Table(_) => "map of strings",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFact {
    Method,
    ReceivedMethod,
    Path,
    ReceivedPath,
    QueryString,
    Uri,
    Host,
    Authority,
    Scheme,
    Protocol,
    Id,
    User,
    LimitStatus,
    CacheStatus,
    Body,
    ServerName,
    TlsVersion,
    TlsCipher,
    Alpn,
    PeerSubject,
    PeerSubjectName,
    PeerIssuer,
    PeerDns,
    PeerUri,
    PeerEmail,
    PeerSerial,
    PeerFingerprint,
    SenderId,
    Listener,
    Route,
    Cluster,
    Endpoint,
    EndpointAddress,
    Pick,
    Session,
    Fault,
    Flag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberFact {
    SourcePort,
    PeerPort,
    DestinationPort,
    RequestSize,
    Code,
    ResponseSize,
    ReceivedBytes,
    SentBytes,
    Retries,
    Hedges,
    Redirects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TruthFact {
    Tls,
    Mtls,
    IsLocal,
}

/// In the order of [`super::Ended::times`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeFact {
    Receive,
    Queue,
    Connect,
    FirstByte,
    Total,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpFact {
    Source,
    Peer,
    Destination,
    Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    RequestHeaders,
    Query,
    Cookies,
    ResponseHeaders,
    Json,
    ProxyTlvs,
    Claims,
    Metadata,
}

const fn text(name: &'static str, fact: TextFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, variable: None, fact: Fact::Text(fact) }
}

const fn header(name: &'static str, field: &'static str, doc: &'static str) -> Attribute {
    Attribute { name, since: Scope::Route, doc, variable: None, fact: Fact::Header(field) }
}

const fn number(name: &'static str, fact: NumberFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, variable: None, fact: Fact::Number(fact) }
}

const fn truth(name: &'static str, fact: TruthFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, variable: None, fact: Fact::Truth(fact) }
}

const fn time(name: &'static str, fact: TimeFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, variable: None, fact: Fact::Duration(fact) }
}

const fn ip(name: &'static str, fact: IpFact, doc: &'static str) -> Attribute {
    Attribute { name, since: Scope::Route, doc, variable: None, fact: Fact::Ip(fact) }
}

const fn table(name: &'static str, fact: Table, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, variable: None, fact: Fact::Table(fact) }
}

impl Attribute {
    /// Returns the same, which is a variable of templates too.
    const fn named(self, variable: &'static str) -> Self {
        Self { variable: Some((variable, self.doc)), ..self }
    }

    /// Returns the same, which is a variable of templates too, described in its own words.
    const fn named_with(self, variable: &'static str, doc: &'static str) -> Self {
        Self { variable: Some((variable, doc)), ..self }
    }
}

/// Every fact there is, in the order of the reference page. Those that are variables of templates have their name as such beside them.
pub const ATTRIBUTES: &[Attribute] = &[
    text("request.method", TextFact::Method, Scope::Route, "The method, as earlier filters left it.").named("method"),
    text("request.received_method", TextFact::ReceivedMethod, Scope::Route, "The method that the client sent."),
    text("request.path", TextFact::Path, Scope::Route, "The path without the query, as earlier filters left it.").named("path"),
    text("request.url_path", TextFact::Path, Scope::Route, "The same, as Envoy calls it."),
    text(
        "request.received_path",
        TextFact::ReceivedPath,
        Scope::Route,
        "The path that the client sent, before normalization and filters.",
    ),
    table(
        "request.query",
        Table::Query,
        Scope::Route,
        "Parameters of the query, percent-decoded: `request.query[\"page\"]` is the first of its name.",
    ).named_with("query_param", "The first query parameter of this name, as sent (percent-encoding kept)."),
    text("request.query_string", TextFact::QueryString, Scope::Route, "The whole query without `?`, as it was sent.").named_with("query", "The current query, as earlier filters left it, without `?`."),
    text("request.uri", TextFact::Uri, Scope::Route, "Path and query.").named("uri"),
    text("request.host", TextFact::Host, Scope::Route, "The requested host without port, in the case it was sent.").named_with("host", "The requested host without port."),
    text(
        "request.authority",
        TextFact::Authority,
        Scope::Route,
        "The host as the client requested it, with its port if given, before filters.",
    ).named("received_host"),
    text("request.scheme", TextFact::Scheme, Scope::Route, "`http` or `https`.").named("scheme"),
    text("request.protocol", TextFact::Protocol, Scope::Route, "`HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`."),
    text("request.id", TextFact::Id, Scope::Route, "The request id; no value when ids are off.").named_with("request_id", "The request id; empty when ids are off."),
    text(
        "request.user",
        TextFact::User,
        Scope::Request,
        "Name of the user that a filter has verified, such as `basic_auth`.",
    ).named("user"),
    text("request.limit_status", TextFact::LimitStatus, Scope::Request, "What earlier limits did with the request: `passed`, `delayed`, `marked` (beyond a limit with `over: mark`), or nothing without any.").named("limit_status"),
    text("request.cache_status", TextFact::CacheStatus, Scope::Request, "What a cache did with the request: `hit`, `miss`, `expired`, `revalidated`, `stale`, `bypass`, or nothing without any.").named("cache_status"),
    table(
        "request.headers",
        Table::RequestHeaders,
        Scope::Route,
        "Header fields, case ignored: `request.headers[\"x-a\"]`; several of one name are joined by a comma.",
    ).named_with("request_header", "A request header field; several of one name are joined by a comma."),
    table(
        "request.cookies",
        Table::Cookies,
        Scope::Route,
        "Cookies, case kept: `request.cookies[\"session\"]` is the first of its name.",
    ).named_with("cookie", "The first cookie of this name."),
    header("request.useragent", "user-agent", "The header field `user-agent`."),
    header("request.referer", "referer", "The header field `referer`."),
    number(
        "request.size",
        NumberFact::RequestSize,
        Scope::Route,
        "Length of the body in bytes by `content-length`; 0 if it is not told.",
    ),
    text(
        "request.body",
        TextFact::Body,
        Scope::Request,
        "The body, read before the filter acts: up to 64 KiB, without `content-encoding`, or no value.",
    ),
    table(
        "request.body.json",
        Table::Json,
        Scope::Request,
        "Values of the same if it is JSON: `request.body.json.model`, `request.body.json[\"messages\"][0].role`; dots lead into objects as in `jwt.claims`, and a name that begins with `/` is a JSON Pointer.",
    ),
    ip("source.address", IpFact::Source, "Address of the client, as trusted proxies report it, without port.").named("client_ip"),
    number(
        "source.port",
        NumberFact::SourcePort,
        Scope::Route,
        "Port of the client; 0 when a proxy reported the client's address.",
    ).named_with("client_port", "Port of the client; empty when a proxy reported the client's address."),
    ip("destination.address", IpFact::Destination, "Local address of the connection, or the one in its PROXY header.").named("local_ip"),
    number(
        "destination.port",
        NumberFact::DestinationPort,
        Scope::Route,
        "Local port of the connection, or the one in its PROXY header.",
    ).named("local_port"),
    ip(
        "connection.peer_address",
        IpFact::Peer,
        "Address of the peer of the connection, or the one in its PROXY header.",
    ).named("peer_ip"),
    number("connection.peer_port", NumberFact::PeerPort, Scope::Route, "The port of the same."),
    ip("connection.sender_address", IpFact::Sender, "Address of the proxy that sent a PROXY header.").named_with("sender_ip", "Address of the proxy that sent a PROXY header; empty without one."),
    text(
        "connection.sender_id",
        TextFact::SenderId,
        Scope::Route,
        "The unique id that the sender of a PROXY header gave to the connection.",
    ).named_with("sender_id", "The unique id that the sender of a PROXY header gave to the connection; empty without one."),
    table(
        "connection.proxy_tlvs",
        Table::ProxyTlvs,
        Scope::Route,
        "Values of the PROXY header of version 2, by name (`authority`) or type (`0xea`).",
    ).named_with("proxy_tlv", "A value of the PROXY header of version 2 that the connection began with, by name (`authority`) or type (`0xea`)."),
    truth("connection.tls", TruthFact::Tls, Scope::Route, "Whether the connection uses TLS."),
    truth("connection.mtls", TruthFact::Mtls, Scope::Route, "Whether the client has a verified certificate."),
    text("connection.tls_version", TextFact::TlsVersion, Scope::Route, "Such as `TLSv1.3`.").named_with("tls_version", "Such as `TLSv1.3`; empty without TLS."),
    text("connection.tls_cipher", TextFact::TlsCipher, Scope::Route, "The cipher suite.").named_with("tls_cipher", "The cipher suite; empty without TLS."),
    text("connection.alpn", TextFact::Alpn, Scope::Route, "The protocol that TLS agreed on, such as `h2`."),
    text(
        "connection.requested_server_name",
        TextFact::ServerName,
        Scope::Route,
        "The server name (SNI) that the client asked for, in lower case.",
    ).named("tls_server_name"),
    text(
        "connection.subject_peer_certificate",
        TextFact::PeerSubject,
        Scope::Route,
        "Subject of the verified client certificate, as RFC 4514 writes it.",
    ).named("tls_client_subject"),
    text(
        "connection.common_name_peer_certificate",
        TextFact::PeerSubjectName,
        Scope::Route,
        "The common name in that subject.",
    ),
    text(
        "connection.issuer_peer_certificate",
        TextFact::PeerIssuer,
        Scope::Route,
        "Issuer of the verified client certificate, as RFC 4514 writes it.",
    ).named("tls_client_issuer"),
    text(
        "connection.dns_san_peer_certificate",
        TextFact::PeerDns,
        Scope::Route,
        "The first DNS name of that certificate; `\"a.example\" in …` looks among all.",
    ).named_with("tls_client_dns", "The first DNS name of the verified client certificate."),
    text(
        "connection.uri_san_peer_certificate",
        TextFact::PeerUri,
        Scope::Route,
        "The first URI of that certificate; `in` looks among all.",
    ).named_with("tls_client_uri", "The first URI of the verified client certificate, such as a SPIFFE ID."),
    text(
        "connection.email_san_peer_certificate",
        TextFact::PeerEmail,
        Scope::Route,
        "The first mail address of that certificate; `in` looks among all.",
    ),
    text(
        "connection.serial_peer_certificate",
        TextFact::PeerSerial,
        Scope::Route,
        "The serial number of that certificate in lower-case hexadecimal digits.",
    ),
    text(
        "connection.sha256_peer_certificate_digest",
        TextFact::PeerFingerprint,
        Scope::Route,
        "SHA-256 of that certificate in lower-case hexadecimal digits.",
    ),
    table(
        "jwt.claims",
        Table::Claims,
        Scope::Request,
        "Claims of the token that a filter such as `jwt` has verified: `jwt.claims[\"sub\"]`; `\"admin\" in jwt.claims[\"roles\"]` looks into a list, and dots lead into objects.",
    ).named_with("claim", "A claim of the token that a filter such as `jwt` has verified; dots lead into objects (`realm_access.roles`)."),
    table(
        "ext_authz.metadata",
        Table::Metadata,
        Scope::Request,
        "The `dynamic_metadata` of the authorization service that `ext_authz` has asked: `ext_authz.metadata[\"team\"]`, as `jwt.claims`.",
    ).named_with("ext_authz", "The `dynamic_metadata` of the authorization service that `ext_authz` has asked; dots lead into objects."),
    text("listener.name", TextFact::Listener, Scope::Route, "Name of the listener.").named("listener"),
    number("request.redirects", NumberFact::Redirects, Scope::Response, "Redirects of endpoints that the filter `follow_redirects` has followed.").named("redirects"),
    number("response.code", NumberFact::Code, Scope::Response, "Status of the response; 0 if none was sent.").named_with("status", "Status of the response."),
    table(
        "response.headers",
        Table::ResponseHeaders,
        Scope::Response,
        "Header fields of the response, as `request.headers`.",
    ).named_with("response_header", "A response header field; several of one name are joined by a comma."),
    number(
        "response.size",
        NumberFact::ResponseSize,
        Scope::Response,
        "Length of the body in bytes by `content-length`; 0 if it is not told.",
    ),
    truth(
        "response.is_local",
        TruthFact::IsLocal,
        Scope::Response,
        "Whether the response was made by the proxy, not by an endpoint.",
    ),
    text(
        "response.fault",
        TextFact::Fault,
        Scope::Response,
        "What went wrong, such as `connect_failed`; see the faults.",
    ),
    text("response.flag", TextFact::Flag, Scope::Response, "The flag of the same fault in access logs."),
    text("upstream.cluster", TextFact::Cluster, Scope::Response, "Name of the cluster.").named_with("cluster", "Name of the cluster; empty for an answer made here."),
    text("upstream.endpoint", TextFact::Endpoint, Scope::Response, "Name of the endpoint that was tried last.").named_with("endpoint", "Name of the endpoint; empty for an answer made here."),
    text("upstream.address", TextFact::EndpointAddress, Scope::Log, "Its address with port."),
    text("upstream.pick", TextFact::Pick, Scope::Log, "Why it was chosen, as in access logs."),
    text("upstream.session", TextFact::Session, Scope::Log, "What became of the session, as in access logs."),
    number("upstream.retries", NumberFact::Retries, Scope::Log, "Attempts after the first."),
    number("upstream.hedges", NumberFact::Hedges, Scope::Log, "Hedged attempts."),
    text("route.name", TextFact::Route, Scope::Log, "Name of the route."),
    number("request.received_bytes", NumberFact::ReceivedBytes, Scope::Log, "Body bytes that came from the client."),
    number("response.sent_bytes", NumberFact::SentBytes, Scope::Log, "Body bytes that went to the client."),
    time(
        "request.duration",
        TimeFact::Total,
        Scope::Response,
        "Time of the whole exchange; of a filter, until its response came.",
    ),
    time("timing.receive", TimeFact::Receive, Scope::Log, "Time until the request head was whole."),
    time("timing.queue", TimeFact::Queue, Scope::Response, "Time in the queue."),
    time(
        "timing.connect",
        TimeFact::Connect,
        Scope::Response,
        "Time until the endpoint was connected to; zero on a reused connection.",
    ),
    time(
        "timing.first_byte",
        TimeFact::FirstByte,
        Scope::Response,
        "Time from the request until the head of the response.",
    ),
];

impl Attribute {
    /// Returns the type of its value: `string`, `int`, `bool`, `duration`, `ip` or `map of strings`.
    pub fn kind(&self) -> &'static str {
        self.fact.kind()
    }

    /// Returns whether it is a map of strings, whose entries have names.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.fact, Fact::Table(_))
    }

    /// Returns whether it is the body of the request, or in it.
    pub(super) fn is_of_body(&self) -> bool {
        matches!(self.fact, Fact::Text(TextFact::Body) | Fact::Table(Table::Json))
    }

    /// Finds a fact by its name as a variable.
    pub(super) fn by_variable(name: &str) -> Option<&'static Self> {
        ATTRIBUTES.iter().find(|attribute| attribute.variable.is_some_and(|(variable, _)| variable == name))
    }

    /// Finds a fact by its whole name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        ATTRIBUTES.iter().find(|attribute| attribute.name == name)
    }

    /// Returns whether names of facts begin with this one and a dot.
    pub(super) fn is_group(name: &str) -> bool {
        ATTRIBUTES.iter().any(|attribute| attribute.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_each_is_described_in_a_sentence() {
        for (place, attribute) in ATTRIBUTES.iter().enumerate() {
            assert!(attribute.doc.ends_with(['.', '`']), "{}", attribute.name);
            assert_eq!(ATTRIBUTES.iter().position(|other| other.name == attribute.name), Some(place));
            if let Some((variable, doc)) = attribute.variable {
                let is_same = |other: &Attribute| other.variable.is_some_and(|(other, _)| other == variable);
                assert!(doc.ends_with(['.', '`']), "{variable}");
                assert_eq!(ATTRIBUTES.iter().position(is_same), Some(place), "{variable}");
            }
        }
    }
}
