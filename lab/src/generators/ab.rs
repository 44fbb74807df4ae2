//! `ab`: HTTP/1.0, a new connection for each request. It keeps no TLS session, and OpenSSL's settings say what it offers.

use super::Load;

/// Parses what `ab` prints, and the file of percentiles that it writes (`-e`).
pub(crate) fn parse(text: &str, percentiles: &str) -> Option<Load> {
    let mut load = Load::default();
    let mut requests = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let number = value.split_ascii_whitespace().next().unwrap_or("");
        match name.trim() {
            "Complete requests" => requests = number.parse().ok(),
            "Requests per second" => load.rps = number.parse().ok()?,
            "Non-2xx responses" => load.fail("not 2xx", number.parse().ok()?),
            "Transfer rate" => load.transfer_bytes = number.parse::<f64>().ok().map(|kbytes| kbytes * 1024.0),
            "SSL/TLS Protocol" => load.tls = Some(value.trim().to_owned()),
            // `(Connect: 0, Receive: 0, Length: 3, Exceptions: 0)`
            "(Connect" => {
                for kind in line.trim().trim_matches(['(', ')']).split(", ") {
                    let (kind, count) = kind.split_once(": ")?;
                    load.fail(&kind.to_ascii_lowercase(), count.parse().ok()?);
                }
            }
            _ => {}
        }
    }
    load.requests = requests?;
    for line in percentiles.lines().skip(1) {
        let (percentile, time_ms) = line.split_once(',')?;
        load.quantiles.push((percentile.parse().ok()?, 1000.0 * time_ms.parse::<f64>().ok()?));
    }
    load.p50_us = load.quantile_us(50.0).unwrap_or(0.0);
    load.p99_us = load.quantile_us(99.0).unwrap_or(0.0);
    Some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "This is ApacheBench, Version 2.3
SSL/TLS Protocol:       TLSv1.2,ECDHE-RSA-AES256-GCM-SHA384,2048,256
Document Path:          /1k
Concurrency Level:      50
Complete requests:      900
Failed requests:        3
   (Connect: 0, Receive: 1, Length: 0, Exceptions: 2)
Non-2xx responses:      4
Requests per second:    896.20 [#/sec] (mean)
Time per request:       55.790 [ms] (mean)
Transfer rate:          1024.00 [Kbytes/sec] received
";

    #[test]
    fn a_run_is_parsed_with_its_percentiles_and_errors_by_kind() {
        let load = parse(OUTPUT, "Percentage served,Time in ms\n0,1.000\n50,52.125\n99,80.5\n").unwrap();
        assert_eq!((load.requests, load.errors, load.rps), (900, 7, 896.2));
        assert_eq!((load.error_kinds["exceptions"], load.error_kinds["receive"]), (2, 1));
        assert_eq!((load.p50_us, load.p99_us, load.quantiles.len()), (52_125.0, 80_500.0, 3));
        assert_eq!(load.tls.as_deref(), Some("TLSv1.2,ECDHE-RSA-AES256-GCM-SHA384,2048,256"));
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("ab: wrong number of arguments", ""), None);
    }
}
