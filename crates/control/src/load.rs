//! From text to a plan that could be published, with everything that is wrong on the way. `check` and `run` both go
//! through here.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use config::{Diagnostic, Diagnostics, Loaded, Loader};
use model::snapshot::{LogFormat, LogTarget};
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

    /// What in it is allowed but does nothing.
    pub fn warnings(&self) -> &[Diagnostic] {
        self.loaded.warnings()
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
    let loaded = with_loader(&look_up, |loader| match source {
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
    // A certificate must not wait for a name service, nor change where endpoints are.
    let known = |host: &str, port: u16| address_of(&loaded.snapshot, &format!("{host}:{port}"));
    let resolve = |host: &str, port: u16| match known(host, port) {
        Some(address) => Ok(vec![address]),
        None => look_up(host, port),
    };
    let loaded = with_loader(&resolve, |loader| loader.reload_files(loaded))?;
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
    issues.extend(log_folders(&loaded.snapshot));
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

/// Folders of access logs that are not there: opening the log would fail, and `check` is to say so before.
fn log_folders(snapshot: &Snapshot) -> Vec<Issue> {
    let missing = snapshot.access_logs.iter().enumerate().filter_map(|(index, log)| {
        let LogTarget::File(path) = &log.target else { return None };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let message = format!("the folder `{}` does not exist", folder.display());
        let issue = Issue::at(format!("access_logs/{index}/path"), message);
        (!folder.is_dir()).then(|| issue.suggest("make it, or name another place"))
    });
    missing.collect()
}

/// Where the endpoint of this name is in a snapshot.
fn address_of(snapshot: &Snapshot, name: &str) -> Option<SocketAddr> {
    let mut endpoints = snapshot.clusters.iter().flat_map(|cluster| &cluster.endpoints);
    endpoints.find(|endpoint| endpoint.name.as_str() == name)?.address.ip()
}

/// Asks the system's resolver, which bounds the time.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

fn with_loader<T>(
    resolve_host: &dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
    use_it: impl FnOnce(&Loader<'_>) -> T,
) -> T {
    use_it(&Loader { filters: &plan::filter::specs(), environment: &|name| std::env::var(name).ok(), resolve_host })
}
