//! The owner of the running configuration.
//!
//! ```text
//!  prepare: read → resolve → compile → inspect     any failure: all diagnostics; what runs stays
//!  commit:  publish on all workers or on none → counters, probes and view follow → a new generation
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Diagnostic, Diagnostics, Loaded};
use plan::{Plan, Publisher};

use crate::history::{Entry, Origin};
use crate::load::{self, Candidate, Inspect, Source};
use crate::probes::Probes;
use crate::view::View;
use crate::watch::{Stamp, Watch};

/// Why a configuration does not run.
#[derive(Debug)]
pub enum Refusal {
    /// It is wrong.
    Bad(Diagnostics),
    /// It is right, but the data plane could not take it: an address is in use, a log cannot be opened.
    Unpublished(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(diagnostics) => diagnostics.fmt(f),
            Self::Unpublished(reason) => f.write_str(reason),
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
    running: Option<Running>,
}

struct Running {
    loaded: Loaded,
    plan: Arc<Plan>,
    generation: u64,
    watch: Watch,
}

impl Reconciler {
    /// An owner that runs nothing yet.
    ///
    /// # Errors
    /// The thread of the probes cannot be started.
    pub fn new(source: Source, inspect: Inspect, publisher: Publisher, view: View) -> io::Result<Self> {
        let probes = Probes::start(view.reasons())?;
        Ok(Self { source, inspect, publisher, view, probes, running: None })
    }

    /// Reads the configuration anew and makes it ready; changes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn prepare(&self) -> Result<Candidate, Diagnostics> {
        let (previous, generation) = self.next();
        load::prepare(&self.source, previous, generation, self.inspect).inspect_err(|_| self.view.count_refused())
    }

    /// Publishes a candidate and gives it its generation.
    ///
    /// # Errors
    /// Why the data plane did not take it; the configuration before stays in force.
    pub fn commit(&mut self, candidate: Candidate, origin: Origin) -> Result<u64, String> {
        let Candidate { loaded, plan, read_from } = candidate;
        let generation = self.next().1;
        self.publisher.publish(Arc::clone(&plan)).inspect_err(|_| self.view.count_refused())?;
        self.view.telemetry().retain(&plan.snapshot);
        self.probes.follow(Arc::clone(&plan));
        let entry = Entry { generation, at: SystemTime::now(), origin };
        self.view.set_running(Arc::clone(&plan), loaded.effective(), entry);
        telemetry::log::info("configuration is live", &[("generation", &generation), ("origin", &origin.as_str())]);
        // Certificates change nothing of it.
        if origin != Origin::Certificates {
            loaded.warnings().iter().for_each(tell);
        }
        let watch = Watch::new(loaded.referenced_files().to_vec(), read_from, Stamp::of);
        self.running = Some(Running { loaded, plan, generation, watch });
        Ok(generation)
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
        let candidate = load::prepare_files(&running.loaded, Some(&running.plan), generation, self.inspect)
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

/// Tells of a setting that does nothing.
fn tell(warning: &Diagnostic) {
    let at = format!("{}:{}:{}", warning.file, warning.line, warning.column);
    let help = warning.suggestion.as_deref().unwrap_or_default();
    let pairs: telemetry::log::Pairs<'_> = &[("at", &at), ("why", &warning.message), ("help", &help)];
    telemetry::log::warn("a setting does nothing", pairs);
}

#[cfg(test)]
mod tests;
