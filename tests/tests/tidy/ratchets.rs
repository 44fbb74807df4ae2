//! What may only get better: lists of exceptions with their present values, in `tests/ratchets.txt`.
//!
//! A new exception fails, one that has grown fails, and so does one that is no longer needed or is much smaller than it was.
//! `EQUIPOISE_ACCEPT=1` rewrites the list: lowers what has fallen, drops what is gone, and adds what is new with `?` as its
//! reason, which fails until a reason is written. It never raises a value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::OnceLock;

use super::code::{before_tests, functions, split, structs};
use super::graph::Graph;
use super::{assert_none, files, map};

const LIST: &str = "tests/ratchets.txt";

const LINES_OF_A_FILE_MAX: usize = 500;
const FIELDS_OF_A_STRUCT_MAX: usize = 16;
/// With each tuple counted as its members.
const PARAMETERS_MAX: usize = 6;

/// What an exception is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    File,
    Fields,
    Parameters,
    /// A module that lists its children, which use what it holds for them.
    Family,
    /// Modules that know each other.
    Circle,
}

impl Kind {
    const ALL: [Self; 5] = [Self::File, Self::Fields, Self::Parameters, Self::Family, Self::Circle];

    fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Fields => "fields",
            Self::Parameters => "parameters",
            Self::Family => "family",
            Self::Circle => "circle",
        }
    }

    /// The largest value that needs no exception.
    fn max(self) -> usize {
        match self {
            Self::File => LINES_OF_A_FILE_MAX,
            Self::Fields => FIELDS_OF_A_STRUCT_MAX,
            Self::Parameters => PARAMETERS_MAX,
            Self::Family | Self::Circle => 0,
        }
    }
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// A path, `path::name`, or a crate.
    pub(crate) what: String,
    /// The present value of a size.
    value: usize,
    /// The modules of a circle, or the one of a family.
    pub(crate) modules: BTreeSet<String>,
    pub(crate) reason: String,
}

impl Entry {
    fn size(kind: Kind, what: String, value: usize) -> Self {
        Self { kind, what, value, modules: BTreeSet::new(), reason: UNEXPLAINED.to_owned() }
    }

    fn circle(kind: Kind, what: &str, modules: BTreeSet<String>) -> Self {
        Self { kind, what: what.to_owned(), value: 0, modules, reason: UNEXPLAINED.to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        let (said, reason) = line.split_once(" # ")?;
        let mut words = said.split_whitespace();
        let kind = words.next().and_then(|name| Kind::ALL.into_iter().find(|kind| kind.name() == name))?;
        let what = words.next()?.to_owned();
        let rest: Vec<&str> = words.collect();
        let (value, modules) = match kind {
            Kind::Family | Kind::Circle => (0, rest.iter().map(|name| (*name).to_owned()).collect()),
            _ => (rest.first()?.parse().ok()?, BTreeSet::new()),
        };
        Some(Self { kind, what, value, modules, reason: reason.trim().to_owned() })
    }

    fn line(&self) -> String {
        let (kind, what, reason) = (self.kind.name(), &self.what, &self.reason);
        match self.kind {
            Kind::Family | Kind::Circle => {
                let modules: Vec<&str> = self.modules.iter().map(String::as_str).collect();
                format!("{kind} {what} {} # {reason}", modules.join(" "))
            }
            _ => format!("{kind} {what} {} # {reason}", self.value),
        }
    }
}

/// What `EQUIPOISE_ACCEPT` writes for a reason.
const UNEXPLAINED: &str = "?";

pub(crate) fn parse(text: &str) -> Vec<Entry> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| Entry::parse(line).unwrap_or_else(|| panic!("{LIST} has a line that is none: {line}"))).collect()
}

/// The list and what the sources hold.
pub(crate) struct Now {
    pub(crate) listed: Vec<Entry>,
    found: Vec<Entry>,
    pub(crate) graphs: BTreeMap<String, Graph>,
}

/// Reads both once; with `EQUIPOISE_ACCEPT` set, rewrites the list before.
pub(crate) fn now() -> &'static Now {
    static NOW: OnceLock<Now> = OnceLock::new();
    NOW.get_or_init(|| {
        let mut found = sizes(&files::sources());
        let graphs = map::graphs();
        let mut listed = parse(&files::read(LIST));
        found.extend(circles(&graphs, &listed));
        if is_accepting() {
            listed = accept(&listed, &found);
            listed.extend(new_families(&graphs, &listed));
            // A family that has left the list, or is new on it, changes which circles there are.
            listed.retain(|entry| entry.kind != Kind::Circle || entry.reason != UNEXPLAINED);
            found.retain(|entry| !matches!(entry.kind, Kind::Family | Kind::Circle));
            found.extend(circles(&graphs, &listed));
            listed = accept(&listed, &found);
            files::write(LIST, &print(&files::read(LIST), &listed));
        }
        Now { listed, found, graphs }
    })
}

pub(crate) fn is_accepting() -> bool {
    std::env::var_os("EQUIPOISE_ACCEPT").is_some()
}

