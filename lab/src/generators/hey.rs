//! `hey`: a number of requests, or a new connection with a full TLS handshake for each. It keeps no TLS session; `wrk`
//! does.

use super::Load;

/// Parses the summary that `hey` prints.
pub(crate) fn parse(text: &str) -> Option<Load> {
    let mut load = Load::default();
    let (mut total_s, mut total_bytes) = (0.0, None);
    let mut slowest = None;
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
            ["Total:", seconds, "secs"] => total_s = seconds.parse().ok()?,
            ["Total", "data:", bytes, "bytes"] => total_bytes = bytes.parse::<f64>().ok(),
            ["Fastest:", seconds, "secs"] => load.quantiles.push((0.0, us(seconds)?)),
            ["Slowest:", seconds, "secs"] => slowest = us(seconds),
            [percent, "in", seconds, "secs"] if percent.ends_with('%') => {
                load.quantiles.push((percent.trim_end_matches('%').parse().ok()?, us(seconds)?));
            }
            [status, count, "responses"] => {
                let count: u64 = count.parse().ok()?;
                load.requests += count;
                if !status.starts_with("[2") {
                    load.fail(&format!("status {}", status.trim_matches(['[', ']'])), count);
                }
            }
            [count, ..] if in_errors && count.starts_with('[') => {
                let what = line.rsplit(": ").next().unwrap_or("error").trim();
                load.fail(what, count.trim_matches(['[', ']']).parse().ok()?);
            }
            _ => {}
        }
    }
    load.quantiles.extend(slowest.map(|slowest| (100.0, slowest)));
    load.quantiles.sort_by(|one, other| one.0.total_cmp(&other.0));
    load.p50_us = load.quantile_us(50.0).unwrap_or(0.0);
    load.p99_us = load.quantile_us(99.0).unwrap_or(0.0);
    load.transfer_bytes = total_bytes.filter(|_| total_s > 0.0).map(|bytes| bytes / total_s);
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
        let percentiles: Vec<f64> = load.quantiles.iter().map(|(percentile, _)| *percentile).collect();
        assert_eq!(percentiles, [10.0, 50.0, 99.0, 100.0]);
        assert_eq!((load.error_kinds["connection refused"], load.error_kinds["status 502"]), (3, 7));
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("Usage: hey [options...] <url>"), None);
    }
}
