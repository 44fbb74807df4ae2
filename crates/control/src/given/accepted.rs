//! The accepted state of a provider.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use config::file::EndpointSettings;
use config::{Diagnostics, Loader};
use model::snapshot::Endpoint;

use super::state::{State, Text};

/// What of a provider is in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) state: Arc<State>,
    /// What the provider wanted: the same, if nothing is left out.
    pub(super) wanted: Arc<State>,
    /// Why parts are left out, or are as they were, by their names.
    pub(super) left_out: BTreeMap<String, String>,
    /// By key.
    pub(super) endpoints: BTreeMap<String, Arc<[Endpoint]>>,
}

/// A list of endpoints, their names if they have some, and what they came to.
type Listed = (Vec<EndpointSettings>, Vec<String>, Arc<[Endpoint]>);

impl Accepted {
    /// Resolves the endpoints of a state. Lists that are as in `before` are taken from there. Of a list that stands for itself and is wrong
    /// now, what it still has of `before` is taken from there.
    pub(super) fn of(
        loader: &Loader<'_>,
        provider: &str,
        wanted: Arc<State>,
        before: Option<&Self>,
    ) -> Result<Self, Diagnostics> {
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

    /// Returns a list without the endpoints that another no longer has. Returns `None` if nothing valid is left.
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

    /// Returns the same with the texts of another that wanted the same texts.
    pub(super) fn with_texts_of(mut self, other: &Self) -> Self {
        if self.state.texts != other.state.texts {
            Arc::make_mut(&mut self.state).texts.clone_from(&other.state.texts);
        }
        let of_texts = other.left_out.iter().filter(|(name, _)| !name.starts_with("endpoints/"));
        self.left_out.extend(of_texts.map(|(name, why)| (name.clone(), why.clone())));
        self
    }

    /// Returns the same with other texts, and with why parts are left out.
    pub(super) fn having(&self, texts: Vec<Text>, left_out: BTreeMap<String, String>) -> Self {
        let state = State { texts, ..State::clone(&self.state) };
        Self { state: state.into(), left_out, ..self.clone() }
    }

    pub(super) fn text(&self, name: &str) -> Option<&Text> {
        self.state.texts.iter().find(|text| text.name == name)
    }

    /// The texts that are not as they were `before`.
    pub(super) fn news<'a>(&'a self, before: Option<&'a Self>) -> impl Iterator<Item = &'a Text> {
        self.state.texts.iter().filter(move |text| before.and_then(|before| before.text(&text.name)) != Some(text))
    }
}

/// Returns the endpoints of a list whose only fault is that all weights are 0: they get no new work.
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
