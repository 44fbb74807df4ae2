//! The owner of the running configuration.
//!
//! ```text
//!  prepare: read → resolve → compile → inspect     any failure: all diagnostics; what runs stays
//!  commit:  publish on all workers or on none → counters, probes and view follow → a new generation
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use config::{Changes, Diagnostic, Diagnostics, Loaded};
use plan::{Plan, Publisher};

use crate::desk::Change;
use crate::difference::Differences;
use crate::effects::Effects;
use crate::history::{Entry, Origin};
use crate::keep::{self, Desired, Staged};
use crate::load::{self, Candidate, Inspect, Source};
use crate::probes::Probes;
use crate::view::{Shown, View};
use crate::watch::{Stamp, Watch};

/// Why a configuration does not run.
#[derive(Debug)]
pub enum Refusal {
    /// It is wrong.
    Bad(Diagnostics),
    /// It is right, but the data plane could not take it: an address is in use, a log cannot be opened.
    Unpublished(String),
    /// It was meant for another configuration than the one that this generation brought.
    Stale(u64),
    /// What it is about is not there.
    Missing {
        /// A sentence.
        message: String,
        /// What may have been meant.
        suggestion: Option<String>,
    },
    /// The program is ending.
    Ending,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(diagnostics) => diagnostics.fmt(f),
            Self::Unpublished(reason) => f.write_str(reason),
            Self::Stale(revision) => write!(f, "the configuration was changed by generation {revision}"),
            Self::Missing { message, .. } => f.write_str(message),
            Self::Ending => f.write_str("the program is ending"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Diagnostics> for Refusal {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Bad(diagnostics)
    }
}

/// Reads, publishes and keeps the configuration that runs. One thread owns it.
pub struct Reconciler {
    source: Source,
    inspect: Inspect,
    publisher: Publisher,
    view: View,
    probes: Probes,
    /// What is desired beside the files.
    desired: Desired,
    /// The folder in which that is kept, as far as it is.
    kept_in: Option<PathBuf>,
    running: Option<Running>,
}

struct Running {
    loaded: Loaded,
    plan: Arc<Plan>,
    generation: u64,
    /// The generation that brought the configuration as it is, and that as a text.
    revision: u64,
    text: Arc<str>,
    watch: Watch,
}

/// What makes a generation, and who.
#[derive(Clone, Debug)]
pub struct Cause {
    /// What.
    pub origin: Origin,
    /// Who, if it comes by the API.
    pub author: Option<Arc<str>>,
}

impl From<Origin> for Cause {
    fn from(origin: Origin) -> Self {
        Self { origin, author: None }
    }
}

impl Reconciler {
    /// An owner that runs nothing yet. What was kept of changes beside the files is read.
    ///
    /// # Errors
    /// The thread of the probes cannot be started, what was kept cannot be read.
    pub fn new(source: Source, inspect: Inspect, publisher: Publisher, view: View) -> io::Result<Self> {
        let kept_in = source.state_folder();
        let desired = kept_in.as_deref().map(keep::read).transpose()?.unwrap_or_default();
        let probes = Probes::start(view.reasons())?;
        Ok(Self { source, inspect, publisher, view, probes, desired, kept_in, running: None })
    }

    /// Reads the configuration anew and makes it ready; changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn prepare(&self) -> Result<Candidate, Diagnostics> {
        load::prepare_with(&self.source, self.desired.clone(), self.next(), self.inspect)
            .inspect_err(|_| self.view.count_refused())
    }

    /// Makes ready what somebody asks for; changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it, or that what it is about is not there.
    pub fn prepare_change(&self, change: &Change, author: &str) -> Result<(Candidate, Origin), Refusal> {
        if *change == Change::Reload {
            let candidate = load::prepare_with(&self.source, self.desired.clone(), self.next(), self.inspect)?;
            return Ok((candidate, Origin::Reload));
        }
        let Some(running) = &self.running else { return Err(Refusal::Ending) };
        let mut desired = self.desired.clone();
        if let Change::Wish { cluster, endpoint, state } = change {
            find_endpoint(&running.plan, cluster, Some(endpoint))?;
            desired.wishes.set((cluster, endpoint), *state, author, SystemTime::now());
            let candidate = load::prepare_wishes(&running.loaded, desired, self.next(), self.inspect);
            return Ok((candidate?, Origin::Endpoint));
        }
        let (changes, origin) = self.wanted(running, change)?;
        desired.changes = changes;
        let candidate = load::prepare_changed(&running.loaded, desired, self.next(), self.inspect);
        Ok((candidate?, origin))
    }

