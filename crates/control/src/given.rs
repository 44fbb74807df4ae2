//! What a provider wants, and what of it is in force.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use config::file::EndpointSettings;
use config::{Bond, Diagnostic, Diagnostics, Loaded, Loader, Provided, ProvidedText};
use model::snapshot::{Cluster, Endpoint};
use model::{Name, Snapshot};
use serde::{Deserialize, Serialize};

use crate::loader::without_names;

/// Everything that a provider wants, whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Whole objects: texts in YAML or JSON with `listeners`, `routes`, `clusters` and `endpoints`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<Text>,
    /// Endpoints by key: addresses with a port, no names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub endpoints: BTreeMap<String, Vec<EndpointSettings>>,
    /// Of lists whose endpoints each have a key of their own in a store: the names of these keys, in the order of the endpoints. So a
    /// key that is wrong by the time of another start is as it was while it was right.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, Vec<String>>,
    /// Each text and each list of endpoints stands for itself: one that is wrong is left out, or is as it was while it was right. Otherwise
    /// they come into force together or not at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_parts: bool,
}

/// A text of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// Where it is from, as diagnostics show it.
    pub name: String,
    /// Where relative paths in it start; by default at the folder of the main file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// YAML or JSON.
    pub text: String,
}

impl State {
    /// A state of these texts. Where they say nothing but endpoints, and that well, it is one of endpoints, which take a shorter
    /// way.
    pub(crate) fn of_texts(texts: Vec<Text>, has_environment: bool) -> Self {
        let mut endpoints = BTreeMap::new();
        for text in &texts {
            let found = without_names(|loader| loader.endpoints_alone(&text.text, has_environment));
            let Some(found) = found else { return Self { texts, ..Self::default() } };
            for (key, list) in found {
                if endpoints.insert(key, list).is_some() {
                    return Self { texts, ..Self::default() };
                }
            }
        }
        Self { endpoints, ..Self::default() }
    }
}

/// What of a provider is in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) state: Arc<State>,
    /// What it came of: the same, if nothing is left out.
    wanted: Arc<State>,
    /// By the names of parts why they are left out, or are as they were.
    left_out: BTreeMap<String, String>,
    /// By key.
    endpoints: BTreeMap<String, Arc<[Endpoint]>>,
}

/// What of all providers is in force, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    by_name: BTreeMap<String, Arc<Accepted>>,
    laid: Arc<Mutex<HashMap<Name, Laid>>>,
}

/// A list of endpoints, their names if they have some, and what they came to.
type Listed = (Vec<EndpointSettings>, Vec<String>, Arc<[Endpoint]>);

