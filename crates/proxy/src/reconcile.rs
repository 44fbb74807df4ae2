//! How a plan reaches the workers, and how they take it over.
//!
//! ```text
//! publish: build TLS, open logs, bind new sockets,
//!          then listen on them                      any failure: nothing has changed
//!        → commit on every worker, acknowledged     nothing in it can fail but the registration of a bound socket
//! ```
//! Connections belong to workers, not to plans: they see the new plan with their next request.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::snapshot::Listener;
use model::{Address, Issue, Name};
use plan::{Plan, Publisher, Trial};
use telemetry::{AccessLogs, Telemetry};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::bound::{Bound, Opened, is_same_place};
use crate::clients::Connections;
use crate::handover::{Heritage, Spare};
use crate::http3::Generation;
use crate::listen::{self, Transport};
use crate::registry::PARTING;
use crate::socket;
use crate::socket_file::{SocketFile, Undo};
use crate::tls::TlsMaterial;
use crate::worker::run::{Command, Commit, Try, run};

/// Longest wait for a worker to acknowledge. A worker is never busy with one thing for long.
const ACKNOWLEDGE: Duration = Duration::from_secs(10);
/// How often a drain looks whether all is over.
const DRAIN_STEP: Duration = Duration::from_millis(5);

/// The time over which connections are told to come anew to another process, which has their listener. It is a quarter of the whole
/// drain at most, and leaves those that are told last the time that an idle one has.
const PART_WITHIN: Duration = Duration::from_secs(5);

/// Longest time for connections that were cut off to be gone.
const CUT: Duration = Duration::from_secs(1);

/// How the data plane runs.
pub struct Options {
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Where records are counted; made for at least as many workers.
    pub telemetry: Arc<Telemetry>,
    /// What came from another process.
    pub heritage: Heritage,
}

/// The running data plane. Dropping it ends the workers at once.
pub struct Workers {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct Shared {
    pub commands: Vec<UnboundedSender<Command>>,
    published: Mutex<Published>,
    open_connections: Arc<AtomicUsize>,
    telemetry: Arc<Telemetry>,
    pub heritage: Mutex<Heritage>,
    /// The access logs in force; apart, so that who asks for their figures does not wait while a plan is published.
    logs: Mutex<Option<Arc<AccessLogs>>>,
    /// Sockets that workers are to have beside those that came from another process.
    pub spares: Mutex<Vec<Spare>>,
}

#[derive(Default)]
pub(crate) struct Published {
    pub tls: Arc<TlsMaterial>,
    pub plan: Option<Arc<Plan>>,
    /// The plan that is tried, with its TLS.
    tried: Option<(Arc<Plan>, Arc<TlsMaterial>)>,
    pub bound: HashMap<(Name, Transport), Bound>,
    /// Sockets of QUIC that no listener has any more, as long as there are connections on them.
    leaving: Vec<Bound>,
}

impl Workers {
    /// Starts the workers; they serve nothing until a plan is published.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(options: Options) -> io::Result<Self> {
        let open_connections = Arc::new(AtomicUsize::new(0));
        let mut commands = Vec::new();
        let mut threads = Vec::new();
        for index in 0..options.workers.max(1) {
            let (sender, receiver) = unbounded_channel();
            let (telemetry, open) = (options.telemetry.clone(), open_connections.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            let is_held = options.heritage.is_held;
            threads.push(thread.spawn(move || run(index, telemetry, (open, is_held), receiver))?);
            commands.push(sender);
        }
        let telemetry = options.telemetry;
        let mut heritage = options.heritage;
        let tls = Arc::new(TlsMaterial::after(std::mem::take(&mut heritage.tickets)));
        crate::tls::set_token_secret(&heritage.tokens);
        let published = Published { tls, ..Published::default() }.into();
        let (heritage, logs, spares) = (heritage.into(), Mutex::default(), Mutex::default());
        let shared = Shared { commands, published, open_connections, telemetry, heritage, logs, spares };
        Ok(Self { shared: Arc::new(shared), threads })
    }

