//! A started program: workers, configuration, probes and admin listener, from start to end. Every command that proxies
//! goes through here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use admin::{Admin, Bound};
use control::connections::Connections;
use control::history::Origin;
use control::{Candidate, Cause, Desk, Done, Order, Orders, Reconciler, Refusal, Source, View};
use proxy::Workers;
use telemetry::Telemetry;
use tokio::time::MissedTickBehavior;

use crate::ending::Ending;
use crate::limits;
use crate::signals::{Signals, Wish};

/// How often certificate files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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

/// Says why nothing was started.
pub(crate) fn cannot_start(reason: &dyn std::fmt::Display) -> Ending {
    eprintln!("equipoise: cannot start: {reason}");
    Ending::CannotStart
}

/// The parts of a running program.
pub(crate) struct Live {
    workers: Workers,
    count: usize,
    reconciler: Reconciler,
    admin: Option<Admin>,
    desk: Desk,
    orders: Orders,
    drain_timeout: Duration,
}

impl Live {
    /// Starts everything. Nothing stays behind when it cannot.
    ///
    /// # Errors
    /// How the program ends; why has been said on standard error.
    pub(crate) fn start(source: Source, workers: usize) -> Result<Self, Ending> {
        let mut live = Self::assemble(source, workers).map_err(|error| cannot_start(&error))?;
        match live.take(Origin::Start) {
            Ok(()) => Ok(live),
            Err(Refusal::Bad(diagnostics)) => {
                eprintln!("{diagnostics}");
                if let Some(folder) = live.reconciler.changes_from() {
                    let place = folder.display();
                    eprintln!(
                        "equipoise: changes by the API, kept in {place}, stand beside the file; without changes.json there the file is alone"
                    );
                }
                Err(Ending::Bad)
            }
            Err(other) => Err(cannot_start(&other)),
        }
    }

    fn assemble(source: Source, count: usize) -> io::Result<Self> {
        let telemetry = Telemetry::new(count);
        let workers = Workers::start(proxy::Options { workers: count, telemetry: Arc::clone(&telemetry) })?;
        let view = View::new(telemetry, count, Box::new(workers.lost_records()));
        view.set_connections(connections(&workers));
        let reconciler = Reconciler::new(source, proxy::check, workers.publisher(), view)?;
        let (desk, orders) = Desk::new();
        let drain_timeout = model::limits::DRAIN;
        Ok(Self { workers, count, reconciler, admin: None, desk, orders, drain_timeout })
    }

    /// Reads the configuration and puts it into force.
    fn take(&mut self, origin: Origin) -> Result<(), Refusal> {
        let candidate = match origin {
            Origin::Start => self.reconciler.prepare()?,
            _ => self.aside(Reconciler::prepare)?,
        };
        self.put_into_force(candidate, origin.into())
    }

    /// Puts a configuration into force, the admin listener included: whatever goes wrong leaves all as it was.
    fn put_into_force(&mut self, candidate: Candidate, cause: Cause) -> Result<(), Refusal> {
        let wanted = candidate.snapshot().admin.clone();
        let drain_timeout = candidate.snapshot().drain_timeout;
        let stays = match (&self.admin, &wanted) {
            (Some(admin), Some(wanted)) => *admin.configured() == wanted.bind,
            _ => false,
        };
        let bound = match wanted.as_ref().filter(|_| !stays) {
            Some(admin) => {
                let failed = |error| Refusal::Unpublished(format!("admin: cannot listen on {}: {error}", admin.bind));
                Some(Bound::bind(&admin.bind, admin.mode).map_err(failed)?)
            }
            None => None,
        };
        self.reconciler.commit(candidate, cause).map_err(Refusal::Unpublished)?;
        self.view().set_addresses(self.workers.addresses());
        self.drain_timeout = drain_timeout;
        if !stays {
            self.admin = None;
        } else if let (Some(admin), Some(wanted)) = (&self.admin, &wanted)
            && let Err(error) = admin.permit(wanted.mode)
        {
            telemetry::log::error("the permissions of the admin socket stay as they were", &[("error", &error)]);
        }
        if bound.is_some() && wanted.is_some_and(|admin| !admin.changes_allowed) {
            let why = "everybody who reaches its address may read there, so nothing can be changed by the API";
            telemetry::log::warn("the admin listener asks for no credentials", &[("so", &why)]);
        }
        if let Some(bound) = bound {
            // The configuration is in force; without its admin listener the program still carries traffic.
            match Admin::start(bound, self.view().clone(), self.desk.clone()) {
                Ok(admin) => self.admin = Some(admin),
                Err(error) => telemetry::log::error("the admin listener cannot start", &[("error", &error)]),
            }
        }
        Ok(())
    }

