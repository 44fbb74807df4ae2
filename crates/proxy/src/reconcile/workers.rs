//! The workers as the program sees them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::{Address, Issue, Name};
use plan::{Plan, Publisher};
use telemetry::Telemetry;
use tokio::sync::mpsc::unbounded_channel;

use super::shared::{ACKNOWLEDGE, Published, Shared};
use crate::clients::Connections;
use crate::disk_cache;
use crate::handover::Inheritance;
use crate::listen::Transport;
use crate::registry::PARTING;
use crate::tls::TlsMaterial;
use crate::worker::command::Command;
use crate::worker::run::run;

/// How often a drain looks whether all is over.
const DRAIN_STEP: Duration = Duration::from_millis(5);

/// The time over which connections are told to come again to another process, which has their listener. It is a quarter of the whole
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
    pub inheritance: Inheritance,
}

/// The running data plane. Dropping it ends the workers at once.
pub struct Workers {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
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
            let is_held = options.inheritance.is_held;
            threads.push(thread.spawn(move || run(index, telemetry, (open, is_held), receiver))?);
            commands.push(sender);
        }
        let telemetry = options.telemetry;
        let mut inheritance = options.inheritance;
        let tls = Arc::new(TlsMaterial::after(std::mem::take(&mut inheritance.tickets)));
        crate::tls::set_token_secret(&inheritance.tokens);
        let published = Published { tls, ..Published::default() }.into();
        let (inheritance, logs, spares) = (inheritance.into(), Mutex::default(), Mutex::default());
        let shared = Shared { commands, published, open_connections, telemetry, inheritance, logs, spares };
        Ok(Self { shared: Arc::new(shared), threads })
    }

    /// Returns the way by which plans come in.
    pub fn publisher(&self) -> Publisher {
        let shared = self.shared.clone();
        let tries = self.shared.clone();
        Publisher::new(move |plan| shared.publish(plan)).with_trials(move |trial| tries.try_out(trial))
    }

    /// Returns where each listener really listens.
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

    /// Opens the access logs again, after they were renamed.
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

    /// Returns a function that counts the records that no access log could take: because the worker's ring was full, and because
    /// writing failed.
    pub fn lost_records(&self) -> impl Fn() -> (u64, u64) + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.logs().as_ref().map_or((0, 0), |logs| (logs.dropped(), logs.failed()))
    }

    /// Returns a handle that answers questions about connections, from any thread.
    pub fn connections(&self) -> Connections {
        let shared = self.shared.clone();
        Connections(Arc::new(move |worker, question| {
            shared.commands.get(worker).is_some_and(|commands| commands.send(Command::Ask(question)).is_ok())
        }))
    }

    /// Counts open client connections.
    pub fn open_connections(&self) -> usize {
        self.shared.open_connections.load(Ordering::Relaxed)
    }

    /// Stops accepting and waits until every connection has ended, at most `timeout`; then cuts off the rest.
    /// Returns `true` if none had to be cut off.
    pub fn drain(&self, timeout: Duration) -> bool {
        self.shared.remove_files();
        let (done, all_closed) = channel();
        let window = PART_WITHIN.min(timeout / 4).min(timeout.saturating_sub(PARTING));
        disk_cache::end_scans();
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

/// Checks what only the data plane can: certificates, keys and authorities, and folders of caches.
///
/// # Errors
/// Everything that [`Publisher::publish`] would refuse without touching a socket or a file.
pub fn check(plan: &Plan) -> Result<(), Vec<Issue>> {
    let tls = TlsMaterial::build(plan, &TlsMaterial::default()).map(drop);
    match (tls, disk_cache::check(plan)) {
        (Err(mut issues), Err(more)) => {
            issues.extend(more);
            Err(issues)
        }
        (tls, folders) => tls.and(folders),
    }
}
