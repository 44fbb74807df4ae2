//! A running program with the one that follows it, and with the one that it follows.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use admin::Bound;
use control::handover_limits::Told;
use control::{Done, Order, Refusal, View};
use control::{handover, handover_limits, handover_tables};
use model::Address;
use plan::{Moment, Plan, Publisher};
use proxy::Workers;
use serde_json::{Value, json};
use telemetry::Telemetry;
use tokio::sync::oneshot;

use super::{After, Live, reopen_logs};
use crate::ending::Ending;
use crate::signals::{Signals, Wish};
use crate::systemd;
use crate::upgrade::channel::{Frame, Kind};
use crate::upgrade::manifest;
use crate::upgrade::predecessor::began;
use crate::upgrade::successor::{Hold, Wanted};
use crate::upgrade::{Ear, Predecessor, Successor};

/// How often the new process is told what the old one has counted.
const FIGURES_EVERY: Duration = Duration::from_secs(1);

/// Where an order goes when it is carried out.
type Answer = oneshot::Sender<Result<Done, Refusal>>;

/// The process before, until it has been followed.
pub(super) type Before = Arc<Mutex<Option<Predecessor>>>;

/// The way by which plans reach the workers. The first takes over from the process before, if there is one: it is published,
/// but nothing is taken at its sockets before that process has said what it knows.
pub(super) fn publisher(workers: &Workers, (telemetry, before, view): (&Arc<Telemetry>, &Before, View)) -> Publisher {
    let (publisher, threshold) = (Arc::new(workers.publisher()), workers.threshold());
    let tries = Arc::clone(&publisher);
    let (telemetry, before, is_first) = (Arc::clone(telemetry), Arc::clone(before), AtomicBool::new(true));
    Publisher::new(move |plan| {
        publisher.publish(Arc::clone(&plan))?;
        if is_first.swap(false, Ordering::Relaxed) {
            if let Some(before) = &*before.lock().unwrap_or_else(PoisonError::into_inner) {
                match before.prepared(&threshold.taken(), |first| take_in(first, &plan, (&telemetry, &view))) {
                    Ok(state) => {
                        take_in(&state, &plan, (&telemetry, &view));
                        threshold.know(&manifest::read_flows(&state["flows"]));
                    }
                    Err(_) if before.has_died() => tell_of_death("its runtime state is lost"),
                    Err(error) => return Err(format!("the previous process does not shut down: {error}")),
                }
            }
            threshold.begin();
        }
        Ok(())
    })
    .with_trials(move |trial| tries.try_out(trial))
}

fn tell_of_death(so: &'static str) {
    telemetry::log::warn("the previous process died during the upgrade", &[("so", &so)]);
}

/// Takes in what the process before has come to know.
fn take_in(told: &Value, plan: &Plan, (telemetry, view): (&Telemetry, &View)) {
    let now = Instant::now();
    handover::inherit_endpoints(plan, &told["endpoints"], now);
    handover::inherit_circuits(plan, &told["circuits"], now);
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    handover::inherit_sessions(plan, &told["sessions"], Moment { now, unix });
    let is_whole = handover_tables::inherit_tables(plan, &told["tables"], now);
    view.inherit_peers(&told["peers"], !is_whole);
    handover_limits::inherit_limits(plan, &told["rates"], now);
    handover_limits::inherit_limits(plan, &told["places"], now);
    // It may be a part, without these.
    if told["figures"].is_object() {
        // What is configured counts on, whether this process has used it yet or not.
        telemetry.retain(&plan.snapshot);
        telemetry.inherit(&handover::read_figures(&told["figures"]));
    }
}

impl Live {
    /// Takes over the admin listener of the process before.
    pub(super) fn adopt_admin(&self, bind: &Address, socket: OwnedFd) -> io::Result<Bound> {
        let bound = Bound::adopt(bind, socket)?;
        if let Some(before) = &mut *self.predecessor.lock().unwrap_or_else(PoisonError::into_inner) {
            before.takes_admin = true;
        }
        Ok(bound)
    }