/// A cluster that was given its endpoints: made once, as long as it is made of the same.
#[derive(Debug)]
struct Laid {
    bare: Arc<Cluster>,
    endpoints: Arc<[Endpoint]>,
    whole: Arc<Cluster>,
}

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl Accepted {
    /// Understands the endpoints of a state. Those that are as in `before` are taken from there. So is, of lists that stand for themselves
    /// and are wrong now, what they have still.
    fn of(loader: &Loader<'_>, provider: &str, wanted: Arc<State>, before: Option<&Self>) -> Result<Self, Diagnostics> {
        let mut it = Self { state: Arc::clone(&wanted), wanted, left_out: BTreeMap::new(), endpoints: BTreeMap::new() };
        for (key, list) in &it.wanted.endpoints {
            let place = format!("endpoints/{key}");
            let is_known =
                |known: &&Self| known.state.endpoints.get(key) == Some(list) && !known.left_out.contains_key(&place);
            let known = before.filter(is_known);
            let found = match known.and_then(|before| before.endpoints.get(key)) {
                Some(known) => Arc::clone(known),
                None => match loader.endpoints(provider, key, list) {
                    Ok(found) => found,
                    Err(why) if !it.wanted.by_parts => return Err(why),
                    Err(why) => {
                        let message = why.list.first().map_or("", |first| first.message.as_str());
                        it.left_out.insert(place, format!("the endpoints of `{key}`: {message}"));
                        let rest = before.and_then(|before| before.rest_of(loader, (provider, key), list));
                        let as_it_is = if rest.is_none() { without_work(loader, (provider, key), list) } else { None };
                        match as_it_is {
                            Some(found) => found,
                            None => {
                                let state = Arc::make_mut(&mut it.state);
                                state.endpoints.remove(key);
                                state.names.remove(key);
                                let Some((rest, names, found)) = rest else { continue };
                                state.endpoints.insert(key.clone(), rest);
                                state.names.extend(Some((key.clone(), names)).filter(|(_, names)| !names.is_empty()));
                                found
                            }
                        }
                    }
                },
            };
            it.endpoints.insert(key.clone(), found);
        }
        Ok(it)
    }

    /// What there is of a list without the endpoints that another has no more. `None`: nothing that can stand.
    fn rest_of(&self, loader: &Loader<'_>, (provider, key): (&str, &str), list: &[EndpointSettings]) -> Option<Listed> {
        let (known, found) = (self.state.endpoints.get(key)?, self.endpoints.get(key)?);
        let names = self.state.names.get(key).map_or(&[][..], Vec::as_slice);
        let now: HashSet<&str> = list.iter().map(|one| one.address.as_str()).collect();
        let stays: Vec<usize> = (0..known.len()).filter(|place| now.contains(known[*place].address.as_str())).collect();
        if stays.is_empty() {
            return None;
        }
        let rest: Vec<EndpointSettings> = stays.iter().map(|place| known[*place].clone()).collect();
        let names = stays.iter().filter_map(|place| names.get(*place).cloned()).collect();
        let found = match rest.len() == known.len() {
            true => Arc::clone(found),
            false => loader.endpoints(provider, key, &rest).ok()?,
        };
        Some((rest, names, found))
    }

    /// With the texts that another has, which wanted the same texts.
    fn with_texts_of(mut self, other: &Self) -> Self {
        if self.state.texts != other.state.texts {
            Arc::make_mut(&mut self.state).texts.clone_from(&other.state.texts);
        }
        let of_texts = other.left_out.iter().filter(|(name, _)| !name.starts_with("endpoints/"));
        self.left_out.extend(of_texts.map(|(name, why)| (name.clone(), why.clone())));
        self
    }

    /// Without the texts that are to blame; the first time in their place what they said `before`. What is in force is not to blame while
    /// something is new, here or elsewhere. `None`: none that stands for itself is to blame.
    fn without(&self, provider: &str, blame: &Blame, (before, is_new): (Option<&Self>, bool)) -> Option<Self> {
        if !self.state.by_parts {
            return None;
        }
        let mut left_out = self.left_out.clone();
        let mut texts = Vec::with_capacity(self.state.texts.len());
        let mut is_other = false;
        let news: HashSet<&str> = self.news(before).map(|text| &*text.name).collect();
        for text in &self.state.texts {
            let is_old = (is_new || !news.is_empty()) && !news.contains(&*text.name);
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
        is_other.then(|| self.having(texts, left_out))
    }

    /// The texts that are not as they were `before`.
    fn news<'a>(&'a self, before: Option<&'a Self>) -> impl Iterator<Item = &'a Text> {
        self.state.texts.iter().filter(move |text| before.and_then(|before| before.text(&text.name)) != Some(text))
    }

    /// With no text that is not as it was `before`, or, where all are, with all that there were, also those that were taken away.
    /// `None`: it is so already.
    fn without_news(&self, why: &str, before: Option<&Self>) -> Option<Self> {
        if !self.state.by_parts {
            return None;
        }
        let known = before.map_or(&[][..], |before| &before.state.texts);
        let news: HashSet<&str> = self.news(before).map(|text| text.name.as_str()).collect();
        let now: HashSet<&str> = self.state.texts.iter().chain(&self.wanted.texts).map(|text| &*text.name).collect();
        let gone = || known.iter().filter(|text| !now.contains(&*text.name));
        if news.is_empty() && gone().next().is_none() {
            return None;
        }
        let mut left_out = self.left_out.clone();
        for name in &news {
            left_out.entry((*name).to_owned()).or_insert_with(|| format!("{name}: with others, {why}"));
        }
        if !news.is_empty() {
            let stays = known.iter().filter(|text| now.contains(&*text.name)).cloned();
            return Some(self.having(stays.collect(), left_out));
        }
        for Text { name, .. } in gone() {
            left_out.insert(
                name.clone(),
                format!("{name}: was taken away, and stays as it was: with other changes, {why}"),
            );
        }
        Some(self.having(known.to_vec(), left_out))
    }

    /// With those texts as they were `before` that are gone, or say something else, and defined what is needed. `None`: there are none.
    fn with_needed(&self, loader: &Loader<'_>, needed: &Needed<'_>, before: Option<&Self>) -> Option<Self> {
        if !self.state.by_parts {
            return None;
        }
        let before = before?;
        let wanted: HashSet<&str> = self.wanted.texts.iter().map(|text| &*text.name).collect();
        let now: HashMap<&str, &Text> = self.state.texts.iter().map(|text| (&*text.name, text)).collect();
        let mut left_out = self.left_out.clone();
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
        let texts: Vec<Text> = self.state.texts.iter().map(stays).collect();
        Some(self.having(with_back(&texts, &before.state.texts, |name| back.contains_key(name)), left_out))
    }

    fn having(&self, texts: Vec<Text>, left_out: BTreeMap<String, String>) -> Self {
        let state = State { texts, ..State::clone(&self.state) };
        Self { state: state.into(), left_out, ..self.clone() }
    }

    fn text(&self, name: &str) -> Option<&Text> {
        self.state.texts.iter().find(|text| text.name == name)
    }
}

/// The endpoints of a list of which nothing is wrong but that none has a weight: they get no new work.
fn without_work(
    loader: &Loader<'_>,
    (provider, key): (&str, &str),
    list: &[EndpointSettings],
) -> Option<Arc<[Endpoint]>> {
    if list.iter().any(|one| one.weight > 0) {
        return None;
    }
    let weighed: Vec<EndpointSettings> = list.iter().map(|one| EndpointSettings { weight: 1, ..one.clone() }).collect();
    let found = loader.endpoints(provider, key, &weighed).ok()?;
    Some(found.iter().map(|one| Endpoint { weight: 0, ..one.clone() }).collect())
}

/// Texts with some of those that were there before, each behind that behind which it was: the order of routes has a meaning.
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

/// Objects that are referred to and not there, by kind and name: from where, as messages say it.
type Needed<'a> = BTreeMap<(&'a str, &'a str), String>;

/// Which documents are to blame for what is wrong, and why.
type Blame = HashMap<String, String>;

/// `news`: the documents of what is not in force, and whether something else of the document is. Where one of them has a name that a
/// document in force has, it is to blame, also where the other is told of.
fn blame(wrong: &Diagnostics, news: &HashMap<String, bool>) -> Blame {
    let is_in_force = |document: &String| news.get(document).copied().unwrap_or(true);
    let mut blame = Blame::new();
    for one in wrong.list.iter().filter(|one| !one.is_warning) {
        let (place, message) = (format!("{}:{}", one.line, one.column), &one.message);
        match one.bond.as_deref() {
            Some(Bond::Taken(first))
                if news.contains_key(first)
                    && (!news.contains_key(&one.file) || (!is_in_force(first) && is_in_force(&one.file))) =>
            {
                blame.entry(first.clone()).or_insert_with(|| format!(" {}:{place}: {message}", one.file));
            }
            _ => {
                let mend = one.suggestion.as_ref().map(|mend| format!(" ({mend})")).unwrap_or_default();
                blame.entry(one.file.clone()).or_insert_with(|| format!("{place}: {message}{mend}"));
            }
        }
    }
    blame
}

/// What may be to blame beside the one provider of which something is tried.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Beside {
    /// Nothing that is new.
    Nothing,
    /// Other providers.
    Others,
    /// Files that are read anew. They push nothing out that is in force.
    NewFiles,
}

