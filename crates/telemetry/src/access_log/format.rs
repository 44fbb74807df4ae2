//! What can be in a line, and how a format is compiled.

use model::FieldName;
use model::proxy_protocol::TlvName;
use model::snapshot::{AccessLog, LogFormat};
use model::template::{self, Piece as TemplatePiece};

use super::value::{Value, Variable, value, write_value};
use crate::record::Record;
use crate::text::{Clock, Escape};

/// The Common Log Format, as a template.
pub const CLF: &str = "{client_ip} - {user} [{time_local}] \"{request}\" {status} {sent_bytes}";
/// The Combined Log Format of Apache and nginx, as a template.
pub const COMBINED: &str = "{client_ip} - {user} [{time_local}] \"{request}\" {status} {sent_bytes} \
                            \"{request_header:referer}\" \"{request_header:user-agent}\"";

/// Every variable of a template: name, meaning, explanation.
pub(crate) const VARIABLES: &[(&str, Variable, &str)] = &[
    ("time", Variable::Time, "End of the exchange: RFC 3339, UTC, with milliseconds"),
    ("time_local", Variable::TimeLocal, "The same in the Common Log Format of Apache, without brackets; always UTC"),
    ("kind", Variable::Kind, "`exchange` (HTTP), `stream` (TCP) or `flow` (UDP)"),
    ("listener", Variable::Listener, "Name of the listener"),
    ("client_ip", Variable::ClientIp, "The client: the peer, or the address that a trusted proxy reports"),
    ("client_port", Variable::ClientPort, "Port of the peer, when the peer is the client"),
    ("peer_ip", Variable::PeerIp, "The peer of the connection, or the source address in its PROXY header"),
    ("sender_ip", Variable::SenderIp, "The proxy that sent the PROXY header"),
    ("sender_id", Variable::SenderId, "The connection id that this proxy sent"),
    ("scheme", Variable::Scheme, "`http` or `https`"),
    ("method", Variable::Method, "Method that the client used, before filters"),
    ("host", Variable::Host, "Host that the client asked for, without port, before filters"),
    ("path", Variable::Path, "Path that the client asked for, percent-encoding kept, before filters"),
    ("query", Variable::Query, "Query of the request, without `?`"),
    ("uri", Variable::Uri, "Path and query"),
    (
        "request",
        Variable::Request,
        "Method, path with query, and version in one, as the Common Log Format has them: `GET /a?b HTTP/1.1`; \
         `HTTP/2.0` and `HTTP/3.0` for the others",
    ),
    ("version", Variable::Version, "`HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`"),
    ("status", Variable::Status, "Status sent to the client"),
    ("received_bytes", Variable::ReceivedBytes, "Body or stream bytes from the client"),
    ("sent_bytes", Variable::SentBytes, "Body or stream bytes to the client"),
    ("total_ms", Variable::TotalMs, "Total time, in milliseconds with three decimals"),
    ("receive_ms", Variable::ReceiveMs, "Milliseconds from the first byte of the request head to its last"),
    ("queue_ms", Variable::QueueMs, "Milliseconds in the queue"),
    ("connect_ms", Variable::ConnectMs, "Milliseconds to connect to the endpoint; 0.000 when a connection was reused"),
    ("first_byte_ms", Variable::FirstByteMs, "Milliseconds from the request being sent until the head of the response"),
    ("route", Variable::Route, "Name of the route"),
    ("cluster", Variable::Cluster, "Name of the cluster"),
    ("endpoint", Variable::Endpoint, "Name of the endpoint tried last"),
    ("endpoint_address", Variable::EndpointAddress, "Its address and port"),
    ("pick", Variable::Pick, "Why this endpoint was picked, as in the metric `equipoise_cluster_picks_total`"),
    ("retries", Variable::Retries, "Attempts after the first"),
    ("hedges", Variable::Hedges, "Hedged attempts"),
    ("session", Variable::Session, "Result of session persistence: `new`, `kept`, `moved` or `refused`"),
    (
        "cache_status",
        Variable::CacheStatus,
        "What a cache did: `hit`, `miss`, `expired`, `revalidated`, `stale` or `bypass`",
    ),
    ("fault", Variable::Fault, "The fault, as in the metric `equipoise_faults_total`"),
    ("flag", Variable::Flag, "The flag of the fault; its first letter names the source: C client, U upstream, P proxy"),
    ("request_id", Variable::RequestId, "The request id"),
    ("user", Variable::User, "The user that a filter has verified"),
    ("tls_version", Variable::TlsVersion, "Such as `TLSv1.3`"),
    ("tls_cipher", Variable::TlsCipher, "Such as `TLS13_AES_128_GCM_SHA256`"),
    ("tls_server_name", Variable::TlsServerName, "The server name that the client asked for"),
    ("tls_client_subject", Variable::TlsClientSubject, "Subject of the verified client certificate"),
];

