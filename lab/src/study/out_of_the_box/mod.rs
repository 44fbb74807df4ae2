//! `out-of-the-box`: default configurations, many requests, request rate, errors and duration; and what the access logs
//! tell of the origin meanwhile.

mod logs;

use super::cells::{self, Cell, Found, Method};
use super::charts::{self, CPU, MEMORY, P99, RATE, number, percent};
use super::{Run, Study};
use crate::failure::Failure;
use crate::generators;
use crate::measure::Sample;
use crate::measure::bench::loopback;
use crate::measure::child::{Running, write_file};
use crate::measure::loads::{Requests, Until};
use crate::measure::syslog::Receiver;
use crate::paths::text;
use crate::policy::Policy;
use crate::products::{self, Features, Product, Start};
use crate::report::page::{Axis, Chart, Finding, Page, Table, TableCell, Tone};

/// The study.
pub(crate) const STUDY: Study = Study {
    name: "out-of-the-box",
    title: "Load balancers out of the box",
    question: "How do load balancers compare in rate, errors and duration with the configurations that they come with?",
    article: "NGINX, HAProxy, Envoy, Traefik and Amazon's Application Load Balancer, December 2018: a million requests by \
              hey in each cell, 50, 250 and 500 at a time, HTTP and HTTPS, on two virtual CPUs, with access logs on.",
    products: &[
        "direct",
        "floor",
        "equipoise",
        "equipoise-alb",
        "nginx",
        "nginx-debian",
        "haproxy",
        "haproxy-debian",
        "envoy",
        "traefik",
        "caddy",
    ],
    tools: &[],
    rounds: 3,
    run,
};

/// What a cell asks for.
struct Load {
    is_tls: bool,
    concurrency: usize,
}

fn run(run: &Run<'_>) -> Result<Page, Failure> {
    let cells = plan(run);
    let refuses = |load: &Load, product: &Product| {
        let features = Features { tls: load.is_tls, ..Features::default() };
        (product.refuses)(&features, 1).map(str::to_owned)
    };
    let measure = |cell: &Cell<Load>, product: &'static Product| measure(run, cell, product);
    let found = cells::all(run, &cells, &Method { refuses: &refuses, measure: &measure })?;
    Ok(page(run, &cells, &found))
}

fn requests(run: &Run<'_>) -> u64 {
    run.size.pick(1_000_000, 15_000, 2000)
}

/// Requests before a measurement.
const WARM_UP_REQUESTS: u64 = 2000;

fn plan(run: &Run<'_>) -> Vec<Cell<Load>> {
    let concurrencies: &[usize] = run.size.pick(&[50, 250, 500], &[50, 250, 500], &[50]);
    let cell = |is_tls: bool, concurrency: usize| {
        let scheme = if is_tls { "HTTPS" } else { "HTTP" };
        Cell {
            name: format!("{}-{concurrency}", scheme.to_ascii_lowercase()),
            title: format!("{scheme}, {concurrency} at a time"),
            seconds: run.size.pick(80.0, 2.0, 1.0),
            load: Load { is_tls, concurrency },
        }
    };
    let both = [false, true].into_iter();
    both.flat_map(|is_tls| concurrencies.iter().map(move |&concurrency| cell(is_tls, concurrency))).collect()
}

fn measure(run: &Run<'_>, cell: &Cell<Load>, product: &'static Product) -> Result<Sample, Failure> {
    let Load { is_tls, concurrency } = cell.load;
    let bench = &run.bench;
    let receiver = Receiver::start(logs::reader(product.name))?;
    let values = values(run, &receiver)?;
    let _origin = start_origin(run, &values)?;
    let logs_nothing = ["direct", "floor"].contains(&product.name);
    let wanted: Vec<&str> = if product.name == "equipoise-alb" { vec!["equipoise-alb-wanted.yaml"] } else { vec![] };
    let (mut proxy, at) = if product.name == "direct" {
        (None, loopback(if is_tls { tls_port(run) } else { bench.ports.origin[0] }))
    } else {
        let start = Start {
            features: Features { tls: is_tls, ..Features::default() },
            values: &values,
            syslog: (!logs_nothing).then(|| receiver.address()),
            probe: Some("/"),
            more: wanted.as_slice(),
            told: wanted.first().copied(),
            ..Start::new(product)
        };
        (Some(bench.start(&start)?), bench.target(is_tls))
    };
    let asked = Requests {
        path: "/",
        host: None,
        accept_encoding: None,
        policy: Policy::None,
        connections: concurrency,
        keep_alive: true,
        tls: is_tls,
        tls12: false,
    };
    let hey = |count: u64| bench.hey(at, 1, &asked, Until::Requests(count));
    let load = || {
        receiver.clear();
        hey(requests(run))
    };
    let warm_up = || {
        receiver.clear();
        let warm_up = hey(WARM_UP_REQUESTS);
        // Its last lines must not count as lines of the measurement.
        if !logs_nothing {
            receiver.take(WARM_UP_REQUESTS);
        }
        warm_up
    };
    let sample = bench.under_load(proxy.as_mut(), warm_up, load)?;
    if logs_nothing {
        return Ok(sample);
    }
    let messages = receiver.take(sample.requests);
    write_file(&bench.log(&format!("access-{}", product.name)), &(messages.first.join("\n") + "\n"))?;
    Ok(Sample { log_lines: Some(messages.count), origin_over_time: messages.means, ..sample })
}

