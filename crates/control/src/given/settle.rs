//! Settling: what of the providers' wishes is accepted when something in all of it together is wrong.
//!
//! What is wanted is tried; as long as that fails, the diagnostics say what to try next. The rules:
//!
//! 1. **All.** What is right as a whole is accepted as a whole.
//! 2. **Parts.** Only a provider whose parts stand for themselves ([`State::by_parts`](super::State)) is ever changed. Any other is accepted
//!    as a whole or not at all.
//! 3. **Needed.** If an object is missing that a text in force defines, and its provider took the text away or changed it, the text stays as
//!    it was. A document that has other faults too needs nothing.
//! 4. **Blamed.** Otherwise each text to blame goes: the first time its version in force takes its place, the second time nothing does.
//! 5. **In force is innocent.** No text in force is to blame while something is new: of the same provider, of another one that is tried with
//!    it, or in files. Of two texts with the same name the new one is to blame.
//! 6. **Back.** If no text is to blame, or too often, each new text goes. If none is left, those that were taken away come back. Several
//!    providers that are tried together need not bear that: they are refused together, and tried alone then.
//! 7. **Refused.** If no rule changes anything, the last diagnostics stand.
//!
//! ```text
//!  wanted ──▶ try ──right──▶ accepted
//!              ▲ └──wrong──▶ step: 3, else 4, else 6 ──nothing──▶ refused
//!              └────────────────┘ at most ROUNDS_MAX + LAST_ROUNDS times
//! ```
//! [`step`] is pure, and so is [`settle`] if what tries is: the same wishes, state in force and diagnostics give the same result. What a
//! step changes is written down with its reason ([`Given::lacking`], [`Given::settled`]).

use std::collections::HashMap;

use config::Diagnostics;

use super::Given;
use super::accepted::Accepted;
use super::blame;
use super::partial::Partial;
use crate::loader::without_names;

/// How often what is wrong is left out until no more is looked for.
const ROUNDS_MAX: usize = 8;
/// Rounds of rule 6 after that: without what is new, and with all that was taken away.
const LAST_ROUNDS: usize = 2;

/// What may be to blame beside the one provider that is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Beside {
    /// Nothing that is new.
    Nothing,
    /// Other providers.
    Others,
    /// Files that are read again. They do not displace an active text.
    NewFiles,
}

/// What is tried.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// The providers that want something.
    pub(crate) of: &'a [&'a str],
    /// The active state.
    pub(crate) before: &'a Given,
    /// What else may be to blame.
    pub(crate) beside: Beside,
}

/// Tries what is wanted until what is left of it is right; see the module. Returns what `try_it` makes of that.
///
/// # Errors
/// The last diagnostics, if no part can be left out any more.
pub(crate) fn settle<T>(
    wanted: Given,
    attempt: Attempt<'_>,
    try_it: impl Fn(&Given) -> Result<T, Diagnostics>,
) -> Result<T, Diagnostics> {
    let mut now = wanted;
    let mut tried = try_it(&now);
    for round in 0..ROUNDS_MAX + LAST_ROUNDS {
        let Err(wrong) = &tried else { break };
        let Some(next) = step(&now, attempt, wrong, round) else { break };
        now = next;
        tried = try_it(&now);
    }
    tried
}

/// Returns what to try next. Returns `None` if no rule changes anything.
fn step(now: &Given, attempt: Attempt<'_>, wrong: &Diagnostics, round: usize) -> Option<Given> {
    let fewer = || with_needed(now, attempt, wrong).or_else(|| without_blamed(now, attempt, wrong));
    let next = if round < ROUNDS_MAX { fewer() } else { None };
    next.or_else(|| in_force(now, attempt, wrong))
}

/// Rule 3.
fn with_needed(now: &Given, attempt: Attempt<'_>, wrong: &Diagnostics) -> Option<Given> {
    let needed = blame::needed(wrong);
    if needed.is_empty() {
        return None;
    }
    without_names(|loader| change(now, attempt, |_, partial| partial.with_needed(loader, &needed)))
}

/// Rules 4 and 5.
fn without_blamed(now: &Given, attempt: Attempt<'_>, wrong: &Diagnostics) -> Option<Given> {
    let Attempt { of, before, beside } = attempt;
    let news = |name: &&str| {
        let (name, known) = ((*name).to_owned(), before.accepted(name));
        let news = now.accepted(&name).into_iter().flat_map(move |accepted| accepted.news(known));
        news.map(move |text| {
            let is_in_force = known.is_some_and(|known| known.text(&text.name).is_some());
            (config::place_of_provided(&name, &text.name), is_in_force)
        })
    };
    let news: HashMap<String, bool> = of.iter().flat_map(news).collect();
    let blame = blame::blame(wrong, &news);
    let texts = |accepted: Option<&Accepted>| accepted.map(|accepted| accepted.state.texts.clone());
    let is_changed = |name: &&str| texts(now.accepted(name)) != texts(before.accepted(name));
    let changed: Vec<&str> = match beside {
        Beside::Others => of.iter().copied().filter(is_changed).collect(),
        Beside::Nothing | Beside::NewFiles => Vec::new(),
    };
    let is_new = |name: &str| beside == Beside::NewFiles || changed.iter().any(|other| *other != name);
    change(now, attempt, |name, partial| partial.without_blamed(&blame, is_new(name)))
}

/// Rule 6.
fn in_force(now: &Given, attempt: Attempt<'_>, wrong: &Diagnostics) -> Option<Given> {
    if attempt.beside == Beside::Others {
        return None;
    }
    let first = wrong.list.first().map_or(String::new(), |one| format!("{}:{}: {}", one.file, one.line, one.message));
    change(now, attempt, |_, partial| partial.in_force(&first))
}

/// Changes the providers that are tried, as far as `rule` changes something.
fn change(
    now: &Given,
    Attempt { of, before, .. }: Attempt<'_>,
    rule: impl Fn(&str, &Partial<'_>) -> Option<Accepted>,
) -> Option<Given> {
    let mut next = None;
    for name in of {
        let partial = now.accepted(name).and_then(|accepted| Partial::of(name, accepted, before.accepted(name)));
        if let Some(accepted) = partial.and_then(|partial| rule(name, &partial)) {
            next = Some(next.as_ref().unwrap_or(now).having(name, accepted));
        }
    }
    next
}

#[cfg(test)]
mod tests;
