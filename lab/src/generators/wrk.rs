//! `wrk`: keep-alive and one-request connections, closed loop.

use super::{Load, size_bytes, time_us};

/// Parses the output of `wrk --latency`, with or without the lab's script for the distribution.
pub(crate) fn parse(text: &str) -> Option<Load> {
    let mut load = Load::default();
    let mut requests = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["50%", time] => load.p50_us = time_us(time)?,
            ["99%", time] => load.p99_us = time_us(time)?,
            [count, "requests", "in", ..] => requests = count.parse().ok(),
            ["Requests/sec:", rate] => load.rps = rate.parse().ok()?,
            ["Transfer/sec:", size] => load.transfer_bytes = size_bytes(size),
            ["lab-percentile", percentile, us] => load.quantiles.push((percentile.parse().ok()?, us.parse().ok()?)),
            ["Non-2xx", "or", "3xx", "responses:", count] => load.fail("not 2xx", count.parse().ok()?),
            ["Socket", "errors:", "connect", c, "read", r, "write", w, "timeout", t] => {
                for (kind, count) in [("connect", c), ("read", r), ("write", w), ("timeout", t)] {
                    load.fail(kind, count.trim_end_matches(',').parse().ok()?);
                }
            }
            _ => {}
        }
    }
    load.requests = requests?;
    Some(load)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 5s test @ http://127.0.0.1:18080/12
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.05ms  310.52us  12.01ms   91.10%
    Req/Sec    47.71k     2.03k   51.00k    74.00%
  Latency Distribution
     50%  998.00us
     75%    1.12ms
     90%    1.30ms
     99%    2.25ms
  237312 requests in 5.00s, 29.42MB read
Requests/sec:  47451.24
Transfer/sec:      5.88MB
";

    #[test]
    fn a_clean_run_is_parsed() {
        let load = parse(OUTPUT).unwrap();
        let expected = Load { requests: 237_312, rps: 47_451.24, p50_us: 998.0, p99_us: 2250.0, ..Load::default() };
        assert_eq!(load, Load { transfer_bytes: Some(5.88 * 1024.0 * 1024.0), ..expected });
    }

    #[test]
    fn errors_of_both_kinds_are_added() {
        let text = OUTPUT.replace(
            "Requests/sec",
            "  Socket errors: connect 1, read 2, write 3, timeout 4\n  Non-2xx or 3xx responses: 90\nRequests/sec",
        );
        let load = parse(&text).unwrap();
        assert_eq!((load.errors, load.error_kinds["not 2xx"], load.error_kinds["timeout"]), (100, 90, 4));
    }

    #[test]
    fn the_distribution_of_the_script_is_read() {
        let load = parse(&format!("{OUTPUT}lab-percentile 50 998\nlab-percentile 99.9 4000\n")).unwrap();
        assert_eq!(load.quantiles, [(50.0, 998.0), (99.9, 4000.0)]);
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("unable to connect to 127.0.0.1:18080 Connection refused"), None);
    }
}