impl Given {
    /// With another state of one provider.
    pub(crate) fn with(&self, loader: &Loader<'_>, provider: &str, state: Arc<State>) -> Result<Self, Diagnostics> {
        let accepted = Accepted::of(loader, provider, state, self.by_name.get(provider).map(|known| &**known))?;
        Ok(self.having(provider, accepted))
    }

    /// With other endpoints of one provider, whose texts are those that it wanted before.
    pub(crate) fn with_endpoints(
        &self,
        loader: &Loader<'_>,
        provider: &str,
        state: Arc<State>,
    ) -> Result<Self, Diagnostics> {
        let known = self.by_name.get(provider);
        let accepted = Accepted::of(loader, provider, state, known.map(|known| &**known))?;
        Ok(self.having(
            provider,
            match known {
                Some(known) => accepted.with_texts_of(known),
                None => accepted,
            },
        ))
    }

    fn having(&self, provider: &str, accepted: Accepted) -> Self {
        let mut given = self.clone();
        given.by_name.insert(provider.to_owned(), Arc::new(accepted));
        given
    }

    /// Without those parts of these providers that are wrong, or with what they were `before`. Nothing that is in force is to blame while
    /// something is new elsewhere. `None`: what is wrong is in none.
    pub(crate) fn without(
        &self,
        names: &[&str],
        wrong: &Diagnostics,
        (before, beside): (&Self, Beside),
    ) -> Option<Self> {
        let news = |name: &&str| {
            let (name, known) = ((*name).to_owned(), before.accepted(name));
            let news = self.accepted(&name).into_iter().flat_map(move |accepted| accepted.news(known));
            news.map(move |text| {
                let is_in_force = known.is_some_and(|known| known.text(&text.name).is_some());
                (config::place_of_provided(&name, &text.name), is_in_force)
            })
        };
        let blame = blame(wrong, &names.iter().flat_map(news).collect());
        let texts = |given: &Self, name: &str| given.accepted(name).map(|accepted| Arc::clone(&accepted.state));
        let is_other = |name: &str| {
            let (now, then) = (texts(self, name), texts(before, name));
            now.as_ref().map(|now| &now.texts) != then.as_ref().map(|then| &then.texts)
        };
        let is_of_others = |name: &&str| beside == Beside::Others && is_other(name);
        let changed: Vec<&str> = names.iter().copied().filter(is_of_others).collect();
        let is_new = |name: &str| beside == Beside::NewFiles || changed.iter().any(|other| *other != name);
        self.change(names, |name, accepted| accepted.without(name, &blame, (before.accepted(name), is_new(name))))
    }

