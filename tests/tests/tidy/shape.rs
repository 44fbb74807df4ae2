//! Sizes of files and functions, how crates begin, and what no source may hold.

use super::code::{before_tests, functions, split};
use super::{assert_none, files};

const LINES_OF_A_FILE_MAX: usize = 800;
const LINES_OF_A_FUNCTION_MAX: usize = 70;
const PARAMETERS_MAX: usize = 5;

/// Path or `path::function`, and why it may be larger.
const ALLOWED: &[(&str, &str)] = &[];

fn is_allowed(what: &str) -> bool {
    ALLOWED.iter().any(|(allowed, _)| *allowed == what)
}

#[test]
fn no_file_is_longer_than_800_lines() {
    let long = |file: &files::File| (file.text.lines().count() > LINES_OF_A_FILE_MAX).then(|| file.path.clone());
    let found: Vec<String> = files::sources()
        .iter()
        .filter(|file| !file.is_test())
        .filter_map(long)
        .filter(|path| !is_allowed(path))
        .collect();
    assert_none("a file stops at 800 lines", &found);
}

#[test]
fn no_function_is_longer_than_70_lines_or_takes_more_than_5_parameters() {
    let mut found = Vec::new();
    let mut count = 0;
    for file in files::sources() {
        for function in functions(&split(&file.text).code) {
            count += 1;
            let what = format!("{}::{}", file.path, function.name);
            let (lines, parameters) = (function.lines, function.parameters);
            if (lines > LINES_OF_A_FUNCTION_MAX || parameters > PARAMETERS_MAX) && !is_allowed(&what) {
                let place = file.place(function.at);
                found.push(format!("{place} `{}`: {lines} lines, {parameters} parameters", function.name));
            }
        }
    }
    assert!(count > 500, "only {count} functions were found: the scanner has lost its way");
    assert_none("a function stops at 70 lines and 5 parameters", &found);
}

#[test]
fn every_exception_is_still_needed() {
    for (what, reason) in ALLOWED {
        assert!(reason.len() > 10, "{what} needs a reason");
        let path = what.split("::").next().unwrap_or_default();
        let text = files::read(path);
        let long = match what.split_once("::") {
            None => text.lines().count() > LINES_OF_A_FILE_MAX,
            Some((_, name)) => functions(&split(&text).code).iter().any(|found| {
                found.name == name && (found.lines > LINES_OF_A_FUNCTION_MAX || found.parameters > PARAMETERS_MAX)
            }),
        };
        assert!(long, "{what} is within the bounds: take it off the list");
    }
}

#[test]
fn every_crate_begins_by_saying_what_it_is() {
    let roots: Vec<files::File> = files::sources()
        .into_iter()
        .filter(|file| file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs"))
        .collect();
    assert!(roots.len() >= 10, "{} crates", roots.len());
    let mut found = Vec::new();
    for file in &roots {
        let said: Vec<&str> = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        if said.is_empty() {
            found.push(file.path.clone());
        } else if file.path.starts_with("crates/") && !said.join(" ").to_lowercase().contains("start reading") {
            found.push(format!("{} does not say where to start reading", file.path));
        }
    }
    assert_none("every crate begins with `//!`", &found);
}

/// Texts that no source may hold. Written in two parts, so that this file does not hold them.
const UNFINISHED: &[(&str, &str)] =
    &[("todo", "!("), ("unimplemented", "!("), ("dbg", "!("), ("#[ign", "ore"), ("FIX", "ME"), ("XX", "X:")];

#[test]
fn nothing_is_left_unfinished_or_ignored() {
    let mut found = Vec::new();
    for file in files::sources() {
        for (first, second) in UNFINISHED {
            let text = format!("{first}{second}");
            found.extend(file.text.match_indices(&text).map(|(at, _)| format!("{}: {text}", file.place(at))));
        }
    }
    assert_none("finish it", &found);
}

#[test]
fn what_is_unsafe_says_why_it_is_safe() {
    let mut found = Vec::new();
    for file in files::sources() {
        let code = split(&file.text).code;
        let lines: Vec<&str> = file.text.lines().collect();
        for (at, _) in super::code::words(&code).filter(|(_, word)| *word == "unsafe") {
            let line = files::line_of(&file.text, at) - 1;
            let above = &lines[line.saturating_sub(5)..=line];
            if !above.iter().any(|text| text.contains("SAFETY:")) {
                found.push(file.place(at));
            }
        }
    }
    assert_none("each `unsafe` has a `// SAFETY:` above it", &found);
}

/// What decides does no I/O, reads no clock and draws no random number (invariant 1).
const WORLD: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::env",
    "std::io::std",
    "thread::sleep",
    "thread::spawn",
    "tokio",
    "getrandom",
    "RandomState",
    "println!",
    "eprintln!",
];

#[test]
fn what_decides_touches_nothing_of_the_world() {
    let mut found = Vec::new();
    for file in files::below(&["crates/wire/src", "crates/plan/src", "crates/model/src"], &[".rs"]) {
        if file.is_test() {
            continue;
        }
        let code = split(&file.text).code;
        for word in WORLD {
            found.extend(before_tests(&code).match_indices(word).map(|(at, _)| format!("{}: {word}", file.place(at))));
        }
    }
    assert_none("`model`, `wire` and `plan` are pure", &found);
}
