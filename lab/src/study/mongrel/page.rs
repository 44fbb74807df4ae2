//! The page: times in order, their distribution, throughput, and a table for each concurrency.

use super::super::show::{failed_row, fault_count, mark_best, ms, plain, thousands, toned};
use super::ideal;
use super::measure::{MEAN_MS, WORK_MS};
use super::order::{Figures, figures, share_within};
use super::{Measured, Rounds};
use crate::measure::DISTURBED_SHARE;
use crate::measure::stats::{median, percentile, spread};
use crate::net::mongrel::HICCUP_EVERY;
use crate::report::page::{Axis, Chart, ChartKind, Finding, Page, Scale, Series, Table, TableCell, Tone};

/// A product in a cell: the figures of its rounds.
struct Row<'a> {
    rounds: &'a Rounds,
    figures: Vec<Figures>,
}

impl Row<'_> {
    /// It is a product, and not what is computed.
    fn is_measured(&self) -> bool {
        self.rounds.name != ideal::NAME
    }

    fn values(&self, of: impl Fn(&Figures) -> f64) -> Vec<f64> {
        self.figures.iter().map(of).collect()
    }

    fn median(&self, of: impl Fn(&Figures) -> f64) -> Option<f64> {
        median(&self.values(of))
    }

    fn most(&self, of: impl Fn(&Figures) -> u64) -> u64 {
        self.figures.iter().map(of).max().unwrap_or(0)
    }

    fn sum(&self, of: impl Fn(&Figures) -> usize) -> usize {
        self.figures.iter().map(of).sum()
    }
}

fn rows(measured: &Measured) -> Vec<Row<'_>> {
    let row = |rounds: &'_ Rounds| -> Vec<Figures> {
        rounds.taken.iter().map(|taken| figures(taken, &measured.cell)).collect()
    };
    measured.products.iter().map(|rounds| Row { rounds, figures: row(rounds) }).collect()
}

/// Fills the page.
pub(super) fn page(mut page: Page, measured: &[Measured]) -> Page {
    for one in measured {
        page.charts.extend(one.products.iter().map(|rounds| in_order(one, rounds)));
    }
    page.charts.extend(measured.iter().map(distribution));
    page.charts.push(throughput(measured));
    page.tables.extend(measured.iter().map(table));
    page.findings = findings(measured);
    page.notes = notes(measured);
    page
}

/// The response time of each request, in the order in which they were made.
fn in_order(measured: &Measured, rounds: &Rounds) -> Chart {
    let title = measured.cell.title();
    let answers = rounds.taken.first().map_or(&[][..], |taken| &taken.answers);
    let good = answers.iter().enumerate().filter(|(_, answer)| answer.is_good);
    let points = good.map(|(number, answer)| (number as f64 + 1.0, answer.latency_us as f64 / 1000.0)).collect();
    Chart {
        group: format!("Response time of each request, in order: {title}"),
        label: rounds.name.to_owned(),
        title: format!("{}, {title}", rounds.name),
        note: "Each point is a request, numbered in the order in which they were made (first round). The flatter the \
               band, the less it matters which request one is."
            .to_owned(),
        x: Axis { title: "request".to_owned(), ..Axis::default() },
        y: Axis { title: "response time, ms".to_owned(), ..Axis::default() },
        kind: ChartKind::Scatter,
        series: vec![Series { product: rounds.name.to_owned(), points, failure: no_points(rounds) }],
        ..Chart::default()
    }
}

fn no_points(rounds: &Rounds) -> Option<String> {
    rounds.failure.clone().filter(|_| rounds.taken.is_empty())
}

