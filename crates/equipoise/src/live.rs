//! A started program: workers, configuration, probes and admin listener, from start to end. Every command that proxies
//! goes through here.

mod upgrade;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admin::{Admin, Bound};
use control::canary::Verdict;
use control::connections::Connections;
use control::history::Origin;
use control::{
    Candidate, Cause, Change, Done, Fitted, Order, OrderSender, Orders, Past, Preparation, Reconciler, Refusal, Source,
    View, Wanted,
};
use proxy::Workers;
use proxy::handover::Heritage;
use telemetry::Telemetry;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::ending::Ending;
use crate::limits;
use crate::memory;
use crate::signals::{Signals, Wish};
use crate::systemd::{self, Watchdog};
use crate::upgrade::manifest;
use crate::upgrade::predecessor::Offer;
use crate::upgrade::{Predecessor, Program, Successor};

/// How often certificate files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long an admin listener whose address is another now is kept for answers that are on their way.
const LEAVE_AFTER: Duration = Duration::from_secs(1);
/// How long after the last change the memory that changes took is given back: not between those that follow one another.
const REST_AFTER: Duration = Duration::from_secs(1);

/// How often a process that has ended its own looks whether the one before has, too.
const STEP: Duration = Duration::from_millis(20);

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
    telemetry: Arc<Telemetry>,
    workers: Workers,
    count: usize,
    reconciler: Reconciler,
    admin: Option<Admin>,
    /// Those whose address is another now: who is waiting for an answer there gets it. Since when.
    leaving: Vec<(Instant, Admin)>,
    /// Where the admin listener places orders.
    order_sender: OrderSender,
    orders: Orders,
    drain_timeout: Duration,
    upgrade_timeout: Duration,
    program: Option<Program>,
    predecessor: upgrade::Before,
    /// No process before this one is there any more.
    is_alone: Arc<AtomicBool>,
    /// Signals that came to the process before.
    notes: (UnboundedSender<Wish>, UnboundedReceiver<Wish>),
    /// The socket of the admin listener, and where it was, of the process before.
    admin_offered: Option<(model::Address, OwnedFd)>,
    watchdog: Watchdog,
    /// When something was made ready last, if what workers have let go of since was not given back yet.
    changed_at: Option<Instant>,
    /// When it began, as long as memory goes back at once.
    starting: Option<Instant>,
    /// Something was made ready, and what it took of memory was not given back yet.
    has_prepared: bool,
    /// What threads that make changes ready have had of a core.
    spent_aside: Duration,
}

/// Why a program serves no more.
pub(crate) enum After {
    /// It was told to end.
    Told,
    /// Another process has taken over.
    Followed(Successor),
}

