//! One provider whose parts stand for themselves: what each rule of [`settle`](super::settle) makes of its texts.

use std::collections::{BTreeMap, HashMap, HashSet};

use config::Loader;

use super::accepted::Accepted;
use super::blame::{Blame, Needed};
use super::state::Text;

/// The state of a provider that is tried, and its active one.
pub(super) struct Partial<'a> {
    provider: &'a str,
    now: &'a Accepted,
    before: Option<&'a Accepted>,
}

impl<'a> Partial<'a> {
    /// Returns `None` if the parts of the provider do not stand for themselves.
    pub(super) fn of(provider: &'a str, now: &'a Accepted, before: Option<&'a Accepted>) -> Option<Self> {
        now.state.by_parts.then_some(Self { provider, now, before })
    }

    /// Returns it without the texts to blame: the first time their version in force takes their place. `is_new_elsewhere`: what is in force
    /// here is not to blame. Returns `None` if no text is to blame.
    pub(super) fn without_blamed(&self, blame: &Blame, is_new_elsewhere: bool) -> Option<Accepted> {
        let Self { provider, now, before } = *self;
        let mut left_out = now.left_out.clone();
        let mut texts = Vec::with_capacity(now.state.texts.len());
        let mut is_other = false;
        let news: HashSet<&str> = now.news(before).map(|text| &*text.name).collect();
        for text in &now.state.texts {
            let is_old = (is_new_elsewhere || !news.is_empty()) && !news.contains(&*text.name);
            let why = blame.get(&config::place_of_provided(provider, &text.name));
            let Some(why) = why.filter(|_| !is_old) else {
                texts.push(text.clone());
                continue;
            };
            is_other = true;
            if left_out.contains_key(&text.name) {
                continue;
            }
            left_out.insert(text.name.clone(), format!("{}:{why}", text.name));
            texts.extend(before.and_then(|before| before.text(&text.name)).filter(|known| *known != text).cloned());
        }
        is_other.then(|| now.having(texts, left_out))
    }

    /// Returns it without new texts: with their versions in force, if there are some. If no text is new, returns it as it is in force, with
    /// the texts that were taken away. Returns `None` if it is in force already.
    pub(super) fn in_force(&self, why: &str) -> Option<Accepted> {
        let Self { now: this, before, .. } = *self;
        let known = before.map_or(&[][..], |before| &before.state.texts);
        let news: HashSet<&str> = this.news(before).map(|text| text.name.as_str()).collect();
        let now: HashSet<&str> = this.state.texts.iter().chain(&this.wanted.texts).map(|text| &*text.name).collect();
        let gone = || known.iter().filter(|text| !now.contains(&*text.name));
        if news.is_empty() && gone().next().is_none() {
            return None;
        }
        let mut left_out = this.left_out.clone();
        for name in &news {
            left_out.entry((*name).to_owned()).or_insert_with(|| format!("{name}: with others, {why}"));
        }
        if !news.is_empty() {
            let stays = known.iter().filter(|text| now.contains(&*text.name)).cloned();
            return Some(this.having(stays.collect(), left_out));
        }
        for Text { name, .. } in gone() {
            left_out.insert(
                name.clone(),
                format!("{name}: was taken away, and stays as it was: with other changes, {why}"),
            );
        }
        Some(this.having(known.to_vec(), left_out))
    }

    /// Returns it with the texts in force that were taken away or changed and define what is needed. Returns `None` if there are none.
    pub(super) fn with_needed(&self, loader: &Loader<'_>, needed: &Needed<'_>) -> Option<Accepted> {
        let before = self.before?;
        let this = self.now;
        let wanted: HashSet<&str> = this.wanted.texts.iter().map(|text| &*text.name).collect();
        let now: HashMap<&str, &Text> = this.state.texts.iter().map(|text| (&*text.name, text)).collect();
        let mut left_out = this.left_out.clone();
        let mut back: HashMap<&str, &Text> = HashMap::new();
        for old in &before.state.texts {
            let Text { name, text, .. } = old;
            if left_out.contains_key(name) || now.get(&**name) == Some(&old) {
                continue;
            }
            let names = loader.names_in(text);
            let found = names.iter().find_map(|(kind, what)| needed.get_key_value(&(*kind, what)));
            let Some(((kind, what), place)) = found else { continue };
            let news = if wanted.contains(&**name) { "has changed" } else { "was taken away" };
            let kind = kind.trim_end_matches('s');
            let why = format!("{name}: {news}, and stays as it was: {place} needs the {kind} `{what}`");
            left_out.insert(name.clone(), why);
            back.insert(name, old);
        }
        if back.is_empty() {
            return None;
        }
        let stays = |text: &Text| back.get(&*text.name).map_or(text, |old| *old).clone();
        let texts: Vec<Text> = this.state.texts.iter().map(stays).collect();
        Some(this.having(with_back(&texts, &before.state.texts, |name| back.contains_key(name)), left_out))
    }
}

/// Returns texts with some of those before, each behind the text that it was behind: the order of routes has a meaning.
fn with_back(texts: &[Text], before: &[Text], is_back: impl Fn(&str) -> bool) -> Vec<Text> {
    let places: HashMap<&str, usize> = texts.iter().enumerate().map(|(place, text)| (&*text.name, place)).collect();
    let mut back: BTreeMap<usize, Vec<Text>> = BTreeMap::new();
    let mut next = 0;
    for text in before {
        match places.get(&*text.name) {
            Some(place) => next = place + 1,
            None if is_back(&text.name) => back.entry(next).or_default().push(text.clone()),
            None => {}
        }
    }
    let mut joined = Vec::with_capacity(texts.len());
    for place in 0..=texts.len() {
        joined.extend(back.remove(&place).into_iter().flatten());
        joined.extend(texts.get(place).cloned());
    }
    joined
}
