//! Made-up pages with everything that a page can hold, for the test that opens them in a browser.
//!
//! Figures are drawn from a seeded sequence: the pages are the same each time.

use super::page::{
    Axis, Chart, ChartKind, File, Finding, Mark, Page, ProductLine, Scale, Series, Table, TableCell, Tone,
};

/// What a product might say that must not become part of the page.
const HOSTILE: &str = "</script><img src=x onerror=\"window.broken=1\"><!--\u{2028}\0\u{202e}";

const PRODUCTS: &[&str] = &["equipoise", "nginx", "nginx-1.22", "haproxy", "envoy", "traefik", "caddy", "floor"];

/// A full page, an interrupted one with almost nothing, and a hostile one.
pub(super) fn pages() -> Vec<Page> {
    vec![full(), interrupted(), hostile()]
}

fn full() -> Page {
    let text = str::to_owned;
    Page {
        study: text("sample"),
        title: text("Every kind of chart, table and finding"),
        question: text("Does a report show all that a study can say, on a phone and on a desk, by day and by night?"),
        article: text("Made up for the test of the pages; none of these figures was measured."),
        quick: true,
        facts: facts(),
        products: products(),
        findings: findings(),
        charts: charts(),
        tables: tables(),
        notes: vec![text("The figures are made up."), text("A second remark, as a paragraph of its own.")],
        files: files(),
        repeat: text("cargo run --release -p lab -- report --sample target/pages"),
        ..Page::default()
    }
}

fn interrupted() -> Page {
    Page {
        study: "interrupted".to_owned(),
        title: "A study that was ended early".to_owned(),
        interrupted: true,
        charts: vec![
            Chart { title: "No points at all".to_owned(), ..Chart::default() },
            Chart {
                title: "A single point".to_owned(),
                series: vec![series("equipoise", vec![(3.0, 7.0)])],
                ..Chart::default()
            },
        ],
        ..Page::default()
    }
}

/// Every text is hostile, and as long as one that has no space in it can be.
fn hostile() -> Page {
    let text = || format!("{HOSTILE}{}", "x".repeat(200));
    let axis = Axis { title: text(), categories: vec![text(), text()], ..Axis::default() };
    let failed = Series { product: text(), failure: Some(text()), points: vec![] };
    let chart = |label: &str, kind| Chart {
        group: text(),
        label: format!("{label}{HOSTILE}"),
        title: text(),
        note: text(),
        x: axis.clone(),
        y: Axis { title: text(), ..Axis::default() },
        kind,
        series: vec![series(HOSTILE, vec![(0.0, 1.0), (1.0, 2.0)]), failed.clone()],
        marks: vec![Mark { at: 0.5, label: text() }],
    };
    let cell = TableCell { text: text(), tone: Tone::Failed, detail: text() };
    Page {
        study: "hostile".to_owned(),
        title: text(),
        question: text(),
        article: text(),
        facts: vec![(text(), text())],
        products: vec![ProductLine { name: HOSTILE.to_owned(), version: text(), tls: text() }],
        findings: vec![Finding { article: text(), here: text() }],
        charts: vec![chart("bars", ChartKind::Bars), chart("line", ChartKind::Line)],
        tables: vec![Table { title: text(), note: text(), columns: vec![text(), text()], rows: vec![vec![cell; 2]] }],
        notes: vec![text()],
        files: vec![File { product: text(), name: text(), text: format!("{}\n{}", text(), text()) }],
        repeat: text(),
        ..Page::default()
    }
}

