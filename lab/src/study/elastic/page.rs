//! The page: latency over time with the changes marked, what each change did, and the figures.

use super::super::show::{failed_row, fault_count, mark_best, plain, thousands, toned};
use super::ahead;
use super::changes::{Part, Schedule, cannot_upgrade};
use super::measure::Memory;
use super::pauses;
use super::requests::{Effect, Figures};
use super::{Measured, Rounds};
use crate::measure::DISTURBED_SHARE;
use crate::measure::stats::median;
use crate::report::page::{Axis, Chart, ChartKind, Finding, Mark, Page, Scale, Series, Table, TableCell, Tone};

/// Fills the page.
pub(super) fn page(mut page: Page, schedule: &Schedule, measured: &[Measured]) -> Page {
    for one in measured {
        page.charts.extend(one.products.iter().map(|rounds| over_time(one, rounds)));
    }
    if let Some(table) = ahead::table(measured) {
        page.tables.push(table);
    }
    for one in measured {
        page.tables.push(figures_table(one, schedule));
        page.tables.extend(pauses::table(one));
        page.tables.push(effects_table(one, schedule));
        if one.part == Part::Further {
            page.tables.push(memory_table(one));
        }
    }
    page.findings = findings(measured);
    page.notes = notes(schedule, measured);
    page
}

fn over_time(measured: &Measured, rounds: &Rounds) -> Chart {
    let rate = measured.rate;
    let taken = rounds.taken.first();
    let effects = taken.map_or(&[][..], |taken| &taken.figures.effects);
    let mark = |effect: &Effect| Mark { at: effect.at_s, label: effect.change.title().to_owned() };
    let points = taken.map_or(Vec::new(), |taken| taken.points.clone());
    Chart {
        group: format!("Latency at {} requests per second: {}", thousands(rate as f64), measured.part.title()),
        label: rounds.name.to_owned(),
        title: format!("{} at {} requests per second: {}", rounds.name, thousands(rate as f64), measured.part.title()),
        note:
            "Each point is a request of the first round, failed ones too; the lines are the moments of change. Of each \
               slice of time the slowest and the fastest are drawn, and all above the 99th percentile."
                .to_owned(),
        x: Axis { title: "time, s".to_owned(), ..Axis::default() },
        y: Axis { title: "latency, ms".to_owned(), scale: Scale::Log, ..Axis::default() },
        kind: ChartKind::Scatter,
        series: vec![Series { product: rounds.name.to_owned(), points, failure: no_points(rounds) }],
        marks: effects.iter().map(mark).collect(),
    }
}

fn no_points(rounds: &Rounds) -> Option<String> {
    rounds.failure.clone().filter(|_| rounds.taken.is_empty())
}

pub(super) fn most(rounds: &Rounds, of: impl Fn(&Figures) -> f64) -> f64 {
    rounds.taken.iter().map(|taken| of(&taken.figures)).fold(0.0, f64::max)
}

pub(super) fn middle(rounds: &Rounds, of: impl Fn(&Figures) -> f64) -> Option<f64> {
    median_of(rounds, |figures| Some(of(figures)))
}

/// Of the rounds that have it.
pub(super) fn median_of(rounds: &Rounds, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
    median(&rounds.taken.iter().filter_map(|taken| of(&taken.figures)).collect::<Vec<_>>())
}

pub(super) fn failed(rounds: &Rounds) -> usize {
    rounds.taken.iter().map(|taken| taken.figures.failed).sum()
}

fn problems(rounds: &Rounds) -> String {
    let all = rounds.taken.iter().flat_map(|taken| &taken.figures.problems);
    all.map(|(problem, count)| format!("{count} × {problem}")).collect::<Vec<_>>().join("; ")
}

pub(super) fn ms(value: f64) -> String {
    super::super::show::ms(value * 1000.0)
}

const COLUMNS: [&str; 10] = [
    "product",
    "failed",
    "worst at a change, ms",
    "worst otherwise, ms",
    "worst in the first second, ms",
    "p50, ms",
    "p99, ms",
    "p99.9, ms",
    "requests",
    "CPU us/req",
];