    /// What is to hear the process before, if there is one.
    pub(super) fn ear(&self) -> Result<Option<Ear>, Refusal> {
        if self.predecessor.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Ok(None);
        }
        let (telemetry, notes) = (Arc::clone(&self.telemetry), self.notes.0.clone());
        let (is_gone, view) = (Arc::clone(&self.is_alone), self.view().clone());
        let hear = move |frame: Option<&Frame>| {
            let plan = view.plan().unwrap_or_default();
            let Some(frame) = frame else {
                handover_limits::forget_places(&plan);
                return is_gone.store(true, Ordering::Relaxed);
            };
            let told: Value = serde_json::from_slice(&frame.body).unwrap_or_default();
            match frame.kind {
                Kind::Figures if told.is_object() => {
                    telemetry.inherit(&handover::read_figures(&told));
                    handover_limits::inherit_limits(&plan, &told["places"], Instant::now());
                }
                Kind::Note => {
                    let wishes = [("reload", Wish::Reload), ("reopen_logs", Wish::ReopenLogs)];
                    for (_, wish) in wishes.into_iter().filter(|(name, _)| told[name] == true) {
                        // The program may be ending.
                        let _ = notes.send(wish);
                    }
                }
                _ => {}
            }
        };
        let deaf = |error: io::Error| Refusal::Unpublished(format!("the previous process does not answer: {error}"));
        Ear::open(hear).map(Some).map_err(deaf)
    }

    /// Says to the process before that this one goes on, and hears what it still has to say.
    pub(super) fn take_over(&mut self, ear: Option<Ear>) -> Result<(), Refusal> {
        self.admin_door.drop_offered();
        let before = self.predecessor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((before, ear)) = before.zip(ear) else { return Ok(()) };
        match before.ready() {
            Ok(()) => {
                self.is_alone.store(false, Ordering::Relaxed);
                ear.listen(before);
            }
            Err(_) if before.has_died() => {
                // Its requests are over, and hold no places any more.
                handover_limits::forget_places(&self.view().plan().unwrap_or_default());
                tell_of_death("its open connections are lost");
            }
            Err(error) => return Err(Refusal::Unpublished(format!("the previous process is gone: {error}"))),
        }
        self.take_files();
        Ok(())
    }

    /// The files of Unix sockets that the process before has made are this one's. Not before it is known that this one goes on: that
    /// one would go on with them. They get the permissions that are configured here.
    fn take_files(&mut self) {
        self.workers.take_files();
        let mode = self.view().plan().and_then(|plan| Some(plan.snapshot.admin.as_ref()?.mode));
        if let Some(mode) = mode {
            self.admin_door.take_file(mode);
        }
    }

    /// Says to the process before, if there is one, why this one cannot follow it.
    pub(super) fn refuse(&self, refusal: &Refusal) {
        if let Some(before) = &*self.predecessor.lock().unwrap_or_else(PoisonError::into_inner) {
            before.refuse(&refusal.to_string());
        }
    }

    /// Starts the program anew and lets it take over. `None`: this one goes on.
    pub(super) async fn upgrade(&mut self, signals: &mut Signals, order: Option<(Order, Answer)>) -> Option<After> {
        let author = order.as_ref().map(|(order, _)| Arc::clone(&order.author));
        let mut meanwhile = Meanwhile::default();
        if let Err(refusal) = self.may_be_followed(order.as_ref().map(|(order, _)| order)) {
            self.answer(order, Err(refusal));
            return None;
        }
        let outcome = match self.make_ready() {
            Ok((successor, offered)) => self.follow(successor, offered, (signals, &mut meanwhile)).await,
            Err(why) => Err(why),
        };
        match outcome {
            Ok(successor) => {
                systemd::followed_by(successor.pid);
                self.leave_to(&successor, &meanwhile);
                self.answer(order, Ok(successor.pid));
                Some(After::Followed(successor))
            }
            Err(why) => {
                self.view().resume_peers();
                let by = author.as_deref().unwrap_or("a signal");
                let pairs: telemetry::log::Pairs<'_> = &[("reason", &why), ("by", &by)];
                self.workers.go_on();
                telemetry::log::error("the upgrade failed; this process stays", pairs);
                let why = format!("the new process has not taken over: {why}");
                self.answer(order, Err(Refusal::Unpublished(why)));
                if meanwhile.ends || (meanwhile.reload && self.reload(signals).await.is_none()) {
                    return Some(After::Shutdown);
                }
                None
            }
        }
    }

    /// Whether an upgrade may begin now; who asked by a signal reads in the log why not.
    fn may_be_followed(&self, order: Option<&Order>) -> Result<(), Refusal> {
        match order {
            Some(order) => self.may_begin(order),
            None if self.reconciler.has_canary() => {
                telemetry::log::error("the upgrade failed; this process stays", &[("reason", &Refusal::Busy)]);
                Err(Refusal::Busy)
            }
            None => Ok(()),
        }
    }

    /// Starts the new process, and says what it is to be offered.
    fn make_ready(&mut self) -> Result<(Successor, Offered), String> {
        let program = self.program.as_ref().ok_or("this command cannot be upgraded")?;
        let failed = |error: io::Error| format!("the sockets cannot be handed over: {error}");
        let (sockets, mut descriptors) = manifest::write(self.workers.offer().map_err(failed)?);
        let secrets = manifest::write_secrets(&self.workers.secrets());
        let mut told = json!({ "sockets": sockets, "past": self.reconciler.hand_over(), "secrets": secrets });
        told["pid"] = std::process::id().into();
        told["began"] = began(std::process::id().into()).into();
        if let Some((bind, socket)) = self.admin_door.offer().map_err(failed)? {
            told["admin"] = bind.into();
            descriptors.push(socket);
        }
        let successor = Successor::start(program)?;
        let path = program.path.display();
        telemetry::log::info("upgrade started", &[("pid", &successor.pid), ("program", &path)]);
        Ok((successor, Offered { told, descriptors }))
    }

    /// Makes the new process follow this one.
    async fn follow(
        &mut self,
        successor: Successor,
        offered: Offered,
        (signals, meanwhile): (&mut Signals, &mut Meanwhile),
    ) -> Result<Successor, String> {
        let hold = successor.hold().map_err(|error| error.to_string())?;
        let until = Instant::now() + self.upgrade_timeout;
        let preparing = tokio::task::spawn_blocking(move || {
            let mut successor = successor;
            let wanted = successor.offer((&offered.told, &offered.descriptors), until);
            wanted.map(|wanted| (successor, wanted))
        });
        let (mut successor, wanted) = self.meanwhile(preparing, &hold, (signals, meanwhile)).await?;
        let mut known = None;
        if wanted.in_parts {
            let (first, rates) = self.first_state();
            known = Some(rates);
            let telling =
                tokio::task::spawn_blocking(move || successor.hand_over_first(&first, until).map(|()| successor));
            successor = self.meanwhile(telling, &hold, (signals, meanwhile)).await?;
        }
        let mut state = self.state(known.as_ref());
        // From here on datagrams wait in the sockets until either process reads them.
        state["flows"] = manifest::write_flows(&self.workers.pause());
        let patience = self.upgrade_timeout;
        let taking_over = tokio::task::spawn_blocking(move || {
            let mut successor = successor;
            successor.hand_over(&state, patience).map(|()| successor)
        });
        let mut successor = self.meanwhile(taking_over, &hold, (signals, meanwhile)).await?;
        successor.leave();
        meanwhile.wanted = Some(wanted);
        Ok(successor)
    }

    /// Waits for the new process, and does what signals and others ask for.
    async fn meanwhile<T>(
        &mut self,
        mut task: tokio::task::JoinHandle<Result<T, String>>,
        hold: &Hold,
        (signals, meanwhile): (&mut Signals, &mut Meanwhile),
    ) -> Result<T, String> {
        loop {
            tokio::select! {
                done = &mut task => {
                    let done = done.unwrap_or_else(|error| Err(error.to_string()));
                    return if meanwhile.ends { Err("this process is shutting down".to_owned()) } else { done };
                }
                wish = signals.next() => match wish {
                    Wish::Reload => meanwhile.reload = true,
                    Wish::ReopenLogs => {
                        reopen_logs(&self.workers);
                        meanwhile.reopen = true;
                    }
                    Wish::Upgrade => telemetry::log::warn("an upgrade is already in progress", &[]),
                    Wish::End => {
                        meanwhile.ends = true;
                        hold.end();
                    }
                },
                () = self.watchdog.turn() => self.watchdog.beat(&self.workers),
                (_, answer) = self.orders.next() => {
                    // Who asked may have gone meanwhile.
                    let _ = answer.send(Err(Refusal::Upgrading));
                }
            }
        }
    }

    /// Returns the part of the runtime state that may be large: a table of sessions takes longer than datagrams can wait.
    fn first_state(&self) -> (Value, Told) {
        // First: what is in the tables from here on is not in them for peers.
        let peers = self.view().hand_over_peers();
        let (plan, now) = (self.view().plan().unwrap_or_default(), Instant::now());
        let (rates, known) = handover_limits::of_rates(&plan, None, now);
        let told = json!({
            "sessions": handover::of_sessions(&plan, now, None),
            "tables": handover_tables::of_tables(&plan, now, None),
            "rates": rates,
            "peers": peers,
            "figures": handover::of_figures(&self.telemetry.figures()),
            "goes_on": true,
        });
        (told, known)
    }

    /// Returns the runtime state: all, or what [`Self::first_state`], which was sent before, does not have.
    fn state(&self, known: Option<&Told>) -> Value {
        let peers = self.view().hand_over_peers();
        let (plan, now) = (self.view().plan().unwrap_or_default(), Instant::now());
        let since = known.map(|told| now.saturating_duration_since(told.at));
        let mut told = json!({
            "endpoints": handover::of_endpoints(&plan, now),
            "circuits": handover::of_circuits(&plan, now),
            "sessions": handover::of_sessions(&plan, now, since),
            "tables": handover_tables::of_tables(&plan, now, since),
            "rates": handover_limits::of_rates(&plan, known, now).0,
            "places": handover_limits::of_places(&plan),
            "peers": peers,
        });
        if known.is_none() {
            told["figures"] = handover::of_figures(&self.telemetry.figures());
        }
        told
    }

    /// The new process has taken over: it has the sockets that it wants, and is told of signals that came meanwhile.
    fn leave_to(&mut self, successor: &Successor, meanwhile: &Meanwhile) {
        let wanted = meanwhile.wanted.as_ref();
        self.reconciler.retire_peers();
        self.workers.give(wanted.map(|wanted| wanted.taken.clone()).unwrap_or_default());
        if wanted.is_some_and(|wanted| wanted.admin) {
            self.admin_door.part();
        }
        telemetry::log::info("upgrade finished: the new process has taken over", &[("pid", &successor.pid)]);
        if meanwhile.reload || meanwhile.reopen {
            let told = json!({ "reload": meanwhile.reload, "reopen_logs": meanwhile.reopen });
            successor.tell(Kind::Note, &told);
        }
    }

    fn answer(&self, order: Option<(Order, Answer)>, outcome: Result<u32, Refusal>) {
        let Some((_, answer)) = order else { return };
        let (generation, revision) = (self.view().generation(), self.reconciler.revision());
        let done = |pid| Done {
            generation,
            revision,
            is_changed: false,
            differences: Arc::default(),
            effects: <_>::default(),
            warnings: Vec::new(),
            is_tried: false,
            not_kept: self.reconciler.not_kept(),
            successor: Some(pid),
        };
        // Who asked may have gone meanwhile.
        let _ = answer.send(outcome.map(done));
    }

    /// Ends after another process has taken over: lets exchanges end within the time for that, and tells what was counted.
    pub(crate) async fn retire(self, successor: &Successor, signals: &mut Signals) -> Ending {
        let (telemetry, plan) = (Arc::clone(&self.telemetry), self.view().plan().unwrap_or_default());
        let tell = || {
            let mut told = handover::of_figures(&telemetry.figures());
            told["places"] = handover_limits::of_places(&plan);
            successor.tell(Kind::Figures, &told);
        };
        let telling = async {
            let mut turns = tokio::time::interval(FIGURES_EVERY);
            loop {
                turns.tick().await;
                tell();
            }
        };
        tokio::select! {
            // That connections were cut off is no failure of what goes on.
            _ = self.end(signals) => {}
            () = telling => {}
        }
        tell();
        Ending::Good
    }
}

/// What a new process is to get.
struct Offered {
    told: Value,
    descriptors: Vec<OwnedFd>,
}

/// What happened while a new process was made ready.
#[derive(Default)]
struct Meanwhile {
    reload: bool,
    reopen: bool,
    ends: bool,
    wanted: Option<Wanted>,
}
