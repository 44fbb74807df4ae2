//! Providers: sources of parts of the configuration while the program runs. Each is a task of one thread and publishes its whole desired
//! state through a sink; the owner of the configuration takes it from the inbox, tries it, and puts it into force or refuses it.
//!
//! ```text
//!  provider task ── Sink ──▶ Inbox ──▶ Reconciler ──▶ in force | refused, what was before stays
//! ```
//! To add one: its settings in `model::provider`, `config::file` and `config::resolve`, a file here with
//! `async fn run(settings, sink)`, and an arm in [`start`].

pub(crate) mod backoff;
mod cache;
pub(crate) mod client;
mod consul;
pub(crate) mod dns;
mod docker;
mod etcd;
mod file;
mod http;
mod inbox;
mod pairs;
mod sink;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use model::provider::{ConsulProvider, DockerProvider, HttpProvider, Provider, ProviderKind};
use model::snapshot::EndpointsFrom;
use model::{Name, Snapshot};
use tokio::sync::watch;

use crate::given::Given;

pub use crate::given::{State, Text};
pub use inbox::{Inbox, Reach, Status};
pub(crate) use sink::{Keys, Sink};

/// Starts a provider.
fn start(provider: &Provider, sink: Sink) -> tokio::task::JoinHandle<()> {
    match &provider.kind {
        ProviderKind::File(settings) => tokio::task::spawn_local(file::run(settings.clone(), sink)),
        ProviderKind::Http(settings) => tokio::task::spawn_local(http::run(HttpProvider::clone(settings), sink)),
        ProviderKind::Dns(settings) => tokio::task::spawn_local(dns::run(settings.clone(), sink)),
        ProviderKind::Etcd(settings) => tokio::task::spawn_local(etcd::run(settings.clone(), sink)),
        ProviderKind::Consul(settings) => tokio::task::spawn_local(consul::run(ConsulProvider::clone(settings), sink)),
        ProviderKind::Docker(settings) => tokio::task::spawn_local(docker::run(DockerProvider::clone(settings), sink)),
    }
}

/// The state of a provider that needs no request to anyone.
pub(crate) fn state_at_hand(provider: &Provider) -> Option<State> {
    match &provider.kind {
        ProviderKind::File(settings) => file::state(settings).ok(),
        _ => None,
    }
}

/// What the thread is to do.
#[derive(Clone, Debug, Default)]
struct Wanted {
    providers: Vec<Arc<Provider>>,
    keys: BTreeMap<Name, Keys>,
    /// Where states are kept.
    kept_in: Option<PathBuf>,
    /// The accepted states.
    given: Given,
}

/// The owner of all providers.
#[derive(Debug, Default)]
pub(crate) struct Providers {
    inbox: Arc<Inbox>,
    /// There are none before the first provider.
    thread: Option<(watch::Sender<Wanted>, JoinHandle<()>)>,
}

