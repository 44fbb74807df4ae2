//! The rules one by one, and what holds of all of them together.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Bond, Diagnostic};
use plan::Random;

use super::*;
use crate::given::{State, Text};

const STORE: &str = "store";

fn attempt(before: &Given) -> Attempt<'_> {
    Attempt { of: &[STORE], before, beside: Beside::Nothing }
}

fn given(before: &Given, texts: &[(&str, &str)], by_parts: bool) -> Given {
    let text =
        |(name, text): &(&str, &str)| Text { name: (*name).to_owned(), text: (*text).to_owned(), ..Text::default() };
    let state = State { texts: texts.iter().map(text).collect(), by_parts, ..State::default() };
    without_names(|loader| before.with(loader, STORE, Arc::new(state))).unwrap()
}

fn diagnostic(name: &str, message: &str, bond: Option<Bond>) -> Diagnostic {
    Diagnostic {
        file: config::place_of_provided(STORE, name),
        line: 1,
        column: 2,
        width: 1,
        line_text: String::new(),
        caret: 0,
        message: message.to_owned(),
        suggestion: None,
        is_warning: false,
        bond: bond.map(Box::new),
    }
}

fn wrong(name: &str) -> Diagnostics {
    diagnostic(name, "it is bad", None).into()
}

fn shown(given: &Given) -> (Vec<(&str, &str)>, Vec<String>) {
    let accepted = given.accepted(STORE).unwrap();
    let texts = accepted.state.texts.iter().map(|text| (text.name.as_str(), text.text.as_str()));
    (texts.collect(), accepted.left_out.values().cloned().collect())
}

#[test]
fn a_part_that_is_wrong_is_as_it_was_and_then_left_out_and_told_once() {
    let before = given(&Given::default(), &[("a", "old")], true);
    let now = given(&before, &[("a", "new"), ("b", "new")], true);
    let less = without_blamed(&now, attempt(&before), &wrong("a")).unwrap();
    assert_eq!(shown(&less), (vec![("a", "old"), ("b", "new")], vec!["a:1:2: it is bad".to_owned()]));
    assert!(
        without_blamed(&less, attempt(&before), &wrong("a")).is_none(),
        "what is in force is not to blame while something is new"
    );
    let known = in_force(&less, attempt(&before), &wrong("a")).unwrap();
    let known = without_blamed(&known, attempt(&before), &wrong("a")).unwrap();
    assert!(shown(&known).0.is_empty(), "what was in force can be right no more");
    assert!(without_blamed(&known, attempt(&before), &wrong("a")).is_none(), "it is not there any more");
    let other = Attempt { of: &["other"], ..attempt(&before) };
    assert!(without_blamed(&less, other, &wrong("b")).is_none());
    let whole = given(&before, &[("a", "new")], false);
    assert!(without_blamed(&whole, attempt(&before), &wrong("a")).is_none(), "it stands as a whole");
    // Other endpoints try no text again.
    let wanted = Arc::clone(less.lacking().next().unwrap().1);
    let again = without_names(|loader| less.with_endpoints(loader, STORE, wanted)).unwrap();
    assert_eq!(shown(&again), shown(&less));
}

#[test]
fn when_nobody_knows_which_part_is_wrong_those_in_force_stay() {
    let before = given(&Given::default(), &[("a", "old"), ("gone", "old")], true);
    let now = given(&before, &[("a", "old"), ("b", "new")], true);
    let less = in_force(&now, attempt(&before), &wrong("x")).unwrap();
    let told = "b: with others, provider:store:x:1: it is bad".to_owned();
    assert_eq!(shown(&less), (vec![("a", "old")], vec![told.clone()]));
    // Nor may it be known what is missing.
    let all = in_force(&less, attempt(&before), &wrong("x")).unwrap();
    let gone =
        "gone: was taken away, and stays as it was: with other changes, provider:store:x:1: it is bad".to_owned();
    assert_eq!(shown(&all), (vec![("a", "old"), ("gone", "old")], vec![told, gone]));
    assert!(in_force(&all, attempt(&before), &wrong("x")).is_none());
}

/// A text of a made-up configuration: whether it is bad, which cluster it defines, which it needs.
type Fact = (bool, u64, Option<u64>);

/// Texts that stand for such facts by their names and versions.
#[derive(Default)]
struct World(BTreeMap<(String, String), Fact>);

impl World {
    /// A new version of a text. `is_good`: it has no fault of its own.
    fn text(&mut self, name: &str, random: &mut Random, is_good: bool) -> Text {
        let fact = (!is_good && random.below(3) == 0, random.below(6), Some(random.below(9)).filter(|need| *need < 6));
        let text = format!("clusters: {{ c{}: {{}} }} # {}", fact.1, self.0.len());
        self.0.insert((name.to_owned(), text.clone()), fact);
        Text { name: name.to_owned(), text, ..Text::default() }
    }

    /// Checks as a configuration is checked: faults of its own, names that are taken, objects that are missing.
    fn check(&self, texts: &[Text]) -> Result<(), Diagnostics> {
        let facts: Vec<(&Text, Fact)> =
            texts.iter().map(|text| (text, self.0[&(text.name.clone(), text.text.clone())])).collect();
        let mut list = Vec::new();
        let mut defined: BTreeMap<u64, &str> = BTreeMap::new();
        for (text, (is_bad, defines, _)) in &facts {
            if *is_bad {
                list.push(diagnostic(&text.name, "it is bad", None));
            } else if let Some(first) = defined.get(defines) {
                let first = config::place_of_provided(STORE, first);
                list.push(diagnostic(&text.name, "it is taken", Some(Bond::Taken(first))));
            } else {
                defined.insert(*defines, &text.name);
            }
        }
        for (text, (_, _, needs)) in &facts {
            if let Some(need) = needs.filter(|need| !defined.contains_key(need)) {
                list.push(diagnostic(&text.name, "it lacks", Some(Bond::Lacks("clusters", format!("c{need}")))));
            }
        }
        if list.is_empty() { Ok(()) } else { Err(Diagnostics { list, ..Diagnostics::default() }) }
    }
}