impl Live {
    /// Starts everything. Nothing stays behind when it cannot.
    ///
    /// # Errors
    /// How the program ends; why has been said on standard error.
    pub(crate) fn start(source: Source, workers: usize) -> Result<Self, Ending> {
        memory::give_back_at_once(true);
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

    /// Says why nothing was started.
    fn tell_why(&self, refusal: Refusal) -> Ending {
        match refusal {
            Refusal::Bad(diagnostics) => {
                eprintln!("{diagnostics}");
                if let Some(folder) = self.reconciler.changes_from() {
                    let place = folder.display();
                    eprintln!(
                        "equipoise: changes by the API, kept in {place}, stand beside the file; without changes.json there the file is alone"
                    );
                }
                Ending::Bad
            }
            other => cannot_start(&other),
        }
    }

    /// Tells who started this process that it can be used. One that follows another leaves that to it.
    pub(crate) fn tell_ready(&self) {
        // Newest first; the history may tell of processes before.
        let began = self.view().generations().into_iter().find(|entry| entry.origin.is_beginning());
        if began.is_none_or(|entry| entry.origin != Origin::Upgrade) {
            systemd::ready();
        }
    }

    /// Lets this program take over when somebody asks for an upgrade. Without it, none can.
    pub(crate) fn may_be_followed_by(&mut self, program: Option<Program>) {
        self.program = program;
    }

    fn assemble(source: Source, count: usize, mut predecessor: Option<Predecessor>) -> io::Result<Self> {
        let telemetry = Telemetry::new(count);
        let (mut past, mut admin_offered) = (None, None);
        let mut heritage = Heritage::new(systemd::sockets()?, false);
        if let Some(Predecessor { offer: Offer { sockets, admin, told }, .. }) = &mut predecessor {
            heritage = Heritage::new(std::mem::take(sockets), true);
            (heritage.tickets, heritage.tokens) = manifest::read_secrets(&told["secrets"]);
            admin_offered = admin.take();
            let told = told.get_mut("past").map(serde_json::Value::take).unwrap_or_default();
            past = Some(serde_json::from_value::<Past>(told).map_err(io::Error::other)?);
        }
        let workers = Workers::start(proxy::Options { workers: count, telemetry: Arc::clone(&telemetry), heritage })?;
        let view = View::new(Arc::clone(&telemetry), count, Box::new(workers.lost_records()));
        view.set_connections(connections(&workers));
        let predecessor = Arc::new(Mutex::new(predecessor));
        let publisher = upgrade::publisher(&workers, (&telemetry, &predecessor));
        let mut reconciler = Reconciler::new(source, proxy::check, publisher, view)?;
        if let Some(past) = &past {
            reconciler.follow(past);
        }
        let (order_sender, orders) = control::orders::channel();
        Ok(Self {
            telemetry,
            workers,
            count,
            reconciler,
            admin: None,
            leaving: Vec::new(),
            order_sender,
            orders,
            drain_timeout: model::limits::DRAIN,
            upgrade_timeout: model::limits::UPGRADE,
            program: None,
            predecessor,
            is_alone: Arc::new(AtomicBool::new(true)),
            notes: unbounded_channel(),
            admin_offered,
            watchdog: Watchdog::of_this_process(),
            changed_at: Some(Instant::now()),
            starting: Some(Instant::now()),
            has_prepared: false,
            spent_aside: Duration::ZERO,
        })
    }

    /// Reads the first configuration and puts it into force.
    fn first(&mut self, origin: Origin) -> Result<(), Refusal> {
        let candidate = self.reconciler.prepare()?;
        self.put_into_force(candidate, origin.into())
    }

    /// Puts a configuration into force, the admin listener included: whatever goes wrong leaves all as it was.
    fn put_into_force(&mut self, candidate: Candidate, cause: Cause) -> Result<(), Refusal> {
        let wanted = candidate.snapshot().admin.clone();
        let timeouts = (candidate.snapshot().drain_timeout, candidate.snapshot().upgrade_timeout);
        let stays = match (&self.admin, &wanted) {
            (Some(admin), Some(wanted)) => *admin.configured() == wanted.bind,
            _ => false,
        };
        if !stays {
            // One of them may hold the very address that is wanted again.
            self.leaving.clear();
        }
        let bound = match wanted.as_ref().filter(|_| !stays) {
            Some(admin) => {
                let failed = |error| Refusal::Unpublished(format!("admin: cannot listen on {}: {error}", admin.bind));
                let offered = self.admin_offered.take_if(|(bind, _)| *bind == admin.bind).map(|(_, socket)| socket);
                let bound = match offered.or_else(|| self.workers.take_activated(&admin.bind)) {
                    Some(socket) => self.adopt_admin(&admin.bind, socket),
                    None => self.bind_admin(admin),
                };
                Some(bound.map_err(failed)?)
            }
            None => None,
        };
        if let Some(admin) = self.admin.as_ref().filter(|_| !stays) {
            // The new rules are for another door: nobody comes in by the old one when they hold.
            admin.close(true);
        }
        if let Err(reason) = self.reconciler.commit(candidate, cause) {
            self.admin.iter().for_each(|admin| admin.close(false));
            return Err(Refusal::Unpublished(reason));
        }
        self.view().set_addresses(self.workers.addresses());
        (self.drain_timeout, self.upgrade_timeout) = timeouts;
        if !stays {
            let now = Instant::now();
            self.leaving.extend(self.admin.take().map(|admin| (now, admin)));
        } else if let (Some(admin), Some(wanted)) = (&self.admin, &wanted) {
            permit(admin, wanted.mode);
        }
        if bound.is_some() {
            wanted.iter().for_each(tell_rules);
        }
        if let Some(bound) = bound {
            // The configuration is in force; without its admin listener the program still carries traffic.
            match Admin::start(bound, self.view().clone(), self.order_sender.clone()) {
                Ok(admin) => self.admin = Some(admin),
                Err(error) => telemetry::log::error("the admin listener cannot start", &[("error", &error)]),
            }
        }
        Ok(())
    }

    /// Binds the admin listener. What is in the way may be the one before, here or in the process before: it goes then.
    fn bind_admin(&self, wanted: &model::snapshot::Admin) -> io::Result<Bound> {
        let error = match Bound::bind(&wanted.bind, wanted.mode) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
            done => return done,
        };
        let ours = self.admin.as_ref().map(Admin::duplicate).transpose()?;
        let before = ours.as_ref().or(self.admin_offered.as_ref().map(|(_, socket)| socket));
        let (Some(before), Some(address)) = (before, wanted.bind.ip()) else { return Err(error) };
        match proxy::in_place_of(before.as_fd(), address)? {
            Some(socket) => Bound::adopt(&wanted.bind, socket),
            None => Err(error),
        }
    }