fn facts() -> Vec<(String, String)> {
    let facts = [
        ("date", "2026-11-21T14:00:00Z"),
        ("kernel", "6.18.5"),
        ("processor", "A processor with a rather long name, 8 cores at 3.2 GHz"),
        ("cores", "2"),
        ("rounds", "1"),
        ("requests a cell", "1,000,000"),
    ];
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn products() -> Vec<ProductLine> {
    let line = |name: &&str| ProductLine {
        name: (*name).to_owned(),
        version: "1.30.6".to_owned(),
        tls: if *name == "floor" { String::new() } else { "OpenSSL 3.6.5".to_owned() },
    };
    PRODUCTS.iter().map(line).collect()
}

fn findings() -> Vec<Finding> {
    let finding = |article: &str, here: &str| Finding { article: article.to_owned(), here: here.to_owned() };
    vec![
        finding(
            "Envoy had the highest throughput, above all at 250 connections.",
            "Equipoise answers 61,200 requests a second at 250 connections, Envoy 27,900; for each request Equipoise \
             uses 15.8 us of CPU time, Envoy 34.1 us.",
        ),
        finding(
            "Tails grow sharply past the 90th percentile at 500 connections.",
            "So they do here: the 99.9th percentile of every product but HAProxy is above ten times its median.",
        ),
        finding("TLS costs up to 30 % of throughput.", "Between 18 % (Equipoise) and 41 % (Traefik)."),
    ]
}

fn series(product: &str, points: Vec<(f64, f64)>) -> Series {
    Series { product: product.to_owned(), points, failure: None }
}

fn axis(title: &str, scale: Scale) -> Axis {
    Axis { title: title.to_owned(), scale, ..Axis::default() }
}

/// How fast a made-up product is.
fn pace(product: usize) -> f64 {
    [1.0, 1.25, 1.4, 1.3, 2.1, 3.2, 2.8, 0.7][product]
}

/// A sequence between 0 and 1 that looks like chance.
fn chance(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn charts() -> Vec<Chart> {
    let mut charts: Vec<Chart> = ["50", "250", "500"].iter().map(|label| percentiles(label)).collect();
    charts.extend([throughput(), distribution(), cpu(), in_order()]);
    charts.extend(["haproxy", "equipoise", "envoy"].map(scatter));
    charts
}

fn percentiles(label: &str) -> Chart {
    let load: f64 = label.parse().unwrap_or(50.0);
    let places = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];
    let latency = |product: usize, p: f64| {
        let tail = 1.0 / (1.0 - f64::min(p, 99.995) / 100.0);
        pace(product) * load / 60.0 * (0.4 + p / 100.0 + tail.powf(0.35) / 3.0)
    };
    let one = |(place, product): (usize, &&str)| match place {
        5 if label == "500" => {
            let failure = Some("ended with status 1: too many open files".to_owned());
            Series { product: (*product).to_owned(), points: vec![], failure }
        }
        _ => series(product, places.iter().map(|p| (*p, latency(place, *p))).collect()),
    };
    Chart {
        group: "Latency by percentile".to_owned(),
        label: format!("{label} connections"),
        title: format!("HTTP, {label} connections at a time"),
        note: "Lower is better; to the right the rare, slow requests.".to_owned(),
        x: axis("percentile", Scale::Nines),
        y: axis("latency, ms", Scale::Log),
        kind: ChartKind::Line,
        series: PRODUCTS.iter().enumerate().map(one).collect(),
        marks: vec![],
    }
}

fn throughput() -> Chart {
    let bars = |(place, product): (usize, &&str)| {
        let all = (0..3).map(|n| (f64::from(n), (61_234.5 / pace(place) * (1.0 - f64::from(n) / 9.0)).round()));
        // One cell of one product is missing.
        series(product, all.filter(|(x, _)| place != 6 || *x < 2.0).collect())
    };
    let categories = ["50 connections", "250 connections", "500 connections"].map(str::to_owned).to_vec();
    Chart {
        title: "Requests per second".to_owned(),
        note: "Higher is better.".to_owned(),
        x: Axis { title: "concurrency".to_owned(), categories, ..Axis::default() },
        y: axis("requests per second", Scale::Linear),
        kind: ChartKind::Bars,
        series: PRODUCTS.iter().enumerate().map(bars).collect(),
        ..Chart::default()
    }
}

fn distribution() -> Chart {
    let steps = |product: usize| {
        let mut random = chance(product as u64 + 3);
        let mut times: Vec<f64> = (0..400).map(|_| pace(product) * (0.5 + 0.4 / (1.001 - random()).sqrt())).collect();
        times.sort_by(f64::total_cmp);
        times.into_iter().enumerate().map(|(n, time)| (time, (n + 1) as f64 / 4.0)).collect()
    };
    Chart {
        title: "Requests completed within a time".to_owned(),
        note: "A product whose curve rises earlier answers sooner.".to_owned(),
        x: axis("time, ms", Scale::Log),
        y: axis("completed, %", Scale::Linear),
        kind: ChartKind::Step,
        series: [0, 3, 4, 5].map(|product| series(PRODUCTS[product], steps(product))).to_vec(),
        marks: vec![Mark { at: 11.0, label: "99 % of HAProxy in the article".to_owned() }],
        ..Chart::default()
    }
}

fn cpu() -> Chart {
    let line = |product: usize| {
        let mut random = chance(product as u64 + 11);
        let point =
            |second: i32| (f64::from(second), (100.0 / 3.2 * pace(product) * (0.9 + random() / 10.0)).min(100.0));
        series(PRODUCTS[product], (0..=60).map(point).collect())
    };
    Chart {
        title: "CPU over time".to_owned(),
        note: "Share of the product's core.".to_owned(),
        x: axis("time, s", Scale::Linear),
        y: axis("CPU, %", Scale::Linear),
        kind: ChartKind::Line,
        series: (0..PRODUCTS.len()).map(line).collect(),
        marks: vec![Mark { at: 5.0, label: "warm".to_owned() }, Mark { at: 45.0, label: "half the load".to_owned() }],
        ..Chart::default()
    }
}

fn in_order() -> Chart {
    let points = |product: usize| {
        let mut random = chance(product as u64 + 23);
        let time =
            move |_| if random() > 0.97 { 90.0 + 60.0 * random() } else { 20.0 * pace(product) + 6.0 * random() };
        (1..=1000).map(f64::from).zip((0..1000).map(time)).collect()
    };
    Chart {
        title: "Response time of each request, in order".to_owned(),
        x: axis("request", Scale::Linear),
        y: axis("response time, ms", Scale::Linear),
        kind: ChartKind::Scatter,
        series: [0, 1, 3].map(|product| series(PRODUCTS[product], points(product))).to_vec(),
        ..Chart::default()
    }
}

/// Requests while everything changes: fifty thousand of one product, less of the others.
fn scatter(product: &str) -> Chart {
    let count = if product == "haproxy" { 50_000 } else { 4_000 };
    let mut random = chance(product.len() as u64);
    let changes = (1..=12).map(|n| f64::from(n) * 30.0);
    let names = ["4 origins", "3 origins", "4 origins", "3 origins", "4 origins", "3 origins", "CORS headers"];
    let more = ["a response header", "a rewrite", "the base again", "upgrade of the binary", "new certificate"];
    let marks = changes.zip(names.iter().chain(&more)).map(|(at, name)| Mark { at, label: (*name).to_owned() });
    let worst = if product == "haproxy" { 900.0 } else { 9.0 };
    let latency = |time: f64, random: &mut dyn FnMut() -> f64| {
        let base = 0.6 + random() * random() * 2.0;
        let is_near = time % 30.0 < 0.6 && time > 30.0;
        if is_near && random() > 0.4 { base + worst * random() * random() } else { base }
    };
    let times = (0..count).map(|n| f64::from(n) / f64::from(count) * 390.0);
    let points = times.map(|time| (time, latency(time, &mut random))).collect();
    Chart {
        group: "Latency while everything changes".to_owned(),
        label: product.to_owned(),
        title: format!("{product} at 128 requests per second"),
        note: "Each point is a request; all products on one scale.".to_owned(),
        x: axis("time, s", Scale::Linear),
        y: axis("latency, ms", Scale::Log),
        kind: ChartKind::Scatter,
        series: vec![series(product, points)],
        marks: marks.collect(),
    }
}

fn tables() -> Vec<Table> {
    let columns = ["", "CPU us/req", "to Equipoise", "to the floor", "req/s", "p50, ms", "p99, ms", "memory", "errors"];
    vec![Table {
        title: "HTTP, 250 connections".to_owned(),
        note: "Medians of the rounds. CPU time of all threads and children for each request.".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: PRODUCTS.iter().enumerate().map(|(place, product)| row(place, product)).collect(),
    }]
}

/// A product's row: one product failed, and one has doubtful figures.
fn row(place: usize, product: &str) -> Vec<TableCell> {
    let cell = |text: String, tone: Tone, detail: &str| TableCell { text, tone, detail: detail.to_owned() };
    let pace = pace(place);
    let best = if place == 0 { Tone::Best } else { Tone::Plain };
    let (doubt, disturbed, errors) = match place {
        4 => (Tone::Doubtful, "others used 6 % of the machine", "12 × 503"),
        _ => (Tone::Plain, "", ""),
    };
    let mut row = vec![cell(product.to_owned(), Tone::Plain, "")];
    if place == 5 {
        row.push(cell("failed".to_owned(), Tone::Failed, "ended with status 1: too many open files"));
        row.extend((0..7).map(|_| cell("–".to_owned(), Tone::LeftOut, "")));
        return row;
    }
    row.extend([
        cell(format!("{:.1}", 15.8 * pace), best, "3 rounds, spread 4 %: 15.5, 15.8, 16.1"),
        cell(format!("{pace:.2} ×"), Tone::Plain, ""),
        cell(format!("{:.2} ×", pace / 0.7), Tone::Plain, ""),
        cell(format!("{:.0}", 61_234.0 / pace), best, ""),
        cell(format!("{:.2}", 0.8 * pace), Tone::Plain, ""),
        cell(format!("{:.2}", 4.1 * pace), doubt, disturbed),
        cell(format!("{} MB", 9 + 7 * place), Tone::Plain, ""),
        cell(if errors.is_empty() { "0" } else { "12" }.to_owned(), doubt, errors),
    ]);
    row
}

fn files() -> Vec<File> {
    let file = |product: &str, name: &str, text: &str| File {
        product: product.to_owned(),
        name: name.to_owned(),
        text: text.to_owned(),
    };
    let long = format!("    proxy_set_header X-Long \"{}\";\n", "long ".repeat(60));
    vec![
        file("nginx", "nginx.conf", &format!("http {{\n  server {{\n{long}  }}\n}}\n")),
        file("equipoise", "equipoise.yaml", "version: 1\n# </script><script>window.broken=2</script>\nlisteners: {}\n"),
    ]
}
