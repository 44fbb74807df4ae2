//! The charts and tables that several studies show, made of what was found in their cells.

use super::cells::{Found, Row};
use crate::measure::Sample;
use crate::report::page::{Axis, Chart, ChartKind, Scale, Series, Table, TableCell, Tone};

/// A figure of a sample, with how it is shown.
pub(crate) struct Figure {
    /// What, with its unit.
    pub title: &'static str,
    pub of: fn(&Sample) -> Option<f64>,
    /// More is better.
    pub more_is_better: bool,
}

/// CPU time for a request.
pub(crate) const CPU: Figure =
    Figure { title: "CPU time of the proxy, us per request", of: |sample| sample.cpu_us, more_is_better: false };

/// Throughput.
pub(crate) const RATE: Figure = Figure { title: "requests per second", of: |sample| sample.rps, more_is_better: true };

/// Bytes received.
pub(crate) const TRANSFER: Figure = Figure {
    title: "received, MB per second",
    of: |sample| sample.transfer_bytes.map(|bytes| bytes / 1e6),
    more_is_better: true,
};

/// Median latency.
pub(crate) const P50: Figure = Figure {
    title: "median latency, ms",
    of: |sample| sample.p50_us.map(|time_us| time_us / 1000.0),
    more_is_better: false,
};

/// 99th percentile.
pub(crate) const P99: Figure = Figure {
    title: "99th percentile of latency, ms",
    of: |sample| sample.p99_us.map(|time_us| time_us / 1000.0),
    more_is_better: false,
};

/// Peak memory.
pub(crate) const MEMORY: Figure = Figure {
    title: "peak memory, MB",
    of: |sample| sample.peak_bytes.map(|bytes| bytes as f64 / 1e6),
    more_is_better: false,
};

/// Bars of a figure: a group for each cell, a bar for each product.
pub(crate) fn bars(cells: &[&Found], labels: &[&str], figure: &Figure) -> Chart {
    let series = products(cells).into_iter().filter_map(|product| {
        let rows = cells.iter().map(|cell| cell.rows.iter().find(|row| row.product == product));
        let points = rows.clone().enumerate().filter_map(|(at, row)| {
            let value = (figure.of)(row?.median.as_ref()?)?;
            Some((at as f64, value))
        });
        let points: Vec<(f64, f64)> = points.collect();
        let failure = rows.flatten().find_map(|row| row.failure.clone());
        let is_shown = !points.is_empty() || failure.is_some();
        is_shown.then(|| Series { product: product.to_owned(), points, failure })
    });
    let better = if figure.more_is_better { "Longer bars are better." } else { "Shorter bars are better." };
    Chart {
        title: figure.title.to_owned(),
        note: better.to_owned(),
        kind: ChartKind::Bars,
        x: Axis { categories: labels.iter().map(|&label| label.to_owned()).collect(), ..Axis::default() },
        y: Axis { title: figure.title.to_owned(), ..Axis::default() },
        series: series.collect(),
        ..Chart::default()
    }
}

/// Bars of a figure as a share of what one product reached.
pub(crate) fn bars_relative(cells: &[&Found], labels: &[&str], figure: &Figure, to: &str) -> Chart {
    let mut chart = bars(cells, labels, figure);
    let base = chart.series.iter().find(|series| series.product == to).map(|series| series.points.clone());
    let base = base.unwrap_or_default();
    let share = |(at, value): (f64, f64)| {
        let (_, base) = base.iter().find(|(other, _)| *other == at)?;
        Some((at, 100.0 * value / base))
    };
    for series in &mut chart.series {
        series.points = series.points.iter().copied().filter_map(share).collect();
    }
    chart.title = format!("{} as a share of {to}", figure.title.split(',').next().unwrap_or(figure.title));
    chart.y.title = format!("% of {to}");
    chart
}

/// Latency by percentile, the tail spread out.
pub(crate) fn percentiles(cell: &Found) -> Chart {
    let points = |sample: &Sample| {
        let points = sample.quantiles.iter().map(|&(percentile, time_us)| (percentile, time_us / 1000.0));
        points.filter(|(_, time_ms)| *time_ms > 0.0).collect()
    };
    Chart {
        label: cell.title.clone(),
        title: format!("Latency by percentile: {}", cell.title),
        note: "How long the slowest requests took: each nine to the right is a tenth of those before it.".to_owned(),
        x: Axis { title: "percentile".to_owned(), scale: Scale::Nines, ..Axis::default() },
        y: Axis { title: "latency, ms".to_owned(), scale: Scale::Log, ..Axis::default() },
        series: series(cell, points),
        ..Chart::default()
    }
}

