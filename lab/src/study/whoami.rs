//! `whoami`: requests a second before a tiny API, many connections, and what is left of the direct figure.

use super::cells::{self, Cell, Found, Method};
use super::charts::{self, CPU, MEMORY, P50, P99, RATE, TRANSFER, number};
use super::{Run, Study};
use crate::failure::Failure;
use crate::generators;
use crate::measure::Sample;
use crate::measure::bench::loopback;
use crate::measure::child::{Launch, Running};
use crate::measure::loads::Requests;
use crate::policy::Policy;
use crate::products::{Features, Product, Start};
use crate::report::page::{Finding, Page};
use std::time::Duration;

/// The study.
pub(crate) const STUDY: Study = Study {
    name: "whoami",
    title: "A tiny API behind a proxy",
    question: "How many requests a second of a small API are left behind a proxy, and what does the proxy use for them?",
    article: "NGINX against Traefik v2 and v3, April 2023: wrk with 20 threads and 1,000 connections for 60 s, \
              four origins that answer who asked, 16 cores, and the same without a proxy.",
    products: &["direct", "floor", "equipoise", "nginx", "nginx-debian", "haproxy", "envoy", "traefik", "caddy"],
    tools: &["go-httpbin"],
    rounds: 3,
    run,
};

/// What a cell asks for.
struct Load {
    workers: usize,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The lab's, cheap enough that the proxy is what limits.
    Lab,
    /// A program in Go, as there.
    HttpBin,
}

impl Origin {
    fn path(self) -> &'static str {
        match self {
            Self::Lab => "/whoami",
            Self::HttpBin => "/get",
        }
    }
}

fn run(run: &Run<'_>) -> Result<Page, Failure> {
    let cells = plan(run);
    let refuses =
        |load: &Load, product: &Product| (product.refuses)(&Features::default(), load.workers).map(str::to_owned);
    let measure = |cell: &Cell<Load>, product: &'static Product| measure(run, &cell.load, product);
    let found = cells::all(run, &cells, &Method { refuses: &refuses, measure: &measure })?;
    Ok(page(run, &cells, &found))
}

fn seconds(run: &Run<'_>) -> u64 {
    run.size.pick(60, 2, 1)
}

fn connections(run: &Run<'_>) -> usize {
    run.size.pick(1000, 1000, 100)
}

fn plan(run: &Run<'_>) -> Vec<Cell<Load>> {
    let cell = |name: &str, title: &str, workers, origin| Cell {
        name: name.to_owned(),
        title: title.to_owned(),
        seconds: seconds(run) as f64 + run.size.pick(6.0, 2.0, 1.5),
        load: Load { workers, origin },
    };
    let mut cells = vec![
        cell("one-worker", "1 worker", 1, Origin::Lab),
        cell("two-workers", "2 workers", 2, Origin::Lab),
        cell("go-origin", "1 worker, origins in Go", 1, Origin::HttpBin),
    ];
    cells.truncate(run.size.pick(3, 3, 1));
    cells
}

fn measure(run: &Run<'_>, load: &Load, product: &'static Product) -> Result<Sample, Failure> {
    let bench = &run.bench;
    let _origins = start_origins(run, load.origin)?;
    let path = load.origin.path();
    let asked = Requests {
        path,
        host: None,
        accept_encoding: None,
        policy: Policy::None,
        connections: connections(run),
        keep_alive: true,
        tls: false,
        tls12: false,
    };
    let warm_up = Duration::from_secs(run.size.pick(3, 1, 1));
    let (mut proxy, at) = if product.name == "direct" {
        (None, loopback(bench.ports.origin[0]))
    } else {
        let start = Start { workers: load.workers, probe: Some(path), ..Start::new(product) };
        (Some(bench.start(&start)?), bench.target(false))
    };
    let wrk = |time| bench.wrk(at, load.workers, &asked, time);
    bench.under_load(proxy.as_mut(), || wrk(warm_up), || wrk(Duration::from_secs(seconds(run))))
}

/// Four origins: all in one process of the lab, or four processes in Go.
fn start_origins(run: &Run<'_>, origin: Origin) -> Result<Vec<Running>, Failure> {
    let bench = &run.bench;
    if origin == Origin::Lab {
        return Ok(vec![bench.start_origin()?]);
    }
    let program = run.paths.peer_file("go-httpbin/bin/go-httpbin")?;
    let mut origins = Vec::new();
    for port in bench.ports.origin {
        let launch = Launch::new(&program).args(["-host", "127.0.0.1", "-log-level", "ERROR", "-port"]);
        let launch = launch.arg(port.to_string()).env("GOMAXPROCS", "1");
        let log = bench.log(&format!("go-httpbin-{port}"));
        let mut origin = Running::start("go-httpbin", &launch, &bench.load_cores(1), &log)?;
        origin.wait_listening(loopback(port), Duration::from_secs(10))?;
        origins.push(origin);
    }
    Ok(origins)
}