/// The variables that take a name, with one for an example, and what it names.
pub(crate) const NAMED_VARIABLES: [(&str, (&str, &str), &str); 4] = [
    ("request_header", ("a field name", "user-agent"), "First field of this name in the request"),
    ("response_header", ("a field name", "user-agent"), "First field of this name in the response sent to the client"),
    (
        "proxy_tlv",
        ("the name of a TLV", "authority"),
        "Value of this name (`authority`) or type (`0xea`) in the PROXY header of version 2 that the connection began with",
    ),
    (
        "value",
        ("the name of one of the log's `values`", "NAME"),
        "Value of the expression that has this name in `values` of the log",
    ),
];

/// Keys of a JSON record that are made from fields of the request.
pub(crate) const JSON_FIELDS: [(&str, &str); 2] = [("user_agent", "user-agent"), ("referer", "referer")];

/// Variables that a JSON record leaves out: it has their parts, or few have them.
pub(crate) const NOT_IN_JSON: [Variable; 5] =
    [Variable::TimeLocal, Variable::Uri, Variable::Request, Variable::SenderId, Variable::CacheStatus];

/// A part of a line.
#[derive(Debug)]
enum Piece {
    Text(Box<[u8]>),
    Variable(Variable),
    RequestHeader(FieldName),
    ResponseHeader(FieldName),
    ProxyTlv(TlvName),
    /// The value at this place of the log's own.
    Own(usize),
}

/// Appends the value at a place of a log's `values` to an empty buffer. Returns whether it is a number.
pub(super) type ValueOf<'a> = dyn FnMut(usize, &mut Vec<u8>) -> bool + 'a;

/// Where the values of a log's own come from, with a buffer for one of them.
pub(super) struct Own<'a> {
    pub value_of: &'a mut ValueOf<'a>,
    pub bytes: &'a mut Vec<u8>,
}

/// A format, ready to write.
#[derive(Debug)]
pub(crate) struct Compiled {
    pieces: Vec<Piece>,
    escape: Escape,
}

impl Compiled {
    /// Compiles the format of a log; the error is that of [`check_line`].
    pub(crate) fn new(log: &AccessLog) -> Result<Self, String> {
        let names: Vec<&str> = log.values.iter().map(|(name, _)| name.as_str()).collect();
        match &log.format {
            LogFormat::Json => Self::json(&names),
            LogFormat::Line(text) => Self::line(text, &names),
            LogFormat::Clf => Self::line(CLF, &[]),
            LogFormat::Combined => Self::line(COMBINED, &[]),
        }
    }

    fn line(text: &str, values: &[&str]) -> Result<Self, String> {
        let mut pieces = compile(text, values)?;
        pieces.push(Piece::Text((*b"\n").into()));
        Ok(Self { pieces, escape: Escape::Line })
    }

    fn json(values: &[&str]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut key = |before: &str, name: &str, piece| {
            let before = if pieces.is_empty() { "{" } else { before };
            pieces.push(Piece::Text(format!("{before}\"{name}\":").into_bytes().into()));
            pieces.push(piece);
        };
        for (name, variable, _) in VARIABLES.iter().filter(|(_, variable, _)| !NOT_IN_JSON.contains(variable)) {
            key(",", name, Piece::Variable(*variable));
        }
        for (name, field) in JSON_FIELDS {
            key(",", name, Piece::RequestHeader(FieldName::new(field)?));
        }
        // In an object of their own, where no name can be that of a variable. Names need no escape.
        for (place, name) in values.iter().enumerate() {
            key(if place == 0 { ",\"values\":{" } else { "," }, name, Piece::Own(place));
        }
        pieces.push(Piece::Text(if values.is_empty() { &b"}\n"[..] } else { b"}}\n" }.into()));
        Ok(Self { pieces, escape: Escape::Json })
    }