fn figures_table(measured: &Measured, schedule: &Schedule) -> Table {
    let row = |rounds: &Rounds| match &rounds.failure {
        Some(reason) if rounds.taken.is_empty() => failed_row(rounds.name, reason, COLUMNS.len()),
        _ => figures_row(rounds),
    };
    let mut rows: Vec<Vec<TableCell>> = measured.products.iter().map(row).collect();
    let there = |of: &dyn Fn(&Rounds) -> Option<f64>| {
        measured.products.iter().map(|rounds| of(rounds).filter(|_| !rounds.taken.is_empty())).collect::<Vec<_>>()
    };
    mark_best(&mut rows, 2, &there(&|rounds| Some(most(rounds, |one| one.worst_near_ms))), false);
    mark_best(&mut rows, 5, &there(&|rounds| middle(rounds, |one| one.p50_ms)), false);
    mark_best(&mut rows, 6, &there(&|rounds| middle(rounds, |one| one.p99_ms)), false);
    mark_best(&mut rows, 7, &there(&|rounds| middle(rounds, |one| one.p999_ms)), false);
    mark_best(&mut rows, 9, &there(&cpu), false);
    Table {
        title: format!("{} requests per second: {}", thousands(measured.rate as f64), measured.part.title()),
        note: format!(
            "At a change: under way within {:.1} s after its begin. The worst are of all rounds, failed are sums, the \
             rest are medians. CPU time is that of all processes, also of those that took over from others.",
            schedule.window().as_secs_f64()
        ),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    }
}

fn cpu(rounds: &Rounds) -> Option<f64> {
    median(&rounds.taken.iter().map(|taken| taken.cpu_us).collect::<Vec<_>>())
}

fn figures_row(rounds: &Rounds) -> Vec<TableCell> {
    let (near, far) = (most(rounds, |one| one.worst_near_ms), most(rounds, |one| one.worst_far_ms));
    let others = rounds.taken.iter().map(|taken| taken.others_share).fold(0.0, f64::max);
    let is_disturbed = others > DISTURBED_SHARE;
    let disturbed =
        if is_disturbed { format!("others used {:.0} % of the machine", others * 100.0) } else { String::new() };
    let tone = if is_disturbed { Tone::Doubtful } else { Tone::Plain };
    let requests: usize = rounds.taken.iter().map(|taken| taken.figures.requests).sum();
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), ms);
    vec![
        plain(rounds.name),
        fault_count(failed(rounds), problems(rounds)),
        toned(ms(near), tone, disturbed.clone()),
        toned(ms(far), tone, disturbed),
        plain(ms(most(rounds, |one| one.worst_start_ms))),
        plain(shown(middle(rounds, |one| one.p50_ms))),
        plain(shown(middle(rounds, |one| one.p99_ms))),
        plain(shown(middle(rounds, |one| one.p999_ms))),
        plain(thousands(requests as f64)),
        plain(cpu(rounds).map_or("–".to_owned(), |us| format!("{us:.0}"))),
    ]
}

/// A row for each product, a column for each change of the first round.
fn effects_table(measured: &Measured, schedule: &Schedule) -> Table {
    let mut columns = vec!["product".to_owned()];
    let changes = schedule.changes(measured.part);
    columns.extend(changes.iter().map(|change| change.title().to_owned()));
    let row = |rounds: &Rounds| match (&rounds.failure, rounds.taken.first()) {
        (_, Some(taken)) => effects_row(rounds.name, &taken.figures, changes.len()),
        (reason, None) => failed_row(rounds.name, reason.as_deref().unwrap_or("not measured"), columns.len()),
    };
    let rows = measured.products.iter().map(row).collect();
    Table {
        title: format!(
            "What each change did, at {} requests per second: {}",
            thousands(measured.rate as f64),
            measured.part.title()
        ),
        note: "First round. The worst latency in the window of the change, ms, and behind the slash how many ms after its \
               begin the last request was begun that still met what was before (of a fourth origin: when it got its \
               first request). Certificate and binary were looked at every 50 ms; the new binary counts when its process is \
               there, and the old one ended in time."
            .to_owned(),
        columns,
        rows,
    }
}

