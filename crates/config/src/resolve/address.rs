//! Addresses: where to listen, where endpoints are, and which networks and hosts are meant.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use model::Address;

use super::Resolver;

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";
/// Longest host name (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

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

    /// Notes that somebody listens at an address; two cannot.
    pub(super) fn take_bind(&mut self, path: &str, (bind, is_udp): (&Address, bool), who: String) {
        if bind.port() == Some(0) {
            return;
        }
        if let Some(first) = self.binds.get(&(bind.clone(), is_udp)) {
            let message = format!("`{bind}` is taken by {first} already");
            self.report(
                path,
                message,
                Some(format!("choose another {}", if bind.ip().is_some() { "port" } else { "path" })),
            );
            return;
        }
        self.binds.insert((bind.clone(), is_udp), who);
    }

    /// Reads the address of an endpoint; names are looked up.
    pub(super) fn endpoint_address(&mut self, path: &str, text: &str) -> Option<Address> {
        if let Some(rest) = text.strip_prefix(UNIX) {
            return self.unix_path(path, rest);
        }
        let address = match split_endpoint(text) {
            Ok(Target::Address(address)) => address,
            Ok(Target::Name(host, port)) => match (self.loader.resolve_host)(host, port) {
                // The least, so that a name whose addresses come in changing order stays the same endpoint.
                Ok(found) => match found.iter().min() {
                    Some(least) => *least,
                    None => {
                        self.report(path, format!("the name `{host}` has no address"), None);
                        return None;
                    }
                },
                Err(error) => {
                    self.report(path, format!("the name `{host}` cannot be looked up: {error}"), None);
                    return None;
                }
            },
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
        let mend = if text.contains(':') { format!("write `[{text}]:80`") } else { format!("write `{text}:80`") };
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

fn mend_bind(text: &str) -> String {
    let port = text.strip_prefix(':').or_else(|| text.strip_prefix("*:")).unwrap_or(text);
    if port.parse::<u16>().is_ok() {
        return format!("write `0.0.0.0:{port}` for all IPv4 addresses, `[::]:{port}` for all IPv6 addresses");
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return format!("write `127.0.0.1:{port}`: names are not looked up here");
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => format!("add a port: `{address}:80`"),
        Ok(IpAddr::V6(address)) => format!("add a port: `[{address}]:80`"),
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