impl Providers {
    /// Returns what they want.
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Starts, keeps and stops providers as they are configured.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot, given: &Given) -> io::Result<()> {
        let keys = keys(&snapshot.asked());
        let kept_in = snapshot.admin.as_ref().and_then(|admin| admin.state.clone());
        self.want(Wanted { providers: snapshot.providers.clone(), keys, kept_in, given: given.clone() })
    }

    /// Starts the providers of a configuration that are not running yet, and waits for their first states. `given` is what the predecessor
    /// had accepted.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn begin(
        &mut self,
        (providers, asked): (Vec<Arc<Provider>>, Vec<EndpointsFrom>),
        kept_in: Option<&Path>,
        given: &Given,
    ) -> io::Result<()> {
        if providers.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        let wanted = Wanted { providers: providers.clone(), keys: keys(&asked), ..Wanted::default() };
        // Before they begin: what they cannot ask they know from it.
        self.give_places(&wanted);
        for provider in &providers {
            // That is not older than what was written.
            let in_force = given.states().find(|(name, _)| *name == provider.name.as_str());
            let kept = match (in_force, kept_in) {
                (Some((_, state)), _) => Some(State::clone(state)),
                (None, Some(folder)) => cache::recall(folder, &provider.name),
                (None, None) => None,
            };
            if let Some(state) = kept {
                self.inbox.set_kept(&provider.name, state);
            }
        }
        self.want(wanted)?;
        for provider in &providers {
            self.inbox.wait_for(&provider.name, provider.start_timeout.saturating_sub(begun.elapsed()));
        }
        Ok(())
    }

    fn give_places(&self, wanted: &Wanted) {
        let kinds: Vec<_> = wanted.providers.iter().map(|one| (one.name.as_str(), one.kind.as_str())).collect();
        self.inbox.set_providers(&kinds);
    }

    fn want(&mut self, wanted: Wanted) -> io::Result<()> {
        self.give_places(&wanted);
        match &self.thread {
            Some((sender, _)) => _ = sender.send_replace(wanted),
            None if wanted.providers.is_empty() => {}
            None => {
                let (sender, receiver) = watch::channel(wanted);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let inbox = Arc::clone(&self.inbox);
                let run = move || tokio::task::LocalSet::new().block_on(&runtime, run(receiver, inbox));
                let thread = std::thread::Builder::new().name("providers".to_owned()).spawn(run)?;
                self.thread = Some((sender, thread));
            }
        }
        Ok(())
    }
}

/// What clusters ask, by provider.
fn keys(asked: &[EndpointsFrom]) -> BTreeMap<Name, Keys> {
    let mut keys: BTreeMap<Name, BTreeSet<Arc<str>>> = BTreeMap::new();
    for from in asked {
        keys.entry(from.provider.clone()).or_default().insert(Arc::clone(&from.key));
    }
    keys.into_iter().map(|(name, keys)| (name, Arc::new(keys))).collect()
}

impl Drop for Providers {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            // Without a sender the thread ends, and its tasks end where they wait.
            drop(sender);
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

/// A provider that runs.
struct Running {
    provider: Arc<Provider>,
    keys: watch::Sender<Keys>,
    task: tokio::task::JoinHandle<()>,
}

async fn run(mut wanted: watch::Receiver<Wanted>, inbox: Arc<Inbox>) {
    let mut running: BTreeMap<Name, Running> = BTreeMap::new();
    let mut cache = cache::Cache::default();
    loop {
        let now = wanted.borrow_and_update().clone();
        reconcile(&now, &mut running, &inbox);
        cache.follow(now.kept_in, &now.given);
        let changed = match cache.next() {
            Some(at) => tokio::time::timeout_at(at.into(), wanted.changed()).await,
            None => Ok(wanted.changed().await),
        };
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return cache.keep(),
            Err(_) => cache.keep(),
        }
    }
}

fn reconcile(wanted: &Wanted, running: &mut BTreeMap<Name, Running>, inbox: &Arc<Inbox>) {
    let mut before = std::mem::take(running);
    for provider in &wanted.providers {
        let keys = wanted.keys.get(&provider.name).cloned().unwrap_or_default();
        let kept = match before.remove(&provider.name) {
            Some(known) if known.provider == *provider => {
                let is_other = |known: &mut Keys| {
                    *known != keys && {
                        *known = Arc::clone(&keys);
                        true
                    }
                };
                known.keys.send_if_modified(is_other);
                known
            }
            old => {
                old.inspect(|old| old.task.abort());
                let (sender, receiver) = watch::channel(keys);
                let name = provider.name.to_string();
                let sink = Sink { name, inbox: Arc::clone(inbox), keys: receiver };
                Running { provider: Arc::clone(provider), keys: sender, task: start(provider, sink) }
            }
        };
        running.insert(provider.name.clone(), kept);
    }
    before.into_values().for_each(|gone| gone.task.abort());
}
