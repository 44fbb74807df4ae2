//! One run: fresh origins, a fresh product, so many requests at a time until all are answered.

use super::super::{Run, Size};
use super::order::{Answer, of_rows, of_sent};
use crate::failure::Failure;
use crate::generators::vegeta::Place;
use crate::measure::bench::loopback;
use crate::measure::child::{Launch, Running, write_file};
use crate::measure::window::Window;
use crate::net::crowd::Sent;
use crate::net::mongrel::{HICCUP_EVERY, PROBE};
use crate::products::{Product, Start};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// What is asked of every product.
pub(super) struct Cell {
    pub name: &'static str,
    pub origins: usize,
    pub concurrency: usize,
    pub requests: usize,
    /// What comes closer together than that has no order: it is found by a product in the same look, or the other way
    /// round by an origin that shares its core with all the others.
    pub together_us: u64,
}

/// The cells, in the order of the page.
pub(super) fn cells(size: Size) -> Vec<Cell> {
    let requests = size.pick(1000, 300, 60);
    let few = |name, concurrency| Cell { name, origins: 3, concurrency, requests, together_us: 5_000 };
    let (origins, concurrency, requests) = size.pick((100, 1100, 11_000), (100, 1100, 3300), (20, 220, 440));
    // A hundred origins that are free at the same time begin one after the other.
    let many = Cell { name: "many", origins, concurrency, requests, together_us: 10_000 };
    match size {
        Size::Smallest => vec![few("c10", 10), many],
        _ => vec![few("c3", 3), few("c10", 10), few("c30", 30), many],
    }
}

/// What a request takes at an origin, ms, and with the hiccups on average.
pub(super) const WORK_MS: u64 = 20;
pub(super) const MEAN_MS: f64 = WORK_MS as f64 + (300.0 - WORK_MS as f64) / HICCUP_EVERY as f64;

/// Gives the hiccups.
pub(super) const SEED: u64 = 2008;
const TIMEOUT: Duration = Duration::from_secs(120);

impl Cell {
    /// How long a run takes if no origin is ever idle, s.
    pub(super) fn least_seconds(&self) -> f64 {
        self.requests as f64 * MEAN_MS / 1000.0 / self.origins as f64
    }

    /// How it is called in the report.
    pub(super) fn title(&self) -> String {
        format!("{} at a time, {} origins", self.concurrency, self.origins)
    }
}

/// A run of a product.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Taken {
    /// Those of the generator: every figure is of these, but for the order.
    pub answers: Vec<Answer>,
    /// As many once more, of which is known when each came.
    pub queue: Vec<Answer>,
    /// CPU time of the product for a request, us.
    pub cpu_us: f64,
    /// Share of the machine that others used or the host took.
    pub others_share: f64,
}

/// Measures one product.
pub(super) fn measure(run: &Run<'_>, cell: &Cell, product: &'static Product) -> Result<Taken, Failure> {
    let cores = run.bench.load_cores(1);
    let addresses: Vec<SocketAddr> = (0..cell.origins).map(|number| origin_address(run, number)).collect();
    let _origins = start_origins(run, &addresses, &cores)?;
    let endpoints: Vec<String> = addresses.iter().map(|address| endpoint(product.name, *address)).collect();
    let values = [("endpoints", endpoints.join("\n"))];
    let variant = format!("{}-origins", cell.origins);
    let start = Start { values: &values, variant: &variant, probe: Some(PROBE), ..Start::new(product) };
    let mut running = run.bench.start(&start)?;

    let window = Window::open(Some(running.pid()))?;
    let answers = attack(run, cell, &cores)?;
    let used = window.close()?;
    let queue = look_at_queue(run, cell, &cores)?;
    running.check_alive()?;
    Ok(Taken {
        answers,
        queue,
        cpu_us: used.product_us.unwrap_or(0) as f64 / cell.requests as f64,
        others_share: used.others_share + used.stolen_share,
    })
}

