//! Values of the command line: balancers, endpoints, header fields and times.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};

/// Reads the name of a balancer, one of all that need no settings.
pub(crate) fn balance() -> PossibleValuesParser {
    let summary = |doc: &'static str| doc.lines().next().unwrap_or(doc).trim_end_matches('.');
    plan::balance::by_name().map(|one| PossibleValue::new(one.name).help(summary(one.doc))).collect::<Vec<_>>().into()
}

/// Reads `host:port`, `http://host:port` or `unix:/path`. Whether the host has an address is found when the configuration is resolved.
pub(crate) fn endpoint(text: &str) -> Result<String, String> {
    if let Some((scheme, rest)) = text.split_once("://") {
        return of_url(text, &scheme.to_ascii_lowercase(), rest);
    }
    if text.starts_with("unix:") {
        // The configuration would take `${…}` for a variable.
        return Ok(text.replace("${", "$${"));
    }
    let (host, port) = text.rsplit_once(':').ok_or("an endpoint is host:port, such as 127.0.0.1:9001")?;
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if bare_ipv6 {
        return Err(format!("an IPv6 address needs brackets, such as [{host}]:{port}"));
    }
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err("an endpoint is host:port, with a port from 1 to 65535".into()),
    }
}

/// Reads the endpoint that a URL names. Its port is 80 where none is given.
fn of_url(url: &str, scheme: &str, rest: &str) -> Result<String, String> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let with_port = |port: u16| if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    match scheme {
        "http" if authority == rest.trim_end_matches('/') => endpoint(&with_port(80)),
        "http" => Err(format!(
            "an endpoint has no path: write {}; in a file, the filter `rewrite` changes the paths of requests",
            with_port(80)
        )),
        "https" => Err(format!(
            "`proxy` does not use TLS to endpoints: write a file whose cluster has `endpoints: [\"{}\"]` and `tls: true`, and \
             start it with `equipoise run -c FILE`",
            with_port(443)
        )),
        _ => Err(format!("`{url}` is no endpoint: write host:port, such as 127.0.0.1:9001")),
    }
}

/// Parses `name: value`.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header field is `name: value`, such as `cookie: beta=1`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Parses a duration such as `250ms`, `5s` or `2m`, from 1 ms to an hour.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time is a number with ms, s or m, from 1ms to 60m, such as 5s".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(unit_ms).filter(|ms| (1..=3_600_000).contains(ms)).ok_or_else(wrong)?;
    Ok(Duration::from_millis(ms))
}
