//! The modules of a crate as its sources name them: by `use`, and by paths in code.
//!
//! A name is followed through `use` and `pub use` to the module that defines it, so that a list of re-exports is no use of
//! what it lists. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{closing, parts, words};
use super::graph::{Graph, ROOT};

/// So many re-exports may lie between a name and what it means.
const HOPS_MAX: usize = 16;

/// One name that a module brings in.
#[derive(Debug)]
struct Use {
    path: Vec<String>,
    /// `*` for all of them.
    name: String,
    is_public: bool,
}

/// What one file says of modules.
#[derive(Debug, Default)]
struct Module {
    uses: Vec<Use>,
    /// What is defined here.
    items: BTreeSet<String>,
    /// Paths in code, `use` apart.
    paths: BTreeSet<Vec<String>>,
    /// All words in code, `use` apart.
    words: BTreeSet<String>,
    /// Children that are there for tests alone.
    tests: BTreeSet<String>,
}

/// A crate by the paths of its modules.
#[derive(Debug, Default)]
pub(crate) struct Modules(BTreeMap<Vec<String>, Module>);

/// What a path leads to.
enum Target {
    Module(Vec<String>),
    ItemOf(Vec<String>),
}

impl Modules {
    /// Takes files by their paths below `src` with their code alone.
    pub(crate) fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules: BTreeMap<_, _> =
            files.into_iter().map(|(path, code)| (module_path(path), Module::parse(code))).collect();
        let tests: Vec<Vec<String>> =
            modules.iter().flat_map(|(path, module)| module.tests.iter().map(|name| below(path, name))).collect();
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        Self(modules)
    }

    pub(crate) fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for (path, module) in &self.0 {
            graph.add(&shown(path));
            for used in self.used_by(path, module) {
                graph.join(&shown(path), &shown(&used));
            }
        }
        graph
    }

    fn used_by(&self, at: &[String], module: &Module) -> Vec<Vec<String>> {
        let mut used = Vec::new();
        for one in module.uses.iter().filter(|one| !one.is_public || module.words.contains(&one.name)) {
            match self.resolve(at, &one.path, HOPS_MAX) {
                // What is used of it, its paths in code say.
                Some(Target::Module(_)) if module.paths.iter().any(|path| path[0] == one.name) => {}
                Some(Target::Module(found) | Target::ItemOf(found)) => used.push(found),
                None => {}
            }
        }
        for path in &module.paths {
            match self.resolve(at, path, HOPS_MAX) {
                Some(Target::Module(found) | Target::ItemOf(found)) => used.push(found),
                None => {}
            }
        }
        used
    }

    /// Follows a path from a module; `None` if it leads out of the crate.
    fn resolve(&self, from: &[String], path: &[String], hops: usize) -> Option<Target> {
        let (mut at, mut rest) = (from.to_vec(), path);
        let mut is_first = true;
        while let Some((name, after)) = rest.split_first() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => match self.named(&at, name, hops)? {
                    Some(Target::Module(found)) => at = found,
                    Some(item) => return Some(item),
                    None if is_first => return None,
                    None => return Some(Target::ItemOf(at)),
                },
            }
            (rest, is_first) = (after, false);
        }
        Some(Target::Module(at))
    }

    /// What a name means in a module: `Some(None)` if the module does not say, `None` if it is of another crate.
    fn named(&self, at: &[String], name: &str, hops: usize) -> Option<Option<Target>> {
        let hops = hops.checked_sub(1)?;
        let child = below(at, name);
        if self.0.contains_key(&child) {
            return Some(Some(Target::Module(child)));
        }
        let Some(module) = self.0.get(at) else { return Some(None) };
        if module.items.contains(name) {
            return Some(Some(Target::ItemOf(at.to_vec())));
        }
        if let Some(one) = module.uses.iter().find(|one| one.name == name) {
            // `use tokio;` or `use model::x as model`: it must not be looked up in itself.
            let is_itself = one.path.first().is_some_and(|first| first == name);
            return if is_itself { None } else { self.resolve(at, &one.path, hops).map(Some) };
        }
        for glob in module.uses.iter().filter(|one| one.name == "*") {
            let is_named = glob.path.first().is_some_and(|first| first == name);
            if !is_named
                && let Some(Target::Module(found)) = self.resolve(at, &glob.path, hops)
                && let Some(Some(target)) = self.named(&found, name, hops)
            {
                return Some(Some(target));
            }
        }
        Some(None)
    }
}