/// All sizes that need an exception.
fn sizes(sources: &[files::File]) -> Vec<Entry> {
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| !file.is_test()) {
        let code = split(&file.text).code;
        let code = before_tests(&code);
        found.push(Entry::size(Kind::File, file.path.clone(), code.lines().count()));
        let named = |name: &str| format!("{}::{name}", file.path);
        found.extend(structs(code).iter().map(|one| Entry::size(Kind::Fields, named(&one.name), one.fields)));
        found.extend(functions(code).iter().map(|one| Entry::size(Kind::Parameters, named(&one.name), one.members)));
    }
    found.retain(|entry| entry.value > entry.kind.max());
    found
}

/// The families that make circles, and the circles that are left without the families that are listed.
fn circles(graphs: &BTreeMap<String, Graph>, listed: &[Entry]) -> Vec<Entry> {
    let mut found = Vec::new();
    for (name, graph) in graphs {
        let families: BTreeSet<String> =
            of(listed, Kind::Family, name).flat_map(|entry| entry.modules.clone()).collect();
        let needed = graph.families().into_iter().filter(|parent| families.contains(parent));
        found.extend(needed.map(|parent| Entry::circle(Kind::Family, name, BTreeSet::from([parent]))));
        let rest = graph.without_families(&families);
        found.extend(rest.circles().into_iter().map(|modules| Entry::circle(Kind::Circle, name, modules)));
    }
    found
}

/// The families of crates in which a circle has no reason yet: most circles are of a parent and its children.
fn new_families(graphs: &BTreeMap<String, Graph>, listed: &[Entry]) -> Vec<Entry> {
    let mut new = Vec::new();
    for (name, graph) in graphs {
        if of(listed, Kind::Circle, name).any(|entry| entry.reason == UNEXPLAINED) {
            let families =
                graph.families().into_iter().map(|parent| Entry::circle(Kind::Family, name, BTreeSet::from([parent])));
            new.extend(families.filter(|family| !listed.iter().any(|listed| covers(listed, family))));
        }
    }
    new
}

pub(crate) fn of<'a>(listed: &'a [Entry], kind: Kind, what: &'a str) -> impl Iterator<Item = &'a Entry> {
    listed.iter().filter(move |entry| entry.kind == kind && entry.what == what)
}

/// Whether an exception covers what was found, its value aside.
fn covers(listed: &Entry, found: &Entry) -> bool {
    listed.kind == found.kind && listed.what == found.what && found.modules.is_subset(&listed.modules)
}

/// A value that has fallen by a twentieth is lowered; less than that would make each line that goes a change of the list.
fn has_fallen(from: usize, to: usize) -> bool {
    to < from - from / 20
}

/// What is wrong between the list and the sources, for one kind.
fn findings(kind: Kind, listed: &[Entry], found: &[Entry]) -> Vec<String> {
    let mut wrong = Vec::new();
    for entry in found.iter().filter(|entry| entry.kind == kind) {
        match listed.iter().find(|listed| covers(listed, entry)) {
            None if kind == Kind::Circle => wrong.push(format!("a circle is new or larger: {}", entry.line())),
            None => {
                wrong.push(format!("{} is {}, at most {} without an exception", entry.what, entry.value, kind.max()))
            }
            Some(listed) if entry.value > listed.value => {
                wrong.push(format!("{} has grown from {} to {}", entry.what, listed.value, entry.value));
            }
            Some(listed) if has_fallen(listed.value, entry.value) => {
                wrong.push(format!("{} is {} now: lower {}", entry.what, entry.value, listed.value));
            }
            Some(_) => {}
        }
    }
    for entry in listed.iter().filter(|entry| entry.kind == kind) {
        if entry.reason.len() < 8 {
            wrong.push(format!("give a reason: {}", entry.line()));
        }
        let covered: Vec<&Entry> = found.iter().filter(|found| covers(entry, found)).collect();
        let left: BTreeSet<String> = covered.iter().flat_map(|found| found.modules.clone()).collect();
        let gone: Vec<&str> = entry.modules.difference(&left).map(String::as_str).collect();
        if covered.is_empty() {
            wrong.push(format!("no longer needed: {}", entry.line()));
        } else if !gone.is_empty() {
            wrong.push(format!("no longer in the circle of {}: {}", entry.what, gone.join(" ")));
        }
    }
    wrong
}

/// The list as it may be: see the head of this file.
fn accept(listed: &[Entry], found: &[Entry]) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::new();
    for entry in listed {
        let covered: Vec<&Entry> = found.iter().filter(|found| covers(entry, found)).collect();
        if covered.is_empty() {
            continue;
        }
        let value = covered.iter().map(|found| found.value).max().unwrap_or_default().min(entry.value);
        let modules = covered.iter().flat_map(|found| found.modules.clone()).collect();
        kept.push(Entry { value, modules, ..entry.clone() });
    }
    let new = found.iter().filter(|found| !kept.iter().any(|kept| covers(kept, found)));
    kept.extend(new.cloned().collect::<Vec<_>>());
    kept.sort_by(|a, b| (a.kind, &a.what, &a.modules).cmp(&(b.kind, &b.what, &b.modules)));
    kept
}

