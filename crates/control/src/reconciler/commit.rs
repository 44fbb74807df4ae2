//! Commit: makes a candidate the active configuration.
//!
//! ```text
//!  stage changes on disk → publish on all workers or on none → rename the staged file
//!    → canary, counters, probes, view, providers, names, file watch follow → history
//! ```
//! Whatever fails up to the publication leaves all as it was; nothing after it can fail.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Changes, Diagnostic, Loaded, Whole};

use super::{Reconciler, Running};
use crate::history::{Cause, Entry, Origin};
use crate::load::Candidate;
use crate::refusal::Refusal;
use crate::view::Shown;
use crate::watch::{Stamp, Watch};

impl Reconciler {
    /// Publishes a candidate and returns its generation.
    ///
    /// # Errors
    /// Why the data plane did not take it, or why it cannot be kept; the configuration before stays in force.
    pub fn commit(&mut self, candidate: Candidate, cause: impl Into<Cause>) -> Result<u64, String> {
        let Cause { origin, author, tried } = cause.into();
        let generation = candidate.plan.generation;
        let differences = Arc::new(self.differences(&candidate));
        let mut staged = self.persistence.stage(&candidate);
        if !matches!(
            origin,
            Origin::Provider | Origin::ProviderEndpoints | Origin::Names | Origin::Certificates | Origin::Files
        ) {
            // A change over the API fails if it cannot be saved. Any other change is applied all the same.
            staged = Ok(staged.inspect_err(|_| self.view.count_refused())?);
        }
        let folder = candidate.state_folder().cloned();
        let Candidate { loaded, plan, read_from, desired, tried: beside, admin_tls } = candidate;
        self.publisher.publish(Arc::clone(&plan)).inspect_err(|_| self.view.count_refused())?;
        self.persistence.finish(folder, staged, &desired);
        // Not before: a change that fails ends nothing.
        let probed = self.try_on(beside, &plan);
        self.view.telemetry().retain(&plan.snapshot);
        self.probes.follow(probed);
        let (text, revision) = self.text_and_revision(&loaded, generation);
        let (at, kept) = (SystemTime::now(), Some(text.clone()));
        let entry = Entry { generation, at, origin, author, differences, tried, text: kept };
        let shown = Shown {
            loaded: Some(Arc::clone(&loaded)),
            revision,
            desired: Arc::new(desired.clone()),
            admin_tls: admin_tls.clone(),
        };
        // Logged once it holds for callers of the API too: a token that was removed opens nothing after this line.
        let changes =
            matches!(origin, Origin::Start | Origin::Upgrade | Origin::Reload).then(|| desired.changes.clone());
        self.view.set_running(Arc::clone(&plan), shown, entry.clone());
        tell_generation(&entry);
        changes.iter().for_each(tell_changes);
        self.tell_warnings(&loaded, origin);
        self.desired = desired;
        self.follow_providers(&plan.snapshot, &loaded);
        self.follow_names(&plan.snapshot);
        if matches!(origin, Origin::Api | Origin::Rollback) && self.has_open_wishes() {
            // Obstacles may be gone, and missing objects may exist now. Reading the files again tries the refused states by itself.
            self.providers.inbox().try_again();
        }
        let watch = match (read_from, self.running.take()) {
            (None, Some(running)) => running.watch,
            (read_from, _) => {
                let read_from = read_from.unwrap_or_else(SystemTime::now);
                Watch::new(loaded.referenced_files().to_vec(), read_from, Stamp::of)
            }
        };
        self.running = Some(Running { loaded, plan, generation, revision, text, admin_tls, watch });
        self.follow_token_keys();
        self.follow_peers();
        // One that follows another process may not come to go on: see `keep_history`.
        if origin != Origin::Upgrade {
            self.keep_history();
        }
        Ok(generation)
    }

    /// Logs settings that do nothing: all of them when files were read, otherwise new ones.
    fn tell_warnings(&self, loaded: &Loaded, origin: Origin) {
        let before =
            self.running.as_ref().filter(|_| !matches!(origin, Origin::Start | Origin::Upgrade | Origin::Reload));
        if before.is_some_and(|before| std::ptr::eq(&*before.loaded, loaded)) {
            return;
        }
        let before = before.map_or(&[][..], |before| before.loaded.warnings());
        let told: HashSet<&str> = before.iter().map(|warning| warning.message.as_str()).collect();
        loaded.warnings().iter().filter(|warning| !told.contains(warning.message.as_str())).for_each(tell);
    }

    /// Returns the text of a new configuration and the generation that brought it, which is the one before if it says the same.
    fn text_and_revision(&self, loaded: &Arc<Loaded>, generation: u64) -> (Whole, u64) {
        let says_same = |running: &&Running| Arc::ptr_eq(&running.loaded, loaded) || running.loaded.says_same(loaded);
        match self.running.as_ref().filter(says_same) {
            // The new configuration holds the documents that were read again; the old ones are freed.
            Some(running) if running.loaded.has_files_of(loaded) => (running.text.clone(), running.revision),
            Some(running) => (loaded.whole(), running.revision),
            None => (loaded.whole(), generation),
        }
    }

    /// Reads the configuration again and publishes it, whether it changed or not: names may have new addresses.
    ///
    /// # Errors
    /// Why what ran before still runs.
    pub fn reload(&mut self) -> Result<u64, Refusal> {
        let candidate = self.prepare()?;
        self.commit(candidate, Origin::Reload).map_err(Refusal::Unpublished)
    }
}

fn tell_generation(entry: &Entry) {
    let (generation, origin) = (entry.generation, entry.origin.as_str());
    match &entry.author {
        Some(author) => {
            let pairs: telemetry::log::Pairs<'_> = &[("generation", &generation), ("origin", &origin), ("by", author)];
            telemetry::log::info("configuration is live", pairs);
        }
        None => telemetry::log::info("configuration is live", &[("generation", &generation), ("origin", &origin)]),
    }
}

/// Logs which parts of the files the API hides.
fn tell_changes(changes: &Changes) {
    let places: Vec<&str> = changes.places().map(|(place, _)| place).collect();
    if let Some(first) = places.first() {
        let pairs: telemetry::log::Pairs<'_> = &[("objects", &places.len()), ("first", first)];
        telemetry::log::info("API changes override the files", pairs);
    }
}

/// Logs a setting that does nothing.
fn tell(warning: &Diagnostic) {
    let at = format!("{}:{}:{}", warning.file, warning.line, warning.column);
    let message = "a setting does nothing";
    match &warning.suggestion {
        Some(help) => telemetry::log::warn(message, &[("at", &at), ("why", &warning.message), ("help", help)]),
        None => telemetry::log::warn(message, &[("at", &at), ("why", &warning.message)]),
    }
}
