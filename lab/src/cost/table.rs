//! Tables for a terminal.

use super::results::{Against, CellResult, ProductResult, Report, SIZE_TOLERANCE};
use std::fmt::Write;

/// A cell, one line for each product.
pub(crate) fn cell(result: &CellResult) -> String {
    let mut out = format!("\n{}: {}\n", result.name, result.title);
    let memory = result.products.iter().any(|row| row.median.as_ref().is_some_and(|m| m.connection_bytes.is_some()));
    let figure = if memory { "kB/conn" } else { "CPU us/req" };
    let is_encoded = result.products.iter().any(|row| row.median.as_ref().is_some_and(|m| m.answer_bytes.is_some()));
    let _ = writeln!(
        out,
        "  {:<15}{figure:>11}{:>8}{:>13}{:>10}{:>10}{:>10}{:>10}{:>9}{}",
        "product",
        "spread",
        "x equipoise",
        "x floor",
        "req/s",
        "p50 us",
        "p99 us",
        "errors",
        if is_encoded { "  bytes beside equipoise's" } else { "" }
    );
    for row in &result.products {
        let _ = writeln!(out, "  {:<15}{}", row.name, line(result, row));
    }
    if let Some(Against { best, times }) = &result.against {
        let of = if is_encoded { " with answers of that size" } else { "" };
        let _ = writeln!(out, "  equipoise: {times:.2} x {best}, the best peer{of}");
    } else if is_encoded {
        out.push_str("  equipoise: no peer to compare with has answers of that size");
    }
    out.trim_end().to_owned()
}

fn line(result: &CellResult, row: &ProductResult) -> String {
    let Some(median) = &row.median else {
        return match (&row.left_out, &row.failure) {
            (Some(reason), _) => format!("     –  ({reason})"),
            (None, Some(reason)) => format!("     FAILED: {reason}"),
            (None, None) => "     not measured".to_owned(),
        };
    };
    let own = result.figure(row.name);
    let ratio = |to: &str| match (own, result.figure(to)) {
        (Some(own), Some(other)) if other > 0.0 => format!("{:.2}", own / other),
        _ => "–".to_owned(),
    };
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"));
    let shown = match (median.cpu_us, median.connection_bytes) {
        (Some(us), _) => format!("{us:.1}"),
        (None, Some(bytes)) => format!("{:.1}", bytes / 1000.0),
        (None, None) => "–".to_owned(),
    };
    let spread = row
        .spread
        .filter(|_| row.samples.len() > 1)
        .map_or_else(|| "–".to_owned(), |spread| format!("{:.0} %", spread * 100.0));
    let mut text = format!(
        "{shown:>11}{spread:>8}{:>13}{:>10}{:>10}{:>10}{:>10}{:>9}",
        ratio("equipoise"),
        ratio("floor"),
        number(median.rps),
        number(median.p50_us),
        number(median.p99_us),
        median.errors,
    );
    if let Some(bytes) = median.answer_bytes {
        let _ = write!(text, "  {bytes:>7}{}", size_beside(result.size_beside_equipoise(row.name)));
    }
    if let Some(remark) = &row.remark {
        let _ = write!(text, "  ({remark})");
    }
    if let (Some(rps), Some(offered)) = (median.rps, median.offered_rps)
        && rps < offered * 0.98
    {
        let _ = write!(text, "  OVERLOADED: {offered:.0}/s were offered");
    }
    if let (Some(late), Some(p99)) = (median.generator_late_us, median.p99_us)
        && late > p99 / 2.0
    {
        let _ = write!(text, "  the generator itself was {late:.0} us late");
    }
    if row.disturbed {
        let share = (median.others_share + median.stolen_share) * 100.0;
        let _ = write!(text, "  disturbed: others used {share:.0} % of the machine");
    }
    if let Some(reason) = &row.failure {
        let _ = write!(text, "  one round FAILED: {reason}");
    }
    text
}

/// The difference of sizes, marked when it is too large for the costs to be compared.
fn size_beside(more: Option<f64>) -> String {
    let Some(more) = more else { return String::new() };
    let percent = more * 100.0;
    if more.abs() > SIZE_TOLERANCE { format!(" {percent:+5.1} % SIZE DIFFERS") } else { format!(" {percent:+5.1} %") }
}

