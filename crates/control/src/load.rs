//! From text to a plan that could be published, with everything that is wrong on the way. `check` and `run` both go
//! through here.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use config::{Beside, Diagnostic, Diagnostics, Loaded, Loader};
use model::provider::{NameLookup, Provider};
use model::snapshot::{AccessLog, Cluster, EndpointsFrom, LogFormat, LogTarget};
use model::{Issue, Snapshot};
use plan::Plan;

use crate::admin_tls::{self, AdminTls};
use crate::given::Given;
use crate::loader::{with_loader, without_names};
use crate::names::{Moved, Names};
use crate::overrides::Desired;
use crate::peers;
use crate::providers;

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, read again at each reload.
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

impl Source {
    /// Where changes beside it are kept, if it says so.
    pub fn state_folder(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => without_names(|loader| loader.state_folder(path)),
            Self::Text { .. } => None,
        }
    }

    /// The providers that it names, and what clusters ask of each.
    pub(crate) fn providers(&self) -> (Vec<Arc<Provider>>, Vec<EndpointsFrom>) {
        match self {
            Self::File(path) => without_names(|loader| loader.providers(path)),
            Self::Text { text, base, .. } => without_names(|loader| loader.providers_in(text, base)),
        }
    }
}

/// What only the data plane can check; it gives the issues with paths from the root of the configuration.
pub type Inspect = fn(&Plan) -> Result<(), Vec<Issue>>;

/// A configuration that could be published.
pub struct Candidate {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) plan: Arc<Plan>,
    /// When reading its files began. `None`: they were not read.
    pub(crate) read_from: Option<SystemTime>,
    /// What it holds beside the files.
    pub(crate) desired: Desired,
    /// What is tried beside it from then on, or why that cannot be tried any more. `None`: nothing, whatever was tried before.
    pub(crate) tried: Option<Result<Box<Candidate>, String>>,
    /// How the administrator's listener shakes hands, if it does.
    pub(crate) admin_tls: Option<Arc<AdminTls>>,
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

    /// The configuration with defaults filled in and without secrets; see [`Loaded::effective`].
    pub fn effective(&self) -> serde_json::Value {
        self.loaded.effective()
    }

    /// As far as it takes to make it anew while it is tried.
    pub(crate) fn as_tried(&self) -> Tried {
        let (loaded, plan) = (Arc::clone(&self.loaded), Arc::clone(&self.plan));
        Tried { loaded, plan, read_from: self.read_from, desired: self.desired.clone() }
    }

    /// Where changes are to be kept.
    pub(crate) fn state_folder(&self) -> Option<&PathBuf> {
        self.plan.snapshot.admin.as_ref()?.state.as_ref()
    }

    /// What would be published.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

/// Reads, resolves, compiles and checks a configuration, with the current files and folders of providers; no other provider is asked.
/// `previous` gives its runtime state to the new plan.
///
/// # Errors
/// All that is wrong, as far as it can be found at once.
pub fn prepare(
    source: &Source,
    previous: Option<&Plan>,
    generation: u64,
    inspect: Inspect,
) -> Result<Candidate, Diagnostics> {
    let next = Next { previous, running: None, admin_tls: None, generation, inspect };
    prepare_with(source, at_hand(source)?, next, &Names::of_a_start())
}

/// As [`prepare`], for a configuration that another machine will run: what is not here is a warning. The candidate is fit to be
/// looked at, not to be published.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_offline(source: &Source, inspect: Inspect) -> Result<Candidate, Diagnostics> {
    let next = Next { previous: None, running: None, admin_tls: None, generation: 1, inspect };
    prepare_as((source, true), at_hand(source)?, next, &Names::offline())
}

/// What the files and folders of providers say now.
fn at_hand(source: &Source) -> Result<Desired, Diagnostics> {
    let mut given = Given::default();
    for provider in source.providers().0 {
        // One that is not there gives nothing, as when it is away.
        if let Some(state) = providers::state_at_hand(&provider) {
            given = without_names(|loader| given.with(loader, &provider.name, Arc::new(state)))?;
        }
    }
    Ok(Desired { given, ..Desired::default() })
}

/// What a plan is compiled with.
#[derive(Clone, Copy)]
pub(crate) struct Next<'a> {
    /// The active plan.
    pub(crate) previous: Option<&'a Plan>,
    /// What it came of.
    pub(crate) running: Option<&'a Loaded>,
    /// How the administrator's listener shakes hands now.
    pub(crate) admin_tls: Option<&'a Arc<AdminTls>>,
    pub(crate) generation: u64,
    pub(crate) inspect: Inspect,
}

/// The same with what is desired beside the files.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_with(
    source: &Source,
    desired: Desired,
    next: Next<'_>,
    names: &Names,
) -> Result<Candidate, Diagnostics> {
    prepare_as((source, false), desired, next, names)
}

