//! Whether Equipoise is ahead of every other product in every cell: failed requests, the worst at a change, the 99.9th
//! percentile.

use super::super::show::{plain, thousands, toned};
use super::page::{failed, middle, most, ms};
use super::pauses;
use super::{Measured, Rounds};
use crate::report::page::{Table, TableCell, Tone};

/// A figure of a product, the less of which is better: of all requests, and of those that no pause of the machine held up.
struct Figure {
    name: &'static str,
    of: fn(&Rounds) -> Option<f64>,
    without: fn(&Rounds) -> Option<f64>,
    show: fn(f64) -> String,
}

fn failures(rounds: &Rounds) -> Option<f64> {
    Some(failed(rounds) as f64)
}

const FIGURES: [Figure; 3] = [
    Figure { name: "failed", of: failures, without: failures, show: thousands },
    Figure {
        name: "worst at a change, ms",
        of: |rounds| Some(most(rounds, |one| one.worst_near_ms)),
        without: pauses::near,
        show: ms,
    },
    Figure { name: "p99.9, ms", of: |rounds| middle(rounds, |one| one.p999_ms), without: pauses::p999, show: ms },
];

/// Rows for each part and rate in which Equipoise and another product were measured.
pub(super) fn table(measured: &[Measured]) -> Option<Table> {
    let rows: Vec<Vec<TableCell>> =
        measured.iter().flat_map(|one| [row(one, false), row(one, true)]).flatten().collect();
    let mut columns = vec!["cell".to_owned()];
    for figure in &FIGURES {
        columns.extend([figure.name.to_owned(), "best of the others".to_owned()]);
    }
    columns.extend(["worst otherwise, ms", "left out, %", "ahead"].map(str::to_owned));
    (!rows.is_empty()).then(|| Table {
        title: "Equipoise in every cell".to_owned(),
        note: "Its figure, and that of the product that did best in it, whichever it is, of those that made all its changes. Ahead: nobody's is less. Beside the \
               worst at a change stands the worst of the rest of the time. First as measured; then without the requests that pauses \
               of the machine held up, with the share of Equipoise's that were left out so. The rule stands in the notes, and each product's \
               share and pauses in the tables below."
            .to_owned(),
        columns,
        rows,
    })
}

fn row(measured: &Measured, is_without: bool) -> Option<Vec<TableCell>> {
    let taken = |rounds: &&Rounds| !rounds.taken.is_empty();
    let own = measured.products.iter().filter(taken).find(|rounds| rounds.name == "equipoise")?;
    // Who cannot make a change has nothing to be compared in.
    let others = measured.products.iter().filter(taken).filter(|one| one.name != "equipoise");
    let others: Vec<&Rounds> = others.filter(|one| changes(one) >= changes(own)).collect();
    let how = if is_without { ", without pauses" } else { "" };
    let mut row = vec![plain(format!("{}, {}/s{how}", measured.part.title(), thousands(measured.rate as f64)))];
    let mut behind = Vec::new();
    for Figure { name, of, without, show } in &FIGURES {
        let of = if is_without { without } else { of };
        let ours = of(own)?;
        let figures = others.iter().filter_map(|rounds| Some((of(rounds)?, rounds.name)));
        let (best, who) = figures.min_by(|one, other| one.0.total_cmp(&other.0))?;
        let is_ahead = ours <= best;
        if !is_ahead {
            behind.push(*name);
        }
        row.push(toned(show(ours), if is_ahead { Tone::Best } else { Tone::Plain }, ""));
        row.push(plain(format!("{} ({who})", show(best))));
    }
    let (far, left_out) = if is_without {
        (pauses::far(own)?, format!("{:.2}", pauses::left_out(own)?))
    } else {
        (most(own, |one| one.worst_far_ms), "–".to_owned())
    };
    row.extend([plain(ms(far)), plain(left_out)]);
    row.push(if behind.is_empty() {
        plain("yes")
    } else {
        toned(format!("no: {}", behind.join("; ")), Tone::Doubtful, "")
    });
    Some(row)
}

fn changes(rounds: &Rounds) -> usize {
    rounds.taken.iter().map(|taken| taken.figures.effects.len()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::changes::Part;
    use super::super::held_up::Unpaused;
    use super::super::measure::Taken;
    use super::super::requests::Figures;
    use super::*;

    fn rounds(name: &'static str, failed: usize, near: f64, p999: f64) -> Rounds {
        let figures = Figures { requests: 400, failed, worst_near_ms: near, p999_ms: p999, ..Figures::default() };
        let taken = Taken { figures, cpu_us: 80.0, memory: None, others_share: 0.0, pauses: None, points: Vec::new() };
        Rounds { name, taken: vec![taken], failure: None }
    }

    /// The figures that are there, without pauses.
    fn unpaused(mut rounds: Rounds, worst_near_ms: f64, p999_ms: f64) -> Rounds {
        rounds.taken[0].figures.unpaused = Some(Unpaused { left_out: 2, p999_ms, worst_near_ms, worst_far_ms: 1.0 });
        rounds
    }

    fn texts(table: &Table, row: usize) -> Vec<&str> {
        table.rows[row].iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn the_best_of_the_others_is_found_for_each_figure_and_what_is_behind_is_named() {
        let cell = |ours: Rounds| {
            let products = vec![ours, rounds("nginx", 0, 9.0, 2.0), rounds("haproxy", 7, 5.0, 3.0)];
            Measured { part: Part::Article, rate: 1000, products }
        };
        let cells = [cell(rounds("equipoise", 0, 4.0, 1.5)), cell(rounds("equipoise", 1, 4.0, 2.5))];
        let table = table(&cells).unwrap();
        assert_eq!(texts(&table, 0)[1..5], ["0", "0 (nginx)", "4.00", "5.00 (haproxy)"]);
        assert_eq!((texts(&table, 0)[9], texts(&table, 1)[9]), ("yes", "no: failed; p99.9, ms"));
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }

    #[test]
    fn what_is_without_pauses_stands_below_what_was_measured_and_is_compared_with_its_like() {
        let products = vec![
            unpaused(rounds("equipoise", 0, 12.0, 11.0), 3.0, 2.0),
            unpaused(rounds("haproxy", 0, 5.0, 4.0), 4.0, 2.5),
            rounds("nginx", 0, 1.0, 1.0),
        ];
        let table = table(&[Measured { part: Part::Article, rate: 100, products }]).unwrap();
        assert_eq!(
            texts(&table, 0)[3..],
            ["12.0", "1.00 (nginx)", "11.0", "1.00 (nginx)", "0.00", "–", "no: worst at a change, ms; p99.9, ms"]
        );
        assert_eq!(texts(&table, 1)[3..], ["3.00", "4.00 (haproxy)", "2.00", "2.50 (haproxy)", "1.00", "0.50", "yes"]);
        assert_eq!((table.rows.len(), table.rows[1].len()), (2, table.columns.len()));
    }

    #[test]
    fn alone_it_is_ahead_of_nobody() {
        let products = vec![rounds("equipoise", 0, 1.0, 1.0)];
        assert!(table(&[Measured { part: Part::Further, rate: 100, products }]).is_none());
    }
}