    /// With those parts as they were that these providers have taken away, or changed, and that defined what something still needs. `None`:
    /// nothing of that is missing.
    pub(crate) fn with_needed(
        &self,
        loader: &Loader<'_>,
        names: &[&str],
        (wrong, before): (&Diagnostics, &Self),
    ) -> Option<Self> {
        let mut needed = Needed::new();
        // What has other faults will not come into force, and needs nothing.
        let is_other = |one: &&Diagnostic| !one.is_warning && !matches!(one.bond.as_deref(), Some(Bond::Lacks(..)));
        let faulty: HashSet<&str> = wrong.list.iter().filter(is_other).map(|one| &*one.file).collect();
        for one in wrong.list.iter().filter(|one| !faulty.contains(&*one.file)) {
            if let Some(Bond::Lacks(kind, name)) = one.bond.as_deref() {
                let place = || format!("{}:{}:{}", one.file, one.line, one.column);
                needed.entry((kind, name)).or_insert_with(place);
            }
        }
        if needed.is_empty() {
            return None;
        }
        self.change(names, |name, accepted| accepted.with_needed(loader, &needed, before.accepted(name)))
    }

    fn accepted(&self, name: &str) -> Option<&Accepted> {
        self.by_name.get(name).map(|accepted| &**accepted)
    }

