//! The order of a run: cell by cell, round by round, product by product.

use super::cells::{Cell, Kind, REFERENCE};
use super::results::{CellResult, ProductResult, Report};
use super::table;
use crate::failure::Failure;
use crate::measure::bench::Bench;
use crate::measure::check::expect_encoded;
use crate::measure::{Sample, undisturbed};
use crate::products::{Product, Start, extra_routes};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is the same for all cells of a run.
pub(crate) struct Run<'a> {
    pub bench: &'a Bench,
    pub products: &'a [&'static Product],
    pub rounds: usize,
    /// Where the report is written after each cell.
    pub json: &'a Path,
}

/// Measures all cells; what is finished is in the report (and in the file) even when a later one fails.
pub(crate) fn all(run: &Run<'_>, cells: &[&Cell], report: &mut Report) -> Result<(), Failure> {
    let bar = progress(cells.len() * run.rounds * run.products.len());
    for cell in cells {
        let mut result = CellResult::new(cell.name, cell.title, run.products);
        let outcome = measure_cell(run, cell, report, &mut result, &bar);
        result.conclude();
        say(&bar, &table::cell(&result));
        report.cells.push(result);
        report.write(run.json)?;
        outcome?;
    }
    bar.finish_and_clear();
    Ok(())
}

fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left: {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Prints above the bar, also when the output is no terminal.
fn say(bar: &ProgressBar, text: &str) {
    bar.suspend(|| println!("{text}"));
}

fn measure_cell(
    run: &Run<'_>,
    cell: &Cell,
    report: &Report,
    result: &mut CellResult,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let Run { bench, products, rounds, .. } = *run;
    let rate = match cell.kind {
        Kind::Share(_, share) => share * reference_rps(bench, products, report, bar)?,
        _ => 0.0,
    };
    let _endpoints = match bench.start_endpoints(&cell.features) {
        Ok(endpoints) => endpoints,
        Err(failure) if failure.is_interruption() => return Err(failure),
        Err(failure) => {
            let tell = |row: &mut ProductResult| row.failure = Some(failure.to_string());
            result.products.iter_mut().for_each(tell);
            bar.inc((rounds * products.len()) as u64);
            return Ok(());
        }
    };
    for round in 1..=rounds {
        for (product, row) in products.iter().zip(&mut result.products) {
            bar.set_message(format!("{}, round {round}, {}", cell.name, product.name));
            row.remark = (product.remark)(&cell.features).map(str::to_owned);
            if let Some(reason) = (product.refuses)(&cell.features, cell.workers) {
                row.left_out = Some(reason.to_owned());
            } else if row.failure.is_none() || !row.samples.is_empty() {
                measure_undisturbed(bench, cell, product, rate, row)?;
            }
            bar.inc(1);
        }
    }
    Ok(())
}

/// Measures, if possible while nobody else uses the machine.
fn measure_undisturbed(
    bench: &Bench,
    cell: &Cell,
    product: &'static Product,
    rate: f64,
    row: &mut ProductResult,
) -> Result<(), Failure> {
    match undisturbed(|| measure(bench, cell, product, rate)) {
        Ok(sample) => row.samples.push(sample),
        Err(failure) if failure.is_interruption() => return Err(failure),
        Err(failure) => row.failure = Some(failure.to_string()),
    }
    Ok(())
}

fn measure(bench: &Bench, cell: &Cell, product: &'static Product, rate: f64) -> Result<Sample, Failure> {
    let started = Instant::now();
    let endpoints = bench.endpoints(&cell.features).map(|port| port.to_string());
    let names = ["origin_1", "origin_2", "origin_3", "origin_4"];
    let mut values: Vec<(&str, String)> = names.into_iter().zip(endpoints).collect();
    values.push(("routes", extra_routes(cell.features.routes)));
    let Cell { features, workers, .. } = *cell;
    let start = Start { features, workers, values: &values, probe: cell.probe(), ..Start::new(product) };
    let mut running = bench.start(&start)?;
    let start_ms = started.elapsed().as_secs_f64() * 1000.0;
    let answer_bytes = bench.check(&mut running, &features, &cell.asks())?;
    let sample = match &cell.kind {
        Kind::Closed(asked) => bench.closed_loop(&mut running, workers, asked),
        Kind::Handshakes(asked) => bench.handshakes(&mut running, workers, asked),
        Kind::Multiplexed(asked, streams) => bench.multiplexed(&mut running, workers, asked, *streams),
        Kind::Quic(asked, streams) => bench.quic(&mut running, workers, asked, *streams),
        Kind::Calls(calls) => bench.calls(&mut running, workers, *calls),
        Kind::Datagrams(asked) => bench.datagrams(&mut running, workers, *asked),
        Kind::Messages { connections, tls } => bench.messages(&mut running, workers, *connections, *tls),
        Kind::Idle { connections } => bench.idle(&mut running, *connections, features.tls),
        Kind::Share(asked, _) => bench.constant_rate(&mut running, rate, asked),
    }?;
    expect_encoded(&sample, answer_bytes, &cell.asks())?;
    Ok(Sample { start_ms, answer_bytes, ..sample })
}

/// The throughput of the best peer (of the best product, when no peer is there): of this run, or measured now.
fn reference_rps(
    bench: &Bench,
    products: &[&'static Product],
    report: &Report,
    bar: &ProgressBar,
) -> Result<f64, Failure> {
    let any_peer = products.iter().any(|product| product.is_peer);
    let known = report.cells.iter().find(|cell| cell.name == REFERENCE.name);
    let mut best: f64 = 0.0;
    for product in products.iter().filter(|product| product.is_peer || !any_peer) {
        bar.set_message(format!("finding the rate: {}", product.name));
        let row = known.and_then(|cell| cell.products.iter().find(|row| row.name == product.name));
        let rps = match row.and_then(|row| row.median.as_ref()?.rps) {
            Some(rps) => Some(rps),
            None => match measure(bench, REFERENCE, product, 0.0) {
                Err(failure) if failure.is_interruption() => return Err(failure),
                other => other.ok().and_then(|sample| sample.rps),
            },
        };
        best = best.max(rps.unwrap_or(0.0));
    }
    if best > 0.0 { Ok(best) } else { Err(Failure::new("no product gave a rate to compare with")) }
}