fn below(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain([name.to_owned()]).collect()
}

/// `upstream/mod.rs` and `upstream.rs` are `upstream`; `lib.rs` and `main.rs` are the root.
fn module_path(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = path.len() == 1 && matches!(path[0].as_str(), "lib" | "main");
    if is_root || path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

fn shown(path: &[String]) -> String {
    if path.is_empty() { ROOT.to_owned() } else { path.join("::") }
}

impl Module {
    fn parse(code: &str) -> Self {
        let mut module = Self::default();
        let mut code = module.blank_tests(code);
        module.take_uses(&mut code);
        let code = String::from_utf8(code).expect("blanks and what was there");
        let mut before = "";
        let mut end = 0;
        let mut path: Vec<String> = Vec::new();
        for (at, word) in words(&code) {
            module.words.insert(word.to_owned());
            let defines = matches!(
                before,
                "struct" | "enum" | "fn" | "trait" | "type" | "const" | "static" | "macro_rules" | "union" | "mod"
            );
            if defines {
                module.items.insert(word.to_owned());
            }
            match &code[end..at] {
                "::" if end > 0 => path.push(word.to_owned()),
                gap => {
                    module.paths.extend(Some(std::mem::take(&mut path)).filter(|path| path.len() > 1));
                    // Behind a dot stands a method or a field, behind `<…>::` what a trait names.
                    if !gap.ends_with(['.']) && !gap.ends_with("::") && !defines {
                        path.push(word.to_owned());
                    }
                }
            }
            (before, end) = (word, at + word.len());
        }
        module.paths.extend(Some(path).filter(|path| path.len() > 1));
        module
    }

    /// Blanks what is compiled for tests alone, and notes modules among it.
    fn blank_tests(&mut self, code: &str) -> Vec<u8> {
        let mut blanked = code.as_bytes().to_vec();
        for mark in ["#[cfg(test)]", "#[cfg(all(test"] {
            for (at, _) in code.match_indices(mark) {
                let end = item_end(code, at);
                let mut said = words(&code[at..end]).map(|(_, word)| word).skip_while(|word| *word != "mod");
                if code[at..end].ends_with(';') && said.next().is_some() {
                    self.tests.extend(said.next().map(str::to_owned));
                }
                blanked[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
            }
        }
        blanked
    }

    /// Takes all `use` out of the code.
    fn take_uses(&mut self, code: &mut [u8]) {
        let text = String::from_utf8(code.to_vec()).expect("blanks and what was there");
        for (at, _) in words(&text).filter(|(_, word)| *word == "use") {
            let end = text[at..].find(';').map_or(text.len(), |length| at + length);
            let before = text[..at].trim_end();
            let is_statement =
                before.is_empty() || before.ends_with([';', '}', '{', ']', ')']) || before.ends_with("pub");
            // `impl Trait + use<'a>` is none.
            if is_statement && text.as_bytes().get(at + 3) == Some(&b' ') {
                let is_public = before.ends_with("pub") || before.ends_with(')') && is_restricted(before);
                flatten(&[], &text[at + 4..end], is_public, &mut self.uses);
                code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
            }
        }
    }
}

/// Whether a text ends with `pub(…)`.
fn is_restricted(before: &str) -> bool {
    before.rfind('(').is_some_and(|open| before[..open].ends_with("pub"))
}

/// The end of the item that an attribute at `at` stands before.
fn item_end(code: &str, at: usize) -> usize {
    let bytes = code.as_bytes();
    let mut place = at;
    while bytes.get(place) == Some(&b'#') {
        place = closing(bytes, place + 1);
        place += code[place..].len() - code[place..].trim_start().len();
    }
    let first = words(&code[place..]).next().map_or("", |(_, word)| word);
    let is_item = matches!(
        first,
        "pub"
            | "fn"
            | "mod"
            | "use"
            | "impl"
            | "struct"
            | "enum"
            | "trait"
            | "const"
            | "static"
            | "type"
            | "async"
            | "unsafe"
            | "extern"
    );
    while place < bytes.len() {
        match bytes[place] {
            b'(' | b'[' => place = closing(bytes, place),
            b'{' => return closing(bytes, place),
            b';' => return place + 1,
            b',' if !is_item => return place + 1,
            b'}' => return place,
            _ => place += 1,
        }
    }
    place
}

/// The names that a tree of `use` brings in.
fn flatten(prefix: &[String], tree: &str, is_public: bool, uses: &mut Vec<Use>) {
    let tree = tree.trim();
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let inner = tree.find('{').map(|open| (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]));
    let segments = |text: &str| -> Vec<String> {
        let segments = text.split("::").map(str::trim).filter(|segment| !segment.is_empty());
        prefix.iter().cloned().chain(segments.map(str::to_owned)).collect()
    };
    if let Some((before, inside)) = inner {
        let prefix = segments(before);
        parts(inside).into_iter().for_each(|part| flatten(&prefix, part, is_public, uses));
        return;
    }
    let mut path = segments(path);
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let last = path.last().cloned().unwrap_or_default();
    if last == "*" {
        path.pop();
    }
    uses.push(Use { path, name: name.map_or(last, str::to_owned), is_public });
}

#[cfg(test)]
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let graph = Modules::new(files.iter().copied()).graph();
    graph.edges().map(|(from, to)| format!("{from} > {to}")).collect()
}

