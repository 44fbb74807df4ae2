//! What is written beside the code: decisions, examples, links, manifests.

use std::collections::BTreeSet;
use std::path::Path;

use equipoise_tests::repository;

use super::{assert_none, files};

#[test]
fn decisions_are_numbered_without_gap_and_say_what_decisions_must() {
    let names = files::names("docs/adr");
    let numbered: Vec<&String> = names.iter().filter(|name| name.as_bytes()[0].is_ascii_digit()).collect();
    let mut found = Vec::new();
    let index = files::read("docs/adr/README.md");
    for (place, name) in numbered.iter().enumerate() {
        let number = format!("{:04}", place + 1);
        if !name.starts_with(&format!("{number}-")) {
            found.push(format!("{name} should be {number}"));
        }
        let text = files::read(&format!("docs/adr/{name}"));
        if !text.starts_with(&format!("# {number}")) {
            found.push(format!("{name} begins with another number"));
        }
        for part in ["## Context", "## Decision", "## Consequences", "## What would change our mind"] {
            if !text.contains(part) {
                found.push(format!("{name} has no `{part}`"));
            }
        }
        if !index.contains(&format!("({name})")) {
            found.push(format!("{name} is not in the list"));
        }
    }
    assert!(!numbered.is_empty());
    assert_none("docs/adr", &found);
}

#[test]
fn every_example_is_run_by_a_test() {
    let tests: String = files::below(&["tests", "crates"], &[".rs"]).into_iter().map(|file| file.text).collect();
    let runs = |path: &&str| path.ends_with("/main.yaml") || !path.contains('/');
    let examples = files::below(&["examples"], &[".yaml"]);
    let missing: Vec<String> = examples
        .iter()
        .map(|file| file.path.trim_start_matches("examples/"))
        .filter(runs)
        .filter(|path| !tests.contains(&format!("\"{path}\"")))
        .map(str::to_owned)
        .collect();
    assert_none("name it in `EXAMPLES` of tests/tests/black_box/command_line.rs", &missing);
}

#[test]
fn every_fuzz_target_is_built_and_run() {
    let manifest = files::read("fuzz/Cargo.toml");
    let mut found = Vec::new();
    if !files::read("fuzz/run").contains("in fuzz_targets/*.rs") {
        found.push("fuzz/run does not run all of fuzz_targets".to_owned());
    }
    for name in files::names("fuzz/fuzz_targets") {
        let target = name.trim_end_matches(".rs");
        if !manifest.contains(&format!("name = \"{target}\"")) {
            found.push(format!("{target} is not in fuzz/Cargo.toml"));
        }
        if !repository().join("fuzz/seeds").join(target).is_dir() {
            found.push(format!("{target} has no seeds"));
        }
    }
    assert_none("fuzz", &found);
}

/// Links to files, as Markdown writes them.
fn links(text: &str) -> BTreeSet<&str> {
    let ends = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    let targets = ends.filter_map(|rest| rest.split(')').next());
    let local =
        |target: &&str| !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:");
    targets.filter(local).map(|target| target.split('#').next().unwrap_or_default()).filter(|t| !t.is_empty()).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut found = Vec::new();
    for file in files::below(&["."], &[".md"]) {
        let path = file.path.trim_start_matches("./");
        let folder = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
        for link in links(&file.text) {
            if !repository().join(folder).join(link).exists() {
                found.push(format!("{path}: {link}"));
            }
        }
    }
    assert_none("dead links", &found);
}

/// The anchors of a page's headings, as forges make them: lower case, spaces to hyphens, other punctuation dropped; a second heading of the
/// same text gets `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut is_code) = (BTreeSet::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let slug: String =
            heading.trim().to_lowercase().chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-");
        let number = (1..).find(|number| !found.contains(&format!("{slug}-{number}"))).unwrap_or_default();
        let slug = if found.contains(&slug) { format!("{slug}-{number}") } else { slug };
        found.insert(slug);
    }
    found
}