    /// The way by which plans come in.
    pub fn publisher(&self) -> Publisher {
        let shared = self.shared.clone();
        let tries = self.shared.clone();
        Publisher::new(move |plan| shared.publish(plan)).with_trials(move |trial| tries.try_out(trial))
    }

    /// Where each listener really listens.
    pub fn addresses(&self) -> Vec<(Name, Address)> {
        let published = self.shared.published();
        let plan = published.plan.as_ref();
        let names = plan.into_iter().flat_map(|plan| &plan.snapshot.listeners).map(|listener| &listener.name);
        let address = |name: &Name| {
            let at = |transport| published.bound.get(&(name.clone(), transport));
            let any = at(Transport::Stream).or_else(|| at(Transport::Datagram)).or_else(|| at(Transport::Quic));
            any.map(|bound| bound.address.clone())
        };
        names.filter_map(|name| Some((name.clone(), address(name)?))).collect()
    }

    /// Opens the access logs anew, after they were renamed.
    ///
    /// # Errors
    /// A file cannot be opened; the old one is still written.
    pub fn reopen_logs(&self) -> io::Result<()> {
        let logs = self.shared.logs().clone();
        match logs {
            Some(logs) => logs.reopen(),
            None => Ok(()),
        }
    }

    /// A count of the records that no access log could take: because the worker's ring was full, and because writing
    /// failed.
    pub fn lost_records(&self) -> impl Fn() -> (u64, u64) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.logs().as_ref().map_or((0, 0), |logs| (logs.dropped(), logs.failed()))
    }

    /// Puts questions to workers by their index; `false`: there is no such worker.
    /// Answers to questions about connections, from any thread.
    pub fn connections(&self) -> Connections {
        let shared = self.shared.clone();
        Connections(Arc::new(move |worker, question| {
            shared.commands.get(worker).is_some_and(|commands| commands.send(Command::Ask(question)).is_ok())
        }))
    }

    /// Open client connections.
    pub fn open_connections(&self) -> usize {
        self.shared.open_connections.load(Ordering::Relaxed)
    }

    /// Stops accepting and waits until every connection has ended, at most `timeout`; then cuts off the rest.
    /// True when none had to be cut off.
    pub fn drain(&self, timeout: Duration) -> bool {
        self.shared.remove_files();
        let (done, all_closed) = channel();
        let window = PART_WITHIN.min(timeout / 4).min(timeout.saturating_sub(PARTING));
        self.shared.tell_all(|| Command::Drain(done.clone(), window));
        drop(done);
        // Ends when the last worker has dropped its sender.
        while all_closed.recv_timeout(ACKNOWLEDGE).is_ok() {}
        if self.wait_until_idle(timeout) {
            return true;
        }
        self.shared.tell_all(|| Command::Cut);
        // What is cut off is still recorded.
        self.wait_until_idle(CUT);
        false
    }

    fn wait_until_idle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while self.open_connections() > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(DRAIN_STEP);
        }
        true
    }

    /// Ends the workers at once.
    pub fn stop(self) {}
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.remove_files();
        self.shared.tell_all(|| Command::Stop);
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Checks what only the data plane can: certificates, keys and authorities.
///
/// # Errors
/// Everything that [`Publisher::publish`] would refuse without touching a socket or a file.
pub fn check(plan: &Plan) -> Result<(), Vec<Issue>> {
    TlsMaterial::build(plan, &TlsMaterial::default()).map(drop)
}

impl Shared {
    pub(crate) fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs(&self) -> MutexGuard<'_, Option<Arc<AccessLogs>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody is to come by a Unix socket any more.
    fn remove_files(&self) {
        for bound in self.published().bound.values_mut() {
            bound.file = None;
        }
    }