    /// Does what somebody asks for by the API. `None`: a signal asked for the end meanwhile.
    async fn carry_out(&mut self, order: &Arc<Order>, signals: &mut Signals) -> Option<Result<Done, Refusal>> {
        if let Err(refusal) = self.may_begin(order) {
            return Some(Err(refusal));
        }
        if let Change::EndCanary { promotes } = order.change {
            return Some(self.end_canary(promotes, &order.author));
        }
        let asked = Arc::clone(order);
        let prepared = self.aside(signals, move |preparation| preparation.prepare_change(&asked)).await?;
        let prepared = prepared.unwrap_or(Err(Refusal::Failed));
        let has_news = prepared.as_ref().is_ok_and(|(candidate, _)| self.reconciler.has_news(candidate));
        let mut done = self.finish(order, prepared);
        if has_news && matches!(done, Err(Refusal::Unpublished(_))) {
            // As in `put_read`.
            let asked = Arc::clone(order);
            let alone =
                self.aside(signals, move |preparation| preparation.without_news().prepare_change(&asked)).await?;
            if let Some(Ok(prepared)) = alone {
                done = self.finish(order, Ok(prepared));
            }
        }
        if order.change == Change::Reload {
            self.reconciler.remind_of_providers();
        }
        Some(done)
    }