/// How many percent of the requests were answered within a time.
pub(crate) fn completed_within(cell: &Found) -> Chart {
    let points = |sample: &Sample| {
        let points = sample.quantiles.iter().map(|&(percentile, time_us)| (time_us / 1000.0, percentile));
        points.filter(|(time_ms, _)| *time_ms > 0.0).collect()
    };
    Chart {
        label: cell.title.clone(),
        title: format!("Requests completed within a time: {}", cell.title),
        note: "The further up and left, the better.".to_owned(),
        kind: ChartKind::Step,
        x: Axis { title: "time, ms".to_owned(), scale: Scale::Log, ..Axis::default() },
        y: Axis { title: "requests completed, %".to_owned(), ..Axis::default() },
        series: series(cell, points),
        ..Chart::default()
    }
}

/// How much CPU the product used while it was measured.
pub(crate) fn cpu_over_time(cell: &Found) -> Chart {
    Chart {
        label: cell.title.clone(),
        title: format!("CPU use of the proxy over time: {}", cell.title),
        note:
            "All its processes and threads, user and system time, in the first round. A proxy below the number of its \
               cores was waiting for load or origins."
                .to_owned(),
        x: Axis { title: "time, s".to_owned(), ..Axis::default() },
        y: Axis { title: "cores used".to_owned(), ..Axis::default() },
        series: series(cell, |sample| sample.cores_over_time.clone()),
        ..Chart::default()
    }
}

/// Charts that are shown one at a time.
pub(crate) fn group(name: &str, charts: impl IntoIterator<Item = Chart>) -> Vec<Chart> {
    charts.into_iter().map(|chart| Chart { group: name.to_owned(), ..chart }).collect()
}

/// One product's points each, or why there are none. Who does not take part, and who has nothing to show, is left out.
pub(crate) fn series(cell: &Found, points: impl Fn(&Sample) -> Vec<(f64, f64)>) -> Vec<Series> {
    let one = |row: &Row| {
        let points = row.median.as_ref().map(&points).unwrap_or_default();
        let failure = if points.is_empty() { row.failure.clone() } else { None };
        let is_shown = !points.is_empty() || failure.is_some();
        is_shown.then(|| Series { product: row.product.to_owned(), points, failure })
    };
    cell.rows.iter().filter_map(one).collect()
}

fn products(cells: &[&Found]) -> Vec<&'static str> {
    cells.first().map(|cell| cell.rows.iter().map(|row| row.product).collect()).unwrap_or_default()
}

const COLUMNS: &[&str] = &[
    "product",
    "CPU us/req",
    "x equipoise",
    "x floor",
    "req/s",
    "x equipoise",
    "p50 ms",
    "p99 ms",
    "errors",
    "peak memory MB",
];

/// All figures of a cell, with the ratios to Equipoise and to the floor.
pub(crate) fn table(cell: &Found) -> Table {
    let is_disturbed = cell.rows.iter().filter_map(|row| row.median.as_ref()).any(Sample::is_disturbed);
    let note = if is_disturbed { "~ others used the machine meanwhile: compare within the table only." } else { "" };
    Table {
        title: cell.title.clone(),
        note: note.to_owned(),
        columns: COLUMNS.iter().map(|&column| column.to_owned()).collect(),
        rows: cell.rows.iter().map(|row| table_row(cell, row)).collect(),
    }
}

fn table_row(cell: &Found, row: &Row) -> Vec<TableCell> {
    let name = TableCell { text: row.product.to_owned(), ..TableCell::default() };
    let Some(median) = &row.median else {
        let (tone, text, detail) = match (&row.left_out, &row.failure) {
            (Some(reason), _) => (Tone::LeftOut, "–", reason.clone()),
            (None, Some(reason)) => (Tone::Failed, "failed", reason.clone()),
            (None, None) => (Tone::LeftOut, "–", "not measured".to_owned()),
        };
        let blank = TableCell { text: text.to_owned(), tone, detail };
        return std::iter::once(name).chain((1..COLUMNS.len()).map(|_| blank.clone())).collect();
    };
    let ratio = |figure: &Figure, to: &str| {
        let other = cell.of(to).and_then(figure.of).filter(|other| *other > 0.0);
        let text =
            (figure.of)(median).zip(other).map_or("–".to_owned(), |(own, other)| format!("{:.2}", own / other));
        TableCell { text, ..TableCell::default() }
    };
    vec![
        name,
        value(cell, median, &CPU, row.spread),
        ratio(&CPU, "equipoise"),
        ratio(&CPU, "floor"),
        value(cell, median, &RATE, None),
        ratio(&RATE, "equipoise"),
        value(cell, median, &P50, None),
        value(cell, median, &P99, None),
        errors(median, row.failure.as_deref()),
        value(cell, median, &MEMORY, None),
    ]
}

