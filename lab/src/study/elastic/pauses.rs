//! What the machine kept from everybody, and the figures without the requests that it held up.

use super::super::show::{failed_row, mark_best, plain, thousands, toned};
use super::held_up::Unpaused;
use super::page::{median_of, most, ms};
use super::{Measured, Rounds};
use crate::measure::sentinel::Seen;
use crate::report::page::{Table, TableCell, Tone};

const COLUMNS: [&str; 11] = [
    "product",
    "pauses",
    "longest, ms",
    "in all, ms",
    "left out, %",
    "worst at a change, ms",
    "without, ms",
    "worst otherwise, ms",
    "without, ms",
    "p99.9, ms",
    "without, ms",
];

/// A row for each product; no table when nothing is known.
pub(super) fn table(measured: &Measured) -> Option<Table> {
    if !measured.products.iter().flat_map(|rounds| &rounds.taken).any(|taken| taken.pauses.is_some()) {
        return None;
    }
    let row = |rounds: &Rounds| match &rounds.failure {
        Some(reason) if rounds.taken.is_empty() => failed_row(rounds.name, reason, COLUMNS.len()),
        _ => row(rounds),
    };
    let mut rows: Vec<Vec<TableCell>> = measured.products.iter().map(row).collect();
    let there = |of: fn(&Rounds) -> Option<f64>| measured.products.iter().map(of).collect::<Vec<_>>();
    mark_best(&mut rows, 6, &there(near), false);
    mark_best(&mut rows, 10, &there(p999), false);
    Some(Table {
        title: format!(
            "Pauses of the machine, at {} requests per second: {}",
            thousands(measured.rate as f64),
            measured.part.title()
        ),
        note: "Of both cores. Without: the same figure without the requests that spent at least half of their time in pauses, \
               and how many were left out so. The worst are of all rounds, pauses are sums, the rest are medians."
            .to_owned(),
        columns: COLUMNS.map(str::to_owned).to_vec(),
        rows,
    })
}

fn row(rounds: &Rounds) -> Vec<TableCell> {
    let seen = || rounds.taken.iter().filter_map(|taken| taken.pauses.as_ref());
    let all_us: u64 = seen().map(|one| one.total_us).sum();
    let longest_us = seen().map(|one| one.longest_us).max().unwrap_or(0);
    let count = thousands(seen().map(|one| one.count).sum::<u64>() as f64);
    let is_real_time = seen().all(|one| one.is_real_time);
    let count = if is_real_time {
        plain(count)
    } else {
        toned(count, Tone::Doubtful, "seen by threads that programs can hold up")
    };
    let shown = |value: Option<f64>| plain(value.map_or("–".to_owned(), ms));
    vec![
        plain(rounds.name),
        count,
        plain(ms(longest_us as f64 / 1e3)),
        plain(ms(all_us as f64 / 1e3)),
        plain(left_out(rounds).map_or("–".to_owned(), |percent| format!("{percent:.2}"))),
        plain(ms(most(rounds, |one| one.worst_near_ms))),
        shown(near(rounds)),
        plain(ms(most(rounds, |one| one.worst_far_ms))),
        shown(far(rounds)),
        shown(median_of(rounds, |one| Some(one.p999_ms))),
        shown(p999(rounds)),
    ]
}

/// The share of requests that were left out, %.
pub(super) fn left_out(rounds: &Rounds) -> Option<f64> {
    let requests: usize = rounds.taken.iter().map(|taken| taken.figures.requests).sum();
    Some(sum(rounds, |one| one.left_out)? as f64 / requests.max(1) as f64 * 100.0)
}

pub(super) fn near(rounds: &Rounds) -> Option<f64> {
    worst(rounds, |one| one.worst_near_ms)
}

pub(super) fn far(rounds: &Rounds) -> Option<f64> {
    worst(rounds, |one| one.worst_far_ms)
}

pub(super) fn p999(rounds: &Rounds) -> Option<f64> {
    each(rounds)?;
    median_of(rounds, |one| one.unpaused.map(|unpaused| unpaused.p999_ms))
}

/// Of every round; `None` when one of them has none, or there is no round.
fn each(rounds: &Rounds) -> Option<Vec<Unpaused>> {
    let all: Option<Vec<Unpaused>> = rounds.taken.iter().map(|taken| taken.figures.unpaused).collect();
    all.filter(|all| !all.is_empty())
}