/// All cells: the figure of every product, with its ratio to Equipoise (or to the floor without it).
pub(crate) fn summary(report: &Report) -> String {
    let names: Vec<&str> = report.cells.first().map_or(Vec::new(), |c| c.products.iter().map(|row| row.name).collect());
    let to = if names.contains(&"equipoise") { "equipoise" } else { "floor" };
    let mut out =
        format!("\nCPU us for a request (idle cells: kB for a connection), and how many times that of {to}\n");
    let _ = write!(out, "  {:<16}", "");
    for name in &names {
        let _ = write!(out, "{name:>17}");
    }
    let _ = write!(out, "{:>24}", "equipoise x best peer");
    for cell in &report.cells {
        let _ = write!(out, "\n  {:<16}", cell.name);
        for row in &cell.products {
            let _ = write!(out, "{:>17}", short(cell, row, to));
        }
        if let Some(Against { best, times }) = &cell.against {
            let _ = write!(out, "{:>24}", format!("{times:.2} x {best}"));
        }
    }
    out.push('\n');
    for (name, version) in &report.versions {
        let _ = write!(out, "\n  {name:<15} {} ({})", version.version, version.tls);
    }
    if report.cells.iter().flat_map(|cell| &cell.products).any(|row| row.disturbed) {
        out.push_str("\n\n~ others used the machine meanwhile: compare only within a cell, or measure again");
    }
    let differs = |cell: &CellResult| {
        let sizes = cell.products.iter().filter_map(|row| cell.size_beside_equipoise(row.name));
        sizes.into_iter().any(|more| more.abs() > SIZE_TOLERANCE)
    };
    if report.cells.iter().any(differs) {
        let percent = SIZE_TOLERANCE * 100.0;
        let _ = write!(out, "\n\ns answers differ in size by more than {percent:.0} %: another amount of work");
    }
    if report.quick {
        out.push_str("\n\nA quick run: it shows that things work, not what they cost.");
    }
    out
}

fn short(cell: &CellResult, row: &ProductResult, to: &str) -> String {
    let Some(own) = cell.figure(row.name) else {
        return if row.left_out.is_some() { "–" } else { "failed" }.to_owned();
    };
    let memory = row.median.as_ref().is_some_and(|median| median.connection_bytes.is_some());
    let mark = if row.disturbed { "~" } else { "" };
    let size =
        if cell.size_beside_equipoise(row.name).is_some_and(|more| more.abs() > SIZE_TOLERANCE) { "s" } else { "" };
    let errors = if row.median.as_ref().is_some_and(|median| median.errors > 0) { "!" } else { "" };
    let shown = if memory { own / 1000.0 } else { own };
    match cell.figure(to) {
        Some(other) if other > 0.0 => format!("{mark}{shown:.1}{errors}{size} {:.2}x", own / other),
        _ => format!("{mark}{shown:.1}{errors}{size}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;

    fn row(name: &'static str, cpu: f64) -> ProductResult {
        let samples = vec![Sample { cpu_us: Some(cpu), rps: Some(1e6 / cpu), requests: 1, ..Sample::default() }];
        ProductResult { name, samples, ..ProductResult::default() }
    }

    #[test]
    fn a_cell_shows_ratios_failures_and_what_was_left_out() {
        let failed = ProductResult { name: "envoy", failure: Some("no such file".to_owned()), ..Default::default() };
        let left = ProductResult { name: "traefik", left_out: Some("not asked".to_owned()), ..Default::default() };
        let products = vec![row("floor", 15.0), row("equipoise", 16.5), row("nginx", 33.0), failed, left];
        let mut result = CellResult { name: "12b-c50", title: "small", products, against: None };
        result.conclude();
        let text = cell(&result);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(line("nginx").contains("2.00") && line("nginx").contains("2.20"), "{text}");
        assert!(line("equipoise:").contains("0.50 x nginx"), "{text}");
        assert!(line("envoy").contains("FAILED: no such file"), "{text}");
        assert!(line("traefik").contains("(not asked)"), "{text}");
    }

    #[test]
    fn a_cell_of_encoded_answers_shows_their_sizes_and_marks_those_that_differ() {
        let encoded = |name: &'static str, cpu: f64, bytes: u64| {
            let mut row = row(name, cpu);
            row.samples[0].answer_bytes = Some(bytes);
            row
        };
        let mut haproxy = encoded("haproxy", 8.0, 2500);
        haproxy.remark = Some("one level".to_owned());
        let products = vec![encoded("equipoise", 16.5, 2000), encoded("nginx", 33.0, 1990), haproxy];
        let mut result = CellResult { name: "gzip6-json-10k", title: "JSON", products, against: None };
        result.conclude();
        let text = cell(&result);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(line("nginx").ends_with("1990  -0.5 %"), "{text}");
        assert!(line("haproxy").ends_with("2500 +25.0 % SIZE DIFFERS  (one level)"), "{text}");
        assert!(line("equipoise:").contains("0.50 x nginx") && line("equipoise:").ends_with("of that size"), "{text}");
    }
}
