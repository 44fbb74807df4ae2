//! Which module of a crate uses which, and where they go in circles.

use std::collections::{BTreeMap, BTreeSet};

/// The module at the root of a crate.
pub(crate) const ROOT: &str = "lib";

/// Modules by their paths, such as `upstream::pool`, and what each uses.
#[derive(Debug, Default, Clone)]
pub(crate) struct Graph(BTreeMap<String, BTreeSet<String>>);

impl Graph {
    pub(crate) fn add(&mut self, module: &str) {
        self.0.entry(module.to_owned()).or_default();
    }

    /// Notes that a module uses another.
    pub(crate) fn join(&mut self, from: &str, to: &str) {
        self.add(to);
        let uses = self.0.entry(from.to_owned()).or_default();
        if from != to {
            uses.insert(to.to_owned());
        }
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(from, uses)| uses.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    pub(crate) fn uses(&self, module: &str) -> impl Iterator<Item = &str> {
        self.0.get(module).into_iter().flatten().map(String::as_str)
    }

    /// All that a module reaches by one step or more.
    fn reach(&self, from: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = self.uses(from).collect();
        while let Some(module) = open.pop() {
            if seen.insert(module) {
                open.extend(self.uses(module));
            }
        }
        seen
    }

    /// Each largest set of modules that reach one another, in the order of their first names.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<String>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.modules().map(|module| (module, self.reach(module))).collect();
        let mut circles = BTreeSet::new();
        for (module, others) in reached.iter().filter(|(module, others)| others.contains(*module)) {
            let back = others.iter().filter(|other| reached[*other].contains(module));
            circles.insert(back.map(|other| (*other).to_owned()).collect::<BTreeSet<String>>());
        }
        circles.into_iter().collect()
    }

    /// The parents that use a child from which there is a way back to them.
    pub(crate) fn families(&self) -> BTreeSet<String> {
        let down = self.edges().filter(|(from, to)| is_below(to, from));
        down.filter(|(from, to)| self.reach(to).contains(from)).map(|(from, _)| from.to_owned()).collect()
    }

    /// The same without what these parents use of their own children.
    pub(crate) fn without_families(&self, parents: &BTreeSet<String>) -> Self {
        let mut rest = Self::default();
        self.modules().for_each(|module| rest.add(module));
        for (from, to) in self.edges().filter(|(from, to)| !(parents.contains(*from) && is_below(to, from))) {
            rest.join(from, to);
        }
        rest
    }

    /// The graph of what lies directly below the root, each with all below it; the root left out.
    pub(crate) fn folded(&self) -> Self {
        let top = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
        let mut folded = Self::default();
        self.modules().filter(|module| *module != ROOT).for_each(|module| folded.add(&top(module)));
        for (from, to) in self.edges().filter(|(from, to)| *from != ROOT && *to != ROOT) {
            folded.join(&top(from), &top(to));
        }
        folded
    }

    /// Groups of modules that go in circles, or of one, from the lowest layer up: each uses only layers below its own.
    pub(crate) fn layers(&self) -> Vec<Vec<BTreeSet<String>>> {
        let mut groups = self.circles();
        let lone: Vec<&str> =
            self.modules().filter(|module| !groups.iter().any(|group| group.contains(*module))).collect();
        groups.extend(lone.into_iter().map(|module| BTreeSet::from([module.to_owned()])));
        groups.sort();
        let mut layers: Vec<Vec<BTreeSet<String>>> = Vec::new();
        let mut laid: BTreeSet<String> = BTreeSet::new();
        while !groups.is_empty() {
            let is_ready = |group: &BTreeSet<String>| {
                group
                    .iter()
                    .flat_map(|module| self.uses(module))
                    .all(|used| group.contains(used) || laid.contains(used))
            };
            let (layer, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_ready);
            assert!(!layer.is_empty(), "groups without circles have a lowest");
            laid.extend(layer.iter().flatten().cloned());
            layers.push(layer);
            groups = rest;
        }
        layers
    }
}

fn is_below(module: &str, parent: &str) -> bool {
    parent == ROOT || module.strip_prefix(parent).is_some_and(|rest| rest.starts_with("::"))
}

#[cfg(test)]
fn made(edges: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::default();
    edges.iter().for_each(|(from, to)| graph.join(from, to));
    graph
}

#[cfg(test)]
fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn circles_are_found_each_once() {
    let graph = made(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("f", "f"), ("f", "a")]);
    assert_eq!(graph.circles(), [set(&["a", "b", "c"]), set(&["d", "e"])]);
    assert!(made(&[("a", "b"), ("a", "c"), ("b", "c")]).circles().is_empty());
}

#[test]
fn a_family_is_a_parent_whose_children_lead_back_to_it() {
    let graph = made(&[("list", "list::a"), ("list::a", "list"), ("top", "top::a"), ("listing", "list")]);
    assert_eq!(graph.families(), set(&["list"]));
    assert!(graph.without_families(&set(&["list"])).circles().is_empty());
    assert_eq!(graph.without_families(&set(&["top"])).circles(), [set(&["list", "list::a"])]);
}

#[test]
fn layers_use_only_what_is_below_them() {
    let graph = made(&[("a", "b"), ("b", "c::x"), ("c::y", "b"), ("a", "d"), ("lib", "a"), ("d", "lib")]);
    assert_eq!(graph.folded().layers(), [vec![set(&["b", "c"]), set(&["d"])], vec![set(&["a"])]]);
}