    pub(crate) fn tell_all(&self, command: impl Fn() -> Command) {
        for worker in &self.commands {
            // A worker that is gone needs no telling.
            let _ = worker.send(command());
        }
    }

    fn publish(&self, plan: Arc<Plan>) -> Result<(), String> {
        let mut published = self.published();
        let tls = match &published.tried {
            // Its connections are those of this very TLS.
            Some((tried, tls)) if Arc::ptr_eq(tried, &plan) => tls.clone(),
            _ => Arc::new(TlsMaterial::build(&plan, &published.tls).map_err(|issues| join(&issues))?),
        };
        socket::check(&plan.clusters)?;
        let logs = self.open_logs(&plan, &published).map_err(|error| error.to_string())?;
        let (bound, sockets) = self.bind(&plan, &published)?;
        // At those of a process before this one listens, which may have to go on with them as they are.
        let is_held = self.heritage().is_held;
        let is_due = |opened: &&Opened| opened.transport == Transport::Stream && !(opened.is_adopted && is_held);
        for opened in sockets.iter().flatten().filter(is_due) {
            let Some(listener) = plan.listener(&opened.name).map(|plan| &plan.listener) else { continue };
            listen::listen(&opened.socket, &listener.socket)
                .map_err(|error| format!("listener {}: cannot listen: {error}", opened.name))?;
        }
        let permitted = permit(&plan, &bound)?;
        // Nothing is left that could refuse it.
        permitted.into_iter().for_each(Undo::keep);
        if let Some(before) = &published.plan {
            plan.take_effect(before);
        }
        let (done, acknowledged) = channel();
        for (worker, sockets) in self.commands.iter().zip(sockets) {
            let (plan, tls, logs, done) = (plan.clone(), tls.clone(), logs.clone(), done.clone());
            let commit = Commit { plan, tls, sockets, logs, done };
            worker.send(Command::Commit(Box::new(commit))).map_err(|_| "a worker has ended".to_owned())?;
        }
        let before = std::mem::take(&mut *published);
        let old = before.leaving.into_iter().chain(before.bound.into_values());
        let leaving = old.filter(|old| old.is_in_use() && !bound.values().any(|new| old.is_of(new))).collect();
        // The old ones may have to be written to their end: not while somebody waits for the figures.
        let _old = std::mem::replace(&mut *self.logs(), logs);
        *published = Published { tls, plan: Some(plan), tried: None, bound, leaving };
        for _ in &self.commands {
            if acknowledged.recv_timeout(ACKNOWLEDGE).is_err() {
                // It has the plan and takes it over when it wakes: there is no way back.
                telemetry::log::warn("a worker is late in applying a configuration", &[]);
            }
        }
        Ok(())
    }

    /// Nothing is bound and nothing opened for a trial: it has the listeners and the logs of the plan in force.
    fn try_out(&self, trial: Option<Trial>) -> Result<(), String> {
        let mut published = self.published();
        let Some(Trial { plan, share_percent }) = trial else {
            published.tried = None;
            self.tell_all_and_wait(|done| Command::Try(None, done));
            return Ok(());
        };
        let same = published.plan.as_ref().is_some_and(|now| now.snapshot.listeners == plan.snapshot.listeners);
        let counts = self.telemetry.trial().filter(|_| same).ok_or("its listeners are not those of the active plan")?;
        let tls = Arc::new(TlsMaterial::build(&plan, &published.tls).map_err(|issues| join(&issues))?);
        socket::check(&plan.clusters)?;
        published.tried = Some((plan.clone(), tls.clone()));
        self.tell_all_and_wait(|done| {
            let (plan, tls, counts) = (plan.clone(), tls.clone(), counts.clone());
            Command::Try(Some(Box::new(Try { plan, tls, share_percent, counts })), done)
        });
        Ok(())
    }