    /// Whether an order still is what it was when it was given.
    fn may_begin(&self, order: &Order) -> Result<(), Refusal> {
        let plan = self.view().plan();
        if plan.is_some_and(|plan| !order.is_still_allowed(&plan.snapshot)) {
            return Err(Refusal::Outdated);
        }
        // A wish is for now; everything else would not be what was tried.
        let is_wish = matches!(order.change, Change::Wish { .. } | Change::EndCanary { .. });
        if self.reconciler.has_canary() && !is_wish && !order.is_dry {
            return Err(Refusal::Busy);
        }
        let revision = self.reconciler.revision();
        match &order.expected {
            Some(expected) if !expected.contains(&revision) => Err(Refusal::Stale(revision)),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, order: &Order, prepared: Result<(Candidate, Origin), Refusal>) -> Result<Done, Refusal> {
        let (candidate, origin) = prepared.inspect_err(|refusal| {
            if !order.is_dry && matches!(refusal, Refusal::Bad(_)) {
                self.reconciler.count_refused();
            }
        })?;
        let effects = self.reconciler.effects(&candidate);
        let warnings = candidate.warnings().to_vec();
        let is_changed = !self.reconciler.is_there(&order.change, &candidate);
        let cause = || Cause { author: Some(Arc::clone(&order.author)), ..origin.into() };
        let differences = match order.canary {
            _ if order.is_dry => self.reconciler.differences(&candidate).into(),
            _ if !is_changed => <_>::default(),
            Some(terms) => {
                self.reconciler.begin_canary(candidate, cause(), terms)?;
                self.view().canaries().first().map(|canary| Arc::clone(&canary.differences)).unwrap_or_default()
            }
            None => {
                self.put_into_force(candidate, cause())?;
                self.view().last_differences()
            }
        };
        let (generation, revision) = (self.view().generation(), self.reconciler.revision());
        let not_kept = self.reconciler.not_kept();
        let is_tried = !order.is_dry && is_changed && order.canary.is_some();
        let successor = None;
        Ok(Done { generation, revision, is_changed, differences, effects, warnings, is_tried, not_kept, successor })
    }

    /// Ends a trial by hand.
    fn end_canary(&mut self, promotes: bool, author: &str) -> Result<Done, Refusal> {
        if !self.reconciler.has_canary() {
            let message = "no canary is running".to_owned();
            return Err(Refusal::Missing { message, suggestion: None });
        }
        if promotes {
            self.promote_canary(&format!("{author} has said so"))?;
        } else {
            self.reconciler.end_canary(&format!("{author} has said so"));
        }
        let (generation, revision) = (self.view().generation(), self.reconciler.revision());
        let differences =
            self.view().canaries().first().map(|canary| Arc::clone(&canary.differences)).unwrap_or_default();
        let (effects, warnings) = (<_>::default(), Vec::new());
        let not_kept = self.reconciler.not_kept();
        let (is_changed, is_tried, successor) = (promotes, false, None);
        Ok(Done { generation, revision, is_changed, differences, effects, warnings, is_tried, not_kept, successor })
    }

    /// Puts what is tried into force.
    fn promote_canary(&mut self, reason: &str) -> Result<(), Refusal> {
        let Some((candidate, cause)) = self.reconciler.promote_canary(reason) else { return Ok(()) };
        let done = self.put_into_force(candidate, cause);
        if let Err(refusal) = &done {
            tell_refusal("what was tried cannot come into force, the one before stays", refusal);
        }
        self.reconciler.promoted(done.as_ref().copied(), reason);
        done
    }

    /// Lets what is tried go on, come into force, or go, by what was seen of it.
    fn judge_canary(&mut self) {
        match self.reconciler.judge_canary() {
            Verdict::GoOn => {}
            // What stands against it is in the log.
            Verdict::Promote(reason) => drop(self.promote_canary(&reason)),
            Verdict::GoBack(reason) => self.reconciler.roll_back_canary(&reason),
        }
    }

    /// Makes something ready on a thread that gives way to those of the workers: reading and compiling take milliseconds
    /// of a core, and requests must not wait for them. Names may take seconds to be found, and signals must not wait for
    /// those; nor must who watches over this process, which carries traffic all the while. `None`: a signal asked for the end,
    /// and the thread is left alone. `Some(None)`: the work has failed in itself; nothing of what runs was touched.
    async fn aside<T: Send + 'static>(
        &mut self,
        signals: &mut Signals,
        work: impl FnOnce(&Preparation) -> T + Send + 'static,
    ) -> Option<Option<T>> {
        let preparation = self.reconciler.preparation();
        let (sender, mut done) = oneshot::channel();
        let spawned = std::thread::Builder::new().name("prepare".into()).spawn(move || {
            limits::give_way();
            // Pages that were used before come back clean: what stays of this change shares no page with what once was there.
            memory::give_back();
            let done = work(&preparation);
            // Who waits may have gone.
            let _ = sender.send((done, limits::cpu_time()));
        });
        if let Err(error) = spawned {
            telemetry::log::error("a change cannot be prepared", &[("error", &error)]);
            return Some(None);
        }
        loop {
            tokio::select! {
                done = &mut done => {
                    let Ok((done, cost)) = done else { return Some(None) };
                    self.spent_aside += cost;
                    (self.changed_at, self.has_prepared) = (Some(Instant::now()), true);
                    return Some(Some(done));
                }
                () = signals.ended() => return None,
                () = self.watchdog.turn() => self.watchdog.beat(&self.workers),
            }
        }
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
        match self.admin.as_ref().map(Admin::address) {
            Some(model::Address::Ip(address)) => drop(writeln!(text, "  admin on {scheme}://{address}")),
            Some(unix) => drop(writeln!(text, "  admin on {unix}")),
            None => {}
        }
        text
    }