/// The origin's port for HTTPS, which only the direct run asks.
fn tls_port(run: &Run<'_>) -> u16 {
    run.bench.ports.origin[3] + 1
}

fn values(run: &Run<'_>, receiver: &Receiver) -> Result<Vec<(&'static str, String)>, Failure> {
    let site = run.paths.peer_file("debian-root/usr/share/nginx/html")?;
    Ok(vec![("syslog", receiver.address().to_string()), ("tls_1", tls_port(run).to_string()), ("site", text(&site))])
}

fn start_origin(run: &Run<'_>, values: &[(&'static str, String)]) -> Result<Running, Failure> {
    let start =
        Start { values, templates: Some(&["origin.conf"]), variant: "origin", ..Start::new(products::find("nginx")?) };
    let ports = [run.bench.ports.origin.as_slice(), &[tls_port(run)]].concat();
    run.bench.start_as_origin(&start, &ports)
}

fn page(run: &Run<'_>, cells: &[Cell<Load>], found: &[Found]) -> Page {
    let mut page = run.page();
    page.facts.push(("generator".to_owned(), generators::version(run.paths, "hey")));
    page.facts.push(("load".to_owned(), format!("hey -n {} -c 50, 250, 500", requests(run))));
    page.charts.extend(charts::group("Latency by percentile", found.iter().map(charts::percentiles)));
    for (group, figure) in
        [("Request rate", &RATE), ("CPU time per request", &CPU), ("99th percentile", &P99), ("Peak memory", &MEMORY)]
    {
        let charts = [false, true].map(|is_tls| by_concurrency(cells, found, is_tls, figure));
        page.charts.extend(charts::group(group, charts));
    }
    page.charts.extend(charts::group("Response time of the origin", found.iter().map(origin_over_time)));
    page.charts.extend(charts::group("CPU use over time", found.iter().map(charts::cpu_over_time)));
    page.tables = found.iter().map(charts::table).collect();
    page.tables.push(log_table(cells, found));
    page.findings = findings(cells, found);
    page.notes = NOTES.iter().map(|&note| note.to_owned()).collect();
    page
}

/// Bars of a figure for each concurrency, plain or over TLS.
fn by_concurrency(cells: &[Cell<Load>], found: &[Found], is_tls: bool, figure: &charts::Figure) -> Chart {
    let chosen = || cells.iter().zip(found).filter(|(cell, _)| cell.load.is_tls == is_tls);
    let labels: Vec<String> = chosen().map(|(cell, _)| format!("{} at a time", cell.load.concurrency)).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let found: Vec<&Found> = chosen().map(|(_, found)| found).collect();
    let scheme = if is_tls { "HTTPS" } else { "HTTP" };
    let chart = charts::bars(&found, &labels, figure);
    Chart { label: scheme.to_owned(), title: format!("{}: {scheme}", figure.title), ..chart }
}

/// What the access logs tell of the origin.
fn origin_over_time(cell: &Found) -> Chart {
    Chart {
        label: cell.title.clone(),
        title: format!("Response time of the origin, from the access logs: {}", cell.title),
        note: "Means of short spans, in the first round. nginx, HAProxy and Envoy tell whole milliseconds, the others less; \
               lines count when they reach the receiver."
            .to_owned(),
        x: Axis { title: "time, s".to_owned(), ..Axis::default() },
        y: Axis { title: "response time of the origin, ms".to_owned(), ..Axis::default() },
        series: charts::series(cell, |sample| sample.origin_over_time.clone()),
        ..Chart::default()
    }
}

/// How many lines of each log arrived for the requests that were answered.
fn log_table(cells: &[Cell<Load>], found: &[Found]) -> Table {
    let columns = std::iter::once("product".to_owned()).chain(cells.iter().map(|cell| cell.title.clone()));
    let products = found.first().map(|cell| cell.rows.iter().map(|row| row.product).collect::<Vec<_>>());
    let place = |cell: &Found, product: &str| {
        let sample = cell.of(product).and_then(|sample| Some((sample.log_lines?, sample.requests)));
        let Some((lines, requests)) = sample else {
            return TableCell { text: "–".to_owned(), tone: Tone::LeftOut, ..TableCell::default() };
        };
        let share = 100.0 * lines as f64 / requests.max(1) as f64;
        let tone = if share < 99.0 { Tone::Doubtful } else { Tone::Plain };
        TableCell { text: format!("{share:.1} %"), tone, detail: format!("{lines} lines, {requests} requests") }
    };
    let row = |product: &str| {
        let name = TableCell { text: product.to_owned(), ..TableCell::default() };
        std::iter::once(name).chain(found.iter().map(|cell| place(cell, product))).collect()
    };
    let logging = products.unwrap_or_default().into_iter().filter(|product| !["direct", "floor"].contains(product));
    Table {
        title: "Lines of the access log that arrived".to_owned(),
        note: "As a share of the requests answered. Syslog over UDP may lose lines, and a product may leave some out \
               rather than wait."
            .to_owned(),
        columns: columns.collect(),
        rows: logging.map(row).collect(),
    }
}

