//! Addresses: where to listen, where endpoints are, and which networks and hosts are meant.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use model::Address;

use super::Resolver;
use crate::diagnostic::Bond;
use crate::source::Document;

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";
/// Longest host name (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Who listens at an address.
pub(super) struct Taker {
    /// As messages say it.
    who: String,
    /// Where that stands in the tree.
    path: String,
}

impl Resolver<'_> {
    /// Reads `ip:port` or `unix:PATH`.
    pub(super) fn bind_anywhere(&mut self, path: &str, text: &str) -> Option<Address> {
        match text.strip_prefix(UNIX) {
            Some(rest) => self.unix_path(path, rest),
            None => self.bind(path, text).map(Address::Ip),
        }
    }

    /// Reads `ip:port`.
    pub(super) fn bind(&mut self, path: &str, text: &str) -> Option<SocketAddr> {
        if let Ok(address) = text.parse() {
            return Some(address);
        }
        self.report(path, format!("`{text}` is not an address with a port"), Some(mend_bind(text)));
        None
    }

    /// Notes that someone listens at an address; two cannot.
    pub(super) fn take_bind(&mut self, path: &str, (bind, is_udp): (&Address, bool), who: String) {
        if bind.port() == Some(0) {
            return;
        }
        let place = (bind.clone(), is_udp);
        let taker = Taker { who, path: path.to_owned() };
        let Some(first) = self.binds.remove(&place) else {
            drop(self.binds.insert(place, taker));
            return;
        };
        // What is of the files comes before what providers give, wherever it is looked at.
        let is_given = |path: &str| !self.document_at(path).is_some_and(Document::shows_lines);
        let is_in_order = is_given(path) || !is_given(&first.path);
        let (first, second) = if is_in_order { (first, taker) } else { (taker, first) };
        let mut message = format!("`{bind}` is already used by {}", first.who);
        if self.tree.locate(&first.path).file != self.tree.locate(&second.path).file {
            message += &format!(", in {}", self.place_of(&first.path, &second.path));
        }
        let mend = format!("choose another {}", if bind.ip().is_some() { "port" } else { "path" });
        let bond = self.taken_at(&first.path);
        self.report_bound(&second.path, (message, Some(mend)), bond);
        self.binds.insert(place, first);
    }

    /// Returns where something stands, as it is reported beside something else: the line, with the document if that is another.
    pub(super) fn place_of(&self, path: &str, beside: &str) -> String {
        let (span, own) = (self.tree.locate(path), self.tree.locate(beside));
        match self.document_at(path).filter(|_| span.file != own.file) {
            Some(document) => format!("{}:{}", document.name, span.line),
            None => format!("line {}", span.line),
        }
    }

    /// Returns the earlier place that uses this address.
    pub(super) fn taken_at(&self, path: &str) -> Bond {
        Bond::Taken(self.document_at(path).map(|document| document.name.clone()).unwrap_or_default())
    }

    fn document_at(&self, path: &str) -> Option<&Document> {
        self.documents.get(self.tree.locate(path).file)
    }

    /// Reads the address of an endpoint; names are looked up.
    pub(super) fn endpoint_address(&mut self, path: &str, text: &str) -> Option<Address> {
        if let Some(rest) = text.strip_prefix(UNIX) {
            return self.unix_path(path, rest);
        }
        let address = match split_endpoint(text) {
            Ok(Target::Address(address)) => address,
            Ok(Target::Name(host, port)) => self.look_up(path, host, port)?,
            Err((message, suggestion)) => {
                self.report(path, message, suggestion);
                return None;
            }
        };
        if address.port() == 0 {
            self.report(path, format!("`{text}` has port 0"), None);
            return None;
        }
        Some(address.into())
    }

    /// Looks up the host name of an endpoint.
    fn look_up(&mut self, path: &str, host: &str, port: u16) -> Option<SocketAddr> {
        self.reuse.has_names = true;
        match (self.loader.resolve_host)(&self.names, host, port) {
            // The least, so that a name whose addresses come in changing order stays the same endpoint.
            Ok(found) => match found.into_iter().min() {
                Some(least) => Some(least),
                None => self.no_address(path, (host, port), format!("the name `{host}` has no address")),
            },
            Err(error) => {
                self.no_address(path, (host, port), format!("the name `{host}` cannot be looked up: {error}"))
            }
        }
    }

    /// Reports a name that does not resolve. Offline, an address of the block for documentation (RFC 3849) stands in for its own:
    /// another one for each name, so that two names are not taken for one endpoint.
    fn no_address(&mut self, path: &str, (host, port): (&str, u16), why: String) -> Option<SocketAddr> {
        self.report_absent(path, why, None);
        let own = stand_in(host) & !(u128::MAX << 96);
        self.loader.is_offline.then(|| (Ipv6Addr::from((0x2001_0db8 << 96) | own), port).into())
    }

    /// Reads texts into addresses or patterns, reporting those that are none.
    pub(super) fn parsed<T: FromStr<Err = String>>(&mut self, path: &str, texts: &[String], one: bool) -> Vec<T> {
        let mut all = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match text.parse() {
                Ok(value) => all.push(value),
                Err(message) if one => self.report(path, message, None),
                Err(message) => self.report(&format!("{path}/{index}"), message, None),
            }
        }
        all
    }

    /// Checks a host name or address without a port.
    pub(super) fn host(&mut self, path: &str, text: &str) {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<IpAddr>().is_err() && !is_host_name(text) {
            self.report(path, format!("`{text}` is not a host name, nor an address, without a port"), None);
        }
    }
}

