//! Whether Equipoise is ahead of every other product in every cell: failed requests, the worst at a change, the 99.9th
//! percentile.

use super::super::show::{plain, thousands, toned};
use super::page::{failed, middle, most, ms};
use super::{Measured, Rounds};
use crate::report::page::{Table, TableCell, Tone};

/// A figure of a product, the less of which is better.
struct Figure {
    name: &'static str,
    of: fn(&Rounds) -> Option<f64>,
    show: fn(f64) -> String,
}

const FIGURES: [Figure; 3] = [
    Figure { name: "failed", of: |rounds| Some(failed(rounds) as f64), show: thousands },
    Figure { name: "worst at a change, ms", of: |rounds| Some(most(rounds, |one| one.worst_near_ms)), show: ms },
    Figure { name: "p99.9, ms", of: |rounds| middle(rounds, |one| one.p999_ms), show: ms },
];

/// A row for each part and rate in which Equipoise and another product were measured.
pub(super) fn table(measured: &[Measured]) -> Option<Table> {
    let rows: Vec<Vec<TableCell>> = measured.iter().filter_map(row).collect();
    let mut columns = vec!["cell".to_owned()];
    for figure in &FIGURES {
        columns.extend([figure.name.to_owned(), "best of the others".to_owned()]);
    }
    columns.extend(["worst otherwise, ms".to_owned(), "ahead".to_owned()]);
    (!rows.is_empty()).then(|| Table {
        title: "Equipoise in every cell".to_owned(),
        note: "Its figure, and that of the product that did best in it, whichever it is, of those that made all its changes. Ahead: nobody's is less. Beside the \
               worst at a change stands the worst of the rest of the time."
            .to_owned(),
        columns,
        rows,
    })
}

fn row(measured: &Measured) -> Option<Vec<TableCell>> {
    let taken = |rounds: &&Rounds| !rounds.taken.is_empty();
    let own = measured.products.iter().filter(taken).find(|rounds| rounds.name == "equipoise")?;
    // Who cannot make a change has nothing to be compared in.
    let others = measured.products.iter().filter(taken).filter(|one| one.name != "equipoise");
    let others: Vec<&Rounds> = others.filter(|one| changes(one) >= changes(own)).collect();
    let mut row = vec![plain(format!("{}, {}/s", measured.part.title(), thousands(measured.rate as f64)))];
    let mut behind = Vec::new();
    for Figure { name, of, show } in &FIGURES {
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
    row.push(plain(ms(most(own, |one| one.worst_far_ms))));
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
    use super::super::measure::Taken;
    use super::super::requests::Figures;
    use super::*;

    fn rounds(name: &'static str, failed: usize, near: f64, p999: f64) -> Rounds {
        let figures = Figures { failed, worst_near_ms: near, p999_ms: p999, ..Figures::default() };
        let taken = Taken { figures, cpu_us: 80.0, memory: None, others_share: 0.0, points: Vec::new() };
        Rounds { name, taken: vec![taken], failure: None }
    }

    #[test]
    fn the_best_of_the_others_is_found_for_each_figure_and_what_is_behind_is_named() {
        let cell = |ours: Rounds| {
            let products = vec![ours, rounds("nginx", 0, 9.0, 2.0), rounds("haproxy", 7, 5.0, 3.0)];
            Measured { part: Part::Article, rate: 1000, products }
        };
        let cells = [cell(rounds("equipoise", 0, 4.0, 1.5)), cell(rounds("equipoise", 1, 4.0, 2.5))];
        let table = table(&cells).unwrap();
        let texts = |row: usize| table.rows[row].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>();
        assert_eq!(texts(0)[1..5], ["0", "0 (nginx)", "4.00", "5.00 (haproxy)"]);
        assert_eq!((texts(0)[8], texts(1)[8]), ("yes", "no: failed; p99.9, ms"));
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }

    #[test]
    fn alone_it_is_ahead_of_nobody() {
        let products = vec![rounds("equipoise", 0, 1.0, 1.0)];
        assert!(table(&[Measured { part: Part::Further, rate: 100, products }]).is_none());
    }
}