    /// What is to stand beside the files after a change of the configuration.
    fn wanted(&self, running: &Running, change: &Change) -> Result<(Changes, Origin), Refusal> {
        let (loaded, changes) = (&running.loaded, &self.desired.changes);
        let wanted = match change {
            Change::Replace(text) => load::with_known(loaded, |loader| loader.replace(loaded, text))?,
            Change::ReplaceObject { kind, name, text } => {
                if text.is_none() {
                    find_object(loaded, kind, name)?;
                }
                let at = (*kind, name.as_str());
                load::with_known(loaded, |loader| loader.replace_object(loaded, changes, at, text.as_deref()))?
            }
            Change::Rollback(generation) => {
                let text = self.text_of(*generation)?;
                let changes = load::with_known(loaded, |loader| loader.go_back(loaded, &text))?;
                return Ok((changes, Origin::Rollback));
            }
            Change::Endpoints { cluster, edit } => {
                let name = match edit {
                    config::EndpointEdit::Add(_) => None,
                    config::EndpointEdit::Remove(name) | config::EndpointEdit::Weight(name, _) => Some(name.as_str()),
                };
                find_endpoint(&running.plan, cluster, name)?;
                let edited = load::with_known(loaded, |loader| loader.edit_endpoints(loaded, changes, cluster, edit))?;
                edited.ok_or_else(|| missing("the endpoint is not in the configuration".to_owned(), None))?
            }
            Change::Reset | Change::Reload | Change::Wish { .. } => Changes::default(),
        };
        Ok((wanted, Origin::Api))
    }

    fn text_of(&self, generation: u64) -> Result<Arc<str>, Refusal> {
        let entries = self.view.generations();
        let known: Vec<u64> =
            entries.iter().filter(|entry| entry.text.is_some()).map(|entry| entry.generation).collect();
        let found = entries.into_iter().find(|entry| entry.generation == generation).and_then(|entry| entry.text);
        found.ok_or_else(|| {
            let range = known.iter().min().zip(known.iter().max());
            let help = range.map(|(first, last)| format!("generations {first} to {last} are remembered"));
            missing(format!("generation {generation} is not remembered"), help)
        })
    }

    /// Counts one that was refused, when it was meant to be put into force.
    pub fn count_refused(&self) {
        self.view.count_refused();
    }

    /// What a candidate differs in from what runs, and what it would do to what is alive.
    pub fn compare(&self, candidate: &Candidate) -> (Differences, Effects) {
        let Some(running) = &self.running else { return <_>::default() };
        let mut differences = Differences::between(&running.loaded.effective(), &candidate.loaded.effective());
        differences.add_wishes(&self.desired.wishes, &candidate.desired.wishes);
        (differences, Effects::of(&running.plan, &candidate.plan))
    }

    /// Where changes beside the files were read from, if there are any.
    pub fn changes_from(&self) -> Option<&Path> {
        self.kept_in.as_deref().filter(|_| !self.desired.is_empty())
    }

