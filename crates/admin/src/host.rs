//! Refuses requests that a foreign page makes through a name of its own.
//!
//! A page at `evil.example` may let its name point to 127.0.0.1 a moment after it was loaded (DNS rebinding). The
//! browser then takes this listener for the page's own origin, but still sends the page's name as `host`.

use std::net::{IpAddr, SocketAddr};

/// Returns whether a request with this `host` field is meant for a listener at `bind`; without one, it came by a Unix socket, which no
/// browser does. A loopback listener answers to loopback addresses, `localhost` and names below it (RFC 6761 section 6.3) only. Any other
/// was opened to the network on purpose and is known by names that no one told us.
pub(crate) fn is_ours(bind: Option<SocketAddr>, host: &str) -> bool {
    let Some(bind) = bind else { return true };
    let Some(name) = without_port(host) else { return false };
    if !bind.ip().to_canonical().is_loopback() {
        return !name.is_empty();
    }
    if let Ok(address) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.strip_suffix(".localhost").is_some_and(|rest| !rest.is_empty())
}

/// Returns the host of `host[:port]` (RFC 9112 section 3.2), or `None` if the text has another form.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')? + 2;
            (&host[..end], &host[end..])
        }
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = digits.is_empty() || (port.len() > digits.len() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    is_port.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(host: &str) -> bool {
        is_ours("127.0.0.1:9900".parse().ok(), host)
    }

    #[test]
    fn a_loopback_listener_answers_to_loopback_names() {
        for ours in [
            "127.0.0.1:9900",
            "127.0.0.1",
            "127.3.2.1:80",
            "[::1]:9900",
            "[::1]",
            "localhost",
            "LocalHost:9900",
            "localhost.:9900",
            "demo.localhost:1",
            "[::ffff:127.0.0.1]:9900",
        ] {
            assert!(loopback(ours), "{ours}");
        }
    }

    #[test]
    fn a_loopback_listener_refuses_all_other_names() {
        for foreign in [
            "evil.example:9900",
            "evil.example",
            "10.0.0.1:9900",
            "[2001:db8::1]:9900",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evillocalhost",
            ".localhost",
            "",
            ":9900",
            "[::1",
            "[::1]x",
            "localhost:80x",
            "localhost:80:80",
            "0.0.0.0",
            "[",
            "[]",
            "é",
        ] {
            assert!(!loopback(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_listener_opened_to_the_network_answers_to_any_name_but_none() {
        let open = |host| is_ours("10.0.0.1:9900".parse().ok(), host);
        assert!(open("proxy.example.com:9900") && open("10.0.0.1"));
        assert!(!open("") && !open(":80"));
        assert!(is_ours(None, "anything"));
    }
}