fn page(run: &Run<'_>, cells: &[Cell<Load>], found: &[Found]) -> Page {
    let mut page = run.page();
    let all: Vec<&Found> = found.iter().collect();
    let labels: Vec<&str> = cells.iter().map(|cell| cell.title.as_str()).collect();
    let (wrk, connections, seconds) = (generators::version(run.paths, "wrk"), connections(run), seconds(run));
    page.facts.push(("generator".to_owned(), wrk));
    page.facts.push(("load".to_owned(), format!("wrk -t1 -c{connections} -d{seconds}s --latency")));
    let bars = |figure| charts::bars(&all, &labels, figure);
    let direct = |figure| charts::bars_relative(&all, &labels, figure, "direct");
    let label = |label: &str, chart| crate::report::page::Chart { label: label.to_owned(), ..chart };
    page.charts
        .extend(charts::group("Request rate", [label("requests", bars(&RATE)), label("% of direct", direct(&RATE))]));
    page.charts
        .extend(charts::group("Transfer", [label("MB", bars(&TRANSFER)), label("% of direct", direct(&TRANSFER))]));
    page.charts.extend(charts::group("Latency by percentile", found.iter().map(charts::percentiles)));
    page.charts.extend(charts::group(
        "Latency",
        [label("median", bars(&P50)), label("99th percentile", bars(&P99)), label("% of direct", direct(&P99))],
    ));
    page.charts.push(bars(&CPU));
    page.charts.extend(charts::group("CPU use over time", found.iter().map(charts::cpu_over_time)));
    page.charts.push(bars(&MEMORY));
    page.tables = found.iter().map(charts::table).collect();
    page.findings = found.first().map(findings).unwrap_or_default();
    page.notes = NOTES.iter().map(|&note| note.to_owned()).collect();
    page
}

const NOTES: &[&str] = &[
    "There were 16 cores for everything; here the proxy has one core (in the cell with two workers: both) and generator \
     and origins share the other. So wrk has one thread, and a proxy that is faster than generator and origins together \
     shows less than one core in the chart of CPU use: compare CPU time for a request then, not requests a second.",
    "The origins of the first two cells are the lab's own: an epoll loop that answers with the request it got, so that the \
     proxy is what limits. The third cell has four processes of a program in Go instead, as there; they need more CPU time for \
     a request than most proxies, and so limit all of them alike.",
    "With two workers the proxy shares a core with its load: those figures only inform.",
    "Sysctls were raised there. Here nothing of the system is changed; 1,000 connections on loopback need none of it.",
    "The answer holds the request as it reached the origin: a proxy that adds more headers transfers more bytes.",
    "Traefik found its origins through labels of containers there, here through a file. Access logs are off for all.",
];

fn findings(cell: &Found) -> Vec<Finding> {
    let finding = |article: &str, here: Option<String>| Finding {
        article: article.to_owned(),
        here: here.unwrap_or_else(|| "Not measured in this run.".to_owned()),
    };
    let rate = |product: &str| cell.figure(product, &RATE);
    let share = |product: &str| Some(100.0 * rate(product)? / rate("direct")?);
    let passed_on = || {
        let (nginx, traefik, own) = (share("nginx")?, share("traefik")?, share("equipoise")?);
        let direct = number(rate("direct")?);
        Some(format!(
            "Directly {direct} a second. nginx passed on {nginx:.0} %, Traefik {traefik:.0} %, Equipoise {own:.0} %."
        ))
    };
    let ahead = || {
        let nginx = rate("nginx")? / rate("traefik")?;
        let own = rate("equipoise")? / rate("nginx")?;
        let cpu = cell.figure("equipoise", &CPU)? / cell.figure("nginx", &CPU)?;
        Some(format!(
            "nginx answered {nginx:.2} times the requests of Traefik; Equipoise {own:.2} times those of nginx, with {cpu:.2} \
             times its CPU time for each."
        ))
    };
    let latency = || {
        let one = |product: &str| {
            let (p50, p99) = (cell.figure(product, &P50)?, cell.figure(product, &P99)?);
            Some(format!("{product} {} and {}", number(p50), number(p99)))
        };
        let all: Vec<String> = ["direct", "equipoise", "nginx", "traefik"].into_iter().filter_map(one).collect();
        (!all.is_empty()).then(|| format!("Median and 99th percentile in ms: {}.", all.join("; ")))
    };
    vec![
        finding(
            "Directly 183,259 requests a second. NGINX passed on 55 % of them, Traefik v3 40 %, Traefik v2.9 the same.",
            passed_on(),
        ),
        finding("NGINX answered 1.36 times the requests of Traefik v3.", ahead()),
        finding(
            "Median and 99th percentile in ms: directly 4.95 and 17.4; NGINX 9.2 and 28.3; Traefik v3 12.6 and 36.0.",
            latency(),
        ),
    ]
}