fn sorted_ms(rounds: &Rounds) -> Vec<f64> {
    let answers = rounds.taken.iter().flat_map(|taken| &taken.answers);
    let mut times: Vec<f64> =
        answers.filter(|answer| answer.is_good).map(|answer| answer.latency_us as f64 / 1000.0).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Percentiles that are drawn: many, and more where it gets steep.
fn percents() -> impl Iterator<Item = f64> {
    let below = (0..99).map(f64::from);
    let above = (0..10).map(|n| 99.0 + f64::from(n) / 10.0);
    below.chain(above).chain([99.95, 100.0 - 1e-2])
}

fn distribution(measured: &Measured) -> Chart {
    let series = |rounds: &Rounds| {
        let times = sorted_ms(rounds);
        let points = percents().filter_map(|percent| Some((percent, percentile(&times, percent)?))).collect();
        Series { product: rounds.name.to_owned(), points, failure: no_points(rounds) }
    };
    let label = format!("{} at a time", measured.cell.concurrency);
    Chart {
        group: "Distribution of the response times".to_owned(),
        title: measured.cell.title(),
        label,
        note: "So many percent of the requests (all rounds) were answered within this time.".to_owned(),
        x: Axis { title: "percentile, %".to_owned(), scale: Scale::Nines, ..Axis::default() },
        y: Axis { title: "response time, ms".to_owned(), scale: Scale::Log, ..Axis::default() },
        kind: ChartKind::Line,
        series: measured.products.iter().map(series).collect(),
        ..Chart::default()
    }
}

fn throughput(measured: &[Measured]) -> Chart {
    let few: Vec<&Measured> = measured.iter().filter(|one| one.cell.origins == 3).collect();
    let names: Vec<&Rounds> = few.first().map_or(Vec::new(), |one| one.products.iter().collect());
    let series = |(number, rounds): (usize, &&Rounds)| {
        let value = |(place, one): (usize, &&Measured)| {
            let rows = rows(one);
            Some((place as f64, rows.get(number)?.median(|figures| figures.rps)?))
        };
        let points = few.iter().enumerate().filter_map(value).collect();
        Series { product: rounds.name.to_owned(), points, failure: no_points(rounds) }
    };
    let most = 3.0 * 1000.0 / MEAN_MS;
    Chart {
        title: "Requests per second, 3 origins".to_owned(),
        note: format!("Median of the rounds. Three origins that are never idle give about {most:.0}."),
        x: Axis {
            title: "requests at a time".to_owned(),
            categories: few.iter().map(|one| one.cell.concurrency.to_string()).collect(),
            ..Axis::default()
        },
        y: Axis { title: "requests per second".to_owned(), ..Axis::default() },
        kind: ChartKind::Bars,
        series: names.iter().enumerate().map(series).collect(),
        ..Chart::default()
    }
}

const COLUMNS: [&str; 14] = [
    "product",
    "req/s",
    "to Equipoise",
    "p50, ms",
    "p95, ms",
    "p99, ms",
    "within the fastest's time",
    "longest, ms",
    "met another at the origin",
    "overtaken",
    "by at most",
    "failed",
    "CPU us/req",
    "to the next, us",
];

/// The time within which the fastest product answered 95 % of its requests.
fn fastest_us(rows: &[Row<'_>]) -> f64 {
    let products = rows.iter().filter(|row| row.is_measured());
    products.filter_map(|row| row.median(|figures| figures.p95_us)).fold(f64::INFINITY, f64::min)
}

fn table(measured: &Measured) -> Table {
    let rows = rows(measured);
    let fastest = fastest_us(&rows);
    let equipoise = rows.iter().find(|row| row.rounds.name == "equipoise").and_then(|row| row.median(|one| one.rps));
    let line = |row: &Row<'_>| match &row.rounds.failure {
        Some(reason) if row.figures.is_empty() => failed_row(row.rounds.name, reason, COLUMNS.len()),
        _ => table_row(row, fastest, equipoise),
    };
    let mut lines: Vec<Vec<TableCell>> = rows.iter().map(line).collect();
    let values = |of: fn(&Figures) -> f64| {
        rows.iter().map(|row| row.median(of).filter(|_| row.is_measured())).collect::<Vec<_>>()
    };
    mark_best(&mut lines, 1, &values(|figures| figures.rps), true);
    mark_best(&mut lines, 3, &values(|figures| figures.p50_us), false);
    mark_best(&mut lines, 4, &values(|figures| figures.p95_us), false);
    mark_best(&mut lines, 5, &values(|figures| figures.p99_us), false);
    mark_best(&mut lines, 7, &values(|figures| figures.longest_us as f64), false);
    mark_best(&mut lines, 12, &rows.iter().map(|row| cpu(row.rounds)).collect::<Vec<_>>(), false);
    Table {
        title: measured.cell.title(),
        note: format!(
            "Medians of the rounds; the longest is of all of them, overtaken and failed are sums. The fastest's time is \
             what the fastest product needs for 95 % of its requests, here {} ms. Overtaken: an origin began a request \
             that came at least {} ms later at least {} ms earlier. To the next: the median time from an origin's answer \
             until it had the next request, when that was waiting already and not at the origin.",
            ms(fastest),
            measured.cell.together_us / 1000,
            measured.cell.together_us / 1000
        ),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows: lines,
    }
}

fn cpu(rounds: &Rounds) -> Option<f64> {
    if rounds.name == ideal::NAME {
        return None;
    }
    median(&rounds.taken.iter().map(|taken| taken.cpu_us).collect::<Vec<_>>())
}

fn table_row(row: &Row<'_>, fastest: f64, equipoise: Option<f64>) -> Vec<TableCell> {
    let rps = row.values(|figures| figures.rps);
    let spread = spread(&rps).map_or(String::new(), |spread| format!("spread {:.0} %", spread * 100.0));
    let others = row.rounds.taken.iter().map(|taken| taken.others_share).fold(0.0, f64::max);
    let doubt = (others > DISTURBED_SHARE).then(|| format!("others used {:.0} % of the machine", others * 100.0));
    let rps = median(&rps).unwrap_or(0.0);
    let within = row.rounds.taken.iter().map(|taken| share_within(&taken.answers, fastest)).collect::<Vec<_>>();
    let requests = row.sum(|figures| figures.requests);
    let overlapped = row.sum(|figures| figures.overlapped);
    let (order, worst) = (row.sum(|figures| figures.order.overtaken), row.most(|one| one.order.worst_by as u64));
    let waited = row.most(|figures| figures.order.longest_us);
    let errors = row.sum(|figures| figures.errors);
    let problem = row.figures.iter().map(|figures| figures.problem.clone()).find(|problem| !problem.is_empty());
    vec![
        plain(row.rounds.name),
        toned(format!("{rps:.1}"), if doubt.is_some() { Tone::Doubtful } else { Tone::Plain }, doubt.unwrap_or(spread)),
        plain(equipoise.map_or("–".to_owned(), |own| format!("{:.2} ×", rps / own))),
        plain(ms(row.median(|figures| figures.p50_us).unwrap_or(0.0))),
        plain(ms(row.median(|figures| figures.p95_us).unwrap_or(0.0))),
        plain(ms(row.median(|figures| figures.p99_us).unwrap_or(0.0))),
        plain(format!("{:.0} %", median(&within).unwrap_or(0.0) * 100.0)),
        plain(ms(row.most(|figures| figures.longest_us) as f64)),
        fault_count(overlapped, format!("of {} requests", thousands(requests as f64))),
        fault_count(order, format!("of {}", thousands(row.sum(|figures| figures.order.compared) as f64))),
        toned(worst.to_string(), Tone::Plain, format!("for at most {} ms", ms(waited as f64))),
        fault_count(errors, problem.unwrap_or_default()),
        plain(cpu(row.rounds).map_or("–".to_owned(), |us| format!("{us:.0}"))),
        plain(match row.median(|figures| figures.handover_us) {
            Some(us) if us > 0.0 => format!("{us:.0}"),
            _ => "–".to_owned(),
        }),
    ]
}

/// A product's figures of a cell, in one phrase.
fn phrase(measured: &[Measured], concurrency: usize, product: &str, of: impl Fn(&Row<'_>) -> Option<String>) -> String {
    let found = measured.iter().find(|one| one.cell.concurrency == concurrency).and_then(|one| {
        let rows = rows(one);
        of(rows.iter().find(|row| row.rounds.name == product)?)
    });
    format!("{product} {}", found.unwrap_or_else(|| "was not measured".to_owned()))
}

fn all_three(measured: &[Measured], concurrency: usize, of: impl Fn(&Row<'_>) -> Option<String>) -> String {
    ["equipoise", "haproxy", "nginx"].map(|product| phrase(measured, concurrency, product, &of)).join(", ")
}

fn findings(measured: &[Measured]) -> Vec<Finding> {
    let rps = |row: &Row<'_>| row.median(|figures| figures.rps).map(|rps| format!("{rps:.0}"));
    let within = |row: &Row<'_>| {
        let one = measured.iter().find(|one| one.cell.concurrency == 10)?;
        let fastest = fastest_us(&rows(one));
        let shares: Vec<f64> = row.rounds.taken.iter().map(|taken| share_within(&taken.answers, fastest)).collect();
        Some(format!("{:.0} %", median(&shares)? * 100.0))
    };
    let longest = |row: &Row<'_>| {
        let order = row.figures.first().map(|_| row.sum(|figures| figures.order.overtaken))?;
        Some(format!("{} ms ({order} overtaken)", ms(row.most(|figures| figures.longest_us) as f64)))
    };
    let overlapped = |row: &Row<'_>| {
        let count = row.figures.first().map(|_| row.sum(|figures| figures.overlapped))?;
        Some(format!("{:.0} %", count as f64 * 100.0 / row.sum(|figures| figures.requests).max(1) as f64))
    };
    let finding = |article: &str, here: String| Finding { article: article.to_owned(), here };
    let share = |row: &Row<'_>| {
        let one = measured.iter().find(|one| one.cell.concurrency == 30)?;
        let all = rows(one);
        let ideal = all.iter().find(|row| !row.is_measured())?;
        let rps = row.median(|figures| figures.rps)? / ideal.median(|figures| figures.rps)?;
        let longest = row.median(|figures| figures.longest_us as f64)?;
        let ratio = longest / ideal.median(|figures| figures.longest_us as f64)?;
        Some(format!("{:.1} % of its requests per second, the longest {ratio:.2} of its", rps * 100.0))
    };
    vec![
        finding(
            "(Not in the article.) How near a product comes to a queue that keeps the order and loses no time.",
            format!("At 30: {}.", all_three(measured, 30, share)),
        ),
        finding(
            "At 30 at a time, 218 requests per second with HAProxy and 162 with nginx.",
            format!("Requests per second at 30: {}.", all_three(measured, 30, rps)),
        ),
        finding(
            "At 10 at a time, HAProxy answers 95 % within the time of the fastest; nginx's times are all over the place.",
            format!("Within the fastest's time at 10: {}.", all_three(measured, 10, within)),
        ),
        finding(
            "With nginx requests meet others at the origins; with HAProxy's bound of 1 they wait in the balancer.",
            format!("Met another one at the origin, at 30: {}.", all_three(measured, 30, overlapped)),
        ),
        finding(
            "A few requests waited up to 47 s in HAProxy: a fault in its queue, which did not keep the order of arrival.",
            format!("The longest at 30: {}.", all_three(measured, 30, longest)),
        ),
    ]
}

