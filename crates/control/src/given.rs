//! Given: the accepted states of the providers, and what they want.

mod accepted;
mod blame;
mod merged_clusters;
mod partial;
mod settle;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use config::{Diagnostics, Loaded, Loader, Provided, ProvidedText};
use model::Snapshot;

use accepted::Accepted;
use merged_clusters::MergedClusters;

pub(crate) use settle::{Attempt, Beside, settle};
pub use state::{State, Text};

/// The accepted state of each provider, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    by_name: BTreeMap<String, Arc<Accepted>>,
    merged_clusters: Arc<MergedClusters>,
}

impl PartialEq for Given {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl Given {
    /// Returns the same with another state of one provider.
    ///
    /// # Errors
    /// Its endpoints are wrong.
    pub(crate) fn with(&self, loader: &Loader<'_>, provider: &str, state: Arc<State>) -> Result<Self, Diagnostics> {
        let accepted = Accepted::of(loader, provider, state, self.by_name.get(provider).map(|known| &**known))?;
        Ok(self.having(provider, accepted))
    }

    /// Returns the same with other endpoints of one provider, whose texts are those that it wanted before.
    ///
    /// # Errors
    /// As [`Self::with`].
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

    /// Returns the same with another state of one provider.
    fn having(&self, provider: &str, accepted: Accepted) -> Self {
        let mut given = self.clone();
        given.by_name.insert(provider.to_owned(), Arc::new(accepted));
        given
    }

    /// Returns the accepted state of a provider.
    fn accepted(&self, name: &str) -> Option<&Accepted> {
        self.by_name.get(name).map(|accepted| &**accepted)
    }

    /// Returns the states of which parts are left out.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = (&str, &Arc<State>)> {
        let lacking = self.by_name.iter().filter(|(_, accepted)| !accepted.left_out.is_empty());
        lacking.map(|(name, accepted)| (name.as_str(), &accepted.wanted))
    }

    /// Returns for each provider what it wanted, how many of its texts are active, and what is left out and why.
    pub(crate) fn settled(&self) -> impl Iterator<Item = (&str, &Arc<State>, usize, Vec<String>)> {
        self.by_name.iter().map(|(name, accepted)| {
            let left_out = accepted.left_out.values().cloned().collect();
            (name.as_str(), &accepted.wanted, accepted.state.texts.len(), left_out)
        })
    }

    /// Returns all states.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, &Arc<State>)> {
        self.by_name.iter().map(|(name, accepted)| (name.as_str(), &accepted.state))
    }

    /// Forgets providers that are no more.
    pub(crate) fn retain(&mut self, snapshot: &Snapshot) {
        self.by_name.retain(|name, _| snapshot.providers.iter().any(|provider| provider.name.as_str() == name));
    }

    /// Returns the texts of all.
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

    /// Returns whether a provider wanted the same texts as in this state.
    pub(crate) fn has_texts(&self, provider: &str, state: &State) -> bool {
        self.by_name.get(provider).map_or(state.texts.is_empty(), |known| known.wanted.texts == state.texts)
    }

    /// Returns whether all providers give the same texts in both: then they differ in endpoints only.
    pub(crate) fn has_texts_of(&self, other: &Self) -> bool {
        let is_same = |name: &String| match (self.by_name.get(name), other.by_name.get(name)) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one.state.texts == two.state.texts,
            (one, two) => one.or(two).is_none_or(|only| only.state.texts.is_empty()),
        };
        self.by_name.keys().chain(other.by_name.keys()).all(is_same)
    }

    /// Returns whether a provider gives something else here than in `before`, or gives something for the first time.
    pub(crate) fn has_news_beside(&self, before: &Self) -> bool {
        let is_known = |(name, now): (&String, &Arc<Accepted>)| {
            let is_same = |known: &Accepted| known.state == now.state && known.wanted == now.wanted;
            before.by_name.get(name).is_some_and(|known| Arc::ptr_eq(known, now) || is_same(known))
        };
        !self.by_name.iter().all(is_known)
    }

    /// Gives the clusters of a snapshot their endpoints.
    pub(crate) fn apply(&self, snapshot: &mut Snapshot, loaded: &Loaded) {
        self.merged_clusters.apply(snapshot, |provider, key| {
            let typed = self.accepted(provider).and_then(|accepted| accepted.endpoints.get(key));
            typed.or_else(|| loaded.provided_endpoints().get(&(provider.to_owned(), key.to_owned())))
        });
    }

    /// Returns how many endpoints each key of a provider has.
    pub(crate) fn counts<'a>(&'a self, loaded: &'a Loaded, provider: &'a str) -> HashMap<&'a str, usize> {
        let typed = self.by_name.get(provider).into_iter().flat_map(|accepted| &accepted.endpoints);
        let written = loaded.provided_endpoints().iter().filter(move |((name, _), _)| name == provider);
        let written = written.map(|((_, key), list)| (key.as_str(), list.len()));
        written.chain(typed.map(|(key, list)| (key.as_str(), list.len()))).collect()
    }
}

#[cfg(test)]
mod tests;