const NOTES: &[&str] = &[
    "Client, balancer and origin had machines of their own there, with two virtual CPUs for the balancer; here the balancer \
     has one core, and hey, the origin and the receiver of the logs share the other. hey needs more CPU time for a request than \
     most of the products, so requests a second and latency say less here than CPU time for a request.",
    "Access logs are on for all products. Equipoise and HAProxy send them by syslog themselves; the lab forwards the standard \
     output of the others to the same receiver, as a container's log driver would. The CPU time of forwarding is not the product's. The \
     floor and the direct run write none.",
    "Amazon's load balancer cannot run here. `equipoise-alb` is Equipoise with the same features: two listeners, a target \
     group with health checks, rules by host and path, all told by its API.",
    "The certificate is ECDSA P-256, and hey and today's products agree on TLS 1.3; there it was what 2018 offered.",
    "hey tells eight percentiles, the fastest and the slowest among them: that is all that the curves are drawn from.",
];

fn findings(cells: &[Cell<Load>], found: &[Found]) -> Vec<Finding> {
    let cell = |is_tls: bool, concurrency: usize| {
        let wanted = |cell: &Cell<Load>| cell.load.is_tls == is_tls && cell.load.concurrency == concurrency;
        found.get(cells.iter().position(wanted)?)
    };
    let finding = |article: &str, here: Option<String>| Finding {
        article: article.to_owned(),
        here: here.unwrap_or_else(|| "Not measured in this run.".to_owned()),
    };
    let ranking = |is_tls: bool, figure: &charts::Figure| {
        let scheme = if is_tls { "HTTPS" } else { "HTTP" };
        Some(format!("{scheme}, 250 at a time, {}.", ranked(cell(is_tls, 250)?, figure)?))
    };
    let tails = || {
        let at = |product: &str, percentile: f64| {
            let quantiles = &cell(false, 500)?.of(product)?.quantiles;
            quantiles.iter().find(|(known, _)| *known == percentile).map(|(_, time_us)| time_us / 1000.0)
        };
        let one = |product: &str| Some(format!("{product} {:.1} times", at(product, 99.0)? / at(product, 90.0)?));
        let all: Vec<String> =
            ["nginx", "haproxy", "envoy", "traefik", "equipoise"].into_iter().filter_map(one).collect();
        (!all.is_empty())
            .then(|| format!("HTTP, 500 at a time: the 99th percentile is that of the 90th: {}.", all.join(", ")))
    };
    let tls = || {
        let change = |product: &str| {
            let (plain, tls) = (cell(false, 250)?.figure(product, &RATE)?, cell(true, 250)?.figure(product, &RATE)?);
            Some(format!("{product} {}", percent(100.0 * (tls / plain - 1.0))))
        };
        let all: Vec<String> =
            ["nginx", "haproxy", "envoy", "traefik", "equipoise"].into_iter().filter_map(change).collect();
        (!all.is_empty()).then(|| format!("250 at a time, HTTPS against HTTP: {}.", all.join(", ")))
    };
    vec![
        finding("Envoy had the highest throughput, above all at 250 at a time.", ranking(false, &RATE)),
        finding("HAProxy had the lowest latency of HTTP.", ranking(false, &P99)),
        finding("HAProxy and Envoy tied for the lowest latency of HTTPS.", ranking(true, &P99)),
        finding("At 500 at a time the latency grows sharply past the 90th percentile.", tails()),
        finding("TLS costs up to 30 % of the throughput.", tls()),
    ]
}

/// The products that were compared there, and Equipoise, from the best to the worst.
fn ranked(cell: &Found, figure: &charts::Figure) -> Option<String> {
    let compared = ["equipoise", "nginx", "haproxy", "envoy", "traefik"];
    let mut known: Vec<(&str, f64)> =
        compared.into_iter().filter_map(|product| Some((product, cell.figure(product, figure)?))).collect();
    known.sort_by(|one, other| one.1.total_cmp(&other.1));
    if figure.more_is_better {
        known.reverse();
    }
    let all: Vec<String> = known.iter().map(|(product, value)| format!("{product} {}", number(*value))).collect();
    (!all.is_empty()).then(|| format!("{}: {}", figure.title, all.join("; ")))
}