/// The text of a list below the comment that it begins with.
fn print(before: &str, listed: &[Entry]) -> String {
    let mut text: String =
        before.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for kind in Kind::ALL {
        text.push('\n');
        for entry in listed.iter().filter(|entry| entry.kind == kind) {
            let _ = writeln!(text, "{}", entry.line());
        }
    }
    text
}

fn assert_holds(kind: Kind, rule: &str) {
    let now = now();
    let rule = format!("{rule} (EQUIPOISE_ACCEPT=1 rewrites {LIST}; it raises nothing)");
    assert_none(&rule, &findings(kind, &now.listed, &now.found));
}

#[test]
fn no_file_is_longer_than_500_lines_beside_those_listed() {
    assert_holds(Kind::File, "a file stops at 500 lines, tests apart");
}

#[test]
fn no_struct_has_more_than_16_fields_beside_those_listed() {
    assert_holds(Kind::Fields, "a struct stops at 16 fields");
}

#[test]
fn no_function_takes_more_than_6_values_beside_those_listed() {
    assert_holds(Kind::Parameters, "a function stops at 6 parameters, members of tuples counted");
}

#[test]
fn only_listed_families_make_circles() {
    assert_holds(Kind::Family, "a family on the list makes a circle");
}

#[test]
fn modules_make_no_circles_beside_those_listed() {
    let all: usize = now().graphs.values().map(|graph| graph.edges().count()).sum();
    assert!(all > 500, "only {all} uses between modules were found: the scanner has lost its way");
    assert_holds(Kind::Circle, "modules that know each other are one module");
}

#[test]
fn a_list_is_held_from_above_and_from_below() {
    let listed = parse(
        "# a comment\nfile a.rs 600 # debt: to be split\nfile b.rs 600 # debt: to be split\nfile c.rs 600 # debt: to be split\nfile e.rs 600 # ?\n",
    );
    let sized = |what: &str, value| Entry::size(Kind::File, what.to_owned(), value);
    let found = [sized("a.rs", 601), sized("b.rs", 560), sized("d.rs", 501), sized("e.rs", 571)];
    assert_eq!(
        findings(Kind::File, &listed, &found),
        [
            "a.rs has grown from 600 to 601",
            "b.rs is 560 now: lower 600",
            "d.rs is 501, at most 500 without an exception",
            "no longer needed: file c.rs 600 # debt: to be split",
            "give a reason: file e.rs 600 # ?",
        ]
    );
    let accepted: Vec<String> = accept(&listed, &found).iter().map(Entry::line).collect();
    assert_eq!(
        accepted,
        [
            "file a.rs 600 # debt: to be split",
            "file b.rs 560 # debt: to be split",
            "file d.rs 501 # ?",
            "file e.rs 571 # ?"
        ]
    );
}

#[test]
fn a_circle_may_get_smaller_and_must_not_grow() {
    let listed = parse("circle proxy a b c d # they are one noun\ncircle proxy x y # gone since\n");
    let circle = |modules: &[&str]| {
        Entry::circle(Kind::Circle, "proxy", modules.iter().map(|name| (*name).to_owned()).collect())
    };
    let smaller = [circle(&["a", "b"])];
    assert_eq!(
        findings(Kind::Circle, &listed, &smaller),
        ["no longer in the circle of proxy: c d", "no longer needed: circle proxy x y # gone since"]
    );
    let larger = [circle(&["a", "b", "c", "d", "e"]), circle(&["x", "y"])];
    assert!(
        findings(Kind::Circle, &listed, &larger)[0].starts_with("a circle is new or larger: circle proxy a b c d e")
    );
    assert!(findings(Kind::Circle, &listed[..1], &[circle(&["a", "b", "c", "d"])]).is_empty());
    let accepted: Vec<String> = accept(&listed, &smaller).iter().map(Entry::line).collect();
    assert_eq!(accepted, ["circle proxy a b # they are one noun"]);
}

#[test]
fn sizes_of_made_up_sources_are_found() {
    let text = format!(
        "struct S {{ {} }}\nfn f(a: (u8, u8, u8), b: &(u8, u8), c: u8, d: u8) {{}}\n{}#[cfg(test)]\nmod tests {{\n{}}}\n",
        "a: u8,".repeat(17),
        "\n".repeat(499),
        "\n".repeat(100)
    );
    let file = |path: &str| files::File { path: path.to_owned(), text: text.clone() };
    let found: Vec<String> =
        sizes(&[file("crates/x/src/a.rs"), file("crates/x/src/tests.rs")]).iter().map(Entry::line).collect();
    assert_eq!(
        found,
        [
            "file crates/x/src/a.rs 501 # ?",
            "fields crates/x/src/a.rs::S 17 # ?",
            "parameters crates/x/src/a.rs::f 7 # ?"
        ]
    );
}
