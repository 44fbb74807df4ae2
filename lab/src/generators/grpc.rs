//! The benchmark of gRPC's library for Go: calls, or messages on streams that last, each of which waits for its answer. A call
//! that fails ends it with an error, so what it reports was all answered well.

use super::Load;

/// Parses the output of the benchmark's client, which ran so many seconds.
pub(crate) fn parse(text: &str, seconds: u64) -> Option<Load> {
    let mut load = Load { rps: value(text, "qps:")?.parse().ok()?, ..Load::default() };
    load.requests = (load.rps * seconds as f64).round() as u64;
    // The median, the 90th and the 99th percentile.
    let mut times = value(text, "Latency: (50/90/99 %ile):")?.split('/').map(go_time_us);
    load.p50_us = times.next()??;
    load.p99_us = times.next_back()??;
    Some(load)
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// A time as Go writes it: `850ns`, `12.5µs`, `1.02ms`, `2.5s`.
fn go_time_us(text: &str) -> Option<f64> {
    let unit_at = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let number: f64 = text[..unit_at].parse().ok()?;
    let factor = match &text[unit_at..] {
        "ns" => 1e-3,
        "µs" | "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "qps: 21034.6
Latency: (50/90/99 %ile): 853.412µs/1.2ms/2.017456ms
Client CPU utilization: 4.9s
Client CPU profile: /tmp/lab.cpu
";

    #[test]
    fn calls_and_their_times_are_parsed() {
        let load = parse(OUTPUT, 5).unwrap();
        assert_eq!((load.requests, load.errors, load.rps), (105_173, 0, 21_034.6));
        assert_eq!(load.p50_us, 853.412);
        assert!((load.p99_us - 2017.456).abs() < 1e-6);
    }

    #[test]
    fn something_else_is_no_result() {
        assert_eq!(parse("FATAL: RPC failed: rpc error: code = Unavailable", 5), None);
        assert_eq!(parse("qps: 0\nLatency: (50/90/99 %ile): 1h/2/3", 5), None);
    }
}