    /// Does what signals ask for and watches the certificate files, until a signal asks for the end, or another process has
    /// taken over.
    pub(crate) async fn serve(&mut self, signals: &mut Signals) -> After {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (provided, names) = (self.reconciler.inbox(), self.reconciler.names());
        loop {
            if std::mem::take(&mut self.has_prepared) {
                // What was in force before, and what was thrown away.
                memory::give_back();
            }
            tokio::select! {
                wish = next(signals, &mut self.notes.1) => match wish {
                    Wish::Reload => {
                        if self.reload(signals).await.is_none() {
                            return After::Told;
                        }
                    }
                    Wish::ReopenLogs => reopen_logs(&self.workers),
                    Wish::Upgrade => {
                        if let Some(after) = self.upgrade(signals, None).await {
                            return after;
                        }
                    }
                    Wish::End => return After::Told,
                },
                (order, answer) = self.orders.next() => {
                    // Who asked may have gone meanwhile, before it was begun or after.
                    if answer.is_closed() {
                        continue;
                    }
                    if order.change == Change::Upgrade {
                        if let Some(after) = self.upgrade(signals, Some((order, answer))).await {
                            return after;
                        }
                        continue;
                    }
                    let Some(done) = self.carry_out(&Arc::new(order), signals).await else { return After::Told };
                    let _ = answer.send(done);
                }
                () = provided.next() => {
                    // Not by the clock: a change that waits long for a core costs no more by that, and would wait again for it.
                    let (here, aside) = (limits::cpu_time(), self.spent_aside);
                    if self.take_provided(signals).await.is_none() {
                        return After::Told;
                    }
                    provided.pause_after(limits::cpu_time() - here + (self.spent_aside - aside));
                }
                () = names.next() => {
                    let (here, aside) = (limits::cpu_time(), self.spent_aside);
                    if self.take_names(signals).await.is_none() {
                        return After::Told;
                    }
                    names.pause_after(limits::cpu_time() - here + (self.spent_aside - aside));
                }
                _ = looks.tick() => {
                    self.look_after();
                    if self.look_at_configuration(signals).await.is_none() {
                        return After::Told;
                    }
                }
                () = self.watchdog.turn() => self.watchdog.beat(&self.workers),
            }
        }
    }

    /// `None`: a signal asked for the end meanwhile.
    async fn reload(&mut self, signals: &mut Signals) -> Option<()> {
        self.reconciler.note_configuration();
        systemd::reloading();
        self.read_anew(signals, |_, _| true).await?;
        systemd::ready();
        Some(())
    }

    /// Reads the files and puts them into force, if they are `wanted`. `None`: as with a reload.
    async fn read_anew(&mut self, signals: &mut Signals, wanted: fn(&Reconciler, &Candidate) -> bool) -> Option<()> {
        let prepared = self.aside(signals, |preparation| preparation.prepare().map_err(Refusal::Bad)).await?;
        let done = match prepared.unwrap_or(Err(Refusal::Failed)) {
            Ok(candidate) if wanted(&self.reconciler, &candidate) => self.put_read(candidate, signals).await?,
            Ok(_) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            tell_refusal("configuration refused, the one before stays in force", &refusal);
        }
        self.reconciler.remind_of_providers();
        self.reconciler.watch_configuration();
        Some(())
    }

    /// Puts into force what was read. Where the data plane does not take it, what providers want anew may be to blame: then the
    /// files come into force without that, and each provider is tried by itself. `None`: as with a reload.
    async fn put_read(&mut self, candidate: Candidate, signals: &mut Signals) -> Option<Result<(), Refusal>> {
        let has_news = self.reconciler.has_news(&candidate);
        let refusal = match self.put_into_force(candidate, Origin::Reload.into()) {
            Err(refusal) if has_news => refusal,
            done => return Some(done),
        };
        match self.aside(signals, |preparation| preparation.without_news().prepare()).await? {
            Some(Ok(candidate)) => Some(self.put_into_force(candidate, Origin::Reload.into())),
            _ => Some(Err(refusal)),
        }
    }

