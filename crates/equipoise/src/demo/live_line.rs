//! What the demo shows: a line each second, and a report at the end. Both come from the status that the API tells too.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use control::status::{EndpointStatus, Status};
use control::{State, View};
use tokio::time::MissedTickBehavior;

use super::load::Tally;
use super::origins::Origin;

/// On a terminal the line is drawn again this often.
const DRAW_EVERY: Duration = Duration::from_secs(1);
/// Elsewhere, a line is added this often.
const ADD_EVERY: Duration = Duration::from_secs(5);

/// The line that lives.
pub(super) struct LiveLine {
    view: View,
    origins: Vec<Origin>,
    terminal: bool,
    before: Option<Status>,
}

impl LiveLine {
    pub(super) fn new(view: View, origins: &[Origin]) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { view, origins: origins.to_vec(), terminal, before: None }
    }

    /// Draws until it is dropped.
    pub(super) async fn run(&mut self) {
        let mut ticks = tokio::time::interval(if self.terminal { DRAW_EVERY } else { ADD_EVERY });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = self.view.status();
            if let Some(before) = self.before.replace(now.clone()) {
                self.draw(&text(&before, &now, &self.origins));
            }
        }
    }

    /// Leaves a terminal with an empty line.
    pub(super) fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn draw(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        // If standard error is gone there is no one left to show it to. The cursor goes back to the start, so that a line
        // of the log takes the place of this one.
        let _ = if self.terminal { write!(stderr, "\r\x1b[K{text}\r") } else { writeln!(stderr, "{text}") };
    }
}

/// Returns what happened between two moments, in one line.
fn text(before: &Status, now: &Status, origins: &[Origin]) -> String {
    let period = now.uptime.saturating_sub(before.uptime).as_secs_f64().max(0.001);
    let total = now.total.since(&before.total);
    let rate = total.requests() as f64 / period;
    let quantile = |share| if total.requests() == 0 { "–".into() } else { millis(total.latency.quantile(share)) };
    let shares: Vec<String> = shares(Some(before), now)
        .into_iter()
        .map(|(endpoint, _, share)| format!("{} {share:.0}%", name(endpoint, origins)))
        .collect();
    let state = if now.state == State::Ready { "" } else { "  draining" };
    format!(
        "{:>7} requests/s  p50 {}  p99 {}  {}{state}",
        grouped(rate.round() as u64),
        quantile(0.5),
        quantile(0.99),
        shares.join(" · ")
    )
}

/// Endpoints with their requests since `before` and their share of them in per cent.
fn shares<'a>(before: Option<&Status>, now: &'a Status) -> Vec<(&'a EndpointStatus, u64, f64)> {
    let earlier = |endpoint: &EndpointStatus| {
        let found = before?.clusters.iter().flat_map(|cluster| &cluster.endpoints).find(|e| e.name == endpoint.name)?;
        Some(found.totals.requests())
    };
    let endpoints = now.clusters.iter().flat_map(|cluster| &cluster.endpoints);
    let counted: Vec<_> = endpoints
        .map(|endpoint| (endpoint, endpoint.totals.requests().saturating_sub(earlier(endpoint).unwrap_or(0))))
        .collect();
    let sum = counted.iter().map(|(_, requests)| requests).sum::<u64>().max(1) as f64;
    counted.into_iter().map(|(endpoint, requests)| (endpoint, requests, requests as f64 / sum * 100.0)).collect()
}

/// Returns the name of the origin at this endpoint.
fn name<'a>(endpoint: &'a EndpointStatus, origins: &[Origin]) -> &'a str {
    origins
        .iter()
        .find(|origin| Some(origin.address) == endpoint.address.ip())
        .map_or(&*endpoint.name, |origin| origin.name)
}

fn millis(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..100_000 => format!("{:.1} ms", micros as f64 / 1_000.0),
        _ => format!("{} ms", micros / 1_000),
    }
}

/// Formats a number as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What came of the demo.
pub(super) struct Report {
    time: Duration,
    requests: u64,
    errors: u64,
    tally: Option<Tally>,
    quantiles: [Duration; 4],
    shares: Vec<(&'static str, u64, f64)>,
}

impl Report {
    pub(super) fn of(status: &Status, tally: Option<Tally>, origins: &[Origin]) -> Self {
        let latency = &status.total.latency;
        let shares = shares(None, status).into_iter().filter_map(|(endpoint, requests, share)| {
            let origin = origins.iter().find(|origin| Some(origin.address) == endpoint.address.ip())?;
            Some((origin.name, requests, share))
        });
        Self {
            time: status.uptime,
            requests: status.total.requests(),
            errors: status.total.errors(),
            tally,
            quantiles: [0.5, 0.9, 0.99, 1.0].map(|share| latency.quantile(share)),
            shares: shares.collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.requests as f64 / self.time.as_secs_f64().max(0.001);
        writeln!(f, "{:<10} {:>12}", "time", format!("{:.1} s", self.time.as_secs_f64()))?;
        writeln!(f, "{:<10} {:>12}  {} a second", "requests", grouped(self.requests), grouped(rate.round() as u64))?;
        writeln!(f, "{:<10} {:>12}  answered with 5xx or cut short", "failed", grouped(self.errors))?;
        if let Some(tally) = self.tally {
            let (good, failed) = (grouped(tally.good), grouped(tally.failed));
            writeln!(f, "{:<10} {good:>12}  answered with 200, {failed} not, as the clients saw it", "load")?;
        }
        for (label, quantile) in ["p50", "p90", "p99", "longest"].into_iter().zip(self.quantiles) {
            writeln!(f, "{label:<10} {:>12}", millis(quantile))?;
        }
        for (name, requests, share) in &self.shares {
            let bar = "#".repeat((share / 2.5).round() as usize);
            writeln!(f, "{name:<10} {:>12}  {share:>3.0}% {bar}", grouped(*requests))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands_and_times_keep_two_digits_or_so() {
        assert_eq!([0, 12, 999, 1_000, 1_234_567].map(grouped), ["0", "12", "999", "1,000", "1,234,567"]);
        let times = [0, 999, 1_000, 20_049, 100_000, 2_000_000].map(|micros| millis(Duration::from_micros(micros)));
        assert_eq!(times, ["0 us", "999 us", "1.0 ms", "20.0 ms", "100 ms", "2000 ms"]);
    }

    #[test]
    fn the_report_shows_the_load_and_a_bar_for_each_share() {
        let report = Report {
            time: Duration::from_secs(5),
            requests: 10_000,
            errors: 0,
            tally: Some(Tally { good: 10_000, failed: 0 }),
            quantiles: [1_200, 2_000, 20_000, 31_000].map(Duration::from_micros),
            shares: vec![("swift", 7_500, 75.0), ("slow", 2_500, 25.0)],
        };
        let text = report.to_string();
        for wanted in ["2,000 a second", "10,000  answered with 200, 0 not", "75% ####", "1.2 ms", "31.0 ms"] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
    }
}
