//! Units that settings of filters and listeners are written in.

use std::time::Duration;

/// The longest duration: a year.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(8_760 * 3_600);

/// From the longest unit down, with their milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads `250ms`, `2s`, `5m`, `1h` or `1m30s`. Returns `None` if it is another text, zero, or more than a year.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut units, mut total) = (text, &UNITS[..], Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let at = units.iter().position(|(unit, _)| *unit == &rest[digits..digits + letters])?;
        let count: u32 = rest[..digits].parse().ok()?;
        total += Duration::from_millis(u64::from(count) * units[at].1);
        units = &units[at + 1..];
        rest = &rest[digits + letters..];
    }
    (total > Duration::ZERO && total <= DURATION_MAX).then_some(total)
}
