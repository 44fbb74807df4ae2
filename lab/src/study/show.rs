//! Small pieces of a page that more than one study shows.

use crate::report::page::{TableCell, Tone};

/// A place in a table that says something.
pub(super) fn plain(text: impl Into<String>) -> TableCell {
    TableCell { text: text.into(), ..TableCell::default() }
}

/// A place that is shown in a tone, with more to say.
pub(super) fn toned(text: impl Into<String>, tone: Tone, detail: impl Into<String>) -> TableCell {
    TableCell { text: text.into(), tone, detail: detail.into() }
}

/// A count that should be 0: anything else is shown as doubtful, with its reason.
pub(super) fn fault_count(count: usize, detail: impl Into<String>) -> TableCell {
    let tone = if count == 0 { Tone::Plain } else { Tone::Doubtful };
    toned(thousands(count as f64), tone, detail)
}

/// A row of a product that could not be measured: the reason, and nothing in the other columns.
pub(super) fn failed_row(product: &str, reason: &str, columns: usize) -> Vec<TableCell> {
    let mut row = vec![plain(product), toned("failed", Tone::Failed, reason)];
    row.resize(columns.max(2), toned("–", Tone::LeftOut, ""));
    row
}

/// A whole number with its thousands apart.
pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value <= -0.5 { format!("-{out}") } else { out }
}

/// A time in ms, with as many digits as mean something.
pub(super) fn ms(us: f64) -> String {
    let ms = us / 1000.0;
    match ms {
        _ if ms >= 100.0 => thousands(ms),
        _ if ms >= 10.0 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}

/// Marks the best of a column: the least, or the most, of those that are there.
pub(super) fn mark_best(rows: &mut [Vec<TableCell>], column: usize, values: &[Option<f64>], most: bool) {
    let known = values.iter().flatten().copied();
    let best = if most { known.fold(f64::NEG_INFINITY, f64::max) } else { known.fold(f64::INFINITY, f64::min) };
    for (row, value) in rows.iter_mut().zip(values) {
        if *value == Some(best)
            && let Some(cell) = row.get_mut(column).filter(|cell| cell.tone == Tone::Plain)
        {
            cell.tone = Tone::Best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let shown: Vec<String> = [0.0, 7.4, 999.6, 12_345.0, 1_234_567.0, -1000.0].map(thousands).to_vec();
        assert_eq!(shown, ["0", "7", "1,000", "12,345", "1,234,567", "-1,000"]);
    }

    #[test]
    fn times_have_the_digits_that_mean_something() {
        assert_eq!([1_234.0, 12_345.0, 123_456.0, 47_000_000.0].map(ms), ["1.23", "12.3", "123", "47,000"]);
    }

    #[test]
    fn the_best_is_marked_and_a_doubtful_one_is_not() {
        let mut rows = vec![vec![plain("3")], vec![toned("1", Tone::Doubtful, "")], vec![plain("1")], vec![plain("–")]];
        mark_best(&mut rows, 0, &[Some(3.0), Some(1.0), Some(1.0), None], false);
        let tones: Vec<Tone> = rows.iter().map(|row| row[0].tone).collect();
        assert_eq!(tones, [Tone::Plain, Tone::Doubtful, Tone::Best, Tone::Plain]);
    }
}
