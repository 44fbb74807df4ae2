//! The owner of the running configuration.
//!
//! ```text
//!  prepare: read → resolve → compile → inspect     any failure: all diagnostics; what runs stays
//!  commit:  publish on all workers or on none → counters, probes and view follow → a new generation
//! ```

mod canary;
mod commit;
mod files;
mod handover;
mod named;
mod peers;
mod persistence;
mod provided;
mod token_keys;
mod trial;
mod watched;

use std::io;
use std::path::Path;
use std::sync::Arc;

use config::{Diagnostics, Loaded, Whole};
use plan::{Plan, Publisher};

use crate::admin_tls::AdminTls;
use crate::difference::Differences;
use crate::effects::Effects;
use crate::load::{Candidate, Inspect, Next, Source};
use crate::names::Follower;
use crate::orders::Change;
use crate::overrides::Desired;
use crate::peers::Peers;
use crate::prepare::Preparation;
use crate::probes::Probes;
use crate::providers::Providers;
use crate::token_keys::TokenKeys;
use crate::view::View;
use crate::watch::Watch;

use persistence::Persistence;
use trial::Trial;
use watched::Watched;

pub use handover::ConfigurationHandover;

/// Reads, publishes and keeps the configuration that runs. One thread owns it.
pub struct Reconciler {
    source: Source,
    inspect: Inspect,
    publisher: Publisher,
    view: View,
    probes: Probes,
    providers: Providers,
    /// Looks host names of endpoints up again.
    names: Follower,
    /// Fetches keys that verify tokens.
    token_keys: TokenKeys,
    /// Replicates tables.
    peers: Peers,
    /// What is desired beside the files.
    desired: Desired,
    /// What of that is saved, and the history.
    persistence: Persistence,
    /// The last generation of the predecessor, or of the process before.
    generation_before: u64,
    running: Option<Running>,
    /// The canary, if one is running.
    trial: Option<Trial>,
    /// The files of the configuration, if they are watched.
    watched: Option<Watched>,
}

struct Running {
    loaded: Arc<Loaded>,
    plan: Arc<Plan>,
    generation: u64,
    /// The generation that brought the configuration as it is, and that as a text.
    revision: u64,
    text: Whole,
    admin_tls: Option<Arc<AdminTls>>,
    watch: Watch,
}

impl Reconciler {
    /// Creates an owner that runs nothing yet, and reads what was saved: changes beside the files, and the history.
    ///
    /// # Errors
    /// The thread of the probes cannot be started, what was saved cannot be read.
    pub fn new(source: Source, inspect: Inspect, publisher: Publisher, view: View) -> io::Result<Self> {
        let (persistence, found) = Persistence::read(source.state_folder())?;
        view.remember(found.history);
        // After a crash the history, which is written after a pause, may be behind the changes.
        let generation_before = view.generation().max(found.generation);
        let probes = Probes::start(view.reasons())?;
        let (providers, names, peers) = (Providers::default(), Follower::default(), Peers::default());
        view.set_peers(peers.shared().clone());
        view.set_inboxes(Arc::clone(providers.inbox()), names.inbox());
        Ok(Self {
            source,
            inspect,
            publisher,
            view,
            probes,
            providers,
            names,
            token_keys: TokenKeys::default(),
            peers,
            desired: found.desired,
            persistence,
            generation_before,
            running: None,
            trial: None,
            watched: None,
        })
    }

    /// Returns what prepares candidates from what runs now.
    pub fn preparation(&self) -> Preparation {
        let running = self.running.as_ref().map(|running| (Arc::clone(&running.loaded), Arc::clone(&running.plan)));
        Preparation {
            source: self.source.clone(),
            inspect: self.inspect,
            desired: self.desired.clone(),
            running,
            admin_tls: self.running.as_ref().and_then(|running| running.admin_tls.clone()),
            generation: self.next().generation,
            view: self.view.clone(),
            inbox: Arc::clone(self.providers.inbox()),
            names: Arc::clone(self.names.book()),
            takes_news: true,
            tried: self.trial.as_ref().map(|trial| trial.candidate.as_tried()),
        }
    }

    /// Reads the configuration again and prepares it; changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn prepare(&self) -> Result<Candidate, Diagnostics> {
        self.preparation().prepare()
    }

    /// Counts a refused configuration that was to be applied.
    pub fn count_refused(&self) {
        self.view.count_refused();
    }

    /// Returns what a candidate would do to what is alive.
    pub fn effects(&self, candidate: &Candidate) -> Effects {
        self.running.as_ref().map(|running| Effects::of(&running.plan, &candidate.plan)).unwrap_or_default()
    }

    /// Returns what a candidate differs in from what runs.
    pub fn differences(&self, candidate: &Candidate) -> Differences {
        let Some(running) = &self.running else { return <_>::default() };
        let mut differences = match Arc::ptr_eq(&running.loaded, &candidate.loaded) {
            true => Differences::default(),
            false => {
                let (before, after) = running.loaded.sealed_beside(&candidate.loaded);
                Differences::between(&before, &after)
            }
        };
        differences.add_wishes(&self.desired.wishes, &candidate.desired.wishes);
        differences
    }

    /// Returns whether what a change asks for is there already.
    pub fn is_there(&self, change: &Change, candidate: &Candidate) -> bool {
        let (now, then) = (&self.desired.changes, &candidate.desired.changes);
        let is_put = match change {
            // It is kept as it was sent, comments included.
            Change::ReplaceObject { .. } => now == then,
            Change::Replace(_) | Change::Endpoints { .. } => now.places().eq(then.places()),
            _ => false,
        };
        is_put && self.is_in_force(candidate)
    }

    /// Returns whether a candidate equals the active configuration.
    pub fn is_in_force(&self, candidate: &Candidate) -> bool {
        let Some(running) = &self.running else { return false };
        running.loaded.says_same(&candidate.loaded) && running.plan.snapshot == candidate.plan.snapshot
    }

    /// Returns the folder of the changes beside the files, if there are any.
    pub fn changes_from(&self) -> Option<&Path> {
        self.persistence.folder().filter(|_| !self.desired.is_empty())
    }

    /// Returns the generation that brought the configuration as it is; 0 before the first.
    pub fn revision(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.revision)
    }

    /// Returns what others may read.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Saves the history. One that follows another process calls it once it is known that it goes on: otherwise the other goes on and saves
    /// its own.
    pub fn keep_history(&mut self) {
        self.persistence.write_history(&self.view);
    }

    /// Tries again to save what could not be saved. To be called about once a second.
    pub fn keep_again(&mut self) {
        let generation = self.generation();
        self.persistence.retry(&self.desired, generation);
    }

    /// Returns why the active configuration is not saved for the next start.
    pub fn not_kept(&self) -> Option<String> {
        self.persistence.failure()
    }

    /// The active generation, or the last one of the predecessor.
    fn generation(&self) -> u64 {
        self.running.as_ref().map_or(self.generation_before, |running| running.generation)
    }

    /// The active plan and the number of the next generation.
    fn next(&self) -> Next<'_> {
        let (previous, running, generation) = match &self.running {
            Some(running) => (Some(&*running.plan), Some(&*running.loaded), running.generation + 1),
            None => (None, None, self.generation_before + 1),
        };
        let admin_tls = self.running.as_ref().and_then(|running| running.admin_tls.as_ref());
        Next { previous, running, admin_tls, generation, inspect: self.inspect }
    }
}

#[cfg(test)]
mod tests;
