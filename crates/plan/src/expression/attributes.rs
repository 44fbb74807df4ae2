//! Facts that expressions can name. The one list: the compiler finds names here, and the reference page is made of it.

use super::subject::Scope;

/// A fact of the language.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// As it is written, such as `request.path`.
    pub name: &'static str,
    /// From when on it is known.
    pub since: Scope,
    /// What it is, one sentence; the reference page shows it.
    pub doc: &'static str,
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
    ProxyTlvs,
    Claims,
}

const fn text(name: &'static str, fact: TextFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, fact: Fact::Text(fact) }
}

const fn header(name: &'static str, field: &'static str, doc: &'static str) -> Attribute {
    Attribute { name, since: Scope::Route, doc, fact: Fact::Header(field) }
}

const fn number(name: &'static str, fact: NumberFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, fact: Fact::Number(fact) }
}

const fn truth(name: &'static str, fact: TruthFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, fact: Fact::Truth(fact) }
}

const fn time(name: &'static str, fact: TimeFact, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, fact: Fact::Duration(fact) }
}

const fn ip(name: &'static str, fact: IpFact, doc: &'static str) -> Attribute {
    Attribute { name, since: Scope::Route, doc, fact: Fact::Ip(fact) }
}

const fn table(name: &'static str, fact: Table, since: Scope, doc: &'static str) -> Attribute {
    Attribute { name, since, doc, fact: Fact::Table(fact) }
}

/// Every fact there is, in the order of the reference page.
pub const ATTRIBUTES: &[Attribute] = &[
    text("request.method", TextFact::Method, Scope::Route, "The method, as earlier filters left it."),
    text("request.received_method", TextFact::ReceivedMethod, Scope::Route, "The method that the client sent."),
    text("request.path", TextFact::Path, Scope::Route, "The path without the query, as earlier filters left it."),
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
    ),
    text("request.query_string", TextFact::QueryString, Scope::Route, "The whole query without `?`, as it was sent."),
    text("request.uri", TextFact::Uri, Scope::Route, "Path and query."),
    text("request.host", TextFact::Host, Scope::Route, "The requested host without port, in the case it was sent."),
    text(
        "request.authority",
        TextFact::Authority,
        Scope::Route,
        "The host as the client requested it, with its port if given, before filters.",
    ),
    text("request.scheme", TextFact::Scheme, Scope::Route, "`http` or `https`."),
    text("request.protocol", TextFact::Protocol, Scope::Route, "`HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`."),
    text("request.id", TextFact::Id, Scope::Route, "The request id; no value when ids are off."),
    text(
        "request.user",
        TextFact::User,
        Scope::Request,
        "Name of the user that a filter has verified, such as `basic_auth`.",
    ),
    table(
        "request.headers",
        Table::RequestHeaders,
        Scope::Route,
        "Header fields, case ignored: `request.headers[\"x-a\"]`; several of one name are joined by a comma.",
    ),
    table(
        "request.cookies",
        Table::Cookies,
        Scope::Route,
        "Cookies, case kept: `request.cookies[\"session\"]` is the first of its name.",
    ),
    header("request.useragent", "user-agent", "The header field `user-agent`."),
    header("request.referer", "referer", "The header field `referer`."),
    number(
        "request.size",
        NumberFact::RequestSize,
        Scope::Route,
        "Length of the body in bytes by `content-length`; 0 if it is not told.",
    ),
    ip("source.address", IpFact::Source, "Address of the client, as trusted proxies report it, without port."),
    number(
        "source.port",
        NumberFact::SourcePort,
        Scope::Route,
        "Port of the client; 0 when a proxy reported the client's address.",
    ),
    ip("destination.address", IpFact::Destination, "Local address of the connection, or the one in its PROXY header."),
    number(
        "destination.port",
        NumberFact::DestinationPort,
        Scope::Route,
        "Local port of the connection, or the one in its PROXY header.",
    ),
    ip(
        "connection.peer_address",
        IpFact::Peer,
        "Address of the peer of the connection, or the one in its PROXY header.",
    ),
    number("connection.peer_port", NumberFact::PeerPort, Scope::Route, "The port of the same."),
    ip("connection.sender_address", IpFact::Sender, "Address of the proxy that sent a PROXY header."),
    text(
        "connection.sender_id",
        TextFact::SenderId,
        Scope::Route,
        "The unique id that the sender of a PROXY header gave to the connection.",
    ),
    table(
        "connection.proxy_tlvs",
        Table::ProxyTlvs,
        Scope::Route,
        "Values of the PROXY header of version 2, by name (`authority`) or type (`0xea`).",
    ),
    truth("connection.tls", TruthFact::Tls, Scope::Route, "Whether the connection uses TLS."),
    truth("connection.mtls", TruthFact::Mtls, Scope::Route, "Whether the client has a verified certificate."),
    text("connection.tls_version", TextFact::TlsVersion, Scope::Route, "Such as `TLSv1.3`."),
    text("connection.tls_cipher", TextFact::TlsCipher, Scope::Route, "The cipher suite."),
    text("connection.alpn", TextFact::Alpn, Scope::Route, "The protocol that TLS agreed on, such as `h2`."),
    text(
        "connection.requested_server_name",
        TextFact::ServerName,
        Scope::Route,
        "The server name (SNI) that the client asked for, in lower case.",
    ),
    text(
        "connection.subject_peer_certificate",
        TextFact::PeerSubject,
        Scope::Route,
        "Subject of the verified client certificate, as RFC 4514 writes it.",
    ),
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
    ),
    text(
        "connection.dns_san_peer_certificate",
        TextFact::PeerDns,
        Scope::Route,
        "The first DNS name of that certificate; `\"a.example\" in …` looks among all.",
    ),
    text(
        "connection.uri_san_peer_certificate",
        TextFact::PeerUri,
        Scope::Route,
        "The first URI of that certificate; `in` looks among all.",
    ),
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
    ),
    text("listener.name", TextFact::Listener, Scope::Route, "Name of the listener."),
    number("response.code", NumberFact::Code, Scope::Response, "Status of the response; 0 if none was sent."),
    table(
        "response.headers",
        Table::ResponseHeaders,
        Scope::Response,
        "Header fields of the response, as `request.headers`.",
    ),
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
    text("upstream.cluster", TextFact::Cluster, Scope::Response, "Name of the cluster."),
    text("upstream.endpoint", TextFact::Endpoint, Scope::Response, "Name of the endpoint that was tried last."),
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
        }
    }
}