#[test]
fn names_are_followed_to_where_they_are_defined() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::x::X; pub(crate) use b::*; use std::fmt;"),
        ("a/mod.rs", "pub mod x; pub(crate) use x::Y; use super::c::{self, Deep as Other};"),
        (
            "a/x.rs",
            "pub struct X; pub struct Y; use model::X as Z; use crate::b as bee; fn f() { bee::g(); tokio::spawn(); }",
        ),
        ("b.rs", "pub fn g() {} pub struct B; use crate::{X, a::{Y}}; impl X { fn f() -> fmt::Y { a.c::<B>().x } }"),
        ("c.rs", "use crate::B; pub struct Deep; fn f() -> crate::a::Y { super::a::x::X::new() }"),
    ];
    assert_eq!(edges(&files), ["a > c", "a::x > b", "b > a::x", "c > a::x", "c > b"]);
}

#[test]
fn a_parent_that_uses_what_it_re_exports_uses_its_child() {
    let listing = ("list.rs", "mod a; pub use a::A; pub trait T {}");
    let child = ("list/a.rs", "use super::T; pub struct A;");
    assert_eq!(edges(&[listing, child]), ["list::a > list"]);
    let using = ("list.rs", "mod a; pub use a::A; pub trait T {} fn all() -> A { A }");
    assert_eq!(edges(&[using, child]), ["list > list::a", "list::a > list"]);
}

#[test]
fn tests_use_whatever_they_like() {
    let files = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod helper;"),
        (
            "a.rs",
            "pub struct A { #[cfg(test)] b: crate::b::B, c: u8 } #[cfg(test)] mod tests { use crate::b::B; }\nfn after() { crate::after() }",
        ),
        ("b.rs", "pub struct B; #[cfg(test)] use crate::a::A; #[cfg(test)] impl B { fn f() -> crate::a::A { } }"),
        ("helper.rs", "use crate::a::A;"),
    ];
    assert_eq!(edges(&files), ["a > lib"]);
}