fn effects_row(product: &'static str, figures: &Figures, changes: usize) -> Vec<TableCell> {
    let mut row = vec![plain(product)];
    for place in 0..changes {
        row.push(match figures.effects.get(place) {
            Some(effect) => effect_cell(effect),
            None => toned("–", Tone::LeftOut, cannot_upgrade(product).unwrap_or(NOT_CAUGHT)),
        });
    }
    row
}

const NOT_CAUGHT: &str = "it was not made: this executable does not catch the signal";

/// What replacing the program costs beside the requests.
fn memory_table(measured: &Measured) -> Table {
    let columns = ["product", "CPU us/req", "memory before, MB", "most, MB", "at the end, MB"];
    let row = |rounds: &Rounds| {
        let Some(taken) = rounds.taken.first() else {
            let reason = rounds.failure.as_deref().unwrap_or("not measured");
            return failed_row(rounds.name, reason, columns.len());
        };
        let shown = |of: fn(&Memory) -> u64| {
            plain(taken.memory.as_ref().map_or("–".to_owned(), |memory| format!("{:.1}", of(memory) as f64 / 1e6)))
        };
        let cpu = plain(format!("{:.0}", taken.cpu_us));
        vec![plain(rounds.name), cpu, shown(|one| one.before), shown(|one| one.peak), shown(|one| one.after)]
    };
    Table {
        title: format!("While the program is replaced, at {} requests per second", thousands(measured.rate as f64)),
        note:
            "First round. Resident memory of all processes, old and new, looked at every 50 ms; pages that they share \
               count for each."
                .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: measured.products.iter().map(row).collect(),
    }
}

fn effect_cell(effect: &Effect) -> TableCell {
    let worst = ms(effect.worst_ms);
    match (effect.settled_ms, effect.failed) {
        (Some(settled), 0) => plain(format!("{worst} / {settled:.0}")),
        (Some(settled), failed) => {
            toned(format!("{worst} / {settled:.0}"), Tone::Doubtful, format!("{failed} requests failed"))
        }
        (None, failed) => {
            let detail = format!("it was not in force before the next one was due; {failed} requests failed");
            toned(format!("{worst} / not in force"), Tone::Doubtful, detail)
        }
    }
}

fn findings(measured: &[Measured]) -> Vec<Finding> {
    let of = |product: &str| {
        let published = measured.iter().filter(|one| one.part == Part::Article);
        let each = published.filter_map(|one| {
            let rounds = one.products.iter().find(|rounds| rounds.name == product && !rounds.taken.is_empty())?;
            let (near, far) = (most(rounds, |figures| figures.worst_near_ms), most(rounds, |one| one.worst_far_ms));
            let rate = thousands(one.rate as f64);
            Some(format!("{} ms at {rate} (otherwise {} ms, {} failed)", ms(near), ms(far), failed(rounds)))
        });

        let each: Vec<String> = each.collect();
        if each.is_empty() {
            format!("{product} was not measured.")
        } else {
            format!("{product}: {}.", each.join("; "))
        }
    };
    let finding = |article: &str, here: String| Finding { article: article.to_owned(), here };
    vec![
        finding(
            "HAProxy: spikes of 1 s at 100 requests per second, 10 s at 500 and 25 s at 1,000.",
            format!("Worst at a change, {}", of("haproxy")),
        ),
        finding("NGINX: spikes of 0.75 to 1 s.", format!("Worst at a change, {}", of("nginx"))),
        finding(
            "Envoy: below 10 ms, with 25 ms when it starts and a rare 200 ms.",
            format!("Worst at a change, {}", of("envoy")),
        ),
        finding(
            "Equipoise and Traefik were not among the products.",
            format!("Worst at a change, {} {}", of("equipoise"), of("traefik")),
        ),
    ]
}