    /// The generation that brought the configuration as it is; 0 before the first.
    pub fn revision(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.revision)
    }

    /// Publishes a candidate and gives it its generation.
    ///
    /// # Errors
    /// Why the data plane did not take it, or why it cannot be kept; the configuration before stays in force.
    pub fn commit(&mut self, candidate: Candidate, cause: impl Into<Cause>) -> Result<u64, String> {
        let Cause { origin, author } = cause.into();
        let generation = self.next().1;
        let differences = Arc::new(self.compare(&candidate).0);
        let staged = self.stage(&candidate).inspect_err(|_| self.view.count_refused())?;
        let Candidate { loaded, plan, read_from, desired } = candidate;
        self.publisher.publish(Arc::clone(&plan)).inspect_err(|_| self.view.count_refused())?;
        if let Some(Err(error)) = staged.map(Staged::finish) {
            telemetry::log::error("changes by the API are in force, but cannot be kept", &[("error", &error)]);
        }
        self.view.telemetry().retain(&plan.snapshot);
        self.probes.follow(Arc::clone(&plan));
        let (text, revision) = self.text_and_revision(&loaded, generation);
        let entry = Entry { generation, at: SystemTime::now(), origin, author, differences, text: Some(text.clone()) };
        let shown = Shown {
            effective: Arc::new(loaded.effective()),
            written: Arc::new(loaded.written(&plan::filter::specs())),
            revision,
            desired: Arc::new(desired.clone()),
        };
        // Told when it is so for callers of the API too: a token that was taken away opens nothing after this line.
        let changes = matches!(origin, Origin::Start | Origin::Reload).then(|| desired.changes.clone());
        self.view.set_running(Arc::clone(&plan), shown, entry.clone());
        tell_generation(&entry);
        changes.iter().for_each(tell_changes);
        // Neither certificates nor wishes change anything of it.
        if !matches!(origin, Origin::Certificates | Origin::Endpoint) {
            loaded.warnings().iter().for_each(tell);
        }
        self.kept_in = plan.snapshot.admin.as_ref().and_then(|admin| admin.state.clone());
        self.desired = desired;
        let watch = match (read_from, self.running.take()) {
            (None, Some(running)) => running.watch,
            (read_from, _) => {
                let read_from = read_from.unwrap_or_else(SystemTime::now);
                Watch::new(loaded.referenced_files().to_vec(), read_from, Stamp::of)
            }
        };
        self.running = Some(Running { loaded, plan, generation, revision, text, watch });
        Ok(generation)
    }

    /// Writes what is desired to the disk, where that has changed.
    fn stage(&self, candidate: &Candidate) -> Result<Option<Staged>, String> {
        let Some(folder) = candidate.plan.snapshot.admin.as_ref().and_then(|admin| admin.state.as_ref()) else {
            return Ok(None);
        };
        let is_there = self.kept_in.as_ref() == Some(folder) && self.desired == candidate.desired;
        if is_there || (candidate.desired.is_empty() && self.desired.is_empty()) {
            return Ok(None);
        }
        let failed = |error| format!("cannot keep changes in {}: {error}", folder.display());
        keep::stage(folder, &candidate.desired).map(Some).map_err(failed)
    }

    /// The text of a new configuration, and the generation that brought it: the one before, if it says the same.
    fn text_and_revision(&self, loaded: &Loaded, generation: u64) -> (Arc<str>, u64) {
        let text = loaded.text();
        match &self.running {
            Some(running) if *running.text == *text => (Arc::clone(&running.text), running.revision),
            _ => (text.into(), generation),
        }
    }

    /// Reads the configuration anew and publishes it, whether it changed or not: names may have new addresses.
    ///
    /// # Errors
    /// Why what ran before still runs.
    pub fn reload(&mut self) -> Result<u64, Refusal> {
        let candidate = self.prepare()?;
        self.commit(candidate, Origin::Reload).map_err(Refusal::Unpublished)
    }

    /// Looks whether certificate files have changed, and publishes them if they have. To be called once a second or so.
    /// `Ok(None)`: nothing to do.
    ///
    /// # Errors
    /// Why the new files are not used, once for each change: a key that does not match, a file that is no certificate.
    pub fn look_at_files(&mut self) -> Result<Option<u64>, Refusal> {
        let Some(running) = &mut self.running else { return Ok(None) };
        if !running.watch.look(Stamp::of) {
            return Ok(None);
        }
        let running = &*running;
        let generation = running.generation + 1;
        let next = (Some(&*running.plan), generation);
        let candidate = load::prepare_files(&running.loaded, self.desired.clone(), next, self.inspect)
            .inspect_err(|_| self.view.count_refused())?;
        if candidate.plan.snapshot == running.plan.snapshot {
            return Ok(None);
        }
        self.commit(candidate, Origin::Certificates).map(Some).map_err(Refusal::Unpublished)
    }

    /// What others may read.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The plan in force and the number of the next generation.
    fn next(&self) -> (Option<&Plan>, u64) {
        match &self.running {
            Some(running) => (Some(&running.plan), running.generation + 1),
            None => (None, 1),
        }
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

/// Who edits a file is told when the API hides a part of it.
fn tell_changes(changes: &Changes) {
    let places: Vec<&str> = changes.places().map(|(place, _)| place).collect();
    if let Some(first) = places.first() {
        let pairs: telemetry::log::Pairs<'_> = &[("objects", &places.len()), ("first", first)];
        telemetry::log::info("changes by the API stand before the files", pairs);
    }
}

fn missing(message: String, suggestion: Option<String>) -> Refusal {
    Refusal::Missing { message, suggestion }
}

/// Whether the object is there.
fn find_object(loaded: &Loaded, kind: &str, name: &str) -> Result<(), Refusal> {
    let snapshot = &loaded.snapshot;
    let names: Vec<&str> = match kind {
        "listeners" => snapshot.listeners.iter().map(|listener| listener.name.as_str()).collect(),
        "clusters" => snapshot.clusters.iter().map(|cluster| cluster.name.as_str()).collect(),
        _ => snapshot.routes.iter().map(|route| route.name.as_str()).collect(),
    };
    if names.contains(&name) {
        return Ok(());
    }
    let kind = kind.trim_end_matches('s');
    Err(missing(format!("there is no {kind} `{name}`"), config::did_you_mean(name, names)))
}

/// Whether the cluster is there, and the endpoint in it.
fn find_endpoint(plan: &Plan, cluster: &str, endpoint: Option<&str>) -> Result<(), Refusal> {
    let Some(found) = plan.cluster(cluster) else {
        let names: Vec<&str> = plan.clusters.iter().map(|plan| plan.cluster.name.as_str()).collect();
        return Err(missing(format!("there is no cluster `{cluster}`"), config::did_you_mean(cluster, names)));
    };
    let names: Vec<&str> = found.endpoints.iter().map(|plan| plan.endpoint.name.as_str()).collect();
    match endpoint {
        Some(name) if !names.contains(&name) => {
            let message = format!("the cluster `{cluster}` has no endpoint `{name}`");
            Err(missing(message, config::did_you_mean(name, names)))
        }
        _ => Ok(()),
    }
}

/// Tells of a setting that does nothing.
fn tell(warning: &Diagnostic) {
    let at = format!("{}:{}:{}", warning.file, warning.line, warning.column);
    let help = warning.suggestion.as_deref().unwrap_or_default();
    let pairs: telemetry::log::Pairs<'_> = &[("at", &at), ("why", &warning.message), ("help", &help)];
    telemetry::log::warn("a setting does nothing", pairs);
}

#[cfg(test)]
mod tests;
