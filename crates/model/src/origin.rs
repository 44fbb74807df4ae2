//! What the program itself asks over HTTP, such as the registry of a provider.

use std::time::Duration;

use crate::Address;
use crate::tls::UpstreamTls;

/// What is asked over HTTP/1.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// Where.
    pub place: Place,
    /// The field `host`, and what its certificate must bear if nothing else is said.
    pub host: String,
    /// TLS, if it is spoken.
    pub tls: Option<UpstreamTls>,
    /// To connect, and from the request to the head of the answer.
    pub timeout: Duration,
    /// Fields of each request, credentials among them.
    pub fields: Vec<(String, String)>,
}

/// Where an origin is. Names are looked up at each connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A host name or an address, and a port.
    Host(String, u16),
    /// A fixed place.
    Address(Address),
}

/// Splits the URL of an origin: whether it is `https`, the host with the brackets of an IPv6 address, the port, and the target. Returns
/// `None` if it is no such URL, or has a user or a fragment.
pub fn split_url(url: &str) -> Option<(bool, &str, Option<u16>, &str)> {
    let (is_secure, rest) = match url.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, url.strip_prefix("http://")?),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.is_empty() { "/" } else { path };
    let can_be_sent = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
        _ => (authority, None),
    };
    // Credentials do not belong there: addresses are shown.
    (can_be_sent && !host.is_empty() && !host.contains('@')).then_some((is_secure, host, port, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_or_refused() {
        assert_eq!(split_url("http://a/b?c"), Some((false, "a", None, "/b?c")));
        assert_eq!(split_url("https://[::1]:8443"), Some((true, "[::1]", Some(8443), "/")));
        assert_eq!(split_url("https://[::1]/x"), Some((true, "[::1]", None, "/x")));
        for bad in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:x/",
            "http://u:p@a/",
            "http://a/ b",
            "http://a?x",
        ] {
            assert_eq!(split_url(bad), None, "{bad}");
        }
    }
}
