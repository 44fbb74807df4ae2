//! The owner of the running configuration.
//!
//! ```text
//!  prepare: read → resolve → compile → inspect     any failure: all diagnostics; what runs stays
//!  commit:  publish on all workers or on none → counters, probes and view follow → a new generation
//! ```

mod files;
mod named;
mod provided;
mod watched;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use config::{Changes, Diagnostic, Diagnostics, Loaded, Whole};
use plan::{Plan, Publisher};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use telemetry::trial::Trial;

use crate::admin_tls::AdminTls;
use crate::atomic_file::{self, Staged};
use crate::canary::{self, Terms, Verdict};
use crate::difference::Differences;
use crate::effects::Effects;
use crate::given::{Given, State};
use crate::history::writer::Writer;
use crate::history::{self, Entry, Origin};
use crate::load::{Candidate, Inspect, Next, Source};
use crate::loader::without_names;
use crate::names::Follower;
use crate::orders::Change;
use crate::overrides::{self, Desired};
use crate::prepare::Preparation;
use crate::probes::{self, Probes};
use crate::providers::Providers;
use crate::refusal::Refusal;
use crate::view::{Canary as Told, Shown, View};
use crate::watch::{Stamp, Watch};

/// Longest wait for the history to be written, before another process reads it.
const HISTORY_PATIENCE: Duration = Duration::from_secs(2);
/// Largest number of a generation that another process is believed to have had: there are always some left.
const GENERATION_MAX: u64 = u64::MAX >> 1;

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
    /// What is desired beside the files.
    desired: Desired,
    /// What is known of the folder in which that is kept.
    kept: Option<Kept>,
    /// Why it is not.
    not_kept: Option<String>,
    /// Writes down which generations there were, where anything is kept.
    writer: Writer,
    /// The last generation of processes before.
    past: u64,
    running: Option<Running>,
    canary: Option<Canary>,
    /// The files of the configuration, if they are watched.
    watched: Option<watched::Watched>,
}

/// A configuration that is tried.
struct Canary {
    candidate: Candidate,
    cause: Cause,
    terms: Terms,
    since: Instant,
    counts: Arc<Trial>,
}

/// A folder that this process has read or written.
struct Kept {
    folder: PathBuf,
    /// What is there. `None`: the new or the old, for the system did not say.
    desired: Option<Desired>,
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

/// What a process leaves to the one that follows it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Past {
    /// Its last generation.
    pub generation: u64,
    /// Configurations that were refused.
    pub refused: u64,
    /// What is desired beside the files.
    pub desired: Option<Desired>,
    /// What of each provider is in force: a [`State`], which another version may write otherwise.
    pub given: BTreeMap<String, Value>,
}

/// What makes a generation, and who.
#[derive(Clone, Debug)]
pub struct Cause {
    /// What.
    pub origin: Origin,
    /// Who, if it comes by the API.
    pub author: Option<Arc<str>>,
    /// How it was tried before.
    pub tried: Option<Arc<str>>,
}

impl From<Origin> for Cause {
    fn from(origin: Origin) -> Self {
        Self { origin, author: None, tried: None }
    }
}

impl Reconciler {
    /// An owner that runs nothing yet. What was kept of changes beside the files is read, and the history.
    ///
    /// # Errors
    /// The thread of the probes cannot be started, what was kept cannot be read.
    pub fn new(source: Source, inspect: Inspect, publisher: Publisher, view: View) -> io::Result<Self> {
        let folder = source.state_folder();
        let (desired, counted) = folder.as_deref().map(overrides::read_counted).transpose()?.unwrap_or_default();
        if let Some(folder) = &folder {
            [overrides::FILE, history::file::FILE].iter().for_each(|file| atomic_file::sweep(folder, file));
        }
        view.remember(folder.as_deref().map(history::file::take_up).unwrap_or_default());
        // After a crash the history, which is written with rests, may be behind the changes.
        let past = view.generation().max(counted);
        let kept = folder.map(|folder| Kept { folder, desired: Some(desired.clone()) });
        let probes = Probes::start(view.reasons())?;
        let (providers, not_kept, running) = (Providers::default(), None, None);
        let names = Follower::default();
        view.set_inboxes(Arc::clone(providers.inbox()), names.inbox());
        Ok(Self {
            source,
            inspect,
            publisher,
            view,
            probes,
            providers,
            names,
            desired,
            kept,
            not_kept,
            running,
            watched: None,
            writer: Writer::default(),
            past,
            canary: None,
        })
    }