/// A figure; the best of the products in its column, the floor and the direct run aside.
fn value(cell: &Found, median: &Sample, figure: &Figure, spread: Option<f64>) -> TableCell {
    let Some(own) = (figure.of)(median) else {
        return TableCell { text: "–".to_owned(), tone: Tone::LeftOut, ..TableCell::default() };
    };
    let products = cell.rows.iter().filter(|row| !["floor", "direct"].contains(&row.product));
    let others = products.filter_map(|row| (figure.of)(row.median.as_ref()?));
    let worst = if figure.more_is_better { f64::NEG_INFINITY } else { f64::INFINITY };
    let best = others.fold(worst, if figure.more_is_better { f64::max } else { f64::min });
    let is_disturbed = median.is_disturbed() && figure.title == CPU.title;
    let mut detail = spread.map_or(String::new(), |spread| format!("spread over the rounds {:.0} %", 100.0 * spread));
    if is_disturbed {
        let share = 100.0 * (median.others_share + median.stolen_share);
        detail.push_str(&format!("; others used {share:.0} % of the machine"));
    }
    let tone = match () {
        () if is_disturbed => Tone::Doubtful,
        () if own == best => Tone::Best,
        () => Tone::Plain,
    };
    let mark = if is_disturbed { "~" } else { "" };
    TableCell { text: format!("{mark}{}", number(own)), tone, detail: detail.trim_start_matches("; ").to_owned() }
}

fn errors(median: &Sample, failure: Option<&str>) -> TableCell {
    let mut kinds: Vec<String> = median.error_kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    kinds.extend(failure.map(|reason| format!("a round failed: {reason}")));
    let tone = if kinds.is_empty() && median.errors == 0 { Tone::Plain } else { Tone::Doubtful };
    TableCell { text: median.errors.to_string(), tone, detail: kinds.join(", ") }
}

/// A figure with three digits that mean something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A difference in percent, with its sign.
pub(crate) fn percent(change: f64) -> String {
    let whole = change.round();
    if whole == 0.0 { "±0 %".to_owned() } else { format!("{whole:+.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(product: &'static str, cpu_us: f64) -> Row {
        let median = Sample { cpu_us: Some(cpu_us), rps: Some(1e6 / cpu_us), ..Sample::default() };
        Row { product, median: Some(Sample { quantiles: vec![(50.0, 900.0)], ..median }), ..Row::default() }
    }

    fn cell() -> Found {
        let failed = Row { product: "envoy", failure: Some("no such file".to_owned()), ..Row::default() };
        let left_out = Row { product: "direct", left_out: Some("no proxy".to_owned()), ..Row::default() };
        let rows = vec![row("floor", 10.0), row("equipoise", 15.0), row("nginx", 30.0), failed, left_out];
        Found { title: "small".to_owned(), rows }
    }

    #[test]
    fn a_table_shows_ratios_the_best_product_and_why_something_is_missing() {
        let table = table(&cell());
        let texts = |at: usize| table.rows[at].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>();
        assert_eq!(texts(2)[..5], ["nginx", "30.0", "2.00", "3.00", "33333"]);
        assert_eq!((table.rows[0][1].tone, table.rows[1][1].tone), (Tone::Plain, Tone::Best));
        assert_eq!((table.rows[3][1].tone, table.rows[3][1].detail.as_str()), (Tone::Failed, "no such file"));
        assert_eq!(table.rows[4][1].tone, Tone::LeftOut);
    }

    #[test]
    fn a_difference_has_a_sign_and_none_when_there_is_none() {
        assert_eq!([percent(-0.3), percent(12.6), percent(-40.0)], ["±0 %", "+13 %", "-40 %"]);
    }

    #[test]
    fn charts_keep_failures_and_leave_out_who_takes_no_part() {
        let cell = cell();
        let chart = bars(&[&cell], &["small"], &CPU);
        let products: Vec<&str> = chart.series.iter().map(|series| series.product.as_str()).collect();
        assert_eq!(products, ["floor", "equipoise", "nginx", "envoy"]);
        assert_eq!(chart.series[3].failure.as_deref(), Some("no such file"));
        assert_eq!(percentiles(&cell).series[1].points, [(50.0, 0.9)]);
        let relative = bars_relative(&[&cell], &["small"], &RATE, "floor");
        assert_eq!(relative.series[1].points[0].1.round(), 67.0);
    }
}