/// Returns a number for what is not on this machine: the same each time, and another for each of them.
pub(super) fn stand_in(of: impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &of).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(0) << 64) | half(1)
}

enum Target<'a> {
    Address(SocketAddr),
    Name(&'a str, u16),
}

fn split_endpoint(text: &str) -> Result<Target<'_>, (String, Option<String>)> {
    if let Ok(address) = text.parse() {
        return Ok(Target::Address(address));
    }
    for (scheme, port, tls) in [("http://", 80, ""), ("https://", 443, ", and `tls: true` in the cluster")] {
        if let Some(rest) = text.strip_prefix(scheme) {
            let bare = rest.split('/').next().unwrap_or_default();
            let port = if bare.contains(':') { String::new() } else { format!(":{port}") };
            return Err((format!("`{text}` is a URL"), Some(format!("write `{bare}{port}`{tls}"))));
        }
    }
    if text.parse::<IpAddr>().is_ok() {
        let mend = if text.contains(':') { mend_ipv6(text) } else { format!("write `{text}:80`") };
        return Err((format!("`{text}` has no port"), Some(mend)));
    }
    let shape =
        || (format!("`{text}` is not an address with a port"), Some("write it like `10.0.0.1:8080`".to_owned()));
    let (host, port) = match text.rsplit_once(':') {
        Some(split) => split,
        None if is_host_name(text) => {
            return Err((format!("`{text}` has no port"), Some(format!("write `{text}:80`"))));
        }
        None => return Err(shape()),
    };
    if !is_host_name(host) {
        return Err(shape());
    }
    let port =
        port.parse().map_err(|_| (format!("`{port}` is not a port"), Some("ports go from 1 to 65535".to_owned())))?;
    Ok(Target::Name(host, port))
}

/// Labels of letters, digits, `-` and `_`, at most 63 long (RFC 1123 section 2.1; `_` as many networks have it).
pub(super) fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= HOST_BYTES_MAX && text.split('.').all(label) && !text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Returns an IPv6 address with a port, of one without brackets; the quotes keep YAML from taking these for a list.
fn mend_ipv6(text: &str) -> String {
    let with_port = text.rsplit_once(':').and_then(|(host, port)| {
        let is_address = host.parse::<Ipv6Addr>().is_ok_and(|host| !host.is_unspecified());
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 9);
        (is_address && is_port).then(|| format!("write `\"[{host}]:{port}\"` if {port} is the port"))
    });
    with_port.unwrap_or_else(|| format!("write `\"[{text}]:80\"`"))
}

fn mend_bind(text: &str) -> String {
    let port = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")).unwrap_or(text);
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        if port.parse::<u16>().is_err() {
            return "ports go from 0 to 65535".to_owned();
        }
        return format!("write `0.0.0.0:{port}` for all IPv4 addresses, `[::]:{port}` for all IPv6 addresses");
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return format!("write `127.0.0.1:{port}`: host names are not resolved here");
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => format!("add a port: `{address}:80`"),
        Ok(IpAddr::V6(_)) => mend_ipv6(text),
        Err(_) => "write it like `127.0.0.1:8080` or `[::1]:8080`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_or_names_with_a_port() {
        assert!(matches!(split_endpoint("10.0.0.1:80"), Ok(Target::Address(_))));
        assert!(matches!(split_endpoint("[::1]:80"), Ok(Target::Address(_))));
        assert!(matches!(split_endpoint("api.example.com:80"), Ok(Target::Name("api.example.com", 80))));
        assert!(matches!(split_endpoint("my_app:80"), Ok(Target::Name("my_app", 80))));
        let long = format!("{}:80", "a.".repeat(200));
        for bad in [
            "",
            ":",
            ":80",
            "a:",
            "a:x",
            "a:99999",
            "10.0.0.1",
            "::1",
            "http://a:80",
            "a b:80",
            "-a:80",
            "1.2.3:80",
            &long,
        ] {
            assert!(split_endpoint(bad).is_err(), "{bad}");
        }
        let mend = split_endpoint("https://a.example/x").err().unwrap().1.unwrap();
        assert_eq!(mend, "write `a.example:443`, and `tls: true` in the cluster");
    }
}