fn worst(rounds: &Rounds, of: fn(&Unpaused) -> f64) -> Option<f64> {
    Some(each(rounds)?.iter().map(of).fold(0.0, f64::max))
}

fn sum(rounds: &Rounds, of: fn(&Unpaused) -> usize) -> Option<usize> {
    Some(each(rounds)?.iter().map(of).sum())
}

/// How the machine's pauses were seen, for the notes; empty when they were not.
pub(super) fn notes(measured: &[Measured]) -> Vec<String> {
    let taken = measured.iter().flat_map(|one| &one.products).flat_map(|rounds| &rounds.taken);
    let seen: Vec<&Seen> = taken.filter_map(|taken| taken.pauses.as_ref()).collect();
    if seen.is_empty() {
        return Vec::new();
    }
    let share = seen.iter().map(|one| one.cpu_share).fold(0.0, f64::max) * 100.0;
    let mut notes = vec![format!(
        "Pauses of the machine: during each measurement a thread on each core sleeps to the next millisecond and notes when it \
         woke more than half a millisecond late. It goes before all programs (a real-time thread of the lowest priority), so that \
         neither product, generator nor origin can keep it from its core by their own work; kernel and host of the machine \
         can. It used {share:.2} % of a core at most, the same for all products. The pauses are in the pauses-*.csv \
         files beside the report, on the clock of the requests."
    )];
    notes.push(
        "Without pauses: a request counts as held up when pauses, on either core, were at least half of the time from \
         when it was due until it ended. So a product's own slowness stays: what took 40 ms is not excused by a pause \
         of 2 ms in it. What remains of a pause in the other figures is what its first half millisecond, the time before \
         the thread's next waking, and the requests that queued behind it took. The kernel does not interrupt every system call: one \
         that takes more than half a millisecond counts as a pause, whoever made it. So the number of pauses \
         stands beside each product, and one that has clearly more of them than the others has made them."
            .to_owned(),
    );
    if seen.iter().any(|one| !one.is_real_time) {
        notes.push(
            "The lab may not make real-time threads here (CAP_SYS_NICE, or a limit of rtprio): the pauses may be the work \
             of the programs themselves, and no request is left out for them."
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::changes::Part;
    use super::super::measure::Taken;
    use super::super::requests::Figures;
    use super::*;

    fn rounds(name: &'static str, is_real_time: bool) -> Rounds {
        let unpaused = Unpaused { left_out: 20, p999_ms: 2.0, worst_near_ms: 3.0, worst_far_ms: 4.0 };
        let figures = Figures {
            requests: 1000,
            worst_near_ms: 12.0,
            worst_far_ms: 13.0,
            p999_ms: 11.0,
            unpaused: is_real_time.then_some(unpaused),
            ..Figures::default()
        };
        let pauses = Some(Seen {
            is_real_time,
            count: 7,
            longest_us: 9_000,
            total_us: 21_000,
            cpu_share: 0.004,
            ..Seen::default()
        });
        let taken = Taken { figures, cpu_us: 80.0, memory: None, others_share: 0.0, pauses, points: Vec::new() };
        Rounds { name, taken: vec![taken], failure: None }
    }

    #[test]
    fn what_was_measured_stands_first_and_what_is_without_pauses_beside_it() {
        let products = vec![rounds("equipoise", true), rounds("nginx", false)];
        let measured = Measured { part: Part::Article, rate: 100, products };
        let table = table(&measured).unwrap();
        let texts = |row: usize| table.rows[row].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>();
        assert_eq!(texts(0)[1..], ["7", "9.00", "21.0", "2.00", "12.0", "3.00", "13.0", "4.00", "11.0", "2.00"]);
        assert_eq!(texts(1)[4..], ["–", "12.0", "–", "13.0", "–", "11.0", "–"]);
        assert_eq!((table.rows[0][1].tone, table.rows[1][1].tone), (Tone::Plain, Tone::Doubtful));
        let notes = notes(&[measured]);
        assert!(notes[0].contains("0.40 % of a core") && notes.len() == 3);
    }

    #[test]
    fn of_a_journal_without_pauses_there_is_no_table() {
        let mut old = rounds("equipoise", false);
        old.taken[0].pauses = None;
        let measured = Measured { part: Part::Article, rate: 100, products: vec![old] };
        assert!(table(&measured).is_none() && notes(&[measured]).is_empty());
    }
}