fn prepare_as(
    (source, is_offline): (&Source, bool),
    desired: Desired,
    next: Next<'_>,
    names: &Names,
) -> Result<Candidate, Diagnostics> {
    let read_from = SystemTime::now();
    let present = OnceCell::new();
    let look_up = |lookup: &NameLookup, host: &str, port: u16| {
        let found = names.look_up(lookup, host, port)?;
        let present =
            present.get_or_init(|| next.previous.map(|plan| addresses_of(&plan.snapshot)).unwrap_or_default());
        // An address stays as long as the name has it, whatever the order of answers.
        let stays = present.get(format!("{host}:{port}").as_str()).copied().flatten();
        Ok(stays.filter(|address| found.contains(address)).map_or(found, |address| vec![address]))
    };
    // All names were looked up just now.
    let desired = Desired { moved: Moved::default(), ..desired };
    let provided = desired.given.texts();
    let beside = Beside { provided: &provided, changes: &desired.changes };
    let mut loaded = with_loader(&look_up, |loader| {
        let loader = Loader { is_offline, ..*loader };
        match source {
            Source::File(path) => loader.load_file_with(path, beside),
            Source::Text { name, text, base } => loader.load_text_with((name, text, base), beside),
        }
    })?;
    if is_offline {
        log_folders(&loaded.snapshot).iter().for_each(|issue| loaded.warn(issue));
    }
    next.running.iter().for_each(|running| loaded.share_with(running));
    compile((loaded.into(), desired), Some(read_from), next)
}

/// As [`prepare`], but with the text of `loaded`: only the files that it names are read again.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_files(loaded: &Loaded, desired: Desired, next: Next<'_>) -> Result<Candidate, Diagnostics> {
    let read_from = SystemTime::now();
    let mut again = with_known(loaded, &Names::of_a_change(), |loader| loader.reload_files(loaded))?;
    again.share_with(loaded);
    compile((again.into(), desired), Some(read_from), next)
}

/// As [`prepare_files`], with other changes beside the files of the configuration, which may keep to what another one uses.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_changed(
    loaded: &Loaded,
    desired: Desired,
    next: Next<'_>,
    (names, within): (&Names, Option<&Loaded>),
) -> Result<Candidate, Diagnostics> {
    let read_from = SystemTime::now();
    let load = |loader: &Loader<'_>| Loader { within, ..*loader }.load_changed(loaded, &desired.changes);
    let loaded = with_known(loaded, names, load)?;
    compile((loaded.into(), desired), Some(read_from), next)
}

/// The same files with other providers beside them.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_provided(
    loaded: &Loaded,
    desired: Desired,
    next: Next<'_>,
    names: &Names,
) -> Result<Candidate, Diagnostics> {
    let read_from = SystemTime::now();
    let provided = desired.given.texts();
    let beside = Beside { provided: &provided, changes: &desired.changes };
    let loaded = with_known(loaded, names, |loader| loader.load_beside(loaded, beside))?;
    compile((loaded.into(), desired), Some(read_from), next)
}

/// The very same configuration with other wishes for endpoints, or other endpoints of providers: nothing is read.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_wishes(loaded: &Arc<Loaded>, desired: Desired, next: Next<'_>) -> Result<Candidate, Diagnostics> {
    compile((Arc::clone(loaded), desired), None, next)
}

