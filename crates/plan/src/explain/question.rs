//! What is asked: a request as a person writes it.

use std::net::{IpAddr, Ipv4Addr};

use model::fields::{Span, is_field_value, is_token};
use model::limits::{HEAD_BYTES_MAX, TARGET_BYTES_MAX};
use model::{FieldName, Known, RequestHead, Scheme, Version};

use crate::plan::{ListenerPlan, Plan};

/// Header fields in one query.
const FIELDS_MAX: usize = 100;

/// A request to be explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// `GET https://host/path`, a URL alone, or `tcp://host:port` for a listener that passes connections on, with application protocols as
    /// `tcp://host:port?alpn=h2,http/1.1`.
    pub request: String,
    /// Header fields, by name and value.
    pub fields: Vec<(String, String)>,
    /// The client's address, as the trusted proxies before this one would tell it.
    pub client: IpAddr,
    /// The listener, if it is not to be found by scheme and port.
    pub listener: Option<String>,
    /// Values of header fields that the configuration sets or asks for are not told: they may be secret.
    pub hides_values: bool,
}

/// A question, understood.
pub(super) struct Parsed<'a> {
    method: &'a str,
    pub(super) scheme: Scheme,
    is_tcp: bool,
    authority: &'a str,
    port: Option<u16>,
    target: String,
    question: &'a Question,
}

