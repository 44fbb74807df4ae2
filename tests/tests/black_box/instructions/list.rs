//! The list of figures, `tests/instructions.txt`.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

pub(super) const LIST: &str = "tests/instructions.txt";

/// A line of the list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) instructions: f64,
    /// What it may move by, up and down.
    tolerance_percent: f64,
    reason: String,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let (said, reason) = line.split_once('#')?;
        let mut words = said.split_whitespace();
        let name = words.next()?.to_owned();
        let instructions = words.next()?.parse().ok()?;
        let tolerance_percent = words.next()?.trim_end_matches('%').parse().ok()?;
        Some(Self { name, instructions, tolerance_percent, reason: reason.trim().to_owned() })
    }

    fn line(&self) -> String {
        let Self { name, instructions, tolerance_percent, reason } = self;
        format!("{name:<36} {:>8} {tolerance_percent:.1}% # {reason}", shown(*instructions))
    }

    /// What is wrong with a figure, if anything.
    pub(super) fn judge(&self, now: f64) -> Option<String> {
        let before = self.instructions;
        let percent = (now / before - 1.0) * 100.0;
        let (before, now) = (shown(before), shown(now));
        let change = format!("{}: {before} instructions before, {now} now ({percent:+.1} %)", self.name);
        match percent {
            over if over > self.tolerance_percent => Some(change),
            under if under < -self.tolerance_percent => {
                Some(format!("{change}; lower it, so that it cannot come back"))
            }
            _ => None,
        }
    }
}

/// Which of two figures is nearer to what is listed.
pub(super) fn nearer(listed: f64, one: f64, other: f64) -> f64 {
    if (other - listed).abs() < (one - listed).abs() { other } else { one }
}

/// A figure as it is listed: of few instructions, tenths matter.
pub(super) fn shown(instructions: f64) -> String {
    let decimals = if instructions < 1_000.0 { 1 } else { 0 };
    format!("{instructions:.decimals$}")
}

/// What callgrind counted in all.
pub(super) fn total(counts: &str) -> Option<u64> {
    let line = counts.lines().find_map(|line| line.strip_prefix("totals: "));
    line?.split_whitespace().next()?.parse().ok()
}

pub(super) fn listed(text: &str) -> Vec<Listed> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Listed::parse(line).unwrap_or_else(|| panic!("{LIST} has a line that is none: {line}"))).collect()
}

pub(super) const TOOLS: &str = "# Counted with ";

/// The compiler, the counter and the processor, whose features choose how the C library copies: with others, figures are others.
pub(super) fn tools() -> String {
    let said = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{}, {}, {}", said("rustc"), said("valgrind"), model.map_or("another processor", |(_, model)| model))
}

/// The list with what was found; reasons and tolerances stay.
pub(super) fn accepted(before: &str, tools: &str, found: &[(&str, f64)]) -> String {
    let head = before.lines().take_while(|line| line.starts_with('#')).filter(|line| !line.starts_with(TOOLS));
    let mut text: String = head.map(|line| format!("{line}\n")).collect();
    let _ = writeln!(text, "{TOOLS}{tools}\n");
    let known = listed(before);
    for (name, now) in found {
        let new =
            || Listed { name: (*name).to_owned(), instructions: 0.0, tolerance_percent: 1.0, reason: String::new() };
        let line = known.iter().find(|line| line.name == *name).cloned().unwrap_or_else(new);
        let _ = writeln!(text, "{}", Listed { instructions: *now, ..line }.line().trim_end());
    }
    text
}

#[test]
fn a_rise_fails_and_so_does_a_fall_that_is_not_written_down() {
    let list = listed("# head\n\nh1 20000 1.0% # whole\n");
    assert_eq!(list[0].judge(20_190.0), None);
    assert_eq!(list[0].judge(19_810.0), None);
    assert_eq!(list[0].judge(20_240.0).as_deref(), Some("h1: 20000 instructions before, 20240 now (+1.2 %)"));
    let fall = list[0].judge(19_700.0).expect("it has fallen");
    assert!(fall.starts_with("h1: 20000 instructions before, 19700 now (-1.5 %); lower it"), "{fall}");
    let nearest = [(22.0, 21.0), (17.0, 16.0), (17.0, 21.0)].map(|(one, other)| nearer(20.0, one, other));
    assert_eq!(nearest, [21.0, 17.0, 21.0]);
}

#[test]
fn a_list_is_rewritten_with_its_reasons() {
    let before = format!("# head\n{TOOLS}old\n\nh1 20000 0.5% # whole\ngone 1 1.0% # was\n");
    let after = accepted(&before, "new", &[("h1", 19_000.0), ("pick", 57.26)]);
    assert!(after.starts_with(&format!("# head\n{TOOLS}new\n\n")), "{after}");
    let names: Vec<(String, f64, String)> =
        listed(&after).into_iter().map(|line| (line.name, line.instructions, line.reason)).collect();
    assert_eq!(names, [("h1".to_owned(), 19_000.0, "whole".to_owned()), ("pick".to_owned(), 57.3, String::new())]);
    assert_eq!(total("events: Ir\nsummary: 1\n1 2\ntotals: 1234\n"), Some(1_234));
}