/// Works with a loader for which known endpoints are where they are: a certificate, or a change of something else, must not
/// wait for a name service, nor move endpoints.
pub(crate) fn with_known<T>(loaded: &Loaded, names: &Names, use_it: impl FnOnce(&Loader<'_>) -> T) -> T {
    let addresses = OnceCell::new();
    let known = |host: &str, port: u16| {
        let addresses = addresses.get_or_init(|| addresses_of(&loaded.snapshot));
        addresses.get(format!("{host}:{port}").as_str()).copied().flatten()
    };
    let resolve = |lookup: &NameLookup, host: &str, port: u16| match known(host, port) {
        Some(address) => Ok(vec![address]),
        None => names.look_up(lookup, host, port),
    };
    with_loader(&resolve, use_it)
}

fn compile(
    (loaded, mut desired): (Arc<Loaded>, Desired),
    read_from: Option<SystemTime>,
    Next { previous, admin_tls, generation, inspect, .. }: Next<'_>,
) -> Result<Candidate, Diagnostics> {
    let refused = |issues: Vec<Issue>| Diagnostics {
        list: issues.iter().map(|issue| loaded.diagnose(issue)).collect(),
        warnings: loaded.warnings().to_vec(),
        ..Diagnostics::default()
    };
    let mut issues = log_lines(&loaded);
    if !loaded.is_offline() {
        issues.extend(log_folders(&loaded.snapshot));
    }
    let mut snapshot = loaded.snapshot.clone();
    desired.given.retain(&snapshot);
    desired.given.apply(&mut snapshot, &loaded);
    desired.moved.apply(&mut snapshot);
    desired.wishes.apply(&mut snapshot, Instant::now());
    match plan::compile(Arc::new(snapshot), previous, generation) {
        Ok(plan) => {
            issues.extend(inspect(&plan).err().unwrap_or_default());
            issues.extend(peers::check(&plan.snapshot).err());
            match admin_tls::of(&plan.snapshot, admin_tls) {
                Ok(admin_tls) if issues.is_empty() => {
                    let plan = Arc::new(plan);
                    return Ok(Candidate { plan, loaded, read_from, desired, tried: None, admin_tls });
                }
                Ok(_) => {}
                Err(found) => issues.extend(found),
            }
        }
        Err(found) => issues.extend(found),
    }
    Err(refused(issues))
}

/// What is wrong with the lines of access logs.
fn log_lines(loaded: &Loaded) -> Vec<Issue> {
    let wrong = |(index, log): (usize, &AccessLog)| {
        let LogFormat::Line(line) = &log.format else { return None };
        let values: Vec<&str> = log.values.iter().map(|(name, _)| name.as_str()).collect();
        let wrong = telemetry::check_line(line, &values).err()?;
        Some(Issue::at(loaded.template_of(index), wrong))
    };
    loaded.snapshot.access_logs.iter().enumerate().filter_map(wrong).collect()
}

/// Folders of access logs that are not there: opening the log would fail, and `check` is to say so before.
fn log_folders(snapshot: &Snapshot) -> Vec<Issue> {
    let missing = snapshot.access_logs.iter().enumerate().filter_map(|(index, log)| {
        let LogTarget::File(path) = &log.target else { return None };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let message = format!("the folder `{}` does not exist", folder.display());
        let issue = Issue::at(format!("access_logs/{index}/path"), message);
        (!folder.is_dir()).then(|| issue.suggest("create it, or choose another folder"))
    });
    missing.collect()
}

/// Where the endpoints of a snapshot are, by their names; of several of one name the first.
fn addresses_of(snapshot: &Snapshot) -> HashMap<&str, Option<SocketAddr>> {
    let endpoints = snapshot.clusters.iter().flat_map(|cluster| &cluster.endpoints);
    // What stands as an address needs no looking up.
    let named = endpoints.filter(|endpoint| endpoint.name.as_str().parse::<SocketAddr>().is_err());
    let mut addresses = HashMap::new();
    for endpoint in named {
        addresses.entry(endpoint.name.as_str()).or_insert_with(|| endpoint.address.ip());
    }
    addresses
}

/// The canary, as far as it takes to compile it again with other endpoints.
#[derive(Clone)]
pub(crate) struct Tried {
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) read_from: Option<SystemTime>,
    pub(crate) desired: Desired,
}

impl Tried {
    /// The same beside another candidate for what is in force, with the endpoints that providers have given that, and the addresses
    /// that host names have there.
    pub(crate) fn anew(&self, beside: &Candidate, inspect: Inspect) -> Result<Candidate, Diagnostics> {
        let (given, moved) = (beside.desired.given.clone(), beside.desired.moved.clone());
        let desired = Desired { given, moved, ..self.desired.clone() };
        let previous = self.states_beside(&beside.plan);
        let generation = beside.plan.generation + 1;
        // The active configuration performs the handshakes meanwhile.
        let admin_tls = beside.admin_tls.as_ref();
        let next = Next { previous: Some(&previous), running: None, admin_tls, generation, inspect };
        let candidate = prepare_wishes(&self.loaded, desired, next)?;
        Ok(Candidate { read_from: self.read_from, ..candidate })
    }

    /// A plan to take runtime state from, and nothing else: a cluster whose endpoints are given, or have host names, is that of the other
    /// plan, which knows the new ones, if it asks for the same there; all others are as they are tried.
    fn states_beside(&self, other: &Plan) -> Plan {
        let known: HashMap<&str, _> = other.clusters.iter().map(|plan| (plan.cluster.name.as_str(), plan)).collect();
        let clusters = self.plan.clusters.iter().map(|tried| {
            let known = known.get(tried.cluster.name.as_str()).copied();
            let known = known.filter(|known| are_found_alike(&tried.cluster, &known.cluster));
            Arc::clone(known.unwrap_or(tried))
        });
        let (listeners, routes) = (self.plan.listeners.clone(), self.plan.routes.clone());
        Plan { clusters: clusters.collect(), listeners, routes, ..Plan::default() }
    }
}

/// Whether two clusters get endpoints, or addresses of endpoints, from the same place.
fn are_found_alike(one: &Cluster, other: &Cluster) -> bool {
    if one.endpoints_from.is_some() {
        return one.endpoints_from == other.endpoints_from;
    }
    let names =
        |cluster: &'_ Cluster| cluster.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect::<Vec<_>>();
    one.follows_names && other.follows_names && names(one) == names(other)
}