    /// Appends a record as one line, its end included.
    pub(super) fn write(&self, record: &Record<'_>, clock: &mut Clock, out: &mut Vec<u8>, own: &mut Own<'_>) {
        for piece in &self.pieces {
            let value = match piece {
                Piece::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Piece::Variable(variable) => value(*variable, record),
                Piece::RequestHeader(name) => record.request.and_then(|head| head.fields.get(name)).into(),
                Piece::ResponseHeader(name) => record.response.and_then(|head| head.fields.get(name)).into(),
                Piece::ProxyTlv(name) => record.facts.sender.and_then(|sender| sender.tlvs.find(*name)).into(),
                Piece::Own(place) => {
                    own.bytes.clear();
                    let is_number = (own.value_of)(*place, own.bytes);
                    let bytes = own.bytes.as_slice();
                    if is_number { Value::digits(bytes) } else { Some(bytes).into() }
                }
            };
            write_value(value, self.escape, clock, out);
        }
    }
}

/// Checks a line template.
///
/// # Errors
/// A sentence that says what is wrong: the syntax, a variable that does not exist (with the nearest one that does), or an
/// argument that is missing, superfluous, no field name, or not in `values`, the names of the log's own.
pub fn check_line(text: &str, values: &[&str]) -> Result<(), String> {
    compile(text, values).map(|_| ())
}

fn compile(text: &str, values: &[&str]) -> Result<Vec<Piece>, String> {
    template::parse(text)?.into_iter().map(|piece| compile_piece(piece, values)).collect()
}

fn compile_piece(piece: TemplatePiece, values: &[&str]) -> Result<Piece, String> {
    match piece {
        // A line feed of the operator's own would make two lines of one record.
        TemplatePiece::Literal(text) if text.contains(['\n', '\r']) => {
            Err("a log line cannot contain a line break".to_owned())
        }
        TemplatePiece::Literal(text) => Ok(Piece::Text(text.into_bytes().into())),
        TemplatePiece::Variable { name, argument: Some(argument) } => compile_named(&name, &argument, values),
        TemplatePiece::Variable { name, argument: None } => match VARIABLES.iter().find(|(known, ..)| *known == name) {
            Some((_, variable, _)) => Ok(Piece::Variable(*variable)),
            None if values.contains(&name.as_str()) => {
                Err(format!("there is no variable `{{{name}}}`: write `{{value:{name}}}` for the value of this log"))
            }
            None => match NAMED_VARIABLES.iter().find(|(known, ..)| *known == name) {
                Some((_, (what, example), _)) => Err(format!("`{{{name}}}` needs {what}: `{{{name}:{example}}}`")),
                None => Err(unknown(&name)),
            },
        },
    }
}

fn compile_named(name: &str, argument: &str, values: &[&str]) -> Result<Piece, String> {
    match name {
        "request_header" => Ok(Piece::RequestHeader(FieldName::new(argument)?)),
        "response_header" => Ok(Piece::ResponseHeader(FieldName::new(argument)?)),
        "proxy_tlv" => Ok(Piece::ProxyTlv(TlvName::parse(argument)?)),
        "value" => match values.iter().position(|known| *known == argument) {
            Some(place) => Ok(Piece::Own(place)),
            None => Err(unknown_value(argument, values)),
        },
        _ if VARIABLES.iter().any(|(known, ..)| *known == name) => {
            Err(format!("`{{{name}}}` takes nothing after a colon"))
        }
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> String {
    let known = VARIABLES.iter().map(|(known, ..)| *known).chain(NAMED_VARIABLES.iter().map(|(known, ..)| *known));
    let nearest = known.map(|known| (distance(name, known), known)).min();
    match nearest {
        Some((distance, nearest)) if distance <= 2.max(name.len() / 2) => {
            format!("there is no variable `{{{name}}}`: did you mean `{{{nearest}}}`?")
        }
        _ => format!("there is no variable `{{{name}}}`"),
    }
}

fn unknown_value(name: &str, values: &[&str]) -> String {
    let nearest = values.iter().map(|known| (distance(name, known), known)).min();
    match nearest {
        None => format!("this log has no `values`: write `values: {{ {name}: \"…\" }}` beside its `format`"),
        Some((distance, nearest)) if distance <= 2.max(name.len() / 2) => {
            format!("`values` of this log has no `{name}`: did you mean `{{value:{nearest}}}`?")
        }
        Some(_) => format!("`values` of this log has no `{name}`, only {}", quoted(values)),
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the edit distance. Names far longer than any variable are not compared to the end.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (line, wanted) in b.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for column in 0..a.len() {
            let replaced = diagonal + usize::from(a[column] != wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[a.len()]
}