    /// Puts the configuration into force if its files have changed and are watched. `None`: as with a reload.
    async fn look_at_configuration(&mut self, signals: &mut Signals) -> Option<()> {
        if self.reconciler.has_canary() || !self.reconciler.look_at_configuration() {
            return Some(());
        }
        self.read_anew(signals, |reconciler, candidate| !reconciler.is_in_force(candidate)).await
    }

    /// Puts into force what providers want, as far as it fits and the data plane takes it. `None`: as with a reload.
    async fn take_provided(&mut self, signals: &mut Signals) -> Option<()> {
        let Some(fitted) = self.aside(signals, Preparation::prepare_provided).await? else {
            // What they want waits, and is tried again after the longest of pauses: no thread can be had, or the work has failed.
            self.reconciler.remind_of_providers();
            self.reconciler.inbox().pause();
            return Some(());
        };
        for one in self.put_provided(fitted, None) {
            // One that cannot be published must not hold up the others.
            let alone = one.clone();
            match self.aside(signals, move |preparation| preparation.prepare_wanted(vec![alone])).await? {
                Some(fitted) => drop(self.put_provided(fitted, Some(one))),
                None => self.reconciler.remind_of_providers(),
            }
        }
        Some(())
    }

    /// Puts into force what fits of what providers want. What comes back is not taken by the data plane as it is together:
    /// nobody was told of that yet. `alone`: it is for the sake of this one, and nothing comes back.
    fn put_provided(&mut self, fitted: Fitted, alone: Option<Wanted>) -> Vec<Wanted> {
        let Fitted { candidate, origin, taken, refused } = fitted;
        self.reconciler.refuse(&refused);
        let Some(candidate) = candidate else { return Vec::new() };
        let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
        let author = format!("provider {}", names.join(", "));
        match self.put_into_force(candidate, Cause { author: Some(author.into()), ..origin.into() }) {
            Err(_) if taken.len() > 1 && alone.is_none() => return taken,
            Err(refusal) => {
                // It was compiled and found right: what is in its way may go. Others of which something did not fit are tried along.
                let blamed = taken.into_iter().filter(|one| alone.as_ref().is_none_or(|alone| alone.0 == one.0));
                self.reconciler.put_off(&blamed.collect::<Vec<_>>(), &refusal);
            }
            Ok(()) => {}
        }
        Vec::new()
    }

    /// Puts into force where endpoints are by now whose host names have other addresses. `None`: as with a reload.
    async fn take_names(&mut self, signals: &mut Signals) -> Option<()> {
        let done = match self.aside(signals, Preparation::prepare_names).await? {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some((candidate, moves)))) => {
                self.put_into_force(candidate, Origin::Names.into()).inspect(|()| moves.tell())
            }
            Some(Err(wrong)) => Err(Refusal::Bad(wrong)),
            None => Err(Refusal::Failed),
        };
        if let Err(refusal) = done {
            // The next lookup of the same name tries it again.
            tell_refusal("endpoints stay at addresses that their host names no longer have", &refusal);
        }
        Some(())
    }

    /// What is due once in a while.
    fn look_after(&mut self) {
        self.leaving.retain(|(since, _)| since.elapsed() < LEAVE_AFTER);
        // Also where changes follow each other without a rest: it costs every worker.
        if self.starting.take_if(|at| at.elapsed() >= REST_AFTER).is_some() {
            memory::give_back_at_once(false);
        }
        if self.changed_at.take_if(|at| at.elapsed() >= REST_AFTER).is_some() {
            memory::give_back();
        }
        self.reconciler.keep_again();
        self.judge_canary();
        // New certificates wait until it is known which configuration they are for.
        if !self.reconciler.has_canary() {
            self.look_at_files();
        }
    }

    fn look_at_files(&mut self) {
        if let Err(refusal) = self.reconciler.look_at_files() {
            tell_refusal("changed files refused, those before stay in force", &refusal);
        }
    }

    /// Ends in good order: accepts nothing more, lets exchanges end within the time for that. A further signal to end
    /// ends the process here and now.
    pub(crate) async fn end(self, signals: &mut Signals) -> Ending {
        self.view().set_draining();
        // Who waits for a change is told that none comes.
        drop(self.orders);
        let (timeout, is_alone) = (self.drain_timeout, self.is_alone);
        let until = Instant::now() + timeout;
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
            () = end_of(signals, &workers) => end_at_once(&workers),
        };
        // What is for the process before this one comes by this one, and what it counts goes by it.
        // It drains within a time of its own, and what started this program may end both with this one.
        while !is_alone.load(Ordering::Relaxed) && Instant::now() < until {
            tokio::select! {
                () = tokio::time::sleep(STEP) => {}
                () = end_of(signals, &workers) => end_at_once(&workers),
            }
        }
        if all_ended {
            return Ending::Good;
        }
        telemetry::log::warn("connections were cut off at the end of the drain", &[]);
        Ending::CutShort
    }
}