    fn tell_all_and_wait(&self, command: impl Fn(Sender<()>) -> Command) {
        let (done, acknowledged) = channel();
        self.tell_all(|| command(done.clone()));
        drop(done);
        for _ in &self.commands {
            if acknowledged.recv_timeout(ACKNOWLEDGE).is_err() {
                telemetry::log::warn("a worker is late in starting or ending a canary", &[]);
                return;
            }
        }
    }

    fn open_logs(&self, plan: &Plan, published: &Published) -> io::Result<Option<Arc<AccessLogs>>> {
        let wanted = &plan.snapshot.access_logs;
        if published.plan.as_ref().is_some_and(|before| before.snapshot.access_logs == *wanted) {
            return Ok(self.logs().clone());
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        AccessLogs::open(wanted, self.commands.len()).map(Some)
    }

    /// Binds what is new. The sockets come one per worker.
    fn bind(&self, plan: &Plan, published: &Published) -> Result<Bindings, String> {
        let mut bindings = (HashMap::new(), self.commands.iter().map(|_| Vec::new()).collect());
        for listener in &plan.snapshot.listeners {
            for transport in Transport::of(listener) {
                self.bind_one(listener, *transport, (plan, published), &mut bindings)?;
            }
        }
        Ok(bindings)
    }

    fn bind_one(
        &self,
        listener: &Listener,
        transport: Transport,
        (plan, published): (&Plan, &Published),
        (bound, sockets): &mut Bindings,
    ) -> Result<(), String> {
        let key = (listener.name.clone(), transport);
        let bind = listener.bind.clone();
        let failed = |error| {
            let way = if transport == Transport::Quic { " by UDP, for HTTP/3" } else { "" };
            format!("listener {}: cannot listen on {}{way}: {error}", listener.name, listener.bind)
        };
        // HTTP/3 has the port that the other versions have, also where any free one was asked for.
        let beside = bound.get(&(listener.name.clone(), Transport::Stream)).map(|beside| beside.address.clone());
        let beside = beside.filter(|_| transport == Transport::Quic);
        let is_kept = |(known, kept): &(&(Name, Transport), &Bound)| {
            let is_beside = beside.as_ref().is_none_or(|beside| kept.address == *beside);
            is_same_place(&known.0, kept, listener, transport) && is_beside
        };
        let at = beside.clone().unwrap_or_else(|| bind.clone());
        if let Some((_, kept)) = published.bound.iter().find(is_kept) {
            bound.insert(key, Bound { bind, ..kept.clone() });
            return Ok(());
        }
        if let Some(inherited) = self.claim(listener, transport, beside.as_ref()) {
            let adopted = self.adopt(listener, inherited, sockets).map_err(failed)?;
            bound.insert(key, adopted);
            return Ok(());
        }
        self.make_room(listener, (transport, &at));
        if transport == Transport::Datagram && published.has_connections(plan, &at) {
            return Err(failed(io::Error::other("HTTP/3 connections that started there are still open")));
        }
        let before = if transport == Transport::Quic { published.before(plan, &at) } else { Vec::new() };
        let is_left = |left: &Bound| left.transport == transport && left.address == at && left.is_in_use();
        if published.leaving.iter().any(is_left)
            && let Some(taken) = self.take_back(listener, &at, &before, sockets).map_err(failed)?
        {
            bound.insert(key, taken);
            return Ok(());
        }
        // Our own listener of another name may still hold the address: it goes with this very plan.
        let is_ours =
            |other: &Bound| other.transport.is_udp() == transport.is_udp() && listen::overlap(&other.address, &at);
        let ours = published.bound.values().any(is_ours)
            || published.leaving.iter().any(|other| other.is_in_use() && is_ours(other))
            || self.heritage().is_at(transport, &at);
        let workers = self.commands.len();
        let files: Vec<Arc<SocketFile>> =
            published.bound.values().chain(bound.values()).filter_map(|place| place.file.clone()).collect();
        let made = listen::bind(listener, (transport, &at), workers, !ours, &files).map_err(failed)?;
        let hubs = if transport == Transport::Quic { Generation::succeed(&before, workers) } else { Vec::new() };
        let quic = Generation::of(&hubs);
        let mut hubs = hubs.into_iter();
        for (of_worker, socket) in sockets.iter_mut().zip(made.sockets) {
            of_worker.push(Opened {
                name: listener.name.clone(),
                transport,
                socket,
                hub: hubs.next(),
                beside: None,
                is_adopted: false,
            });
        }
        bound.insert(key, Bound { bind, address: made.address, transport, file: made.file, quic });
        Ok(())
    }
}

impl Published {
    /// The ports of QUIC that no listener of a plan has any more and that still read what comes to an address, or some of whose
    /// connections come to sockets at that; the latest last. Nobody can know the connections of two that are strangers to each other:
    /// those are left out that are strangers to who has that very address.
    fn before(&self, plan: &Plan, at: &Address) -> Vec<Generation> {
        let there = self.leaving.iter().chain(self.going(plan).map(|(_, bound)| bound));
        let there = there.filter(|bound| bound.is_in_use() && listen::overlap(&bound.address, at));
        let all: Vec<_> = there.filter_map(|bound| Some((bound.address == *at, bound.quic.clone()?))).collect();
        let owner = all.iter().rfind(|(is_at, _)| *is_at).map(|(_, quic)| quic.clone());
        let is_kin = |quic: &Generation| owner.as_ref().is_none_or(|owner| owner.is_kin(quic));
        all.into_iter().map(|(_, quic)| quic).filter(is_kin).collect()
    }

