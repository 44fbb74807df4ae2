//! `hey`: a new connection with a full TLS handshake for every request. It keeps no TLS session; `wrk` does.

use super::Load;

/// Parses the summary that `hey` prints.
pub(crate) fn parse(text: &str) -> Option<Load> {
    let mut load = Load::default();
    let mut requests = 0;
    let mut seen = false;
    let mut in_errors = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        in_errors = match words.first() {
            Some(&"Error") => true,
            Some(_) => in_errors,
            None => false,
        };
        match words.as_slice() {
            ["Requests/sec:", rate] => {
                load.rps = rate.parse().ok()?;
                seen = true;
            }
            ["50%", "in", seconds, "secs"] | ["50%%", "in", seconds, "secs"] => load.p50_us = us(seconds)?,
            ["99%", "in", seconds, "secs"] | ["99%%", "in", seconds, "secs"] => load.p99_us = us(seconds)?,
            [status, count, "responses"] => {
                let count: u64 = count.parse().ok()?;
                requests += count;
                if !status.starts_with("[2") {
                    load.errors += count;
                }
            }
            [count, ..] if in_errors && count.starts_with('[') => {
                load.errors += count.trim_matches(['[', ']']).parse::<u64>().ok()?;
            }
            _ => {}
        }
    }
    load.requests = requests;
    seen.then_some(load)
}

fn us(seconds: &str) -> Option<f64> {
    seconds.parse::<f64>().ok().map(|seconds| seconds * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
Summary:
  Total:\t0.9871 secs
  Slowest:\t0.0312 secs
  Requests/sec:\t10130.5500

Latency distribution:
  10% in 0.0021 secs
  50% in 0.0044 secs
  99% in 0.0150 secs

Status code distribution:
  [200]\t9990 responses
  [502]\t7 responses

Error distribution:
  [3]\tGet \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused
";

    #[test]
    fn a_summary_is_parsed_with_errors_of_both_kinds() {
        let load = parse(OUTPUT).unwrap();
        assert_eq!((load.requests, load.errors, load.rps), (9997, 10, 10_130.55));
        assert!((load.p50_us - 4400.0).abs() < 0.1 && (load.p99_us - 15_000.0).abs() < 0.1);
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("Usage: hey [options...] <url>"), None);
    }
}