/// Waits, while the process drains, for a signal to end. It still writes access logs: they may be rotated.
async fn end_of(signals: &mut Signals, workers: &Workers) {
    loop {
        match signals.next().await {
            Wish::End => return,
            Wish::ReopenLogs => reopen_logs(workers),
            _ => {}
        }
    }
}

/// A second signal to end.
fn end_at_once(workers: &Workers) -> ! {
    eprintln!("equipoise: ended at once, as asked, with {} connections open", workers.open_connections());
    std::process::exit(i32::from(Ending::CutShort.code()))
}

fn reopen_logs(workers: &Workers) {
    match workers.reopen_logs() {
        Ok(()) => telemetry::log::info("access logs reopened", &[]),
        Err(error) => telemetry::log::error("an access log cannot be reopened", &[("error", &error)]),
    }
}

/// The next signal, to this process or, before it was followed, to the one before.
async fn next(signals: &mut Signals, notes: &mut UnboundedReceiver<Wish>) -> Wish {
    tokio::select! {
        wish = signals.next() => wish,
        Some(wish) = notes.recv() => wish,
    }
}

/// Gives the admin socket the permissions that are wanted now.
fn permit(admin: &Admin, mode: u32) {
    if let Err(error) = admin.permit(mode) {
        telemetry::log::error("the permissions of the admin socket stay as they were", &[("error", &error)]);
    }
}

/// Tells what an admin listener that asks for no credentials means.
fn tell_rules(admin: &model::snapshot::Admin) {
    let so = if !admin.changes_allowed {
        "everybody who reaches its address may read there, so nothing can be changed by the API"
    } else if admin.asks_for_credentials() {
        return;
    } else if admin.bind.ip().is_some() {
        "every user of this machine may change the configuration there; tokens or a Unix socket prevent that"
    } else if !admin.is_for_some_only() {
        "its `mode` lets every user of this machine change the configuration there; tokens or another `mode` prevent that"
    } else if admin.mode & 0o020 != 0 {
        let so = "its group may change the configuration there, and have files sent that this program may read";
        return telemetry::log::info("the admin listener asks for no credentials", &[("so", &so)]);
    } else {
        return;
    };
    telemetry::log::warn("the admin listener asks for no credentials", &[("so", &so)]);
}

/// The connections of the data plane, as the control plane knows them.
fn connections(workers: &Workers) -> Connections {
    let (list, end) = (workers.connections(), workers.connections());
    Connections { list: Box::new(move |page| list.list(page)), end: Box::new(move |id| end.end(id)) }
}

fn tell_refusal(message: &'static str, refusal: &Refusal) {
    match refusal {
        Refusal::Bad(diagnostics) => {
            // First, so that who waits for the line below has read what it is about.
            eprintln!("{diagnostics}");
            telemetry::log::error(message, &[("problems", &(diagnostics.list.len() + diagnostics.left_out))]);
        }
        other => telemetry::log::error(message, &[("reason", &other)]),
    }
}
