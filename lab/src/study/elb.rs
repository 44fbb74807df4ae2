//! `elb`: what a cloud load balancer was built of: HTTP with and without keep-alive, HTTPS, and TCP passed through, for
//! objects of three sizes.

use super::cells::{self, Cell, Found, Method};
use super::charts::{self, CPU, P99, RATE, number, percent};
use super::{Run, Study};
use crate::certificate;
use crate::failure::Failure;
use crate::generators;
use crate::measure::Sample;
use crate::measure::bench::loopback;
use crate::measure::child::{Running, write_file};
use crate::measure::loads::{Requests, Until};
use crate::paths::text;
use crate::policy::Policy;
use crate::products::{self, Features, Product, Start};
use crate::report::page::{Chart, Finding, Page};
use std::fs;
use std::time::Duration;

/// The study.
pub(crate) const STUDY: Study = Study {
    name: "elb",
    title: "The balancer under a cloud's load balancer",
    question: "Which proxy serves best as the engine of a load balancer for HTTP, HTTPS and TCP, for objects of 1, 10 and \
               100 kB?",
    article: "HAProxy against NGINX as the engine of Eucalyptus' Elastic Load Balancing, 2012 to 2013: two origins, a client, \
              and a balancer of which only the software varied.",
    products: &["direct", "floor", "equipoise", "haproxy", "haproxy-debian", "nginx", "nginx-debian"],
    tools: &[],
    rounds: 3,
    run,
};

/// How clients, balancer and origins talk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    HttpClose,
    HttpKeepAlive,
    HttpsClose,
    HttpsKeepAlive,
    TcpToHttps,
    TcpToHttp,
}

const MODES: [Mode; 6] =
    [Mode::HttpClose, Mode::HttpKeepAlive, Mode::HttpsClose, Mode::HttpsKeepAlive, Mode::TcpToHttps, Mode::TcpToHttp];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::HttpClose => "http-close",
            Self::HttpKeepAlive => "http-keep-alive",
            Self::HttpsClose => "https-close",
            Self::HttpsKeepAlive => "https-keep-alive",
            Self::TcpToHttps => "tcp-to-https",
            Self::TcpToHttp => "tcp-to-http",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::HttpClose => "HTTP, no keep-alive",
            Self::HttpKeepAlive => "HTTP, keep-alive",
            Self::HttpsClose => "HTTPS, no keep-alive",
            Self::HttpsKeepAlive => "HTTPS, keep-alive",
            Self::TcpToHttps => "TCP to HTTPS",
            Self::TcpToHttp => "TCP to HTTP",
        }
    }

    /// The balancer passes connections through.
    fn is_tcp(self) -> bool {
        matches!(self, Self::TcpToHttps | Self::TcpToHttp)
    }

    /// The client speaks TLS, to whomever.
    fn is_tls(self) -> bool {
        matches!(self, Self::HttpsClose | Self::HttpsKeepAlive | Self::TcpToHttps)
    }

    /// The balancer has TLS to end.
    fn is_terminated(self) -> bool {
        self.is_tls() && !self.is_tcp()
    }

    fn keeps_alive(self) -> bool {
        !matches!(self, Self::HttpClose | Self::HttpsClose)
    }
}

/// What a cell asks for.
#[derive(Clone, Copy)]
struct Load {
    mode: Mode,
    object: Object,
}

/// An object that is fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Object {
    path: &'static str,
    title: &'static str,
    bytes: usize,
}

const OBJECTS: [Object; 3] = [
    Object { path: "/1k", title: "1 kB", bytes: 1000 },
    Object { path: "/10k", title: "10 kB", bytes: 10_000 },
    Object { path: "/100k", title: "100 kB", bytes: 100_000 },
];

const CONNECTIONS: usize = 50;

fn run(run: &Run<'_>) -> Result<Page, Failure> {
    let cells = plan(run);
    let refuses = |load: &Load, product: &Product| {
        if product.name == "floor" && load.mode.is_tcp() {
            return Some("the floor relays HTTP only".to_owned());
        }
        let features = Features { tls: load.mode.is_terminated(), ..Features::default() };
        (product.refuses)(&features, 1).map(str::to_owned)
    };
    let measure = |cell: &Cell<Load>, product: &'static Product| measure(run, cell, product);
    let found = cells::all(run, &cells, &Method { refuses: &refuses, measure: &measure })?;
    Ok(page(run, &cells, &found))
}

fn plan(run: &Run<'_>) -> Vec<Cell<Load>> {
    let cell = |mode: Mode, object: Object| Cell {
        name: format!("{}-{}", mode.name(), &object.path[1..]),
        title: format!("{}, {}", mode.title(), object.title),
        seconds: seconds(run) as f64 + run.size.pick(3.0, 0.6, 0.6),
        load: Load { mode, object },
    };
    let is_wanted = |mode: Mode, object: Object| {
        run.size.pick(
            true,
            object.bytes != 10_000 || matches!(mode, Mode::HttpClose | Mode::HttpKeepAlive),
            object.bytes == 1000 && matches!(mode, Mode::HttpKeepAlive | Mode::HttpsClose | Mode::TcpToHttps),
        )
    };
    let all = MODES.into_iter().flat_map(|mode| OBJECTS.map(|object| (mode, object)));
    all.filter(|(mode, object)| is_wanted(*mode, *object)).map(|(mode, object)| cell(mode, object)).collect()
}

