//! Providers, as the owner of the configuration has to do with them.

use std::fmt::Display;
use std::sync::Arc;

use config::Loaded;
use model::Snapshot;

use super::Reconciler;
use crate::load::Candidate;
use crate::prepare::{self, Wanted};
use crate::providers::Inbox;

impl Reconciler {
    /// Returns what providers want.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(self.providers.inbox())
    }

    /// Starts the providers that the configuration names, and waits, within their bounds, for what they say first. To be called
    /// before the first configuration is prepared.
    ///
    /// # Errors
    /// Their thread cannot be started.
    pub fn await_providers(&mut self) -> std::io::Result<()> {
        let kept_in = self.persistence.folder();
        self.providers.begin(self.source.providers(), kept_in, &self.desired.given)
    }

    /// Returns whether a candidate has parts of a provider that are not accepted yet.
    pub fn has_news(&self, candidate: &Candidate) -> bool {
        candidate.desired.given.has_news_beside(&self.desired.given)
    }

    /// Has what providers want tried again that was taken with something else, of which nothing came.
    pub fn remind_of_providers(&self) {
        self.providers.inbox().remind();
    }

    /// Whether providers want something that did not fit.
    pub(super) fn has_open_wishes(&self) -> bool {
        self.desired.given.lacking().next().is_some() || self.providers.inbox().has_refused()
    }

    /// Logs what is not accepted, and why.
    pub fn refuse(&self, refused: &[(Wanted, impl Display)]) {
        prepare::refuse(self.providers.inbox(), refused);
    }

    /// The same of what the data plane did not take: it is tried again after a while.
    pub fn put_off(&self, refused: &[Wanted], why: &impl Display) {
        let why = why.to_string();
        refused.iter().for_each(|(name, state)| self.providers.inbox().put_off(name, state, &why));
    }

    /// Sets the providers of the active configuration.
    pub(super) fn follow_providers(&mut self, snapshot: &Snapshot, loaded: &Loaded) {
        let given = &self.desired.given;
        if let Err(error) = self.providers.follow(snapshot, given) {
            telemetry::log::error("providers cannot be started", &[("error", &error)]);
        }
        let asked = snapshot.asked();
        self.providers.inbox().settle(given, |status| {
            let counts = given.counts(loaded, &status.name);
            let asked = asked.iter().filter(|from| from.provider.as_str() == status.name);
            let missing = asked.filter(|from| !counts.contains_key(&*from.key)).map(|from| from.key.to_string());
            let mut missing: Vec<String> = missing.collect();
            let told = (counts.len(), counts.values().sum());
            missing.sort();
            missing.dedup();
            (status.missing, (status.keys, status.endpoints)) = (missing, told);
        });
    }
}
