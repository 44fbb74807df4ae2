//! What a provider wants, and what of it is in force.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use config::file::EndpointSettings;
use config::{Diagnostics, Loaded, Loader, Provided, ProvidedText};
use model::snapshot::{Cluster, Endpoint};
use model::{Name, Snapshot};
use serde::{Deserialize, Serialize};

use crate::load;

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
            let found = load::without_names(|loader| loader.endpoints_alone(&text.text, has_environment));
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
    /// By key.
    endpoints: BTreeMap<String, Arc<[Endpoint]>>,
}

/// What of all providers is in force, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    by_name: BTreeMap<String, Arc<Accepted>>,
    laid: Arc<Mutex<HashMap<Name, Laid>>>,
}

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
    /// Understands the endpoints of a state. Those that are as in `before` are taken from there.
    fn of(loader: &Loader<'_>, provider: &str, state: Arc<State>, before: Option<&Self>) -> Result<Self, Diagnostics> {
        let mut endpoints = BTreeMap::new();
        for (key, list) in &state.endpoints {
            let known = before.filter(|before| before.state.endpoints.get(key) == Some(list));
            let found = match known.and_then(|before| before.endpoints.get(key)) {
                Some(known) => Arc::clone(known),
                None => loader.endpoints(provider, key, list)?,
            };
            endpoints.insert(key.clone(), found);
        }
        Ok(Self { state, endpoints })
    }
}

impl Given {
    /// With another state of one provider.
    pub(crate) fn with(&self, loader: &Loader<'_>, provider: &str, state: Arc<State>) -> Result<Self, Diagnostics> {
        let accepted = Accepted::of(loader, provider, state, self.by_name.get(provider).map(|known| &**known))?;
        let mut given = self.clone();
        given.by_name.insert(provider.to_owned(), Arc::new(accepted));
        Ok(given)
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

    /// Whether a provider would give the same texts with this state as it does.
    pub(crate) fn has_texts(&self, provider: &str, state: &State) -> bool {
        self.by_name.get(provider).map_or(state.texts.is_empty(), |known| known.state.texts == state.texts)
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
            before.by_name.get(name).is_some_and(|known| Arc::ptr_eq(known, now) || known.state == now.state)
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
