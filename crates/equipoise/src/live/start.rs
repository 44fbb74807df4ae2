//! Starting: the runtime, the parts of the program, and the first configuration.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::connections::Connections;
use control::history::Origin;
use control::{ConfigurationHandover, Reconciler, Refusal, Source, View};
use proxy::Workers;
use proxy::handover::Inheritance;
use telemetry::Telemetry;
use tokio::sync::mpsc::unbounded_channel;

use super::admin_door::AdminDoor;
use super::memory::Memory;
use super::{Live, upgrade};
use crate::ending::Ending;
use crate::limits;
use crate::signals::Signals;
use crate::systemd::{self, Watchdog};
use crate::upgrade::predecessor::Offer;
use crate::upgrade::{Predecessor, Program, manifest};

/// Runs `program` on the runtime of the main thread, with the signals taken over.
pub(crate) fn block_on<F: Future<Output = Ending>>(program: impl FnOnce(Signals) -> F) -> Ending {
    limits::raise_open_files();
    // From here on a standard error that nobody reads costs lines, not the time of a worker.
    let _log = match telemetry::log::start() {
        Ok(log) => log,
        Err(error) => return cannot_start(&error),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return cannot_start(&error),
    };
    runtime.block_on(async {
        match Signals::take() {
            Ok(signals) => program(signals).await,
            Err(error) => cannot_start(&error),
        }
    })
}

/// Prints why nothing was started.
pub(crate) fn cannot_start(reason: &dyn std::fmt::Display) -> Ending {
    eprintln!("equipoise: cannot start: {reason}");
    Ending::CannotStart
}

impl Live {
    /// Starts everything. Leaves nothing behind when it cannot.
    ///
    /// # Errors
    /// How the program ends; why has been said on standard error.
    pub(crate) fn start(source: Source, workers: usize) -> Result<Self, Ending> {
        crate::memory::give_back_at_once(true);
        let predecessor = Predecessor::find().map_err(|error| cannot_start(&error))?;
        let origin = if predecessor.is_some() { Origin::Upgrade } else { Origin::Start };
        let mut live = Self::assemble(source, workers, predecessor).map_err(|error| cannot_start(&error))?;
        live.reconciler.await_providers().map_err(|error| cannot_start(&error))?;
        // While the process before can still go on.
        let ear = live.ear();
        match ear.and_then(|ear| live.first(origin).map(|()| ear)).and_then(|ear| live.take_over(ear)) {
            Ok(()) => {
                limits::take_long_turns(false);
                live.reconciler.keep_history();
                live.reconciler.watch_configuration();
                Ok(live)
            }
            Err(refusal) => {
                live.refuse(&refusal);
                Err(live.tell_why(refusal))
            }
        }
    }

    /// Prints why nothing was started.
    fn tell_why(&self, refusal: Refusal) -> Ending {
        match refusal {
            Refusal::Bad(diagnostics) => {
                eprintln!("{diagnostics}");
                if let Some(folder) = self.reconciler.changes_from() {
                    let place = folder.display();
                    eprintln!(
                        "equipoise: API changes saved in {place} override the file; remove changes.json there to use the file alone"
                    );
                }
                Ending::Bad
            }
            other => cannot_start(&other),
        }
    }

    /// Tells systemd that this process is ready. One that follows another leaves that to it.
    pub(crate) fn tell_ready(&self) {
        // Newest first; the history may tell of processes before.
        let began = self.view().generations().into_iter().find(|entry| entry.origin.is_beginning());
        if began.is_none_or(|entry| entry.origin != Origin::Upgrade) {
            systemd::ready();
        }
    }

    /// Sets the program that an upgrade starts. Without one, there can be no upgrade.
    pub(crate) fn may_be_followed_by(&mut self, program: Option<Program>) {
        self.program = program;
    }

    fn assemble(source: Source, count: usize, mut predecessor: Option<Predecessor>) -> io::Result<Self> {
        let telemetry = Telemetry::new(count);
        let (mut handed, mut admin_offered) = (None, None);
        let mut inheritance = Inheritance::new(systemd::sockets()?, false);
        if let Some(Predecessor { offer: Offer { sockets, admin, told }, .. }) = &mut predecessor {
            inheritance = Inheritance::new(std::mem::take(sockets), true);
            (inheritance.tickets, inheritance.tokens) = manifest::read_secrets(&told["secrets"]);
            admin_offered = admin.take();
            let told = told.get_mut("past").map(serde_json::Value::take).unwrap_or_default();
            handed = Some(serde_json::from_value::<ConfigurationHandover>(told).map_err(io::Error::other)?);
        }
        let options = proxy::Options { workers: count, telemetry: Arc::clone(&telemetry), inheritance };
        let workers = Workers::start(options)?;
        let view = View::new(Arc::clone(&telemetry), count, Box::new(workers.lost_records()));
        view.set_connections(connections(&workers));
        let predecessor = Arc::new(Mutex::new(predecessor));
        let publisher = upgrade::publisher(&workers, (&telemetry, &predecessor, view.clone()));
        let mut reconciler = Reconciler::new(source, proxy::check, publisher, view)?;
        if let Some(handed) = &handed {
            reconciler.inherit(handed);
        }
        let (order_sender, orders) = control::orders::channel();
        Ok(Self {
            telemetry,
            workers,
            count,
            reconciler,
            admin_door: AdminDoor::new(admin_offered),
            order_sender,
            orders,
            drain_timeout: model::limits::DRAIN,
            upgrade_timeout: model::limits::UPGRADE,
            program: None,
            predecessor,
            is_alone: Arc::new(AtomicBool::new(true)),
            notes: unbounded_channel(),
            watchdog: Watchdog::of_this_process(),
            memory: Memory::of_a_start(),
            spent_aside: Duration::ZERO,
        })
    }

    /// Reads the first configuration and puts it into force.
    fn first(&mut self, origin: Origin) -> Result<(), Refusal> {
        let candidate = self.reconciler.prepare()?;
        self.put_into_force(candidate, origin.into())
    }

    /// Prints on standard error what was started, with the addresses that were really bound.
    pub(crate) fn announce(&self) {
        eprint!("{}", self.announcement());
    }

    fn announcement(&self) -> String {
        use std::fmt::Write as _;
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        let workers = if self.count == 1 { "worker" } else { "workers" };
        let mut text = format!("equipoise {version}, pid {pid}, {} {workers}\n", self.count);
        for listener in self.view().listeners() {
            let scheme = match (listener.protocol, listener.tls) {
                ("http", false) => "http",
                ("http", true) => "https",
                ("udp", _) => "udp",
                (_, false) => "tcp",
                (_, true) => "tls",
            };
            // Writing to a text cannot fail.
            let _ = match &listener.address {
                model::Address::Ip(address) => writeln!(text, "  listener {} on {scheme}://{address}", listener.name),
                unix => writeln!(text, "  listener {} on {unix} ({scheme})", listener.name),
            };
        }
        let scheme = if self.view().admin_tls().is_some() { "https" } else { "http" };
        match self.admin_door.address() {
            Some(model::Address::Ip(address)) => drop(writeln!(text, "  admin on {scheme}://{address}")),
            Some(unix) => drop(writeln!(text, "  admin on {unix}")),
            None => {}
        }
        text
    }
}

/// Returns the connections of the data plane, as the control plane knows them.
fn connections(workers: &Workers) -> Connections {
    let (list, end) = (workers.connections(), workers.connections());
    Connections { list: Box::new(move |page| list.list(page)), end: Box::new(move |id| end.end(id)) }
}