fn seconds(run: &Run<'_>) -> u64 {
    run.size.pick(15, 1, 1)
}

/// The origins' TLS ports; the plain ones are those of the bench.
fn tls_ports(run: &Run<'_>) -> [u16; 2] {
    let base = run.bench.ports.origin[3];
    [base + 1, base + 2]
}

fn measure(run: &Run<'_>, cell: &Cell<Load>, product: &'static Product) -> Result<Sample, Failure> {
    let Load { mode, object } = cell.load;
    let bench = &run.bench;
    let values = values(run, mode)?;
    let _origins = start_origins(run, &values)?;
    let asked = Requests {
        path: object.path,
        host: None,
        accept_encoding: None,
        policy: Policy::None,
        connections: CONNECTIONS,
        keep_alive: mode.keeps_alive(),
        tls: mode.is_tls(),
        tls12: true,
    };
    let (mut proxy, at) = if product.name == "direct" {
        (None, loopback(if mode.is_tls() { tls_ports(run)[0] } else { bench.ports.origin[0] }))
    } else {
        let keeps = mode.keeps_alive() && !mode.is_tcp();
        let flags = [("tcp", mode.is_tcp()), ("close", !mode.keeps_alive()), ("keep", keeps)];
        let start = Start {
            features: Features { tls: mode.is_terminated(), ..Features::default() },
            values: &values,
            flags: &flags,
            variant: mode.name(),
            probe: (!mode.is_tcp()).then_some(object.path),
            ..Start::new(product)
        };
        (Some(bench.start(&start)?), bench.target(mode.is_terminated()))
    };
    let load = |time: Duration| {
        if mode == Mode::HttpsClose { bench.ab(at, 1, &asked, time) } else { bench.wrk(at, 1, &asked, time) }
    };
    // A second of warming up would take half of a small run: some hundred requests do.
    let warm_up = || match run.size.pick(Some(2), None, None) {
        Some(seconds) => load(Duration::from_secs(seconds)),
        None => bench.hey(at, 1, &asked, Until::Requests(500)),
    };
    bench.under_load(proxy.as_mut(), warm_up, || load(Duration::from_secs(seconds(run))))
}

/// What the templates of this study need: the certificate with RSA, and where the balancer sends requests.
fn values(run: &Run<'_>, mode: Mode) -> Result<Vec<(&'static str, String)>, Failure> {
    let folder = run.paths.out.join("tls");
    certificate::ensure_rsa(&folder)?;
    let tls = tls_ports(run);
    let plain = run.bench.ports.origin;
    let to = if mode == Mode::TcpToHttps { tls } else { [plain[0], plain[1]] };
    Ok(vec![
        ("to_1", to[0].to_string()),
        ("to_2", to[1].to_string()),
        ("tls_1", tls[0].to_string()),
        ("tls_2", tls[1].to_string()),
        ("rsa_chain", text(&folder.join("rsa.pem"))),
        ("rsa_key", text(&folder.join("rsa.key"))),
        ("rsa_pem", text(&folder.join("rsa-both.pem"))),
        ("root", text(&run.paths.out.join("objects"))),
    ])
}

/// Two origins in one nginx, with the objects as files.
fn start_origins(run: &Run<'_>, values: &[(&'static str, String)]) -> Result<Running, Failure> {
    let objects = run.paths.out.join("objects");
    fs::create_dir_all(&objects).map_err(|error| Failure::io(&objects, &error))?;
    for object in OBJECTS {
        write_file(&objects.join(&object.path[1..]), &"0123456789".repeat(object.bytes / 10))?;
    }
    let start =
        Start { values, templates: Some(&["origin.conf"]), variant: "origin", ..Start::new(products::find("nginx")?) };
    let ports = [run.bench.ports.origin.as_slice(), &tls_ports(run)].concat();
    run.bench.start_as_origin(&start, &ports)
}

fn page(run: &Run<'_>, cells: &[Cell<Load>], found: &[Found]) -> Page {
    let mut page = run.page();
    for name in ["wrk", "ab"] {
        page.facts.push(("generator".to_owned(), generators::version(run.paths, name)));
    }
    let load = format!("{CONNECTIONS} connections, {} s a measurement", seconds(run));
    page.facts.push(("load".to_owned(), load));
    for (group, figure) in [("Requests per second by object size", &RATE), ("CPU time per request", &CPU)] {
        let charts = MODES.into_iter().filter_map(|mode| by_size(cells, found, mode, figure));
        page.charts.extend(charts::group(group, charts));
    }
    page.charts.extend(charts::group("Requests completed within a time", found.iter().map(charts::completed_within)));
    page.charts.extend(charts::group("CPU use over time", found.iter().map(charts::cpu_over_time)));
    page.tables = found.iter().map(charts::table).collect();
    page.findings = findings(cells, found);
    page.notes = NOTES.iter().map(|&note| note.to_owned()).collect();
    page
}