    /// Whether connections of QUIC are left at an address that a plan has for datagrams: neither could be told from the other.
    fn has_connections(&self, plan: &Plan, at: &Address) -> bool {
        let is_there = |bound: &Bound| bound.is_in_use() && listen::overlap(&bound.address, at);
        let is_used = |name: &Name| {
            let listener = self.plan.as_ref().and_then(|plan| plan.listener(name));
            listener.is_some_and(|listener| listener.state.connections() > 0)
        };
        self.leaving.iter().any(is_there) || self.going(plan).any(|(name, bound)| is_there(bound) && is_used(name))
    }

    /// The ports of QUIC in force that a plan has no listener for.
    fn going<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (&'a Name, &'a Bound)> {
        let has_listener = |name: &Name, bound: &Bound| {
            let is_it = |listener: &Arc<Listener>| {
                Transport::of(listener).contains(&Transport::Quic)
                    && is_same_place(name, bound, listener, Transport::Quic)
            };
            plan.snapshot.listeners.iter().any(is_it)
        };
        let quic = self.bound.iter().filter(|(_, bound)| bound.transport == Transport::Quic);
        quic.map(|((name, _), bound)| (name, bound)).filter(move |(name, bound)| !has_listener(name, bound))
    }
}

/// Gives the files of Unix sockets the permissions that are wanted now. What comes back takes them back.
fn permit<'a>(plan: &Plan, bound: &'a HashMap<(Name, Transport), Bound>) -> Result<Vec<Undo<'a>>, String> {
    let mut permitted = Vec::new();
    for listener in &plan.snapshot.listeners {
        let place = bound.get(&(listener.name.clone(), Transport::Stream));
        if let Some(file) = place.and_then(|place| place.file.as_deref()) {
            let failed = |error| format!("listener {}: cannot set up {}: {error}", listener.name, listener.bind);
            if file.is_ours() {
                permitted.push(file.permit(&listener.socket.file).map_err(failed)?);
            } else {
                // Another process may have to go on with it as it is.
                file.check(&listener.socket.file).map_err(failed)?;
            }
        }
    }
    Ok(permitted)
}

/// Where sockets are, and those that are new, by worker.
pub(crate) type Bindings = (HashMap<(Name, Transport), Bound>, Vec<Vec<Opened>>);

fn join(issues: &[Issue]) -> String {
    issues.iter().map(Issue::to_string).collect::<Vec<_>>().join("; ")
}