fn texts_of(given: &Given) -> Vec<Text> {
    given.accepted(STORE).map(|accepted| accepted.state.texts.clone()).unwrap_or_default()
}

fn with_texts(before: &Given, texts: Vec<Text>, by_parts: bool) -> Given {
    let state = State { texts, by_parts, ..State::default() };
    without_names(|loader| before.with(loader, STORE, Arc::new(state))).unwrap()
}

/// What is in force, which is right, and what is wanted: some texts gone, some changed, some new.
fn scene(world: &mut World, random: &mut Random) -> (Vec<Text>, Vec<Text>) {
    let mut in_force: Vec<Text> = Vec::new();
    for name in 0..random.below(6) {
        in_force.push(world.text(&format!("t{name}"), random, true));
        if world.check(&in_force).is_err() {
            in_force.pop();
        }
    }
    let mut wanted: Vec<Text> = Vec::new();
    for name in 0..8 {
        let name = format!("t{name}");
        let known = in_force.iter().find(|text| text.name == name).cloned();
        match (random.below(4), known) {
            (0, _) => {}
            (1, _) | (_, None) => wanted.push(world.text(&name, random, false)),
            (_, Some(known)) => wanted.push(known),
        }
    }
    (in_force, wanted)
}

#[test]
fn whatever_is_wanted_settles_on_something_right_made_of_what_is_wanted_and_what_is_in_force() {
    let (mut in_parts, mut whole) = (0, 0);
    for seed in 0..10_000 {
        let (mut world, mut random) = (World::default(), Random::new(seed));
        let (old, new) = scene(&mut world, &mut random);
        let before = with_texts(&Given::default(), old.clone(), true);
        let wanted = with_texts(&before, new.clone(), true);
        let tries = Cell::new(0);
        let try_it = |given: &Given| {
            tries.set(tries.get() + 1);
            world.check(&texts_of(given)).map(|()| given.clone())
        };
        // With one provider that stands by its parts there is always what is in force.
        let settled = settle(wanted.clone(), attempt(&before), try_it).unwrap_or_else(|why| panic!("{seed}: {why}"));
        assert!(tries.get() <= 1 + ROUNDS_MAX + LAST_ROUNDS, "{seed}");
        let found = texts_of(&settled);
        let left_out = &settled.accepted(STORE).unwrap().left_out;
        if world.check(&new).is_ok() {
            whole += 1;
            assert!(found == new && left_out.is_empty() && tries.get() == 1, "{seed}: what is right is taken as it is");
            continue;
        }
        in_parts += 1;
        for text in &found {
            assert!(old.contains(text) || new.contains(text), "{seed}: {text:?} comes from nowhere");
        }
        for text in &new {
            assert!(found.contains(text) || left_out.contains_key(&text.name), "{seed}: {text:?} goes untold");
        }
        for text in &found {
            assert!(new.contains(text) || left_out.contains_key(&text.name), "{seed}: {text:?} stays untold");
        }
        let names: BTreeSet<&str> = found.iter().map(|text| text.name.as_str()).collect();
        assert_eq!(names.len(), found.len(), "{seed}: each is there once");
        for text in old.iter().filter(|text| new.contains(text)) {
            assert!(found.contains(text), "{seed}: {text:?} is in force and still wanted");
        }
        let again =
            settle(wanted, attempt(&before), |given: &Given| world.check(&texts_of(given)).map(|()| given.clone()));
        assert!(again.unwrap() == settled, "{seed}: the same gives the same");
    }
    assert!(in_parts > 5_000 && whole > 50, "{in_parts} {whole}");
}

#[test]
fn what_stands_as_a_whole_is_taken_whole_or_not_at_all() {
    for seed in 0..2_000 {
        let (mut world, mut random) = (World::default(), Random::new(seed));
        let (old, new) = scene(&mut world, &mut random);
        let before = with_texts(&Given::default(), old, false);
        let wanted = with_texts(&before, new.clone(), false);
        for beside in [Beside::Nothing, Beside::Others, Beside::NewFiles] {
            let try_it = |given: &Given| world.check(&texts_of(given)).map(|()| given.clone());
            let settled = settle(wanted.clone(), Attempt { beside, ..attempt(&before) }, try_it);
            assert_eq!(settled.is_ok(), world.check(&new).is_ok(), "{seed}");
            assert!(settled.is_err() || texts_of(&settled.unwrap()) == new, "{seed}");
        }
    }
}

#[test]
fn one_text_that_is_bad_takes_no_other_with_it() {
    for seed in 0..2_000 {
        let (mut world, mut random) = (World::default(), Random::new(seed));
        let (old, _) = scene(&mut world, &mut random);
        let before = with_texts(&Given::default(), old.clone(), true);
        let mut new = old.clone();
        let bad = Text { name: "bad".to_owned(), text: "clusters: { bad: {} }".to_owned(), ..Text::default() };
        world.0.insert((bad.name.clone(), bad.text.clone()), (true, 99, None));
        new.insert(random.below(new.len() as u64 + 1) as usize, bad);
        let try_it = |given: &Given| world.check(&texts_of(given)).map(|()| given.clone());
        let settled = settle(with_texts(&before, new, true), attempt(&before), try_it).unwrap();
        assert!(texts_of(&settled) == old, "{seed}: order included");
    }
}