fn notes(measured: &[Measured]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "An origin sleeps for {WORK_MS} ms for each request, and for one in {HICCUP_EVERY} for 200 to 400 ms, as with \
             a garbage collector. Which ones follows from a seed and the number of the request at its origin: every \
             product meets the same. That is {MEAN_MS:.1} ms on average. The published application was real, and its \
             origins used the processor."
        ),
        "The generator is vegeta without a rate and with a bound on its workers, which makes a new connection for each \
         request as soon as one is answered, as `ab` did. `ab` gives no times in order (its file is sorted by duration, \
         and begins are whole seconds), and `hey` keeps nothing of the answer, in which the origin tells when it began. A \
         time is from the generator's beginning to the answer's end, connecting included."
            .to_owned(),
        "Who was overtaken, and what is lost between two requests, is looked at in as many requests once more, with a client of \
         the lab's that says when the last byte of each was out: on loopback it is then at the product. vegeta cannot say that: \
         with a thousand at a time a request was up to 100 ms on its way before any product could see it, and others that \
         were begun later were there first. Nothing else in the table is of these requests."
            .to_owned(),
        "Round robin and fewest requests mean the same product something else when it does not queue: nginx and Traefik \
         send each request at once to an origin, where it waits behind others while another origin may be idle. Envoy \
         holds it back, but for the one host that it has chosen."
            .to_owned(),
    ];
    notes.push(format!(
        "`{}` is computed: one line for all origins in strict order, the same requests at the same origins' speed, and no \
         time between an answer and the next request. Connecting, the generator and timers that sleep a little longer \
         than asked are not in it.",
        ideal::NAME
    ));
    if measured.iter().any(|one| one.cell.origins > 3) {
        notes.push(
            "Not published: many origins, and ten times as many requests waiting as there are origins.".to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Cell, Taken};
    use super::super::order::Answer;
    use super::*;

    fn answer(number: u64, wait_ms: u64) -> Answer {
        Answer {
            asked_us: number * 7000,
            came_us: Some(number * 7000),
            latency_us: (wait_ms + 20) * 1000,
            is_good: true,
            problem: String::new(),
            began_us: Some(number * 7000 + wait_ms * 1000),
            overlapped: wait_ms > 50,
            idle_us: Some(300),
        }
    }

    fn rounds(name: &'static str, wait_ms: u64) -> Rounds {
        let one = |number| answer(number, if number % 10 == 9 { wait_ms } else { 30 });
        let answers: Vec<_> = (0..100).map(one).collect();
        Rounds {
            name,
            taken: vec![Taken { queue: answers.clone(), answers, cpu_us: 80.0, others_share: 0.0 }],
            failure: None,
        }
    }

    fn measured() -> Vec<Measured> {
        let cell = |name, concurrency| Cell { name, origins: 3, concurrency, requests: 100, together_us: 5000 };
        let failed = || Rounds { name: "envoy", failure: Some("it ended".to_owned()), ..Rounds::default() };
        let products = || vec![rounds("equipoise", 30), rounds("nginx", 400), failed()];
        vec![
            Measured { cell: cell("c10", 10), products: products() },
            Measured { cell: cell("c30", 30), products: products() },
        ]
    }

    #[test]
    fn every_product_has_its_chart_in_each_group_and_a_failed_one_its_reason() {
        let page = page(Page::default(), &measured());
        assert_eq!(page.charts.iter().filter(|chart| chart.kind == ChartKind::Scatter).count(), 6);
        let failures = page.charts.iter().flat_map(|chart| &chart.series).filter(|series| series.failure.is_some());
        assert_eq!(failures.count(), 2 + 2 + 1);
        assert_eq!(page.tables[0].rows[2][1].tone, Tone::Failed);
        assert!(page.tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len())));
    }

    #[test]
    fn overtaken_and_overlapping_requests_are_shown_as_faults_and_the_best_is_marked() {
        let page = page(Page::default(), &measured());
        let [equipoise, nginx] = [&page.tables[0].rows[0], &page.tables[0].rows[1]];
        assert_eq!((equipoise[8].text.as_str(), nginx[8].text.as_str()), ("0", "10"));
        assert_eq!((equipoise[9].tone, nginx[9].tone), (Tone::Plain, Tone::Doubtful));
        assert_eq!((equipoise[4].tone, nginx[4].tone), (Tone::Best, Tone::Plain));
        assert!(page.findings[4].here.contains("haproxy was not measured"), "{}", page.findings[4].here);
    }

    #[test]
    fn the_ideal_queue_is_shown_but_never_the_best() {
        let mut measured = measured();
        for one in &mut measured {
            one.products.push(Rounds { name: ideal::NAME, taken: vec![ideal::taken(&one.cell)], failure: None });
        }
        let page = page(Page::default(), &measured);
        let row = &page.tables[1].rows[3];
        assert_eq!((row[0].text.as_str(), row[12].text.as_str()), (ideal::NAME, "–"));
        assert!(row.iter().all(|cell| cell.tone == Tone::Plain), "{row:?}");
        assert!(page.findings[0].here.contains("% of its requests per second"), "{}", page.findings[0].here);
    }

    #[test]
    fn a_run_that_was_ended_at_once_still_makes_a_page() {
        assert!(page(Page::default(), &[]).tables.is_empty());
    }
}