#[test]
fn anchors_in_links_between_pages_are_headings() {
    let mut found = Vec::new();
    for file in files::below(&["."], &[".md"]) {
        let path = file.path.trim_start_matches("./");
        let folder = Path::new(path).parent().unwrap_or_else(|| Path::new(""));
        for target in file.text.match_indices("](").filter_map(|(at, _)| file.text[at + 2..].split(')').next()) {
            let Some((page, anchor)) = target.split_once('#').filter(|_| !target.contains("://")) else { continue };
            let text = match page {
                "" => file.text.clone(),
                _ if !page.ends_with(".md") => continue,
                _ => std::fs::read_to_string(repository().join(folder).join(page)).unwrap_or_default(),
            };
            if !anchors(&text).contains(anchor) {
                found.push(format!("{path}: {target}"));
            }
        }
    }
    assert_none("dead anchors", &found);
}

/// Places that exist on one machine only. Written in two parts, so that this file does not hold them.
const MACHINE: &[(&str, &str)] =
    &[("/wo", "rk/"), ("/ro", "ot/"), ("/fa", "rm/"), ("/ho", "me/"), ("/tmp/bash", "_jobs")];

#[test]
fn no_file_names_a_place_of_one_machine() {
    let mut found = Vec::new();
    let endings = [".rs", ".md", ".toml", ".yaml", ".yml", ".html", ".sh", ".json", ".lock", "run", "test"];
    for file in files::below(&["."], &endings) {
        for (first, second) in MACHINE {
            let text = format!("{first}{second}");
            let is_path = |at: usize| {
                !file.text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '}' | '-' | '_'))
            };
            let hits = file.text.match_indices(&text).filter(|(at, _)| is_path(*at));
            found.extend(hits.map(|(at, _)| format!("{}: {text}", file.place(at))));
        }
    }
    assert_none("a path of one machine", &found);
}

#[test]
fn every_dependency_comes_from_the_public_registry_or_from_here() {
    let mut found = Vec::new();
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        for line in files::read(lock).lines().filter(|line| line.starts_with("source = ")) {
            if line != "source = \"registry+https://github.com/rust-lang/crates.io-index\"" {
                found.push(format!("{lock}: {line}"));
            }
        }
    }
    assert_none("another source of crates", &found);
}

/// Faults that no black-box test provokes, and why.
const NOT_PROVOKED: &[(&str, &str)] = &[];

/// Flag and label of every row of the table of faults.
fn faults(table: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let rest = line.trim().strip_suffix("\";")?;
        let mut quoted = rest.split('"');
        Some((quoted.nth(1)?.to_owned(), quoted.nth(1)?.to_owned()))
    };
    table.lines().filter(|line| line.contains(" = ")).filter_map(row).collect()
}

#[test]
fn every_fault_is_provoked_by_a_test() {
    let tests: String = files::below(&["tests/tests/black_box"], &[".rs"]).into_iter().map(|file| file.text).collect();
    let all = faults(&files::read("crates/model/src/fault.rs"));
    assert!(all.len() > 30, "{all:?}");
    let is_seen = |flag: &str, label: &str| {
        tests.contains(&format!("\"{flag}\"")) || tests.contains(&format!("fault=\\\"{label}\\\""))
    };
    let missing: Vec<String> = all
        .iter()
        .filter(|(flag, label)| !is_seen(flag, label) && !NOT_PROVOKED.iter().any(|(known, _)| known == flag))
        .map(|(flag, label)| format!("{flag} {label}"))
        .collect();
    assert_none("provoke it in tests/tests/black_box", &missing);
}

#[test]
fn every_flag_of_a_fault_is_explained_where_people_look_for_trouble() {
    let page = files::read("docs/guides/troubleshoot.md");
    let all = faults(&files::read("crates/model/src/fault.rs"));
    let missing: Vec<String> =
        all.into_iter().map(|(flag, _)| flag).filter(|flag| !page.contains(&format!("`{flag}`"))).collect();
    assert_none("docs/guides/troubleshoot.md has no cause and fix for", &missing);
}
