//! From text to a plan that could be published, with everything that is wrong on the way. `check` and `run` both go
//! through here.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Diagnostics, Loaded, Loader};
use model::snapshot::LogFormat;
use model::{Issue, Snapshot};
use plan::Plan;

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, read anew at each reload.
    File(PathBuf),
    /// A text made by the program itself.
    Text {
        /// What messages call it.
        name: String,
        /// YAML or JSON.
        text: String,
        /// Where relative paths in it start.
        base: PathBuf,
    },
}

/// What only the data plane can check; it gives the issues with paths from the root of the configuration.
pub type Inspect = fn(&Plan) -> Result<(), Vec<Issue>>;

/// A configuration that could be published.
pub struct Candidate {
    pub(crate) loaded: Loaded,
    pub(crate) plan: Arc<Plan>,
    /// When reading its files began.
    pub(crate) read_from: SystemTime,
}

impl Candidate {
    /// What was configured.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.plan.snapshot
    }

    /// What would be published.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

/// Reads, resolves, compiles and inspects a configuration. `previous` gives its runtime state to the new plan.
///
/// # Errors
/// All that is wrong, as far as it can be found at once.
pub fn prepare(
    source: &Source,
    previous: Option<&Plan>,
    generation: u64,
    inspect: Inspect,
) -> Result<Candidate, Diagnostics> {
    let read_from = SystemTime::now();
    let loaded = with_loader(|loader| match source {
        Source::File(path) => loader.load_file(path),
        Source::Text { name, text, base } => loader.load_text(name, text, base),
    })?;
    compile(loaded, read_from, (previous, generation), inspect)
}

/// As [`prepare`], but with the text of `loaded`: only the files that it names are read again.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_files(
    loaded: &Loaded,
    previous: Option<&Plan>,
    generation: u64,
    inspect: Inspect,
) -> Result<Candidate, Diagnostics> {
    let read_from = SystemTime::now();
    let loaded = with_loader(|loader| loader.reload_files(loaded))?;
    compile(loaded, read_from, (previous, generation), inspect)
}

fn compile(
    loaded: Loaded,
    read_from: SystemTime,
    (previous, generation): (Option<&Plan>, u64),
    inspect: Inspect,
) -> Result<Candidate, Diagnostics> {
    let refused = |issues: Vec<Issue>| Diagnostics {
        list: issues.iter().map(|issue| loaded.diagnose(issue)).collect(),
        left_out: 0,
    };
    let mut issues = log_lines(&loaded.snapshot);
    match plan::compile(Arc::new(loaded.snapshot.clone()), previous, generation) {
        Ok(plan) => {
            issues.extend(inspect(&plan).err().unwrap_or_default());
            if issues.is_empty() {
                return Ok(Candidate { plan: Arc::new(plan), loaded, read_from });
            }
        }
        Err(found) => issues.extend(found),
    }
    Err(refused(issues))
}

/// What is wrong with the lines of access logs.
fn log_lines(snapshot: &Snapshot) -> Vec<Issue> {
    let lines = snapshot.access_logs.iter().enumerate().filter_map(|(index, log)| match &log.format {
        LogFormat::Line(line) => Some((index, line)),
        LogFormat::Json => None,
    });
    lines
        .filter_map(|(index, line)| {
            let wrong = telemetry::check_line(line).err()?;
            Some(Issue::at(format!("access_logs/{index}/line"), wrong))
        })
        .collect()
}

fn with_loader<T>(use_it: impl FnOnce(&Loader<'_>) -> T) -> T {
    use_it(&Loader {
        filters: &plan::filter::specs(),
        environment: &|name| std::env::var(name).ok(),
        // The system's resolver bounds the time.
        resolve_host: &|host, port| Ok((host, port).to_socket_addrs()?.collect()),
    })
}
