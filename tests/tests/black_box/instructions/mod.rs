//! Instructions of a request and of its parts, counted by callgrind, against `tests/instructions.txt`.
//!
//! Runs with `EQUIPOISE_INSTRUCTIONS` set and `EQUIPOISE_BIN` naming a release build, beside which `examples/operations` is built too;
//! `./test` does. `exchange` counts whole exchanges by the real program, `operation` single operations. `EQUIPOISE_ACCEPT` writes
//! what is found into the list. `EQUIPOISE_CELLS=pick/,log/` counts only cells whose names begin so.
//!
//! Callgrind shows the program the same processor on any machine with AVX2, so that copies and ciphers take the same way.

mod exchange;
mod list;
mod operation;

use std::fs;
use std::path::Path;
use std::process::Command;

use equipoise_tests::repository;

use list::{LIST, Listed, TOOLS, accepted, listed, nearer, shown, tools};

/// Callgrind, which writes what it has counted there; options and the program follow.
fn callgrind(counts: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display()));
    command
}

/// What callgrind counted in all.
fn total(counts: &Path) -> u64 {
    list::total(&fs::read_to_string(counts).expect("callgrind has written")).expect("a total")
}

/// A name and what counts its instructions.
struct Cell {
    name: String,
    measure: Box<dyn Fn() -> f64>,
}

fn cells() -> Vec<Cell> {
    let exchanges = exchange::CELLS.iter().map(|cell| {
        let measure = Box::new(|| cell.measure());
        Cell { name: cell.name.to_owned(), measure }
    });
    let operations = operation::cells().into_iter().map(|name| {
        let of = name.clone();
        Cell { name, measure: Box::new(move || operation::measure(&of)) }
    });
    exchanges.chain(operations).collect()
}

#[test]
fn a_request_and_its_parts_take_no_more_instructions_than_they_did() {
    if std::env::var_os("EQUIPOISE_INSTRUCTIONS").is_none() {
        return;
    }
    let path = repository().join(LIST);
    let (text, tools) = (fs::read_to_string(&path).expect("the list"), tools());
    let list = listed(&text);
    let is_accepting = std::env::var_os("EQUIPOISE_ACCEPT").is_some();
    let wanted = std::env::var("EQUIPOISE_CELLS").unwrap_or_default();
    let cells = cells();
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for cell in &cells {
        let line = list.iter().find(|line| line.name == cell.name);
        if !wanted.split(',').any(|begin| cell.name.starts_with(begin)) {
            found.extend(line.map(|line| (&*cell.name, line.instructions)));
            continue;
        }
        let mut now = (cell.measure)();
        if !is_accepting && line.is_some_and(|line| line.judge(now).is_some()) {
            // A change shows both times, what timers do beside does not.
            now = line.map_or(now, |line| nearer(line.instructions, now, (cell.measure)()));
        }
        println!("{:<36} {:>8}", cell.name, shown(now));
        found.push((&cell.name, now));
        wrong.extend(line.map_or_else(|| Some(format!("{} is not listed", cell.name)), |line| line.judge(now)));
    }
    let is_gone = |line: &&Listed| !cells.iter().any(|cell| cell.name == line.name);
    wrong.extend(list.iter().filter(is_gone).map(|line| format!("there is no {}", line.name)));
    if is_accepting {
        fs::write(&path, accepted(&text, &tools, &found)).expect("the list");
        return;
    }
    let wrong = format!("{LIST} (EQUIPOISE_ACCEPT=1 rewrites it):\n  {}", wrong.join("\n  "));
    if !text.contains(&format!("{TOOLS}{tools}\n")) {
        println!("only a warning, for these are other tools than the list was made with: {wrong}");
    } else {
        assert!(wrong.ends_with(":\n  "), "{wrong}");
    }
}