impl Question {
    /// Reads a question as the admin API is asked it:
    /// `request=GET%20http://host/path&header=name:%20value&client=192.0.2.7&listener=web`.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub fn from_query(query: &str) -> Result<Self, String> {
        let mut question = Self {
            request: String::new(),
            fields: Vec::new(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            listener: None,
            // What the configuration sets may be a secret, and not everybody who may look here may know it.
            hides_values: true,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value)?;
            match name {
                "request" => question.request = value,
                "header" if question.fields.len() < FIELDS_MAX => question.fields.push(field(&value)?),
                "header" => return Err(format!("there are more than {FIELDS_MAX} header fields")),
                "client" => question.client = value.parse().map_err(|_| format!("`{value}` is not an address"))?,
                "listener" => question.listener = Some(value),
                other => return Err(format!("`{other}` is none of request, header, client and listener")),
            }
        }
        if question.request.is_empty() {
            return Err("`request` is missing, such as request=GET%20http://host/path".into());
        }
        Ok(question)
    }

    pub(super) fn parse(&self) -> Result<Parsed<'_>, String> {
        let words: Vec<&str> = self.request.split_whitespace().collect();
        let (method, url) = match words[..] {
            [url] => ("GET", url),
            [method, url] => (method, url),
            _ => return Err(format!("`{}` is not a request such as `GET https://example.com/path`", self.request)),
        };
        if !is_token(method.as_bytes()) {
            return Err(format!("`{method}` is not a method"));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| no_scheme(url))?;
        let (is_tcp, scheme) = match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => (false, Scheme::Http),
            "https" | "wss" => (false, Scheme::Https),
            "tcp" => (true, Scheme::Http),
            other => return Err(format!("the scheme `{other}` is none of http, https, ws, wss and tcp")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let target = target.split('#').next().unwrap_or_default();
        let port = port_of(authority)?;
        let is_bad = |byte: u8| byte <= b' ' || byte >= 0x7f || byte == b'@';
        if authority.bytes().any(is_bad) || (authority.is_empty() && !is_tcp) {
            return Err(format!("`{authority}` is not a host with or without a port"));
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        if let Some(byte) = target.bytes().find(|&byte| byte <= b' ' || byte >= 0x7f) {
            return Err(format!("the path holds the byte 0x{byte:02x}, which a URL writes as %{byte:02X}"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(format!("the path is longer than {TARGET_BYTES_MAX} bytes, which no listener accepts"));
        }
        let is_asked = |pair: &str| pair.is_empty() || pair.starts_with("alpn=");
        let query = target.split_once('?').filter(|_| is_tcp).map_or("", |(_, query)| query);
        if let Some(pair) = query.split('&').find(|pair| !is_asked(pair)) {
            return Err(format!(
                "`{pair}` is nothing that a connection has; there is `alpn`, such as ?alpn=h2,http/1.1"
            ));
        }
        Ok(Parsed { method, scheme, is_tcp, authority, port, target, question: self })
    }
}

impl Parsed<'_> {
    /// Returns the request in one line.
    pub(super) fn shown(&self) -> String {
        if self.is_tcp {
            let offered: Vec<_> = self.alpn().map(String::from_utf8_lossy).collect();
            let offered =
                if offered.is_empty() { String::new() } else { format!(" that offers {}", offered.join(", ")) };
            return format!("a connection to {}{offered}", self.authority);
        }
        format!("{} {}://{}{}", self.method, self.scheme.as_str(), self.authority, self.target)
    }

    /// Returns the host without its port, if there is one.
    pub(super) fn host(&self) -> Option<&str> {
        let host = model::head::host_without_port(self.authority.as_bytes());
        std::str::from_utf8(host).ok().filter(|host| !host.is_empty())
    }

    /// Returns the application protocols that the client of a TLS connection offers.
    pub(super) fn alpn(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let query = self.target.split_once('?').filter(|_| self.is_tcp).map_or("", |(_, query)| query);
        let lists = query.split('&').filter_map(|pair| pair.strip_prefix("alpn="));
        lists.flat_map(|list| list.split(',')).filter(|name| !name.is_empty()).map(str::as_bytes)
    }

    /// Returns the listener that takes such a request: by name, else by scheme and port, else by scheme.
    pub(super) fn listener<'p>(&self, plan: &'p Plan) -> Result<&'p ListenerPlan, String> {
        if let Some(name) = &self.question.listener {
            let found = plan.listener(name).filter(|listener| self.is_for(listener));
            return found.map(|listener| &**listener).ok_or_else(|| {
                format!("there is no listener `{name}` that takes {}; there are {}", self.wanted(), all(plan))
            });
        }
        let fit = || plan.listeners.iter().filter(|listener| self.is_for(listener) && self.is_spoken(listener));
        let port = self.port.unwrap_or(if self.scheme == Scheme::Https { 443 } else { 80 });
        let by_port = fit().find(|listener| listener.listener.bind.port() == Some(port));
        let found = by_port.or_else(|| fit().next());
        found.map(|listener| &**listener).ok_or_else(|| {
            format!("no listener takes {}; there are {}; `--listener` names one", self.wanted(), all(plan))
        })
    }

    /// Returns the port of the request, if it is given and the listener that was chosen by the scheme alone has another.
    pub(super) fn port_unheard(&self, listener: &ListenerPlan) -> Option<u16> {
        let is_chosen = self.question.listener.is_none();
        self.port.filter(|port| is_chosen && listener.listener.bind.port() != Some(*port))
    }

    fn is_for(&self, listener: &ListenerPlan) -> bool {
        listener.listener.protocol.has_routes() != self.is_tcp
    }

    fn is_spoken(&self, listener: &ListenerPlan) -> bool {
        self.is_tcp || listener.listener.tls.is_some() == (self.scheme == Scheme::Https)
    }

    fn wanted(&self) -> &'static str {
        match (self.is_tcp, self.scheme) {
            (true, _) => "plain TCP connections",
            (_, Scheme::Http) => "http",
            (_, Scheme::Https) => "https",
        }
    }

    /// Returns the request as the data plane would have read it.
    pub(super) fn head(&self) -> Result<RequestHead, String> {
        let mut head = RequestHead::default();
        let at = head.fields.load(self.method.as_bytes());
        let start = head.fields.load(self.target.as_bytes());
        let target = Span::new(start, start + self.target.len());
        head.set_line(Span::new(at, start), target, Version::Http11);
        let given = &self.question.fields;
        let size: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > HEAD_BYTES_MAX {
            return Err(format!("the header fields are larger than {HEAD_BYTES_MAX} bytes, which no listener accepts"));
        }
        let fields = given.iter().map(|(name, value)| Ok((FieldName::new(name)?, value.as_str())));
        let fields: Vec<(FieldName, &str)> = fields.collect::<Result<_, String>>()?;
        let host = FieldName::new("host")?;
        let own = fields.iter().find(|(name, _)| name.known() == Known::Host);
        head.fields.append(&host, own.map_or(self.authority, |(_, value)| value).as_bytes());
        for (name, value) in fields.iter().filter(|(name, _)| name.known() != Known::Host) {
            if !is_field_value(value.as_bytes()) {
                return Err(format!(
                    "the value of the header field `{}` holds bytes that may not stand there",
                    name.as_str()
                ));
            }
            head.fields.append(name, value.as_bytes());
        }
        Ok(head)
    }
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("`{text}` is not a field such as `name: value`"))?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Resolves `%XX` and `+`.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is not percent-encoded UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(wrong);
                (digit()? << 4 | digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn no_scheme(url: &str) -> String {
    if url.starts_with('/') {
        return format!("`{url}` has no host: write `http://HOST{url}`");
    }
    format!("`{url}` has no scheme: write `http://{0}` or `https://{0}`", url)
}

fn port_of(authority: &str) -> Result<Option<u16>, String> {
    let after = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[after..].rsplit_once(':') {
        None => Ok(None),
        Some((_, port)) => {
            port.parse().map(Some).map_err(|_| format!("`{port}` in `{authority}` is not a port from 0 to 65535"))
        }
    }
}

/// Returns the names of all listeners, for messages.
fn all(plan: &Plan) -> String {
    let told = plan.listeners.iter().map(|plan| {
        let listener = &plan.listener;
        format!("`{}` ({}, {})", listener.name, listener.scheme(), listener.bind)
    });
    let told: Vec<String> = told.take(20).collect();
    if told.is_empty() { "none".into() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_a_query() {
        let query =
            "request=PUT+http%3A%2F%2Fa.example%2Fx%3Fy%3D1%26z&header=x-a:%201&header=b:&client=::1&listener=web";
        let question = Question::from_query(query).unwrap();
        assert_eq!(question.request, "PUT http://a.example/x?y=1&z");
        assert_eq!(question.fields, [("x-a".into(), "1".into()), ("b".into(), String::new())]);
        assert_eq!((question.client, question.listener), ("::1".parse().unwrap(), Some("web".into())));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it() {
        let error = |query: &str| Question::from_query(query).unwrap_err();
        assert_eq!(error(""), "`request` is missing, such as request=GET%20http://host/path");
        assert_eq!(error("request=a&color=red"), "`color` is none of request, header, client and listener");
        assert_eq!(error("request=%4"), "`%4` is not percent-encoded UTF-8");
        assert_eq!(error("request=%ff"), "`%ff` is not percent-encoded UTF-8");
        assert_eq!(error("request=a&client=b"), "`b` is not an address");
        assert_eq!(error("request=a&header=b"), "`b` is not a field such as `name: value`");
        assert!(error(&"header=a:b&".repeat(101)).contains("more than 100"));
    }
}