/// Bars of a figure for the sizes in one mode.
fn by_size(cells: &[Cell<Load>], found: &[Found], mode: Mode, figure: &charts::Figure) -> Option<Chart> {
    let of_mode = || cells.iter().zip(found).filter(|(cell, _)| cell.load.mode == mode);
    let labels: Vec<&str> = of_mode().map(|(cell, _)| cell.load.object.title).collect();
    let found: Vec<&Found> = of_mode().map(|(_, found)| found).collect();
    let chart = charts::bars(&found, &labels, figure);
    let title = format!("{}: {}", figure.title, mode.title());
    (!found.is_empty()).then(|| Chart { label: mode.title().to_owned(), title, ..chart })
}

const NOTES: &[&str] = &[
    "Client, balancer and origins each had a machine there; here the balancer has one core, and generator and origins share \
     the other. Where the balancer waits for them (large objects, TLS at the origins) the CPU time for a request tells it \
     from others, not throughput.",
    "Without keep-alive a connection is made for each request on both sides, as there. With keep-alive connections to the \
     origins are kept, too: in 2012 NGINX had to open one for each request.",
    "TLS 1.2 with ECDHE-RSA-AES256-GCM-SHA384 and an RSA certificate of 2,048 bits in the place of AES256-SHA with RSA key \
     exchange, which today's libraries no longer offer. Without keep-alive `ab` makes a full handshake for each request.",
    "TCP passed through: the connections are kept, so what is compared is the moving of bytes. The direct run asks one \
     origin, as there.",
    "`ab` and `wrk` count in their own ways: figures of HTTPS without keep-alive are by `ab`, all others by `wrk`.",
    "Reconfiguration without interruption, which that balancer also needed, is the subject of the study elastic.",
];

fn findings(cells: &[Cell<Load>], found: &[Found]) -> Vec<Finding> {
    let cell = |mode: Mode, bytes: usize| {
        let at = cells.iter().position(|cell| cell.load.mode == mode && cell.load.object.bytes == bytes)?;
        found.get(at)
    };
    let rate = |mode: Mode, bytes: usize, product: &str| cell(mode, bytes)?.figure(product, &RATE);
    let ahead = |mode: Mode, bytes: usize, one: &str, other: &str| {
        Some(100.0 * (rate(mode, bytes, one)? / rate(mode, bytes, other)? - 1.0))
    };
    let finding = |article: &str, here: Option<String>| Finding {
        article: article.to_owned(),
        here: here.unwrap_or_else(|| "Not measured in this run.".to_owned()),
    };
    let throughput = || {
        let (small, large) =
            (ahead(Mode::HttpClose, 1000, "haproxy", "nginx")?, ahead(Mode::HttpClose, 100_000, "haproxy", "nginx")?);
        let own = ahead(Mode::HttpClose, 1000, "equipoise", "haproxy")?;
        let (small, large, own) = (percent(small), percent(large), percent(own));
        Some(format!(
            "Without keep-alive HAProxy did {small} against nginx at 1 kB and {large} at 100 kB; Equipoise {own} against \
             HAProxy at 1 kB."
        ))
    };
    let tail = || {
        let cell = cell(Mode::HttpClose, 10_000)?;
        let p99 = |product: &str| Some(number(cell.figure(product, &P99)?));
        let (haproxy, nginx, own) = (p99("haproxy")?, p99("nginx")?, p99("equipoise")?);
        Some(format!("99 % of the 10 kB requests: HAProxy {haproxy} ms, nginx {nginx} ms, Equipoise {own} ms."))
    };
    let against = |one: Mode, other: Mode| {
        let change = |product: &str| {
            let change = 100.0 * (rate(one, 1000, product)? / rate(other, 1000, product)? - 1.0);
            Some(format!("{product} {}", percent(change)))
        };
        let all: Vec<String> = ["haproxy", "nginx", "equipoise"].into_iter().filter_map(change).collect();
        (!all.is_empty()).then(|| format!("At 1 kB: {}.", all.join(", ")))
    };
    let tie = || {
        let cell = cell(Mode::TcpToHttp, 1000)?;
        let one = |product: &str| {
            Some(format!(
                "{product} {} a second with {} us each",
                number(cell.figure(product, &RATE)?),
                number(cell.figure(product, &CPU)?)
            ))
        };
        let all: Vec<String> = ["haproxy", "nginx", "equipoise"].into_iter().filter_map(one).collect();
        (!all.is_empty()).then(|| format!("TCP to HTTP, 1 kB: {}.", all.join("; ")))
    };
    vec![
        finding("HAProxy up to 67 % more throughput than NGINX at 1 kB, no difference at 100 kB.", throughput()),
        finding("99 % of the 10 kB requests within 11 ms behind HAProxy, 35 ms behind NGINX.", tail()),
        finding("Keep-alive brought 15 %.", against(Mode::HttpKeepAlive, Mode::HttpClose)),
        finding("HTTPS cost 90 % of the throughput of small objects.", against(Mode::HttpsClose, Mode::HttpClose)),
        finding("Passing TCP through was a tie.", tie()),
    ]
}
