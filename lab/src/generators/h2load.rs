//! `h2load`: HTTP/2, many requests at a time on each connection.

use super::{Load, time_us};

/// What `h2load` found, and how the connections were secured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The counts and latencies.
    pub load: Load,
    /// Protocol version of HTTP: `h2`, `h2c` or `http/1.1`.
    pub protocol: String,
    /// Bytes of bodies that came, without those of heads.
    pub body_bytes: u64,
    /// Protocol, cipher and group.
    pub tls: Option<String>,
}

/// Parses the output of `h2load`, version 1.60 or later.
pub(crate) fn parse(text: &str) -> Option<Outcome> {
    let mut load = Load::default();
    let (mut requests, mut body_bytes) = (None, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().map(|word| word.trim_end_matches(',')).collect();
        match words.as_slice() {
            ["finished", "in", _, rate, "req/s", ..] => load.rps = rate.parse().ok()?,
            ["requests:", .., done, "done", _, "succeeded", failed, "failed", _, "errored", timeout, "timeout"] => {
                requests = done.parse().ok();
                // "failed" counts the "errored" too, and answers that were not 2xx or 3xx.
                load.fail("failed", failed.parse().ok()?);
                load.fail("timeout", timeout.parse().ok()?);
            }
            ["traffic:", .., data, "data"] => {
                body_bytes = data.trim_start_matches('(').trim_end_matches(')').parse().ok()?;
            }
            ["request", ":", _min, _max, median, _p95, p99, ..] => {
                load.p50_us = time_us(median)?;
                load.p99_us = time_us(p99)?;
            }
            _ => {}
        }
    }
    load.requests = requests?;
    let protocol = value(text, "Application protocol:").unwrap_or("unknown").to_owned();
    let tls = value(text, "TLS Protocol:").map(|version| {
        let cipher = value(text, "Cipher:").unwrap_or("unknown");
        format!("{version}, {cipher}, {}", value(text, "Negotiated Group:").unwrap_or("unknown"))
    });
    Some(Outcome { load, protocol, body_bytes, tls })
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "starting benchmark...
TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Negotiated Group: x25519
Application protocol: h2

finished in 1.00s, 48913.00 req/s, 7.46MB/s
requests: 48913 total, 49425 started, 48913 done, 48910 succeeded, 3 failed, 1 errored, 2 timeout
status codes: 48910 2xx, 0 3xx, 0 4xx, 2 5xx
traffic: 3.29MB (3452000) total, 1.11MB (1163000) headers (space savings 90.10%), 573.16KB (586920) data
                 min         max         median      p95         p99         mean        sd         +/- sd
request     :     1.54ms     19.46ms     10.00ms     13.37ms     14.13ms     10.37ms      1.21ms    85.63%
connect     :     2.29ms      6.06ms      4.16ms      6.06ms      6.06ms      4.20ms      1.21ms    62.50%
";

    #[test]
    fn a_run_is_parsed_with_its_protocol() {
        let outcome = parse(OUTPUT).unwrap();
        let load = &outcome.load;
        assert_eq!((load.requests, load.errors, load.rps), (48_913, 5, 48_913.0));
        assert_eq!((load.p50_us, load.p99_us, outcome.protocol.as_str()), (10_000.0, 14_130.0, "h2"));
        assert_eq!(outcome.body_bytes, 48_910 * 12);
        assert_eq!(outcome.tls.unwrap(), "TLSv1.3, TLS_AES_128_GCM_SHA256, x25519");
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("h2load: option requires an argument -- 'c'"), None);
    }
}
