//! `lab cost`: CPU time per request of every product, in many cells, in turn.

mod cells;
mod results;
mod run;
mod table;

use crate::failure::Failure;
use crate::measure::bench::{Bench, BenchOptions};
use crate::paths::Paths;
use crate::peers::{self, Wanted};
use crate::products::{self, Product, build};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure and how long.
#[derive(Args, Debug)]
pub(crate) struct CostArgs {
    /// Rounds; every product is measured once in each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// A small run: one round, one second
    #[arg(long)]
    quick: bool,
    /// Only these products
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    only: Vec<String>,
    /// Only these cells; `gzip*` is all that begin so
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    cells: Vec<String>,
    /// Show the cells and end
    #[arg(long)]
    list: bool,
    /// Equipoise's executable; without it, it is built first
    #[arg(long)]
    equipoise: Option<PathBuf>,
    /// A second executable of Equipoise, measured beside it as equipoise-base
    #[arg(long)]
    baseline: Option<PathBuf>,
    /// The lowest of the ports used
    #[arg(long, default_value_t = 18000)]
    port_base: u16,
    /// Where the results go
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the study.
pub(crate) fn run(args: &CostArgs, paths: &Paths) -> Result<(), Failure> {
    let cells = cells::choose(&args.cells)?;
    if args.list {
        for cell in cells {
            println!("{:<18} {}", cell.name, cell.title);
        }
        return Ok(());
    }
    let chosen = contestants(args)?;
    if chosen.iter().any(|product| product.is_peer) || chosen.len() > 1 {
        let tools = cells.iter().flat_map(|cell| cell.needs()).copied();
        let names: Vec<&str> = chosen.iter().map(|product| product.name).chain(tools).collect();
        // What could not be installed is told there, and again by the cell that needs it.
        peers::install(paths, false, &Wanted::For(&names))?;
    }
    let is_needed = chosen.iter().any(|product| product.name == "equipoise");
    let equipoise = build::executable(args.equipoise.as_deref(), is_needed, paths)?;
    let rounds = if args.quick { 1 } else { args.rounds.max(1) };
    let seconds = if args.quick { 1 } else { args.seconds.max(1) };
    let options = BenchOptions {
        equipoise,
        baseline: args.baseline.as_deref().map(build::absolute).transpose()?,
        port_base: args.port_base,
        measured: Duration::from_secs(seconds),
        warm_up: Duration::from_secs(1),
    };
    let bench = Bench::new(paths, "cost", options)?;
    let _origin = bench.start_origin()?;
    let json = args.json.clone().unwrap_or_else(|| paths.out.join("cost.json"));
    let mut report = results::Report::new(&bench, &chosen, rounds, seconds, args.quick);
    let run = run::Run { bench: &bench, products: &chosen, rounds, json: &json };
    let outcome = run::all(&run, &cells, &mut report);
    report.interrupted = matches!(&outcome, Err(failure) if failure.is_interruption());
    report.write(&json)?;
    println!("{}", table::summary(&report));
    println!("written to {}", json.display());
    outcome.and_then(|()| all_were_measured(&report))
}

/// A run in which something failed has not done what it was asked to, though it goes on to its end.
fn all_were_measured(report: &results::Report) -> Result<(), Failure> {
    let failed: Vec<String> = report
        .cells
        .iter()
        .flat_map(|cell| {
            let failed = cell.products.iter().filter(|row| row.failure.is_some() && row.samples.is_empty());
            failed.map(|row| format!("{} in {}", row.name, cell.name))
        })
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure::new(format!("not measured: {}", failed.join(", ")))) }
}

/// Those that have a configuration for this study, in the order of the tables.
const PRODUCTS: &[&str] = &["floor", "equipoise", "equipoise-base", "nginx", "haproxy", "envoy", "traefik", "caddy"];

fn contestants(args: &CostArgs) -> Result<Vec<&'static Product>, Failure> {
    if let Some(unknown) = args.only.iter().find(|name| !PRODUCTS.contains(&name.as_str())) {
        return Err(Failure::new(format!("no product is called {unknown:?}; there are {}", PRODUCTS.join(", "))));
    }
    let is_chosen = |name: &str| match args.only.as_slice() {
        [] => args.baseline.is_some() || name != "equipoise-base",
        only => only.iter().any(|one| one == name),
    };
    PRODUCTS.iter().copied().filter(|name| is_chosen(name)).map(products::find).collect()
}