    /// Without any part of these providers that is not as it was `before`, though it is not known which is wrong; then with all that were
    /// taken away. `None`: it is so already.
    pub(crate) fn without_news(&self, names: &[&str], wrong: &Diagnostics, before: &Self) -> Option<Self> {
        let first =
            wrong.list.first().map_or(String::new(), |one| format!("{}:{}: {}", one.file, one.line, one.message));
        self.change(names, |name, accepted| accepted.without_news(&first, before.accepted(name)))
    }

    fn change(&self, names: &[&str], with: impl Fn(&str, &Accepted) -> Option<Accepted>) -> Option<Self> {
        let found = names.iter().filter_map(|name| Some((*name, with(name, self.by_name.get(*name)?)?)));
        let mut given = None;
        for (name, accepted) in found {
            given = Some(given.as_ref().unwrap_or(self).having(name, accepted));
        }
        given
    }

    /// What providers want of which parts are left out.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (&str, &Arc<State>)> {
        let lacking = self.by_name.iter().filter(|(_, accepted)| !accepted.left_out.is_empty());
        lacking.map(|(name, accepted)| (name.as_str(), &accepted.wanted))
    }

    /// By provider what it wanted, how much of its texts is in force, and what is left out and why.
    pub(crate) fn settled(&self) -> impl Iterator<Item = (&str, &Arc<State>, usize, Vec<String>)> {
        self.by_name.iter().map(|(name, accepted)| {
            let left_out = accepted.left_out.values().cloned().collect();
            (name.as_str(), &accepted.wanted, accepted.state.texts.len(), left_out)
        })
    }

    /// All states.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, &Arc<State>)> {
        self.by_name.iter().map(|(name, accepted)| (name.as_str(), &accepted.state))
    }

    /// Forgets providers that are no more.
    pub(crate) fn retain(&mut self, snapshot: &Snapshot) {
        self.by_name.retain(|name, _| snapshot.providers.iter().any(|provider| provider.name.as_str() == name));
    }

    /// The texts of all.
    pub(crate) fn texts(&self) -> Vec<Provided> {
        let with_texts = self.by_name.iter().filter(|(_, accepted)| !accepted.state.texts.is_empty());
        let text = |text: &Text| ProvidedText {
            name: text.name.clone(),
            folder: text.folder.clone(),
            text: text.text.as_str().into(),
        };
        let provided = |(name, accepted): (&String, &Arc<Accepted>)| Provided {
            provider: name.clone(),
            texts: accepted.state.texts.iter().map(text).collect(),
        };
        with_texts.map(provided).collect()
    }

    /// Whether a provider wanted the same texts as in this state.
    pub(crate) fn has_texts(&self, provider: &str, state: &State) -> bool {
        self.by_name.get(provider).map_or(state.texts.is_empty(), |known| known.wanted.texts == state.texts)
    }

    /// Whether all providers give the same texts in both: then they differ in endpoints only.
    pub(crate) fn has_texts_of(&self, other: &Self) -> bool {
        let is_same = |name: &String| match (self.by_name.get(name), other.by_name.get(name)) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one.state.texts == two.state.texts,
            (one, two) => one.or(two).is_none_or(|only| only.state.texts.is_empty()),
        };
        self.by_name.keys().chain(other.by_name.keys()).all(is_same)
    }

    /// Whether a provider gives something else here than in `before`, or gives something for the first time.
    pub(crate) fn has_news_beside(&self, before: &Self) -> bool {
        let is_known = |(name, now): (&String, &Arc<Accepted>)| {
            let is_same = |known: &Accepted| known.state == now.state && known.wanted == now.wanted;
            before.by_name.get(name).is_some_and(|known| Arc::ptr_eq(known, now) || is_same(known))
        };
        !self.by_name.iter().all(is_known)
    }

    /// Gives the clusters of a snapshot their endpoints.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot, loaded: &Loaded) {
        // What is in it is whole at any time.
        let mut laid = self.laid.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *laid);
        for cluster in &mut snapshot.clusters {
            let Some(from) = &cluster.endpoints_from else { continue };
            let (provider, key) = (from.provider.as_str(), &*from.key);
            let typed = self.by_name.get(provider).and_then(|accepted| accepted.endpoints.get(key));
            let written = || loaded.provided_endpoints().get(&(provider.to_owned(), key.to_owned()));
            let Some(found) = typed.or_else(written) else { continue };
            let known = before.remove(&cluster.name);
            let is_same = |known: &Laid| Arc::ptr_eq(&known.bare, cluster) && Arc::ptr_eq(&known.endpoints, found);
            let now = known.filter(is_same).unwrap_or_else(|| Laid {
                bare: Arc::clone(cluster),
                endpoints: Arc::clone(found),
                whole: Arc::new(Cluster { endpoints: found.to_vec(), ..Cluster::clone(cluster) }),
            });
            *cluster = Arc::clone(&now.whole);
            laid.insert(cluster.name.clone(), now);
        }
    }

    /// How many endpoints each key of a provider has.
    pub(crate) fn counts<'a>(&'a self, loaded: &'a Loaded, provider: &'a str) -> HashMap<&'a str, usize> {
        let typed = self.by_name.get(provider).into_iter().flat_map(|accepted| &accepted.endpoints);
        let written = loaded.provided_endpoints().iter().filter(move |((name, _), _)| name == provider);
        let written = written.map(|((_, key), list)| (key.as_str(), list.len()));
        written.chain(typed.map(|(key, list)| (key.as_str(), list.len()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(before: &Given, texts: &[(&str, &str)], by_parts: bool) -> Given {
        let text = |(name, text): &(&str, &str)| Text {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
            ..Text::default()
        };
        let state = State { texts: texts.iter().map(text).collect(), by_parts, ..State::default() };
        without_names(|loader| before.with(loader, "store", Arc::new(state))).unwrap()
    }

    fn wrong(name: &str) -> Diagnostics {
        let file = config::place_of_provided("store", name);
        let one = Diagnostic {
            file,
            line: 1,
            column: 2,
            width: 1,
            line_text: String::new(),
            caret: 0,
            message: "it is bad".to_owned(),
            suggestion: None,
            is_warning: false,
            bond: None,
        };
        one.into()
    }

    fn shown(given: &Given) -> (Vec<(&str, &str)>, Vec<String>) {
        let accepted = &given.by_name["store"];
        let texts = accepted.state.texts.iter().map(|text| (text.name.as_str(), text.text.as_str()));
        (texts.collect(), accepted.left_out.values().cloned().collect())
    }

    #[test]
    fn a_part_that_is_wrong_is_as_it_was_and_then_left_out_and_told_once() {
        let before = given(&Given::default(), &[("a", "old")], true);
        let now = given(&before, &[("a", "new"), ("b", "new")], true);
        let less = now.without(&["store"], &wrong("a"), (&before, Beside::Nothing)).unwrap();
        assert_eq!(shown(&less), (vec![("a", "old"), ("b", "new")], vec!["a:1:2: it is bad".to_owned()]));
        assert!(
            less.without(&["store"], &wrong("a"), (&before, Beside::Nothing)).is_none(),
            "what is in force is not to blame while something is new"
        );
        let known = less.without_news(&["store"], &wrong("a"), &before).unwrap();
        let known = known.without(&["store"], &wrong("a"), (&before, Beside::Nothing)).unwrap();
        assert!(shown(&known).0.is_empty(), "what was in force can be right no more");
        assert!(
            known.without(&["store"], &wrong("a"), (&before, Beside::Nothing)).is_none(),
            "it is not there any more"
        );
        assert!(less.without(&["other"], &wrong("b"), (&before, Beside::Nothing)).is_none());
        let whole = given(&before, &[("a", "new")], false);
        assert!(whole.without(&["store"], &wrong("a"), (&before, Beside::Nothing)).is_none(), "it stands as a whole");
        // Other endpoints try no text again.
        let wanted = Arc::clone(less.lacking().next().unwrap().1);
        let again = without_names(|loader| less.with_endpoints(loader, "store", wanted)).unwrap();
        assert_eq!(shown(&again), shown(&less));
    }

    #[test]
    fn an_endpoint_that_is_taken_away_goes_also_from_a_list_that_is_wrong_now() {
        // Their ports and weights.
        let with = |before: &Given, all: &[(u16, u32)]| {
            let list: Vec<EndpointSettings> = all
                .iter()
                .map(|(port, weight)| EndpointSettings {
                    weight: *weight,
                    ..EndpointSettings::at(format!("127.0.0.1:{port}"))
                })
                .collect();
            let names: Vec<String> = all.iter().map(|(port, _)| port.to_string()).collect();
            let state = State {
                endpoints: [("web".to_owned(), list)].into(),
                names: [("web".to_owned(), names)].into(),
                by_parts: true,
                ..State::default()
            };
            without_names(|loader| before.with(loader, "store", Arc::new(state))).unwrap()
        };
        let shown = |given: &Given| {
            let accepted = &given.by_name["store"];
            let (names, found) = (accepted.state.names["web"].join(" "), &accepted.endpoints["web"]);
            let found: Vec<String> = found.iter().map(|one| format!("{}={}", one.address, one.weight)).collect();
            (names, found.join(" ").replace("127.0.0.1:", ""), accepted.left_out.values().cloned().collect::<Vec<_>>())
        };
        let told = vec!["the endpoints of `web`: all weights are 0".to_owned()];
        let all = with(&Given::default(), &[(1, 1), (2, 1), (3, 0)]);
        assert_eq!(shown(&all), ("1 2 3".to_owned(), "1=1 2=1 3=0".to_owned(), Vec::new()));
        let fewer = with(&all, &[(2, 0), (3, 0)]);
        assert_eq!(shown(&fewer), ("2 3".to_owned(), "2=1 3=0".to_owned(), told.clone()));
        // Without the last that had a weight there is no work for any.
        let none = with(&fewer, &[(3, 0)]);
        assert_eq!(shown(&none), ("3".to_owned(), "3=0".to_owned(), told.clone()));
        let same = with(&none, &[(3, 0)]);
        assert_eq!(shown(&same), ("3".to_owned(), "3=0".to_owned(), told.clone()), "it is told as long as it is so");
        assert_eq!(shown(&with(&none, &[(4, 0)])), ("4".to_owned(), "4=0".to_owned(), told));
        let again = with(&none, &[(3, 0), (4, 1)]);
        assert_eq!(shown(&again), ("3 4".to_owned(), "3=0 4=1".to_owned(), Vec::new()));
    }

    #[test]
    fn when_nobody_knows_which_part_is_wrong_those_in_force_stay() {
        let before = given(&Given::default(), &[("a", "old"), ("gone", "old")], true);
        let now = given(&before, &[("a", "old"), ("b", "new")], true);
        let less = now.without_news(&["store"], &wrong("x"), &before).unwrap();
        let told = "b: with others, provider:store:x:1: it is bad".to_owned();
        assert_eq!(shown(&less), (vec![("a", "old")], vec![told.clone()]));
        // Nor may it be known what is missing.
        let all = less.without_news(&["store"], &wrong("x"), &before).unwrap();
        let gone =
            "gone: was taken away, and stays as it was: with other changes, provider:store:x:1: it is bad".to_owned();
        assert_eq!(shown(&all), (vec![("a", "old"), ("gone", "old")], vec![told, gone]));
        assert!(all.without_news(&["store"], &wrong("x"), &before).is_none());
    }
}
