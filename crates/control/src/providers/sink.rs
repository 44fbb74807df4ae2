//! The handle through which a provider publishes what it wants.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::watch;

use super::inbox::Inbox;
use crate::given::State;

/// The keys that clusters ask of a provider.
pub(crate) type Keys = Arc<BTreeSet<Arc<str>>>;

/// Publishes what a provider wants, and tells it which keys are asked of it.
pub(crate) struct Sink {
    pub(super) name: String,
    pub(super) inbox: Arc<Inbox>,
    pub(super) keys: watch::Receiver<Keys>,
}

#[allow(dead_code, reason = "not every provider needs all of it")]
impl Sink {
    /// The name of the provider.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Everything that is wanted from now on. The same as before says only that the provider is up.
    pub(crate) fn send(&self, state: State) {
        self.inbox.send(&self.name, state, None);
    }

    /// The same where not all could be asked for: what was known of the rest is among it.
    pub(crate) fn send_lacking(&self, state: State, why: &str) {
        self.inbox.send(&self.name, state, Some(why));
    }

    /// What of that is left out because it is wrong by itself: sentences.
    pub(crate) fn leave_out(&self, problems: Vec<String>) {
        self.inbox.leave_out(&self.name, problems);
    }

    /// It was asked, and wants nothing new.
    pub(crate) fn unchanged(&self) {
        self.inbox.unchanged(&self.name);
    }

    /// It cannot be asked; what it said last stays.
    pub(crate) fn failed(&self, why: impl Display) {
        self.inbox.failed(&self.name, &why.to_string());
    }

    /// Its last state, or the cached one: a provider that starts again uses it for keys it cannot query now.
    pub(crate) fn known(&self) -> Arc<State> {
        self.inbox.known(&self.name)
    }

    /// The keys that clusters ask of it: `endpoints: { from: NAME, key: KEY }`.
    pub(crate) fn asked(&mut self) -> Keys {
        Arc::clone(&self.keys.borrow_and_update())
    }

    /// Waits until other keys are asked than at the last call of [`Sink::asked`].
    pub(crate) async fn asked_changed(&mut self) {
        if self.keys.changed().await.is_err() {
            // The owner is gone; so will be this task.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
impl Sink {
    /// That of a provider of which this was kept.
    pub(super) fn after(kept: State) -> Self {
        let (name, inbox) = ("test".to_owned(), Arc::new(Inbox::default()));
        inbox.set_providers(&[(&name, "test")]);
        inbox.set_kept(&name, kept);
        let (_, keys) = watch::channel(Keys::default());
        Self { name, inbox, keys }
    }
}