    /// Does what somebody asks for by the API.
    fn carry_out(&mut self, order: &Order) -> Result<Done, Refusal> {
        let revision = self.reconciler.revision();
        if order.expected.is_some_and(|expected| expected != revision) {
            return Err(Refusal::Stale(revision));
        }
        let prepared = self.aside(|reconciler| reconciler.prepare_change(&order.change, &order.author));
        let (candidate, origin) = prepared.inspect_err(|refusal| {
            if !order.is_dry && matches!(refusal, Refusal::Bad(_)) {
                self.reconciler.count_refused();
            }
        })?;
        let (differences, effects) = self.reconciler.compare(&candidate);
        let warnings = candidate.warnings().to_vec();
        if !order.is_dry {
            let cause = Cause { origin, author: Some(Arc::clone(&order.author)) };
            self.put_into_force(candidate, cause)?;
        }
        let (generation, revision) = (self.view().generation(), self.reconciler.revision());
        Ok(Done { generation, revision, differences: differences.into(), effects, warnings })
    }

    /// Makes something ready on a thread that gives way to those of the workers: reading and compiling take milliseconds
    /// of a core, and requests must not wait for them.
    fn aside<T: Send>(&self, work: impl Fn(&Reconciler) -> T + Sync) -> T {
        let (reconciler, work) = (&self.reconciler, &work);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("prepare".into());
            let spawned = thread.spawn_scoped(scope, move || {
                limits::give_way();
                work(reconciler)
            });
            match spawned.map(|thread| thread.join()) {
                Ok(Ok(prepared)) => prepared,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // No thread is to be had: then here.
                Err(_) => work(reconciler),
            }
        })
    }

    /// What may be read of it.
    pub(crate) fn view(&self) -> &View {
        self.reconciler.view()
    }

    /// Where the dashboard is, if a browser can ask there.
    pub(crate) fn admin_address(&self) -> Option<std::net::SocketAddr> {
        self.admin.as_ref()?.address().ip()
    }

    /// Says on standard error what was started, with the addresses that were really bound.
    pub(crate) fn announce(&self) {
        eprint!("{}", self.announcement());
    }

    fn announcement(&self) -> String {
        use std::fmt::Write as _;
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        let workers = if self.count == 1 { "worker" } else { "workers" };
        let mut text = format!("equipoise {version}, pid {pid}, {} {workers}\n", self.count);
        for listener in self.view().status().listeners {
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
        match self.admin.as_ref().map(Admin::address) {
            Some(model::Address::Ip(address)) => drop(writeln!(text, "  admin on http://{address}")),
            Some(unix) => drop(writeln!(text, "  admin on {unix}")),
            None => {}
        }
        text
    }

    /// Does what signals ask for and watches the certificate files, until a signal asks for the end.
    pub(crate) async fn serve(&mut self, signals: &mut Signals) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                wish = signals.next() => match wish {
                    Wish::Reload => self.reload(),
                    Wish::ReopenLogs => self.reopen_logs(),
                    Wish::End => return,
                },
                (order, answer) = self.orders.next() => {
                    // Who asked may have gone meanwhile.
                    let _ = answer.send(self.carry_out(&order));
                }
                _ = looks.tick() => self.look_at_files(),
            }
        }
    }

    fn reload(&mut self) {
        if let Err(refusal) = self.take(Origin::Reload) {
            tell_refusal("configuration refused, the one before stays in force", &refusal);
        }
    }

    fn look_at_files(&mut self) {
        if let Err(refusal) = self.reconciler.look_at_files() {
            tell_refusal("changed certificates refused, those before stay in force", &refusal);
        }
    }

    fn reopen_logs(&self) {
        match self.workers.reopen_logs() {
            Ok(()) => telemetry::log::info("access logs are open anew", &[]),
            Err(error) => telemetry::log::error("an access log cannot be opened anew", &[("error", &error)]),
        }
    }

    /// Ends in good order: accepts nothing more, lets exchanges end within the time for that. A further signal to end
    /// ends the process here and now.
    pub(crate) async fn end(self, signals: &mut Signals) -> Ending {
        self.view().set_draining();
        // Who waits for a change is told that none comes.
        drop(self.orders);
        let timeout = self.drain_timeout;
        telemetry::log::info(
            "draining",
            &[("open", &self.workers.open_connections()), ("timeout_s", &timeout.as_secs_f64())],
        );
        let workers = Arc::new(self.workers);
        let drain = tokio::task::spawn_blocking({
            let workers = Arc::clone(&workers);
            move || workers.drain(timeout)
        });
        let all_ended = tokio::select! {
            drained = drain => drained.unwrap_or(false),
            () = signals.end() => {
                eprintln!("equipoise: ended at once, as asked, with {} connections open", workers.open_connections());
                std::process::exit(i32::from(Ending::CutShort.code()));
            }
        };
        if all_ended {
            return Ending::Good;
        }
        telemetry::log::warn("connections were cut off at the end of the drain", &[]);
        Ending::CutShort
    }
}

/// The connections of the data plane, as the control plane knows them.
fn connections(workers: &Workers) -> Connections {
    let (list, end) = (workers.connections(), workers.connections());
    Connections { list: Box::new(move |page| list.list(page)), end: Box::new(move |id| end.end(id)) }
}

fn tell_refusal(message: &'static str, refusal: &Refusal) {
    match refusal {
        Refusal::Bad(diagnostics) => {
            telemetry::log::error(message, &[("problems", &(diagnostics.list.len() + diagnostics.left_out))]);
            eprintln!("{diagnostics}");
        }
        other => telemetry::log::error(message, &[("reason", &other)]),
    }
}
