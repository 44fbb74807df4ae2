//! The modules of each crate, drawn into ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::code::split;
use super::files;
use super::graph::{Graph, ROOT};
use super::imports::Modules;
use super::ratchets::{self, Entry, Kind};

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- Drawn by tidy: EQUIPOISE_ACCEPT=1 cargo test -p equipoise-tests --test tidy -->\n";
const END: &str = "<!-- End of what tidy draws -->\n";
const COLUMNS: usize = 118;
/// A longer circle is told by its number of modules; the list has their names.
const MODULES_SHOWN_MAX: usize = 8;

/// The graph of each crate.
pub(crate) fn graphs() -> BTreeMap<String, Graph> {
    let mut graphs = BTreeMap::new();
    for name in files::names("crates") {
        let below = format!("crates/{name}/src/");
        let sources: Vec<(String, String)> = files::below(&[&below], &[".rs"])
            .into_iter()
            .filter(|file| !file.is_test())
            .map(|file| (file.path[below.len()..].to_owned(), split(&file.text).code))
            .collect();
        let modules = Modules::new(sources.iter().map(|(path, code)| (path.as_str(), code.as_str())));
        graphs.insert(name, modules.graph());
    }
    graphs
}

/// The layers of each crate from the highest down, then the circles that are listed.
fn draw(graphs: &BTreeMap<String, Graph>, listed: &[Entry]) -> String {
    let mut text = String::from("\n```text\n");
    for (name, graph) in graphs {
        let _ = writeln!(text, "{name}");
        for layer in graph.folded().layers().iter().rev() {
            draw_layer(layer, &mut text);
        }
    }
    text.push_str("```\n\n| Crate | Modules that know each other | Why, or what would part them |\n|---|---|---|\n");
    let circles = listed.iter().filter(|entry| entry.kind == Kind::Circle);
    let rows = circles.map(|entry| (&entry.what, told(entry), &entry.reason));
    for (name, modules, reason) in families(listed).into_iter().chain(rows) {
        let _ = writeln!(text, "| {name} | {modules} | {reason} |");
    }
    text.push('\n');
    text
}

/// One layer: names in brackets go in circles.
fn draw_layer(layer: &[BTreeSet<String>], text: &mut String) {
    let mut line = String::from(" ");
    for group in layer {
        let names = group.iter().cloned().collect::<Vec<_>>().join(" ");
        let shown = if group.len() > 1 { format!("[{names}]") } else { names };
        for word in shown.split(' ') {
            if line.len() + 1 + word.len() > COLUMNS {
                let _ = writeln!(text, "{line}");
                line = String::from("   ");
            }
            let _ = write!(line, " {word}");
        }
    }
    let _ = writeln!(text, "{line}");
}

/// The families of a crate that have the same reason are one row.
fn families(listed: &[Entry]) -> Vec<(&String, String, &String)> {
    let mut rows: Vec<(&String, String, &String)> = Vec::new();
    for entry in listed.iter().filter(|entry| entry.kind == Kind::Family) {
        let parents =
            entry.modules.iter().map(|name| if name == ROOT { "the root".to_owned() } else { format!("`{name}`") });
        let parents = parents.collect::<Vec<_>>().join(" ");
        match rows.iter_mut().find(|(name, _, reason)| *name == &entry.what && *reason == &entry.reason) {
            Some((_, told, _)) => *told = format!("{told} {parents}"),
            None => rows.push((&entry.what, parents, &entry.reason)),
        }
    }
    rows.into_iter()
        .map(|(name, parents, reason)| (name, format!("{parents}: each with those below it"), reason))
        .collect()
}

fn told(entry: &Entry) -> String {
    let names: Vec<String> = entry.modules.iter().map(|name| format!("`{name}`")).collect();
    if names.len() <= MODULES_SHOWN_MAX {
        return names.join(" ");
    }
    let mut tops: Vec<&str> = entry.modules.iter().filter_map(|name| name.split("::").next()).collect();
    tops.dedup();
    let tops: Vec<String> = tops.iter().map(|name| format!("`{name}`")).collect();
    format!("{} modules in {}", names.len(), tops.join(" "))
}

/// The page with another drawing between its marks.
fn replaced(page: &str, drawing: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{drawing}{END}{after}"))
}

#[test]
fn the_modules_are_drawn_as_they_are() {
    let now = ratchets::now();
    let page = files::read(PAGE);
    let fresh = replaced(&page, &draw(&now.graphs, &now.listed)).expect("the page has both marks");
    if ratchets::is_accepting() {
        files::write(PAGE, &fresh);
    } else {
        assert!(page == fresh, "{PAGE} is stale: EQUIPOISE_ACCEPT=1 cargo test -p equipoise-tests --test tidy");
    }
}

#[test]
fn a_drawing_shows_layers_and_circles() {
    let mut graph = Graph::default();
    for (from, to) in [("lib", "a"), ("a", "b"), ("b", "c::x"), ("c", "b"), ("d", "a")] {
        graph.join(from, to);
    }
    let graphs = BTreeMap::from([("proxy".to_owned(), graph)]);
    let listed = ratchets::parse("family proxy a # a list\nfamily proxy lib # a list\ncircle proxy b c # one noun\n");
    let drawn = draw(&graphs, &listed);
    assert!(drawn.starts_with("\n```text\nproxy\n  d\n  a\n  [b c]\n```\n"), "{drawn}");
    assert!(
        drawn.ends_with(
            "| proxy | `a` the root: each with those below it | a list |\n| proxy | `b` `c` | one noun |\n\n"
        )
    );
    let page = format!("before\n{BEGIN}old\n{END}after\n");
    let fresh = replaced(&page, "new\n").expect("both marks");
    assert_eq!(fresh, format!("before\n{BEGIN}new\n{END}after\n"));
    assert_eq!(replaced(&fresh, "new\n").as_ref(), Some(&fresh));
    assert_eq!(replaced("no marks", "new\n"), None);
}