    /// Goes on from where another process ended: with what was desired beside the files, and with the generations that come
    /// after its last. Before anything runs.
    pub fn follow(&mut self, past: &Past) {
        self.past = past.generation.min(GENERATION_MAX);
        self.view.forget_after(self.past);
        self.view.add_refused(past.refused);
        if let Some(desired) = &past.desired {
            self.desired = desired.clone();
            if let Some(kept) = &mut self.kept {
                // What that one could not keep is written anew.
                kept.desired = kept.desired.take().filter(|kept| kept == desired);
            }
        }
        for (name, told) in &past.given {
            match self.with_given(name, told) {
                Ok(given) => self.desired.given = given,
                Err(why) => {
                    let pairs: telemetry::log::Pairs<'_> = &[("provider", name), ("reason", &why)];
                    telemetry::log::warn("provider state from the previous process is not understood", pairs);
                }
            }
        }
    }

    /// What is in force of providers, with what the process before had of one of them.
    fn with_given(&self, name: &str, told: &Value) -> Result<Given, String> {
        let state: State = serde_json::from_value(told.clone()).map_err(|error| error.to_string())?;
        let given = without_names(|loader| self.desired.given.with(loader, name, Arc::new(state)));
        given.map_err(|why| why.to_string())
    }

    /// What another process that is to follow this one has to know. What it reads from files is there by then.
    pub fn past(&self) -> Past {
        self.writer.flush(HISTORY_PATIENCE);
        let generation = self.running.as_ref().map_or(self.past, |running| running.generation);
        // They may be away when that one asks them, and it is to lack nothing of what this one has.
        let told = |(name, state): (&str, &Arc<State>)| Some((name.to_owned(), serde_json::to_value(&**state).ok()?));
        let given = self.desired.given.states().filter_map(told).collect();
        Past { generation, refused: self.view.refused(), desired: Some(self.desired.clone()), given }
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
            tried: self.canary.as_ref().map(|canary| canary.candidate.as_tried()),
        }
    }

    /// Reads the configuration anew and makes it ready; changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn prepare(&self) -> Result<Candidate, Diagnostics> {
        self.preparation().prepare()
    }

    /// Counts one that was refused, when it was meant to be put into force.
    pub fn count_refused(&self) {
        self.view.count_refused();
    }

    /// What a candidate would do to what is alive.
    pub fn effects(&self, candidate: &Candidate) -> Effects {
        self.running.as_ref().map(|running| Effects::of(&running.plan, &candidate.plan)).unwrap_or_default()
    }

    /// What a candidate differs in from what runs.
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

    /// Whether what somebody asks for is there already, so that nothing is to be done.
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

    /// Whether a candidate says what is in force already.
    pub fn is_in_force(&self, candidate: &Candidate) -> bool {
        let Some(running) = &self.running else { return false };
        running.loaded.says_same(&candidate.loaded) && running.plan.snapshot == candidate.plan.snapshot
    }

    /// Where changes beside the files were read from, if there are any.
    pub fn changes_from(&self) -> Option<&Path> {
        self.kept.as_ref().map(|kept| kept.folder.as_path()).filter(|_| !self.desired.is_empty())
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
        let Cause { origin, author, tried } = cause.into();
        let generation = candidate.plan.generation;
        let differences = Arc::new(self.differences(&candidate));
        let mut staged = self.stage(&candidate);
        if !matches!(origin, Origin::Provider | Origin::ProviderEndpoints | Origin::Names | Origin::Certificates) {
            // Whoever asks for something is told that it cannot be kept. For what comes by itself nobody would ask again.
            staged = Ok(staged.inspect_err(|_| self.view.count_refused())?);
        }
        let folder = candidate.state_folder().cloned();
        let Candidate { loaded, plan, read_from, desired, tried: beside, admin_tls } = candidate;
        self.publisher.publish(Arc::clone(&plan)).inspect_err(|_| self.view.count_refused())?;
        self.keep(folder, staged, &desired);
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
        // Told when it is so for callers of the API too: a token that was taken away opens nothing after this line.
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
            // What was in their way may be gone, and what they lacked may have come. Reading files anew tries them itself.
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
        // One that follows another process may not come to go on: see `keep_history`.
        if origin != Origin::Upgrade {
            self.keep_history();
        }
        Ok(generation)
    }

    /// Has the history written down. One that follows another process calls it once it is known that it goes on: else the other does,
    /// and writes its own.
    pub fn keep_history(&mut self) {
        if let Some(kept) = &self.kept {
            self.writer.write(&kept.folder, self.view.generations());
        }
    }

    /// The data plane has left what was tried with the plan before: goes on with it beside the new one, or tells that it has ended.
    /// Gives the plan whose endpoints are probed from now on.
    fn try_on(&mut self, beside: Option<Result<Box<Candidate>, String>>, plan: &Arc<Plan>) -> Arc<Plan> {
        if let Some(mut canary) = self.canary.take() {
            let beside = beside.unwrap_or_else(|| Err("another change came into force".to_owned()));
            let begun = beside.and_then(|candidate| {
                let share_percent = canary.terms.share_percent;
                let trial = plan::Trial { plan: Arc::clone(&candidate.plan), share_percent };
                self.publisher.try_out(Some(trial)).map(|()| candidate)
            });
            match begun {
                Ok(candidate) => {
                    let both = probes::both(plan, &candidate.plan);
                    canary.candidate = *candidate;
                    self.canary = Some(canary);
                    return both;
                }
                Err(reason) => self.tell_end("ended", &reason),
            }
        }
        self.view.telemetry().set_trial(None);
        Arc::clone(plan)
    }

    /// Tells of settings that do nothing: of all when files were read, of those that are new otherwise.
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

    /// Writes what is desired to the disk, where something else is kept or nobody knows what is.
    fn stage(&self, candidate: &Candidate) -> Result<Option<Staged>, String> {
        let Some(folder) = candidate.state_folder() else { return Ok(None) };
        let failed = |error: io::Error| format!("cannot keep changes in {}: {error}", folder.display());
        let is_there = match &self.kept {
            Some(kept) if kept.folder == *folder => kept.desired.as_ref() == Some(&candidate.desired),
            // Never read by this process: somebody may count on it.
            _ => {
                let found = overrides::read(folder).map_err(failed)?;
                if !found.is_empty() && found != candidate.desired {
                    let place = folder.display();
                    return Err(format!(
                        "admin: changes of another time are kept in {place}: start anew to take them up, or remove changes.json there"
                    ));
                }
                found == candidate.desired
            }
        };
        if is_there {
            return Ok(None);
        }
        overrides::stage(folder, &candidate.desired, candidate.plan.generation).map(Some).map_err(failed)
    }

    /// Puts what was written in its place, and notes what is kept.
    fn keep(&mut self, folder: Option<PathBuf>, staged: Result<Option<Staged>, String>, desired: &Desired) {
        let finish = |staged: Staged| staged.finish().map_err(|error| error.to_string());
        let finished = staged.and_then(|staged| staged.map_or(Ok(()), finish));
        if let Err(error) = &finished {
            telemetry::log::error("API changes are active but could not be saved", &[("error", error)]);
        }
        let is_kept = finished.is_ok();
        self.not_kept = finished.err();
        self.kept = folder.map(|folder| Kept { folder, desired: is_kept.then(|| desired.clone()) });
    }

    /// Tries again to keep what could not be kept. To be called once a second or so.
    pub fn keep_again(&mut self) {
        if self.not_kept.is_none() {
            return;
        }
        let Some(kept) = &mut self.kept else { return };
        let generation = self.running.as_ref().map_or(self.past, |running| running.generation);
        if overrides::stage(&kept.folder, &self.desired, generation).and_then(Staged::finish).is_ok() {
            kept.desired = Some(self.desired.clone());
            self.not_kept = None;
            telemetry::log::info("API changes are saved again", &[]);
        }
    }

    /// Why what is in force is not kept for the next start.
    pub fn not_kept(&self) -> Option<String> {
        self.not_kept.clone()
    }

    /// The text of a new configuration, and the generation that brought it: the one before, if it says the same.
    fn text_and_revision(&self, loaded: &Arc<Loaded>, generation: u64) -> (Whole, u64) {
        let says_same = |running: &&Running| Arc::ptr_eq(&running.loaded, loaded) || running.loaded.says_same(loaded);
        match self.running.as_ref().filter(says_same) {
            // What was read anew is held by what is in force from now on, and what was read before by nothing else.
            Some(running) if running.loaded.has_files_of(loaded) => (running.text.clone(), running.revision),
            Some(running) => (loaded.whole(), running.revision),
            None => (loaded.whole(), generation),
        }
    }

    /// Tries a candidate on a share of what comes in, beside what is in force.
    ///
    /// # Errors
    /// It cannot be tried; nothing has changed.
    pub fn begin_canary(&mut self, candidate: Candidate, cause: Cause, terms: Terms) -> Result<(), Refusal> {
        let Some(running) = self.running.as_ref() else { return Err(Refusal::Ending) };
        if self.canary.is_some() {
            return Err(Refusal::Busy);
        }
        let (now, then) = (&running.plan.snapshot, candidate.snapshot());
        if now.listeners != then.listeners || now.access_logs != then.access_logs || now.admin != then.admin {
            let (before, after) = running.loaded.sealed_beside(&candidate.loaded);
            let is_said = ["listeners", "access_logs", "admin"].iter().any(|key| before.get(key) != after.get(key));
            let what = match is_said {
                true => {
                    "a change of listeners, access logs or `admin` cannot be tried: it is there for all, or for none"
                }
                // With no word changed, a certificate or a list of addresses was.
                false => {
                    "files that the listeners name have changed, and come into force in a moment: try it again then"
                }
            };
            return Err(Refusal::Unpublished(what.to_owned()));
        }
        let workers = self.view.telemetry().workers();
        let counts = Trial::new(candidate.plan.generation, workers, Instant::now());
        self.view.telemetry().set_trial(Some(Arc::clone(&counts)));
        let trial = plan::Trial { plan: Arc::clone(&candidate.plan), share_percent: terms.share_percent };
        if let Err(reason) = self.publisher.try_out(Some(trial)) {
            self.view.telemetry().set_trial(None);
            return Err(Refusal::Unpublished(reason));
        }
        self.probes.follow(probes::both(&running.plan, &candidate.plan));
        let author = cause.author.clone();
        let differences = Arc::new(self.differences(&candidate));
        let (by, share) = (author.clone().unwrap_or_default(), format!("{}%", terms.share_percent));
        let pairs: telemetry::log::Pairs<'_> = &[("share", &share), ("for_s", &terms.time.as_secs_f64()), ("by", &by)];
        telemetry::log::info("canary started", pairs);
        let told = Told { at: SystemTime::now(), author, terms, differences, counts: Arc::clone(&counts), end: None };
        self.view.begin_canary(told);
        self.canary = Some(Canary { candidate, cause, terms, since: Instant::now(), counts });
        Ok(())
    }

    /// Whether a configuration is tried.
    pub fn has_canary(&self) -> bool {
        self.canary.is_some()
    }

    /// What follows from what was seen of the configuration that is tried. To be called once a second or so.
    pub fn judge_canary(&self) -> Verdict {
        let Some(canary) = &self.canary else { return Verdict::GoOn };
        let (old, new) = canary.counts.outcomes();
        canary::judge(&canary.terms, canary.since.elapsed(), &old, &new)
    }

    /// The configuration that is tried, to be put into force for this reason. It is tried until that is done, or until
    /// [`Self::promoted`] says that it cannot be.
    pub fn promote_canary(&mut self, reason: &str) -> Option<(Candidate, Cause)> {
        let canary = self.canary.take()?;
        telemetry::log::info("canary promoted", &[("why", &reason)]);
        Some((canary.candidate, Cause { tried: Some(reason.into()), ..canary.cause }))
    }

    /// What came of putting it into force, for this reason.
    pub fn promoted(&mut self, done: Result<(), &Refusal>, reason: &str) {
        match done {
            Ok(()) => self.view.end_canary("promoted", reason),
            Err(refusal) => {
                self.leave_trial();
                self.remind_of_providers();
                self.view.end_canary("ended", &refusal.to_string());
            }
        }
    }

    /// The old configuration stays, by the bounds: what was tried was worse.
    pub fn go_back_from_canary(&mut self, reason: &str) {
        self.stop_canary("went_back", reason);
    }

    /// The old configuration stays, whatever was seen. Nothing when none is tried.
    pub fn end_canary(&mut self, reason: &str) {
        self.stop_canary("ended", reason);
    }

    fn stop_canary(&mut self, result: &'static str, reason: &str) {
        if self.canary.take().is_some() {
            self.leave_trial();
            self.tell_end(result, reason);
        }
    }

    fn tell_end(&self, result: &'static str, reason: &str) {
        // What could not be tried with it.
        self.remind_of_providers();
        self.view.end_canary(result, reason);
        telemetry::log::warn("canary rolled back", &[("why", &reason)]);
    }

    /// Nothing goes by the plan that was tried any more.
    fn leave_trial(&mut self) {
        if let Err(error) = self.publisher.try_out(None) {
            telemetry::log::error("a canary cannot be ended", &[("error", &error)]);
        }
        self.view.telemetry().set_trial(None);
        if let Some(running) = &self.running {
            self.view.telemetry().retain(&running.plan.snapshot);
            self.probes.follow(Arc::clone(&running.plan));
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

    /// What others may read.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The plan in force and the number of the next generation.
    fn next(&self) -> Next<'_> {
        let (previous, running, generation) = match &self.running {
            Some(running) => (Some(&*running.plan), Some(&*running.loaded), running.generation + 1),
            None => (None, None, self.past + 1),
        };
        let admin_tls = self.running.as_ref().and_then(|running| running.admin_tls.as_ref());
        Next { previous, running, admin_tls, generation, inspect: self.inspect }
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
        telemetry::log::info("API changes override the files", pairs);
    }
}

/// Tells of a setting that does nothing.
fn tell(warning: &Diagnostic) {
    let at = format!("{}:{}:{}", warning.file, warning.line, warning.column);
    let message = "a setting does nothing";
    match &warning.suggestion {
        Some(help) => telemetry::log::warn(message, &[("at", &at), ("why", &warning.message), ("help", help)]),
        None => telemetry::log::warn(message, &[("at", &at), ("why", &warning.message)]),
    }
}

#[cfg(test)]
mod tests;