/// So many at a time, each on a new connection, the next one as soon as one is answered.
fn attack(run: &Run<'_>, cell: &Cell, cores: &[usize]) -> Result<Vec<Answer>, Failure> {
    let targets = run.paths.out.join("targets.txt");
    let one = format!("GET http://{}/work\n", run.bench.target(false));
    write_file(&targets, &one.repeat(cell.requests))?;
    let concurrency = cell.concurrency;
    // No rate, a bound on the workers, as `ab` does it.
    let mut args = vec!["-lazy".to_owned(), "-rate=0".to_owned(), "-keepalive=false".to_owned()];
    args.extend([format!("-workers={concurrency}"), format!("-max-workers={concurrency}")]);
    args.extend([format!("-timeout={}s", TIMEOUT.as_secs()), format!("-targets={}", targets.display())]);
    let place = Place { paths: run.paths, folder: &run.paths.out, cores };
    place.attack(&args)?.wait(TIMEOUT * 2)?;
    let mut rows = Vec::with_capacity(cell.requests);
    place.each_row(|row| rows.push(row))?;
    if rows.len() != cell.requests {
        return Err(Failure::new(format!("vegeta made {} of {} requests", rows.len(), cell.requests)));
    }
    Ok(of_rows(rows))
}

/// The same once more, so that it is known of each when it came.
fn look_at_queue(run: &Run<'_>, cell: &Cell, cores: &[usize]) -> Result<Vec<Answer>, Failure> {
    let mut launch = Launch::new(std::env::current_exe()?).args(["crowd", "--path", "/work"]);
    launch = launch.args(["--to".to_owned(), run.bench.target(false).to_string()]);
    launch = launch.args(["--at-a-time".to_owned(), cell.concurrency.to_string()]);
    launch = launch.args(["--requests".to_owned(), cell.requests.to_string()]);
    launch = launch.args(["--timeout-seconds".to_owned(), TIMEOUT.as_secs().to_string()]);
    let log = run.bench.log("crowd");
    let mut crowd = Running::start("crowd", &launch, cores, &log)?;
    let status = crowd.wait(TIMEOUT * 2)?;
    if !status.success() {
        return Err(Failure::new(format!("the crowd ended with {status}: {}", crowd.log_end())));
    }
    let text = fs::read_to_string(&log).map_err(|error| Failure::io(&log, &error))?;
    let all: Vec<Sent> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if all.len() != cell.requests {
        return Err(Failure::new(format!("the crowd made {} of {} requests", all.len(), cell.requests)));
    }
    // It is large, and what matters of it is kept elsewhere.
    fs::remove_file(&log).map_err(|error| Failure::io(&log, &error))?;
    Ok(of_sent(&all))
}

/// Behind the ports that every run uses.
fn origin_address(run: &Run<'_>, number: usize) -> SocketAddr {
    loopback(run.bench.ports.web + 21 + number as u16)
}

fn start_origins(run: &Run<'_>, addresses: &[SocketAddr], cores: &[usize]) -> Result<Running, Failure> {
    let mut launch = Launch::new(std::env::current_exe()?).arg("mongrel-origin");
    launch = launch.args(["--seed", &SEED.to_string(), "--work-ms", &WORK_MS.to_string()]);
    for address in addresses {
        launch = launch.arg("--listen").arg(address.to_string());
    }
    let mut origins = Running::start("origins", &launch, cores, &run.bench.log("origins"))?;
    for address in addresses {
        origins.wait_listening(*address, Duration::from_secs(15))?;
    }
    Ok(origins)
}

/// How a product's configuration names one origin, with the bound of one request where there is such a thing.
fn endpoint(product: &str, address: SocketAddr) -> String {
    let port = address.port();
    match product {
        "nginx" => format!("    server {address};"),
        "haproxy" => format!("  server mongrel{port} {address} maxconn 1"),
        "envoy" => {
            let address = format!("{{ address: 127.0.0.1, port_value: {port} }}");
            format!("              - endpoint: {{ address: {{ socket_address: {address} }} }}")
        }
        "traefik" => format!("          - url: \"http://{address}\""),
        _ => format!("      - {{ address: \"{address}\", connections_max: 1 }}"),
    }
}