fn notes(schedule: &Schedule, measured: &[Measured]) -> Vec<String> {
    let mut notes = vec![
        "Two runs for each product and rate. In one the changes are those that were published: origins, then routes. In the \
         other a certificate and then the program are replaced, which the article did not do; it stands apart. Of its \
         processes the new ones are followed as the old ones are, for their CPU time and their memory."
            .to_owned(),
        format!(
            "A change every {:.1} s, the first after as long. There is no Kubernetes and no control plane: the lab writes \
             files, sends signals and commands, as the users of each product do. What the published figures owe to \
             controllers is not in these.",
            schedule.step.as_secs_f64()
        ),
        "The generator is vegeta, at a constant rate over connections that last. Every request is kept (the article kept \
         one in ten): all are in the requests-*.csv files beside the report. Latency counts from when vegeta began it."
            .to_owned(),
        "Whether a change came into force is read from the answers: origins tell which of them it was and which path they \
         saw, and the fields that a change adds are there or not. A new certificate is asked for by connections of its \
         own, a new binary is found among the processes."
            .to_owned(),
        "A request over a connection that the product closes at that moment is made again by vegeta's library if no byte \
         of the answer was there; that shows as latency and not as a failure."
            .to_owned(),
    ];
    let names: Vec<&str> = measured.first().map_or(Vec::new(), |one| one.products.iter().map(|one| one.name).collect());
    let cannot = names.iter().filter_map(|name| cannot_upgrade(name));
    notes.extend(
        cannot.map(|reason| format!("The change to a new binary is left out where it cannot be made. {reason}.")),
    );
    let taken = measured.iter().flat_map(|one| &one.products).flat_map(|rounds| &rounds.taken);
    let effects = taken.flat_map(|taken| &taken.figures.effects);
    let took = effects.map(|effect| effect.took_ms).collect::<Vec<_>>();
    if let Some(usual) = median(&took) {
        notes.push(format!(
            "Lab, generator and origins share a core. To make a change known (files, a signal, commands) takes the lab {} \
             ms there as a median: such a difference between the worst at a change and otherwise is not the product's.",
            ms(usual)
        ));
    }
    notes.extend(pauses::notes(measured));
    notes
}

#[cfg(test)]
mod tests {
    use super::super::super::Size;
    use super::super::changes::Change;
    use super::super::measure::Taken;
    use super::*;

    fn rounds(name: &'static str, schedule: &Schedule, part: Part, failed: usize) -> Rounds {
        let effect = |(place, change): (usize, &Change)| Effect {
            change: *change,
            at_s: (place as f64 + 1.0) * 30.0,
            took_ms: 1.5,
            settled_ms: (*change != Change::Cors).then_some(12.0),
            worst_ms: 40.0,
            failed,
        };
        let figures = Figures {
            requests: 1000,
            failed,
            worst_near_ms: 40.0,
            worst_far_ms: 3.0,
            effects: schedule.of(name, part).iter().enumerate().map(effect).collect(),
            ..Figures::default()
        };
        let memory = Some(Memory { before: 1_000_000, peak: 2_500_000, after: 1_500_000 });
        let taken = Taken { figures, cpu_us: 80.0, memory, others_share: 0.0, pauses: None, points: vec![(1.0, 2.0)] };
        Rounds { name, taken: vec![taken], failure: None }
    }

    #[test]
    fn tables_show_failures_changes_that_never_came_and_those_that_cannot_be() {
        let schedule = Schedule::new(Size::Quick);
        let of = |part| {
            let lost = Rounds { name: "envoy", failure: Some("it ended".to_owned()), ..Rounds::default() };
            let products = vec![rounds("equipoise", &schedule, part, 0), rounds("traefik", &schedule, part, 3), lost];
            Measured { part, rate: 500, products }
        };
        let page = page(Page::default(), &schedule, &Part::ALL.map(of));
        let [_, figures, effects, _, further, memory] = page.tables.as_slice() else { panic!("six tables for a rate") };
        assert!(page.tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len())));
        assert_eq!((figures.rows[0][1].tone, figures.rows[1][1].tone), (Tone::Plain, Tone::Doubtful));
        assert_eq!((effects.rows[0][3].tone, effects.rows[2][1].tone), (Tone::Doubtful, Tone::Failed));
        assert_eq!((further.rows[0][2].tone, further.rows[1][2].tone), (Tone::Plain, Tone::LeftOut));
        assert_eq!(memory.rows[0][3].text, "2.5");
        assert_eq!((page.charts[0].marks.len(), page.charts[3].marks.len()), (6, 2));
        assert!(page.findings[0].here.contains("haproxy was not measured"));
    }

    #[test]
    fn a_run_that_was_ended_at_once_still_makes_a_page() {
        assert!(page(Page::default(), &Schedule::new(Size::Full), &[]).tables.is_empty());
    }
}
